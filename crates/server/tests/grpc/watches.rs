//! Watches of keys.

use std::collections::HashMap;
use std::time::Duration;

use esker_server::{Config, Right};
use futures_util::future::join_all;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;
use tonic::{Code, Streaming};

use crate::client::pb::change::Kind;
use crate::client::pb::watch_response::Message;
use crate::client::pb::{self, expiry};
use crate::client::{Client, PATIENCE, Running, from, get, here, key, now_ms, plain, put, refused, users};

/// A watch, and its received changes that the test has not taken yet.
struct Watch {
    stream: Streaming<pb::WatchResponse>,
    came: std::vec::IntoIter<pb::Change>,
}

fn of(prefixes: &[&str]) -> pb::WatchRequest {
    pb::WatchRequest { prefixes: prefixes.iter().map(|text| key(text)).collect(), ..Default::default() }
}

impl Watch {
    /// Begins a watch, and waits for its first message.
    async fn begin(client: &mut Client, request: impl tonic::IntoRequest<pb::WatchRequest>) -> Watch {
        let stream = client.watch(request).await.unwrap().into_inner();
        let mut watch = Watch { stream, came: Vec::new().into_iter() };
        assert!(matches!(watch.message().await, Message::Started(_)));
        watch
    }

    async fn message(&mut self) -> Message {
        let next = timeout(PATIENCE, self.stream.message()).await.expect("something comes");
        next.unwrap().expect("it goes on").message.unwrap()
    }

    async fn next(&mut self) -> pb::Change {
        loop {
            if let Some(change) = self.came.next() {
                return change;
            }
            if let Message::Changes(changes) = self.message().await {
                self.came = changes.changes.into_iter();
            }
        }
    }

    /// Returns the number of remaining changes, and the error that ends the watch.
    async fn end(mut self) -> (usize, tonic::Status) {
        let mut changes = 0;
        loop {
            match timeout(PATIENCE, self.stream.message()).await.expect("an end") {
                Ok(Some(pb::WatchResponse { message: Some(Message::Changes(more)) })) => {
                    changes += more.changes.len();
                }
                Ok(said) => assert!(said.is_some(), "it ends without a reason"),
                Err(status) => return (changes, status),
            }
        }
    }
}

#[tokio::test]
async fn a_watch_tells_of_what_changes_from_then_on() {
    let running = Running::start(plain()).await;
    let mut client = running.client().await;
    client.put(put("a:before", "x")).await.unwrap();
    let watched = pb::WatchRequest { keys: vec![key("one")], with_values: true, ..of(&["a:", "b:"]) };
    let mut watch = Watch::begin(&mut client, watched).await;
    let mut keys_only = Watch::begin(&mut client, of(&["a:"])).await;
    let far = now_ms() + 100_000;
    let at_far = Some(pb::Expiry { at: Some(expiry::At::AtMs(far)) });
    let version = client
        .put(pb::PutRequest { expiry: at_far, ..put("a:1", "value") })
        .await
        .unwrap()
        .into_inner()
        .version;
    let expected = pb::Change {
        kind: Kind::Put.into(),
        key: key("a:1"),
        version,
        expires_at_ms: Some(far),
        value: Some(key("value")),
    };
    assert_eq!(keys_only.next().await, pb::Change { value: None, ..expected.clone() });
    assert_eq!(watch.next().await, expected);
    // Keys that are not watched are not reported.
    for at in ["c:1", "a", "one more", "one"] {
        client.put(put(at, "x")).await.unwrap();
    }
    assert_eq!(watch.next().await.key, "one");
    let delete = pb::DeleteRequest { key: key("a:1"), ..Default::default() };
    client.delete(delete.clone()).await.unwrap();
    let gone = watch.next().await;
    assert_eq!((gone.kind(), &gone.key[..], gone.value), (Kind::Delete, &b"a:1"[..], None));
    assert!(gone.version > version);
    client.delete(delete).await.unwrap();
    // Writes through RESP and through the embedded store are reported as well.
    running.store.increment("b:n", 3).await.unwrap();
    let sum = watch.next().await;
    assert_eq!((sum.kind(), sum.value), (Kind::Put, Some(key("3"))));
    let soon = Some(pb::Expiry { at: Some(expiry::At::TtlMs(30)) });
    client.put(pb::PutRequest { expiry: soon, ..put("b:soon", "x") }).await.unwrap();
    let put = watch.next().await;
    let expired = watch.next().await;
    assert_eq!((put.kind(), expired.kind()), (Kind::Put, Kind::Expire));
    assert!(expired.key == "b:soon" && expired.version >= put.version);
    running.store.clear().await.unwrap();
    assert_eq!(watch.next().await.kind(), Kind::Clear);
}

