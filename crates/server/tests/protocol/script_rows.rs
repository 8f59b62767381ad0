//! Consecutive scripts of a pipeline: they have the same replies and effects as if run one by one, and form one update.

use std::time::Duration;

use esker_server::Limits;
use tokio::io::AsyncReadExt;
use tokio::time::timeout;

use crate::client::{Client, PATIENCE, Running, command, limited, plain};
use crate::frames::Frames;

const SET: &str = "return redis.call('set',KEYS[1],ARGV[1])";
const GET: &str = "return redis.call('get',KEYS[1])";
const DELETE_IF: &str =
    "if redis.call('get',KEYS[1]) == ARGV[1] then return redis.call('del',KEYS[1]) else return 0 end";
const COUNT: &str = "return redis.call('incr',KEYS[1])";

/// Exceeds the time of a first attempt, with writes before that.
const LONG: &str = "redis.call('publish','told','x') for i = 1, 60000 do redis.call('incr',KEYS[1]) end \
                    return redis.call('get',KEYS[1])";

/// Scripts with two keys and an argument whose replies do not depend on the time.
const SCRIPTS: [&str; 22] = [
    SET,
    GET,
    DELETE_IF,
    "redis.call('set',KEYS[1],ARGV[1]) return redis.call('get',KEYS[2])",
    "redis.call('append',KEYS[1],ARGV[1]) return redis.call('mget',KEYS[1],KEYS[2])",
    "redis.call('set',KEYS[1],ARGV[1]) return redis.call('incr',KEYS[1])",
    "redis.call('del',KEYS[1]) error('after a write')",
    "redis.call('set',KEYS[2],'kept') return redis.call('get','undeclared')",
    "local e = redis.pcall('incr',KEYS[1]) if type(e) == 'table' then return e.err end return e",
    "redis.call('set',KEYS[1],ARGV[1]) return redis.error_reply('MINE is said')",
    "redis.call('publish','told',ARGV[1]) return redis.call('exists',KEYS[1],KEYS[2])",
    "redis.call('rename',KEYS[1],KEYS[2]) return redis.status_reply('moved')",
    "redis.call('select',1) redis.call('set',KEYS[1],ARGV[1]) return redis.call('get',KEYS[2])",
    "table.insert(_G,'left') KEYS[1] = 'left' ARGV.left = 1 return type(table)",
    "return {tostring(_G[1]), KEYS[1], ARGV[1], tostring(ARGV.left), #KEYS}",
    "redis.setresp(3) return redis.call('get',KEYS[1])",
    "return {1, 2.9, 'x', false, true, {ok='fine'}, cjson.decode('[1,{\"a\":2}]')}",
    "return redis.call('dbsize')",
    "redis.call('set',KEYS[1],string.rep('x',20000)) return redis.call('strlen',KEYS[1])",
    "return x",
    "cjson.encode_max_depth(1) redis.setresp(3) return cjson.encode({1})",
    "return {pcall(cjson.encode, {{{1}}})}",
];

/// Pseudo-random numbers, the same in every run.
struct Mix(u64);

impl Mix {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }
}

/// Returns commands, most of them scripts, with few keys.
fn conversation(seed: u64, commands: usize) -> Vec<Vec<u8>> {
    let mut mix = Mix(seed);
    let mut sent = Vec::new();
    while sent.len() < commands {
        let (key, other) = (format!("k{}", mix.below(4)), format!("k{}", mix.below(4)));
        let value = ["1", "7", "v", "other"][mix.below(4) as usize];
        let script = SCRIPTS[mix.below(SCRIPTS.len() as u64) as usize];
        match mix.below(40) {
            0 => sent.push(command(&["SET", &key, value])),
            1 => sent.push(command(&["GET", &key])),
            2 => sent.push(command(&["EVALSHA", &"0".repeat(40), "1", &key])),
            3 => sent.push(command(&["EVAL", GET, "5", &key])),
            4 => sent.push(command(&["EVAL_RO", script, "2", &key, &other, value])),
            5 => {
                let script =
                    command(&["EVAL", script, "2", &key, &other, value]).repeat(mix.below(4) as usize);
                sent.push([command(&["MULTI"]), script, command(&["EXEC"])].concat());
            }
            6 => sent.push(command(&[
                "EVAL",
                "for i = 1, 3000 do redis.call('append',KEYS[1],'y') end return 1",
                "1",
                &key,
            ])),
            7 => sent.push(command(&["SELECT", ["0", "1"][mix.below(2) as usize]])),
            _ => sent.push(command(&["EVAL", script, "2", &key, &other, value])),
        }
    }
    sent
}

