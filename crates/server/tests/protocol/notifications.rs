//! Keyspace notifications: published events and their channels, compared with redis-server.
//!
//! `notifications.txt` has commands (`>`), the replies of redis-server 7.0 (`=`), and the events that it publishes, as the name
//! and the key, with the number of the database unless it is 0. `ESKER_RECORD=1` records it again.

use std::net::SocketAddr;
use std::time::Duration;

use esker_server::Limits;

use crate::client::{Running, limited, plain};
use crate::frames::{Frame, Frames};
use crate::redis::Redis;
use crate::transcript::{compare, lines, record};

const FILE: &str = "notifications.txt";

/// Runs the commands of the file on a server. Returns them with its replies and events.
async fn told(address: SocketAddr, protocol: u8) -> String {
    let (mut client, mut listener) = (Frames::connect(address).await, Frames::connect(address).await);
    // A separate connection, because the client may be in a transaction.
    let mut publisher = Frames::connect(address).await;
    for connection in [&mut client, &mut listener] {
        connection.ask(&format!("HELLO {protocol}")).await;
    }
    client.ask("FLUSHALL").await;
    listener.send("PSUBSCRIBE __key*@*__:*").await;
    listener.next().await;
    let mut text = String::new();
    for line in lines(FILE) {
        let Some(command) = line.strip_prefix("> ") else {
            text += &format!("{line}\n");
            continue;
        };
        let (reply, _) = client.ask(command).await;
        text += &format!("{line}\n= {}\n", reply.text());
        publisher.ask("PUBLISH __keyevent@0__:end x").await;
        loop {
            let (event, key, database) = event(&mut listener, protocol).await;
            if event == "end" {
                break;
            }
            let of = if database == "0" { String::new() } else { format!(" in {database}") };
            text += &format!("{event} {key}{of}\n");
        }
    }
    text
}

/// Returns the next event, its key and database. An event on the channel of its key must be followed by the same event on the
/// channel of its name.
async fn event(listener: &mut Frames, protocol: u8) -> (String, String, String) {
    let mut next = async || {
        let frame = listener.next().await;
        assert_eq!(frame.is_push(), protocol == 3, "{frame:?}");
        let [_, _, Frame::Bulk(channel), Frame::Bulk(payload)] = frame.elements() else {
            panic!("{frame:?} is no message by a pattern")
        };
        let channel = channel.escape_ascii().to_string();
        let (of, name) = channel.split_once("__:").unwrap();
        let (of, database) = of.split_once('@').unwrap();
        (of.to_owned(), name.to_owned(), payload.escape_ascii().to_string(), database.to_owned())
    };
    let (of, name, payload, database) = next().await;
    if of == "__keyevent" {
        return (name, payload, database);
    }
    assert_eq!(of, "__keyspace");
    assert_eq!(next().await, ("__keyevent".to_owned(), payload.clone(), name.clone(), database.clone()));
    (payload, name, database)
}

#[tokio::test]
async fn events_are_those_of_redis() {
    record(FILE, async |redis| told(redis, 2).await).await;
    for protocol in [2, 3] {
        let server = Running::start(plain()).await;
        compare(FILE, &told(server.resp[0], protocol).await, "Esker");
    }
    let Some(redis) = Redis::start().await else {
        eprintln!("SKIPPED: there is no redis-server 7.0 on this machine");
        return;
    };
    for protocol in [2, 3] {
        compare(FILE, &told(redis.address, protocol).await, "redis-server");
    }
}

