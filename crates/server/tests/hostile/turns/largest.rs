//! The largest legal arguments of each verb.

use std::sync::LazyLock;

use super::{ARGUMENTS_MAX, PIPELINE_MAX};

/// Length of a value close to the maximum, in bytes.
const VALUE_BYTES: usize = 15 << 20;

/// Number of commands in a pipeline or a transaction, and number of names for commands without a list of keys.
const COMMANDS: usize = 10_000;
const NAMES_MAX: usize = 1000;

/// Commands of a pipeline that each read a value of [`VALUE_BYTES`], or search the whole index for a key.
const LONG_COMMANDS: usize = 40;

/// Maximum number of keys of a script that fit in its memory.
const SCRIPT_KEYS_MAX: usize = 50_000;

/// Number of sketches to merge.
const SKETCHES: usize = 50;

pub(super) fn command<W: AsRef<[u8]>>(words: &[W]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        let word = word.as_ref();
        bytes.extend(format!("${}\r\n", word.len()).into_bytes());
        bytes.extend_from_slice(word);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes
}

/// Returns a command with further arguments, `most` in total.
fn list(words: &[&str], most: usize, more: impl Fn(usize) -> String) -> Vec<u8> {
    let words = words.iter().map(|word| (*word).to_owned());
    let count = words.len();
    let all: Vec<String> = words.chain((0..most - count).map(more)).collect();
    command(&all)
}

fn keys(words: &[&str]) -> Vec<u8> {
    list(words, ARGUMENTS_MAX, |n| format!("k{n}"))
}

/// Watches the maximum number of keys, all of them absent, so that no value is read.
fn watches() -> Vec<u8> {
    list(&["WATCH"], ARGUMENTS_MAX, |n| format!("absent{n}"))
}

/// A transaction with the maximum number of commands less those of a [`batch`].
fn queue() -> Vec<u8> {
    [command(&["MULTI"]), command(&["PING"]).repeat(ARGUMENTS_MAX - PIPELINE_MAX)].concat()
}

/// A batch of short commands: the commands after it run in a later batch than the commands before it.
fn batch() -> Vec<u8> {
    command(&["PING"]).repeat(PIPELINE_MAX)
}

/// Returns a command with alternating keys and values.
fn pairs(verb: &str) -> Vec<u8> {
    list(&[verb], ARGUMENTS_MAX / 2 * 2 - 1, |n| if n % 2 == 0 { format!("k{n}") } else { "v".to_owned() })
}

fn names(words: &[&str]) -> Vec<u8> {
    list(words, NAMES_MAX, |n| format!("n{n}"))
}

/// Returns a value that compresses to half its length.
fn value() -> &'static [u8] {
    static MADE: LazyLock<Vec<u8>> = LazyLock::new(made_value);
    &MADE
}

fn made_value() -> Vec<u8> {
    let mut state = 1_u64;
    let next = |_| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as u8
    };
    let noise: Vec<u8> = (0..VALUE_BYTES / 2).map(next).collect();
    noise.chunks(64).flat_map(|chunk| [chunk, &[b'x'; 64]].concat()).collect()
}

fn with_value(before: &[&str]) -> Vec<u8> {
    let words: Vec<&[u8]> = before.iter().map(|word| word.as_bytes()).chain([value()]).collect();
    command(&words)
}

fn zeros(verb: &str) -> Vec<u8> {
    command(&[verb, "zeros", &(8 * VALUE_BYTES - 1).to_string(), "0"])
}

fn pipeline(words: &[&str]) -> Vec<u8> {
    command(words).repeat(COMMANDS)
}

fn transaction(commands: &[u8]) -> Vec<u8> {
    [command(&["MULTI"]), commands.to_vec(), command(&["EXEC"])].concat()
}

/// Returns the commands that create the data for all verbs.
pub(super) fn values() -> Vec<Vec<u8>> {
    let sketch = |n: usize| list(&["PFADD", &format!("pf{n}")], 3000, |element| format!("{n}-{element}"));
    let text = |key: &str, of: u8| command(&["SET".as_bytes(), key.as_bytes(), &vec![of; 11_000][..]]);
    vec![
        with_value(&["SET", "big"]),
        [text("l1", b'a'), text("l2", b'b')].concat(),
        (0..SKETCHES).flat_map(sketch).collect(),
        pairs("MSET"),
    ]
}