/// Sends commands to a server, `at_a_time` at once. Returns the replies, the events and messages that it publishes, and the final
/// values of its keys.
async fn outcome(sent: &[Vec<u8>], at_a_time: usize) -> (Vec<u8>, Vec<String>, Vec<u8>) {
    let server = Running::start(plain()).await;
    let mut client = server.client().await;
    client.ask("CONFIG SET notify-keyspace-events KEA", "+OK\r\n").await;
    let mut listener = Frames::connect(server.resp[0]).await;
    listener.send("PSUBSCRIBE __keyevent* told end").await;
    for _ in 0..3 {
        listener.next().await;
    }
    let mut answers = Vec::new();
    for some in sent.chunks(at_a_time) {
        client.send(some.concat()).await;
        client.send(command(&["ECHO", "<end>"])).await;
        answers.extend(until_end(&mut client).await);
    }
    client.send(command(&["PUBLISH", "end", "x"])).await;
    let mut told = Vec::new();
    while told.last().is_none_or(|text: &String| !text.contains(" end ")) {
        told.push(listener.next().await.text());
    }
    client.skip_line().await;
    for database in ["0", "1"] {
        client.send(command(&["SELECT", database])).await;
        client.send(command(&["MGET", "k0", "k1", "k2", "k3", "undeclared"])).await;
    }
    client.send(command(&["ECHO", "<end>"])).await;
    let kept = until_end(&mut client).await;
    (answers, told, kept)
}

/// Returns the bytes before the reply to `ECHO <end>`.
async fn until_end(client: &mut Client) -> Vec<u8> {
    const END: &[u8] = b"$5\r\n<end>\r\n";
    let mut found = Vec::new();
    while !found.ends_with(END) {
        let mut buffer = [0; 64 << 10];
        let bytes = timeout(PATIENCE, client.0.read(&mut buffer)).await.expect("answers come").unwrap();
        assert!(bytes > 0, "the server ended the connection after {}", found.escape_ascii());
        found.extend_from_slice(&buffer[..bytes]);
    }
    found.truncate(found.len() - END.len());
    found
}

#[tokio::test]
async fn scripts_of_a_pipeline_do_what_they_do_one_by_one() {
    let seeds = match std::env::var("ESKER_SEED") {
        Ok(seed) => vec![seed.parse().unwrap()],
        Err(_) => (0..6).collect::<Vec<u64>>(),
    };
    for seed in seeds {
        println!("replay with ESKER_SEED={seed}");
        let sent = conversation(seed, 200);
        let (answers, told, kept) = outcome(&sent, 1).await;
        for at_a_time in [7, sent.len()] {
            let (of_pipeline, told_of_pipeline, kept_of_pipeline) = outcome(&sent, at_a_time).await;
            let same = answers.iter().zip(&of_pipeline).take_while(|(one, other)| one == other).count();
            let shown = |bytes: &[u8]| bytes[same..(same + 200).min(bytes.len())].escape_ascii().to_string();
            assert!(
                answers == of_pipeline,
                "{at_a_time} at a time, from byte {same}: {} instead of {}",
                shown(&of_pipeline),
                shown(&answers)
            );
            assert_eq!(told, told_of_pipeline, "{at_a_time} at a time");
            assert_eq!(kept, kept_of_pipeline, "{at_a_time} at a time");
        }
    }
}

/// Returns the command that runs a script with one key and an argument.
fn eval(script: &str, key: &str, argument: &str) -> Vec<u8> {
    command(&["EVAL", script, "1", key, argument])
}

/// Returns a client of a server with all scripts of these tests loaded.
async fn knowing(server: &Running) -> Client {
    let mut client = server.client().await;
    for script in [SET, GET, DELETE_IF, COUNT, LONG] {
        client.send(command(&["SCRIPT", "LOAD", script])).await;
        client.skip_line().await;
        client.skip_line().await;
    }
    client
}

#[tokio::test]
async fn scripts_of_row_share_frames_written_before_answers() {
    let server = Running::start(plain()).await;
    let mut client = knowing(&server).await;
    client.ask("CLIENT DURABILITY sync", "+OK\r\n").await;
    // A row ends when others wait for its thread, which depends on the load of the machine. So most scripts must share frames in
    // one of many rounds, which scripts with an update of their own never do.
    let mut fewest = usize::MAX;
    for time in 0..500 {
        let before = server.store.stats().activity.frames;
        let scripts: Vec<u8> =
            (0..20).flat_map(|number| eval(SET, &format!("{time} {number}"), "v")).collect();
        client.send(scripts).await;
        client.expect("+OK\r\n".repeat(20)).await;
        let frames = server.store.stats().activity.frames - before;
        assert!((1..=20).contains(&frames), "{frames} frames");
        fewest = fewest.min(frames as usize);
        // The bytes of a client may arrive in several pieces.
        if fewest < 5 {
            return;
        }
    }
    panic!("20 scripts never took fewer than {fewest} frames");
}

