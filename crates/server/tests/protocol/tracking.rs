//! Client-side caching: invalidations compared with redis-server, and a test that no change is missed.
//!
//! `tracking.txt` has commands of three connections (`A> …`), the replies of redis-server 7.0 (`=`), and the pushes to each
//! connection (`A< …`). `{A}` stands for the id of a connection. `ESKER_RECORD=1` records it again.

use std::collections::{BTreeMap, HashMap};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use esker_server::Limits;
use tokio::io::AsyncWriteExt;
use tokio::sync::Barrier;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::client::{EACH_BYTES, PATIENCE, Running, command, limited, narrow, plain};
use crate::frames::{Frame, Frames};
use crate::redis::Redis;
use crate::transcript::{compare, lines, record};

const FILE: &str = "tracking.txt";
const NAMES: [char; 3] = ['A', 'B', 'C'];

/// The connections of the file.
struct Actors {
    address: SocketAddr,
    connections: BTreeMap<char, (Frames, String)>,
    /// Ids of all connections so far.
    numbers: Vec<(char, String)>,
}

impl Actors {
    async fn new(address: SocketAddr) -> Actors {
        let mut actors = Actors { address, connections: BTreeMap::new(), numbers: Vec::new() };
        for name in NAMES {
            actors.connect(name).await;
        }
        actors
    }

    async fn connect(&mut self, name: char) {
        let mut frames = Frames::connect(self.address).await;
        let id = frames.ask("CLIENT ID").await.0.text();
        let id = id.trim_start_matches(':').to_owned();
        self.numbers.push((name, id.clone()));
        self.connections.insert(name, (frames, id));
    }

    /// Returns the pushes to each connection, until no more arrive.
    async fn told(&mut self) -> String {
        let (mut told, mut quiet) = (BTreeMap::<char, Vec<String>>::new(), 0);
        while quiet < 2 {
            quiet += 1;
            for (name, (frames, _)) in &mut self.connections {
                // Pushes that arrived before the first reply precede the second one.
                for _ in 0..2 {
                    let (_, pushed) = frames.ask("PING").await;
                    for frame in pushed {
                        quiet = 0;
                        told.entry(*name).or_default().extend(each(&frame));
                    }
                }
            }
            sleep(Duration::from_millis(3)).await;
        }
        let mut text = String::new();
        for (name, mut lines) in told {
            lines.sort();
            lines.into_iter().for_each(|line| text += &format!("{name}< {line}\n"));
        }
        text
    }

    /// Replaces names by ids.
    fn numbered(&self, command: &str) -> String {
        let number =
            |text: String, name: &char| text.replace(&format!("{{{name}}}"), &self.connections[name].1);
        NAMES.iter().fold(command.to_owned(), number)
    }

    fn named(&self, reply: String) -> String {
        let name = |text: String, (name, number): &(char, String)| match text == format!(":{number}") {
            true => format!(":{{{name}}}"),
            false => text.replace(&format!(":{number} "), &format!(":{{{name}}} ")),
        };
        self.numbers.iter().fold(reply, name)
    }
}

/// Returns invalidations as one line per key, because the number of keys in a message depends on timing.
fn each(frame: &Frame) -> Vec<String> {
    let elements = frame.elements();
    let (last, before) = elements.split_last().unwrap();
    let before: Vec<String> = before.iter().map(Frame::text).collect();
    match last {
        Frame::Many(_, keys) => {
            keys.iter().map(|key| format!("{} {}", before.join(" "), key.text())).collect()
        }
        Frame::Line(_) => vec![before.join(" ")],
        other => vec![format!("{} {}", before.join(" "), other.text())],
    }
}

