//! What one client may ask for is bounded where a few bytes could ask for much: answers of transactions, names, patterns,
//! arguments that are too long.

use std::time::Duration;

use esker_server::Limits;

use crate::client::{Running, command, limited, plain};

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

/// Clients send a command as a whole before they look for an answer: the rest of it must be read for them to see it.
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
    // Arguments behind it are read over too, whatever they are.
    let several = command(&[b"MSET", b"a".as_slice(), &long, &long, b"GET", b"", b"*3\r\n$3\r\nSET\r\n"]);
    client.send(&[several, command(&["EXISTS", "a"])].concat()).await;
    client.expect(format!("{}:0\r\n", refused(17 << 20))).await;
    // So are commands that are too long as a whole.
    let whole = command(&[b"MSET", b"a".as_slice(), &fits, b"b", &fits, b"c", &fits, b"d", &fits]);
    client.send(&[whole, command(&["EXISTS", "a"])].concat()).await;
    let text = format!("-ERR a command is longer than {} bytes, the most that there may be\r\n", 3 * LIMIT);
    client.expect(format!("{text}:0\r\n")).await;
    // However the bytes are cut.
    let small = command(&[b"SET", b"k".as_slice(), &vec![b'y'; LIMIT + 1], b"EX"]);
    for piece in small.chunks(700_001) {
        client.send(piece).await;
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    client.expect(refused(LIMIT + 1)).await;
    // It is refused as other commands are.
    client.send([b"MULTI\r\n".to_vec(), small.clone(), b"EXEC\r\n".to_vec()].concat()).await;
    client.expect(format!("+OK\r\n{}", refused(LIMIT + 1))).await;
    client.expect("-EXECABORT Transaction discarded because of previous errors.\r\n").await;
    client.send([b"CLIENT REPLY SKIP\r\n".to_vec(), small.clone(), b"PING\r\n".to_vec()].concat()).await;
    client.expect("+PONG\r\n").await;
    client.send([b"CLIENT REPLY OFF\r\n".to_vec(), small, b"CLIENT REPLY ON\r\n".to_vec()].concat()).await;
    client.expect("+OK\r\n").await;
    // What would never end is not read on for.
    client.send("*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$1000000000\r\nxxx").await;
    client.expect("-ERR Protocol error: invalid bulk length\r\n").await;
    client.expect_end().await;
}
