//! Clients on a unix socket, and the life of its file.

use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Barrier};

use esker_server::{Access, Config, Error, Limits, Password, Sockets, UnixSocket};
use rustix::fs::{FlockOperation, flock};
use tempfile::TempDir;
use tokio::net::UnixStream;

use crate::client::{Client, Running, plain};

fn scratch() -> (TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("esker.sock");
    (directory, path)
}

/// RESP on TCP and on a unix socket.
fn beside(path: &Path) -> Config {
    Config { unix: Some(UnixSocket { path: path.to_owned(), mode: 0o700 }), ..plain() }
}

/// RESP on a unix socket only.
fn alone(path: &Path) -> Config {
    Config { resp: Vec::new(), ..beside(path) }
}

async fn client(path: &Path) -> Client<UnixStream> {
    Client(UnixStream::connect(path).await.unwrap())
}

/// Compared with redis-server.
#[tokio::test]
async fn clients_are_shown_as_redis_shows_them() {
    let (_directory, path) = scratch();
    let mut server = Running::start(beside(&path)).await;
    assert_eq!(path.symlink_metadata().unwrap().permissions().mode() & 0o7777, 0o700);
    let (mut local, mut remote) = (client(&path).await, server.client().await);
    local.ask("SET k v", "+OK\r\n").await;
    remote.ask("GET k", "$1\r\nv\r\n").await;
    let shown = path.display().to_string();
    let told = local.text("CLIENT INFO").await;
    assert!(told.contains(&format!(" addr={shown}:0 laddr={shown}:0 ")), "{told}");
    assert!(told.contains(" flags=U "), "{told}");
    let told = remote.text("CLIENT INFO").await;
    assert!(told.contains(" addr=127.0.0.1:") && told.contains(" flags=N "), "{told}");
    for (asked, expected) in [("unixsocket", shown.as_str()), ("unixsocketperm", "700")] {
        let length = |text: &str| format!("${}\r\n{text}\r\n", text.len());
        let expected = format!("*2\r\n{}{}", length(asked), length(expected));
        remote.ask(&format!("CONFIG GET {asked}"), &expected).await;
    }
    let info = remote.text("INFO server").await;
    let port = server.resp[0].port();
    let listeners =
        format!("\r\nlistener0:name=tcp,bind=127.0.0.1,port={port}\r\nlistener1:name=unix,bind={shown}\r\n");
    assert!(info.contains(&listeners), "{info}");
    remote.ask("MONITOR", "+OK\r\n").await;
    local.ask("GET k", "$1\r\nv\r\n").await;
    let line = remote.line().await;
    assert!(line.ends_with(&format!(" [0 unix:{shown}] \"GET\" \"k\"")), "{line}");
    local.ask("CONFIG SET slowlog-log-slower-than 0", "+OK\r\n").await;
    local.ask("GET k", "$1\r\nv\r\n").await;
    let mut admin = server.client().await;
    admin.send("SLOWLOG GET 1\r\n").await;
    let mut slow = String::new();
    for _ in 0..14 {
        slow += &format!("{} ", admin.line().await);
    }
    assert!(slow.contains(&format!(" {shown}:0 ")), "{slow}");
    admin.ask(&format!("CLIENT KILL ADDR {shown}:0"), ":1\r\n").await;
    local.expect_end().await;
    let mut again = client(&path).await;
    again.ask("PING", "+PONG\r\n").await;
    server.ask_to_stop();
    server.stopped().await;
    again.expect_end().await;
    assert!(!path.exists(), "the file is left");
}

#[tokio::test]
async fn a_unix_socket_can_be_all_there_is() {
    let (_directory, path) = scratch();
    let server = Running::start(alone(&path)).await;
    assert!(server.resp.is_empty());
    let mut client = client(&path).await;
    let value = "v".repeat(3 << 20);
    client.send(crate::client::command(&["SET", "k", &value])).await;
    client.expect("+OK\r\n").await;
    client.send("GET k\r\n".repeat(3)).await;
    client.expect(format!("${}\r\n{value}\r\n", value.len()).repeat(3)).await;
    let info = client.text("INFO server").await;
    assert!(info.contains("\r\ntcp_port:0\r\n"), "{info}");
    assert!(info.contains(&format!("\r\nlistener0:name=unix,bind={}\r\n", path.display())), "{info}");
}

