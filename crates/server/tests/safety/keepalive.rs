//! Dead peers: TCP keepalive.

use std::net::SocketAddr;
use std::time::Duration;

use esker_server::{Config, Limits};
use tokio::net::TcpStream;

use crate::client::{Client, Running, here};

/// Returns the timer of the server's end of a connection: its kind, and the remaining time in hundredths of a second. See
/// `proc_net_tcp.txt` of the kernel's documentation; kind 2 is keepalive.
fn timer(server: SocketAddr, client: SocketAddr) -> (u8, u64) {
    let hex = |address: SocketAddr| {
        let SocketAddr::V4(address) = address else { panic!("{address} is not of IPv4") };
        format!("{:08X}:{:04X}", u32::from_ne_bytes(address.ip().octets()), address.port())
    };
    let table = std::fs::read_to_string("/proc/net/tcp").unwrap();
    let ends = [hex(server), hex(client)];
    let mut rows = table.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let row = rows.find(|row| row[1] == ends[0] && row[2] == ends[1]).expect("the connection is there");
    let (kind, left) = row[5].split_once(':').unwrap();
    (kind.parse().unwrap(), u64::from_str_radix(left, 16).unwrap())
}

async fn timer_of(config: Config) -> (u8, u64) {
    let server = Running::start(config).await;
    let mut client = Client(TcpStream::connect(server.resp[0]).await.unwrap());
    client.ask("PING", "+PONG\r\n").await;
    // The reply has its own timer until it is acknowledged.
    let (mut found, ends) = ((1, 0), (server.resp[0], client.0.local_addr().unwrap()));
    for _ in 0..1000 {
        found = timer(ends.0, ends.1);
        if found.0 != 1 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    found
}

#[tokio::test]
async fn config_tells_it_as_redis_does() {
    for (keepalive, told) in [(Some(Duration::from_secs(60)), "60"), (None, "0")] {
        let limits = Limits { keepalive, ..Limits::default() };
        let server = Running::start(Config { limits, ..Config::resp(here()) }).await;
        let expected = format!("*2\r\n$13\r\ntcp-keepalive\r\n${}\r\n{told}\r\n", told.len());
        server.client().await.ask("CONFIG GET tcp-keepalive", &expected).await;
    }
}

#[tokio::test]
async fn a_silent_connection_is_asked_whether_it_is_there() {
    let (kind, left) = timer_of(Config::resp(here())).await;
    assert!(kind == 2 && (20_000..=30_000).contains(&left), "{kind} {left}");
    let with =
        |keepalive| Config { limits: Limits { keepalive, ..Limits::default() }, ..Config::resp(here()) };
    let (kind, left) = timer_of(with(Some(Duration::from_secs(100)))).await;
    assert!(kind == 2 && left <= 10_000, "{kind} {left}");
    // Longer than the maximum of the kernel.
    let (kind, left) = timer_of(with(Some(Duration::from_secs(1 << 20)))).await;
    assert!(kind == 2 && left > 3_000_000, "{kind} {left}");
    let (kind, _) = timer_of(with(None)).await;
    assert_eq!(kind, 0, "it was not asked for");
}
