//! Replies while the store is opened, and the connections after that.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use esker_engine::{Options, Store};
use esker_server::status::{State, Status};
use esker_server::{Access, Addresses, Config, Password, Right, Server, Sockets, UserEntry, UserFile};
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tonic::Code;
use tonic::transport::{Channel, Endpoint};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;

use crate::certificates::Authority;
use crate::client::{Client, PATIENCE, get_over, here};

const LOADING: &str = "-LOADING Esker is loading the dataset in memory\r\n";

/// A server whose store opens at the command of the test.
struct Starting {
    resp: Vec<SocketAddr>,
    http: Vec<SocketAddr>,
    grpc: Vec<SocketAddr>,
    percent: Arc<AtomicU32>,
    open: oneshot::Sender<()>,
    serving: JoinHandle<()>,
    _directory: tempfile::TempDir,
}

fn start(config: Config) -> Starting {
    let directory = tempfile::tempdir().unwrap();
    let mut sockets = Sockets::bind(&config).unwrap();
    let Addresses { resp, http, grpc, .. } = sockets.addresses();
    let percent = Arc::new(AtomicU32::new(0));
    let (open, opened) = oneshot::channel();
    let options = Options::directory(directory.path().join("store")).memory_bytes(128 << 20);
    let told = percent.clone();
    let serving = tokio::spawn(async move {
        let opening = async {
            opened.await.unwrap();
            Store::open(options).await.unwrap()
        };
        let progress = move || format!("{} % is read", told.load(Ordering::Relaxed));
        let store = sockets.answer_while(&config, progress, opening).await;
        Server::on(sockets, config, store).run(std::future::pending()).await;
    });
    Starting { resp, http, grpc, percent, open, serving, _directory: directory }
}

async fn get(address: SocketAddr, path: &str) -> (u16, String) {
    get_over(&mut TcpStream::connect(address).await.unwrap(), path, "").await
}

async fn health(channel: &Channel) -> ServingStatus {
    let of = HealthCheckRequest { service: "esker.v1.Esker".to_owned() };
    HealthClient::new(channel.clone()).check(of).await.unwrap().into_inner().status()
}

async fn channel(address: SocketAddr) -> Channel {
    Endpoint::from_shared(format!("http://{address}")).unwrap().connect().await.unwrap()
}

#[tokio::test]
async fn everybody_is_told_that_the_store_is_being_opened() {
    let config = Config { http: vec![here()], grpc: vec![here()], ..Config::resp(here()) };
    let server = start(config);
    let mut client = Client(TcpStream::connect(server.resp[0]).await.unwrap());
    for line in ["PING", "GET a", "SET a 1", "CONFIG GET x", "DBSIZE"] {
        client.ask(line, LOADING).await;
    }
    // First commands of clients are accepted.
    client.ask("CLIENT SETNAME me", "+OK\r\n").await;
    client.ask("SELECT 15", "+OK\r\n").await;
    client.ask("SELECT 16", "-ERR DB index is out of range\r\n").await;
    let mut greeted = Client(TcpStream::connect(server.resp[0]).await.unwrap());
    greeted.ask("HELLO 3", "%7\r\n$6\r\nserver\r\n$5\r\nredis\r\n").await;
    let mut curious = Client(TcpStream::connect(server.resp[0]).await.unwrap());
    curious.send("INFO esker\r\nQUIT\r\n").await;
    assert_eq!(curious.rest().await, "$30\r\n# Esker\r\nopening:0 % is read\r\n\r\n+OK\r\n");
    let mut leaving = Client(TcpStream::connect(server.resp[0]).await.unwrap());
    leaving.send("SET a 1\r\nQUIT\r\nPING\r\n").await;
    assert_eq!(leaving.rest().await, format!("{LOADING}+OK\r\n"));

    server.percent.store(42, Ordering::Relaxed);
    for path in ["/readyz", "/readyz/write", "/metrics"] {
        assert_eq!(get(server.http[0], path).await, (503, "not ready: 42 % is read\n".to_owned()), "{path}");
    }
    assert_eq!(get(server.http[0], "/healthz").await, (200, "ok: 42 % is read\n".to_owned()));
    let (code, page) = get(server.http[0], "/").await;
    assert!(code == 200 && page.contains("status.json"), "{code} {page}");
    let (code, status) = get(server.http[0], "/status.json").await;
    let status: Status = serde_json::from_str(&status).unwrap();
    let recovering = status.recovering.map(|recovering| recovering.progress);
    assert_eq!((code, status.state, recovering.as_deref()), (200, State::Recovering, Some("42 % is read")));

    let early = channel(server.grpc[0]).await;
    // However often health is checked.
    for _ in 0..700 {
        assert_eq!(health(&early).await, ServingStatus::NotServing);
    }
    let mut watch = HealthClient::new(early.clone());
    let mut watch = watch.watch(HealthCheckRequest::default()).await.unwrap().into_inner();
    assert_eq!(watch.message().await.unwrap().unwrap().status(), ServingStatus::NotServing);
    let mut calls = tonic::client::Grpc::new(early.clone());
    calls.ready().await.unwrap();
    let path = "/esker.v1.Esker/Get".parse().unwrap();
    let codec = tonic_prost::ProstCodec::<HealthCheckRequest, HealthCheckRequest>::default();
    let refused = calls.unary(tonic::Request::new(HealthCheckRequest::default()), path, codec).await;
    let refused = refused.unwrap_err();
    assert_eq!((refused.code(), refused.message()), (Code::Unavailable, "42 % is read"));

    // A silent connection does not delay the server.
    let _silent = TcpStream::connect(server.http[0]).await.unwrap();
    server.open.send(()).unwrap();
    let ended = timeout(PATIENCE, watch.message()).await.expect("the watch ends");
    assert_eq!(ended.unwrap_err().code(), Code::Unavailable);
    let mut client = Client(TcpStream::connect(server.resp[0]).await.unwrap());
    client.ask_until("PING", LOADING, "+PONG\r\n").await;
    client.ask("SET a 1", "+OK\r\n").await;
    assert_eq!(get(server.http[0], "/readyz").await, (200, "ready\n".to_owned()));
    assert_eq!(health(&channel(server.grpc[0]).await).await, ServingStatus::Serving);
    server.serving.abort();
}

