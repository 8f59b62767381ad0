//! SET GET MSET MGET DEL UNLINK EXISTS DBSIZE FLUSHALL.

use std::time::Duration;

use crate::client::{Running, command, plain};
use crate::frames::Frames;

#[tokio::test]
async fn set_and_get() {
    let server = Running::start(plain()).await;
    let mut client = server.client().await;
    client.ask("GET k", "$-1\r\n").await;
    client.ask("SET k v", "+OK\r\n").await;
    client.ask("gEt k", "$1\r\nv\r\n").await;
    client.ask("SET k \"\"", "+OK\r\n").await;
    client.ask("GET k", "$0\r\n\r\n").await;
}

#[tokio::test]
async fn keys_and_values_are_any_bytes() {
    let server = Running::start(plain()).await;
    let mut client = server.client().await;
    let key: Vec<u8> = (0..=255).collect();
    let value: Vec<u8> = b"\r\n$-1\r\n\0*3\r\n".repeat(1000);
    client.send(command(&[b"SET".as_slice(), &key, &value])).await;
    client.expect("+OK\r\n").await;
    client.send(command(&[b"GET".as_slice(), &key])).await;
    client.expect([format!("${}\r\n", value.len()).as_bytes(), &value, b"\r\n"].concat()).await;
}

#[tokio::test]
async fn large_values_come_back() {
    let server = Running::start(plain()).await;
    let mut client = server.client().await;
    let value: Vec<u8> = (0..3_000_000u32).map(|i| (i % 251) as u8).collect();
    for key in ["a", "b"] {
        client.send(command(&[b"SET".as_slice(), key.as_bytes(), &value])).await;
        client.expect("+OK\r\n").await;
    }
    client.send(command(&["MGET", "a", "none", "b"])).await;
    let bulk = [format!("${}\r\n", value.len()).as_bytes(), &value, b"\r\n"].concat();
    client.expect([b"*3\r\n".as_slice(), &bulk, b"$-1\r\n", &bulk].concat()).await;
}

/// Compression is not observable: lengths and ranges are those of the original value.
#[tokio::test]
async fn compressed_values_are_as_they_were_put() {
    let server = Running::start(plain()).await;
    let mut client = server.client().await;
    client.ask("CONFIG GET compression", "*2\r\n$11\r\ncompression\r\n$3\r\nlz4\r\n").await;
    let value = |bytes: usize| "some words ".repeat(bytes / 11);
    for (compressed, way) in ["lz4", "zstd", "zstd:19", "off"].into_iter().enumerate() {
        client.ask(&format!("CONFIG SET compression {way}"), "+OK\r\n").await;
        for bytes in [110, 11_000, 330_000] {
            let value = value(bytes);
            client.send(command(&["SET", "k", &value])).await;
            client.expect("+OK\r\n").await;
            client.ask("STRLEN k", &format!(":{bytes}\r\n")).await;
            client.ask("GETRANGE k 33 42", "$10\r\nsome words\r\n").await;
            client.ask("GETRANGE k -11 -2", "$10\r\nsome words\r\n").await;
            client.ask("APPEND k x", &format!(":{}\r\n", bytes + 1)).await;
            client.ask("SETRANGE k 5 X", &format!(":{}\r\n", bytes + 1)).await;
            client.send("GET k\r\n").await;
            let after = format!("{}X{}x", &value[..5], &value[6..]);
            client.expect(format!("${}\r\n{after}\r\n", after.len())).await;
        }
        let activity = server.store.stats().activity;
        let expected = 6 * (compressed as u64 + 1).min(3);
        assert_eq!(
            activity.values_compressed, expected,
            "{way}: of three values two are long, and written three times"
        );
    }
    client
        .ask(
            "CONFIG SET compression gzip",
            "-ERR CONFIG SET failed (possibly related to argument 'compression') - 'gzip' is not a compression; it is \
             lz4, zstd (level 3), zstd:LEVEL (1 to 22) or off\r\n",
        )
        .await;
}

