//! Information for admins about users and commands: ACL and MONITOR.

use std::net::SocketAddr;

use esker_server::{Access, Config, Limits, Right, UserEntry, UserFile};
use tokio::net::TcpStream;

use crate::client::{Client, Running, command, limited, plain};
use crate::redis::Redis;

/// Starts a server with three users, all with the password `x`. Returns it with its directory.
async fn with_users() -> (Running, tempfile::TempDir) {
    let (server, directory, _) = with_users_file().await;
    (server, directory)
}

/// As [`with_users`], and returns the users file as well.
async fn with_users_file() -> (Running, tempfile::TempDir, UserFile) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("users.toml");
    let mut file = UserFile::default();
    let app = vec!["app:".into(), "a*".into()];
    for (name, rights, prefixes) in [
        ("ann", vec![Right::Read, Right::Write], app),
        ("bob", vec![Right::Read, Right::Monitor], Vec::new()),
        ("root", vec![Right::Admin], Vec::new()),
    ] {
        let mut entry = UserEntry { rights, prefixes, ..UserEntry::default() };
        entry.set_password("x").expect("there are random numbers");
        file.set(name, entry).unwrap();
    }
    file.write(&path).unwrap();
    let access = Access { users: Some(path), ..Access::default() };
    (Running::start(Config { access, ..plain() }).await, directory, file)
}

async fn user(server: &Running, name: &str) -> Client {
    let mut client = server.client().await;
    client.ask(&format!("AUTH {name} x"), "+OK\r\n").await;
    client
}

#[tokio::test]
async fn admins_see_what_users_may() {
    let (server, _directory) = with_users().await;
    let (mut root, mut ann) = (user(&server, "root").await, user(&server, "ann").await);
    let bulk = |text: &str| format!("${}\r\n{text}\r\n", text.len());
    let told = |commands: &str, keys: &str, channels: &str| {
        let (commands, keys, channels) = (bulk(commands), bulk(keys), bulk(channels));
        format!(
            "*12\r\n$5\r\nflags\r\n*1\r\n$2\r\non\r\n$9\r\npasswords\r\n*0\r\n$8\r\ncommands\r\n{commands}$4\r\nkeys\r\n\
             {keys}$8\r\nchannels\r\n{channels}$9\r\nselectors\r\n*0\r\n"
        )
    };
    let of_ann = "-@all +@connection +@transaction +@read +@write +@pubsub +@scripting +object +function +pubsub +cluster \
             -flushall -flushdb +info +role -swapdb +time +memory +acl|cat +acl|genpass +acl|help +acl|whoami \
             -client|kill -client|list -client|pause -client|unblock -client|unpause -script|flush -script|kill";
    root.ask("ACL GETUSER ann", &told(of_ann, "~app:* ~a\\**", "&app:* &a\\**")).await;
    root.ask("ACL GETUSER root", &told("+@all", "~*", "&*")).await;
    root.ask("ACL GETUSER nobody", "$-1\r\n").await;
    root.ask("ACL LOG", "*0\r\n").await;
    for subcommand in ["getuser ann", "dryrun ann get a", "log", "list", "users"] {
        let name = subcommand.split(' ').next().unwrap();
        let refused = format!("-NOPERM this user has no permissions to run the 'acl|{name}' command\r\n");
        ann.ask(&format!("ACL {subcommand}"), &refused).await;
    }
    let no_key = bulk("This user has no permissions to access the 'b' key");
    let no_channel = bulk("This user has no permissions to access the 'b' channel");
    let no_pattern = bulk("This user has no permissions to access the '*' channel");
    let no_verb = |name: &str| bulk(&format!("This user has no permissions to run the '{name}' command"));
    for (asked, said) in [
        ("ann get app:1", "+OK\r\n"),
        ("ann set a*1 x", "+OK\r\n"),
        ("ann get b", &*no_key),
        ("ann mget app:1 b", &no_key),
        ("ann publish app:1 x", "+OK\r\n"),
        ("ann publish b x", &no_channel),
        ("ann psubscribe app:*", "+OK\r\n"),
        ("ann psubscribe *", &no_pattern),
        ("ann flushall", &no_verb("flushall")),
        ("ann script flush", &no_verb("script|flush")),
        ("bob get anything", "+OK\r\n"),
        ("bob set a 1", &no_verb("set")),
        ("root flushall", "+OK\r\n"),
        ("ann get", "-ERR wrong number of arguments for 'get' command\r\n"),
        ("ann lpush a 1", "-ERR Command 'lpush' not found\r\n"),
        ("nobody get a", "-ERR User 'nobody' not found\r\n"),
    ] {
        root.ask(&format!("ACL DRYRUN {asked}"), said).await;
    }
    root.ask("EXISTS app:1", ":0\r\n").await;
    let passwords = [root.text("ACL GENPASS").await, root.text("ACL GENPASS 5").await];
    assert_eq!(passwords.each_ref().map(String::len), [64, 2]);
    assert_ne!(root.text("ACL GENPASS").await, passwords[0]);
}

