//! INFO, CONFIG, COMMAND, the maximum number of connections, and the stop.

use std::time::Duration;

use esker_server::{Config, Error, Limits, Sockets};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::client::{PATIENCE, Running, command, limited, plain};

#[tokio::test]
async fn info_has_what_clients_look_for() {
    let server = Running::start(plain()).await;
    let mut client = server.client().await;
    assert!(!client.text("INFO").await.contains("db0:"));
    client.ask("MSET a 1 b 2", "+OK\r\n").await;
    client.ask("MGET a b c", "*3\r\n$1\r\n1\r\n$1\r\n2\r\n$-1\r\n").await;
    for all in ["INFO", "info everything", "INFO default", "INFO all"] {
        let info = client.text(all).await;
        for line in [
            "# Server",
            "redis_version:7.4.2",
            "redis_mode:standalone",
            &format!("tcp_port:{}", server.resp[0].port()),
            "connected_clients:1",
            "loading:0",
            "keyspace_hits:2",
            "keyspace_misses:1",
            "role:master",
            "# Keyspace",
            "db0:keys=2,expires=0,avg_ttl=0",
            "# Esker",
            "recovered_keys:0",
        ] {
            assert!(info.split("\r\n").any(|found| found == line), "{line} in {info}");
        }
        assert!(info.ends_with("\r\n"));
    }
    let some = client.text("INFO server KEYSPACE").await;
    assert!(some.contains("# Server") && some.contains("# Keyspace") && !some.contains("# Stats"), "{some}");
    assert_eq!(client.text("INFO nothing").await, "");
}

#[tokio::test]
async fn config_get() {
    let server = Running::start(plain()).await;
    let mut client = server.client().await;
    client.ask("CONFIG GET save", "*2\r\n$4\r\nsave\r\n$0\r\n\r\n").await;
    client.ask("config get APPENDONLY", "*2\r\n$10\r\nAPPENDONLY\r\n$3\r\nyes\r\n").await;
    client.ask("CONFIG GET databases", "*2\r\n$9\r\ndatabases\r\n$2\r\n16\r\n").await;
    client.ask("CONFIG GET d?r none", "*2\r\n$3\r\ndir\r\n$10\r\n/somewhere\r\n").await;
    client.ask("CONFIG GET none", "*0\r\n").await;
    client
        .ask("CONFIG GET maxc* save", "*4\r\n$4\r\nsave\r\n$0\r\n\r\n$10\r\nmaxclients\r\n$5\r\n10000\r\n")
        .await;
}

#[tokio::test]
async fn a_backup_needs_a_directory_that_somebody_named() {
    let server = Running::start(plain()).await;
    let mut client = server.client().await;
    let refused = "-ERR this server has no directory for backups; name one in the setting backup-dir and start it again\r\n";
    client.ask("BGSAVE", refused).await;
    client.ask("BGSAVE NOW", "-ERR syntax error\r\n").await;
    client.ask("BGSAVE SCHEDULE", refused).await;
}

#[tokio::test]
async fn device_commands_name_what_they_refuse() {
    let server = Running::start(plain()).await;
    let mut client = server.client().await;
    client.ask("DEVICE LIST", "*0\r\n").await;
    client.ask("DEVICE ADD middle /dev/x", "-ERR 'middle' is not a tier; it is fast or capacity\r\n").await;
    let refused = "-ERR /dev/x cannot be drained: it is no device of a tier of several devices\r\n";
    client.ask("DEVICE DRAIN /dev/x", refused).await;
    client.ask("MULTI", "+OK\r\n").await;
    client.ask("DEVICE DRAIN /dev/x", "-ERR").await;
    drop(client);
    let mut client = server.client().await;
    client
        .ask("DEVICE ADD capacity /nowhere/x", "-ERR /nowhere/x cannot be added: no device or file is there")
        .await;
}

#[tokio::test]
async fn command_describes_every_verb() {
    let server = Running::start(plain()).await;
    let mut client = server.client().await;
    client.ask("COMMAND COUNT", ":110\r\n").await;
    // Includes subcommands.
    client.ask("COMMAND LIST", "*221\r\n$6\r\nappend\r\n").await;
    drop(client);
    let mut client = server.client().await;
    client.ask("COMMAND INFO get none", "*2\r\n*10\r\n$3\r\nget\r\n:2\r\n*2\r\n+readonly\r\n").await;
    drop(client);
    let mut client = server.client().await;
    client.ask("COMMAND DOCS none", "*0\r\n").await;
    client.ask("COMMAND DOCS GET", "*2\r\n$3\r\nget\r\n*6\r\n$7\r\nsummary\r\n").await;
    drop(client);
    let mut client = server.client().await;
    client.ask("COMMAND GETKEYS MSET a 1 b 2", "*2\r\n$1\r\na\r\n$1\r\nb\r\n").await;
    client.ask("COMMAND GETKEYS DEL a b", "*2\r\n$1\r\na\r\n$1\r\nb\r\n").await;
    client.ask("COMMAND GETKEYS PING x", "-ERR The command has no key arguments\r\n").await;
    client.ask("COMMAND GETKEYS none x", "-ERR Invalid command specified\r\n").await;
    let transaction = "*5\r\n$7\r\ndiscard\r\n$4\r\nexec\r\n$5\r\nmulti\r\n$7\r\nunwatch\r\n$5\r\nwatch\r\n";
    client.ask("ACL CAT Transaction", transaction).await;
    client.ask("COMMAND LIST FILTERBY ACLCAT TRANSACTION", transaction).await;
    client.ask("COMMAND INFO waitaof", "*1\r\n*10\r\n$7\r\nwaitaof\r\n:4\r\n*1\r\n+noscript\r\n").await;
    drop(client);
    let mut client = server.client().await;
    client.ask("COMMAND", "*110\r\n*10\r\n$6\r\nappend\r\n").await;
}

