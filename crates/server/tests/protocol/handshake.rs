//! First commands of clients, in both protocol versions.

use crate::client::{Running, command, plain};

fn hello(protocol: u8, id: u64) -> String {
    let head = if protocol == 3 { "%7" } else { "*14" };
    format!(
        "{head}\r\n$6\r\nserver\r\n$5\r\nredis\r\n$7\r\nversion\r\n$5\r\n7.4.2\r\n$5\r\nproto\r\n:{protocol}\r\n\
         $2\r\nid\r\n:{id}\r\n$4\r\nmode\r\n$10\r\nstandalone\r\n$4\r\nrole\r\n$6\r\nmaster\r\n$7\r\nmodules\r\n*0\r\n"
    )
}

#[tokio::test]
async fn hello_in_both_versions() {
    let server = Running::start(plain()).await;
    let mut client = server.client().await;
    client.ask("HELLO", &hello(2, 1)).await;
    client.ask("HELLO 2", &hello(2, 1)).await;
    client.ask("GET none", "$-1\r\n").await;
    client.ask("HELLO 3", &hello(3, 1)).await;
    client.ask("GET none", "_\r\n").await;
    client.ask("HELLO", &hello(3, 1)).await;
    client.ask("CONFIG GET databases", "%1\r\n$9\r\ndatabases\r\n$2\r\n16\r\n").await;
    client.ask("hello 2 setname me", &hello(2, 1)).await;
    client.ask("CLIENT GETNAME", "$2\r\nme\r\n").await;
    client.ask("HELLO 3 AUTH default x SETNAME you", &hello(3, 1)).await;
    client.ask("CLIENT GETNAME", "$3\r\nyou\r\n").await;
    // The version changes only for the commands after HELLO in the same pipeline.
    client.send("GET none\r\nHELLO 2\r\nGET none\r\n").await;
    client.expect(format!("_\r\n{}$-1\r\n", hello(2, 1))).await;
    let mut second = server.client().await;
    second.ask("HELLO 3", &hello(3, 2)).await;
}

#[tokio::test]
async fn hello_that_is_wrong_changes_nothing() {
    let server = Running::start(plain()).await;
    let mut client = server.client().await;
    client.ask("HELLO 4", "-NOPROTO unsupported protocol version\r\n").await;
    client.ask("HELLO 1", "-NOPROTO unsupported protocol version\r\n").await;
    client.ask("HELLO x", "-ERR Protocol version is not an integer or out of range\r\n").await;
    client.ask("HELLO 3 FOO", "-ERR Syntax error in HELLO option 'FOO'\r\n").await;
    client.ask("HELLO 3 AUTH default", "-ERR Syntax error in HELLO option 'AUTH'\r\n").await;
    let denied = "-WRONGPASS invalid username-password pair or user is disabled.\r\n";
    client.ask("HELLO 3 AUTH root x", denied).await;
    client
        .ask(
            "HELLO 3 SETNAME 'a b'",
            "-ERR Client names cannot contain spaces, newlines or special characters.\r\n",
        )
        .await;
    client.ask("GET none", "$-1\r\n").await;
}

#[tokio::test]
async fn auth_where_there_are_no_passwords() {
    let server = Running::start(plain()).await;
    let mut client = server.client().await;
    client.ask("AUTH", "-ERR wrong number of arguments for 'auth' command\r\n").await;
    client.ask("AUTH a b c", "-ERR syntax error\r\n").await;
    let text = "-ERR AUTH <password> called without any password configured for the default user. Are you sure your \
                configuration is correct?\r\n";
    client.ask("AUTH x", text).await;
    client.ask("ACL WHOAMI", "$7\r\ndefault\r\n").await;
    client.ask("AUTH default x", "+OK\r\n").await;
    let denied = "-WRONGPASS invalid username-password pair or user is disabled.\r\n";
    client.ask("AUTH root x", denied).await;
}

#[tokio::test]
async fn ping_echo_select_quit() {
    let server = Running::start(plain()).await;
    let mut client = server.client().await;
    client.ask("PING", "+PONG\r\n").await;
    client.ask("ping 'a b'", "$3\r\na b\r\n").await;
    client.send(command(&["PiNg"])).await;
    client.expect("+PONG\r\n").await;
    client.ask("ECHO hi", "$2\r\nhi\r\n").await;
    client.ask("SELECT 0", "+OK\r\n").await;
    client.ask("SELECT 16", "-ERR DB index is out of range\r\n").await;
    client.ask("SELECT -1", "-ERR DB index is out of range\r\n").await;
    client.ask("SELECT x", "-ERR value is not an integer or out of range\r\n").await;
    client.send("QUIT\r\nSET after quit\r\n").await;
    client.expect("+OK\r\n").await;
    client.expect_end().await;
    // Malformed bytes after QUIT are not read either.
    for broken in ["*x\r\n", "*1\r\n$x\r\n", "\"\r\n"] {
        let mut client = server.client().await;
        client.send(format!("*1\r\n$4\r\nQUIT\r\n{broken}")).await;
        client.expect("+OK\r\n").await;
        client.expect_end().await;
    }
    assert_eq!(server.store.len(), 0);
}

#[tokio::test]
async fn client_subcommands() {
    let server = Running::start(plain()).await;
    let mut client = server.client().await;
    client.ask("CLIENT ID", ":1\r\n").await;
    client.ask("CLIENT GETNAME", "$-1\r\n").await;
    client.ask("client setname worker-1", "+OK\r\n").await;
    client.ask("CLIENT GETNAME", "$8\r\nworker-1\r\n").await;
    client.ask("CLIENT SETNAME \"\"", "+OK\r\n").await;
    client.ask("CLIENT GETNAME", "$-1\r\n").await;
    client
        .ask(
            "CLIENT SETNAME 'a b'",
            "-ERR Client names cannot contain spaces, newlines or special characters.\r\n",
        )
        .await;
    client.ask("CLIENT SETINFO LIB-NAME redis-py", "+OK\r\n").await;
    client.ask("CLIENT SETINFO lib-ver 5.0.1", "+OK\r\n").await;
    client.ask("CLIENT SETINFO lib-x 1", "-ERR Unrecognized option 'lib-x'\r\n").await;
    client
        .ask(
            "CLIENT SETINFO lib-ver '1 2'",
            "-ERR lib-ver cannot contain spaces, newlines or special characters.\r\n",
        )
        .await;
    // Clients try this command, and only an error makes them continue without it.
    let refused = "-ERR unknown subcommand 'MAINT_NOTIFICATIONS'. Try CLIENT HELP.\r\n";
    client.ask("CLIENT MAINT_NOTIFICATIONS ON", refused).await;
    client.ask("PING", "+PONG\r\n").await;
}
