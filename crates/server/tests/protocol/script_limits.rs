//! Scripts with slow single calls: compiling, library functions, and commands after scripts in transactions.

use std::time::Duration;

use esker_server::Limits;
use tokio::time::{sleep, timeout};

use crate::client::{PATIENCE, Running, command, limited, plain};

/// Returns a text whose number of jumps takes Lua 5.1 minutes to link.
fn many_jumps() -> String {
    format!("while true do {} end return 1", "do break end ".repeat(65_000))
}

#[tokio::test]
async fn script_with_too_many_jumps_is_refused_at_every_compile() {
    let server = Running::start(plain()).await;
    let mut client = server.client().await;
    let refused =
        "the script has 65000 of the words 'and', 'break', 'elseif' and 'or', more than 4096: split it";
    for words in [&["EVAL", &many_jumps(), "0"][..], &["SCRIPT", "LOAD", &many_jumps()]] {
        client.send(command(words)).await;
        let line = client.line().await;
        assert!(
            line.starts_with("-ERR Error compiling script (new function): ") && line.contains(refused),
            "{line}"
        );
    }
    client.ask("MULTI", "+OK\r\n").await;
    client.send(command(&["SCRIPT", "LOAD", &many_jumps()])).await;
    client.expect("+QUEUED\r\n").await;
    client.send("SCRIPT LOAD \"return 1\"\r\nEXEC\r\n").await;
    client.expect("+QUEUED\r\n*2\r\n").await;
    let line = client.line().await;
    assert!(line.contains(refused), "{line}");
    client.expect("$40\r\ne0e1f9fabfc9d4800c877a703b823ac0578ff8db\r\n").await;
    let within = "local s = 'while true do ' .. ('do break end '):rep(65000) .. ' end' \
                  local f, why = loadstring(s) return why";
    client.send(command(&["EVAL", within, "0"])).await;
    client.skip_line().await;
    let line = client.line().await;
    assert!(line.contains(refused), "{line}");
}

/// Scripts with library calls so slow that the hook alone, which checks every 1,000 instructions, would end them after minutes or
/// hours. In the second one, names are compared with the locals of 60 enclosing functions.
const SLOW_CALLS: [&str; 4] = [
    "local s = 'while true do ' .. ('do break end '):rep(100000) .. ' end' while true do loadstring(s) end",
    "local locals = 'local a' .. (',a'):rep(190) .. ' return function() ' \
     local s = locals:rep(60) .. ('b=b '):rep(200000) .. ('end '):rep(60) while true do loadstring(s) end",
    "local t = {} for i = 1, 60000 do t[i] = (i * 7919) % 60013 end while true do table.sort(t, rawequal) table.sort(t) end",
    "local s = ('<'):rep(3000000) while true do struct.size(s) end",
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn script_kill_and_stop_end_scripts_in_slow_library_calls() {
    let limits = Limits { script_time: Duration::from_secs(3600), ..Limits::default() };
    for (number, script) in SLOW_CALLS.into_iter().enumerate() {
        let mut server = Running::start(limited(limits.clone())).await;
        let (mut client, mut other) = (server.client().await, server.client().await);
        client.send(command(&["EVAL", script, "1", "held"])).await;
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
        assert!(line.starts_with("-ERR Script killed by user with SCRIPT KILL..."), "{number}: {line}");
        other.ask("SET held 1", "+OK\r\n").await;
        // The stop of the server ends the same script even after a write, which is discarded.
        let wrote = format!("redis.call('set',KEYS[1],2) {script}");
        client.send(command(&["EVAL", &wrote, "1", "held"])).await;
        let running = async {
            loop {
                other.send("SCRIPT KILL\r\n").await;
                if other.line().await.starts_with("-UNKILLABLE") {
                    break;
                }
                sleep(Duration::from_millis(5)).await;
            }
        };
        timeout(PATIENCE, running).await.unwrap();
        server.ask_to_stop();
        let line = client.line().await;
        assert!(line.starts_with("-ERR Script ended: the server stops"), "{number}: {line}");
        let store = server.store.clone();
        server.stopped().await;
        assert_eq!(&store.get(b"held").await.unwrap().unwrap()[..], b"1", "{number}");
    }
}

#[tokio::test]
async fn large_script_is_compiled_and_runs() {
    let server = Running::start(plain()).await;
    let mut client = server.client().await;
    // Sizes of job queue libraries, and the maximum size of a script.
    let cases = [
        (1000, "local a = ARGV[1] or 'x' if a == 'y' then return 0 end "),
        (12_000, "t[#t + 1] = {name = 'x', value = 1.5, rest = 'and or break elseif '} "),
    ];
    for (lines, text) in cases {
        // In blocks, because the number of locals in a function is limited.
        let body = format!("local t = {{}} {} return #t", format!("do {text} end ").repeat(lines));
        for _ in 0..2 {
            client.send(command(&["EVAL", &body, "0", "z"])).await;
            let line = client.line().await;
            assert!(line.starts_with(':'), "{line}");
        }
    }
}

#[tokio::test]
async fn scripts_publish_to_shard_channels_that_are_no_keys() {
    let server = Running::start(plain()).await;
    let mut client = server.client().await;
    client.send(command(&["EVAL", "return redis.call('spublish','ch','m')", "0"])).await;
    client.expect(":0\r\n").await;
}

#[tokio::test]
async fn lcs_behind_a_script_takes_what_its_values_take() {
    // A slow machine gives scripts the memory of a second attempt, which must fit beside the LCS.
    let limits = Limits {
        client_bytes_max: 32 << 20,
        connection_bytes_max: 16 << 20,
        script_bytes_max: 1 << 20,
        ..Limits::default()
    };
    let server = Running::start(limited(limits)).await;
    let mut client = server.client().await;
    client.ask("MSET a x b y", "+OK\r\n").await;
    client.send("MULTI\r\nEVAL \"return 1\" 1 a\r\nLCS a b\r\nEXEC\r\n").await;
    client.expect("+OK\r\n+QUEUED\r\n+QUEUED\r\n*2\r\n:1\r\n$0\r\n\r\n").await;
    // A script with larger writes is run again with more memory; the transaction is refused if that exceeds the limit.
    let writes = |bytes: usize| {
        format!("redis.call('set',KEYS[1],('x'):rep({bytes})) return redis.call('incr',KEYS[2])")
    };
    for (bytes, fits) in [(2000, true), (50_000, false)] {
        client.send("MULTI\r\n").await;
        client.send(command(&["EVAL", &writes(bytes), "2", "a", "n"])).await;
        client.send("LCS a a LEN\r\nEXEC\r\n").await;
        client.expect("+OK\r\n+QUEUED\r\n+QUEUED\r\n").await;
        match fits {
            true => client.expect(format!("*2\r\n:1\r\n:{bytes}\r\n")).await,
            false => {
                let line = client.line().await;
                assert!(line.starts_with("-EXECABORT "), "{line}");
            }
        }
    }
    client.ask("GET n", "$1\r\n1\r\n").await;
}
