//! Publish and subscribe: delivery, order, and the cost of subscribers that do not read.

use std::time::Duration;

use esker_server::Limits;
use tokio::task::JoinSet;

use crate::client::{Client, EACH_BYTES, Running, command, limited, narrow, plain};

/// Returns a subscribed client. The confirmation is an array in RESP2, and a push in RESP3.
async fn subscriber(server: &Running, verb: &str, name: &str) -> Client {
    let mut client = server.client().await;
    let word = verb.to_lowercase();
    let told = format!("*3\r\n${}\r\n{word}\r\n${}\r\n{name}\r\n:1\r\n", word.len(), name.len());
    client.ask(&format!("{verb} {name}"), &told).await;
    client
}

fn message(payload: &str) -> String {
    format!("*3\r\n$7\r\nmessage\r\n$2\r\nch\r\n${}\r\n{payload}\r\n", payload.len())
}

#[tokio::test]
async fn messages_arrive_by_name_by_pattern_and_by_shard() {
    let server = Running::start(plain()).await;
    let mut publisher = server.client().await;
    publisher.ask("PUBLISH ch none", ":0\r\n").await;
    let mut by_name = subscriber(&server, "SUBSCRIBE", "ch").await;
    let mut by_pattern = subscriber(&server, "PSUBSCRIBE", "c[gh]*").await;
    let mut by_shard = subscriber(&server, "SSUBSCRIBE", "ch").await;
    let mut other = subscriber(&server, "SUBSCRIBE", "other").await;
    publisher.ask("PUBLISH ch hello", ":2\r\n").await;
    publisher.ask("SPUBLISH ch shard", ":1\r\n").await;
    publisher.ask("PUBLISH other last", ":1\r\n").await;
    by_name.expect(message("hello")).await;
    by_pattern.expect("*4\r\n$8\r\npmessage\r\n$6\r\nc[gh]*\r\n$2\r\nch\r\n$5\r\nhello\r\n").await;
    by_shard.expect("*3\r\n$8\r\nsmessage\r\n$2\r\nch\r\n$5\r\nshard\r\n").await;
    other.expect("*3\r\n$7\r\nmessage\r\n$5\r\nother\r\n$4\r\nlast\r\n").await;
    // Both by name and by pattern, as two messages.
    by_name.ask("PSUBSCRIBE *", "*3\r\n$10\r\npsubscribe\r\n$1\r\n*\r\n:2\r\n").await;
    publisher.ask("PUBLISH ch twice", ":3\r\n").await;
    by_name.expect(message("twice")).await;
    by_name.expect("*4\r\n$8\r\npmessage\r\n$1\r\n*\r\n$2\r\nch\r\n$5\r\ntwice\r\n").await;
}

/// Clients that reconnect subscribe to many channels with one command. When many subscriptions end, the pending messages are
/// scanned once; one scan per subscription took minutes.
#[tokio::test]
async fn many_channels_are_named_in_one_command() {
    let server = Running::start(plain()).await;
    let mut client = server.client().await;
    for (verb, count) in [("SUBSCRIBE", 2000), ("SSUBSCRIBE", 30_000)] {
        let names: Vec<String> = (0..count).map(|name| format!("c{name}")).collect();
        let words: Vec<&str> = std::iter::once(verb).chain(names.iter().map(String::as_str)).collect();
        client.send(command(&words)).await;
        for _ in 0..count * 6 {
            assert!(!client.line().await.starts_with('-'));
        }
    }
    client.ask("PSUBSCRIBE c*", "*3\r\n$10\r\npsubscribe\r\n$2\r\nc*\r\n:2001\r\n").await;
    let publish = "EVAL \"for i = 1, 15000 do redis.call('publish', 'c1', '') end\" 0";
    let mut publisher = server.client().await;
    publisher.ask(publish, "$-1\r\n").await;
    client.send("SUNSUBSCRIBE\r\nUNSUBSCRIBE\r\nPUNSUBSCRIBE\r\nPING last\r\n").await;
    while client.line().await != "last" {}
    client.ask("PUBLISH c1 x", ":0\r\n").await;
}