async fn transcript(address: SocketAddr) -> String {
    let mut actors = Actors::new(address).await;
    actors.connections.get_mut(&'C').unwrap().0.ask("FLUSHALL").await;
    let mut text = String::new();
    for line in lines(FILE) {
        let Some((name, said)) = line.split_once("> ") else {
            text += &format!("{line}\n");
            continue;
        };
        text += &format!("{line}\n");
        let name = name.chars().next().unwrap();
        if said == "RECONNECT" {
            actors.connections.remove(&name);
            sleep(Duration::from_millis(100)).await;
            actors.connect(name).await;
            continue;
        }
        let command = actors.numbered(said);
        let (reply, pushed) = actors.connections.get_mut(&name).unwrap().0.ask(&command).await;
        if !said.starts_with("HELLO") {
            let names = said.ends_with("INFO") || said.ends_with("GETREDIR");
            text += &format!("= {}\n", if names { actors.named(reply.text()) } else { reply.text() });
        }
        assert!(pushed.is_empty(), "{line}: {pushed:?} came before the answer");
        text += &actors.told().await;
    }
    text
}

#[tokio::test]
async fn clients_that_keep_keys_are_told_as_by_redis() {
    record(FILE, transcript).await;
    let server = Running::start(plain()).await;
    compare(FILE, &transcript(server.resp[0]).await, "Esker");
    let Some(redis) = Redis::start().await else {
        eprintln!("SKIPPED: there is no redis-server 7.0 on this machine");
        return;
    };
    compare(FILE, &transcript(redis.address).await, "redis-server");
}

/// A client that caches values, as client libraries do.
struct Keeper {
    frames: Frames,
    kept: HashMap<String, Frame>,
    told: usize,
}

impl Keeper {
    fn take(&mut self, frame: &Frame) {
        self.told += 1;
        match frame.elements() {
            [_, Frame::Many(_, keys)] => keys.iter().for_each(|key| drop(self.kept.remove(&key.text()))),
            [_, Frame::Null] => self.kept.clear(),
            other => panic!("{other:?}"),
        }
    }

    async fn ask(&mut self, line: &str) -> Frame {
        let (reply, pushed) = self.frames.ask(line).await;
        pushed.iter().for_each(|frame| self.take(frame));
        reply
    }

    async fn get(&mut self, key: &str, how: u64) {
        let value = match how {
            0 => self.ask(&format!("MGET {key}")).await.elements()[0].clone(),
            1 => {
                self.ask("MULTI").await;
                self.ask(&format!("GET {key}")).await;
                self.ask("EXEC").await.elements()[0].clone()
            }
            2 => self.ask(&format!("EVAL \"return redis.call('get', KEYS[1])\" 1 {key}")).await,
            _ => self.ask(&format!("GET {key}")).await,
        };
        // Redis' scripts return false for an absent key, which is a null reply as well.
        self.kept.insert(key.to_owned(), value);
    }
}

const SEEDS: u64 = 6;
const ROUNDS: u64 = 150;
const KEYS: u64 = 3;
const READERS: usize = 3;

fn draw(state: &mut u64) -> u64 {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    *state >> 33
}

/// Waits for all other tasks; fails after a timeout if one of them has failed.
async fn meet(turn: &Barrier) {
    timeout(PATIENCE, turn.wait()).await.expect("nobody has failed");
}

/// Writes a key in one of several ways.
async fn write(frames: &mut Frames, server: &Running, key: &str, value: u64, how: u64) {
    match how {
        0 => drop(frames.ask(&format!("DEL {key}")).await),
        1 => drop(frames.ask(&format!("APPEND {key} x")).await),
        2 => drop(frames.ask(&format!("MSET {key} {value} k0 {value}")).await),
        3 => drop(server.store.put(key, format!("{value}")).await.unwrap()),
        4 => drop(frames.ask(&format!("EVAL \"redis.call('set', KEYS[1], {value})\" 1 {key}")).await),
        _ => drop(frames.ask(&format!("SET {key} {value}")).await),
    }
}

