//! `/metrics`, `/status.json` and its page, `/healthz`, `/readyz`.

use std::collections::BTreeSet;
use std::time::Duration;

use esker_engine::Options;
use esker_server::status::{FORMAT, KINDS, State, Status};
use esker_server::{Access, Config, Password};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

use crate::client::{Client, PATIENCE, Running, get_over, here};

fn config() -> Config {
    Config { http: vec![here()], ..Config::resp(here()) }
}

#[tokio::test]
async fn metrics_are_well_formed_and_count() {
    let server = Running::start(config()).await;
    let mut client = server.client().await;
    client.ask("SET a 1", "+OK\r\n").await;
    client.ask("GET a", "$1\r\n1\r\n").await;
    let (status, text) = server.get("/metrics", "").await;
    assert_eq!(status, 200);
    for line in [
        "esker_ready 1",
        "esker_commands_total 2",
        "esker_connections 1",
        "esker_key_hits_total 1",
        "esker_store_keys 1",
        "esker_store_puts_total 1",
        "esker_batch_seconds_count 2",
        "# TYPE esker_batch_seconds histogram",
        "esker_operation_seconds_count{operation=\"put\"} 1",
        "# TYPE esker_store_stall_seconds_total counter",
    ] {
        assert!(text.lines().any(|found| found == line), "{line} in {text}");
    }
    // Every sample follows the head of its metric, and every head has samples.
    let mut family = "";
    let mut samples = 1;
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            assert!(samples > 0, "{family} has no samples");
            (family, samples) = (rest.split(' ').next().unwrap(), 0);
        } else if let Some(rest) = line.strip_prefix("# TYPE ") {
            assert_eq!(rest.split(' ').next(), Some(family));
        } else {
            let (name, value) = line.rsplit_once(' ').unwrap();
            assert!(name.starts_with(family) && value.parse::<f64>().is_ok(), "{line}");
            samples += 1;
        }
    }
}

/// Metrics of features beside keys, and of each database.
#[tokio::test]
async fn metrics_tell_databases_channels_tracking_and_scripts() {
    let server = Running::start(config()).await;
    let mut client = server.client().await;
    client.ask("SET a 1", "+OK\r\n").await;
    client.ask("SELECT 3", "+OK\r\n").await;
    client.ask("MSET b 1 c 1", "+OK\r\n").await;
    client.ask("EXPIRE b 1000", ":1\r\n").await;
    client.ask("EVAL return(1) 0", ":1\r\n").await;
    client.ask("CLIENT TRACKING ON", "+OK\r\n").await;
    client.ask("MGET b d", "*2\r\n$1\r\n1\r\n$-1\r\n").await;
    let mut other = server.client().await;
    other.ask("CLIENT TRACKING ON BCAST PREFIX p", "+OK\r\n").await;
    other.ask("SSUBSCRIBE s", "*3\r\n$10\r\nssubscribe\r\n$1\r\ns\r\n:1\r\n").await;
    other.ask("PSUBSCRIBE x*", "*3\r\n$10\r\npsubscribe\r\n$2\r\nx*\r\n:1\r\n").await;
    let (_, text) = server.get("/metrics", "").await;
    for line in [
        "esker_database_keys{database=\"0\"} 1",
        "esker_database_keys{database=\"1\"} 0",
        "esker_database_keys{database=\"3\"} 2",
        "esker_database_keys_expiring{database=\"0\"} 0",
        "esker_database_keys_expiring{database=\"3\"} 1",
        "esker_database_hits_total{database=\"3\"} 1",
        "esker_database_misses_total{database=\"3\"} 1",
        "esker_database_hits_total{database=\"0\"} 0",
        "esker_key_misses_total 1",
        "esker_subscribed_names{kind=\"channel\"} 0",
        "esker_subscribed_names{kind=\"pattern\"} 1",
        "esker_subscribed_names{kind=\"shard\"} 1",
        "esker_tracking_clients 2",
        "esker_tracking_keys 2",
        "esker_tracking_items 2",
        "esker_tracking_prefixes 1",
        "esker_scripts 1",
    ] {
        assert!(text.lines().any(|found| found == line), "{line} in {text}");
    }
}