/// Every change of a key is reported in order with rising versions, concurrent with writers of all kinds and several watches.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_change_is_missed_beside_writers() {
    const ROUNDS: u64 = 120;
    let running = Running::start(plain()).await;
    let mut client = running.client().await;
    let mut watches = Vec::new();
    for prefix in ["", "k", "k1"] {
        watches.push((prefix, Watch::begin(&mut client, of(&[prefix])).await));
    }
    let writers = (0..3).map(|writer| {
        let running = &running;
        async move {
            let mut client = running.client().await;
            let mut done = Vec::new();
            for round in 0..ROUNDS {
                let at = format!("k{}", (round + writer) % 3);
                let version = match (round + writer) % 4 {
                    0 => client.put(put(&at, format!("{round}"))).await.unwrap().into_inner().version,
                    1 => running.store.put(at.clone(), "1").await.unwrap(),
                    2 => {
                        let put =
                            pb::txn_operation::Put { key: key(&at), value: key("2"), ..Default::default() };
                        let operation = Some(pb::txn_operation::Operation::Put(put));
                        let success = vec![pb::TxnOperation { operation }];
                        let txn = pb::TxnRequest { success, ..Default::default() };
                        let results = client.txn(txn).await.unwrap().into_inner().results;
                        let Some(pb::txn_result::Result::Put(put)) = &results[0].result else { panic!() };
                        put.version
                    }
                    _ => {
                        let put = pb::PutRequest { return_previous: true, ..put(&at, "3") };
                        client.put(put).await.unwrap().into_inner().version
                    }
                };
                done.push((at, version));
            }
            done
        }
    });
    let written = join_all(writers).await.concat();
    let mut by_key = HashMap::<String, Vec<u64>>::new();
    for (at, version) in written {
        by_key.entry(at).or_default().push(version);
    }
    by_key.values_mut().for_each(|versions| versions.sort_unstable());
    for (prefix, mut watch) in watches {
        let expected: usize =
            by_key.iter().filter(|(at, _)| at.starts_with(prefix)).map(|(_, versions)| versions.len()).sum();
        let mut told = HashMap::<String, Vec<u64>>::new();
        for _ in 0..expected {
            let change = watch.next().await;
            told.entry(String::from_utf8(change.key.to_vec()).unwrap()).or_default().push(change.version);
        }
        for (at, versions) in told {
            assert_eq!(versions, by_key[&at], "watch of {prefix}, key {at}: in the order of the writes");
        }
    }
}

/// A value belongs to its change or is left out: many are overwritten before they are sent.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_value_is_that_of_its_change() {
    let running = Running::start(plain()).await;
    let mut client = running.client().await;
    let wanted = pb::WatchRequest { with_values: true, ..of(&["k"]) };
    let mut watch = Watch::begin(&mut client, wanted).await;
    let mut written = HashMap::new();
    for n in 0..2000 {
        let options = esker_engine::WriteOptions::new().durability(esker_engine::Durability::None);
        let version = running.store.put_with("k", n.to_string(), options).await.unwrap();
        written.insert(version, n.to_string());
    }
    let mut left_out = 0;
    for n in 0..2000 {
        let change = watch.next().await;
        match change.value {
            Some(value) => assert_eq!(value, written[&change.version]),
            None => left_out += 1,
        }
        if n == 1999 {
            assert!(left_out > 0 && left_out < 2000, "{left_out} were left out");
        }
    }
}

#[tokio::test]
async fn watch_too_slow_is_aborted_and_others_continue() {
    let running = Running::start(plain()).await;
    let mut client = running.client().await;
    let small = pb::WatchRequest { queue_bytes: 64 << 10, ..of(&[""]) };
    let slow = Watch::begin(&mut client, small).await;
    let mut other = Watch::begin(&mut client, of(&["other"])).await;
    // The watch is not read meanwhile, and the changes exceed the capacity of the queue and of the network buffers together.
    for round in 0..50 {
        let mut batch = esker_engine::Batch::new();
        (0..1000).for_each(|n| _ = batch.put(format!("k{round}-{n:0100}"), "v"));
        running.store.write(batch).await.unwrap();
    }
    let (changes, status) = slow.end().await;
    assert!((100..50_000).contains(&changes), "{changes} came before the gap");
    refused(Err::<(), _>(status), Code::Aborted, "MISSED");
    running.store.put("other", "v").await.unwrap();
    assert_eq!(other.next().await.key, "other");
}

#[tokio::test]
async fn a_quiet_watch_says_that_it_is_there() {
    let running = Running::start(plain()).await;
    let mut client = running.client().await;
    let mut watch = Watch::begin(&mut client, pb::WatchRequest { progress_ms: 100, ..of(&["a"]) }).await;
    let Message::Progress(progress) = watch.message().await else { panic!("nothing changes") };
    assert_eq!(progress.changes, 0);
    client.put(put("a", "x")).await.unwrap();
    assert_eq!(watch.next().await.key, "a");
    let Message::Progress(progress) = watch.message().await else { panic!("nothing changes") };
    assert_eq!(progress.changes, 1);
}