/// Readers cache values while another task writes. After each round, the cached values are the current ones.
async fn nothing_is_missed(seed: u64, mode: &'static str) -> usize {
    let server = Arc::new(Running::start(plain()).await);
    let turn = Arc::new(Barrier::new(READERS + 1));
    let (mut readers, mut state) = (JoinSet::new(), seed);
    for reader in 0..READERS as u64 {
        let (server, turn) = (server.clone(), turn.clone());
        readers.spawn(async move {
            let mut state = seed * 31 + reader + 1;
            let frames = Frames::connect(server.resp[0]).await;
            let mut keeper = Keeper { frames, kept: HashMap::new(), told: 0 };
            keeper.ask("HELLO 3").await;
            assert_eq!(keeper.ask(&format!("CLIENT TRACKING ON {mode}")).await.text(), "+OK");
            for round in 0..ROUNDS {
                meet(&turn).await;
                for _ in 0..4 {
                    let key = format!("k{}", draw(&mut state) % KEYS);
                    keeper.get(&key, draw(&mut state) % 8).await;
                }
                meet(&turn).await;
                let until = Instant::now() + Duration::from_secs(2);
                while let Some(wrong) = wrong(&mut keeper, &server).await {
                    assert!(
                        Instant::now() < until,
                        "{wrong} is kept as it was; seed {seed}, {mode}, round {round}"
                    );
                }
                meet(&turn).await;
            }
            keeper.told
        });
    }
    let mut frames = Frames::connect(server.resp[0]).await;
    for round in 0..ROUNDS {
        meet(&turn).await;
        for _ in 0..draw(&mut state) % 3 {
            let key = format!("k{}", draw(&mut state) % KEYS);
            let how = draw(&mut state) % 8;
            for _ in 0..draw(&mut state) % 20 {
                tokio::task::yield_now().await;
            }
            write(&mut frames, &server, &key, round, how).await;
        }
        meet(&turn).await;
        meet(&turn).await;
    }
    readers.join_all().await.into_iter().sum()
}

