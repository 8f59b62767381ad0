//! Commands about the own and other connections: CLIENT, RESET, durability, SLOWLOG, SHUTDOWN.

use std::time::Instant;

use esker_engine::{Durability, WhenFull};

use crate::client::{Client, Running, plain};
use crate::frames::Frames;

#[tokio::test]
async fn clients_are_listed_and_killed() {
    let server = Running::start(plain()).await;
    let (mut client, mut other) = (server.client().await, server.client().await);
    client.ask("CLIENT SETNAME me", "+OK\r\n").await;
    client.ask("CLIENT SETINFO lib-name tester", "+OK\r\n").await;
    other.ask("CLIENT ID", ":2\r\n").await;
    let list = client.text("CLIENT LIST").await;
    let lines: Vec<_> = list.lines().collect();
    assert_eq!(lines.len(), 2, "{list}");
    assert!(lines[0].starts_with("id=1 addr=127.0.0.1:"), "{list}");
    assert!(lines[0].contains(" name=me ") && lines[0].contains(" lib-name=tester "), "{list}");
    assert!(lines[1].contains(" cmd=client ") && lines[1].contains(" user=default "), "{list}");
    assert_eq!(client.text("CLIENT LIST ID 2 7").await.lines().count(), 1);
    assert!(client.text("CLIENT INFO").await.starts_with("id=1 "));
    client.ask("CLIENT KILL ID 1", ":0\r\n").await;
    client.ask("CLIENT KILL ID 2 MAXAGE 1000", ":0\r\n").await;
    client.ask("CLIENT KILL MAXAGE 0", "-ERR maxage should be greater than 0\r\n").await;
    client.ask("CLIENT KILL MAXAGE x", "-ERR maxage is not an integer or out of range\r\n").await;
    client.ask("CLIENT KILL ID 2", ":1\r\n").await;
    other.expect_end().await;
    let mut third = server.client().await;
    third.ask("PING", "+PONG\r\n").await;
    let address = third.0.local_addr().unwrap();
    client.ask(&format!("CLIENT KILL {address}"), "+OK\r\n").await;
    third.expect_end().await;
    client.ask("CLIENT KILL ID 1 SKIPME no", ":1\r\n").await;
    client.expect_end().await;
}

#[tokio::test]
async fn answers_can_be_turned_off() {
    let server = Running::start(plain()).await;
    let mut client = server.client().await;
    client.send("CLIENT REPLY SKIP\r\nSET a 1\r\nGET a\r\n").await;
    client.expect("$1\r\n1\r\n").await;
    client.send("CLIENT REPLY OFF\r\nSET a 2\r\nGET a\r\nFOO\r\nMULTI\r\nINCR a\r\nEXEC\r\nCLIENT REPLY ON\r\nGET a\r\n").await;
    client.expect("+OK\r\n$1\r\n3\r\n").await;
    client.ask("CLIENT REPLY x", "-ERR syntax error\r\n").await;
}

#[tokio::test]
async fn reset_forgets_everything() {
    let server = Running::start(plain()).await;
    let mut client = server.client().await;
    client.send("HELLO 3\r\nCLIENT SETNAME me\r\nWATCH a\r\nMULTI\r\nSET a 1\r\nRESET\r\nEXEC\r\n").await;
    loop {
        if client.line().await == "+RESET" {
            break;
        }
    }
    client.expect("-ERR EXEC without MULTI\r\n").await;
    client.ask("CLIENT GETNAME", "$-1\r\n").await;
    client.ask("GET a", "$-1\r\n").await;
}

