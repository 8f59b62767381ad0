//! Comparison with the replies of Redis, byte for byte.
//!
//! `corpus.txt` has commands; `replies-resp2.txt` and `replies-resp3.txt` have the replies of redis-server 7.0. The replies of
//! this server are always compared with them, and, if redis-server is installed, with a server started for the test.
//! `ESKER_RECORD=1 cargo test -p esker-server --test protocol redis` records the replies again.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufStream};
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};

use crate::client::{Running, plain};

pub(crate) fn here(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/protocol").join(name)
}

fn corpus() -> Vec<String> {
    let text = std::fs::read_to_string(here("corpus.txt")).unwrap();
    text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')).map(str::to_owned).collect()
}

/// Returns the replies of a server to the corpus, as escaped text.
async fn replies(address: SocketAddr, protocol: u8) -> Vec<String> {
    let mut stream = BufStream::new(TcpStream::connect(address).await.unwrap());
    exchange(&mut stream, "FLUSHALL").await;
    exchange(&mut stream, &format!("HELLO {protocol}")).await;
    let mut replies = Vec::new();
    for command in corpus() {
        replies.push(exchange(&mut stream, &command).await);
    }
    replies
}

/// Sends an inline command. Returns its reply as escaped text.
pub(crate) async fn exchange(stream: &mut BufStream<TcpStream>, command: &str) -> String {
    stream.write_all(format!("{command}\r\n").as_bytes()).await.unwrap();
    stream.flush().await.unwrap();
    read_reply(stream, command).await
}

/// Returns the next reply as escaped text.
pub(crate) async fn read_reply(stream: &mut BufStream<TcpStream>, command: &str) -> String {
    let read = async {
        let mut reply = Vec::new();
        let mut missing = 1;
        while missing > 0 {
            let start = reply.len();
            stream.read_until(b'\n', &mut reply).await.unwrap();
            let number =
                || std::str::from_utf8(&reply[start + 1..reply.len() - 2]).unwrap().parse::<i64>().unwrap();
            missing -= 1;
            match reply[start] {
                b'*' | b'~' | b'>' => missing += number().max(0),
                b'%' => missing += 2 * number(),
                b'$' | b'=' if number() >= 0 => {
                    let end = reply.len();
                    reply.resize(end + number() as usize + 2, 0);
                    stream.read_exact(&mut reply[end..]).await.unwrap();
                }
                _ => {}
            }
        }
        reply
    };
    let reply = timeout(Duration::from_secs(30), read).await;
    reply.unwrap_or_else(|_| panic!("no reply to {command}")).escape_ascii().to_string()
}

fn recorded(protocol: u8) -> Vec<String> {
    let text = std::fs::read_to_string(here(&format!("replies-resp{protocol}.txt"))).unwrap();
    text.lines().map(str::to_owned).collect()
}

fn compare(expected: &[String], found: &[String], protocol: u8, whose: &str) {
    let corpus = corpus();
    assert_eq!(
        expected.len(),
        corpus.len(),
        "the recorded replies are not those of this corpus: record anew"
    );
    let mut text = String::new();
    for ((command, expected), found) in corpus.iter().zip(expected).zip(found) {
        if expected != found {
            text += &format!("\n{command}\n  expected {expected}\n  found    {found}");
        }
    }
    assert!(text.is_empty(), "RESP{protocol} replies of {whose} differ:{text}");
}

#[tokio::test]
async fn redis_replies_as_recorded() {
    if std::env::var_os("ESKER_RECORD").is_some() {
        let redis = Redis::start().await.expect("recording needs a redis-server");
        for protocol in [2, 3] {
            let text = replies(redis.address, protocol).await.join("\n") + "\n";
            std::fs::write(here(&format!("replies-resp{protocol}.txt")), text).unwrap();
        }
    }
    for protocol in [2, 3] {
        let server = Running::start(plain()).await;
        compare(&recorded(protocol), &replies(server.resp[0], protocol).await, protocol, "Esker");
    }
}

#[tokio::test]
async fn redis_replies_of_a_redis_server() {
    let Some(redis) = Redis::start().await else {
        eprintln!(
            "SKIPPED: there is no redis-server 7.0 on this machine; only the recorded replies were compared"
        );
        return;
    };
    for protocol in [2, 3] {
        let theirs = replies(redis.address, protocol).await;
        compare(&recorded(protocol), &theirs, protocol, "redis-server");
        let server = Running::start(plain()).await;
        compare(&theirs, &replies(server.resp[0], protocol).await, protocol, "Esker");
    }
}

