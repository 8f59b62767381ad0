//! Unusual arguments: the replies are compared with redis-server byte for byte.
//!
//! Every command whose reply does not depend on the clock or on chance gets argument lists drawn from boundary numbers, options
//! of all commands, and few keys. `ESKER_SEED=n` replays or varies a run; a failure prints its seed.

use tokio::io::{AsyncWriteExt, BufStream};
use tokio::net::TcpStream;

use crate::client::{Running, command, plain};
use crate::redis::{Redis, exchange, read_reply};

/// Number of lists per command and protocol version.
const LISTS: usize = 30;

/// Excluded commands: those that end or block a connection, depend on the clock, the machine or chance, or are known to differ as
/// a whole, for example because redis-server lacks them. `docs/compatibility.md` gives the reasons.
const LEFT_OUT: &[&str] = &[
    "acl",
    "asking",
    "bgsave",
    "client",
    "cluster",
    "command",
    "debug",
    "device",
    "dump",
    "function",
    "hello",
    "info",
    "lastsave",
    "latency",
    "memory",
    "module",
    "monitor",
    "object",
    "psubscribe",
    "pttl",
    "punsubscribe",
    "quit",
    "randomkey",
    "readonly",
    "readwrite",
    "reset",
    "scan",
    "shutdown",
    "slowlog",
    "ssubscribe",
    "subscribe",
    "sunsubscribe",
    "time",
    "ttl",
    "unsubscribe",
    "wait",
    "waitaof",
];

/// Commands that set an expiry, possibly a short one: their key is one that is restored afterwards.
const EXPIRING: &[&str] =
    &["expire", "expireat", "getex", "pexpire", "pexpireat", "psetex", "restore", "set", "setex"];

/// Commands that extend a value to a given length, which may exceed the limit of values here.
const GROWING: &[&str] = &["bitfield", "setbit", "setrange"];

const NUMBERS: &[&str] = &[
    "0",
    "1",
    "-1",
    "2",
    "3",
    "5",
    "10",
    "-5",
    "100",
    "007",
    "+1",
    "-0",
    "1.5",
    "1e3",
    " 1",
    "1 ",
    "9223372036854775807",
    "-9223372036854775808",
    "9223372036854775808",
    "18446744073709551615",
    "18446744073709551616",
    "2147483647",
    "2147483648",
    "-2147483649",
    "4294967296",
    "0x10",
    "inf",
    "nan",
    "\u{7f}",
    "x",
    "a\0b",
];

const KEYS: &[&str] = &["a", "b", "n", "m", "c"];

const WORDS: &[&str] = &[
    "NX",
    "XX",
    "GT",
    "LT",
    "GET",
    "EX",
    "PX",
    "EXAT",
    "PXAT",
    "KEEPTTL",
    "PERSIST",
    "REPLACE",
    "ABSTTL",
    "IDLETIME",
    "FREQ",
    "DB",
    "COUNT",
    "MATCH",
    "TYPE",
    "LEN",
    "IDX",
    "MINMATCHLEN",
    "WITHMATCHLEN",
    "BIT",
    "BYTE",
    "SET",
    "INCRBY",
    "OVERFLOW",
    "WRAP",
    "SAT",
    "FAIL",
    "AND",
    "OR",
    "XOR",
    "NOT",
    "u8",
    "i5",
    "u64",
    "i64",
    "u0",
    "#1",
    "#-1",
    "ASYNC",
    "SYNC",
    "list",
    "*",
    "k*",
    "HELP",
    "FLUSH",
    "LOAD",
    "EXISTS",
    "KILL",
    "CHANNELS",
    "NUMSUB",
    "NUMPAT",
    "foo",
    "hello",
    "YES",
    "NO",
    "ALL",
];

/// Options of commands, by the prefix of the verb.
const OPTIONS: &[(&str, &[&str])] = &[
    ("bitcount", &["BIT", "BYTE"]),
    ("bitfield", &["GET", "SET", "INCRBY", "OVERFLOW", "u8", "i5", "0", "#1", "SAT", "FAIL"]),
    ("bitop", &["AND", "OR", "NOT"]),
    ("bitpos", &["0", "1", "BIT", "BYTE"]),
    ("copy", &["DB", "REPLACE", "0", "1"]),
    ("expire", &["NX", "XX", "GT", "LT"]),
    ("getex", &["EX", "PX", "EXAT", "PXAT", "PERSIST", "100"]),
    ("lcs", &["LEN", "IDX", "MINMATCHLEN", "WITHMATCHLEN"]),
    ("pexpire", &["NX", "XX", "GT", "LT"]),
    ("restore", &["REPLACE", "ABSTTL", "IDLETIME", "FREQ", "1"]),
    ("set", &["NX", "XX", "GET", "EX", "PX", "EXAT", "PXAT", "KEEPTTL", "100"]),
];