/// Returns the entries of ACL LOG, newest first: count, reason, context, object and user. Checks the other fields.
async fn refused(admin: &mut Client, count: usize) -> Vec<String> {
    admin.send(format!("ACL LOG {count}\r\n")).await;
    let entries: usize = admin.line().await[1..].parse().unwrap();
    let mut found = Vec::new();
    for _ in 0..entries {
        assert_eq!(admin.line().await, "*20");
        let mut fields = Vec::new();
        for name in [
            "count",
            "reason",
            "context",
            "object",
            "username",
            "age-seconds",
            "client-info",
            "entry-id",
            "timestamp-created",
            "timestamp-last-updated",
        ] {
            admin.skip_line().await;
            assert_eq!(admin.line().await, name);
            let value = admin.line().await;
            fields.push(match value.strip_prefix(':') {
                Some(number) => number.to_owned(),
                None => admin.line().await,
            });
        }
        assert!((0.0..30.0).contains(&fields[5].parse::<f64>().unwrap()), "{fields:?}");
        assert!(fields[6].contains(" addr=127.0.0.1:") && fields[6].starts_with("id="), "{fields:?}");
        assert!(fields[8].len() == 13 && fields[8] <= fields[9], "{fields:?}");
        found.push(fields[..5].join(" "));
    }
    found
}

/// Equal to redis-server 7.0 with users of the same rights, except for the database.
#[tokio::test]
async fn acl_log_lists_refused_commands_keys_and_logins() {
    let (server, _directory) = with_users().await;
    let mut root = user(&server, "root").await;
    let mut ann = server.client().await;
    for line in ["auth ann bad", "HELLO 3 AUTH ann worse", "AUTH nobody x"] {
        ann.ask(line, "-WRONGPASS invalid username-password pair or user is disabled.\r\n").await;
    }
    // Refusals before a login are not logged.
    ann.ask("GET b", "-NOAUTH Authentication required.\r\n").await;
    ann.ask("AUTH ann x", "+OK\r\n").await;
    for line in ["GET b", "get b", "MGET app:1 c", "PUBLISH b x", "SUBSCRIBE app:1 d", "FLUSHALL"] {
        ann.send(format!("{line}\r\n")).await;
        assert!(ann.line().await.starts_with("-NOPERM"), "{line}");
    }
    for line in ["CONFIG GET x", "ACL LOG", "CLIENT LIST", "SCRIPT FLUSH"] {
        ann.send(format!("{line}\r\n")).await;
        assert!(ann.line().await.starts_with("-NOPERM"), "{line}");
    }
    ann.ask("MULTI", "+OK\r\n").await;
    ann.send("GET c\r\n").await;
    assert!(ann.line().await.starts_with("-NOPERM"));
    ann.ask("DISCARD", "+OK\r\n").await;
    ann.send(command(&["EVAL", "return redis.call('lastsave')", "0"])).await;
    assert!(ann.line().await.starts_with("-ERR"));
    let found = refused(&mut root, 50).await;
    let expected = [
        "1 command lua lastsave ann",
        "1 key multi c ann",
        "1 command toplevel script|flush ann",
        "1 command toplevel client|list ann",
        "1 command toplevel acl|log ann",
        "1 command toplevel config|get ann",
        "1 command toplevel flushall ann",
        "1 channel toplevel d ann",
        "1 channel toplevel b ann",
        "1 key toplevel c ann",
        "2 key toplevel b ann",
        "1 auth toplevel AUTH nobody",
        "1 auth toplevel HELLO ann",
        "1 auth toplevel auth ann",
    ];
    assert_eq!(found, expected);
    assert_eq!(refused(&mut root, 2).await.len(), 2);
    assert_eq!(refused(&mut root, 0).await.len(), 0);
    root.ask("ACL LOG -1", "*0\r\n").await;
    root.ask("CONFIG SET acllog-max-len 3", "+OK\r\n").await;
    assert_eq!(refused(&mut root, 50).await, expected[..3]);
    root.ask("ACL LOG RESET", "+OK\r\n").await;
    root.ask("ACL LOG", "*0\r\n").await;
}