#[tokio::test]
async fn in_resp3_messages_are_pushed_beside_answers() {
    let server = Running::start(plain()).await;
    let (mut client, mut publisher) = (server.client().await, server.client().await);
    client.send("HELLO 3\r\nSUBSCRIBE ch\r\n").await;
    while client.line().await != ">3" {}
    client.expect("$9\r\nsubscribe\r\n$2\r\nch\r\n:1\r\n").await;
    publisher.ask("PUBLISH ch one", ":1\r\n").await;
    client.expect(">3\r\n$7\r\nmessage\r\n$2\r\nch\r\n$3\r\none\r\n").await;
    client.ask("SET k v", "+OK\r\n").await;
    client.ask("PING", "+PONG\r\n").await;
    client.ask("PUBLISH nobody x", ":0\r\n").await;
    // A subscriber also receives its own messages.
    client.ask("PUBLISH ch me", ":1\r\n>3\r\n$7\r\nmessage\r\n$2\r\nch\r\n$2\r\nme\r\n").await;
}

#[tokio::test]
async fn subscription_ends_on_unsubscribe_reset_or_disconnect() {
    let server = Running::start(plain()).await;
    let mut publisher = server.client().await;
    let mut first = subscriber(&server, "SUBSCRIBE", "ch").await;
    let mut second = subscriber(&server, "SUBSCRIBE", "ch").await;
    let third = subscriber(&server, "SUBSCRIBE", "ch").await;
    publisher.ask("PUBSUB NUMSUB ch", "*2\r\n$2\r\nch\r\n:3\r\n").await;
    let lines = publisher.text("CLIENT LIST TYPE pubsub").await;
    assert_eq!(lines.lines().count(), 3, "{lines}");
    assert!(lines.contains(" flags=P db=0 sub=1 psub=0 ssub=0 "), "{lines}");
    assert!(publisher.text("INFO stats").await.contains("\r\npubsub_channels:1\r\n"));
    first.ask("UNSUBSCRIBE ch", "*3\r\n$11\r\nunsubscribe\r\n$2\r\nch\r\n:0\r\n").await;
    publisher.ask("PUBSUB NUMSUB ch", "*2\r\n$2\r\nch\r\n:2\r\n").await;
    first.ask("GET none", "$-1\r\n").await;
    second.ask("RESET", "+RESET\r\n").await;
    second.ask("GET none", "$-1\r\n").await;
    publisher.ask("PUBSUB NUMSUB ch", "*2\r\n$2\r\nch\r\n:1\r\n").await;
    drop(third);
    for _ in 0..500 {
        publisher.send("PUBSUB CHANNELS\r\n").await;
        if publisher.line().await == "*0" {
            return;
        }
        publisher.expect("$2\r\nch\r\n").await;
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("who has gone is still subscribed");
}

/// Every subscriber receives all messages of every publisher, in the order of each publisher.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn messages_reach_all_readers_in_order_without_loss() {
    const PUBLISHERS: usize = 4;
    const MESSAGES: usize = 500;
    let server = Running::start(plain()).await;
    let mut tasks = JoinSet::new();
    for number in 0..12 {
        let by_pattern = number % 3 == 0;
        let (verb, name) = if by_pattern { ("PSUBSCRIBE", "c*") } else { ("SUBSCRIBE", "ch") };
        let mut client = subscriber(&server, verb, name).await;
        tasks.spawn(async move {
            let mut next = [0; PUBLISHERS];
            for _ in 0..PUBLISHERS * MESSAGES {
                for _ in 0..if by_pattern { 8 } else { 6 } {
                    client.line().await;
                }
                let payload = client.line().await;
                let (publisher, at) = payload.split_once('-').unwrap();
                let (publisher, at): (usize, usize) = (publisher.parse().unwrap(), at.parse().unwrap());
                assert_eq!(next[publisher], at, "of publisher {publisher}");
                next[publisher] += 1;
            }
        });
    }
    for publisher in 0..PUBLISHERS {
        let mut client = server.client().await;
        tasks.spawn(async move {
            for batch in 0..MESSAGES / 50 {
                let lines: String =
                    (0..50).map(|at| format!("PUBLISH ch {publisher}-{}\r\n", batch * 50 + at)).collect();
                client.send(lines).await;
                client.expect(":12\r\n".repeat(50)).await;
            }
        });
    }
    tasks.join_all().await;
}