#[tokio::test]
async fn durability_of_a_connection_and_of_one_write() {
    let server = Running::start(plain()).await;
    let mut client = server.client().await;
    let flushes = || server.store.stats().activity.flushes + server.store.stats().activity.frames;
    client.ask("CLIENT DURABILITY", "$7\r\ndefault\r\n").await;
    client.ask("CLIENT DURABILITY none", "+OK\r\n").await;
    client.ask("CLIENT DURABILITY", "$4\r\nnone\r\n").await;
    // A hundred writes acknowledged from memory take far fewer device writes; durable ones take at least one each.
    let before = flushes();
    for _ in 0..100 {
        client.ask("SET k v", "+OK\r\n").await;
    }
    let from_memory = flushes() - before;
    assert!(from_memory < 20, "{from_memory}");
    let before = flushes();
    for _ in 0..25 {
        client.ask("SET k v DURABILITY sync", "+OK\r\n").await;
        client.ask("CLIENT DURABILITY sync NEXT", "+OK\r\n").await;
        client.ask("APPEND k v", ":2\r\n").await;
        client.ask("SET k v", "+OK\r\n").await;
        client.ask("SET k v XX DURABILITY sync", "+OK\r\n").await;
        client.ask("MULTI", "+OK\r\n").await;
        client.ask("EXEC", "*0\r\n").await;
    }
    assert!(flushes() - before >= 75, "{}", flushes() - before);
    client.ask("CLIENT DURABILITY periodic:50", "+OK\r\n").await;
    client.ask("CLIENT DURABILITY", "$11\r\nperiodic:50\r\n").await;
    client.ask("CLIENT DURABILITY default", "+OK\r\n").await;
    client.ask("CLIENT DURABILITY", "$7\r\ndefault\r\n").await;
    let unknown = format!("is not a durability; it is {}\r\n", Durability::WORDS);
    for wrong in ["paper", "periodic:0", "periodic:60001", "periodic:x"] {
        client.ask(&format!("CLIENT DURABILITY {wrong}"), &format!("-ERR '{wrong}' {unknown}")).await;
    }
    client.ask("CLIENT DURABILITY sync x", "-ERR syntax error\r\n").await;
    client.ask("SET k v DURABILITY", "-ERR syntax error\r\n").await;
    client.ask("SET k v DURABILITY paper", &format!("-ERR 'paper' {unknown}")).await;
}

#[tokio::test]
async fn durability_of_a_write_in_a_transaction_and_in_a_script() {
    let server = Running::start(plain()).await;
    let mut client = server.client().await;
    let flushes = || server.store.stats().activity.flushes + server.store.stats().activity.frames;
    client.ask("CLIENT DURABILITY none", "+OK\r\n").await;
    let mut transactions = async |set: &str| {
        let before = flushes();
        for _ in 0..25 {
            client.ask("MULTI", "+OK\r\n").await;
            client.ask(set, "+QUEUED\r\n").await;
            client.ask("SET other v DURABILITY process", "+QUEUED\r\n").await;
            client.ask("EXEC", "*2\r\n+OK\r\n+OK\r\n").await;
        }
        flushes() - before
    };
    let durable = transactions("SET k v DURABILITY sync").await;
    assert!(durable >= 25, "{durable}");
    let from_memory = transactions("SET k v").await;
    assert!(from_memory < 20, "{from_memory}");
    // The writes of a script are acknowledged together, and their level must be known before it runs.
    client.send("EVAL \"return redis.call('set', KEYS[1], 'v', 'DURABILITY', 'sync')\" 1 k\r\n").await;
    let refused = client.line().await;
    assert!(refused.starts_with("-ERR DURABILITY is not allowed from script"), "{refused}");
    // A command that cannot write does not consume a NEXT level.
    client.ask("CLIENT DURABILITY sync NEXT", "+OK\r\n").await;
    client.ask("EVAL_RO \"return 1\" 0", ":1\r\n").await;
    let before = flushes();
    client.ask("SET k v", "+OK\r\n").await;
    assert!(flushes() > before);
}

#[tokio::test]
async fn waiting_makes_durable() {
    let server = Running::start(plain()).await;
    let mut client = server.client().await;
    client.ask("CLIENT DURABILITY none", "+OK\r\n").await;
    for (wait, reply) in [("WAITAOF 1 0 0", "*2\r\n:1\r\n:0\r\n"), ("WAIT 0 0", ":0\r\n")] {
        client.ask("SET k v", "+OK\r\n").await;
        let before = server.store.stats().activity.flushes;
        client.ask(wait, reply).await;
        assert!(server.store.stats().activity.flushes > before, "{wait}");
    }
    client.ask("WAITAOF 2 0 0", "-ERR value is out of range, value must between 0 and 1\r\n").await;
}