/// The manual's table has exactly the metrics that exist; a pattern may stand for several.
#[tokio::test]
async fn the_manual_has_every_metric() {
    let server = Running::start(config()).await;
    let (_, text) = server.get("/metrics", "").await;
    let there = text.lines().filter_map(|line| line.strip_prefix("# HELP ")?.split(' ').next());
    let manual = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/operations.md");
    let manual = std::fs::read_to_string(manual).unwrap();
    let is_told = |name: &str| {
        manual.contains(&format!("`{name}`"))
            || manual.contains(&format!("`{name}{{"))
            || name.starts_with("esker_store_") && name.ends_with("_total")
            || name.starts_with("esker_tier_device_")
    };
    let untold: Vec<_> = there.filter(|name| !is_told(name)).collect();
    assert!(untold.is_empty(), "{untold:?}");
}

/// Alert rules and dashboards fail silently if they name metrics that do not exist. Those of clusters are compared with
/// real nodes in the tests of `esker-cli`.
#[tokio::test]
async fn packaging_names_only_existing_metrics() {
    let directory = tempfile::tempdir().unwrap();
    let config = Config { backup_dir: Some(directory.path().to_owned()), ..config() };
    // Two devices of a tier, for their metrics.
    let devices = tempfile::tempdir().unwrap();
    let [one, other] = ["one", "other"].map(|name| devices.path().join(name));
    let options = |_| {
        Options::capacity_only(one).add_capacity(other).capacity_limit_bytes(1 << 30).memory_bytes(128 << 20)
    };
    let server = Running::start_with(options, config).await;
    server.client().await.ask("BGSAVE", "+Background saving started\r\n").await;
    let text = loop {
        let (_, text) = server.get("/metrics", "").await;
        if text.contains("esker_backup_running 0\n") {
            break text;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    };
    let samples = text.lines().filter(|line| !line.starts_with('#'));
    let there: BTreeSet<&str> = samples.filter_map(|line| line.split(['{', ' ']).next()).collect();
    let packaging = concat!(env!("CARGO_MANIFEST_DIR"), "/../../packaging/");
    for file in ["alerts.yml", "grafana.json"] {
        let text = std::fs::read_to_string(format!("{packaging}{file}")).unwrap();
        let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        let named: BTreeSet<&str> = words.filter(|word| word.starts_with("esker_")).collect();
        let missing = named.difference(&there).filter(|name| !name.starts_with("esker_cluster_"));
        let missing: Vec<_> = missing.collect();
        assert!(named.len() > 10 && missing.is_empty(), "{file}: {missing:?}");
    }
}

#[tokio::test]
async fn ready_until_the_stop_and_healthy_all_the_time() {
    let mut config = config();
    config.limits.drain_delay = Duration::from_secs(1);
    let mut server = Running::start(config).await;
    assert_eq!(server.get("/healthz", "").await, (200, "ok\n".to_owned()));
    assert_eq!(server.get("/readyz", "").await, (200, "ready\n".to_owned()));
    server.ask_to_stop();
    let mut answer = (200, String::new());
    for _ in 0..50 {
        answer = server.get("/readyz", "").await;
        if answer.0 != 200 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(answer, (503, "not ready: the server is stopping\n".to_owned()));
    assert_eq!(server.get("/healthz", "").await.0, 200);
    // Clients are still served during the delay.
    server.client().await.ask("PING", "+PONG\r\n").await;
    server.stopped().await;
}

#[tokio::test]
async fn a_store_that_takes_no_writes_is_not_ready() {
    let server = Running::start(config()).await;
    server.store.close().await.unwrap();
    let (status, text) = server.get("/readyz", "").await;
    assert!(status == 503 && text.contains("closed"), "{status} {text}");
    assert_eq!(server.get("/healthz", "").await.0, 200);
}

#[tokio::test]
async fn metrics_need_a_login_where_resp_does() {
    let access = Access { password: Some(Password::new("open sesame")), ..Access::default() };
    let server = Running::start(Config { access, ..config() }).await;
    assert_eq!(server.get("/healthz", "").await.0, 200);
    assert_eq!(server.get("/readyz", "").await.0, 200);
    for path in ["/metrics", "/status.json", "/"] {
        assert_eq!(server.get(path, "").await.0, 401, "{path}");
    }
    // The credentials are `default:wrong` and `default:open sesame`.
    assert_eq!(server.get("/metrics", "Authorization: Basic ZGVmYXVsdDp3cm9uZw==\r\n").await.0, 401);
    assert_eq!(server.get("/metrics", "Authorization: Basic !!!\r\n").await.0, 401);
    let (status, text) =
        server.get("/metrics", "Authorization: Basic ZGVmYXVsdDpvcGVuIHNlc2FtZQ==\r\n").await;
    assert_eq!(status, 200);
    assert!(!text.contains("sesame"));
}

#[tokio::test]
async fn the_status_tells_what_is_going_on_over_http_and_over_resp() {
    let server = Running::start(config()).await;
    let mut client = server.client().await;
    let patience = std::time::Instant::now() + PATIENCE;
    let status = loop {
        client.ask("SET a 1", "+OK\r\n").await;
        client.ask("GET a", "$1\r\n1\r\n").await;
        let (code, text) = server.get("/status.json", "").await;
        assert_eq!(code, 200);
        let status: Status = serde_json::from_str(&text).unwrap();
        if status.rates.puts > 0.0 && status.rates.gets > 0.0 {
            break status;
        }
        assert!(std::time::Instant::now() < patience, "nothing happens: {status:?}");
    };
    assert_eq!((status.format, status.state, status.keys), (FORMAT, State::Serving, 1));
    assert!(status.window_ms > 0 && status.rates.commands >= status.rates.puts, "{status:?}");
    assert_eq!((status.hit_rate, status.key_hit_rate), (Some(1.0), Some(1.0)));
    let put = status.latencies.iter().find(|latency| latency.name == "put").unwrap();
    assert!(put.per_s > 0.0 && put.p50_us > 0.0 && put.max_us >= put.p99_us, "{put:?}");
    assert!(status.memory.resident_bytes > 0 && status.clients.connected >= 1, "{status:?}");
    let [tier] = &status.tiers[..] else { panic!("{status:?}") };
    assert!(
        tier.written.iter().any(|written| written.cause == "user_bytes" && written.bytes > 0),
        "{tier:?}"
    );
    assert!(tier.disk_bytes > 0 && status.space.disk_bytes == tier.disk_bytes, "{tier:?}");
    let open = KINDS.iter().position(|&kind| kind == "open").unwrap() as u8;
    assert!(tier.map.decoded().iter().any(|cell| cell.kind == open && cell.live > 0), "{:?}", tier.map);

    // One line, and only if requested explicitly.
    client.send("INFO status\r\nINFO everything\r\nQUIT\r\n").await;
    let said = client.rest().await;
    let lines: Vec<_> = said.lines().filter_map(|line| line.strip_prefix("status:")).collect();
    let [line] = lines[..] else { panic!("{said}") };
    let told: Status = serde_json::from_str(line).unwrap();
    assert_eq!((told.run_id, told.keys), (status.run_id, 1));
    assert!(said.contains("\ndisk_bytes:") && said.contains("\nputs_per_s:"), "{said}");
}

#[tokio::test]
async fn the_page_runs_nothing_but_itself() {
    let server = Running::start(config()).await;
    let nonce = async || {
        let mut client = Client(TcpStream::connect(server.http[0]).await.unwrap());
        client.send("GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").await;
        let answer = client.rest().await;
        let (head, page) = answer.split_once("\r\n\r\n").unwrap();
        assert!(head.contains("content-type: text/html; charset=utf-8"), "{head}");
        let policy = head.lines().find_map(|line| line.strip_prefix("content-security-policy: ")).unwrap();
        assert!(policy.starts_with("default-src 'none'; ") && !policy.contains("unsafe"), "{policy}");
        let nonce =
            policy.split("script-src 'nonce-").nth(1).and_then(|rest| rest.split('\'').next()).unwrap();
        assert_eq!(page.matches(&format!("nonce=\"{nonce}\"")).count(), 2, "style and script");
        for outside in ["http:", "https:", "src=", "{{", "innerHTML", " style=", "onclick="] {
            assert!(!page.contains(outside), "{outside}");
        }
        nonce.to_owned()
    };
    assert_ne!(nonce().await, nonce().await);
}

/// A page of another site, whose domain resolves to this machine, sends its own domain.
#[tokio::test]
async fn other_hosts_read_nothing_without_a_password() {
    let ask = async |server: &Running, path: &str, host: &str, headers: &str| {
        let mut client = Client(TcpStream::connect(server.http[0]).await.unwrap());
        let host = if host.is_empty() { String::new() } else { format!("Host: {host}\r\n") };
        client.send(format!("GET {path} HTTP/1.1\r\n{host}Connection: close\r\n{headers}\r\n")).await;
        client.rest().await
    };
    let config = Config { http_hosts: vec!["esker.example".to_owned()], ..config() };
    let server = Running::start(config.clone()).await;
    let port = server.http[0].port();
    for path in ["/", "/status.json", "/metrics"] {
        for host in
            ["evil.example".to_owned(), format!("evil.example:{port}"), "127.0.0.1.evil.example".to_owned()]
        {
            let answer = ask(&server, path, &host, "").await;
            assert!(
                answer.starts_with("HTTP/1.1 421 ") && answer.contains("http-hosts"),
                "{path} {host}: {answer}"
            );
            assert!(!answer.contains("esker_"), "{answer}");
        }
        for host in [format!("127.0.0.1:{port}"), "[::1]".to_owned(), "esker.example".to_owned()] {
            let answer = ask(&server, path, &host, "").await;
            assert!(answer.starts_with("HTTP/1.1 200 "), "{path} {host}: {answer}");
        }
    }
    for path in ["/healthz", "/readyz", "/readyz/write"] {
        assert!(
            ask(&server, path, "evil.example", "").await.starts_with("HTTP/1.1 200 "),
            "{path} says nothing"
        );
    }
    // If a password is required, a page of another site does not have it.
    let access = Access { password: Some(Password::new("secret")), ..Access::default() };
    let server = Running::start(Config { access, ..config }).await;
    let basic = "Authorization: Basic ZGVmYXVsdDpzZWNyZXQ=\r\n";
    assert!(ask(&server, "/metrics", "any.example", basic).await.starts_with("HTTP/1.1 200 "));
    assert!(ask(&server, "/metrics", "any.example", "").await.starts_with("HTTP/1.1 401 "));
}

#[tokio::test]
async fn http_request_that_is_invalid_is_refused() {
    let server = Running::start(config()).await;
    assert_eq!(server.get("/nothing", "").await.0, 404);
    assert_eq!(server.get("/healthz", &format!("X: {}\r\n", "x".repeat(20 << 10))).await.0, 431);
    let mut client = Client(TcpStream::connect(server.http[0]).await.unwrap());
    client.send("POST /healthz HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\nConnection: close\r\n\r\n").await;
    assert!(client.rest().await.starts_with("HTTP/1.1 405 "));
    let mut garbage = TcpStream::connect(server.http[0]).await.unwrap();
    garbage.write_all(&[0xff; 100]).await.unwrap();
    assert!(Client(garbage).rest().await.starts_with("HTTP/1.1 400 "));
    assert_eq!(server.get("/healthz", "").await.0, 200);
}

/// Connects from another address of this machine.
async fn connect_from(address: [u8; 4], to: std::net::SocketAddr) -> TcpStream {
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.bind((address, 0).into()).unwrap();
    socket.connect(to).await.unwrap()
}

#[tokio::test]
async fn a_probe_gets_through_whatever_connections_others_hold() {
    let server = Running::start(config()).await;
    // A client that sends requests from time to time on one connection, like Prometheus.
    let mut scraper = Client(connect_from([127, 0, 0, 2], server.http[0]).await);
    let request = "HEAD /healthz HTTP/1.1\r\nHost: x\r\n\r\n";
    let begin = "HTTP/1.1 200 OK\r\ncontent-type: text/plain; charset=utf-8\r\ncache-control: no-store\r\ncontent-length: 3\r\n";
    scraper.send(request).await;
    scraper.expect("the first", begin).await;
    let mut silent = Vec::new();
    for _ in 0..200 {
        silent.push(TcpStream::connect(server.http[0]).await.unwrap());
    }
    // Well before the silent connections time out.
    let started = std::time::Instant::now();
    assert_eq!(server.get("/healthz", "").await.0, 200);
    assert_eq!(server.get("/readyz", "").await.0, 200);
    let mut other = connect_from([127, 0, 0, 3], server.http[0]).await;
    assert_eq!(get_over(&mut other, "/healthz", "").await.0, 200);
    assert!(started.elapsed() < Duration::from_secs(8), "{:?}", started.elapsed());
    scraper.send(request).await;
    let mut second = [0; 256];
    let read = tokio::time::timeout(PATIENCE, tokio::io::AsyncReadExt::read(&mut scraper.0, &mut second));
    assert!(read.await.unwrap().unwrap() > 0, "a connection of another address was ended");
}

/// A connection lasts up to a minute, and the rights may change meanwhile.
#[tokio::test]
async fn each_request_is_of_who_may_ask_now() {
    let server = Running::start(config()).await;
    let (mut admin, mut scraper) =
        (server.client().await, Client(TcpStream::connect(server.http[0]).await.unwrap()));
    let request = "HEAD / HTTP/1.1\r\nHost: localhost\r\n\r\n";
    let until_end = async |scraper: &mut Client<TcpStream>| {
        scraper.send(request).await;
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(tokio::io::AsyncReadExt::read_u8(&mut scraper.0).await.unwrap());
        }
        String::from_utf8(head).unwrap()
    };
    assert!(until_end(&mut scraper).await.starts_with("HTTP/1.1 200 "));
    admin.ask("ACL SETUSER default -keys", "+OK\r\n").await;
    assert!(until_end(&mut scraper).await.starts_with("HTTP/1.1 200 "));
    admin.ask("ACL SETUSER default >secret", "+OK\r\n").await;
    assert!(until_end(&mut scraper).await.starts_with("HTTP/1.1 401 "));
    admin.ask("ACL SETUSER default nopass", "+OK\r\n").await;
    assert!(until_end(&mut scraper).await.starts_with("HTTP/1.1 200 "));
    admin.ask("ACL SETUSER default off", "+OK\r\n").await;
    assert!(until_end(&mut scraper).await.starts_with("HTTP/1.1 401 "));
}

/// Time, duration and success of backups, including those before the start.
#[tokio::test]
async fn metrics_tell_of_backups() {
    let directory = tempfile::tempdir().unwrap();
    let config = |to: &std::path::Path| Config { backup_dir: Some(to.to_owned()), ..config() };
    let value = |metrics: &str, name: &str| {
        let line = metrics.lines().find_map(|line| line.strip_prefix(&format!("esker_{name} ")));
        line.map(|value| value.parse::<u64>().unwrap())
    };
    let server = Running::start(config(directory.path())).await;
    server.store.put("a", "x").await.unwrap();
    let (_, before) = server.get("/metrics", "").await;
    assert_eq!(value(&before, "last_backup_timestamp_seconds"), None, "{before}");
    assert_eq!(value(&before, "last_backup_successful"), Some(1));
    assert_eq!(value(&before, "store_index_limit_bytes").map(|bytes| bytes > 1 << 20), Some(true));
    let mut client = server.client().await;
    let started = std::time::UNIX_EPOCH.elapsed().unwrap().as_secs();
    client.ask("BGSAVE", "+Background saving started\r\n").await;
    let done = async || loop {
        let (_, metrics) = server.get("/metrics", "").await;
        if value(&metrics, "backup_running") == Some(0) {
            return metrics;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    };
    let metrics = done().await;
    let saved = value(&metrics, "last_backup_timestamp_seconds").expect("it succeeded");
    assert!(saved >= started && saved <= started + 600, "{saved}");
    assert!(value(&metrics, "last_backup_duration_seconds").is_some());
    assert_eq!(value(&metrics, "last_backup_successful"), Some(1));
    assert_eq!(value(&metrics, "backup_failures_total"), Some(0));
    // A failed backup is reported, and the time of the last successful one stays.
    let moved = directory.path().with_extension("moved");
    std::fs::rename(directory.path(), &moved).unwrap();
    std::fs::write(directory.path(), "no directory").unwrap();
    client.ask("BGSAVE", "+Background saving started\r\n").await;
    let metrics = done().await;
    assert_eq!(value(&metrics, "last_backup_successful"), Some(0));
    assert_eq!(value(&metrics, "backup_failures_total"), Some(1));
    assert_eq!(value(&metrics, "last_backup_timestamp_seconds"), Some(saved));
    std::fs::remove_file(directory.path()).unwrap();
    std::fs::rename(&moved, directory.path()).unwrap();
    // After another start, the directory is read.
    let again = Running::start(config(directory.path())).await;
    let found = async {
        loop {
            let (_, metrics) = again.get("/metrics", "").await;
            if let Some(at) = value(&metrics, "last_backup_timestamp_seconds") {
                return at;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let found = tokio::time::timeout(PATIENCE, found).await.expect("the newest is found");
    assert!(found <= saved && found + 600 >= saved, "{found} {saved}");
    let without = Running::start(self::config()).await;
    let metrics = without.get("/metrics", "").await.1;
    assert!(!metrics.contains("esker_last_backup") && !metrics.contains("esker_backup"), "{metrics}");
}

#[tokio::test]
async fn a_full_store_is_ready_for_reads() {
    let small =
        |options: esker_engine::Options| options.segment_bytes(64 << 10).capacity_limit_bytes(2 << 20);
    let server = Running::start_with(small, config()).await;
    server.store.set_compression(esker_engine::Compression::Off).expect("it needs no feature");
    // Until not even the shortest value fits.
    for bytes in [10_000, 3000, 1000, 300, 100, 30, 0] {
        for key in 0_u32.. {
            match server.store.put(format!("{bytes}:{key}"), vec![0_u8; bytes]).await {
                Ok(_) => assert!(key < 1000, "it is never full"),
                Err(error) => {
                    assert_eq!(error.kind(), esker_engine::ErrorKind::Full, "{error}");
                    break;
                }
            }
        }
    }
    let (status, text) = server.get("/readyz", "").await;
    assert!(status == 200 && text.starts_with("ready for reads, not for writes: "), "{status} {text}");
    let (status, text) = server.get("/readyz/write", "").await;
    assert!(status == 503 && text.starts_with("not ready: "), "{status} {text}");
    let (_, metrics) = server.get("/metrics", "").await;
    for line in ["esker_ready 1\n", "esker_ready_writes 0\n"] {
        assert!(metrics.contains(line), "{line} in {metrics}");
    }
    let refused = metrics.lines().find_map(|line| line.strip_prefix("esker_store_refused_writes_total "));
    assert!(refused.expect("it is counted").parse::<u64>().unwrap() >= 7, "each length was refused once");
    // The message names the setting instead of the library's option, and the bytes compared with the limit.
    let (_, text) = server.get("/readyz/write", "").await;
    assert!(text.contains("raise capacity-limit") && !text.contains("capacity_limit"), "{text}");
    let numbers: Vec<u64> =
        text.split(' ').filter_map(|word| word.trim_end_matches(';').parse().ok()).collect();
    let [used, limit] = numbers[..] else { panic!("{text}") };
    assert!(used + 600 > limit && used < limit + 600, "not even the shortest record fits: {text}");
    let refused = server.store.refused_write().expect("some were refused");
    assert_eq!(refused.error.kind(), esker_engine::ErrorKind::Full);
    assert!(server.store.check_writable_for(refused.bytes).is_err());
    server.client().await.ask("EXISTS 10000:1", ":1\r\n").await;
    server.store.delete("10000:1").await.unwrap();
    server.store.check_writable_for(refused.bytes).unwrap();
}
