//! Error texts, word for word those of Redis.

use crate::client::{Running, command, plain};

#[tokio::test]
async fn unknown_commands() {
    let server = Running::start(plain()).await;
    let mut client = server.client().await;
    client.ask("foo", "-ERR unknown command 'foo', with args beginning with: \r\n").await;
    client.ask("FOO a 'b c'", "-ERR unknown command 'FOO', with args beginning with: 'a' 'b c' \r\n").await;
    let long = "x".repeat(200);
    let (verb, argument) = (&long[..128], &long[..128]);
    let text = format!("-ERR unknown command '{verb}', with args beginning with: '{argument}' \r\n");
    client.ask(&format!("{long} {long} {long}"), &text).await;
    client.send(command(&[b"a\r\nb".as_slice(), b"c\nd"])).await;
    client.expect("-ERR unknown command 'a  b', with args beginning with: 'c d' \r\n").await;
    client.ask("CLIENT FOO", "-ERR unknown subcommand 'FOO'. Try CLIENT HELP.\r\n").await;
    client.ask("CONFIG FOO", "-ERR unknown subcommand 'FOO'. Try CONFIG HELP.\r\n").await;
    client.ask("COMMAND FOO", "-ERR unknown subcommand 'FOO'. Try COMMAND HELP.\r\n").await;
    client.ask("PING", "+PONG\r\n").await;
}

#[tokio::test]
async fn wrong_numbers_of_arguments() {
    let server = Running::start(plain()).await;
    let mut client = server.client().await;
    for (line, name) in [
        ("GET", "get"),
        ("get a b", "get"),
        ("SET k", "set"),
        ("MGET", "mget"),
        ("MSET", "mset"),
        ("DEL", "del"),
        ("UNLINK", "unlink"),
        ("EXISTS", "exists"),
        ("ECHO", "echo"),
        ("ECHO a b", "echo"),
        ("PING a b", "ping"),
        ("SELECT", "select"),
        ("DBSIZE x", "dbsize"),
        ("CLIENT", "client"),
        ("CLIENT ID x", "client|id"),
        ("CLIENT SETNAME", "client|setname"),
        ("CLIENT GETNAME x", "client|getname"),
        ("CLIENT SETINFO lib-name", "client|setinfo"),
        ("CONFIG", "config"),
        ("CONFIG GET", "config|get"),
        ("COMMAND COUNT x", "command|count"),
    ] {
        client.ask(line, &format!("-ERR wrong number of arguments for '{name}' command\r\n")).await;
    }
}

#[tokio::test]
async fn set_of_empty_key_is_refused_and_later_commands_run() {
    let server = Running::start(plain()).await;
    let mut client = server.client().await;
    client.send(command(&["SET", "", "v"])).await;
    client.expect("-ERR key ").await;
    drop(client);
    let mut client = server.client().await;
    client
        .send([command(&["SET", "a", "1"]), command(&["SET", "", "v"]), command(&["SET", "b", "2"])].concat())
        .await;
    client.expect("+OK\r\n-ERR key ").await;
    drop(client);
    let mut client = server.client().await;
    client.ask("MGET a b", "*2\r\n$1\r\n1\r\n$1\r\n2\r\n").await;
}

#[tokio::test]
async fn broken_protocol_ends_the_connection_after_the_error() {
    let server = Running::start(plain()).await;
    for (bytes, text) in [
        ("*x\r\n", "invalid multibulk length"),
        ("*1048577\r\n", "invalid multibulk length"),
        ("*1\r\n$536870913\r\n", "invalid bulk length"),
        ("*1\r\n$-5\r\n", "invalid bulk length"),
        ("*1\r\nPING\r\n", "expected '$', got 'P'"),
        ("SET k \"v\r\n", "unbalanced quotes in request"),
    ] {
        let mut client = server.client().await;
        client.send(format!("SET before 1\r\n{bytes}")).await;
        client.expect(format!("+OK\r\n-ERR Protocol error: {text}\r\n")).await;
        client.expect_end().await;
    }
    let mut client = server.client().await;
    client.send("x".repeat(70_000)).await;
    client.expect("-ERR Protocol error: too big inline request\r\n").await;
    client.expect_end().await;
}

#[tokio::test]
async fn browsers_are_shown_the_door() {
    let server = Running::start(plain()).await;
    for request in ["POST / HTTP/1.1\r\n\r\nSET k v\r\n", "Host: a\r\nSET k v\r\n"] {
        let mut client = server.client().await;
        client.send(request).await;
        client.expect_end().await;
    }
    // An HTTP request closes the connection in a transaction and in a subscription, too.
    for request in ["POST / HTTP/1.1\r\n", "Host: a\r\n"] {
        let mut client = server.client().await;
        client.send(format!("MULTI\r\n{request}SET k v\r\nEXEC\r\n")).await;
        client.expect("+OK\r\n").await;
        client.expect_end().await;
        let mut client = server.client().await;
        client.send(format!("SUBSCRIBE x\r\n{request}PING\r\n")).await;
        client.expect("*3\r\n$9\r\nsubscribe\r\n$1\r\nx\r\n:1\r\n").await;
        client.expect_end().await;
    }
    assert_eq!(server.store.len(), 0);
}