#[tokio::test]
async fn slow_commands_are_written_down_without_secrets() {
    let server = Running::start(plain()).await;
    let mut client = server.client().await;
    client.ask("CONFIG SET slowlog-log-slower-than 0", "+OK\r\n").await;
    client.ask("SLOWLOG RESET", "+OK\r\n").await;
    client.ask("SET k v", "+OK\r\n").await;
    client.ask("AUTH default topsecret", "+OK\r\n").await;
    client.ask("CONFIG SET slowlog-log-slower-than -1", "+OK\r\n").await;
    client.ask("SLOWLOG LEN", ":3\r\n").await;
    client.send("SLOWLOG GET 3\r\nECHO end\r\n").await;
    let mut text = String::new();
    while !text.ends_with("end\n") {
        text += &(client.line().await + "\n");
    }
    assert!(text.contains("SET\n$1\nk\n$1\nv\n") && text.contains("AUTH\n$10\n(redacted)"), "{text}");
    assert!(!text.contains("topsecret"), "{text}");
}

#[tokio::test]
async fn a_shutdown_that_contradicts_itself_is_refused() {
    let server = Running::start(plain()).await;
    let mut client = server.client().await;
    for line in ["SHUTDOWN NOSAVE SAVE", "shutdown save now nosave", "SHUTDOWN ABORT NOW"] {
        client.ask(line, "-ERR syntax error\r\n").await;
    }
    client.ask("PING", "+PONG\r\n").await;
}

#[tokio::test]
async fn shutdown_stops_the_server() {
    let server = Running::start(plain()).await;
    let mut client = server.client().await;
    client.ask("SET k v", "+OK\r\n").await;
    client.send("SHUTDOWN NOSAVE\r\n").await;
    client.expect_end().await;
    server.stopped().await;
}

#[tokio::test]
async fn statistics_are_counted_and_reset() {
    let server = Running::start(plain()).await;
    let mut client = server.client().await;
    client.send("GET a\r\nGET b\r\nINCR c\r\n").await;
    client.expect("$-1\r\n$-1\r\n:1\r\n").await;
    let info = client.text("INFO commandstats").await;
    assert!(info.contains("cmdstat_get:calls=2,") && info.contains("cmdstat_incr:calls=1,"), "{info}");
    client.ask("CONFIG RESETSTAT", "+OK\r\n").await;
    let info = client.text("INFO everything").await;
    assert!(!info.contains("cmdstat_get") && info.contains("keyspace_misses:0\r\n"), "{info}");
    for section in ["CPU", "Replication", "Persistence", "Cluster"] {
        assert!(info.contains(&format!("# {section}\r\n")), "{info}");
    }
}

/// Returns a value of `INFO section` by name.
async fn told(client: &mut Client, section: &str, name: &str) -> Option<String> {
    let info = client.text(&format!("INFO {section}")).await;
    info.lines().find_map(|line| Some(line.strip_prefix(name)?.strip_prefix(':')?.to_owned()))
}

#[tokio::test]
async fn calls_are_timed_and_told_from_failures_and_refusals() {
    let server = Running::start(plain()).await;
    let mut client = server.client().await;
    client.ask("CONFIG RESETSTAT", "+OK\r\n").await;
    let started = std::time::Instant::now();
    client
        .send("SET a x\r\nSET b x\r\nSET c 1\r\nINCR a\r\nINCR c\r\nAPPEND c 0\r\nINCR\r\nMGET a b\r\n")
        .await;
    let (not_an_integer, arguments) =
        ("value is not an integer or out of range", "wrong number of arguments for 'incr' command");
    let mget = "*2\r\n$1\r\nx\r\n$1\r\nx\r\n";
    let replies =
        format!("+OK\r\n+OK\r\n+OK\r\n-ERR {not_an_integer}\r\n:2\r\n:2\r\n-ERR {arguments}\r\n{mget}");
    client.expect(&replies).await;
    client.ask("MULTI", "+OK\r\n").await;
    client.ask("INCR a", "+QUEUED\r\n").await;
    client.ask("INCR c", "+QUEUED\r\n").await;
    client.ask("SCAN 0", "-ERR Command not allowed inside a transaction\r\n").await;
    client.ask("DISCARD", "+OK\r\n").await;
    client.ask("MULTI", "+OK\r\n").await;
    client.ask("INCR a", "+QUEUED\r\n").await;
    client.ask("INCR c", "+QUEUED\r\n").await;
    client.ask("EXEC", &format!("*2\r\n-ERR {not_an_integer}\r\n:21\r\n")).await;
    let most_us = started.elapsed().as_micros() as u64;
    let mut total_us = 0;
    for (verb, calls, rejected, failed) in [
        ("set", 3, 0, 0),
        ("incr", 4, 1, 2),
        ("append", 1, 0, 0),
        ("mget", 1, 0, 0),
        ("exec", 1, 0, 0),
        ("scan", 0, 1, 0),
    ] {
        let told = told(&mut client, "commandstats", &format!("cmdstat_{verb}")).await.unwrap_or_default();
        let facts: Vec<_> = told.split(',').map(|fact| fact.split_once('=').unwrap_or_default()).collect();
        let [("calls", c), ("usec", us), ("usec_per_call", each), ("rejected_calls", r), ("failed_calls", f)] =
            facts[..]
        else {
            panic!("{verb}: {told}");
        };
        let expected = [calls, rejected, failed].map(|count: u64| count.to_string());
        assert_eq!([c, r, f], expected, "{verb}: {told}");
        let us: u64 = us.parse().unwrap();
        assert_eq!(
            each,
            if calls == 0 { "0.00".to_owned() } else { format!("{:.2}", us as f64 / calls as f64) }
        );
        total_us += us;
    }
    // The time of EXEC includes that of its commands.
    assert!(total_us > 0 && total_us <= 2 * most_us, "{total_us} of {most_us}");
}