#[tokio::test]
async fn watches_are_bounded_and_leave_calls_to_others() {
    let running = Running::start(Config { http: vec![here()], ..plain() }).await;
    let mut client = running.client().await;
    let mut watches = Vec::new();
    for _ in 0..32 {
        watches.push(Watch::begin(&mut client, of(&["a"])).await);
    }
    refused(client.watch(of(&["a"])).await, Code::ResourceExhausted, "WATCHES");
    client.get(get("a")).await.unwrap();
    let held = || async {
        let mut client = running.client().await;
        client.stats(pb::StatsRequest {}).await.unwrap().into_inner().client_memory_bytes
    };
    assert!(held().await >= 32 << 20, "queues have memory");
    drop(watches);
    timeout(PATIENCE, async {
        while held().await > 4 << 20 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await
    .expect("it is given back");
    Watch::begin(&mut client, of(&["a"])).await;

    for wrong in [
        pb::WatchRequest { queue_bytes: 1, ..of(&["a"]) },
        pb::WatchRequest { queue_bytes: 17 << 20, ..of(&["a"]) },
        pb::WatchRequest { progress_ms: 99, ..of(&["a"]) },
        pb::WatchRequest { keys: vec![key("")], ..of(&["a"]) },
        of(&["a"; 65]),
        of(&[&"a".repeat(65_537)]),
    ] {
        refused(client.watch(wrong).await, Code::InvalidArgument, "INVALID");
    }
}

#[tokio::test]
async fn a_watch_tells_what_its_user_may_read_and_ends_with_it() {
    let (directory, mut users, access) = users(&[("ann", &[Right::Read]), ("bob", &[Right::Write])]);
    let running = Running::start(Config { access, ..plain() }).await;
    let mut client = running.client().await;
    refused(client.watch(from(of(&[""]), "bob", "pass")).await, Code::PermissionDenied, "NO_RIGHT");
    let other = pb::WatchRequest { keys: vec![key("other")], ..Default::default() };
    refused(client.watch(from(other, "ann", "pass")).await, Code::PermissionDenied, "NO_RIGHT");
    let wanted = pb::WatchRequest { progress_ms: 200, ..of(&[""]) };
    let mut watch = Watch::begin(&mut client, from(wanted, "ann", "pass")).await;
    for at in ["other", "mine:a"] {
        running.store.put(at, "x").await.unwrap();
    }
    assert_eq!(watch.next().await.key, "mine:a");
    users.remove("ann");
    users.write(&directory.path().join("users.toml")).unwrap();
    running.control.reload().unwrap();
    running.store.put("mine:b", "x").await.unwrap();
    let (changes, status) = watch.end().await;
    assert_eq!(changes, 0, "who is gone is told nothing");
    refused(Err::<(), _>(status), Code::Unauthenticated, "LOGIN");
}

/// Changes of keys that may be read only now were left out before, so the watcher has to read them again.
#[tokio::test]
async fn a_watch_whose_user_may_read_other_keys_ends() {
    let running = Running::start(plain()).await;
    let mut client = running.client().await;
    let mut admin = tokio::net::TcpStream::connect(running.resp[0]).await.unwrap();
    let mut set = async |rules: &str| {
        admin.write_all(format!("ACL SETUSER ann {rules}\r\n").as_bytes()).await.unwrap();
        let mut answer = [0; 5];
        admin.read_exact(&mut answer).await.unwrap();
        assert_eq!(&answer, b"+OK\r\n", "{rules}");
    };
    set("on >pass ~a:* +@all -@dangerous").await;
    let mut watch = Watch::begin(&mut client, from(of(&[""]), "ann", "pass")).await;
    for same in [">other", "-set", "&c:*", "databases=0,1"] {
        set(same).await;
        running.store.put("b:1", "x").await.unwrap();
        running.store.put("a:1", same).await.unwrap();
        assert_eq!(watch.next().await.key, "a:1");
    }
    for other in ["~b:*", "resetkeys %R~a:*", "databases=1"] {
        // Without any write, the watch ends at once.
        let begun = std::time::Instant::now();
        set(other).await;
        let (changes, status) = watch.end().await;
        assert_eq!(changes, 0, "{other}");
        refused(Err::<(), _>(status), Code::Aborted, "MISSED");
        assert!(begun.elapsed() < Duration::from_secs(10), "{other}");
        let again = client.watch(from(of(&[""]), "ann", "pass")).await;
        if other == "databases=1" {
            refused(again, Code::PermissionDenied, "NO_RIGHT");
            break;
        }
        watch = Watch { stream: again.unwrap().into_inner(), came: Vec::new().into_iter() };
        assert!(matches!(watch.message().await, Message::Started(_)));
    }
}

#[tokio::test]
async fn a_watch_ends_with_the_server() {
    let mut running = Running::start(plain()).await;
    let mut client = running.client().await;
    let watch = Watch::begin(&mut client, of(&["a"])).await;
    running.ask_to_stop();
    let (_, status) = watch.end().await;
    refused(Err::<(), _>(status), Code::Unavailable, "STOPPING");
    running.stopped().await;
}
