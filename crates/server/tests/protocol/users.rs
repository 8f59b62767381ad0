//! Changes of users over the wire: ACL SETUSER, DELUSER, LOAD and SAVE.

use std::collections::BTreeMap;

use esker_server::{Access, Config, Right, UserEntry, UserFile};
use tokio::io::BufStream;
use tokio::net::TcpStream;

use crate::client::{Client, Running, plain};
use crate::redis::{Redis, exchange};

/// Starts a server with an admin `root` with the password `x`, and these users in a file.
async fn with_file(users: &[(&str, &[Right])]) -> (Running, std::path::PathBuf, tempfile::TempDir) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("users.toml");
    let mut file = UserFile::default();
    for (name, rights) in users.iter().chain([&("root", &[Right::Admin][..])]) {
        let mut entry = UserEntry { rights: rights.to_vec(), ..UserEntry::default() };
        entry.set_password("x").expect("there are random numbers");
        file.set(name, entry).unwrap();
    }
    file.write(&path).unwrap();
    let access = Access { users: Some(path.clone()), ..Access::default() };
    (Running::start(Config { access, ..plain() }).await, path, directory)
}

async fn user(server: &Running, name: &str) -> Client {
    let mut client = server.client().await;
    client.ask(&format!("AUTH {name} x"), "+OK\r\n").await;
    client
}

const GONE: &str = "-ERR its user is gone, has another password or lost rights that it used (users)\r\n";
const NO_SET: &str = "-NOPERM this user has no permissions to run the 'set' command\r\n";

#[tokio::test]
async fn rights_change_at_once_for_who_is_connected() {
    let (server, _, _directory) = with_file(&[]).await;
    let mut root = user(&server, "root").await;
    root.ask("ACL SETUSER ann on >x ~app:* &app:* +@read", "+OK\r\n").await;
    let (mut ann, mut listener) = (user(&server, "ann").await, user(&server, "root").await);
    ann.ask("GET app:1", "$-1\r\n").await;
    ann.ask("SET app:1 1", NO_SET).await;
    ann.ask("PING", "-NOPERM this user has no permissions to run the 'ping' command\r\n").await;
    root.ask("ACL SETUSER ann +@write +ping", "+OK\r\n").await;
    ann.ask("SET app:1 1", "+OK\r\n").await;
    ann.ask(
        "SET b 1",
        "-NOPERM this user has no permissions to access one of the keys used as arguments\r\n",
    )
    .await;
    root.ask("ACL SETUSER ann +subscribe", "+OK\r\n").await;
    ann.ask("SUBSCRIBE app:1", "*3\r\n$9\r\nsubscribe\r\n$5\r\napp:1\r\n:1\r\n").await;
    // A subscriber that keeps its rights is not disconnected.
    root.ask("ACL SETUSER ann -@write", "+OK\r\n").await;
    ann.ask("PING", "*2\r\n$4\r\npong\r\n$0\r\n\r\n").await;
    root.ask("ACL SETUSER ann resetchannels", "+OK\r\n").await;
    ann.expect(GONE).await;
    ann.expect_end().await;
    // A monitor without the right to MONITOR is disconnected.
    root.ask("ACL SETUSER mon on >x ~a* +monitor +auth", "+OK\r\n").await;
    let mut monitor = user(&server, "mon").await;
    monitor.ask("MONITOR", "+OK\r\n").await;
    root.ask("ACL SETUSER mon +get", "+OK\r\n").await;
    listener.ask("PING", "+PONG\r\n").await;
    assert!(monitor.line().await.ends_with("\"PING\""));
    root.ask("ACL SETUSER mon -monitor", "+OK\r\n").await;
    monitor.expect(GONE).await;
}

