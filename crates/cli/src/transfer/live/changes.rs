//! The meaning of a command of a replication stream for strings.
//!
//! A command whose result does not depend on an older version is applied. Of every other command only the names of its keys are
//! taken: their states are read from the source again. A state that was read may be newer than the command; the stream then has
//! later commands of the key, so that the last state that is written is the state of the source. Applying commands again from an
//! earlier offset does no harm for the same reason.

use esker_engine::Bytes;

/// Effect of a command on the target.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Change {
    /// No key changes.
    Nothing,
    /// The database of the following commands.
    Select(u64),
    /// Keys, their new values, and their expiry in milliseconds since the Unix epoch.
    Put(Vec<(Bytes, Bytes, Option<u64>)>),
    Delete(Vec<Bytes>),
    /// Keys whose states have to be read from the source, with their databases; `None` is the selected one.
    Read(Vec<(Option<u64>, Bytes)>),
    /// All keys of all databases, or of the selected one, are deleted.
    Flush {
        all: bool,
    },
    /// Two databases exchange their keys.
    Swap(u64, u64),
    /// A command of another type, named by the type, which changes no string.
    Other(&'static str),
    /// The source knows the keys of the command.
    Unknown,
}

/// Commands that change no key.
const WITHOUT_EFFECT: [&str; 8] =
    ["ping", "multi", "exec", "publish", "spublish", "script", "replconf", "function"];

/// Commands that change the key of their first argument, in a way that depends on its older version or is rare.
const READ_FIRST: [&str; 25] = [
    "setex",
    "psetex",
    "append",
    "setrange",
    "setbit",
    "bitfield",
    "incr",
    "decr",
    "incrby",
    "decrby",
    "incrbyfloat",
    "expire",
    "pexpire",
    "expireat",
    "pexpireat",
    "persist",
    "getex",
    "restore",
    "restore-asking",
    "pfadd",
    "pfmerge",
    "setnx",
    "getset",
    "delex",
    "delifeq",
];

/// Returns the meaning of a command.
pub(super) fn meaning(words: &[Bytes]) -> Change {
    let name = String::from_utf8_lossy(&words[0]).to_ascii_lowercase();
    let here = |key: &Bytes| (None, key.clone());
    match (name.as_str(), &words[1..]) {
        (name, _) if WITHOUT_EFFECT.contains(&name) => Change::Nothing,
        ("select", [number]) => unsigned(number).map_or(Change::Unknown, Change::Select),
        ("set", [key, value, options @ ..]) => match expiry(options) {
            Some(expires_at_ms) => Change::Put(vec![(key.clone(), value.clone(), expires_at_ms)]),
            None => Change::Read(vec![here(key)]),
        },
        ("mset" | "msetnx", pairs) if pairs.len().is_multiple_of(2) => {
            Change::Put(pairs.chunks(2).map(|pair| (pair[0].clone(), pair[1].clone(), None)).collect())
        }
        ("del" | "unlink" | "getdel", keys) => Change::Delete(keys.to_vec()),
        (name, [key, ..]) if READ_FIRST.contains(&name) => Change::Read(vec![here(key)]),
        ("rename" | "renamenx", [from, to]) => Change::Read(vec![here(from), here(to)]),
        ("copy", [_, to, options @ ..]) => Change::Read(vec![(number_after(options, b"db"), to.clone())]),
        ("move", [key, to]) => Change::Read(vec![here(key), (unsigned(to), key.clone())]),
        ("bitop", [_, to, ..]) => Change::Read(vec![here(to)]),
        ("flushdb", _) => Change::Flush { all: false },
        ("flushall", _) => Change::Flush { all: true },
        ("swapdb", [one, other]) => match (unsigned(one), unsigned(other)) {
            (Some(one), Some(other)) => Change::Swap(one, other),
            _ => Change::Unknown,
        },
        (name, arguments) => of_others(name, &words[0], arguments),
    }
}

/// Returns the meaning of a command that is not of strings. A stored result of another type replaces a string.
fn of_others(name: &str, word: &Bytes, arguments: &[Bytes]) -> Change {
    let stored = match arguments.iter().position(|word| word.eq_ignore_ascii_case(b"store")) {
        _ if name.ends_with("store") => arguments.first(),
        Some(at) if matches!(name, "sort" | "georadius" | "georadiusbymember") => arguments.get(at + 1),
        _ => None,
    };
    match (stored, esker_server::family_of_command(word)) {
        (Some(key), _) => Change::Read(vec![(None, key.clone())]),
        // Their keys may be of any type.
        (None, Some((_, "scripts" | "functions" | "modules"))) | (None, None) => Change::Unknown,
        (None, Some((_, family))) => Change::Other(family),
    }
}

