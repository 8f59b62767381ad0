//! Databases beyond the comparison with Redis: rights, MONITOR, CLIENT LIST, and the setting.

use esker_server::{Access, Config, Right, UserEntry, UserFile};

use crate::client::{Client, Running, plain};
use crate::frames::{Frame, Frames};

const NO_SUCH: &str = "-ERR DB index is out of range\r\n";

fn denied(database: u8) -> String {
    format!("-NOPERM this user has no permissions to access database {database}\r\n")
}

#[tokio::test]
async fn clients_have_the_database_that_they_chose() {
    let server = Running::start(plain()).await;
    let (mut one, mut other) = (server.client().await, server.client().await);
    one.ask("SELECT 3", "+OK\r\n").await;
    one.ask("SET key three", "+OK\r\n").await;
    other.ask("GET key", "$-1\r\n").await;
    one.ask("OBJECT IDLETIME key", ":0\r\n").await;
    other.ask("OBJECT IDLETIME key", "$-1\r\n").await;
    assert!(one.text("CLIENT LIST").await.contains(" db=3 "), "one chose it");
    assert!(other.text("CLIENT INFO").await.contains(" db=0 "), "the other did not");
    // A swap applies to all clients at once, and pipelines see it in their order.
    other.send("SWAPDB 0 3\r\nGET key\r\nSELECT 3\r\nGET key\r\n").await;
    other.expect("+OK\r\n$5\r\nthree\r\n+OK\r\n$-1\r\n").await;
    one.ask("GET key", "$-1\r\n").await;
    one.ask("RESET", "+RESET\r\n").await;
    one.ask("GET key", "$5\r\nthree\r\n").await;
    assert!(one.text("CLIENT INFO").await.contains(" db=0 "), "as a new connection is");
}

/// Returns `evicted_keys` of INFO.
async fn evicted_keys(client: &mut Client) -> u64 {
    let info = client.text("INFO").await;
    let line = info.lines().find_map(|line| line.strip_prefix("evicted_keys:"));
    line.unwrap_or_else(|| panic!("{info}")).parse().unwrap()
}

/// Returns the number of keys in a database, once DBSIZE and EXISTS agree.
async fn keys_of(client: &mut Client, database: u8) -> u64 {
    loop {
        client.ask(&format!("SELECT {database}"), "+OK\r\n").await;
        client.send("DBSIZE\r\n").await;
        let keys: u64 = client.line().await[1..].parse().unwrap();
        let lines: String = (0..600).map(|round| format!("EXISTS d{database}-{round}\r\n")).collect();
        client.send(lines).await;
        let mut found = 0;
        for _ in 0..600 {
            found += u64::from(client.line().await == ":1");
        }
        client.send("DBSIZE\r\n").await;
        let still: u64 = client.line().await[1..].parse().unwrap();
        if keys == still {
            assert_eq!(found, keys, "database {database}");
            return keys;
        }
    }
}

/// A cache evicts from all its databases. Each database keeps its own count, and events name the database of the evicted key.
#[tokio::test]
async fn a_full_cache_evicts_of_all_databases() {
    let server = Running::start_with(
        |options| {
            let small = options.segment_bytes(64 << 10).capacity_limit_bytes(4 << 20);
            small.when_full(esker_engine::WhenFull::Evict).compression(esker_engine::Compression::Off)
        },
        plain(),
    )
    .await;
    let (mut client, mut listener) = (server.client().await, Frames::connect(server.resp[0]).await);
    client.ask("CONFIG SET notify-keyspace-events Ee", "+OK\r\n").await;
    listener.ask("PSUBSCRIBE __keyevent@*__:evicted").await;
    let value = "v".repeat(2000);
    // After the swap, the keyspace of database 2 has another number than the database. Each key names its database.
    client.ask("SWAPDB 2 5", "+OK\r\n").await;
    for round in 0..600 {
        for database in [0, 2, 7] {
            client.send(format!("SELECT {database}\r\nSET d{database}-{round} {value}\r\n")).await;
            client.expect("+OK\r\n+OK\r\n").await;
        }
    }
    // Eviction may continue for a moment.
    let (mut evicted, mut left) = (evicted_keys(&mut client).await, [0; 3]);
    loop {
        for (left, database) in left.iter_mut().zip([0, 2, 7]) {
            *left = keys_of(&mut client, database).await;
        }
        let now = evicted_keys(&mut client).await;
        if std::mem::replace(&mut evicted, now) == now {
            break;
        }
    }
    assert!(evicted > 100, "{evicted} were evicted");
    assert!(left.iter().all(|keys| (1..600).contains(keys)), "{left:?} keys of the databases");
    assert_eq!(left.iter().sum::<u64>() + evicted, 1800);
    for _ in 0..evicted {
        let told = listener.next().await;
        let [_, _, Frame::Bulk(channel), Frame::Bulk(key)] = told.elements() else { panic!("{told:?}") };
        let (channel, key) = (String::from_utf8_lossy(channel), String::from_utf8_lossy(key));
        let (of, _) = key[1..].split_once('-').unwrap();
        assert_eq!(channel, format!("__keyevent@{of}__:evicted"), "{key}");
    }
}