#[tokio::test]
async fn user_removed_or_losing_password_is_disconnected() {
    let (server, _, _directory) = with_file(&[("ann", &[Right::Read])]).await;
    let mut root = user(&server, "root").await;
    let mut ann = user(&server, "ann").await;
    root.ask("ACL DELUSER ann nobody", ":1\r\n").await;
    ann.expect(GONE).await;
    ann.expect_end().await;
    root.ask("ACL SETUSER bob on >x +ping", "+OK\r\n").await;
    let mut bob = user(&server, "bob").await;
    root.ask("ACL SETUSER bob >y off", "+OK\r\n").await;
    bob.ask("PING", "+PONG\r\n").await;
    server.client().await.ask("AUTH bob x", "-WRONGPASS").await;
    root.ask("ACL SETUSER bob on <x", "+OK\r\n").await;
    bob.expect(GONE).await;
    server.client().await.ask("AUTH bob y", "+OK\r\n").await;
    // An admin may remove itself.
    root.ask("ACL DELUSER root", ":1\r\n").await;
    root.expect(GONE).await;
}

#[tokio::test]
async fn admins_alone_change_users_and_not_in_a_transaction() {
    let (server, _, _directory) = with_file(&[("ann", &[Right::Read, Right::Write, Right::Monitor])]).await;
    let mut ann = user(&server, "ann").await;
    for line in ["SETUSER ann +@all", "setuser eve on", "DELUSER root", "LOAD", "SAVE"] {
        let name = line.split(' ').next().unwrap().to_lowercase();
        let refused = format!("-NOPERM this user has no permissions to run the 'acl|{name}' command\r\n");
        ann.ask(&format!("ACL {line}"), &refused).await;
    }
    let mut root = user(&server, "root").await;
    for line in ["SETUSER ann +@all", "DELUSER ann", "LOAD", "SAVE"] {
        root.ask("MULTI", "+OK\r\n").await;
        root.ask(&format!("ACL {line}"), "-ERR Command not allowed inside a transaction\r\n").await;
        root.ask("EXEC", "-EXECABORT Transaction discarded because of previous errors.\r\n").await;
    }
    root.ask("EVAL \"return redis.call('acl', 'setuser', 'ann', '+@all')\" 0", "-ERR").await;
    assert!(root.line().await.contains("not allowed from script"));
    root.ask("ACL USERS", "*2\r\n$3\r\nann\r\n$4\r\nroot\r\n").await;
}

#[tokio::test]
async fn passwords_are_shown_to_nobody() {
    let (server, _, _directory) = with_file(&[]).await;
    let (mut root, mut monitor) = (user(&server, "root").await, server.client().await);
    root.ask("CONFIG SET slowlog-log-slower-than 0", "+OK\r\n").await;
    root.ask("ACL SETUSER mon on >x ~* +@all", "+OK\r\n").await;
    monitor.ask("AUTH mon x", "+OK\r\n").await;
    monitor.ask("MONITOR", "+OK\r\n").await;
    root.ask("ACL SETUSER sub on >x +@all", "+OK\r\n").await;
    let mut sub = user(&server, "sub").await;
    sub.ask("ACL SETUSER ann on >topsecret ~a* +get", "+OK\r\n").await;
    sub.ask("acl setuser ann <nosecret", "-ERR Error in ACL SETUSER modifier '<(redacted)': The password you are trying to remove from the user does not exist\r\n").await;
    sub.ask("acl setuser ann #abcsecret", "-ERR Error in ACL SETUSER modifier '#(redacted)': a hash is")
        .await;
    sub.line().await;
    sub.ask("PING", "+PONG\r\n").await;
    // Commands of admins are not shown, and neither are passwords of AUTH.
    for shown in ["\"AUTH\" \"(redacted)\" \"(redacted)\"", "\"PING\""] {
        let line = monitor.line().await;
        assert!(line.ends_with(shown), "{line}");
    }
    root.send("SLOWLOG GET -1\r\nACL LIST\r\nACL GETUSER ann\r\nPING\r\n").await;
    let mut lines = 0;
    loop {
        let line = root.line().await;
        assert!(!line.contains("secret") && !line.contains("argon"), "{line}");
        lines += 1;
        if line == "+PONG" {
            break;
        }
    }
    assert!(lines > 30);
}