#[tokio::test]
async fn histograms_are_of_the_commands_that_ran() {
    let server = Running::start(plain()).await;
    let mut client = server.client().await;
    client.ask("CONFIG RESETSTAT", "+OK\r\n").await;
    client.send("GET a\r\nGET b\r\nGET c\r\n").await;
    client.expect("$-1\r\n$-1\r\n$-1\r\n").await;
    client.send("LATENCY HISTOGRAM nothing set get\r\nECHO end\r\n").await;
    let mut lines = Vec::new();
    while lines.last().is_none_or(|line| line != "end") {
        lines.push(client.line().await);
    }
    assert_eq!(lines[..7], ["*2", "$3", "get", "*4", "$5", "calls", ":3"], "{lines:?}");
    assert_eq!(lines[7..9], ["$14", "histogram_usec"], "{lines:?}");
    let number = |line: &String| line[1..].parse::<u64>().unwrap();
    let (bounds, pairs) = (&lines[10..lines.len() - 2], number(&lines[9]));
    assert_eq!(bounds.len() as u64, pairs, "{lines:?}");
    assert_eq!(bounds.last().map(number), Some(3), "the last bound has all calls: {lines:?}");
    for bound in bounds.iter().step_by(2).map(number) {
        assert!((0..=20).any(|power| (1032 << power) / 1000 == bound), "{bound} is no bound of Redis");
    }
    let percentiles = told(&mut client, "latencystats", "latency_percentiles_usec_get").await.unwrap();
    let values: Vec<f64> =
        percentiles.split(',').filter_map(|one| one.split_once('=')?.1.parse().ok()).collect();
    assert!(percentiles.starts_with("p50=") && percentiles.contains(",p99.9="), "{percentiles}");
    assert!(values.len() == 3 && values.is_sorted() && values[0] > 0.0, "{percentiles}");
    assert!(!client.text("INFO").await.contains("Latencystats"), "only who asks for it is told");
}

#[tokio::test]
async fn clients_are_not_answered_where_they_asked_not_to_be() {
    let server = Running::start(plain()).await;
    let many = (0..1000).fold("MGET".to_owned(), |line, key| format!("{line} {key}"));
    for (lines, expected) in [
        ("CLIENT REPLY SKIP\r\nPING\r\n", ""),
        ("CLIENT REPLY SKIP\r\nCLIENT REPLY ON\r\n", "+OK\r\n"),
        ("CLIENT REPLY SKIP\r\nCLIENT REPLY SKIP\r\nPING\r\n", ""),
        ("CLIENT REPLY SKIP\r\nCLIENT REPLY x\r\n", ""),
        ("CLIENT REPLY SKIP\r\nFOO\r\n", ""),
        ("CLIENT REPLY SKIP\r\nRESET\r\n", ""),
        (&format!("CLIENT REPLY SKIP\r\n{many}\r\n"), ""),
        ("CLIENT REPLY SKIP\r\nCLIENT REPLY OFF\r\nPING\r\nCLIENT REPLY ON\r\n", "+OK\r\n"),
        ("CLIENT REPLY OFF\r\nCLIENT REPLY SKIP\r\nPING\r\nCLIENT REPLY ON\r\n", "+OK\r\n"),
        ("CLIENT REPLY OFF\r\nPING\r\nRESET\r\n", "+RESET\r\n"),
    ] {
        let mut client = server.client().await;
        client.send(format!("{lines}PING end\r\n")).await;
        client.expect(format!("{expected}$3\r\nend\r\n")).await;
    }
}