/// The store reports expired keys, whatever wrote them; after the setting is cleared, no events are published.
#[tokio::test]
async fn expiry_of_key_is_published_until_events_are_disabled() {
    let server = Running::start(plain()).await;
    let (mut client, mut listener) = (server.client().await, server.client().await);
    client.ask("CONFIG SET notify-keyspace-events Ex", "+OK\r\n").await;
    listener
        .ask(
            "SUBSCRIBE __keyevent@0__:expired",
            "*3\r\n$9\r\nsubscribe\r\n$22\r\n__keyevent@0__:expired\r\n:1\r\n",
        )
        .await;
    client.ask("SET short x PX 20", "+OK\r\n").await;
    client.ask("SET long x", "+OK\r\n").await;
    client.ask("PEXPIRE long 30", ":1\r\n").await;
    let expired = |key: &str| {
        format!("*3\r\n$7\r\nmessage\r\n$22\r\n__keyevent@0__:expired\r\n${}\r\n{key}\r\n", key.len())
    };
    listener.expect(expired("short")).await;
    listener.expect(expired("long")).await;
    client.ask("CONFIG SET notify-keyspace-events \"\"", "+OK\r\n").await;
    client.ask("SET short x PX 20", "+OK\r\n").await;
    tokio::time::sleep(Duration::from_millis(700)).await;
    client.ask("GET short", "$-1\r\n").await;
    listener.expect_nothing().await;
}

/// Writes through gRPC or the embedded store are not RESP commands, and are published nevertheless.
#[tokio::test]
async fn writes_outside_resp_are_published() {
    let server = Running::start(plain()).await;
    let (mut client, mut listener) = (server.client().await, server.client().await);
    client.ask("CONFIG SET notify-keyspace-events K$g", "+OK\r\n").await;
    listener
        .ask("SUBSCRIBE __keyspace@0__:k", "*3\r\n$9\r\nsubscribe\r\n$16\r\n__keyspace@0__:k\r\n:1\r\n")
        .await;
    server.store.put("k", "v").await.unwrap();
    let expiring = esker_engine::WriteOptions::new().ttl(Duration::from_secs(100));
    server.store.put_with("k", "v", expiring).await.unwrap();
    server.store.delete("k").await.unwrap();
    for event in ["set", "set", "expire", "del"] {
        let message =
            format!("*3\r\n$7\r\nmessage\r\n$16\r\n__keyspace@0__:k\r\n${}\r\n{event}\r\n", event.len());
        listener.expect(message).await;
    }
}

/// Events of the store name the database that has the key's keyspace now.
#[tokio::test]
async fn store_event_names_current_database_after_swap() {
    let server = Running::start(plain()).await;
    let (mut client, mut listener) = (server.client().await, server.client().await);
    client.ask("CONFIG SET notify-keyspace-events E$gx", "+OK\r\n").await;
    listener.ask("PSUBSCRIBE __keyevent@*", "*3\r\n$10\r\npsubscribe\r\n$12\r\n__keyevent@*\r\n:1\r\n").await;
    let third = server.store.database(3).unwrap();
    let told = |channel: &str, key: &str| {
        format!(
            "*4\r\n$8\r\npmessage\r\n$12\r\n__keyevent@*\r\n${}\r\n{channel}\r\n${}\r\n{key}\r\n",
            channel.len(),
            key.len()
        )
    };
    third.put("k", "v").await.unwrap();
    listener.expect(told("__keyevent@3__:set", "k")).await;
    client.ask("SWAPDB 3 1", "+OK\r\n").await;
    third.put("l", "v").await.unwrap();
    listener.expect(told("__keyevent@3__:set", "l")).await;
    server.store.database(1).unwrap().delete("k").await.unwrap();
    listener.expect(told("__keyevent@1__:del", "k")).await;
    // The key is removed from a keyspace whose number is not that of the database.
    client.send("SELECT 1\r\nSET short x PX 20\r\n").await;
    client.expect("+OK\r\n+OK\r\n").await;
    listener.expect(told("__keyevent@1__:set", "short")).await;
    listener.expect(told("__keyevent@1__:expire", "short")).await;
    listener.expect(told("__keyevent@1__:expired", "short")).await;
}

/// The memory for events of a script that changes keys endlessly is limited.
#[tokio::test]
async fn script_events_are_bounded_in_memory() {
    let limits = Limits { script_bytes_max: 1 << 20, ..Limits::default() };
    let server = Running::start(limited(limits)).await;
    let mut client = server.client().await;
    client.ask("CONFIG SET notify-keyspace-events KEA", "+OK\r\n").await;
    let script = "while true do redis.call('set', KEYS[1], 1) end";
    client.send(crate::client::command(&["EVAL", script, "1", "k"])).await;
    let line = client.line().await;
    assert!(line.starts_with("-ERR the script publishes more than"), "{line}");
}
