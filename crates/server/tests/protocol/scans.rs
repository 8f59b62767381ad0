//! SCAN and KEYS of a database whose keys are on the device, which are read in the order of the log.

use std::collections::BTreeSet;

use esker_engine::{Durability, WriteOptions};

use crate::client::{Client, Running, plain};

/// Bit of cursors in log order.
const LOG_ORDER: u64 = 1 << 48;
const KEYS: usize = 12_000;

async fn filled() -> Running {
    let server = Running::start_with(|options| options.segment_bytes(1 << 20), plain()).await;
    let options = || WriteOptions { durability: Some(Durability::None), ..WriteOptions::default() };
    // Values that do not shrink much if they are compressed.
    let value: Vec<u8> = (0..8000u32).map(|number| (number.wrapping_mul(0x9e37_79b9) >> 21) as u8).collect();
    for number in 0..KEYS {
        server.store.put_with(format!("key {number}"), value.clone(), options()).await.unwrap();
    }
    server.store.flush().await.unwrap();
    assert!(server.store.log_order_pays(), "most of the store is on the device");
    server
}

/// Sends a SCAN. Returns the next cursor and the keys.
async fn scan(client: &mut Client, cursor: u64, arguments: &str) -> (u64, Vec<String>) {
    client.send(format!("SCAN {cursor} {arguments}\r\n")).await;
    assert_eq!(client.line().await, "*2");
    client.skip_line().await;
    let next = client.line().await.parse().unwrap();
    (next, keys(client).await)
}

async fn keys(client: &mut Client) -> Vec<String> {
    let count: usize = client.line().await[1..].parse().unwrap();
    let mut keys = Vec::new();
    for _ in 0..count {
        client.skip_line().await;
        keys.push(client.line().await);
    }
    keys
}

/// Scans to the end. Returns the keys and the number of steps.
async fn scan_all(client: &mut Client, mut cursor: u64, arguments: &str) -> (Vec<String>, usize) {
    let (mut all, mut steps) = (Vec::new(), 0);
    loop {
        let (next, keys) = scan(client, cursor, arguments).await;
        all.extend(keys);
        (cursor, steps) = (next, steps + 1);
        if cursor == 0 {
            return (all, steps);
        }
    }
}

#[tokio::test]
async fn scan_in_log_order_returns_every_key_once() {
    let server = filled().await;
    let mut client = server.client().await;
    let (next, _) = scan(&mut client, 0, "COUNT 10").await;
    assert!(next & LOG_ORDER != 0 && next < 1 << 53, "{next}");
    let (all, _) = scan_all(&mut client, 0, "COUNT 100").await;
    assert_eq!(all.len(), KEYS);
    assert_eq!(all.into_iter().collect::<BTreeSet<_>>().len(), KEYS);
    // Keys that do not match need no step of their own.
    let (some, steps) = scan_all(&mut client, 0, "MATCH *777").await;
    assert_eq!(some.len(), KEYS / 1000);
    assert!(steps <= KEYS / 1000 + 3, "{steps} steps");
    client.send("KEYS *9999\r\n").await;
    assert_eq!(keys(&mut client).await, ["key 9999"]);
}

#[tokio::test]
async fn scan_whose_state_is_gone_still_returns_every_key() {
    let server = filled().await;
    let mut client = server.client().await;
    let (first, mut before) = scan(&mut client, 0, "COUNT 1000").await;
    let (next, keys) = scan(&mut client, first, "COUNT 1000").await;
    before.extend(keys);
    assert!(next & LOG_ORDER != 0 && next != first);
    // A step that was answered already, a cursor of another process, and one of many scans.
    for cursor in [first, LOG_ORDER | 5] {
        let (all, _) = scan_all(&mut client, cursor, "COUNT 1000").await;
        assert_eq!(all.into_iter().collect::<BTreeSet<_>>().len(), KEYS);
    }
    for _ in 0..20 {
        scan(&mut client, 0, "COUNT 1").await;
    }
    let (rest, _) = scan_all(&mut client, next, "COUNT 1000").await;
    assert_eq!(rest.into_iter().chain(before).collect::<BTreeSet<_>>().len(), KEYS);
}