#[tokio::test]
async fn config_set_changes_reloadable_settings_together() {
    let server = Running::start(plain()).await;
    let mut client = server.client().await;
    client.ask("CONFIG SET background-limit 1000000 durability none maxclients 50", "+OK\r\n").await;
    assert_eq!(server.store.durability(), Durability::None);
    assert_eq!(server.store.background_bytes_per_s(), Some(1_000_000));
    for (name, value) in [("appendfsync", "everysec"), ("durability", "none"), ("maxclients", "50")] {
        let told = format!("*2\r\n${}\r\n{name}\r\n${}\r\n{value}\r\n", name.len(), value.len());
        client.ask(&format!("CONFIG GET {name}"), &told).await;
    }
    for (wrong, why) in [
        ("background-limit 0 durability always", "'durability') - 'always' is not a durability"),
        ("background-limit 0 maxclients 0", "'maxclients') - argument must be between 1"),
        ("background-limit 0 appendfsync no", "'appendfsync') - can't set immutable config"),
    ] {
        client.send(format!("CONFIG SET {wrong}\r\n")).await;
        let line = client.line().await;
        assert!(line.starts_with("-ERR CONFIG SET failed") && line.contains(why), "{line}");
    }
    assert_eq!(server.store.background_bytes_per_s(), Some(1_000_000), "all are set or none");
    assert_eq!(server.store.scrub_bytes_per_s(), None);
    client.ask("CONFIG GET scrub-limit", "*2\r\n$11\r\nscrub-limit\r\n$2\r\n-1\r\n").await;
    client.ask("CONFIG SET scrub-limit 5000000", "+OK\r\n").await;
    assert_eq!(server.store.scrub_bytes_per_s(), Some(5_000_000));
    client.ask("CONFIG SET scrub-limit -1", "+OK\r\n").await;
    assert_eq!(server.store.scrub_bytes_per_s(), None);
    client.ask("CONFIG SET background-limit 0", "+OK\r\n").await;
    assert_eq!(server.store.background_bytes_per_s(), None);
}

#[tokio::test]
async fn a_policy_of_redis_says_what_a_full_store_does() {
    let server = Running::start(plain()).await;
    let mut client = server.client().await;
    client.ask("CONFIG GET maxmemory-policy", "*2\r\n$16\r\nmaxmemory-policy\r\n$10\r\nnoeviction\r\n").await;
    client.ask("CONFIG SET maxmemory-policy volatile-TTL", "+OK\r\n").await;
    assert_eq!(server.store.when_full(), WhenFull::EvictExpiring);
    client
        .ask("CONFIG GET maxmemory-policy", "*2\r\n$16\r\nmaxmemory-policy\r\n$12\r\nvolatile-ttl\r\n")
        .await;
    client.ask("CONFIG SET when-full evict", "+OK\r\n").await;
    assert_eq!(server.store.when_full(), WhenFull::Evict);
    let before = Instant::now();
    client.ask("SET a 1", "+OK\r\n").await;
    client.send("OBJECT IDLETIME a\r\n").await;
    let line = client.line().await;
    let idle: u64 = line.trim_start_matches(':').trim_end().parse().unwrap_or_else(|_| panic!("{line}"));
    assert!(idle <= before.elapsed().as_secs() + 1, "{line}");
    client.ask("OBJECT IDLETIME b", "$-1\r\n").await;
    client.send("OBJECT FREQ a\r\n").await;
    assert!(client.line().await.starts_with("-ERR An LFU maxmemory policy is not selected"));
    client.ask("CONFIG SET maxmemory-policy allkeys-lfu", "+OK\r\n").await;
    client.ask("OBJECT FREQ a", ":0\r\n").await;
    client.ask("GET a", "$1\r\n1\r\n").await;
    client.ask("OBJECT FREQ a", ":1\r\n").await;
    client.send("OBJECT IDLETIME a\r\n").await;
    assert!(client.line().await.starts_with("-ERR An LFU maxmemory policy is selected"));
    let info = client.text("INFO").await;
    for line in ["maxmemory_policy:allkeys-lfu", "evicted_keys:0"] {
        assert!(info.contains(&format!("\r\n{line}\r\n")), "{line}: {info}");
    }
    assert!(!info.contains("\r\nmaxmemory:0\r\n"), "{info}");
    client.send("CONFIG SET maxmemory-policy lru\r\n").await;
    let line = client.line().await;
    assert!(line.ends_with("argument(s) must be one of the following: volatile-lru, volatile-lfu, volatile-random, volatile-ttl, allkeys-lru, allkeys-lfu, allkeys-random, noeviction"), "{line}");
    client.send("CONFIG SET when-full lru\r\n").await;
    assert!(client.line().await.contains("it is refuse, evict or evict-expiring"));
}