/// By Redis' own MIGRATE to this server, and back by DUMP and RESTORE, because this server has no MIGRATE.
#[tokio::test]
async fn keys_move_from_a_redis_server_and_back() {
    let Some(redis) = Redis::start().await else {
        eprintln!("SKIPPED: there is no redis-server 7.0 on this machine");
        return;
    };
    let server = Running::start(plain()).await;
    let mut theirs = BufStream::new(TcpStream::connect(redis.address).await.unwrap());
    let mut ours = BufStream::new(TcpStream::connect(server.resp[0]).await.unwrap());
    let values = ["", "hello", "-32768", "12345678901234567890", "\\x00\\xff\\r\\n", &"ab".repeat(5000)];
    for (number, value) in values.iter().enumerate() {
        exchange(&mut theirs, &format!("SET k{number} \"{value}\"")).await;
    }
    exchange(&mut theirs, "SET gone x PXAT 4102444800123").await;
    exchange(&mut theirs, "RPUSH list a").await;
    let migrate = |keys: &str| format!("MIGRATE 127.0.0.1 {} \"\" 0 10000 {keys}", server.resp[0].port());
    assert_eq!(exchange(&mut theirs, &migrate("KEYS k0 k1 k2 k3 k4 k5 gone none")).await, "+OK\\r\\n");
    assert_eq!(exchange(&mut theirs, "DBSIZE").await, ":1\\r\\n");
    // MIGRATE transfers the remaining time in milliseconds, so the expiry is later by the duration of the transfer.
    let expires = exchange(&mut ours, "PEXPIRETIME gone").await;
    let expires: u64 = expires.trim_start_matches(':').trim_end_matches("\\r\\n").parse().unwrap();
    assert!((4_102_444_800_123..4_102_444_801_123).contains(&expires), "{expires}");
    let refused = exchange(&mut theirs, &migrate("KEYS list")).await;
    assert!(refused.contains("Bad data format: a list, and only strings are kept here"), "{refused}");
    let busy =
        exchange(&mut theirs, "SET k1 other").await + &exchange(&mut theirs, &migrate("KEYS k1")).await;
    assert!(busy.contains("BUSYKEY"), "{busy}");
    for (number, value) in values.iter().enumerate() {
        let found = exchange(&mut ours, &format!("GET k{number}")).await;
        let there = exchange(&mut ours, &format!("DUMP k{number}")).await;
        let payload = there.split_once("\\r\\n").expect("there is one").1.strip_suffix("\\r\\n").unwrap();
        let restored = exchange(&mut theirs, &format!("RESTORE k{number} 0 \"{payload}\" REPLACE")).await;
        assert_eq!(restored, "+OK\\r\\n", "{value}");
        assert_eq!(exchange(&mut theirs, &format!("GET k{number}")).await, found, "{value}");
    }
}

/// Both servers count the same elements, some of them repeatedly, in several keys that are merged from time to time.
#[tokio::test]
async fn hyperloglog_equals_redis_server_byte_for_byte() {
    let Some(redis) = Redis::start().await else {
        eprintln!("SKIPPED: there is no redis-server 7.0 on this machine");
        return;
    };
    let server = Running::start(plain()).await;
    let mut theirs = BufStream::new(TcpStream::connect(redis.address).await.unwrap());
    let mut ours = BufStream::new(TcpStream::connect(server.resp[0]).await.unwrap());
    for round in 0..120_u32 {
        let (key, other) = (format!("hl{}", round % 4), format!("hl{}", (round / 3) % 6));
        let (first, count) = (round * round % 977 * 211, 1 << (round % 11));
        let elements: Vec<_> = (first..first + count).map(|element| format!("element-{element}")).collect();
        let mut commands =
            vec![format!("PFADD {key} {}", elements.join(" ")), format!("PFCOUNT {key} {other}")];
        match round % 5 {
            3 => commands.push(format!("PFMERGE {other} {key} hl3")),
            4 => commands.push(format!("PFCOUNT {other}")),
            _ => {}
        }
        commands.extend([format!("GET {key}"), format!("GET {other}")]);
        for command in commands {
            let expected = exchange(&mut theirs, &command).await;
            assert_eq!(
                exchange(&mut ours, &command).await,
                expected,
                "{round}: {}",
                &command[..20.min(command.len())]
            );
        }
    }
}

/// A redis-server 7.0 on its own port, stopped on drop.
pub(crate) struct Redis {
    process: Child,
    pub(crate) address: SocketAddr,
}

impl Redis {
    pub(crate) async fn start() -> Option<Redis> {
        let version = Command::new("redis-server").arg("--version").output().ok()?;
        if !String::from_utf8_lossy(&version.stdout).contains("v=7.0.") {
            return None;
        }
        for _ in 0..10 {
            let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
            let port = free.port().to_string();
            let process = Command::new("redis-server")
                .args(["--port", &port, "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"])
                .current_dir(std::env::temp_dir())
                .stdout(Stdio::null())
                .spawn()
                .unwrap();
            let redis = Redis { process, address: free };
            for _ in 0..100 {
                if TcpStream::connect(free).await.is_ok() {
                    return Some(redis);
                }
                sleep(Duration::from_millis(50)).await;
            }
        }
        panic!("redis-server does not come up");
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
