//! Passwords, rights, exposure, and the limits of a client before its login.

use std::time::{Duration, Instant};

use esker_server::{Access, Config, Error, Limits, Password, Right, Sockets, UserEntry, UserFile};

use crate::client::{Client, Running, here};

const NOAUTH: &str = "-NOAUTH Authentication required.\r\n";
const WRONG: &str = "-WRONGPASS invalid username-password pair or user is disabled.\r\n";

fn with_password() -> Config {
    let access = Access { password: Some(Password::new("open sesame")), ..Access::default() };
    Config { access, ..Config::resp(here()) }
}

#[tokio::test]
async fn a_password_is_needed_and_enough() {
    let server = Running::start(with_password()).await;
    let mut client = server.client().await;
    client.ask("GET a", NOAUTH).await;
    client.ask("PING", NOAUTH).await;
    client.ask("AUTH wrong", WRONG).await;
    client.ask("AUTH 'open sesame'", "+OK\r\n").await;
    client.ask("SET a 1", "+OK\r\n").await;
    // In one write: commands after the login have the rights and the limits of the user.
    let mut client = server.client().await;
    let large = "x".repeat(40_000);
    client.send(format!("AUTH 'open sesame'\r\n*3\r\n$3\r\nSET\r\n$1\r\nb\r\n$40000\r\n{large}\r\n")).await;
    client.expect("both", "+OK\r\n+OK\r\n").await;
}

#[tokio::test]
async fn admins_see_who_there_is_without_hashes() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("users.toml");
    let mut file = UserFile::default();
    let mut ann = UserEntry {
        rights: vec![Right::Read, Right::Write],
        prefixes: vec!["app:".into(), "a*?[\\]".into()],
        ..UserEntry::default()
    };
    ann.set_password("a").expect("there are random numbers");
    file.set("ann", ann).unwrap();
    file.set("bob", UserEntry { rights: vec![Right::Read], ..UserEntry::default() }).unwrap();
    let mut root = UserEntry { rights: vec![Right::Admin], ..UserEntry::default() };
    root.set_password("r").expect("there are random numbers");
    file.set("root", root).unwrap();
    file.write(&path).unwrap();
    let access = Access { users: Some(path), ..Access::default() };
    let server = Running::start(Config { access, ..Config::resp(here()) }).await;
    let mut client = server.client().await;
    client.ask("ACL LIST", NOAUTH).await;
    client.ask("AUTH ann a", "+OK\r\n").await;
    client.ask("ACL LIST", "-NOPERM this user has no permissions to run the 'acl|list' command\r\n").await;
    client.ask("ACL USERS", "-NOPERM this user has no permissions to run the 'acl|users' command\r\n").await;
    client.ask("AUTH root r", "+OK\r\n").await;
    client.ask("ACL USERS", "*3\r\n$3\r\nann\r\n$3\r\nbob\r\n$4\r\nroot\r\n").await;
    let rules = [
        r"user ann on ~app:* ~a\*\?\[\\]* resetchannels &app:* &a\*\?\[\\]* -@all +@connection +@transaction +@read +@write +@pubsub +@scripting +object +function +pubsub +cluster -flushall -flushdb +info +role -swapdb +time +memory +acl|cat +acl|genpass +acl|help +acl|whoami -client|kill -client|list -client|pause -client|unblock -client|unpause -script|flush -script|kill",
        "user bob on %R~* &* -@all +@connection +@transaction +@read +@pubsub +object +eval_ro +evalsha_ro +function -publish +pubsub -spublish +cluster +info +role +time +memory +acl|cat +acl|genpass +acl|help +acl|whoami -client|kill -client|list -client|pause -client|unblock -client|unpause +script|exists +script|help +script|load",
        "user root on ~* &* +@all",
    ];
    let expected: String = rules.iter().map(|rule| format!("${}\r\n{rule}\r\n", rule.len())).collect();
    client.ask("ACL LIST", &format!("*3\r\n{expected}")).await;
}