/// Returns the expiry that the options of SET give; `None` if it depends on the older version or on the time of the command.
fn expiry(options: &[Bytes]) -> Option<Option<u64>> {
    let mut expires_at_ms = None;
    let mut options = options.iter();
    while let Some(option) = options.next() {
        match option.to_ascii_lowercase().as_slice() {
            // redis-server writes a command after it has changed data, so that the condition was met.
            b"nx" | b"xx" | b"get" => {}
            b"pxat" => expires_at_ms = Some(unsigned(options.next()?)?),
            b"exat" => expires_at_ms = Some(unsigned(options.next()?)?.checked_mul(1000)?),
            _ => return None,
        }
    }
    Some(expires_at_ms)
}

fn number_after(options: &[Bytes], wanted: &[u8]) -> Option<u64> {
    let at = options.iter().position(|word| word.eq_ignore_ascii_case(wanted))?;
    options.get(at + 1).and_then(|number| unsigned(number))
}

fn unsigned(text: &[u8]) -> Option<u64> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Change {
        let words: Vec<_> = text.split(' ').map(|word| Bytes::copy_from_slice(word.as_bytes())).collect();
        meaning(&words)
    }

    fn read(keys: &[(Option<u64>, &'static str)]) -> Change {
        Change::Read(keys.iter().map(|(database, key)| (*database, Bytes::from(*key))).collect())
    }

    fn put(key: &'static str, value: &'static str, at: Option<u64>) -> Change {
        Change::Put(vec![(key.into(), value.into(), at)])
    }

    #[test]
    fn commands_that_replace_a_value_are_applied() {
        assert_eq!(of("SET a 1"), put("a", "1", None));
        assert_eq!(of("set a 1 PXAT 5000"), put("a", "1", Some(5000)));
        assert_eq!(of("SET a 1 NX EXAT 5"), put("a", "1", Some(5000)));
        assert_eq!(of("UNLINK a b"), Change::Delete(vec!["a".into(), "b".into()]));
        let Change::Put(pairs) = of("MSET a 1 b 2") else { panic!("no puts") };
        assert_eq!(pairs.len(), 2);
    }

    #[test]
    fn commands_that_depend_on_the_older_version_are_read_again() {
        for text in ["SET a 1 KEEPTTL", "SET a 1 EX 5", "SET a 1 PXAT x", "INCR a", "PEXPIREAT a 1"] {
            assert_eq!(of(text), read(&[(None, "a")]), "{text}");
        }
        for text in ["PFADD a x", "BITFIELD a SET u8 0 1", "RESTORE a 0 x", "SETBIT a 1 1"] {
            assert_eq!(of(text), read(&[(None, "a")]), "{text}");
        }
        assert_eq!(of("RENAME a b"), read(&[(None, "a"), (None, "b")]));
        assert_eq!(of("COPY a b DB 3 REPLACE"), read(&[(Some(3), "b")]));
        assert_eq!(of("MOVE a 2"), read(&[(None, "a"), (Some(2), "a")]));
        assert_eq!(of("BITOP AND d a b"), read(&[(None, "d")]));
    }

    #[test]
    fn results_of_other_types_that_replace_a_string_are_read_again() {
        assert_eq!(of("SUNIONSTORE d a b"), read(&[(None, "d")]));
        assert_eq!(of("SORT a STORE d"), read(&[(None, "d")]));
        assert_eq!(of("HSET h f v"), Change::Other("hashes"));
        assert_eq!(of("LPUSH l store"), Change::Other("lists"));
        assert_eq!(of("json.set a $ 1"), Change::Unknown);
    }

    #[test]
    fn commands_of_whole_databases_are_known() {
        assert_eq!(of("SELECT 3"), Change::Select(3));
        assert_eq!(of("FLUSHALL ASYNC"), Change::Flush { all: true });
        assert_eq!(of("FLUSHDB"), Change::Flush { all: false });
        assert_eq!(of("SWAPDB 0 1"), Change::Swap(0, 1));
        assert_eq!(of("REPLCONF GETACK *"), Change::Nothing);
    }
}
