//! Commands that would exceed a client's memory are refused, one by one where possible.

use std::time::Duration;

use esker_server::Limits;

use crate::client::{EACH_BYTES, Running, command, limited, narrow};

#[tokio::test]
async fn transaction_queue_counts_toward_client_memory() {
    let server = narrow().await;
    let set = command(&[b"SET".as_slice(), b"k", &[b'x'; 400 << 10]]);
    // Commands queued by a disconnected client are discarded: those of four clients exceed the memory of all.
    for _ in 0..4 {
        let mut client = server.client().await;
        client.ask("MULTI", "+OK\r\n").await;
        let mut queued = 0;
        loop {
            client.send(&set).await;
            match client.line().await.as_str() {
                "+QUEUED" => queued += 1,
                line => break assert!(line.starts_with("-ERR there is no memory for it"), "{line}"),
            }
            assert!(queued * (400 << 10) < EACH_BYTES, "{queued} commands were queued");
        }
        assert!(queued > 2);
    }
}

#[tokio::test]
async fn values_that_do_not_fit_are_refused() {
    let server = narrow().await;
    let mut client = server.client().await;
    server.store.put("large", vec![b'x'; 4 << 20]).await.unwrap();
    for refused in
        ["APPEND large x", "SETRANGE absent 4000000 x", "GETRANGE large 0 1", "GETDEL large", "WATCH large"]
    {
        client.send(format!("{refused}\r\n")).await;
        let line = client.line().await;
        assert!(line.starts_with("-ERR cannot ") && line.contains("client-memory-each"), "{refused}: {line}");
    }
    // These commands work without reading values.
    client.ask("EXISTS large", ":1\r\n").await;
    client.ask("TOUCH large absent large", ":2\r\n").await;
    client
        .send(
            "STRLEN large\r\nTTL large\r\nPTTL absent\r\nTYPE large\r\nEXPIRETIME large\r\nSTRLEN absent\r\n",
        )
        .await;
    client.expect(":4194304\r\n:-1\r\n:-2\r\n+string\r\n:-1\r\n:0\r\n").await;
    client.ask("SCAN 0", "*2\r\n$1\r\n0\r\n*1\r\n$5\r\nlarge\r\n").await;
    client.ask("KEYS *", "*1\r\n$5\r\nlarge\r\n").await;
    // Other commands of the pipeline are served.
    client.send("SET a 1\r\nAPPEND a 2\r\nAPPEND large x\r\nAPPEND a 3\r\nGET a\r\n").await;
    client.expect("+OK\r\n:2\r\n").await;
    assert!(client.line().await.starts_with("-ERR cannot answer"));
    client.expect(":3\r\n$3\r\n123\r\n").await;
    assert_eq!(server.store.get("large").await.unwrap().unwrap().len(), 4 << 20);
    assert_eq!(server.store.get("absent").await.unwrap(), None);
}

#[tokio::test]
async fn transaction_whose_answer_exceeds_memory_is_refused() {
    let server = narrow().await;
    let mut client = server.client().await;
    let set = command(&[b"SET".as_slice(), b"k", &[b'x'; 10 << 10]]);
    for (gets, fits) in [(50, true), (500, false)] {
        client.ask("MULTI", "+OK\r\n").await;
        client.send([set.clone(), b"GET k\r\n".repeat(gets)].concat()).await;
        for _ in 0..=gets {
            client.expect("+QUEUED\r\n").await;
        }
        client.send("EXEC\r\n").await;
        let line = client.line().await;
        if fits {
            assert_eq!(line, format!("*{}", gets + 1));
            client.expect("+OK\r\n").await;
            for _ in 0..2 * gets {
                client.skip_line().await;
            }
        } else {
            assert!(line.starts_with("-EXECABORT") && line.contains("client-memory-each"), "{line}");
        }
    }
    client.ask("PING", "+PONG\r\n").await;
}

/// Returns a compressed DUMP payload of `bytes` times `a`, in the format of Redis.
fn compressed(bytes: u32) -> Vec<u8> {
    // A literal, followed by matches of it: a match has up to 264 bytes, encoded in three bytes.
    let (matches, rest) = ((bytes - 2) / 264, (bytes - 2) % 264);
    let literals = [&[1, b'a', b'a'][..], &[0, b'a'].repeat(rest as usize)].concat();
    let text = [&literals[..], &[0xe0, 255, 0].repeat(matches as usize)].concat();
    let lengths = [&[0x80][..], &(text.len() as u32).to_be_bytes(), &[0x80], &bytes.to_be_bytes()].concat();
    let mut payload = [&[0, 0xc3][..], &lengths, &text, &[6, 0]].concat();
    let shift = |crc: u64, _| crc >> 1 ^ if crc & 1 == 1 { 0x95ac_9329_ac4b_c9b5 } else { 0 };
    let crc = payload.iter().fold(0, |crc, &byte| (0..8).fold(crc ^ u64::from(byte), shift));
    payload.extend_from_slice(&crc.to_le_bytes());
    payload
}