/// Messages of a transaction are published if it runs, and discarded otherwise.
#[tokio::test]
async fn a_transaction_publishes_when_it_has_run() {
    let server = Running::start(plain()).await;
    let mut client = server.client().await;
    let mut listener = subscriber(&server, "SUBSCRIBE", "ch").await;
    for (end, answer) in [("DISCARD", "+OK\r\n"), ("EXEC", "*2\r\n+OK\r\n:1\r\n")] {
        client.ask("MULTI", "+OK\r\n").await;
        client.ask("SET k v", "+QUEUED\r\n").await;
        client.ask(&format!("PUBLISH ch {end}"), "+QUEUED\r\n").await;
        client.ask(end, answer).await;
    }
    listener.expect(message("EXEC")).await;
}

/// Messages of a script are published once its writes are visible, once each, and in a transaction together with the others.
#[tokio::test]
async fn a_script_publishes_when_it_has_written() {
    let server = Running::start(plain()).await;
    let mut client = server.client().await;
    let mut listener = subscriber(&server, "SUBSCRIBE", "ch").await;
    let script = "redis.call('set', KEYS[1], ARGV[1]) return redis.call('publish', 'ch', ARGV[1])";
    client.send(command(&["EVAL", script, "1", "k", "one"])).await;
    client.expect(":1\r\n").await;
    listener.expect(message("one")).await;
    // The script exceeds the limits of a first attempt, and still publishes once.
    let long = "for i = 1, 3000000 do end redis.call('publish', 'ch', ARGV[1]) return 1";
    client
        .send(command(&["EVAL", &format!("redis.call('publish', 'ch', 'before') {long}"), "0", "two"]))
        .await;
    client.expect(":1\r\n").await;
    listener.expect(message("before") + &message("two")).await;
    client.ask("MULTI", "+OK\r\n").await;
    client.send(command(&["EVAL", script, "1", "k", "three"])).await;
    client.expect("+QUEUED\r\n").await;
    client.ask("EXEC", "*1\r\n:1\r\n").await;
    listener.expect(message("three")).await;
    client.send(command(&["EVAL_RO", "return redis.call('publish', 'ch', 'x')", "0"])).await;
    assert!(client.line().await.starts_with("-ERR Write commands are not allowed from read-only scripts."));
}

/// Subscribers that do not read are closed, and the others receive everything.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn subscriber_not_reading_is_dropped_and_delays_no_other() {
    let limits = Limits { backlog_bytes_hard: 1 << 20, backlog_bytes_max: 64 << 10, ..Limits::default() };
    let server = Running::start(limited(limits)).await;
    let mut publisher = server.client().await;
    let mut silent = subscriber(&server, "SUBSCRIBE", "ch").await;
    let mut honest = subscriber(&server, "SUBSCRIBE", "ch").await;
    let payload = "x".repeat(100_000);
    let reader = tokio::spawn(async move {
        for _ in 0..200 {
            honest.expect(message(&"x".repeat(100_000))).await;
        }
        honest
    });
    let mut receivers = Vec::new();
    for _ in 0..200 {
        publisher.send(command(&["PUBLISH", "ch", &payload])).await;
        receivers.push(publisher.line().await);
        // The pause lets the honest subscriber keep up.
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let _honest = reader.await.unwrap();
    assert_eq!(receivers.last().map(String::as_str), Some(":1"), "the silent one is gone");
    publisher.ask("PUBSUB NUMSUB ch", "*2\r\n$2\r\nch\r\n:1\r\n").await;
    // Data buffered by the network arrives, and then the connection ends.
    let mut rest = Vec::new();
    let read = tokio::io::AsyncReadExt::read_to_end(&mut silent.0, &mut rest);
    let _ = tokio::time::timeout(Duration::from_secs(20), read).await.expect("its connection has ended");
    assert!(rest.len() < 16 << 20, "{} bytes had been sent to it", rest.len());
}

/// All mailboxes together share a part of the memory for clients.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn mailboxes_of_silent_subscribers_are_bounded() {
    let server = narrow().await;
    let mut publisher = server.client().await;
    let mut silent = Vec::new();
    for _ in 0..10 {
        silent.push(subscriber(&server, "SUBSCRIBE", "ch").await);
    }
    let payload = "x".repeat(100_000);
    for _ in 0..300 {
        publisher.send(command(&["PUBLISH", "ch", &payload])).await;
        publisher.skip_line().await;
    }
    // Subscribers with the most pending bytes were closed, so memory is available to others.
    let long = "y".repeat(EACH_BYTES / 8);
    publisher.send(command(&["SET", "k", &long])).await;
    publisher.expect("+OK\r\n").await;
    publisher.send("PUBSUB NUMSUB ch\r\n").await;
    publisher.expect("*2\r\n$2\r\nch\r\n").await;
    let left: usize = publisher.line().await[1..].parse().unwrap();
    assert!(left < 10, "{left} subscribers that read nothing are left");
}