#[tokio::test]
async fn scripts_of_a_row_see_what_those_before_them_wrote() {
    let server = Running::start(plain()).await;
    let mut client = knowing(&server).await;
    let row = [
        eval(SET, "lock", "a"),
        eval(DELETE_IF, "lock", "b"),
        eval(GET, "lock", ""),
        eval(DELETE_IF, "lock", "a"),
        eval(GET, "lock", ""),
        eval(COUNT, "n", ""),
        eval(COUNT, "n", ""),
        eval(COUNT, "n", ""),
    ];
    client.send(row.concat()).await;
    client.expect("+OK\r\n:0\r\n$1\r\na\r\n:1\r\n$-1\r\n:1\r\n:2\r\n:3\r\n").await;
    client.ask("MGET lock n", "*2\r\n$-1\r\n$1\r\n3\r\n").await;
    // A database selected by one script does not affect the next one.
    let choose = command(&["EVAL", "return redis.call('select',1)", "0"]);
    let count = command(&["EVAL", "return redis.call('dbsize')", "0"]);
    for time in ["first", "again"] {
        client.send([choose.clone(), count.clone(), eval(SET, "here", time)].concat()).await;
        let known = if time == "first" { 1 } else { 2 };
        client.expect(format!("+OK\r\n:{known}\r\n+OK\r\n")).await;
        client.ask("GET here", &format!("$5\r\n{time}\r\n")).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn script_of_row_that_takes_too_long_restarts_by_itself() {
    let server = Running::start(plain()).await;
    let mut client = knowing(&server).await;
    client.ask("CONFIG RESETSTAT", "+OK\r\n").await;
    let mut listener = server.client().await;
    listener.ask("SUBSCRIBE told", "*3\r\n$9\r\nsubscribe\r\n$4\r\ntold\r\n:1\r\n").await;
    let row = [eval(COUNT, "n", ""), eval(LONG, "n", ""), eval(COUNT, "n", ""), eval(SET, "m", "v")];
    client.send(row.concat()).await;
    client.expect(":1\r\n$5\r\n60001\r\n:60002\r\n+OK\r\n").await;
    // Discarded effects are neither published nor counted.
    listener.expect("*3\r\n$7\r\nmessage\r\n$4\r\ntold\r\n$1\r\nx\r\n").await;
    listener.expect_nothing().await;
    let stats = client.text("INFO commandstats").await;
    assert!(stats.contains("cmdstat_incr:calls=60002,"), "{stats}");
    assert!(stats.contains("cmdstat_eval:calls=4,"), "{stats}");

    let limits = Limits { script_time: Duration::from_millis(100), ..Limits::default() };
    let server = Running::start(limited(limits)).await;
    let mut client = knowing(&server).await;
    let endless = "redis.call('set',KEYS[1],'kept') while true do end";
    let row = [eval(COUNT, "n", ""), eval(endless, "end", ""), eval(COUNT, "n", ""), eval(GET, "end", "")];
    for times in [1, 2] {
        client.send(row.concat()).await;
        client.expect(format!(":{}\r\n", 2 * times - 1)).await;
        let line = client.line().await;
        assert!(
            line.starts_with("-ERR Script ended: it ran for more than 100ms (script-time-limit)"),
            "{line}"
        );
        client.expect(format!(":{}\r\n$4\r\nkept\r\n", 2 * times)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn script_kill_ends_one_script_of_a_row() {
    let server = Running::start(plain()).await;
    let (mut client, mut other) = (knowing(&server).await, server.client().await);
    let row = [eval(COUNT, "n", ""), eval("while true do end", "n", ""), eval(COUNT, "n", "")];
    client.send(row.concat()).await;
    let killed = async {
        loop {
            other.send("SCRIPT KILL\r\n").await;
            match &*other.line().await {
                "+OK" => break,
                busy => assert!(busy.starts_with("-NOTBUSY"), "{busy}"),
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(PATIENCE, killed).await.unwrap();
    client.expect(":1\r\n").await;
    let line = client.line().await;
    assert!(line.starts_with("-ERR Script killed by user with SCRIPT KILL... script: "), "{line}");
    client.expect(":2\r\n").await;
}

#[tokio::test]
async fn others_see_all_of_a_script_or_nothing() {
    let server = Running::start(plain()).await;
    let mut client = knowing(&server).await;
    let both = "redis.call('incr',KEYS[1]) return redis.call('incr',KEYS[2])";
    let row = command(&["EVAL", both, "2", "a", "b"]).repeat(50);
    let mut reader = server.client().await;
    let write = async {
        for _ in 0..20 {
            client.send(&row).await;
            for _ in 0..50 {
                client.skip_line().await;
            }
        }
    };
    let read = async {
        let look = command(&[
            "EVAL_RO",
            "return redis.call('get',KEYS[1]) == redis.call('get',KEYS[2])",
            "2",
            "a",
            "b",
        ]);
        for _ in 0..300 {
            reader.send(&look).await;
            reader.expect(":1\r\n").await;
        }
    };
    tokio::join!(write, read);
    client.ask("MGET a b", "*2\r\n$4\r\n1000\r\n$4\r\n1000\r\n").await;
}