#[tokio::test]
async fn commands_wait_while_they_are_paused() {
    let server = Running::start(plain()).await;
    let (mut client, mut other) = (server.client().await, server.client().await);
    client.ask("CLIENT PAUSE 60000 WRITE", "+OK\r\n").await;
    other.ask("GET a", "$-1\r\n").await;
    other.ask("MULTI", "+OK\r\n").await;
    other.ask("GET a", "+QUEUED\r\n").await;
    other.ask("EXEC", "*1\r\n$-1\r\n").await;
    other.send("GET a\r\nSET a 1\r\nGET a\r\n").await;
    other.expect("$-1\r\n").await;
    other.expect_nothing().await;
    client.ask("GET a", "$-1\r\n").await;
    client.ask("CLIENT PAUSE 60000", "+OK\r\n").await;
    client.ask("CLIENT UNPAUSE", "+OK\r\n").await;
    other.expect("+OK\r\n$1\r\n1\r\n").await;

    client.ask("CLIENT PAUSE 60000 ALL", "+OK\r\n").await;
    // Two pauses combine to the larger set of commands and the later end.
    client.ask("CLIENT PAUSE 1 WRITE", "+OK\r\n").await;
    other.send("GET a\r\n").await;
    other.expect_nothing().await;
    client.ask("CLIENT UNPAUSE", "+OK\r\n").await;
    other.expect("$1\r\n1\r\n").await;

    // A pause ends by itself, and with the server.
    client.ask("CLIENT PAUSE 100", "+OK\r\n").await;
    other.ask("GET a", "$1\r\n1\r\n").await;
    client.ask("CLIENT PAUSE 9223372036854775807", "+OK\r\n").await;
    other.send("GET a\r\n").await;
    other.expect_nothing().await;
    let id = other.0.local_addr().unwrap();
    client.ask(&format!("CLIENT KILL {id}"), "+OK\r\n").await;
    other.expect_end().await;
    let mut server = server;
    server.ask_to_stop();
    server.stopped().await;
}

#[tokio::test]
async fn object_tells_what_redis_would() {
    let server = Running::start(plain()).await;
    let mut client = server.client().await;
    client.ask("SET a 1", "+OK\r\n").await;
    client.ask("OBJECT IDLETIME a", ":0\r\n").await;
    client.ask("APPEND a 2", ":2\r\n").await;
    client.ask("OBJECT ENCODING a", "$3\r\nint\r\n").await;
}

/// Confirmations of subscriptions are not replies, and without them a client cannot know its subscriptions.
#[tokio::test]
async fn subscriptions_are_confirmed_to_who_wants_no_answers() {
    let server = Running::start(plain()).await;
    for silence in ["SKIP", "OFF"] {
        let mut client = Frames::connect(server.resp[0]).await;
        client.ask("HELLO 3").await;
        for kind in ["", "p", "s"] {
            for (word, count) in [("subscribe", 1), ("unsubscribe", 0)] {
                client.send(&format!("CLIENT REPLY {silence}\r\n{kind}{word} name")).await;
                let told = client.next().await;
                assert_eq!(told.text(), format!("({kind}{word} name :{count})"), "{silence}");
            }
        }
        client.send("CLIENT REPLY ON").await;
        assert_eq!(client.next().await.text(), "+OK");
    }
    // Refused and queued commands have ordinary replies, which are suppressed.
    let mut client = server.client().await;
    let long = "n".repeat(5000);
    client
        .send(format!("CLIENT REPLY OFF\r\nSUBSCRIBE {long}\r\nSUBSCRIBE\r\nMULTI\r\nSUBSCRIBE c\r\n"))
        .await;
    client.ask("DISCARD\r\nCLIENT REPLY ON", "+OK\r\n").await;
    client.ask("PING", "+PONG\r\n").await;
}