/// A script that exceeds the memory of a first attempt (1 MiB) runs again, beside the serving threads.
#[tokio::test]
async fn repeated_script_logs_each_refusal_once() {
    let (server, _directory) = with_users().await;
    let mut root = user(&server, "root").await;
    let mut ann = user(&server, "ann").await;
    let script = |comment: &str| {
        let calls = "redis.pcall('lastsave') redis.pcall('lastsave') redis.pcall('publish', 'b', 'x')";
        command(&["EVAL", &format!("{calls} return #string.rep('x', 2097152) -- {comment}"), "0"])
    };
    ann.send(script("alone")).await;
    assert_eq!(ann.line().await, ":2097152");
    assert_eq!(refused(&mut root, 50).await, ["1 channel lua b ann", "2 command lua lastsave ann"]);
    ann.ask("MULTI", "+OK\r\n").await;
    for comment in ["first", "second"] {
        ann.send(script(comment)).await;
        assert_eq!(ann.line().await, "+QUEUED");
    }
    ann.send("EXEC\r\n").await;
    let answer = [ann.line().await, ann.line().await, ann.line().await];
    assert_eq!(answer, ["*2", ":2097152", ":2097152"]);
    assert_eq!(refused(&mut root, 50).await, ["3 channel lua b ann", "6 command lua lastsave ann"]);
}

/// Commands of a user, most of them refused. Each has a reply of one line.
const SAID: &[&str] = &[
    "GET b",
    "auth ann bad",
    "AUTH nobody x",
    "HELLO 3 AUTH ann worse",
    "AUTH bad",
    "AUTH ann x",
    "GET b",
    "get b",
    "GET b c",
    "MGET app:1 c",
    "mget c",
    "SET d 1",
    "SET app:1 1 GET",
    "SET e 1 GET",
    "COPY app:1 b",
    "COPY c app:1",
    "OBJECT ENCODING f",
    "MEMORY USAGE f",
    "PFCOUNT app:1 g",
    "EVAL \"return 1\" 2 app:1 h",
    "EVAL \"return 1\" x h",
    "EVAL \"return redis.call('lastsave')\" 0",
    "EVAL \"return redis.pcall('config', 'get', 'x')\" 0",
    "PUBLISH b x",
    "SPUBLISH b x",
    "SUBSCRIBE app:1 d",
    "SSUBSCRIBE d",
    "PSUBSCRIBE *",
    "CONFIG GET x",
    "CONFIG FOO x",
    "CONFIG GET",
    "config set a b",
    "CONFIG HELP",
    "CLIENT LIST",
    "CLIENT KILL ID 1",
    "CLIENT KILL",
    "CLIENT PAUSE 1",
    "ACL LOG",
    "ACL GETUSER",
    "acl getuser ann",
    "ACL DRYRUN ann get a",
    "SCRIPT FLUSH",
    "script kill",
    "SLOWLOG GET",
    "slowlog reset",
    "LATENCY RESET",
    "MONITOR",
    "LASTSAVE",
    "BGSAVE",
    "SHUTDOWN NOSAVE",
    "FLUSHALL",
    "FLUSHDB",
    "SWAPDB 0 1",
    "FOO b",
    "MULTI",
    "GET i",
    "CONFIG GET y",
    "EXEC",
];

