//! Scripts: their access, their limits, and the service of other clients meanwhile.

use std::time::{Duration, Instant};

use esker_server::{Access, Config, Limits, Right, UserEntry, UserFile};
use tokio::time::{sleep, timeout};

use crate::client::{Client, PATIENCE, Running, command, limited, plain};

/// Starts a server that allows scripts little time and little memory.
async fn strict() -> Running {
    let limits =
        Limits { script_time: Duration::from_millis(300), script_bytes_max: 4 << 20, ..Limits::default() };
    Running::start(limited(limits)).await
}

/// Runs a script. Returns the first line of its reply.
async fn eval(client: &mut Client, script: &str, keys: &[&str]) -> String {
    let count = keys.len().to_string();
    let words: Vec<_> = ["EVAL", script, &count].iter().chain(keys).map(ToString::to_string).collect();
    client.send(command(&words)).await;
    client.line().await
}

#[tokio::test]
async fn a_script_works_on_the_keys_that_it_declares() {
    let server = Running::start(plain()).await;
    let mut client = server.client().await;
    let refused = "-ERR Script attempted to access a non declared key: 'b' (Esker runs a script over the keys that it \
                   declares: pass it in KEYS) script: ";
    for script in ["return redis.call('get','b')", "return redis.call('rename',KEYS[1],'b')"] {
        let answer = eval(&mut client, script, &["a"]).await;
        assert!(answer.starts_with(refused), "{answer}");
    }
    assert_eq!(eval(&mut client, "return redis.call('set','a',1)", &["a"]).await, "+OK");
    // In a transaction, a script may not access the keys of other commands.
    client.ask("MULTI", "+OK\r\n").await;
    client.ask("SET b 1", "+QUEUED\r\n").await;
    client.ask("EVAL \"return redis.call('get','b')\" 1 a", "+QUEUED\r\n").await;
    client.ask("EVAL \"return redis.call('get',KEYS[1])\" 1 b", "+QUEUED\r\n").await;
    client.send("EXEC\r\n").await;
    client.expect("*3\r\n+OK\r\n").await;
    assert!(client.line().await.starts_with(refused));
    client.expect("$1\r\n1\r\n").await;
    for (script, name) in [("return redis.call('scan',0)", "scan"), ("return redis.call('info')", "info")] {
        let answer = eval(&mut client, script, &[]).await;
        assert!(
            answer.starts_with("-ERR This Redis command is not allowed from script script: "),
            "{name}: {answer}"
        );
    }
}