#[tokio::test]
async fn mset_and_mget() {
    let server = Running::start(plain()).await;
    let mut client = server.client().await;
    client.ask("MSET a 1 b 2 a 3", "+OK\r\n").await;
    client.ask("MGET a b c a", "*4\r\n$1\r\n3\r\n$1\r\n2\r\n$-1\r\n$1\r\n3\r\n").await;
    client.ask("MGET b", "*1\r\n$1\r\n2\r\n").await;
    client.ask("MSET a", "-ERR wrong number of arguments for 'mset' command\r\n").await;
    client.ask("MSET a 1 b", "-ERR wrong number of arguments for 'mset' command\r\n").await;
    client.ask("GET a", "$1\r\n3\r\n").await;
}

#[tokio::test]
async fn an_mget_of_many_keys_is_one_array() {
    let server = Running::start(plain()).await;
    let mut client = server.client().await;
    let words: Vec<_> =
        (0..3001).map(|n| if n == 0 { "MGET".into() } else { format!("key{}", (n - 1) % 1000) }).collect();
    let pairs: Vec<_> = (0..1000).flat_map(|n| [format!("key{n}"), n.to_string()]).collect();
    client.send(command(&[vec!["MSET".to_owned()], pairs].concat())).await;
    client.expect("+OK\r\n").await;
    let expected: Vec<u8> =
        (0..3000).map(|n| (n % 1000).to_string()).fold(b"*3000\r\n".to_vec(), |mut all, n| {
            all.extend(format!("${}\r\n{n}\r\n", n.len()).bytes());
            all
        });
    // Twice in one pipeline between other commands, so that groups begin and end inside an MGET.
    let mget = command(&words);
    client
        .send(
            [&command(&["GET", "key7"]), &mget, &command(&["GET", "key8"]), &mget]
                .map(Vec::as_slice)
                .concat(),
        )
        .await;
    client.expect([b"$1\r\n7\r\n".as_slice(), &expected, b"$1\r\n8\r\n", &expected].concat()).await;
}

#[tokio::test]
async fn deletes_and_counts() {
    let server = Running::start(plain()).await;
    let mut client = server.client().await;
    client.ask("MSET a 1 b 2 c 3 d 4", "+OK\r\n").await;
    client.ask("DBSIZE", ":4\r\n").await;
    client.ask("EXISTS a a b none", ":3\r\n").await;
    client.ask("DEL a a none", ":1\r\n").await;
    client.ask("UNLINK b c", ":2\r\n").await;
    client.ask("EXISTS a b c d", ":1\r\n").await;
    client.ask("DBSIZE", ":1\r\n").await;
    for flush in ["FLUSHALL", "flushdb", "FLUSHALL ASYNC", "FLUSHALL sync"] {
        client.ask("SET k v", "+OK\r\n").await;
        client.ask(flush, "+OK\r\n").await;
        client.ask("DBSIZE", ":0\r\n").await;
    }
    client.ask("FLUSHALL NOW", "-ERR syntax error\r\n").await;
    client.ask("FLUSHALL SYNC SYNC", "-ERR syntax error\r\n").await;
    client.ask("GET k", "$-1\r\n").await;
}

#[tokio::test]
async fn set_under_conditions() {
    let server = Running::start(plain()).await;
    let mut client = server.client().await;
    client.ask("SET k 1 XX", "$-1\r\n").await;
    client.ask("SET k 1 NX", "+OK\r\n").await;
    client.ask("SET k 2 nx", "$-1\r\n").await;
    client.ask("GET k", "$1\r\n1\r\n").await;
    client.ask("SET k 3 xx", "+OK\r\n").await;
    client.ask("SET k 4 GET", "$1\r\n3\r\n").await;
    client.ask("SET none 4 XX GET", "$-1\r\n").await;
    client.ask("EXISTS none", ":0\r\n").await;
    client.ask("SET k 5 NX GET", "$1\r\n4\r\n").await;
    client.ask("GET k", "$1\r\n4\r\n").await;
    client.ask("SET new 6 NX GET", "$-1\r\n").await;
    client.ask("GET new", "$1\r\n6\r\n").await;
    client.ask("SET k 7 NX NX", "$-1\r\n").await;
    for wrong in ["NX XX", "XX NX", "ZZ", "EX", "EX 1 PX 1", "EX 1 KEEPTTL", "KEEPTTL EXAT 1", "NX EX"] {
        client.ask(&format!("SET k v {wrong}"), "-ERR syntax error\r\n").await;
    }
}

