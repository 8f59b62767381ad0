//! Limits on requests of few bytes with large effects: replies of transactions, names, patterns, long arguments.

use std::io::{ErrorKind, Read, Write};
use std::time::Duration;

use esker_server::Limits;

use crate::client::{Client, Running, command, limited, narrow, plain};

/// All replies of a transaction are held in memory, and very many commands of a few bytes can have long ones.
#[tokio::test]
async fn a_transaction_whose_answers_do_not_fit_is_refused() {
    let server = narrow().await;
    let mut client = server.client().await;
    let commands =
        ["COMMAND", "COMMAND DOCS", "COMMAND INFO", "INFO all", "ECHO x", "CLIENT LIST", "CONFIG GET *"];
    for (asked, fits) in commands.into_iter().flat_map(|asked| [(asked, true), (asked, false)]) {
        let times: usize = if fits { 5 } else { 6000 };
        client.send(format!("MULTI\r\nSET k {times}\r\n")).await;
        client.expect("+OK\r\n+QUEUED\r\n").await;
        // Divided, because all commands at once would exceed the pipeline limit.
        for _ in 0..times.div_ceil(500) {
            client.send(format!("{asked}\r\n").repeat(times.min(500))).await;
            client.expect("+QUEUED\r\n".repeat(times.min(500))).await;
        }
        client.send("EXEC\r\n").await;
        let line = client.line().await;
        if fits {
            assert_eq!(line, format!("*{}", times + 1), "{asked}");
            // The remaining replies do not matter.
            client = server.client().await;
        } else {
            let names_limit =
                ["client-memory-each", "reply-queue-limit"].iter().any(|name| line.contains(name));
            assert!(line.starts_with("-EXECABORT") && names_limit, "{asked}: {line}");
            client.ask("GET k", "$1\r\n5\r\n").await;
        }
    }
}

/// Commands with and without keys are answered in order, as if each had run at its turn.
#[tokio::test]
async fn a_transaction_answers_in_its_order() {
    let server = Running::start(plain()).await;
    let mut client = server.client().await;
    let large = "v".repeat(20_000);
    let asked =
        ["DBSIZE", "SET k x", "DBSIZE", "ECHO a", "GET k", "SET l y", "DEL k", "DBSIZE", "INCR l", "ECHO b"];
    client
        .send(format!("SET large {large}\r\nMULTI\r\n{}\r\nGET large\r\nEXEC\r\n", asked.join("\r\n")))
        .await;
    client.expect(format!("+OK\r\n+OK\r\n{}", "+QUEUED\r\n".repeat(asked.len() + 1))).await;
    let not_a_number = "-ERR value is not an integer or out of range\r\n";
    client
        .expect(format!(
            "*11\r\n:1\r\n+OK\r\n:2\r\n$1\r\na\r\n$1\r\nx\r\n+OK\r\n:1\r\n:2\r\n{not_a_number}$1\r\nb\r\n$20000\r\n{large}\r\n"
        ))
        .await;
    // A transaction refused as a whole has no effect.
    client.ask("WATCH k", "+OK\r\n").await;
    server.client().await.ask("SET k other", "+OK\r\n").await;
    client.send("MULTI\r\nCLIENT SETNAME me\r\nSET k mine\r\nEXEC\r\n").await;
    client.expect("+OK\r\n+QUEUED\r\n+QUEUED\r\n*-1\r\n").await;
    client.ask("CLIENT GETNAME", "$-1\r\n").await;
}

#[tokio::test]
async fn names_are_short() {
    let server = Running::start(plain()).await;
    let mut client = server.client().await;
    let (fits, long) = ("n".repeat(256), "n".repeat(257));
    for (words, what) in [
        (&["CLIENT", "SETNAME"][..], "Client names"),
        (&["CLIENT", "SETINFO", "lib-name"], "lib-name"),
        (&["CLIENT", "SETINFO", "lib-ver"], "lib-ver"),
    ] {
        let given = |name: &str| command(&[words, &[name]].concat());
        client.send(given(&fits)).await;
        client.expect("+OK\r\n").await;
        client.send(given(&long)).await;
        client.expect(format!("-ERR {what} cannot be longer than 256 bytes.\r\n")).await;
    }
    client.send(format!("HELLO 2 SETNAME {long}\r\n")).await;
    client.expect("-ERR Client names cannot be longer than 256 bytes.\r\n").await;
    let listed = client.text("CLIENT LIST").await;
    assert!(
        listed.contains(&format!("name={fits} ")) && listed.contains(&format!("lib-ver={fits}\n")),
        "{listed}"
    );
}

