//! TLS beside plain text, with and without client certificates, and new certificates while the server runs.

use std::time::Duration;

use esker_server::{Access, Config, Error, Right, Sockets, TlsFiles, UserEntry, UserFile};
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;

use crate::certificates::Authority;
use crate::client::{Client, Running, get_over, here};

fn config(tls: TlsFiles) -> Config {
    let mut config =
        Config { resp_tls: vec![here()], http_tls: vec![here()], tls: Some(tls), ..Config::resp(here()) };
    config.limits.login_wait = Some(Duration::from_millis(500));
    config
}

#[tokio::test]
async fn plain_and_tls_side_by_side() {
    let authority = Authority::new();
    let server = Running::start(config(authority.files(None))).await;
    let mut plain = server.client().await;
    plain.ask("SET a 1", "+OK\r\n").await;
    let mut secret = Client(authority.connect(server.resp[1], None).await.unwrap());
    secret.ask("GET a", "$1\r\n1\r\n").await;
    // More than one TLS record in both directions.
    let large = "x".repeat(3 << 20);
    secret.send(format!("*3\r\n$3\r\nSET\r\n$1\r\nb\r\n${}\r\n{large}\r\nGET b\r\n", large.len())).await;
    secret.expect("large", &format!("+OK\r\n${}\r\n{large}\r\n", large.len())).await;
    secret.ask("QUIT", "+OK\r\n").await;
    assert_eq!(secret.rest().await, "");
    let mut http = authority.connect(server.http[0], None).await.unwrap();
    assert_eq!(get_over(&mut http, "/readyz", "").await, (200, "ready\n".to_owned()));
}

#[tokio::test]
async fn handshakes_that_do_not_come_to_an_end_are_ended() {
    let authority = Authority::new();
    let server = Running::start(config(authority.files(None))).await;
    let mut silent = TcpStream::connect(server.resp[1]).await.unwrap();
    let mut plain = Client(TcpStream::connect(server.resp[1]).await.unwrap());
    plain.send("PING\r\nPING\r\n").await;
    assert!(!plain.rest().await.contains("PONG"), "plain text at the port of TLS");
    let mut rest = Vec::new();
    let ended = tokio::time::timeout(Duration::from_secs(10), silent.read_to_end(&mut rest)).await;
    assert!(ended.is_ok(), "a client that says nothing is kept");
    Client(authority.connect(server.resp[1], None).await.unwrap()).ask("PING", "+PONG\r\n").await;
}

#[tokio::test]
async fn a_certificate_is_needed_where_it_is_required() {
    let (authority, stranger) = (Authority::new(), Authority::new());
    let server = Running::start(config(authority.files(Some(true)))).await;
    // With TLS 1.3 the client's handshake ends before the server has checked its certificate.
    let mut client = Client(authority.connect(server.resp[1], None).await.unwrap());
    let _ = tokio::io::AsyncWriteExt::write_all(&mut client.0, b"PING\r\n").await;
    assert_eq!(client.rest().await, "");
    assert!(
        stranger.connect(server.resp[1], Some("ann")).await.is_err(),
        "a client that trusts another authority"
    );
    let mut client = Client(authority.connect_as(server.resp[1], stranger.sign("ann")).await.unwrap());
    let _ = tokio::io::AsyncWriteExt::write_all(&mut client.0, b"PING\r\n").await;
    assert_eq!(client.rest().await, "");
    Client(authority.connect(server.resp[1], Some("ann")).await.unwrap()).ask("PING", "+PONG\r\n").await;
}

#[tokio::test]
async fn a_certificate_logs_the_user_in_whom_it_names() {
    let authority = Authority::new();
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("users.toml");
    let mut file = UserFile::default();
    file.set("ann", UserEntry { rights: vec![Right::Read], ..UserEntry::default() }).unwrap();
    file.write(&path).unwrap();
    let mut config = config(authority.files(Some(false)));
    config.access = Access { users: Some(path), ..Access::default() };
    let server = Running::start(config).await;
    let mut ann = Client(authority.connect(server.resp[1], Some("ann")).await.unwrap());
    ann.ask("ACL WHOAMI", "$3\r\nann\r\n").await;
    ann.ask("SET a 1", "-NOPERM this user has no permissions to run the 'set' command\r\n").await;
    for name in [None, Some("bob")] {
        let mut other = Client(authority.connect(server.resp[1], name).await.unwrap());
        other.ask("GET a", "-NOAUTH Authentication required.\r\n").await;
    }
    let mut http = authority.connect(server.http[0], Some("ann")).await.unwrap();
    assert_eq!(get_over(&mut http, "/metrics", "").await.0, 200);
    let mut http = authority.connect(server.http[0], None).await.unwrap();
    assert_eq!(get_over(&mut http, "/metrics", "").await.0, 401);
}

#[tokio::test]
async fn certificates_are_replaced_by_reload_unless_invalid() {
    let authority = Authority::new();
    let files = authority.files(None);
    let server = Running::start(config(files.clone())).await;
    let shown = async || {
        let stream = authority.connect(server.resp[1], None).await.unwrap();
        stream.get_ref().1.peer_certificates().unwrap()[0].to_vec()
    };
    let first = shown().await;
    authority.renew();
    assert_eq!(shown().await, first);
    server.control.reload().unwrap();
    let second = shown().await;
    assert_ne!(second, first);
    std::fs::write(&files.certificate, "no certificate").unwrap();
    let error = server.control.reload().unwrap_err().to_string();
    assert!(error.contains("server.pem"), "{error}");
    assert_eq!(shown().await, second);
}

#[test]
fn files_that_are_wrong_are_refused_at_the_start() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let _inside = runtime.enter();
    let authority = Authority::new();
    let mut missing = authority.files(None);
    missing.key = "/none/key.pem".into();
    let error = Sockets::bind(&config(missing)).unwrap_err();
    assert!(matches!(error, Error::Tls { .. }) && error.to_string().contains("/none/key.pem"), "{error}");
    let stranger = Authority::new();
    let mut other = authority.files(None);
    other.key = stranger.files(None).key;
    let name = other.key.display().to_string();
    let error = config(other).check_files().unwrap_err().to_string();
    assert!(error.contains(&name) && error.contains("is not the key of"), "{error}");
    let without = Config { tls: None, ..config(authority.files(None)) };
    assert!(matches!(Sockets::bind(&without), Err(Error::NoCertificate { .. })));
}