/// Pseudo-random numbers from a seed.
struct Dice(u64);

impl Dice {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % end
    }

    fn of(&mut self, choices: &[&'static str]) -> &'static str {
        choices[self.below(choices.len())]
    }

    /// Returns a verb with arguments.
    fn list(&mut self, verb: &str) -> Vec<String> {
        let count = [0, 1, 1, 2, 2, 2, 3, 3, 3, 4, 4, 5, 6][self.below(13)];
        let mut list = vec![verb.to_owned()];
        let options =
            OPTIONS.iter().find(|(begins, _)| verb.starts_with(begins)).map(|(_, options)| *options);
        for at in 0..count {
            list.push(match self.below(20) {
                roll if at == 0 && (roll < 14 || EXPIRING.contains(&verb)) => self.of(KEYS).to_owned(),
                2..13 if at > 1 && options.is_some() => self.of(options.unwrap_or_default()).to_owned(),
                0..9 => self.of(NUMBERS).to_owned(),
                9..13 => self.of(KEYS).to_owned(),
                13..18 => self.of(WORDS).to_owned(),
                _ => self.of(WORDS).to_lowercase(),
            });
        }
        list
    }
}

/// Returns true if a command asks for a value that is longer than the limit of this test.
fn grows_too_far(list: &[String]) -> bool {
    GROWING.contains(&&*list[0])
        && list
            .iter()
            .any(|word| word.trim_start_matches('#').parse().is_ok_and(|number: u64| number > 1 << 20))
}

/// Brings the keys into the same state on both servers.
async fn set_up(stream: &mut BufStream<TcpStream>) {
    for line in ["DISCARD", "UNWATCH", "SELECT 0", "SET a 10", "SET b hello EXAT 32503680000", "DEL n m c"] {
        exchange(stream, line).await;
    }
}

async fn ask(stream: &mut BufStream<TcpStream>, list: &[String]) -> String {
    let words: Vec<_> = list.iter().map(String::as_bytes).collect();
    stream.write_all(&command(&words)).await.unwrap();
    stream.flush().await.unwrap();
    read_reply(stream, &format!("{list:?}")).await
}

#[tokio::test]
async fn odd_arguments_are_answered_as_by_a_redis_server() {
    let Some(redis) = Redis::start().await else {
        eprintln!("SKIPPED: there is no redis-server 7.0 on this machine");
        return;
    };
    let server = Running::start(plain()).await;
    let seed = std::env::var("ESKER_SEED").map_or(1, |seed| seed.parse().expect("ESKER_SEED is a number"));
    let (mut dice, mut differs, mut asked) = (Dice(seed), String::new(), 0);
    let mut theirs = BufStream::new(TcpStream::connect(redis.address).await.unwrap());
    let mut ours = BufStream::new(TcpStream::connect(server.resp[0]).await.unwrap());
    let listed = exchange(&mut ours, "COMMAND LIST").await;
    let verbs: Vec<_> = listed.split("\\r\\n").filter(|word| !word.contains(['$', '*', '|'])).collect();
    for protocol in ["HELLO 2", "HELLO 3"] {
        exchange(&mut theirs, protocol).await;
        exchange(&mut ours, protocol).await;
        for verb in verbs.iter().filter(|verb| !verb.is_empty() && !LEFT_OUT.contains(verb)) {
            for _ in 0..LISTS {
                let list = dice.list(verb);
                if grows_too_far(&list) {
                    continue;
                }
                set_up(&mut theirs).await;
                set_up(&mut ours).await;
                asked += 1;
                let (expected, found) = (ask(&mut theirs, &list).await, ask(&mut ours, &list).await);
                if expected != found {
                    differs += &format!("\n{protocol} {list:?}\n  expected {expected}\n  found    {found}");
                }
            }
        }
    }
    assert!(asked > 50 * LISTS, "hardly anything was asked: {asked} of {verbs:?}");
    assert!(differs.is_empty(), "ESKER_SEED={seed}:{differs}");
}