#[tokio::test]
async fn subscriptions_are_bounded_and_patterns_have_a_length() {
    let limits = Limits { arguments_max: 40, ..Limits::default() };
    let server = Running::start(limited(limits)).await;
    let mut client = server.client().await;
    for at in 0..19 {
        client.send(format!("SUBSCRIBE a{at} b{at}\r\n")).await;
        for _ in 0..12 {
            client.skip_line().await;
        }
    }
    client.ask("SUBSCRIBE a b", "-ERR too many subscriptions\r\n").await;
    client.ask("RESET", "+RESET\r\n").await;
    let long = format!("PSUBSCRIBE {}", "?".repeat(5000));
    client.ask(&long, "-ERR pattern exceeds maximum allowed size (4096 bytes)\r\n").await;
    client.ask("GET none", "$-1\r\n").await;
}

#[tokio::test]
async fn names_of_channels_have_a_length() {
    let server = Running::start(plain()).await;
    let mut client = server.client().await;
    let refused = "-ERR the name of a channel has up to 4096 bytes, but for channels of keyspace events that are listened to\r\n";
    let (fits, long) = ("x".repeat(4096), "x".repeat(4097));
    let of_key = |bytes: usize| format!("__keyspace@0__:{}", "x".repeat(bytes));
    for words in [
        &["SUBSCRIBE", "a", &long][..],
        &["SSUBSCRIBE", &long],
        &["SUBSCRIBE", &of_key(70_000)],
        &["PUBLISH", &long, "payload"],
        &["SPUBLISH", &long, "payload"],
        &["PUBLISH", &of_key(4096), "payload"],
    ] {
        client.send(command(words)).await;
        client.expect(refused).await;
    }
    let script = "return redis.call('publish', ARGV[1], 'payload')";
    client.send(command(&["EVAL", script, "0", &long])).await;
    assert!(client.line().await.starts_with(refused.trim_end()));
    client.send(command(&["PUBLISH", &fits, "payload"])).await;
    client.expect(":0\r\n").await;
    // Between two stars, a long part may not contain classes.
    let mixed = "[ab]".repeat(65);
    client.send(command(&["PSUBSCRIBE", &format!("*{mixed}*")])).await;
    assert!(
        client.line().await.starts_with("-ERR between two * of a pattern of channels there are up to 64 ")
    );
    client.ask("CONFIG SET notify-keyspace-events K$", "+OK\r\n").await;
    let (mut by_name, channel) = (server.client().await, of_key(65_536));
    by_name.send(command(&["SUBSCRIBE", &channel])).await;
    by_name.expect(format!("*3\r\n$9\r\nsubscribe\r\n${}\r\n{channel}\r\n:1\r\n", channel.len())).await;
    let mut by_pattern = subscriber(&server, "PSUBSCRIBE", &format!("*{}*", "x".repeat(4000))).await;
    client.send(command(&["SET", &"x".repeat(65_536), "1"])).await;
    client.expect("+OK\r\n").await;
    by_name.expect(format!("*3\r\n$7\r\nmessage\r\n${}\r\n{channel}\r\n$3\r\nset\r\n", channel.len())).await;
    assert_eq!(by_pattern.line().await, "*4");
}

/// The messages exceed the backlog, and the socket accepts a part of them at once.
#[tokio::test]
async fn messages_that_come_together_all_arrive() {
    let limits = Limits { backlog_bytes_max: 64 << 10, ..Limits::default() };
    let server = Running::start(limited(limits)).await;
    let mut publisher = server.client().await;
    let mut subscriber = subscriber(&server, "SUBSCRIBE", "ch").await;
    let payload = "x".repeat(60_000);
    let script = "for i=1,20 do redis.call('publish','ch',ARGV[1]) end";
    publisher.send(command(&["EVAL", script, "0", &payload])).await;
    publisher.expect("$-1\r\n").await;
    for _ in 0..20 {
        subscriber.expect(message(&payload)).await;
    }
}