#[tokio::test]
async fn a_payload_that_expands_takes_what_it_expands_to() {
    let server = narrow().await;
    let mut client = server.client().await;
    let restore = |bytes| command(&[b"RESTORE".as_slice(), b"k", b"0", &compressed(bytes), b"REPLACE"]);
    client.send(restore(1 << 20)).await;
    client.expect("+OK\r\n").await;
    assert_eq!(server.store.get("k").await.unwrap().unwrap(), vec![b'a'; 1 << 20]);
    client.send(restore(4 << 20)).await;
    let line = client.line().await;
    assert!(line.starts_with("-ERR cannot answer") && line.contains("client-memory-each"), "{line}");
    client.ask("MULTI", "+OK\r\n").await;
    client.send([restore(4 << 20), b"EXEC\r\n".to_vec()].concat()).await;
    client.expect("+QUEUED\r\n").await;
    let line = client.line().await;
    assert!(line.starts_with("-EXECABORT") && line.contains("client-memory-each"), "{line}");
    client.ask("STRLEN k", ":1048576\r\n").await;
}

/// Not memory, but a limit as well, which clients query.
#[tokio::test]
async fn the_idle_time_is_told() {
    for (wait, told) in [(None, "0"), (Some(Duration::from_secs(7)), "7")] {
        let server = Running::start(limited(Limits { idle_wait: wait, ..Limits::default() })).await;
        server
            .client()
            .await
            .ask("CONFIG GET timeout", &format!("*2\r\n$7\r\ntimeout\r\n$1\r\n{told}\r\n"))
            .await;
    }
}

#[tokio::test]
async fn keys_fit_or_are_refused() {
    let server = narrow().await;
    let long = "k".repeat(100);
    let mut client = server.client().await;
    for at in (0..12_000).step_by(1000) {
        let pairs: Vec<_> = (at..at + 1000).flat_map(|n| [format!("{long}{n}"), "x".to_owned()]).collect();
        client.send(command(&[vec!["MSET".to_owned()], pairs].concat())).await;
        client.expect("+OK\r\n").await;
    }
    client.send("KEYS *\r\n").await;
    let line = client.line().await;
    assert!(line.starts_with("-ERR cannot answer") && line.contains("client-memory-each"), "{line}");
    client.ask(&format!("KEYS {long}77"), &format!("*1\r\n$102\r\n{long}77\r\n")).await;
}

#[tokio::test]
async fn lcs_working_memory_counts_toward_client_memory() {
    let server = narrow().await;
    let mut client = server.client().await;
    for key in ["long1", "long2"] {
        server.store.put(key, vec![b'x'; 8 << 10]).await.unwrap();
        client.ask(&format!("SET short{key} xyz"), "+OK\r\n").await;
    }
    client.ask("LCS shortlong1 shortlong2", "$3\r\nxyz\r\n").await;
    client.ask("LCS long1 shortlong2 LEN", ":1\r\n").await;
    client.send("LCS long1 long2\r\n").await;
    let line = client.line().await;
    assert!(line.starts_with("-ERR cannot answer") && line.contains("client-memory-each"), "{line}");
    client
        .send(command(&["EVAL", "return redis.call('lcs', KEYS[1], KEYS[2])", "2", "long1", "long2"]))
        .await;
    let line = client.line().await;
    assert!(line.starts_with("-ERR") && line.contains("memory"), "{line}");
    client.ask("MULTI", "+OK\r\n").await;
    client.ask("LCS long1 long2 LEN", "+QUEUED\r\n").await;
    client.send("EXEC\r\n").await;
    let line = client.line().await;
    assert!(line.starts_with("-EXECABORT") && line.contains("client-memory-each"), "{line}");
}

#[tokio::test]
async fn transaction_with_too_many_pfadd_is_refused() {
    let server = narrow().await;
    let mut client = server.client().await;
    client.ask("MULTI", "+OK\r\n").await;
    for _ in 0..300 {
        client.ask("PFADD k a", "+QUEUED\r\n").await;
    }
    client.send("EXEC\r\n").await;
    let line = client.line().await;
    assert!(line.starts_with("-EXECABORT"), "{line}");
    client.ask("EXISTS k", ":0\r\n").await;
}
