//! No command, request or frame blocks a serving thread: every verb is sent its largest legal arguments, and the processor time
//! between two polls of a connection task is checked, as measured by the server (`esker_turn_seconds`).
//!
//! Processor time does not depend on the load of the machine. The limit is a bucket bound of the histogram: 4.1 ms with
//! optimization, 8.2 ms in test builds, where the server is unoptimized.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use crate::http2::{PREFACE, frame};
use crate::server::{ARGUMENTS_MAX, Hosted, Metrics, PIPELINE_MAX};

mod largest;

/// Histogram bound that no turn may exceed, in seconds.
const BOUND: &str = if cfg!(debug_assertions) { "0.008192" } else { "0.004096" };

/// Number of attempts at work whose turns are long: the kernel charges interrupts, and returning memory that other threads
/// freed, to whichever thread runs, so not to the same work each time.
const TRIES: usize = 3;

/// Maximum time for an answer.
const PATIENCE: Duration = Duration::from_secs(300);

/// Returns the metrics once all connections have ended: the last turn of a connection frees its watches, queue and subscriptions.
fn metrics_at_rest(server: &Hosted) -> Metrics {
    let mut metrics = server.metrics();
    while metrics.get("esker_connections") > 0 {
        std::thread::sleep(Duration::from_millis(1));
        metrics = server.metrics();
    }
    metrics
}

/// Returns the number of turns so far that exceeded [`BOUND`].
fn long_turns(server: &Hosted) -> u64 {
    let metrics = metrics_at_rest(server);
    let within = metrics.get(&format!("esker_turn_seconds_bucket{{le=\"{BOUND}\"}}"));
    metrics.get("esker_turn_seconds_count") - within
}

/// Returns the number of long turns of `work` in the best of up to [`TRIES`] attempts.
fn long_turns_of(server: &Hosted, mut work: impl FnMut()) -> u64 {
    let mut attempt = || {
        let before = long_turns(server);
        work();
        long_turns(server) - before
    };
    let mut fewest = attempt();
    for _ in 1..TRIES {
        if fewest == 0 {
            break;
        }
        fewest = fewest.min(attempt());
    }
    fewest
}

/// Sends bytes while reading. Returns the last bytes received before `end`, or before the server closed the connection.
fn exchange(to: SocketAddr, bytes: &[u8], end: Option<&[u8]>) -> Vec<u8> {
    let mut stream = TcpStream::connect(to).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.set_write_timeout(Some(PATIENCE)).unwrap();
    let mut writer = stream.try_clone().unwrap();
    std::thread::scope(|scope| {
        // A server that closes a connection does not read the rest.
        scope.spawn(move || drop(writer.write_all(bytes)));
        let (mut tail, mut part) = (Vec::new(), vec![0; 1 << 20]);
        loop {
            let read = match stream.read(&mut part) {
                Ok(0) => return tail,
                Err(error) if end.is_none() || error.kind() == std::io::ErrorKind::ConnectionReset => {
                    return tail;
                }
                read => read.unwrap(),
            };
            tail.extend_from_slice(&part[..read]);
            tail.drain(..tail.len().saturating_sub(1 << 10));
            if end.is_some_and(|end| tail.ends_with(end) || tail.ends_with(MONITORED)) {
                return tail;
            }
        }
    })
}

const DONE: &[u8] = b"$8\r\n--done--\r\n";

/// End of the output of a monitoring client: its last command follows the answer to it.
const MONITORED: &[u8] = b"\"ECHO\" \"--done--\"\r\n";

/// Sends commands and reads all replies.
fn ask(server: &Hosted, commands: &[u8]) -> Vec<u8> {
    let all =
        [b"*2\r\n$5\r\nHELLO\r\n$1\r\n3\r\n", commands, b"*2\r\n$4\r\nECHO\r\n$8\r\n--done--\r\n"].concat();
    exchange(server.resp, &all, Some(DONE))
}