#[tokio::test]
async fn a_file_is_saved_and_loaded_whole_or_not_at_all() {
    let (server, path, _directory) = with_file(&[("ann", &[Right::Read])]).await;
    let mut root = user(&server, "root").await;
    root.ask("ACL SETUSER bob on >x ~b* +@all -@dangerous", "+OK\r\n").await;
    root.ask("ACL LOAD", "+OK\r\n").await;
    root.ask("ACL USERS", "*2\r\n$3\r\nann\r\n$4\r\nroot\r\n").await;
    root.ask("ACL SETUSER bob on >x ~b* +@all -@dangerous", "+OK\r\n").await;
    root.ask("ACL SAVE", "+OK\r\n").await;
    root.ask("ACL DELUSER bob ann", ":2\r\n").await;
    root.ask("ACL LOAD", "+OK\r\n").await;
    root.ask("ACL USERS", "*3\r\n$3\r\nann\r\n$3\r\nbob\r\n$4\r\nroot\r\n").await;
    let mut bob = user(&server, "bob").await;
    bob.ask("SET b1 1", "+OK\r\n").await;
    bob.ask("KEYS *", "-NOPERM this user has no permissions to run the 'keys' command\r\n").await;
    // A start and a reload by signal accept the saved file.
    server.control.reload().unwrap();
    bob.ask("GET b1", "$1\r\n1\r\n").await;
    let saved = std::fs::read_to_string(&path).unwrap();
    for (text, what) in [
        (saved.replace("rights = [\"read\"]", "rights = [\"fly\"]"), "line 5: unknown variant"),
        (
            saved.replace("-@dangerous", "-@dangrous"),
            "user bob: commands: -@dangrous: Unknown command or category",
        ),
        (saved.replace("~b*", "b*"), "user bob: keys: b*: Syntax error"),
    ] {
        assert_ne!(text, saved, "{what}");
        std::fs::write(&path, text).unwrap();
        root.send("ACL LOAD\r\n").await;
        let error = root.line().await;
        assert!(error.starts_with("-ERR cannot use the users in ") && error.contains(what), "{error}");
        assert!(
            error.ends_with(
                ". WARNING: ACL errors detected, no change to the previously active ACL rules was performed"
            ),
            "{error}"
        );
        bob.ask("GET b1", "$1\r\n1\r\n").await;
    }
    std::fs::remove_dir_all(path.parent().unwrap()).unwrap();
    root.send("ACL SAVE\r\n").await;
    let error = root.line().await;
    assert!(error.starts_with("-ERR There was an error trying to save the ACLs: "), "{error}");
}

/// As in redis-server: the server does not check whether any user remains who could undo the change.
#[tokio::test]
async fn client_closing_server_to_all_keeps_its_connection() {
    let server = Running::start(plain()).await;
    let mut client = server.client().await;
    client.ask("ACL SETUSER default off", "+OK\r\n").await;
    server.client().await.ask("PING", "-NOAUTH Authentication required.\r\n").await;
    client.ask("ACL SETUSER default on >x", "+OK\r\n").await;
    let mut other = server.client().await;
    other.ask("PING", "-NOAUTH Authentication required.\r\n").await;
    other.ask("AUTH x", "+OK\r\n").await;
    client.ask("ACL SETUSER default nopass", "+OK\r\n").await;
    server.client().await.ask("PING", "+PONG\r\n").await;
    other.ask("PING", "+PONG\r\n").await;
    client.ask("ACL SETUSER default reset", "+OK\r\n").await;
    client.ask("PING", "-NOPERM this user has no permissions to run the 'ping' command\r\n").await;
}