#[tokio::test]
async fn users_have_rights_that_a_reload_changes() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("users.toml");
    let mut file = UserFile::default();
    let mut entry =
        UserEntry { rights: vec![Right::Read], prefixes: vec!["app:".into()], ..UserEntry::default() };
    entry.set_password("a").expect("there are random numbers");
    file.set("ann", entry.clone()).unwrap();
    file.write(&path).unwrap();
    let access = Access { users: Some(path.clone()), ..Access::default() };
    let server = Running::start(Config { access, ..Config::resp(here()) }).await;
    let mut ann = server.client().await;
    ann.ask("AUTH ann a", "+OK\r\n").await;
    ann.ask("GET app:1", "$-1\r\n").await;
    ann.ask(
        "GET other",
        "-NOPERM this user has no permissions to access one of the keys used as arguments\r\n",
    )
    .await;
    ann.ask("SET app:1 x", "-NOPERM this user has no permissions to run the 'set' command\r\n").await;
    entry.rights.push(Right::Write);
    file.set("ann", entry.clone()).unwrap();
    file.write(&path).unwrap();
    server.control.reload().unwrap();
    ann.ask("PING", "+PONG\r\n").await;
    ann.ask("SET app:1 x", "+OK\r\n").await;
    assert!(file.remove("ann"));
    file.write(&path).unwrap();
    server.control.reload().unwrap();
    assert_eq!(
        ann.rest().await,
        "-ERR its user is gone, has another password or lost rights that it used (users)\r\n"
    );
    let mut again = server.client().await;
    again.ask("AUTH ann a", WRONG).await;
}

/// Starts a server with these users. Returns it with its users file.
pub(crate) async fn with_users(
    users: &[(&str, UserEntry)],
) -> (Running, UserFile, std::path::PathBuf, tempfile::TempDir) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("users.toml");
    let mut file = UserFile::default();
    for (name, entry) in users {
        let mut entry = entry.clone();
        entry.set_password(name).expect("there are random numbers");
        file.set(name, entry).unwrap();
    }
    file.write(&path).unwrap();
    let access = Access { users: Some(path.clone()), ..Access::default() };
    let server = Running::start(Config { access, http: vec![here()], ..Config::resp(here()) }).await;
    (server, file, path, directory)
}

#[tokio::test]
async fn subscriber_losing_channel_rights_is_closed_at_reload() {
    let entry = |prefix: &str| UserEntry {
        rights: vec![Right::Read],
        prefixes: vec![prefix.to_owned()],
        ..UserEntry::default()
    };
    let users = [("ann", entry("app:")), ("bob", entry("app:"))];
    let (server, mut file, path, _directory) = with_users(&users).await;
    let (mut ann, mut bob) = (server.client().await, server.client().await);
    for (client, name, verb, channel) in
        [(&mut ann, "ann", "PSUBSCRIBE", "app:*"), (&mut bob, "bob", "SUBSCRIBE", "app:low:1")]
    {
        client.ask(&format!("AUTH {name} {name}"), "+OK\r\n").await;
        let reply = format!("*3\r\n${}\r\n{}\r\n", verb.len(), verb.to_lowercase());
        client
            .ask(&format!("{verb} {channel}"), &format!("{reply}${}\r\n{channel}\r\n:1\r\n", channel.len()))
            .await;
        let mut narrow = file.users()[name].clone();
        narrow.prefixes = vec!["app:low:".to_owned()];
        file.set(name, narrow).unwrap();
    }
    file.write(&path).unwrap();
    server.control.reload().unwrap();
    assert_eq!(
        ann.rest().await,
        "-ERR its user is gone, has another password or lost rights that it used (users)\r\n"
    );
    bob.ask("PING", "*2\r\n$4\r\npong\r\n$0\r\n\r\n").await;
}