#[tokio::test]
async fn a_dead_servers_socket_is_replaced_and_nothing_else() {
    let (directory, path) = scratch();
    drop(UnixListener::bind(&path).unwrap());
    let server = Running::start(alone(&path)).await;
    client(&path).await.ask("PING", "+PONG\r\n").await;
    // The socket of a running server.
    let error = Sockets::bind(&alone(&path)).unwrap_err();
    let expected =
        format!("cannot listen on the unix socket {}: another server listens on it", path.display());
    assert!(matches!(&error, Error::UnixSocket { path: named, .. } if *named == path), "{error}");
    assert_eq!(error.to_string(), expected);
    client(&path).await.ask("PING", "+PONG\r\n").await;
    drop(server);
    // Files of other types.
    let file = directory.path().join("file");
    std::fs::write(&file, "mine").unwrap();
    let link = directory.path().join("link");
    std::os::unix::fs::symlink(&path, &link).unwrap();
    for other in [&file, &link, &directory.path().to_owned()] {
        let error = Sockets::bind(&alone(other)).unwrap_err().to_string();
        assert!(error.contains("it is no socket"), "{error}");
        assert!(other.symlink_metadata().is_ok());
    }
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "mine");
    // Impossible paths.
    let error = Sockets::bind(&alone(&directory.path().join("none/socket"))).unwrap_err().to_string();
    assert!(error.contains("its directory cannot be opened: "), "{error}");
    let error = Sockets::bind(&alone(&directory.path().join("x".repeat(120)))).unwrap_err().to_string();
    assert!(error.contains("SUN_LEN"), "{error}");
}

/// The server does not remove a file that has replaced its own.
#[tokio::test]
async fn file_replacing_unix_socket_is_not_removed_on_stop() {
    let (_directory, path) = scratch();
    let mut server = Running::start(alone(&path)).await;
    std::fs::rename(&path, path.with_extension("old")).unwrap();
    std::fs::write(&path, "mine").unwrap();
    server.ask_to_stop();
    server.stopped().await;
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "mine");
}

/// All servers find the socket of a dead server; one of them takes it over, and no other removes the new socket.
#[tokio::test]
async fn of_servers_that_start_together_one_has_the_socket() {
    const SERVERS: usize = 4;
    let (_directory, path) = scratch();
    for round in 0..30 {
        drop(UnixListener::bind(&path).unwrap());
        let turn = Arc::new(Barrier::new(SERVERS));
        let start = |_| {
            let (turn, config, runtime) = (turn.clone(), alone(&path), tokio::runtime::Handle::current());
            std::thread::spawn(move || {
                let _inside = runtime.enter();
                turn.wait();
                Sockets::bind(&config)
            })
        };
        let threads: Vec<_> = (0..SERVERS).map(start).collect();
        let ended: Vec<_> = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
        let (have, refused): (Vec<_>, Vec<_>) = ended.into_iter().partition(Result::is_ok);
        assert_eq!(have.len(), 1, "round {round}: {refused:?}");
        std::os::unix::net::UnixStream::connect(&path).expect("it is that of the one");
        drop(have);
        assert!(!path.exists());
    }
}

/// Between two steps of another server, its socket looks like that of a dead one.
#[tokio::test]
async fn a_server_waits_for_another_that_makes_its_socket() {
    let (directory, path) = scratch();
    let other = std::fs::File::open(directory.path()).unwrap();
    flock(&other, FlockOperation::LockExclusive).unwrap();
    let error = Sockets::bind(&alone(&path)).unwrap_err().to_string();
    assert!(error.ends_with("another process has its directory locked"), "{error}");
    let config = alone(&path);
    let waits = tokio::task::spawn_blocking(move || Sockets::bind(&config).map(drop));
    tokio::time::sleep(std::time::Duration::from_millis(300)).await;
    assert!(!waits.is_finished());
    drop(other);
    waits.await.unwrap().unwrap();
}

/// Users of this machine are distinguished from TCP clients.
#[tokio::test]
async fn limits_and_wrong_passwords_are_counted_by_user() {
    let (_directory, path) = scratch();
    let limits = Limits { connections_per_address_max: 2, ..Limits::default() };
    let access = Access { password: Some(Password::new("right")), ..Access::default() };
    let server = Running::start(Config { limits, access, ..beside(&path) }).await;
    let (mut one, mut two) = (client(&path).await, client(&path).await);
    one.ask("PING", "-NOAUTH Authentication required.\r\n").await;
    two.ask("PING", "-NOAUTH Authentication required.\r\n").await;
    let mut three = client(&path).await;
    three.expect("-ERR max number of clients from this address reached\r\n").await;
    three.expect_end().await;
    let mut remote = server.client().await;
    let wrong = "-WRONGPASS invalid username-password pair or user is disabled.\r\n";
    for guess in 0..10 {
        one.ask(&format!("AUTH wrong{guess}"), wrong).await;
    }
    two.ask("AUTH right", wrong).await;
    remote.ask("AUTH right", "+OK\r\n").await;
}

#[tokio::test]
async fn client_on_unix_socket_gets_loading_while_store_opens() {
    let (_directory, path) = scratch();
    let config = alone(&path);
    let mut sockets = Sockets::bind(&config).unwrap();
    let asked = async {
        let mut client = client(&path).await;
        client.send("PING\r\n").await;
        client.line().await
    };
    let told = sockets.answer_while(&config, || "halfway".to_owned(), asked).await;
    assert_eq!(told, "-LOADING Esker is loading the dataset in memory");
    drop(sockets);
    assert!(!path.exists(), "the file is left");
}