/// Returns the replies to these commands, and the resulting log: the first five fields of each entry.
async fn refusals(address: SocketAddr) -> Vec<String> {
    let connect = async || Client(TcpStream::connect(address).await.unwrap());
    let (mut ann, mut root) = (connect().await, connect().await);
    let mut found = Vec::new();
    for line in SAID {
        ann.send(format!("{line}\r\n")).await;
        found.push(format!("{line}: {}", ann.line().await));
    }
    root.ask("AUTH root x", "+OK\r\n").await;
    root.send("ACL LOG 100\r\n").await;
    let entries: usize = root.line().await[1..].parse().unwrap();
    for _ in 0..entries {
        let fields: usize = root.line().await[1..].parse().unwrap();
        let mut entry = Vec::new();
        for _ in 0..fields / 2 {
            root.skip_line().await;
            let name = root.line().await;
            let value = root.line().await;
            let value = if value.starts_with('$') { root.line().await } else { value };
            entry.push(format!("{name}={value}"));
        }
        found.push(entry[..5].join(" "));
    }
    found
}

#[tokio::test]
async fn the_log_of_acl_is_that_of_a_redis_server() {
    let Some(redis) = Redis::start().await else {
        eprintln!("SKIPPED: there is no redis-server 7.0 on this machine");
        return;
    };
    let mut setup = Client(TcpStream::connect(redis.address).await.unwrap());
    let of_ann = r"on >x ~app:* ~a\** &app:* &a\** -@all +@connection +@transaction +@read +@write +@pubsub";
    let less = "+@scripting -script|flush -script|kill -@admin -@dangerous";
    for rules in ["root on >x ~* &* +@all", &format!("ann {of_ann} {less}"), "default off"] {
        setup.ask(&format!("ACL SETUSER {rules}"), "+OK\r\n").await;
    }
    let (server, _directory) = with_users().await;
    let (theirs, ours) = (refusals(redis.address).await, refusals(server.resp[0]).await);
    let differs: Vec<_> = theirs.iter().zip(&ours).filter(|(theirs, ours)| theirs != ours).collect();
    assert!(differs.is_empty() && theirs.len() == ours.len(), "{differs:#?}");
}