/// Returns the names of all commands of the server.
fn verbs(server: &Hosted) -> Vec<String> {
    let mut stream = TcpStream::connect(server.resp).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(b"COMMAND LIST\r\nQUIT\r\n").unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    let lines = text.lines().filter(|line| !line.starts_with(['*', '$', '+']));
    let mut verbs: Vec<_> = lines.filter(|name| !name.contains('|')).map(str::to_owned).collect();
    // Commands over many keys come first, while the keys are in memory; commands that delete the keys of others come last.
    let rank = |name: &str| match name {
        "mget" | "exists" | "touch" | "watch" | "unwatch" | "keys" | "scan" | "randomkey" => 0,
        "del" | "unlink" => 1,
        "mset" | "msetnx" => 2,
        "flushall" | "flushdb" | "swapdb" => 4,
        _ => 3,
    };
    verbs.sort_by_key(|name| (rank(name), name.clone()));
    verbs
}

/// A command has up to [`ARGUMENTS_MAX`] arguments, or one of nearly 16 MB, the longest there may be; `largest.rs` says which.
/// `ESKER_HOSTILE_VERB=get` sends the commands of one verb only.
#[test]
fn largest_arguments_of_every_verb_keep_turns_short() {
    let server = Hosted::start_roomy();
    for commands in largest::values() {
        ask(&server, &commands);
    }
    let verbs = verbs(&server);
    assert!(verbs.len() > 100, "the server told of {} verbs", verbs.len());
    let only = std::env::var("ESKER_HOSTILE_VERB").ok();
    let mut failed = Vec::new();
    for verb in verbs.iter().filter(|verb| only.as_ref().is_none_or(|only| *only == **verb)) {
        let Some(cases) = largest::of(verb) else {
            failed.push(format!(
                "{verb}: has no case in tests/hostile/turns/largest.rs; add its largest arguments"
            ));
            continue;
        };
        let long = long_turns_of(&server, || {
            for commands in &cases {
                ask(&server, commands);
            }
        });
        if long > 0 {
            failed.push(format!("{verb}: {long} turns took more than {BOUND} s of processor time"));
        }
    }
    assert!(failed.is_empty(), "{}", failed.join("\n"));
    server.stop();
}

#[test]
fn requests_and_frames_without_end_keep_turns_short() {
    let server = Hosted::start_roomy();
    let page = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n".repeat(200);
    let last = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    let requests = [&page[..], last].concat();
    let long = long_turns_of(&server, || drop(exchange(server.http, &requests, None)));
    assert_eq!(long, 0, "of /metrics, longer than {BOUND} s");

    for (kind, payload) in [(6, &[7; 8][..]), (4, &[]), (8, &[0, 0, 0, 1])] {
        let preface = [PREFACE, &frame(4, 0, 0, &[])].concat();
        let flood = frame(kind, 0, 0, payload).repeat(20_000);
        // GOAWAY ends the connection, and so does a flood that HTTP/2 does not allow.
        let frames = [preface, flood, frame(7, 0, 0, &[0; 8])].concat();
        let long = long_turns_of(&server, || drop(exchange(server.grpc, &frames, None)));
        assert_eq!(long, 0, "of HTTP/2 frames of type {kind}, longer than {BOUND} s");
    }
    server.stop();
}

#[test]
fn patterns_of_a_client_are_bounded() {
    let server = Hosted::start_roomy();
    let patterns: Vec<u8> =
        (0..1001).flat_map(|n| largest::command(&["PSUBSCRIBE", &format!("*x{n}?*h?*k*")])).collect();
    let answered = String::from_utf8(ask(&server, &patterns)).unwrap();
    assert!(answered.contains("the client has 1000 patterns"), "{answered}");
    metrics_at_rest(&server);

    // One command with too many subscribes to none of them.
    let all: Vec<String> = (0..1001).map(|n| format!("*y{n}*")).collect();
    let words: Vec<&str> = ["PSUBSCRIBE"].into_iter().chain(all.iter().map(String::as_str)).collect();
    let commands = [largest::command(&words), largest::command(&["PUBSUB", "NUMPAT"])].concat();
    let answered = String::from_utf8(ask(&server, &commands)).unwrap();
    assert!(!answered.contains("psubscribe"), "{answered}");
    assert!(answered.contains("the client has 1000 patterns"), "{answered}");
    assert!(answered.ends_with(&format!(":0\r\n{}", std::str::from_utf8(DONE).unwrap())), "{answered}");
    server.stop();
}