/// Returns the largest commands of a verb; `None` if the verb is unknown here.
pub(super) fn of(verb: &str) -> Option<Vec<Vec<u8>>> {
    let one = |commands: Vec<u8>| Some(vec![commands]);
    let sketches = |words: &[&str]| list(words, 2000, |n| format!("pf{}", n % SKETCHES));
    let eval = |verb: &str, script: &str, most: usize| {
        list(&[verb, script, &(most - 3).to_string()], most, |n| format!("k{n}"))
    };
    // Unknown scripts are refused after their arguments were read.
    let unknown = "0".repeat(40);
    match verb {
        "append" => {
            one([with_value(&["SET", "a"]), command(&["APPEND", "a", &"x".repeat(900_000)])].concat())
        }
        "get" | "strlen" | "dump" | "getdel" | "getex" | "persist" | "ttl" | "pttl" | "expiretime"
        | "pexpiretime" | "type" => {
            let copy = command(&["COPY", "big", "c", "REPLACE"]);
            Some(vec![[copy, command(&[verb, "c"])].concat(), pipeline(&[verb, "k0"])])
        }
        "incr" | "decr" => one(pipeline(&[verb, "number"])),
        "incrby" | "decrby" => one(pipeline(&[verb, "number", "7"])),
        "incrbyfloat" => {
            let up = [command(&[verb, "float", "1.1e4931"]), command(&[verb, "float", "-1e4931"])].concat();
            let up = up.repeat(250);
            Some(vec![up.clone(), transaction(&up)])
        }
        "getrange" | "substr" => one(command(&[verb, "big", "0", "-1"])),
        "getset" | "setnx" => one(with_value(&[verb, "g"])),
        "lcs" => {
            let long = command(&[verb, "l1", "l2", "IDX"]);
            Some(vec![long.clone(), transaction(&command(&[verb, "l1", "l2", "LEN"]).repeat(6))])
        }
        "mget" | "exists" | "touch" | "watch" => one(keys(&[verb])),
        "unwatch" => Some(vec![pipeline(&[verb]), [watches(), batch(), command(&[verb])].concat()]),
        "del" | "unlink" => one([pairs("MSET"), keys(&[verb])].concat()),
        "mset" | "msetnx" => one(pairs(verb)),
        "psetex" | "setex" => one(with_value(&[verb, "e", "100"])),
        "set" => Some(vec![with_value(&[verb, "s"]), pipeline(&[verb, "s", &"v".repeat(1000)])]),
        "setrange" => one(command(&[verb, "r", &VALUE_BYTES.to_string(), "x"]).repeat(3)),
        "bitcount" => one(command(&[verb, "big"])),
        "bitpos" => one([zeros("SETBIT"), command(&[verb, "zeros", "1"])].concat()),
        "getbit" => one(command(&[verb, "big", "1000000"])),
        "setbit" => one(zeros(verb)),
        "bitfield" => {
            let words = ["SET", "u63", "100", "7", "INCRBY", "i64", "8", "1"];
            one(list(&[verb, "f"], 80_002, |n| words[n % words.len()].to_owned()))
        }
        "bitfield_ro" => {
            let words = ["GET", "u63", "100"];
            one(list(&[verb, "f"], 90_002, |n| words[n % words.len()].to_owned()))
        }
        "bitop" => one(list(&[verb, "AND", "joined"], 10, |_| "big".to_owned())),
        "pfadd" => one(keys(&[verb, "pf"])),
        "pfcount" => {
            let few = list(&[verb], SKETCHES, |n| format!("pf{n}"));
            Some(vec![sketches(&[verb]), transaction(&few.repeat(20))])
        }
        "pfmerge" => one(sketches(&[verb, "merged"])),
        "copy" => one(command(&[verb, "big", "copied", "REPLACE"]).repeat(3)),
        "rename" | "renamenx" => {
            one([command(&["COPY", "big", "from", "REPLACE"]), command(&[verb, "from", "to"])].concat())
        }
        "move" => {
            one([command(&["COPY", "big", "moved", "REPLACE"]), command(&[verb, "moved", "1"])].concat())
        }
        "expire" | "pexpire" | "expireat" | "pexpireat" => {
            let copy = command(&["COPY", "big", "c", "REPLACE"]);
            one([copy, command(&[verb, "c", "99999999999"]), pipeline(&[verb, "k0", "99999999999"])].concat())
        }
        "restore" => one(with_value(&[verb, "restored", "0"])),
        "keys" => Some(vec![command(&[verb, "*"]), command(&[verb, "nomatch*"])]),
        "scan" => one(command(&[verb, "0", "COUNT", "1000"]).repeat(50)),
        "randomkey" => one(command(&[verb]).repeat(LONG_COMMANDS)),
        "dbsize" | "lastsave" | "role" | "time" => one(pipeline(&[verb])),
        "object" => Some(vec![
            command(&["OBJECT", "ENCODING", "big"]).repeat(LONG_COMMANDS),
            pipeline(&["OBJECT", "FREQ", "k0"]),
        ]),
        "memory" => Some(vec![
            command(&["MEMORY", "USAGE", "big"]).repeat(LONG_COMMANDS),
            pipeline(&["MEMORY", "USAGE", "k0"]),
        ]),
        "wait" => one(command(&[verb, "0", "0"])),
        "waitaof" => one(command(&[verb, "0", "0", "0"])),
        "multi" | "exec" => {
            let increments: Vec<u8> =
                (0..COMMANDS).flat_map(|n| command(&["INCR", &format!("i{n}")])).collect();
            let long = [command(&["GET", "big"]), command(&["BITCOUNT", "big"])].concat();
            Some(vec![
                transaction(&increments),
                // Keys that are watched, and commands that are refused together.
                [watches(), queue(), command(&["NOSUCH"]), command(&["EXEC"])].concat(),
                // More commands than a transaction may have.
                [queue(), batch(), command(&["PING"]), command(&["DISCARD"])].concat(),
                transaction(&command(&["GET", "l1"]).repeat(COMMANDS / 2)),
                transaction(&command(&["INFO"]).repeat(100)),
                transaction(&[with_value(&["SET", "t"]), long].concat()),
            ])
        }
        "discard" => one([watches(), queue(), batch(), command(&[verb])].concat()),
        "eval" | "eval_ro" => one(eval(verb, "return #KEYS", SCRIPT_KEYS_MAX)),
        "evalsha" | "evalsha_ro" => one(eval(verb, &unknown, ARGUMENTS_MAX)),
        "script" => one(list(&["SCRIPT", "EXISTS"], NAMES_MAX, |n| format!("{n:040x}"))),
        "auth" => one(command(&[verb, "nobody", &"p".repeat(1024)])),
        "hello" => one(command(&[verb, "3", "SETNAME", &"n".repeat(1024)])),
        "client" => Some(vec![
            command(&["CLIENT", "LIST"]).repeat(100),
            list(&["CLIENT", "LIST", "ID"], NAMES_MAX, |n| n.to_string()),
            list(&["CLIENT", "TRACKING", "ON", "BCAST"], NAMES_MAX / 2 * 2, |n| match n % 2 {
                0 => "PREFIX".to_owned(),
                _ => format!("p{n}-"),
            }),
            with_value(&["CLIENT", "SETNAME"]),
        ]),
        "echo" | "ping" => one(with_value(&[verb])),
        "quit" => one([pipeline(&["PING"]), command(&[verb])].concat()),
        "reset" => Some(vec![
            command(&[verb]).repeat(100),
            [watches(), queue(), batch(), command(&[verb])].concat(),
            [keys(&["SUBSCRIBE"]), batch(), command(&[verb])].concat(),
        ]),
        "select" => one([pipeline(&[verb, "1"]), command(&[verb, "0"])].concat()),
        "subscribe" | "ssubscribe" | "psubscribe" => {
            let end = verb.replace("subscribe", "unsubscribe");
            one([keys(&[verb]), command(&[&end])].concat())
        }
        "unsubscribe" | "sunsubscribe" | "punsubscribe" => one(keys(&[verb])),
        "publish" | "spublish" => {
            let listen = if verb == "publish" { "SUBSCRIBE" } else { "SSUBSCRIBE" };
            one([command(&[listen, "ch"]), with_value(&[verb, "ch"]), batch()].concat())
        }
        "pubsub" => {
            one([keys(&["SUBSCRIBE"]), command(&["PUBSUB", "CHANNELS", "*"]), command(&["UNSUBSCRIBE"])]
                .concat())
        }
        "acl" => Some(vec![
            command(&["ACL", "LIST"]).repeat(100),
            command(&["ACL", "CAT"]).repeat(100),
            names(&["ACL", "DRYRUN", "default", "MGET"]),
        ]),
        "asking" | "bgsave" | "cluster" | "debug" | "function" | "module" | "readonly" | "readwrite" => {
            one(names(&[verb]))
        }
        "command" => Some(vec![
            command(&["COMMAND"]).repeat(10),
            command(&["COMMAND", "DOCS"]).repeat(10),
            command(&["COMMAND", "LIST", "FILTERBY", "PATTERN", &"*[a-z]".repeat(500)]),
            names(&["COMMAND", "GETKEYS", "MGET"]),
        ]),
        "config" => Some(vec![
            command(&["CONFIG", "GET", "*"]).repeat(100),
            // Patterns of 4,000 bytes together.
            list(&["CONFIG", "GET"], NAMES_MAX, |_| "*e*".to_owned()),
            with_value(&["CONFIG", "SET", "slowlog-max-len"]),
        ]),
        "info" => one(command(&[verb, "all"]).repeat(100)),
        "device" => {
            let path = "p".repeat(64 << 10);
            Some(vec![
                command(&["DEVICE", "LIST"]).repeat(100),
                command(&["DEVICE", "DRAIN", &path]),
                command(&["DEVICE", "ADD", "capacity", &path]),
            ])
        }
        "latency" => one(command(&["LATENCY", "HISTOGRAM"]).repeat(100)),
        "slowlog" => one(command(&["SLOWLOG", "GET", "-1"]).repeat(100)),
        "monitor" => one([command(&[verb]), with_value(&["SET", "m"])].concat()),
        // Commands that stop the server are left out; an unknown argument is parsed like a known one.
        "shutdown" => one(command(&[verb, "nothing"])),
        "flushall" | "flushdb" => one([pairs("MSET"), command(&[verb])].concat()),
        "swapdb" => one(command(&[verb, "0", "1"]).repeat(2)),
        _ => None,
    }
}