#[tokio::test]
async fn values_expire() {
    let server = Running::start(plain()).await;
    let mut client = server.client().await;
    client.ask("SET a 1 PX 150", "+OK\r\n").await;
    client.ask("SET b 1 EX 1000", "+OK\r\n").await;
    client.ask("SET c 1 PX 150", "+OK\r\n").await;
    client.ask("SET d 1 PX 150 NX", "+OK\r\n").await;
    client.ask("SET e 1 PXAT 1", "+OK\r\n").await;
    client.ask("SET f 1 EXAT 99999999999", "+OK\r\n").await;
    client.ask("SET g 1 PX 150", "+OK\r\n").await;
    client.ask("SET c 2 KEEPTTL", "+OK\r\n").await;
    client.ask("SET g 2", "+OK\r\n").await;
    client.ask("MGET a c d g", "*4\r\n$1\r\n1\r\n$1\r\n2\r\n$1\r\n1\r\n$1\r\n2\r\n").await;
    tokio::time::sleep(Duration::from_millis(200)).await;
    client
        .ask("MGET a b c d e f g", "*7\r\n$-1\r\n$1\r\n1\r\n$-1\r\n$-1\r\n$-1\r\n$1\r\n1\r\n$1\r\n2\r\n")
        .await;
    client.ask("EXISTS a b c d e f g", ":3\r\n").await;
    client.ask("SET a 2 NX", "+OK\r\n").await;
    for amount in ["0", "-1", "9223372036854775807"] {
        client.ask(&format!("SET k v EX {amount}"), "-ERR invalid expire time in 'set' command\r\n").await;
    }
    for amount in ["x", "1.5", "9223372036854775808", "\"\""] {
        client.ask(&format!("SET k v PX {amount}"), "-ERR value is not an integer or out of range\r\n").await;
    }
}

#[tokio::test]
async fn dump_and_restore() {
    let server = Running::start(plain()).await;
    let mut client = server.client().await;
    let value: Vec<u8> = (0..100_000_u32).map(|i| (i % 251) as u8).collect();
    let payload = esker_rdb::dump::encode(&value);
    let bulk = |bytes: &[u8]| [format!("${}\r\n", bytes.len()).as_bytes(), bytes, b"\r\n"].concat();
    client.send(command(&[b"RESTORE".as_slice(), b"a", b"0", &payload])).await;
    client.expect("+OK\r\n").await;
    client.send("DUMP a\r\n").await;
    client.expect(bulk(&payload)).await;
    // In a transaction, DUMP returns the value restored by an earlier command.
    client.ask("MULTI", "+OK\r\n").await;
    client.send(command(&[b"RESTORE".as_slice(), b"b", b"100000", &payload])).await;
    client.ask("DUMP b", "+QUEUED\r\n+QUEUED\r\n").await;
    client.ask("DUMP none", "+QUEUED\r\n").await;
    client.send("EXEC\r\n").await;
    client.expect([b"*3\r\n+OK\r\n".as_slice(), &bulk(&payload), b"$-1\r\n"].concat()).await;
    client.ask("GETRANGE b 0 0", "$1\r\n\0\r\n").await;
    client.ask("STRLEN b", ":100000\r\n").await;
    client.ask("COPY b a REPLACE", ":1\r\n").await;
    client.send("TTL a\r\n").await;
    assert!([":99", ":100"].contains(&&*client.line().await));
}