#[tokio::test]
async fn patterns_are_short() {
    let server = Running::start(plain()).await;
    let mut client = server.client().await;
    client.ask("SET key x", "+OK\r\n").await;
    let (fits, long) = (format!("k*[{}]y", "e".repeat(4091)), format!("k*[{}]y", "e".repeat(4092)));
    let refused = "-ERR pattern exceeds maximum allowed size (4096 bytes)\r\n";
    for (asked, found) in [
        (&["SCAN", "0", "MATCH"][..], "*2\r\n$1\r\n0\r\n*1\r\n$3\r\nkey\r\n"),
        (&["KEYS"], "*1\r\n$3\r\nkey\r\n"),
        (&["CONFIG", "GET"], "*0\r\n"),
        (&["COMMAND", "LIST", "FILTERBY", "PATTERN"], "*0\r\n"),
    ] {
        let with = |pattern: &str| command(&[asked, &[pattern]].concat());
        client.send(with(&long)).await;
        client.expect(refused).await;
        client.send(with(&fits)).await;
        client.expect(found).await;
    }
    // Several patterns together may not be longer than the limit of one.
    client.send(command(&["CONFIG", "GET", &"?".repeat(3000), &"?".repeat(3000)])).await;
    client.expect(refused).await;
    // More names than there are commands.
    client.send(command(&[&["COMMAND", "INFO"][..], &["get"; 2000]].concat())).await;
    client.expect("-ERR wrong number of arguments for 'command' command\r\n").await;
}

/// One thread runs the server and its clients, so a command that blocks it blocks all clients.
#[tokio::test]
async fn command_that_takes_long_lets_other_clients_run() {
    let server = Running::start(plain()).await;
    let mut honest = server.client().await;
    let key = "a".repeat(20_000);
    honest.send(command(&["SET", &key, ""])).await;
    honest.expect("+OK\r\n").await;
    let slow = format!("*{}b", "a".repeat(2000));
    let scan = command(&["SCAN", "0", "MATCH", &slow, "COUNT", "1000"]);
    let many = |asked: &str| format!("{asked}\r\n").repeat(4000);
    let listing = "COMMAND LIST FILTERBY PATTERN *[a-z]x*[a-z]";
    for (asked, answer) in [
        (command(&["KEYS", &slow]), "*0\r\n".to_owned()),
        (scan, "*2\r\n$1\r\n0\r\n*0\r\n".to_owned()),
        (format!("MULTI\r\n{}EXEC\r\n", many(listing)).into_bytes(), "*4000\r\n*".to_owned()),
        (many(listing).into_bytes(), "*".to_owned()),
    ] {
        let shown = asked[..30.min(asked.len())].escape_ascii().to_string();
        let mut slow = std::net::TcpStream::connect(server.resp[0]).unwrap();
        slow.write_all(&asked).unwrap();
        slow.set_nonblocking(true).unwrap();
        let mut found = Vec::new();
        let mut buffer = vec![0; 1 << 20];
        let mut meanwhile = 0;
        // Other clients are answered while the reply is incomplete.
        let is_done = |found: &[u8]| {
            let text = String::from_utf8_lossy(found);
            let rest = text.trim_start_matches("+OK\r\n").trim_start_matches("+QUEUED\r\n");
            if answer == "*" { rest.matches('*').count() == 4000 } else { rest.starts_with(&answer) }
        };
        while !is_done(&found) {
            honest.ask("PING", "+PONG\r\n").await;
            match slow.read(&mut buffer) {
                Ok(0) => panic!("{shown}: the connection ended"),
                Ok(bytes) => found.extend_from_slice(&buffer[..bytes]),
                Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
            }
            meanwhile += 1;
        }
        assert!(meanwhile > 20, "{shown}: others were answered {meanwhile} times meanwhile");
    }
}