/// Commands that access keys without naming them respect the user's databases, and the other commands the user's keys.
#[tokio::test]
async fn databases_and_keys_are_kept_from_who_may_run_everything() {
    let (server, _, _directory) = with_file(&[]).await;
    let mut root = user(&server, "root").await;
    root.ask("SET a 0", "+OK\r\n").await;
    root.ask("ACL SETUSER ann on >x ~* &* +@all databases=1,2", "+OK\r\n").await;
    let mut ann = user(&server, "ann").await;
    for (line, database) in
        [("FLUSHALL", 0), ("FLUSHDB", 0), ("SWAPDB 1 0", 0), ("SELECT 3", 3), ("DBSIZE", 0)]
    {
        let refused = format!("-NOPERM this user has no permissions to access database {database}\r\n");
        ann.ask(line, &refused).await;
    }
    for line in ["SELECT 1", "SET b 1", "SWAPDB 1 2", "SELECT 2", "FLUSHDB"] {
        ann.ask(line, "+OK\r\n").await;
    }
    root.ask("GET a", "$1\r\n0\r\n").await;
    root.ask("ACL SETUSER ann databases=*", "+OK\r\n").await;
    // Keys named by commands must match the user's patterns.
    root.ask("ACL SETUSER ann resetkeys ~b*", "+OK\r\n").await;
    ann.ask("SELECT 0", "+OK\r\n").await;
    ann.ask("GET a", "-NOPERM this user has no permissions to access one of the keys used as arguments\r\n")
        .await;
    ann.ask("FLUSHALL", "+OK\r\n").await;
    root.ask("DBSIZE", ":0\r\n").await;
}

/// Runs ACL DRYRUN for every command and a user. Returns for each name whether the right to the command is present.
async fn allowed(stream: &mut BufStream<TcpStream>, names: &[String], name: &str) -> BTreeMap<String, bool> {
    let mut found = BTreeMap::new();
    for command in names {
        let asked = command.replace('|', " ");
        let words = asked.split(' ').count();
        let mut said = String::new();
        // Adds arguments until their number is accepted.
        for arguments in 0..6 {
            let more = " 1".repeat(arguments);
            said = exchange(stream, &format!("ACL DRYRUN {name} {asked}{more}")).await;
            if !said.contains("wrong number of arguments") && !said.contains("unknown subcommand") {
                break;
            }
            assert!(words + arguments < 8, "{command}: {said}");
        }
        if !said.contains("not found") && !said.starts_with("-ERR") {
            found.insert(command.clone(), !said.contains("permissions to run the"));
        }
    }
    found
}

/// Returns the names of all commands and subcommands.
async fn names(stream: &mut BufStream<TcpStream>) -> Vec<String> {
    let listed = exchange(stream, "COMMAND LIST").await;
    listed
        .split("\\r\\n")
        .filter(|word| word.starts_with(|c: char| c.is_ascii_lowercase()))
        .map(str::to_owned)
        .collect()
}

#[tokio::test]
async fn rules_allow_the_commands_that_they_allow_in_redis() {
    let Some(redis) = Redis::start().await else {
        eprintln!("SKIPPED: there is no redis-server 7.0 on this machine");
        return;
    };
    let server = Running::start(plain()).await;
    let connect = async |address| BufStream::new(TcpStream::connect(address).await.unwrap());
    let (mut theirs, mut ours) = (connect(redis.address).await, connect(server.resp[0]).await);
    let names = names(&mut ours).await;
    assert!(names.len() > 150);
    let categories = exchange(&mut ours, "ACL CAT").await;
    let categories =
        categories.split("\\r\\n").filter(|word| !word.starts_with(['*', '$']) && !word.is_empty());
    let one_each: Vec<_> =
        categories.flat_map(|of| [format!("-@all +@{of}"), format!("+@all -@{of}")]).collect();
    let mixed = [
        "+@all",
        "-@all",
        "-@all +@read +@write +@connection",
        "+@all -@dangerous +info +config|get",
        "+@all -@write +set -@string +get",
        "-@all +config -config|set +client|list +script|load",
        "-@all +@read -@keyspace +keys allcommands nocommands +get +acl +memory -memory|usage",
        "-@all +object|encoding +hset +@hash +@pubsub -psubscribe",
    ];
    let rules = one_each.iter().map(String::as_str).chain(mixed);
    for rule in rules {
        for stream in [&mut theirs, &mut ours] {
            assert_eq!(
                exchange(stream, &format!("ACL SETUSER u on ~* &* {rule}")).await,
                "+OK\\r\\n",
                "{rule}"
            );
        }
        let expected = allowed(&mut theirs, &names, "u").await;
        let mut found = allowed(&mut ours, &names, "u").await;
        assert!(expected.len() > 140, "{}", expected.len());
        // Commands that Redis lacks, or lacked in this version.
        found.retain(|name, _| expected.contains_key(name));
        let differs: Vec<_> = expected.iter().filter(|(name, may)| found.get(*name) != Some(may)).collect();
        assert!(differs.is_empty(), "{rule}: {differs:?}");
    }
}