/// Lua 5.1 hashes each third byte of these, so each is compared with all before it.
fn words_of_one_hash(count: usize) -> Vec<String> {
    let places: Vec<usize> = (0..66).filter(|at| (65 - at) % 3 > 0).take(8).collect();
    let word = |number: usize| {
        let mut word = [b'a'; 66];
        places.iter().enumerate().for_each(|(digit, at)| word[*at] += (number >> (4 * digit)) as u8 & 15);
        String::from_utf8(word.to_vec()).unwrap()
    };
    (0..count).map(word).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn arguments_of_one_hash_count_as_time_of_the_script() {
    let limits = Limits { script_time: Duration::from_millis(1), ..Limits::default() };
    let server = Running::start(limited(limits)).await;
    let mut client = server.client().await;
    // The script itself has too few instructions to be stopped. Its strings take 100 ms.
    let words: Vec<String> = ["EVAL", "return #ARGV", "0"].into_iter().map(str::to_owned).collect();
    client.send(command(&[words, words_of_one_hash(20_000)].concat())).await;
    let line = client.line().await;
    assert!(line.starts_with("-ERR Script ended: it ran for more than 1ms (script-time-limit)"), "{line}");
    client.ask("EVAL \"return #ARGV\" 0 a b", ":2\r\n").await;
}

#[tokio::test]
async fn a_transaction_with_scripts_is_one() {
    let server = Running::start(plain()).await;
    let mut client = server.client().await;
    let long = "local n = 0 for i = 1, 200000 do n = redis.call('incr',KEYS[1]) end return n";
    client.ask("SET n 5", "+OK\r\n").await;
    // Exceeds a first attempt, whose effects are discarded.
    assert_eq!(eval(&mut client, long, &["n"]).await, ":200005");
    assert_eq!(eval(&mut client, long, &["n"]).await, ":400005");
    client.ask("WATCH n", "+OK\r\n").await;
    client.ask("MULTI", "+OK\r\n").await;
    client.ask("INCR n", "+QUEUED\r\n").await;
    client.ask(&format!("EVAL \"{long}\" 1 n"), "+QUEUED\r\n").await;
    client.ask("INCR n", "+QUEUED\r\n").await;
    client.ask("EXEC", "*3\r\n:400006\r\n:600006\r\n:600007\r\n").await;
    client.ask("WATCH n", "+OK\r\n").await;
    let mut other = server.client().await;
    assert_eq!(eval(&mut other, "return redis.call('incr',KEYS[1])", &["n"]).await, ":600008");
    client.ask("MULTI", "+OK\r\n").await;
    client.ask("EVAL \"return redis.call('set',KEYS[1],0)\" 1 n", "+QUEUED\r\n").await;
    client.ask("EXEC", "*-1\r\n").await;
    client.ask("GET n", "$6\r\n600008\r\n").await;
    // Settings changed by a script do not affect the next one.
    client.ask("MULTI", "+OK\r\n").await;
    client.ask("EVAL \"cjson.encode_max_depth(1) return 1\" 0", "+QUEUED\r\n").await;
    client.ask("EVAL \"return cjson.encode({{{}}})\" 0", "+QUEUED\r\n").await;
    client.ask("EXEC", "*2\r\n:1\r\n$6\r\n[[{}]]\r\n").await;
    // Also in a pipeline.
    let piped = "SET p 1\r\nEVAL \"return redis.call('incr',KEYS[1])\" 1 p\r\nINCR p\r\nEVAL \"return 'x'\" 0\r\nGET p\r\n";
    client.send(piped).await;
    client.expect("+OK\r\n:2\r\n:3\r\n$1\r\nx\r\n$1\r\n3\r\n").await;
}

#[tokio::test]
async fn one_script_leaves_nothing_for_the_next() {
    let server = Running::start(plain()).await;
    let mut client = server.client().await;
    let remains = [
        ("table.insert(string,'left') return 1", "return tostring(string[1])"),
        ("table.insert(_G,'left') return 1", "return type(next(_G))"),
        ("local m = getmetatable('') m.__index = nil return 1", "return ('x'):rep(3)"),
        (
            "getmetatable(_G).__index = function() return 5 end return 1",
            "return tostring(pcall(function() return y end))",
        ),
        ("KEYS.left = 1 ARGV.left = 1 return 1", "return tostring(KEYS.left) .. tostring(ARGV.left)"),
        ("local f = redis.call redis.sha1hex = f return 1", "return redis.sha1hex('')"),
        ("cjson.encode_max_depth(1) return 1", "return cjson.encode({{{}}})"),
        ("redis.setresp(3) return 1", "return tostring(redis.call('get',KEYS[1]))"),
        ("collectgarbage('stop') return 1", "return tostring(collectgarbage('count') > 0)"),
    ];
    for (leave, look) in remains {
        let _ = eval(&mut client, leave, &["none"]).await;
        assert!(eval(&mut client, look, &["none"]).await.starts_with('$'), "{look}");
        let found = client.line().await;
        assert!(
            ["nil", "xxx", "false", "nilnil", "da39a3ee5e6b4b0d3255bfef95601890afd80709", "[[{}]]", "true"]
                .contains(&&*found),
            "after {leave}: {found}"
        );
    }
}

/// Scripts that try to run forever, exhaust memory, or crash the server.
const HOSTILE: [&str; 37] = [
    "while true do end",
    "while true do pcall(function() while true do end end) end",
    "while true do pcall(error) end",
    "local function f() pcall(f) return f() end f()",
    "while true do local co = coroutine.create(function() while true do end end) coroutine.resume(co) end",
    "local function f() return coroutine.wrap(f)() end f()",
    "local function f() coroutine.resume(coroutine.create(f)) end while true do f() end",
    "while true do xpcall(function() error('x') end, function(e) while true do end end) end",
    "repeat until false",
    "for i = 1, 1e18 do end",
    "return string.rep('x', 1e9)",
    "return string.rep('x', 2^31)",
    "while true do pcall(string.rep, 'x', 1e9) end",
    "local s = 'x' while true do s = s .. s end",
    "local t = {} while true do t[#t+1] = string.rep('x', 1000) end",
    "local t = {} for i = 1, 1e9 do t[i] = i end",
    "local function f() return 1 + f() end return f()",
    "local function f() return pcall(f) end return f() and string.rep('x', 1e9)",
    "return string.find(string.rep('a', 50000), string.rep('.-', 20) .. 'b')",
    "return string.match(string.rep('a', 100000), '.-.-.-.-b')",
    "return string.find(string.rep('a', 300), string.rep('a?', 300) .. string.rep('a', 301))",
    "return string.gsub(string.rep('x', 100000), 'x', string.rep('y', 100000))",
    "local t = {} t[1] = t return cjson.encode(t)",
    "return cjson.decode(string.rep('[', 1000000))",
    "return cmsgpack.unpack(string.rep('\\145', 1000000))",
    "return string.format('%s', string.rep('x', 1e8))",
    "return table.concat({1}, 'x', 1, 2^31 - 1)",
    "return unpack({}, 1, 1e7)",
    "local s = string.rep('x', 1000000) local t = {} for i = 1, 1000 do t[i] = s end return t",
    "return loadstring(string.rep('(', 100000))() or x",
    // Tables that contain themselves twice at each level.
    "local t = {} t.map = {a = t, b = t} return t",
    "local t, s = {}, {} t.set = s s[t] = 1 s[{set = s}] = 1 return t",
    "local t = {} for i = 1, 100000 do t[i] = t end return t",
    "return string.find(string.rep('x', 100000), '[' .. string.rep('a', 1000000) .. ']')",
    "for w in string.gmatch(string.rep('x', 100000), '%f[' .. string.rep('a', 1000000) .. ']') do end",
    "local p = '[' .. string.rep('a', 1000000) while true do pcall(string.find, 'x', p) end",
    "local s = string.rep('x', 1000000) while true do redis.sha1hex(s) end",
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hostile_scripts_end_with_errors_while_others_are_served() {
    let server = strict().await;
    let mut honest = server.client().await;
    honest.ask("SET key value", "+OK\r\n").await;
    let (mut slowest, mut served) = (Duration::ZERO, 0_u64);
    for script in HOSTILE {
        let mut hostile = server.client().await;
        hostile.send(command(&["EVAL", script, "1", "own"])).await;
        let answered = timeout(PATIENCE, hostile.line());
        let mut answered = std::pin::pin!(answered);
        let answer = loop {
            let began = Instant::now();
            honest.ask("GET key", "$5\r\nvalue\r\n").await;
            slowest = slowest.max(began.elapsed());
            served += 1;
            tokio::select! {
                biased;
                answer = &mut answered => break answer,
                () = sleep(Duration::from_millis(1)) => {}
            }
        };
        let answer = answer.unwrap_or_else(|_| panic!("{script} does not end"));
        assert!(answer.starts_with("-ERR "), "{script}: {answer}");
        // The interpreter still works.
        let mut next = server.client().await;
        assert_eq!(
            eval(&mut next, "return redis.call('set',KEYS[1],1)", &["own"]).await,
            "+OK",
            "after {script}"
        );
    }
    assert!(served > 500, "{served}");
    assert!(slowest < Duration::from_secs(1), "{slowest:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_endless_scripts_at_once_leave_others_alone() {
    let server = strict().await;
    let mut hostile = Vec::new();
    for number in 0..8 {
        let mut client = server.client().await;
        client.send(command(&["EVAL", "while true do end", "1", &format!("own{number}")])).await;
        hostile.push(client);
    }
    let mut honest = server.client().await;
    for number in 0..50 {
        let began = Instant::now();
        honest.ask(&format!("SET key{number} value"), "+OK\r\n").await;
        assert!(began.elapsed() < Duration::from_secs(1));
    }
    for mut client in hostile {
        let line = timeout(PATIENCE, client.line()).await.unwrap();
        assert!(
            line.starts_with("-ERR Script ended: it ran for more than 300ms (script-time-limit) script: "),
            "{line}"
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn script_kill_ends_what_has_not_written() {
    let server = Running::start(plain()).await;
    let (mut client, mut other) = (server.client().await, server.client().await);
    other.ask("SCRIPT KILL", "-NOTBUSY No scripts in execution right now.\r\n").await;
    client.send(command(&["EVAL", "while true do pcall(function() while true do end end) end", "0"])).await;
    let killed = async {
        loop {
            other.send("SCRIPT KILL\r\n").await;
            match &*other.line().await {
                "+OK" => break,
                busy => assert!(busy.starts_with("-NOTBUSY"), "{busy}"),
            }
            sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(PATIENCE, killed).await.unwrap();
    let line = client.line().await;
    assert!(line.starts_with("-ERR Script killed by user with SCRIPT KILL... script: "), "{line}");

    let writes = "redis.call('set',KEYS[1],'kept') while redis.call('time') do end";
    let mut strict = strict().await.client().await;
    strict.send(command(&["EVAL", writes, "1", "key"])).await;
    let line = strict.line().await;
    assert!(line.starts_with("-ERR Script ended: it ran for more than 300ms"), "{line}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn script_that_has_written_is_unkillable_and_keeps_its_write() {
    let server = strict().await;
    let (mut client, mut other) = (server.client().await, server.client().await);
    let mut unkillable = 0;
    // On a loaded machine a kill may come before the write, or none while the script runs.
    for _ in 0..50 {
        client
            .send(command(&["EVAL", "redis.call('set',KEYS[1],'kept') while true do end", "1", "key"]))
            .await;
        let line = loop {
            other.send("SCRIPT KILL\r\n").await;
            unkillable += usize::from(other.line().await.starts_with("-UNKILLABLE"));
            tokio::select! {
                line = client.line() => break line,
                () = sleep(Duration::from_millis(10)) => {}
            }
        };
        if unkillable > 0 {
            assert!(line.starts_with("-ERR Script ended: it ran for more than 300ms"), "{line}");
            break;
        }
    }
    assert!(unkillable > 0);
    client.ask("GET key", "$4\r\nkept\r\n").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn scripts_of_a_transaction_share_their_time() {
    let server = strict().await;
    let mut client = server.client().await;
    client.ask("MULTI", "+OK\r\n").await;
    client.ask("SET key value", "+QUEUED\r\n").await;
    let endless = "EVAL \"while true do end\" 1 key\r\n".repeat(2000);
    client.send(endless).await;
    client.expect("+QUEUED\r\n".repeat(2000)).await;
    let began = Instant::now();
    client.send("EXEC\r\n").await;
    client.expect("*2001\r\n+OK\r\n").await;
    for _ in 0..2000 {
        let line = client.line().await;
        assert!(
            line.starts_with("-ERR Script ended: it ran for more than 300ms (script-time-limit)"),
            "{line}"
        );
    }
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    client.ask("GET key", "$5\r\nvalue\r\n").await;
}

#[tokio::test]
async fn memory_of_scripts_is_bounded() {
    let server = strict().await;
    let mut client = server.client().await;
    let keys: Vec<String> = (0..100).map(|number| format!("k{number}")).collect();
    let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
    let writes =
        "local s = string.rep('x', 100000) for i = 1, #KEYS do redis.call('set',KEYS[i],s) end return 1";
    let line = eval(&mut client, writes, &keys).await;
    assert!(
        line.starts_with("-ERR the script writes values of more than 2097152 bytes (script-memory) script: "),
        "{line}"
    );
    assert_eq!(eval(&mut client, writes, &keys[..20]).await, ":1");
    let answers = "local s = string.rep('x', 100000) local t = {} for i = 1, 100 do t[i] = s end return t";
    let line = eval(&mut client, answers, &[]).await;
    assert_eq!(line, "-ERR cannot answer: it would take more than 2097152 bytes");
    // The same string very often, which exceeds the script's memory in total.
    let called = "local s = string.rep('x', 100000) local t = {} for i = 1, 1000 do t[i] = s end \
                  return redis.call('echo', unpack(t))";
    let line = eval(&mut client, called, &[]).await;
    assert!(
        line.starts_with("-ERR a command has more than 2162688 bytes (script-memory) script: "),
        "{line}"
    );
    let unpacked = "return #{struct.unpack(string.rep('i0', 500000), '')}";
    let line = eval(&mut client, unpacked, &[]).await;
    assert!(line.contains("stack overflow (too many results)"), "{line}");
    // Loaded scripts stay until their user loads more than fits.
    let mut loaded = Vec::new();
    for number in 0..20 {
        let script = format!("return {number} -- {}", "x".repeat(500_000));
        client.send(command(&["SCRIPT", "LOAD", &script])).await;
        client.skip_line().await;
        loaded.push(client.line().await);
    }
    client.send(format!("SCRIPT EXISTS {}\r\n", loaded.join(" "))).await;
    client.expect(format!("*20\r\n{}{}", ":0\r\n".repeat(4), ":1\r\n".repeat(16))).await;
    client.ask("EVAL \"return 5\" 0", ":5\r\n").await;
    client.ask("SCRIPT FLUSH", "+OK\r\n").await;
    client.ask("SCRIPT LOAD \"return 5\"", "$40\r\n4ca238f611c9d0ae4e9a75a5dbac22aedc379801\r\n").await;
}

#[tokio::test]
async fn scripts_have_the_rights_of_who_runs_them() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("users.toml");
    let mut file = UserFile::default();
    let rights =
        [("ann", vec![Right::Read, Right::Write]), ("bob", vec![Right::Read]), ("eve", vec![Right::Monitor])];
    for (name, rights) in rights {
        let mut entry = UserEntry { rights, prefixes: vec!["app:".into()], ..UserEntry::default() };
        entry.set_password("x").expect("there are random numbers");
        file.set(name, entry).unwrap();
    }
    file.write(&path).unwrap();
    let access = Access { users: Some(path), ..Access::default() };
    let server = Running::start(Config { access, ..plain() }).await;
    let (mut ann, mut bob) = (server.client().await, server.client().await);
    ann.ask("EVAL \"return 1\" 0", "-NOAUTH Authentication required.\r\n").await;
    ann.ask("AUTH ann x", "+OK\r\n").await;
    bob.ask("AUTH bob x", "+OK\r\n").await;
    assert_eq!(eval(&mut ann, "return redis.call('set',KEYS[1],'v')", &["app:a"]).await, "+OK");
    let no_key = "-NOPERM this user has no permissions to access one of the keys used as arguments";
    assert_eq!(eval(&mut ann, "return 1", &["other"]).await, no_key);
    let no_eval = "-NOPERM this user has no permissions to run the 'eval' command";
    assert_eq!(eval(&mut bob, "return 1", &["app:a"]).await, no_eval);
    bob.ask("EVAL_RO \"return redis.call('get',KEYS[1])\" 1 app:a", "$1\r\nv\r\n").await;
    bob.ask("EVAL_RO \"return redis.call('get',KEYS[1])\" 1 other", &format!("{no_key}\r\n")).await;
    let refused = "-ERR The user executing the script can't run this command or subcommand script: ";
    bob.send(command(&["EVAL_RO", "return redis.call('set',KEYS[1],1)", "1", "app:a"])).await;
    let line = bob.line().await;
    assert!(line.starts_with(refused), "{line}");
    // Loading scripts needs the right to read; the right to monitor is not enough.
    let loaded = "$40\r\ne0e1f9fabfc9d4800c877a703b823ac0578ff8db\r\n";
    bob.ask("SCRIPT LOAD \"return 1\"", loaded).await;
    let mut eve = server.client().await;
    eve.ask("AUTH eve x", "+OK\r\n").await;
    let no_load = "-NOPERM this user has no permissions to run the 'script|load' command\r\n";
    eve.ask("SCRIPT LOAD \"return 2\"", no_load).await;
    for word in ["flush", "kill"] {
        let no_right = format!("-NOPERM this user has no permissions to run the 'script|{word}' command\r\n");
        ann.ask(&format!("SCRIPT {word}"), &no_right).await;
    }
}