#[tokio::test]
async fn monitors_see_commands_without_secrets() {
    let (server, _directory) = with_users().await;
    let mut ann = user(&server, "ann").await;
    ann.ask("MONITOR", "-NOPERM this user has no permissions to run the 'monitor' command\r\n").await;
    let mut monitor = user(&server, "root").await;
    monitor.ask("MONITOR", "+OK\r\n").await;
    let peer = ann.0.local_addr().unwrap();
    let mut shown = async |line: &str| {
        let found = monitor.line().await;
        let (time, found) = found.split_once(' ').unwrap();
        let (seconds, rest) = time.split_once('.').unwrap();
        assert!(seconds.starts_with("+1") && seconds.len() == 11 && rest.len() == 6, "{time}");
        assert_eq!(found, format!("[0 {peer}] {line}"));
    };
    ann.ask("AUTH ann x", "+OK\r\n").await;
    shown("\"AUTH\" \"(redacted)\" \"(redacted)\"").await;
    ann.send(command(&[b"sEt".as_slice(), b"app:1", b"\"\\\r\n\t\x07\x08\xff "])).await;
    ann.expect("+OK\r\n").await;
    shown(r#""sEt" "app:1" "\"\\\r\n\t\a\b\xff ""#).await;
    ann.ask("GET other", "-NOPERM").await;
    assert!(ann.line().await.starts_with(" this user"));
    ann.send("GET app:1\r\nGET app:2\r\nSTRLEN app:2\r\n").await;
    for line in ["\"GET\" \"app:1\"", "\"GET\" \"app:2\"", "\"STRLEN\" \"app:2\""] {
        shown(line).await;
    }
    ann.expect("$9\r\n\"\\\r\n\t\x07\x08").await;
    assert_eq!(ann.0.peer_addr().unwrap(), server.resp[0]);
    let mut ann = user(&server, "ann").await;
    let skipped = monitor.line().await;
    assert!(skipped.ends_with("\"AUTH\" \"(redacted)\" \"(redacted)\""), "{skipped}");
    let peer = ann.0.local_addr().unwrap();
    let mut shown = async |line: &str| {
        assert!(monitor.line().await.ends_with(&format!("[0 {peer}] {line}")), "{line}");
    };
    ann.send("MULTI\r\nSET app:1 1\r\nDISCARD\r\nMULTI\r\nSET app:1 2\r\nEXEC\r\n").await;
    for line in ["\"MULTI\"", "\"DISCARD\"", "\"MULTI\"", "\"SET\" \"app:1\" \"2\"", "\"EXEC\""] {
        shown(line).await;
    }
    let long = "y".repeat(2000);
    ann.send(format!("SET app:1 {long}\r\n")).await;
    shown(&format!("\"SET\" \"app:1\" \"{}... (976 more bytes)\"", &long[..1024])).await;
    // Commands of admins are not shown, some of which are subcommands.
    let mut other = user(&server, "root").await;
    let of_other = monitor.line().await;
    assert!(of_other.ends_with("\"AUTH\" \"(redacted)\" \"(redacted)\""), "{of_other}");
    other.ask("CLIENT KILL ID 999999", ":0\r\n").await;
    other.ask("SLOWLOG RESET", "+OK\r\n").await;
    other.ask("CLIENT GETNAME", "$-1\r\n").await;
    let of_other = monitor.line().await;
    assert!(of_other.ends_with("\"CLIENT\" \"GETNAME\""), "{of_other}");
    // A monitor may run commands, sees its own, and is an ordinary client after RESET.
    monitor.ask("GET none", "$-1\r\n").await;
    assert!(monitor.line().await.ends_with("\"GET\" \"none\""));
    monitor.ask("RESET", "+RESET\r\n").await;
    monitor.ask("AUTH root x", "+OK\r\n").await;
    ann.send("GET app:1\r\n").await;
    monitor.expect_nothing().await;
}

#[tokio::test]
async fn a_monitor_that_does_not_read_is_dropped() {
    let limits = Limits { backlog_bytes_hard: 1 << 20, backlog_bytes_max: 64 << 10, ..Limits::default() };
    let server = Running::start(limited(limits)).await;
    let (mut monitor, mut client) = (server.client().await, server.client().await);
    monitor.ask("MONITOR", "+OK\r\n").await;
    let value = "z".repeat(1000);
    for _ in 0..40 {
        client.send(format!("SET k {value}\r\n").repeat(500)).await;
        client.expect("+OK\r\n".repeat(500)).await;
    }
    client.ask("PING", "+PONG\r\n").await;
    let clients = client.text("CLIENT LIST").await;
    assert_eq!(clients.lines().count(), 1, "{clients}");
}

#[tokio::test]
async fn rights_lost_at_reload_end_monitor_and_paused_command() {
    let (server, directory, mut file) = with_users_file().await;
    let (mut root, mut ann) = (user(&server, "root").await, user(&server, "ann").await);
    let mut monitor = user(&server, "root").await;
    monitor.ask("MONITOR", "+OK\r\n").await;
    root.ask("CLIENT PAUSE 60000", "+OK\r\n").await;
    ann.send("SET app:1 x\r\n").await;
    ann.expect_nothing().await;
    for name in ["ann", "root"] {
        let mut entry = file.users()[name].clone();
        entry.rights = vec![Right::Read];
        file.set(name, entry).unwrap();
    }
    file.write(&directory.path().join("users.toml")).unwrap();
    server.control.reload().unwrap();
    root.ask(
        "CLIENT UNPAUSE",
        "-NOPERM this user has no permissions to run the 'client|unpause' command\r\n",
    )
    .await;
    loop {
        let line = monitor.line().await;
        if line.starts_with('-') {
            break assert!(line.contains("lost rights that it used"), "{line}");
        }
    }
    monitor.expect_end().await;
    let mut server = server;
    server.ask_to_stop();
    // The stop ends the pause.
    ann.expect("-NOPERM this user has no permissions to run the 'set' command\r\n").await;
    server.stopped().await;
}