/// Clients send a whole command before they read a reply, so the rest of a refused command must be read for the client to see the
/// error.
#[tokio::test]
async fn an_argument_that_is_too_long_is_answered() {
    const LIMIT: usize = 1 << 20;
    let server = Running::start(limited(Limits {
        bulk_bytes_max: LIMIT,
        command_bytes_max: 3 * LIMIT,
        ..Limits::default()
    }))
    .await;
    let mut client = server.client().await;
    let refused = |bytes: usize| {
        format!(
            "-ERR an argument of {bytes} bytes is longer than {LIMIT}, the most that there may be (argument-limit)\r\n"
        )
    };
    let (fits, long) = (vec![b'x'; LIMIT], vec![b'x'; 17 << 20]);
    let set = |value: &[u8]| command(&[b"SET", b"k".as_slice(), value]);
    client.send(&[set(&fits), set(&long), command(&["STRLEN", "k"])].concat()).await;
    client.expect(format!("+OK\r\n{}:{LIMIT}\r\n", refused(17 << 20))).await;
    // Further arguments are skipped too, whatever their content.
    let several = command(&[b"MSET", b"a".as_slice(), &long, &long, b"GET", b"", b"*3\r\n$3\r\nSET\r\n"]);
    client.send(&[several, command(&["EXISTS", "a"])].concat()).await;
    client.expect(format!("{}:0\r\n", refused(17 << 20))).await;
    // So are commands that are too long as a whole.
    let whole = command(&[b"MSET", b"a".as_slice(), &fits, b"b", &fits, b"c", &fits, b"d", &fits]);
    client.send(&[whole, command(&["EXISTS", "a"])].concat()).await;
    let text = format!("-ERR a command is longer than {} bytes, the most that there may be\r\n", 3 * LIMIT);
    client.expect(format!("{text}:0\r\n")).await;
    // The result does not depend on how the bytes are split.
    let small = command(&[b"SET", b"k".as_slice(), &vec![b'y'; LIMIT + 1], b"EX"]);
    for piece in small.chunks(700_001) {
        client.send(piece).await;
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    client.expect(refused(LIMIT + 1)).await;
    // It is refused like other commands.
    client.send([b"MULTI\r\n".to_vec(), small.clone(), b"EXEC\r\n".to_vec()].concat()).await;
    client.expect(format!("+OK\r\n{}", refused(LIMIT + 1))).await;
    client.expect("-EXECABORT Transaction discarded because of previous errors.\r\n").await;
    client.send([b"CLIENT REPLY SKIP\r\n".to_vec(), small.clone(), b"PING\r\n".to_vec()].concat()).await;
    client.expect("+PONG\r\n").await;
    client.send([b"CLIENT REPLY OFF\r\n".to_vec(), small, b"CLIENT REPLY ON\r\n".to_vec()].concat()).await;
    client.expect("+OK\r\n").await;
    // A command beyond the limit of skipped bytes is not read.
    client.send("*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$1000000000\r\nxxx").await;
    client.expect("-ERR Protocol error: invalid bulk length\r\n").await;
    client.expect_end().await;
}

/// A command scans a value each time that its key is named, and cannot be interrupted.
#[tokio::test]
async fn a_value_that_is_named_without_end_is_refused() {
    let server = narrow().await;
    let mut client = server.client().await;
    server.store.put("large", vec![b'x'; 200 << 10]).await.unwrap();
    let bitop = |times: usize| [&["BITOP", "OR", "d"], &vec!["large"; times][..]].concat();
    for (times, answer) in [(2, "*1"), (1000, "-EXECABORT")] {
        client.ask("MULTI", "+OK\r\n").await;
        client.send(command(&bitop(times))).await;
        client.expect("+QUEUED\r\n").await;
        client.send("EXEC\r\n").await;
        let line = client.line().await;
        assert!(line.starts_with(answer), "{times} times: {line}");
        if times == 2 {
            client.expect(":204800\r\n").await;
        }
    }
    let script = "local keys = {} for i = 1, 4000 do keys[i] = KEYS[1] end return redis.call('bitop', 'or', KEYS[2], unpack(keys))";
    client.send(command(&["EVAL", script, "2", "large", "d"])).await;
    let line = client.line().await;
    assert!(line.starts_with('-') && line.contains("script-memory"), "{line}");
}

/// Values of different keys fit, because they are held already.
#[tokio::test]
async fn a_long_script_joins_values_of_many_keys() {
    let server = Running::start(plain()).await;
    let mut client = server.client().await;
    let keys = ["a", "b", "c", "d", "e"];
    for key in keys {
        server.store.put(key, vec![b'x'; 1 << 20]).await.unwrap();
    }
    let script = "for i = 1, 1000000 do end return redis.call('BITOP', 'OR', KEYS[6], unpack(KEYS, 1, 5))";
    client.send(command(&[&["EVAL", script, "6"], &keys[..], &["to"]].concat())).await;
    client.expect(":1048576\r\n").await;
}

/// Runs EXEC with a command repeated `times` times. Returns the first line of the reply.
async fn transaction_of(line: &str, times: usize, client: &mut Client) -> String {
    client.send(format!("MULTI\r\n{}EXEC\r\n", format!("{line}\r\n").repeat(times))).await;
    client.expect(format!("+OK\r\n{}", "+QUEUED\r\n".repeat(times))).await;
    client.line().await
}

/// A transaction runs in one step, so the bytes that it scans are limited.
#[tokio::test]
async fn values_are_not_gone_through_without_end() {
    let server = narrow().await;
    server.store.put("large", vec![0; 200 << 10]).await.unwrap();
    for line in ["BITCOUNT large", "BITPOS large 1"] {
        let mut client = server.client().await;
        let refused = transaction_of(line, 1400, &mut client).await;
        assert!(refused.starts_with("-EXECABORT") && refused.contains("go through"), "{refused}");
        assert_eq!(transaction_of(line, 100, &mut client).await, "*100", "{line}");
    }
}

/// A copy takes a command of a few bytes, and becomes a value of the store when the whole transaction is written.
#[tokio::test]
async fn copies_take_what_they_copy() {
    let server = narrow().await;
    server.store.put("large", vec![b'x'; 200 << 10]).await.unwrap();
    let mut client = server.client().await;
    client.ask("MULTI", "+OK\r\n").await;
    for number in 0..20 {
        client.ask(&format!("COPY large {number}"), "+QUEUED\r\n").await;
    }
    client.send("EXEC\r\n").await;
    let refused = client.line().await;
    assert!(refused.starts_with("-EXECABORT") && refused.contains("client-memory-each"), "{refused}");
    client.ask("MULTI", "+OK\r\n").await;
    client.ask("COPY large small", "+QUEUED\r\n").await;
    client.ask("EXEC", "*1\r\n:1\r\n").await;
    client.ask("DBSIZE", ":2\r\n").await;
}
