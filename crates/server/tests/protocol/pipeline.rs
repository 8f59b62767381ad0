//! Large pipelines, single bytes, and clients that do not read.

use std::time::Duration;

use esker_server::Limits;

use crate::client::{Running, command, limited, plain};

/// Pseudo-random choice of commands, the same in every run.
struct Mix(u64);

impl Mix {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }
}

/// Returns commands over few keys, and the replies of a server that runs them one by one.
fn conversation(seed: u64, commands: usize) -> (Vec<Vec<u8>>, Vec<u8>) {
    let mut mix = Mix(seed);
    let mut model = std::collections::BTreeMap::new();
    let (mut sent, mut expected) = (Vec::new(), Vec::new());
    let bulk = |value: Option<&String>| match value {
        Some(value) => format!("${}\r\n{value}\r\n", value.len()),
        None => "$-1\r\n".to_owned(),
    };
    for number in 0..commands {
        let (key, other) = (format!("k{}", mix.below(5)), format!("k{}", mix.below(5)));
        let value = format!("v{number}");
        let (words, reply) = match mix.below(11) {
            0..3 => {
                model.insert(key.clone(), value.clone());
                (vec!["SET".to_owned(), key, value], "+OK\r\n".to_owned())
            }
            3..5 => (vec!["GET".to_owned(), key.clone()], bulk(model.get(&key))),
            5 => {
                model.insert(key.clone(), value.clone());
                model.insert(other.clone(), format!("{value}b"));
                let second = format!("{value}b");
                (vec!["MSET".to_owned(), key, value, other, second], "+OK\r\n".to_owned())
            }
            6 => {
                let reply = format!("*2\r\n{}{}", bulk(model.get(&key)), bulk(model.get(&other)));
                (vec!["MGET".to_owned(), key, other], reply)
            }
            7 => {
                let deleted =
                    usize::from(model.remove(&key).is_some()) + usize::from(model.remove(&other).is_some());
                (vec!["DEL".to_owned(), key, other], format!(":{deleted}\r\n"))
            }
            8 => {
                let found = [&key, &other].into_iter().filter(|key| model.contains_key(*key)).count();
                (vec!["EXISTS".to_owned(), key, other], format!(":{found}\r\n"))
            }
            9 => {
                let absent = !model.contains_key(&key);
                if absent {
                    model.insert(key.clone(), value.clone());
                }
                let reply = if absent { "+OK\r\n" } else { "$-1\r\n" };
                (vec!["SET".to_owned(), key, value, "NX".to_owned()], reply.to_owned())
            }
            _ => match mix.below(3) {
                0 => (vec!["PING".to_owned()], "+PONG\r\n".to_owned()),
                1 => (vec!["DBSIZE".to_owned()], format!(":{}\r\n", model.len())),
                _ => {
                    let old = model.insert(key.clone(), value.clone());
                    (vec!["SET".to_owned(), key, value, "GET".to_owned()], bulk(old.as_ref()))
                }
            },
        };
        sent.push(command(&words));
        expected.extend(reply.into_bytes());
    }
    (sent, expected)
}

#[tokio::test]
async fn a_pipeline_answers_as_if_run_one_by_one() {
    for seed in 0..10 {
        let server = Running::start(plain()).await;
        let mut client = server.client().await;
        let (sent, expected) = conversation(seed, 400);
        println!("replay: conversation({seed}, 400)");
        client.send(sent.concat()).await;
        client.expect(&expected).await;
    }
}

#[tokio::test]
async fn a_byte_at_a_time() {
    let server = Running::start(plain()).await;
    let mut client = server.client().await;
    client.0.set_nodelay(true).unwrap();
    let (sent, expected) = conversation(99, 40);
    for byte in sent.concat() {
        client.send([byte]).await;
        tokio::task::yield_now().await;
    }
    client.expect(&expected).await;
}

#[tokio::test]
async fn pieces_of_every_size() {
    let (sent, expected) = conversation(7, 60);
    let bytes = sent.concat();
    for size in [1, 2, 3, 5, 7, 11, 64, 100, 1000] {
        let server = Running::start(plain()).await;
        let mut client = server.client().await;
        client.0.set_nodelay(true).unwrap();
        for piece in bytes.chunks(size) {
            client.send(piece).await;
        }
        client.expect(&expected).await;
    }
}

#[tokio::test]
async fn arrays_and_inline_commands_mix() {
    let server = Running::start(plain()).await;
    let mut client = server.client().await;
    client
        .send(
            "\r\nPING\n*1\r\n$4\r\nPING\r\n\r\n*0\r\nset 'a b' \"\\x00\"\r\n*2\r\n$3\r\nGET\r\n$3\r\na b\r\n",
        )
        .await;
    client.expect("+PONG\r\n+PONG\r\n+OK\r\n$1\r\n\0\r\n").await;
}

/// A client may send everything before it reads, up to the limit of the backlog; then the server waits for it, and later
/// continues. Other clients are not affected.
#[tokio::test]
async fn a_client_that_does_not_read_is_not_read_from() {
    let server = Running::start(limited(Limits { backlog_bytes_max: 64 << 10, ..Limits::default() })).await;
    let mut slow = server.client().await;
    let value = "x".repeat(100_000);
    slow.send(command(&["SET", "k", &value])).await;
    slow.expect("+OK\r\n").await;
    let gets = 500;
    slow.send(command(&["GET", "k"]).repeat(gets)).await;
    tokio::time::sleep(Duration::from_millis(300)).await;

    let mut other = server.client().await;
    let info = other.text("INFO stats").await;
    let number = |name: &str| -> usize {
        info.lines().find_map(|line| line.strip_prefix(name)).unwrap().parse().unwrap()
    };
    let (sent, read) = (number("total_net_output_bytes:"), number("keyspace_hits:"));
    assert!(sent < gets * value.len() / 2, "{sent} bytes sent to a client that does not read");
    assert!(read < gets / 2, "{read} values in memory for a client that does not read");

    let reply = format!("${}\r\n{value}\r\n", value.len());
    for _ in 0..gets {
        slow.expect(&reply).await;
    }
    slow.ask("PING", "+PONG\r\n").await;
}

/// Declared lengths cost no memory, even if clients declare the maximum.
#[tokio::test]
async fn promises_cost_nothing() {
    let server = Running::start(plain()).await;
    let mut observer = server.client().await;
    let resident = |info: String| -> u64 {
        info.lines().find_map(|line| line.strip_prefix("used_memory_rss:")).unwrap().parse().unwrap()
    };
    // Other tests in this process may take memory at the same time, but hardly in every attempt. All clients stay connected, so
    // that memory of one attempt is not reused by the next.
    let (mut clients, mut grown) = (Vec::new(), Vec::new());
    while grown.len() < 4 && grown.last().is_none_or(|bytes| *bytes >= 64 << 20) {
        let before = resident(observer.text("INFO memory").await);
        for _ in 0..100 {
            let mut client = server.client().await;
            client.send("*1048576\r\n$3\r\nSET\r\n$16777216\r\nabc").await;
            clients.push(client);
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
        grown.push(resident(observer.text("INFO memory").await).saturating_sub(before));
    }
    assert!(
        grown.last() < Some(&(64 << 20)),
        "{grown:?} bytes for 100 promises of 16 MiB and more, each time"
    );
    observer.ask("PING", "+PONG\r\n").await;
}