#[tokio::test]
async fn command_queued_before_reload_needs_rights_at_exec() {
    let app = UserEntry {
        rights: vec![Right::Read, Right::Write],
        prefixes: vec!["app:".into()],
        ..UserEntry::default()
    };
    let (server, mut file, path, _directory) = with_users(&[("ann", app)]).await;
    let mut ann = server.client().await;
    ann.ask("AUTH ann ann", "+OK\r\n").await;
    ann.ask("SET app:1 old", "+OK\r\n").await;
    let changed = "-NOPERM ACLs rules changed between the moment the transaction was accumulated and the EXEC call. \
                   This command is no longer allowed for the following reason: ";
    for (rights, prefix, reason) in [
        (vec![Right::Read], "app:", "no permission to execute the command or subcommand"),
        (vec![Right::Read, Right::Write], "other:", "no permission to touch the specified keys"),
    ] {
        for line in ["MULTI", "SET app:1 new", "PING", "SET app:2 new"] {
            ann.ask(line, if line == "MULTI" { "+OK\r\n" } else { "+QUEUED\r\n" }).await;
        }
        let before = file.users()["ann"].clone();
        let narrow = UserEntry { rights, prefixes: vec![prefix.to_owned()], ..before.clone() };
        file.set("ann", narrow).unwrap();
        file.write(&path).unwrap();
        server.control.reload().unwrap();
        let refused = format!("{changed}{reason}\r\n");
        ann.ask("EXEC", &format!("*3\r\n{refused}+PONG\r\n{refused}")).await;
        assert_eq!(server.store.get("app:1").await.unwrap().as_deref(), Some(b"old".as_slice()));
        assert_eq!(server.store.len(), 1);
        file.set("ann", before).unwrap();
        file.write(&path).unwrap();
        server.control.reload().unwrap();
    }
    ann.ask("GET app:1", "$3\r\nold\r\n").await;
}

#[tokio::test]
async fn session_of_removed_user_ends_at_reload() {
    let entry = UserEntry { rights: vec![Right::Read], ..UserEntry::default() };
    let (server, mut file, path, _directory) = with_users(&[("ann", entry.clone()), ("bob", entry)]).await;
    let (mut ann, mut bob) = (server.client().await, server.client().await);
    ann.ask("AUTH ann ann", "+OK\r\n").await;
    bob.ask("AUTH bob bob", "+OK\r\n").await;
    // The session of an unchanged user continues, however often the users are reloaded.
    for _ in 0..3 {
        server.control.reload().unwrap();
        ann.ask("PING", "+PONG\r\n").await;
    }
    assert!(file.remove("ann"));
    file.write(&path).unwrap();
    server.control.reload().unwrap();
    assert_eq!(
        ann.rest().await,
        "-ERR its user is gone, has another password or lost rights that it used (users)\r\n"
    );
    bob.ask("PING", "+PONG\r\n").await;
    let (_, metrics) = server.get("/metrics", "Authorization: Basic Ym9iOmJvYg==\r\n").await;
    for line in ["{reason=\"user\"} 1", "{reason=\"login\"} 0"] {
        assert!(metrics.contains(&format!("esker_connections_dropped_total{line}\n")), "{metrics}");
    }
}

#[tokio::test]
async fn before_the_login_little_is_taken() {
    let server = Running::start(with_password()).await;
    for (bytes, expected) in [
        ("*11\r\n".to_owned(), "-ERR Protocol error: invalid multibulk length\r\n"),
        ("*2\r\n$3\r\nGET\r\n$16385\r\n".to_owned(), "-ERR Protocol error: invalid bulk length\r\n"),
        ("x".repeat(5000), "-ERR Protocol error: too big inline request\r\n"),
    ] {
        let mut client = server.client().await;
        client.send(&bytes).await;
        assert_eq!(client.rest().await, expected);
    }
    let mut client = server.client().await;
    client.ask("AUTH 'open sesame'", "+OK\r\n").await;
    client.ask(&format!("SET a {}", "x".repeat(5000)), "+OK\r\n").await;
}