/// Clients that read before they write must not lose each other's writes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn swaps_lose_nothing() {
    let server = Running::start(plain()).await;
    let mut tasks = Vec::new();
    for task in 0..4 {
        let mut client = server.client().await;
        tasks.push(tokio::spawn(async move {
            let mut seen = Vec::new();
            for turn in 0..50 {
                client.send(format!("SET k t{task}.{turn:02} GET\r\n")).await;
                let mut head = [0; 5];
                tokio::io::AsyncReadExt::read_exact(&mut client.0, &mut head).await.unwrap();
                if &head == b"$-1\r\n" {
                    continue;
                }
                let mut rest = [0; 6];
                tokio::io::AsyncReadExt::read_exact(&mut client.0, &mut rest).await.unwrap();
                let text = [&head[4..], &rest[..4]].concat();
                seen.push(text);
            }
            seen
        }));
    }
    let mut seen = Vec::new();
    for task in tasks {
        seen.extend(task.await.unwrap());
    }
    let last = server.store.get("k").await.unwrap().unwrap();
    seen.push(last[..].to_vec());
    assert_eq!(seen.len(), 200, "every value but none was replaced once, or is the last");
    seen.sort();
    seen.dedup();
    assert_eq!(seen.len(), 200, "a value was seen twice");
}

#[tokio::test]
async fn commands_of_other_types_say_of_which() {
    let server = Running::start(plain()).await;
    let mut client = server.client().await;
    let see = "(see docs/compatibility.md)\r\n";
    for (command, said) in [
        ("LPUSH list a", "LPUSH is a command of lists"),
        ("hset h f v", "HSET is a command of hashes"),
        ("SADD", "SADD is a command of sets"),
        ("ZADD z 1 a", "ZADD is a command of sorted sets"),
        ("XADD x * a b", "XADD is a command of streams"),
        ("GEOADD g 1 2 a", "GEOADD is a command of geo"),
        ("FCALL f 0", "FCALL is a command of functions"),
        ("READONLY", "READONLY is a command of cluster"),
        ("REPLICAOF NO ONE", "REPLICAOF is a command of replication"),
        ("MODULE LOAD x", "MODULE LOAD is a command of modules"),
        ("function stats", "FUNCTION STATS is a command of functions"),
    ] {
        client.ask(command, &format!("-ERR Esker serves strings: {said} {see}")).await;
    }
    client.ask("COMMAND INFO lpush", "*1\r\n$-1\r\n").await;
    client.ask("MULTI", "+OK\r\n").await;
    client
        .ask("LPUSH list a", &format!("-ERR Esker serves strings: LPUSH is a command of lists {see}"))
        .await;
    client.ask("EXEC", "-EXECABORT Transaction discarded because of previous errors.\r\n").await;
    let called =
        "-ERR Esker serves strings: HGET is a command of hashes (see docs/compatibility.md) script: ";
    client.ask("EVAL \"return redis.call('hget', 'h', 'f')\" 0", called).await;
}

/// PFCOUNT stores its cached count. On a store that accepts no writes it still replies, without storing it.
#[tokio::test]
async fn hyperloglogs_are_counted_in_a_full_store() {
    let small =
        |options: esker_engine::Options| options.segment_bytes(64 << 10).capacity_limit_bytes(2 << 20);
    let server = Running::start_with(small, plain()).await;
    server.store.set_compression(esker_engine::Compression::Off).expect("it needs no feature");
    let mut client = server.client().await;
    client.ask("PFADD a 1 2 3", ":1\r\n").await;
    client.ask("PFADD b 4 5", ":1\r\n").await;
    for bytes in [10_000, 3000, 1000, 300, 100, 30, 0] {
        let mut key = 0_u64;
        while server.store.put(format!("{bytes}:{key}"), vec![0_u8; bytes]).await.is_ok() {
            key += 1;
        }
    }
    let kept = server.store.get("a").await.unwrap();
    // Alone, and beside a refused write.
    let mut frames = Frames::connect(server.resp[0]).await;
    frames.send("PFCOUNT a\r\nPFCOUNT b\r\nAPPEND b x\r\nPFCOUNT a").await;
    for begins in [":3", ":2", "-OOM ", ":3"] {
        let reply = frames.next().await.text();
        assert!(reply.starts_with(begins), "{reply}");
    }
    assert_eq!(server.store.get("a").await.unwrap(), kept);
}