#[tokio::test]
async fn there_are_as_many_databases_as_were_asked_for() {
    let server = Running::start(Config { databases: 2, ..plain() }).await;
    let mut client = server.client().await;
    client.ask("CONFIG GET databases", "*2\r\n$9\r\ndatabases\r\n$1\r\n2\r\n").await;
    client.ask("SELECT 1", "+OK\r\n").await;
    for refused in ["SELECT 2", "SWAPDB 0 2", "MOVE key 2", "COPY a b DB 2"] {
        client.ask(refused, NO_SUCH).await;
    }
}

#[tokio::test]
async fn monitors_see_the_database_of_each_command() {
    let server = Running::start(plain()).await;
    let (mut monitor, mut client) = (server.client().await, server.client().await);
    monitor.ask("MONITOR", "+OK\r\n").await;
    client.send("SELECT 2\r\nGET a\r\nMULTI\r\nSELECT 4\r\nGET b\r\nEXEC\r\n").await;
    for (database, command) in [
        (0, "\"SELECT\" \"2\""),
        (2, "\"GET\" \"a\""),
        (2, "\"MULTI\""),
        (2, "\"SELECT\" \"4\""),
        (4, "\"GET\" \"b\""),
    ] {
        let line = monitor.line().await;
        assert!(line.contains(&format!(" [{database} ")) && line.ends_with(command), "{line}: {database}");
    }
}

async fn user(server: &Running, name: &str) -> Client {
    let mut client = server.client().await;
    client.ask(&format!("AUTH {name} x"), "+OK\r\n").await;
    client
}

/// Starts a server with an admin, and with a user of two databases.
async fn with_users() -> (tempfile::TempDir, Running) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("users.toml");
    let mut file = UserFile::default();
    for (name, rights, databases) in
        [("ann", vec![Right::Read, Right::Write], vec![1, 2]), ("root", vec![Right::Admin], Vec::new())]
    {
        let mut entry = UserEntry { rights, databases, ..UserEntry::default() };
        entry.set_password("x").expect("there are random numbers");
        file.set(name, entry).unwrap();
    }
    file.write(&path).unwrap();
    assert_eq!(UserFile::read(&path).unwrap(), file);
    let access = Access { users: Some(path), ..Access::default() };
    (directory, Running::start(Config { access, ..plain() }).await)
}