#[tokio::test]
async fn session_without_login_ends_after_login_timeout() {
    let mut config = with_password();
    config.limits = Limits { login_wait: Some(Duration::from_millis(300)), ..Limits::default() };
    let server = Running::start(config).await;
    let mut client = server.client().await;
    let mut known = server.client().await;
    known.ask("AUTH 'open sesame'", "+OK\r\n").await;
    let started = Instant::now();
    client.ask("PING", NOAUTH).await;
    assert!(client.rest().await.contains("login-timeout"));
    assert!(started.elapsed() >= Duration::from_millis(250), "{:?}", started.elapsed());
    known.ask("PING", "+PONG\r\n").await;
}

#[tokio::test]
async fn guessing_is_stopped() {
    let server = Running::start(with_password()).await;
    let mut client = server.client().await;
    // Repeating the same password is not counted as a guess.
    for _ in 0..50 {
        client.ask("AUTH wrong", WRONG).await;
    }
    for turn in 0..9 {
        client.ask(&format!("AUTH guess{turn}"), WRONG).await;
    }
    client.ask("AUTH 'open sesame'", WRONG).await;
}

#[test]
fn an_address_that_others_reach_needs_a_password() {
    let everywhere = "0.0.0.0:0".parse().unwrap();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let _inside = runtime.enter();
    let mut config = Config::resp(everywhere);
    assert!(matches!(Sockets::bind(&config), Err(Error::Exposed { address }) if address == everywhere));
    config.access.allow_unauthenticated = true;
    Sockets::bind(&config).unwrap();
    config.access = Access { password: Some(Password::new("x")), ..Access::default() };
    Sockets::bind(&config).unwrap();
    let http = Config { http: vec![everywhere], ..Config::resp(here()) };
    assert!(matches!(Sockets::bind(&http), Err(Error::Exposed { .. })));
}

#[tokio::test]
async fn connections_from_one_address_are_bounded() {
    let mut config = Config::resp(here());
    config.limits.connections_per_address_max = 2;
    let server = Running::start(config).await;
    let (mut one, mut two) = (server.client().await, server.client().await);
    one.ask("PING", "+PONG\r\n").await;
    two.ask("PING", "+PONG\r\n").await;
    let mut three = server.client().await;
    assert_eq!(three.rest().await, "-ERR max number of clients from this address reached\r\n");
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.2:0".parse().unwrap()).unwrap();
    let mut other = Client(socket.connect(server.resp[0]).await.unwrap());
    other.ask("PING", "+PONG\r\n").await;
}

#[tokio::test]
async fn silence_is_bounded_if_asked_for() {
    let mut config = Config::resp(here());
    config.limits.idle_wait = Some(Duration::from_millis(200));
    let server = Running::start(config).await;
    let mut client = server.client().await;
    for _ in 0..5 {
        client.ask("PING", "+PONG\r\n").await;
        tokio::time::sleep(Duration::from_millis(90)).await;
    }
    assert!(client.rest().await.contains("idle-timeout"));
}

/// While a reload fails, a user removed from the file keeps its access, which must be visible.
#[tokio::test]
async fn a_reload_that_failed_is_told() {
    let entry = UserEntry { rights: vec![Right::Read], ..UserEntry::default() };
    let (server, file, path, _directory) = with_users(&[("bob", entry)]).await;
    let metrics = async || server.get("/metrics", "Authorization: Basic Ym9iOmJvYg==\r\n").await.1;
    let expect = async |lines: [&str; 3]| {
        let text = metrics().await;
        for line in lines {
            assert!(text.lines().any(|found| found == line), "{line} in {text}");
        }
    };
    let current = "esker_last_reload_successful{of=\"users\"} 1";
    let tls = "esker_last_reload_successful{of=\"tls\"} 1";
    expect([current, tls, "esker_reload_failures_total{of=\"users\"} 0"]).await;
    std::fs::remove_file(&path).unwrap();
    server.control.reload().unwrap_err();
    let outdated = "esker_last_reload_successful{of=\"users\"} 0";
    expect([outdated, tls, "esker_reload_failures_total{of=\"users\"} 1"]).await;
    file.write(&path).unwrap();
    server.control.reload().unwrap();
    expect([current, tls, "esker_reload_failures_total{of=\"users\"} 1"]).await;
}