/// The rules shown by ACL LIST create an equal user.
#[tokio::test]
async fn acl_list_rules_recreate_an_equal_user() {
    use Right::{Admin, Monitor, Read, Write};
    let kinds: &[(&str, &[Right])] = &[
        ("r", &[Read]),
        ("w", &[Write]),
        ("m", &[Monitor]),
        ("rw", &[Read, Write]),
        ("rm", &[Read, Monitor]),
        ("wm", &[Write, Monitor]),
        ("rwm", &[Read, Write, Monitor]),
        ("a", &[Admin]),
    ];
    let (server, _, _directory) = with_file(kinds).await;
    let mut root = BufStream::new(TcpStream::connect(server.resp[0]).await.unwrap());
    exchange(&mut root, "AUTH root x").await;
    let names = names(&mut root).await;
    let listed = exchange(&mut root, "ACL LIST").await;
    for (name, _) in kinds {
        let rules = listed.split("\\r\\n").find_map(|line| line.strip_prefix(&format!("user {name} ")));
        let rules = rules.expect("it is listed");
        assert_eq!(exchange(&mut root, &format!("ACL SETUSER copy reset {rules}")).await, "+OK\\r\\n");
        let of_right = allowed(&mut root, &names, name).await;
        assert!(of_right.len() > 170);
        assert_eq!(allowed(&mut root, &names, "copy").await, of_right, "{rules}");
        let again = exchange(&mut root, "ACL LIST").await;
        assert!(again.contains(&format!("user copy {rules}\\r\\n")), "{again}");
    }
}

/// An MGET whose reply exceeds the backlog is answered in parts.
#[tokio::test]
async fn command_already_answering_finishes_after_losing_rights() {
    let (server, _, _directory) = with_file(&[]).await;
    let payload = vec![b'x'; 400_000];
    let keys: Vec<String> = (0..100).map(|number| format!("a{number}")).collect();
    for key in &keys {
        server.store.put(key.clone(), payload.clone()).await.unwrap();
    }
    server.store.put("b", "last").await.unwrap();
    let mut root = user(&server, "root").await;
    root.ask("ACL SETUSER ann on >x ~* +@read", "+OK\r\n").await;
    for before in ["", "GET b\r\n"] {
        let mut ann = user(&server, "ann").await;
        ann.send(format!("{before}MGET {}\r\nGET b\r\n", keys.join(" "))).await;
        ann.expect(if before.is_empty() { "*100\r\n" } else { "$4\r\nlast\r\n*100\r\n" }).await;
        // The reply waits for the client to read.
        root.send("ACL SETUSER ann resetkeys ~b*\r\n").await;
        assert_eq!(root.line().await, "+OK");
        for _ in &keys {
            ann.expect([b"$400000\r\n", &payload[..], b"\r\n"].concat()).await;
        }
        ann.expect("$4\r\nlast\r\n").await;
        root.ask("ACL SETUSER ann ~*", "+OK\r\n").await;
    }
}

#[tokio::test]
async fn connection_after_reset_is_not_listed_as_its_user() {
    let (server, _, _directory) = with_file(&[("ann", &[Right::Read])]).await;
    let (mut root, mut ann) = (user(&server, "root").await, user(&server, "ann").await);
    ann.send("MULTI\r\nRESET\r\n").await;
    ann.expect("+OK\r\n+RESET\r\n").await;
    let list = root.text("CLIENT LIST").await;
    assert!(!list.contains("user=ann") && list.contains("user=root"), "{list}");
    assert!(!list.contains("multi=0"), "{list}");
    root.ask("CLIENT KILL USER ann", ":0\r\n").await;
}