#[tokio::test]
async fn client_connected_while_loading_continues_after_opening() {
    let authority = Authority::new();
    let access = Access { password: Some(Password::new("right")), ..Access::default() };
    let tls = Some(authority.files(None));
    let config = Config { resp_tls: vec![here()], tls, access, ..Config::resp(here()) };
    let server = start(config);
    let connect = async || Client(TcpStream::connect(server.resp[0]).await.unwrap());
    let [mut named, mut stranger, mut cut, mut long] =
        [connect().await, connect().await, connect().await, connect().await];
    let mut hidden = Client(authority.connect(server.resp[1], None).await.unwrap());
    named.send("HELLO 3 AUTH default right SETNAME me\r\nSELECT 3\r\nCLIENT ID\r\n").await;
    let hello = named.until("+OK\r\n:").await;
    assert!(hello.contains("$2\r\nid\r\n:1\r\n"), "{hello}");
    named.expect("CLIENT ID", "1\r\n").await;
    stranger.ask("GET a", "-NOAUTH Authentication required.\r\n").await;
    for client in [&mut cut, &mut long] {
        client.ask("AUTH right", "+OK\r\n").await;
        client.ask("GET a", LOADING).await;
    }
    hidden.ask("AUTH right", "+OK\r\n").await;
    hidden.ask("GET a", LOADING).await;
    // Each is in the middle of a command: one to be run, and one that was refused.
    cut.send("*3\r\n$3\r\nSET\r\n$1\r\na\r\n$5\r\nhe").await;
    long.send(&format!("*3\r\n$3\r\nSET\r\n$1\r\nb\r\n$100000\r\n{}", "x".repeat(50_000))).await;
    long.expect("SET b", LOADING).await;
    server.open.send(()).unwrap();

    named.ask_until("GET a", LOADING, "_\r\n").await;
    named.ask("CLIENT GETNAME", "$2\r\nme\r\n").await;
    named.ask("CLIENT ID", ":1\r\n").await;
    named.ask("SET a of-3", "+OK\r\n").await;
    stranger.ask("GET a", "-NOAUTH Authentication required.\r\n").await;
    stranger.ask("AUTH right", "+OK\r\n").await;
    stranger.ask("GET a", "$-1\r\n").await;
    cut.send("llo\r\n").await;
    cut.expect("SET a", "+OK\r\n").await;
    long.send(&format!("{}\r\nGET a\r\n", "x".repeat(50_000))).await;
    long.expect("GET a", "$5\r\nhello\r\n").await;
    hidden.ask("GET a", "$5\r\nhello\r\n").await;
    hidden.ask("SELECT 3", "+OK\r\n").await;
    hidden.ask("GET a", "$4\r\nof-3\r\n").await;
    // A later connection has a new id, and sees the others.
    let mut late = connect().await;
    late.ask("AUTH right", "+OK\r\n").await;
    late.ask("CLIENT ID", ":6\r\n").await;
    late.ask("CLIENT KILL ID 1", ":1\r\n").await;
    assert_eq!(named.rest().await, "");
    server.serving.abort();
}