/// Returns a cached value that differs from the current one, after all invalidations were received.
async fn wrong(keeper: &mut Keeper, server: &Running) -> Option<String> {
    for _ in 0..2 {
        keeper.ask("PING").await;
    }
    for (key, kept) in &keeper.kept {
        let there = server.store.get(key).await.unwrap();
        if *kept != there.map_or(Frame::Null, |value| Frame::Bulk(value.to_vec())) {
            return Some(key.clone());
        }
    }
    None
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn no_change_is_missed_by_who_keeps_what_it_read() {
    let mut tasks = JoinSet::new();
    for seed in 0..SEEDS {
        tasks.spawn(nothing_is_missed(seed, ["", "BCAST", "OPTOUT"][seed as usize % 3]));
    }
    let told: usize = tasks.join_all().await.into_iter().sum();
    assert!(told > 1000, "only {told} changes were told");
}

/// Expiry invalidates, too.
#[tokio::test]
async fn tracking_invalidates_key_when_it_expires() {
    let server = Running::start(plain()).await;
    let frames = Frames::connect(server.resp[0]).await;
    let mut keeper = Keeper { frames, kept: HashMap::new(), told: 0 };
    keeper.ask("HELLO 3").await;
    keeper.ask("CLIENT TRACKING ON NOLOOP").await;
    keeper.ask("SET k v PX 300").await;
    keeper.get("k", 9).await;
    let until = Instant::now() + Duration::from_secs(10);
    while let Some(key) = wrong(&mut keeper, &server).await.or((keeper.told == 0).then(|| "k".to_owned())) {
        assert!(Instant::now() < until, "{key} is kept though it expired");
        sleep(Duration::from_millis(20)).await;
    }
}

/// After a swap, names refer to other keys. Redis does not notify clients, whose caches stay wrong.
#[tokio::test]
async fn tracking_invalidates_all_keys_after_swapdb() {
    let server = Running::start(plain()).await;
    let (mut keeper, mut other) =
        (Frames::connect(server.resp[0]).await, Frames::connect(server.resp[0]).await);
    keeper.ask("HELLO 3").await;
    keeper.ask("CLIENT TRACKING ON").await;
    keeper.ask("GET k").await;
    assert_eq!(other.ask("SWAPDB 0 1").await.0.text(), "+OK");
    let told = keeper.next().await;
    assert_eq!((told.is_push(), each(&told)), (true, vec!["invalidate null".to_owned()]));
}

/// Connects a client with tracking redirected to another one. It requests keys, and more long values than fit in
/// the socket, so that the rest of the reply waits until it is read.
async fn half_answered(server: &Running, keys: &[String]) -> (Frames, Frames) {
    let (mut reader, mut told) =
        (Frames::connect(server.resp[0]).await, Frames::connect(server.resp[0]).await);
    told.ask("HELLO 3").await;
    let id = told.ask("CLIENT ID").await.0.text();
    reader.ask(&format!("CLIENT TRACKING ON REDIRECT {}", &id[1..])).await;
    server.store.put("long", vec![b'x'; 1 << 20]).await.unwrap();
    // A command before it in the same write is answered together with the first part of the reply.
    let mut words: Vec<&str> = vec!["MGET"];
    words.extend(keys.iter().map(String::as_str));
    words.resize(words.len() + LONG_ANSWERS, "long");
    reader.send(&format!("GET k\r\n{}", String::from_utf8(command(&words)).unwrap())).await;
    let remembered = async {
        while !server.client().await.text("INFO stats").await.contains("tracking_total_items:10\r\n") {
            sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(PATIENCE, remembered).await.expect("the keys and the long one are read");
    (reader, told)
}

/// Number of values of 1 MiB, which exceed the socket buffers.
const LONG_ANSWERS: usize = 64;

/// Changes during the reply to an MGET are reported after the whole reply, although it is produced in parts.
#[tokio::test]
async fn invalidation_for_redirect_waits_for_whole_answer() {
    let server = Running::start(plain()).await;
    let keys: Vec<String> = (0..8).map(|at| format!("k{at}")).collect();
    let (mut reader, mut told) = half_answered(&server, &keys).await;
    server.store.put("k3", "new").await.unwrap();
    for _ in 0..20 {
        let (_, pushed) = told.ask("PING").await;
        assert!(pushed.is_empty(), "{pushed:?} came while the answer is made");
        sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(reader.next().await.text(), "null", "there is no k");
    assert_eq!(reader.next().await.elements().len(), keys.len() + LONG_ANSWERS);
    assert_eq!(each(&told.next().await), ["invalidate k3"]);
}

/// If more invalidations arrive than can be held back, everything is invalidated.
#[tokio::test]
async fn invalidations_held_for_an_answer_are_bounded() {
    let server = Running::start(plain()).await;
    let keys: Vec<String> = (0..8).map(|at| format!("k{at}-{}", "x".repeat(20_000))).collect();
    let (mut reader, mut told) = half_answered(&server, &keys).await;
    for key in &keys {
        server.store.put(key.clone(), "new").await.unwrap();
    }
    for _ in 0..2 {
        reader.next().await;
    }
    let all = each(&told.next().await);
    assert!(all == ["invalidate null"], "{} keys are named", all.len());
    server.store.put("long", "new").await.unwrap();
    assert_eq!(each(&told.next().await), ["invalidate long"], "and nothing else");
}

/// The table has a maximum number of keys, and clients are notified of removed keys.
#[tokio::test]
async fn keys_that_have_no_room_are_told_as_changed() {
    let server = Running::start(plain()).await;
    let mut admin = server.client().await;
    admin.ask("CONFIG SET tracking-table-max-keys 100", "+OK\r\n").await;
    let frames = Frames::connect(server.resp[0]).await;
    let mut keeper = Keeper { frames, kept: HashMap::new(), told: 0 };
    keeper.ask("HELLO 3").await;
    keeper.ask("CLIENT TRACKING ON").await;
    for number in 0..500 {
        keeper.get(&format!("k{number}"), 9).await;
    }
    keeper.ask("PING").await;
    assert_eq!(keeper.kept.len(), 100, "as many as there is room for");
    let info = admin.text("INFO stats").await;
    assert!(info.contains("tracking_total_keys:100\r\ntracking_total_items:100\r\n"), "{info}");
    admin.ask("CONFIG SET tracking-table-max-keys 10", "+OK\r\n").await;
    keeper.ask("PING").await;
    keeper.ask("PING").await;
    assert_eq!(keeper.kept.len(), 10);
    assert!(admin.text("INFO clients").await.contains("\r\ntracking_clients:1\r\n"));
}

/// A client that does not read its replies reads very many keys: memory stays limited, and other clients are served.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn tracking_client_not_reading_leaves_memory_to_others() {
    let server = narrow().await;
    let mut silent = server.client().await;
    silent.send("HELLO 3\r\nCLIENT TRACKING ON\r\nCLIENT REPLY OFF\r\n").await;
    let long = "k".repeat(2000);
    for part in 0..6 {
        let gets: String = (0..300).map(|number| format!("GET {long}{part}-{number}\r\n")).collect();
        if silent.0.write_all(gets.as_bytes()).await.is_err() {
            // The client does not read its invalidations, and was closed.
            break;
        }
    }
    let mut other = server.client().await;
    for prefix in ["a", "b"] {
        let mut broadcast = server.client().await;
        broadcast.send(format!("HELLO 3\r\nCLIENT TRACKING ON BCAST PREFIX {prefix}\r\n")).await;
        std::mem::forget(broadcast);
    }
    for number in 0..300 {
        other.send(command(&["SET", &format!("a{number}"), "x"])).await;
        other.expect("+OK\r\n").await;
    }
    let value = "y".repeat(EACH_BYTES / 8);
    other.send(command(&["SET", "k", &value])).await;
    other.expect("+OK\r\n").await;
    let items = other.text("INFO stats").await;
    let keys = items.lines().find_map(|line| line.strip_prefix("tracking_total_keys:")).unwrap();
    // Each key takes more than two thousand bytes.
    assert!(keys.parse::<usize>().unwrap() * 2_000 < 1 << 20, "{keys} keys are remembered");
}

/// The number of prefixes of a client and their lengths are limited.
#[tokio::test]
async fn prefixes_are_bounded() {
    let limits = Limits { arguments_max: 40, ..Limits::default() };
    let server = Running::start(limited(limits)).await;
    let mut client = server.client().await;
    for at in 10..50 {
        client.send(format!("CLIENT TRACKING ON BCAST PREFIX p{at}\r\n")).await;
        client.expect("+OK\r\n").await;
    }
    client.ask("CLIENT TRACKING ON BCAST PREFIX q", "-ERR too many prefixes\r\n").await;
    client.ask("CLIENT TRACKING OFF", "+OK\r\n").await;
    let long = "x".repeat(1025);
    client
        .ask(&format!("CLIENT TRACKING ON BCAST PREFIX {long}"), "-ERR prefix of more than 1024 bytes\r\n")
        .await;
}

/// CLIENT CACHING applies to the next command even if that is refused, but not to CLIENT itself.
#[tokio::test]
async fn client_caching_applies_to_next_command_only() {
    let limits = Limits { bulk_bytes_max: 1000, ..Limits::default() };
    let server = Running::start(limited(limits)).await;
    let (mut keeper, mut other) =
        (Frames::connect(server.resp[0]).await, Frames::connect(server.resp[0]).await);
    keeper.ask("HELLO 3").await;
    keeper.ask("CLIENT TRACKING ON OPTOUT").await;
    let too_long = format!("*2\r\n$3\r\nGET\r\n$1001\r\n{}", "x".repeat(1001));
    for (between, is_told) in [
        ("PING", true),
        ("GET", true),
        ("NOSUCH", true),
        ("SUBSCRIBE", true),
        ("EXEC", true),
        (&too_long, true),
        ("CLIENT CACHING", false),
        ("CLIENT ID", false),
    ] {
        keeper.ask("CLIENT CACHING NO").await;
        keeper.ask(between).await;
        keeper.ask("GET k").await;
        other.ask("SET k v").await;
        let told = keeper.ask("PING").await.1;
        assert_eq!(!told.is_empty(), is_told, "{between}");
    }
    // A refused command inside MULTI does not end the transaction.
    for line in ["CLIENT CACHING NO", "MULTI", "GET", "DISCARD"] {
        keeper.ask(line).await;
    }
    keeper.ask("GET k").await;
    other.ask("SET k v").await;
    assert!(!keeper.ask("PING").await.1.is_empty(), "DISCARD was the next command");
}

/// Keys are recorded when a transaction runs, so tracking that begins inside of it would miss the keys read before.
#[tokio::test]
async fn tracking_cannot_begin_inside_transaction() {
    let server = Running::start(plain()).await;
    let mut client = server.client().await;
    client.ask("MULTI", "+OK\r\n").await;
    client.ask("CLIENT TRACKING ON", "-ERR Command not allowed inside a transaction\r\n").await;
    client.ask("EXEC", "-EXECABORT Transaction discarded because of previous errors.\r\n").await;
}