#[tokio::test]
async fn users_are_held_to_their_databases() {
    let (_users, server) = with_users().await;
    let (mut ann, mut root) = (user(&server, "ann").await, user(&server, "root").await);
    // Like every connection, it begins in database 0.
    for command in ["GET a", "SET a 1", "DBSIZE", "SCAN 0", "KEYS *", "RANDOMKEY", "EVAL \"return 1\" 1 a"] {
        ann.ask(command, &denied(0)).await;
    }
    ann.ask("PING", "+PONG\r\n").await;
    ann.ask("SELECT 3", &denied(3)).await;
    ann.ask("SELECT 1", "+OK\r\n").await;
    ann.ask("SET a 1", "+OK\r\n").await;
    ann.ask("MOVE a 3", &denied(3)).await;
    ann.ask("COPY a b DB 0", &denied(0)).await;
    ann.ask("COPY a b DB 2", ":1\r\n").await;
    ann.ask("SWAPDB 1 2", "-NOPERM this user has no permissions to run the 'swapdb' command\r\n").await;
    ann.send("EVAL \"return redis.call('select', 3)\" 0\r\n").await;
    let refused = ann.line().await;
    assert!(refused.contains("The user executing the script can't access the database"), "{refused}");
    // Also in a transaction that selects the database in the middle.
    ann.send("MULTI\r\nSELECT 2\r\nGET b\r\nEXEC\r\n").await;
    ann.expect("+OK\r\n+QUEUED\r\n+QUEUED\r\n*2\r\n+OK\r\n$1\r\n1\r\n").await;
    let channel_denied =
        "-NOPERM this user has no permissions to access one of the channels used as arguments\r\n";
    for command in ["SUBSCRIBE __keyspace@0__:a", "PUBLISH __keyevent@3__:set a"] {
        ann.ask(command, channel_denied).await;
    }
    root.ask("ACL LIST", "*2\r\n").await;
    let lines = [root.line().await, root.line().await, root.line().await, root.line().await];
    assert!(lines[1].starts_with("user ann ") && lines[1].contains(" databases=1,2 "), "{lines:?}");
    let answer = root.text("ACL DRYRUN ann get a").await;
    assert_eq!(answer, "This user has no permissions to access database 0");
    // From a database without rights, the user selects another one in a transaction.
    let mut ann = user(&server, "ann").await;
    ann.send("MULTI\r\nSELECT 2\r\nGET b\r\nEXEC\r\nGET b\r\nSELECT 0\r\n").await;
    ann.expect("+OK\r\n+QUEUED\r\n+QUEUED\r\n*2\r\n+OK\r\n$1\r\n1\r\n$1\r\n1\r\n").await;
    ann.expect(denied(0)).await;
}

/// Users are not notified of keys in databases that they may not use: neither by keyspace events nor by tracking of prefixes.
#[tokio::test]
async fn users_hear_of_their_databases_alone() {
    let (_users, server) = with_users().await;
    let mut root = user(&server, "root").await;
    root.ask("CONFIG SET notify-keyspace-events K$", "+OK\r\n").await;
    let mut ann = Frames::connect(server.resp[0]).await;
    for command in ["HELLO 3 AUTH ann x", "CLIENT TRACKING ON BCAST"] {
        let (answer, _) = ann.ask(command).await;
        assert!(!answer.text().starts_with('-'), "{command}: {answer:?}");
    }
    ann.send("PSUBSCRIBE *").await;
    assert_eq!(ann.next().await.text(), "(psubscribe * :1)");
    root.send("SET hidden 1\r\nSELECT 1\r\nSET known 1\r\n").await;
    root.expect("+OK\r\n+OK\r\n+OK\r\n").await;
    let mut heard = [ann.next().await, ann.next().await].map(|frame: Frame| frame.text());
    heard.sort();
    assert_eq!(heard, ["(invalidate (known))", "(pmessage * __keyspace@1__:known set)"]);
}

/// The watched name refers to the same key again, but referred to another one in between.
#[tokio::test]
async fn a_watched_key_whose_database_was_swapped_has_changed() {
    let server = Running::start(plain()).await;
    let (mut client, mut other) = (server.client().await, server.client().await);
    client.ask("SET key zero", "+OK\r\n").await;
    for (swaps, outcome) in [(2, "*-1\r\n"), (1, "*-1\r\n"), (0, "*1\r\n+OK\r\n")] {
        client.ask("WATCH key absent", "+OK\r\n").await;
        for _ in 0..swaps {
            other.ask("SWAPDB 0 1", "+OK\r\n").await;
        }
        client.ask("MULTI", "+OK\r\n").await;
        client.ask("SET key x", "+QUEUED\r\n").await;
        client.ask("EXEC", outcome).await;
    }
    // Swaps of databases without any watched key have no effect.
    client.ask("WATCH absent", "+OK\r\n").await;
    other.ask("SWAPDB 0 1", "+OK\r\n").await;
    client.ask("MULTI", "+OK\r\n").await;
    client.ask("SET key x", "+QUEUED\r\n").await;
    client.ask("EXEC", "*1\r\n+OK\r\n").await;
}