#[tokio::test]
async fn the_same_over_tls() {
    let authority = Authority::new();
    let config = Config {
        resp_tls: vec![here()],
        http_tls: vec![here()],
        tls: Some(authority.files(None)),
        ..Config::resp(here())
    };
    let server = start(config);
    let mut client = Client(authority.connect(server.resp[1], None).await.unwrap());
    client.ask("PING", LOADING).await;
    let mut http = authority.connect(server.http[0], None).await.unwrap();
    assert_eq!(get_over(&mut http, "/readyz", "").await.0, 503);
    server.serving.abort();
}

#[tokio::test]
async fn certificate_login_works_while_store_is_loading() {
    let authority = Authority::new();
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("users.toml");
    let mut file = UserFile::default();
    file.set("ann", UserEntry { rights: vec![Right::Read], ..UserEntry::default() }).unwrap();
    file.write(&path).unwrap();
    let config = Config {
        resp_tls: vec![here()],
        tls: Some(authority.files(Some(false))),
        access: Access { users: Some(path), ..Access::default() },
        ..Config::resp(here())
    };
    let server = start(config);
    let mut ann = Client(authority.connect(server.resp[1], Some("ann")).await.unwrap());
    ann.ask("ECHO hi", "$2\r\nhi\r\n").await;
    ann.ask("GET a", LOADING).await;
    ann.ask("FLUSHALL", "-NOPERM this user has no permissions to run the 'flushall' command\r\n").await;
    let mut nobody = Client(authority.connect(server.resp[1], None).await.unwrap());
    nobody.ask("ECHO hi", "-NOAUTH Authentication required.\r\n").await;
    server.serving.abort();
}

#[tokio::test]
async fn connections_are_bounded_meanwhile_too() {
    let mut config = Config { http: vec![here()], ..Config::resp(here()) };
    config.limits.connections_per_address_max = 2;
    let server = start(config);
    let mut held = Vec::new();
    for _ in 0..2 {
        let mut client = Client(TcpStream::connect(server.resp[0]).await.unwrap());
        client.ask("PING", LOADING).await;
        held.push(client);
    }
    let mut third = Client(TcpStream::connect(server.resp[0]).await.unwrap());
    assert_eq!(third.rest().await, "-ERR max number of clients from this address reached\r\n");
    let mut silent = Vec::new();
    for _ in 0..200 {
        silent.push(TcpStream::connect(server.http[0]).await.unwrap());
    }
    assert_eq!(get(server.http[0], "/readyz").await.0, 503);
    server.serving.abort();
}

/// No client has logged in, so each is limited to a short time and a few bytes.
#[tokio::test]
async fn health_client_while_loading_has_short_time_and_few_bytes() {
    let mut config = Config { grpc: vec![here()], ..Config::resp(here()) };
    config.limits.login_wait = Some(Duration::from_millis(300));
    let server = start(config);
    let ask = |service: String| HealthCheckRequest { service };
    let mut client = HealthClient::new(channel(server.grpc[0]).await);
    let refused = client.check(ask("x".repeat(2 << 10))).await.unwrap_err();
    assert!(refused.message().contains("too large"), "{refused:?}");
    let refused = client.check(ask("x".repeat(100 << 10))).await.unwrap_err();
    assert!(refused.message().contains("needs no login"), "{refused:?}");
    let mut watch = client.watch(ask(String::new())).await.unwrap().into_inner();
    assert_eq!(watch.message().await.unwrap().unwrap().status(), ServingStatus::NotServing);
    assert!(timeout(PATIENCE, watch.message()).await.expect("it ends").is_err());
    // A new connection receives the same answer.
    assert_eq!(health(&channel(server.grpc[0]).await).await, ServingStatus::NotServing);
    server.serving.abort();
}