#[tokio::test]
async fn help_is_of_what_there_is() {
    let server = Running::start(plain()).await;
    for (verb, count) in [("client", 58), ("memory", 11), ("acl", 29)] {
        let mut client = server.client().await;
        let expected = format!(
            "*{count}\r\n+{} <subcommand> [<arg> [value] [opt] ...]. Subcommands are:\r\n",
            verb.to_uppercase()
        );
        client.ask(&format!("{verb} HELP"), &expected).await;
        let mut lines = Vec::new();
        for _ in 1..count {
            lines.push(client.line().await);
        }
        assert_eq!(lines[count - 3..], ["+HELP", "+    Prints this help."], "{verb}");
        let words =
            lines.iter().filter_map(|line| line[1..].split(' ').next()).filter(|word| !word.is_empty());
        for word in words {
            client.send(format!("{verb} {word} 1 2 3 4 5\r\n")).await;
            let line = client.line().await;
            assert!(!line.starts_with("-ERR unknown subcommand '"), "{verb} {word}: {line}");
        }
    }
}

#[tokio::test]
async fn one_connection_too_many() {
    let server = Running::start(limited(Limits { connections_max: 2, ..Limits::default() })).await;
    let mut first = server.client().await;
    let mut second = server.client().await;
    first.ask("PING", "+PONG\r\n").await;
    second.ask("PING", "+PONG\r\n").await;
    let mut third = server.client().await;
    third.expect("-ERR max number of clients reached\r\n").await;
    third.expect_end().await;
    drop(first);
    // The slot is released once the server has noticed the end of the first connection.
    for _ in 0..100 {
        if second.text("INFO clients").await.contains("connected_clients:1\r\n") {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    server.client().await.ask("PING", "+PONG\r\n").await;
}

#[tokio::test]
async fn a_port_in_use_is_an_error_that_names_it() {
    let server = Running::start(plain()).await;
    let error = Sockets::bind(&Config::resp(server.resp[0])).unwrap_err();
    assert!(matches!(error, Error::Bind { address, .. } if address == server.resp[0]), "{error}");
    assert!(error.to_string().starts_with(&format!("cannot listen on {}: ", server.resp[0])), "{error}");
}

/// Two sockets can be bound to one address; only the second `listen` would fail.
#[tokio::test]
async fn an_address_twice_is_refused_before_there_is_a_store() {
    let free = Sockets::bind(&plain()).unwrap().addresses().resp[0];
    let port = free.port();
    let everywhere = std::net::SocketAddr::from(([0, 0, 0, 0], port));
    let twice = Config { http: vec![free], ..Config::resp(free) };
    assert_eq!(twice.clash(), Some([("resp", free), ("http", free)]));
    let mut wide = Config { resp: vec![everywhere, free], ..plain() };
    wide.access.allow_unauthenticated = true;
    assert_eq!(wide.clash(), Some([("resp", everywhere), ("resp", free)]));
    for config in [twice, wide] {
        let error = Sockets::bind(&config).unwrap_err();
        assert!(matches!(error, Error::Bind { .. }), "{error}");
    }
    let clash = |one: &str, other: &str| {
        let [one, other] = [one, other].map(|text| text.parse().unwrap());
        Config { http: vec![other], ..Config::resp(one) }.clash().is_some()
    };
    assert!(
        clash("[::]:5", "127.0.0.1:5")
            && clash("[::1]:5", "[::]:5")
            && clash("[::ffff:127.0.0.1]:5", "127.0.0.1:5")
    );
    assert!(!clash("127.0.0.1:0", "127.0.0.1:0"), "the kernel chooses two ports");
    assert!(!clash("127.0.0.1:5", "127.0.0.1:6") && !clash("0.0.0.0:5", "[::1]:5"));
}

#[tokio::test]
async fn a_stop_answers_what_was_read_and_refuses_the_rest() {
    let mut server = Running::start(plain()).await;
    let mut idle = server.client().await;
    idle.ask("PING", "+PONG\r\n").await;
    let mut halfway = server.client().await;
    let set = command(&["SET", "half", "way"]);
    halfway.send(&[command(&["SET", "k", "v"]).as_slice(), &set[..10]].concat()).await;
    halfway.expect("+OK\r\n").await;
    let (address, store) = (server.resp[0], server.store.clone());
    server.ask_to_stop();
    server.stopped().await;
    idle.expect_end().await;
    halfway.expect_end().await;
    assert!(TcpStream::connect(address).await.is_err());
    assert_eq!(store.get("k").await.unwrap().as_deref(), Some(b"v".as_slice()));
    assert_eq!(store.get("half").await.unwrap(), None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_stop_is_seen_beside_a_client_that_sends_without_end() {
    let limits = Limits { closing_wait: 20 * PATIENCE, ..Limits::default() };
    let mut server = Running::start(limited(limits)).await;
    let (mut answers, mut requests) = TcpStream::connect(server.resp[0]).await.unwrap().into_split();
    let pings = "PING\r\n".repeat(1000);
    let sends = tokio::spawn(async move { while requests.write_all(pings.as_bytes()).await.is_ok() {} });
    let mut buffer = vec![0; 1 << 16];
    answers.read_exact(&mut buffer).await.unwrap();
    let reads =
        tokio::spawn(async move { while answers.read(&mut buffer).await.is_ok_and(|bytes| bytes > 0) {} });
    server.ask_to_stop();
    server.stopped().await;
    reads.await.unwrap();
    sends.await.unwrap();
}
