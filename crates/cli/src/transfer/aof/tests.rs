//! Replays into a destination in memory.

use std::collections::BTreeMap;

use esker_engine::Bytes;

use super::*;
use crate::transfer::record::{Found, Record, Sink};

/// The time of all tests, in milliseconds since the Unix epoch.
const NOW_MS: u64 = 1_800_000_000_000;

#[derive(Default)]
struct Memory {
    keys: BTreeMap<(u8, Bytes), Found>,
    written: u64,
    finished: bool,
}

impl Sink for Memory {
    fn put(&mut self, record: Record, _: &mut LeftOut) -> Result<(), Failure> {
        let Record { database, key, value, expires_at_ms } = record;
        assert!(expires_at_ms.is_none_or(|at| at > NOW_MS), "an expired key is written");
        self.keys.insert((database, key), (value, expires_at_ms));
        self.written += 1;
        Ok(())
    }

    fn finish(&mut self, _: &mut LeftOut) -> Result<(), Failure> {
        self.finished = true;
        Ok(())
    }

    fn written(&self) -> u64 {
        self.written
    }
}

impl Destination for Memory {
    fn read(&mut self, database: u8, key: &Bytes, _: &mut LeftOut) -> Result<Option<Found>, Failure> {
        Ok(self.keys.get(&(database, key.clone())).cloned())
    }

    fn delete(&mut self, database: u8, key: &Bytes, _: &mut LeftOut) -> Result<(), Failure> {
        self.keys.remove(&(database, key.clone()));
        Ok(())
    }
}

/// The result of an import.
struct Done {
    /// `DATABASE KEY=VALUE@EXPIRY`; long values are given by their length.
    keys: Vec<String>,
    left_out: BTreeMap<String, u64>,
    /// Number of commands read, or the failure.
    result: Result<u64, String>,
}

fn import_files(files: &[(&str, &[u8])], given: &str, options: Options, mut memory: Memory) -> Done {
    let directory = tempfile::tempdir().expect("a directory");
    for (name, bytes) in files {
        std::fs::write(directory.path().join(name), bytes).expect("it is written");
    }
    let text_of = |failure| match failure {
        Failure::Usage(text) | Failure::Failed(text) => text,
    };
    let (mut left_out, mut shown) = (LeftOut::default(), Shown::new());
    let opened = Files::open(&directory.path().join(given), options);
    let result = opened
        .and_then(|files| files.import(&mut memory, NOW_MS, &mut left_out, &mut shown))
        .map_err(text_of);
    let keys = memory.keys.iter().map(|((database, key), (value, expires_at_ms))| {
        let value = match value.len() {
            0..100 => value.escape_ascii().to_string(),
            bytes => format!("{bytes} bytes"),
        };
        let expiry = expires_at_ms.map_or_else(String::new, |at| format!("@{at}"));
        format!("{database} {}={value}{expiry}", key.escape_ascii())
    });
    Done { keys: keys.collect(), left_out: left_out.of, result }
}

fn import(bytes: &[u8]) -> Done {
    import_files(&[("file", bytes)], "file", Options::default(), Memory::default())
}

/// Encodes commands, one per line, with words separated by blanks.
fn commands(lines: &str) -> Vec<u8> {
    let mut text = Vec::new();
    for line in lines.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let words: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
        crate::client::write_command(&words, &mut text);
    }
    text
}

/// An RDB file of database 0: `old` without expiry, `dead`, which has expired, and a list. `field` states
/// whether commands follow.
fn snapshot(field: &str) -> Vec<u8> {
    let mut file = b"REDIS0009\xfa".to_vec();
    file.push(field.len() as u8);
    file.extend_from_slice(field.as_bytes());
    file.extend_from_slice(b"\xc0\x01\xfe\x00\x00\x03old\x01o");
    file.push(0xfc);
    file.extend_from_slice(&(NOW_MS - 5).to_le_bytes());
    file.extend_from_slice(b"\x00\x04dead\x01d\x01\x04list\x00\xff");
    file.extend_from_slice(&[0; 8]);
    file
}

#[test]
fn commands_behind_a_preamble_are_applied() {
    for field in ["aof-preamble", "aof-base"] {
        let tail = commands("SELECT 0\nSET old new\nSET b tail\nDEL b\nSET c 1\nSELECT 3\nSET c 3");
        let done = import(&[snapshot(field), tail].concat());
        assert_eq!(done.result, Ok(5));
        assert_eq!(done.keys, ["0 c=1", "0 old=new", "3 c=3"]);
        assert_eq!(done.left_out, BTreeMap::from([("expired".to_owned(), 1), ("list".to_owned(), 1)]));
    }
}

#[test]
fn bytes_behind_a_snapshot_without_commands_are_an_error() {
    let file = snapshot("redis-bits");
    assert_eq!(import(&file).result, Ok(0));
    for tail in [&b"\n"[..], b"garbage", &commands("SET a b")] {
        let done = import(&[&file, tail].concat());
        let error = done.result.expect_err("bytes follow");
        assert!(error.contains(&format!("byte {}: bytes follow the end", file.len())), "{error}");
        assert_eq!(done.keys, ["0 old=o"], "the snapshot itself is there");
    }
    let error =
        import(&[&snapshot("aof-preamble"), &b"garbage\r\n"[..]].concat()).result.expect_err("garbage");
    assert!(error.contains("no command of an append-only file"), "{error}");
    let error = import(b"hello").result.expect_err("no format");
    assert!(error.contains("not an RDB file") && error.contains("not an append-only file either"), "{error}");
}

#[test]
fn every_string_command_has_its_effect() {
    let later = NOW_MS + 1000;
    for (lines, expected) in [
        ("SET k v NX GET", vec!["0 k=v".to_owned()]),
        (&*format!("SET k v PXAT {later}"), vec![format!("0 k=v@{later}")]),
        ("SET k v EXAT 1800000001", vec![format!("0 k=v@{later}")]),
        ("SETEX k 1 v", vec![format!("0 k=v@{later}")]),
        ("PSETEX k 1000 v", vec![format!("0 k=v@{later}")]),
        (&*format!("SET k v PXAT {later}\nSET k w"), vec!["0 k=w".to_owned()]),
        (&*format!("SET k v PXAT {later}\nSET k w KEEPTTL"), vec![format!("0 k=w@{later}")]),
        ("SETNX k v\nGETSET k w", vec!["0 k=w".to_owned()]),
        ("MSET a 1 b 2\nMSETNX c 3", vec!["0 a=1".to_owned(), "0 b=2".to_owned(), "0 c=3".to_owned()]),
        ("MSET a 1 b 2 c 3\nDEL a x\nUNLINK b\nGETDEL c", vec![]),
        ("APPEND k ab\nAPPEND k c", vec!["0 k=abc".to_owned()]),
        ("SET k abc\nSETRANGE k 1 X\nSETRANGE k 4 Y", vec!["0 k=aXc\\x00Y".to_owned()]),
        ("SETBIT k 9 1\nSETBIT k 8 1\nSETBIT k 9 0", vec!["0 k=\\x00\\x80".to_owned()]),
        ("INCR k\nINCRBY k 10\nDECR k\nDECRBY k 3", vec!["0 k=7".to_owned()]),
        (&*format!("SET k v\nPEXPIREAT k {later} GT"), vec![format!("0 k=v@{later}")]),
        ("SET k v\nEXPIREAT k 1800000001", vec![format!("0 k=v@{later}")]),
        ("SET k v\nEXPIRE k 1", vec![format!("0 k=v@{later}")]),
        ("SET k v\nPEXPIREAT k -7", vec![]),
        (&*format!("SET k v PXAT {later}\nPERSIST k"), vec!["0 k=v".to_owned()]),
        (&*format!("SET k v PXAT {later}\nGETEX k PERSIST"), vec!["0 k=v".to_owned()]),
        (&*format!("SET k v\nGETEX k PXAT {later}"), vec![format!("0 k=v@{later}")]),
        (
            &*format!("SET k v PXAT {later}\nINCR x\nAPPEND k w"),
            vec![format!("0 k=vw@{later}"), "0 x=1".to_owned()],
        ),
        (&*format!("SET k v PXAT {later}\nRENAME k l"), vec![format!("0 l=v@{later}")]),
        (
            "SET k v\nCOPY k l\nCOPY k k DB 2 REPLACE",
            vec!["0 k=v".to_owned(), "0 l=v".to_owned(), "2 k=v".to_owned()],
        ),
        ("SET k v\nMOVE k 1", vec!["1 k=v".to_owned()]),
        ("SET a 1\nSELECT 1\nSET b 2\nFLUSHDB\nSET c 3", vec!["0 a=1".to_owned(), "1 c=3".to_owned()]),
        ("SET a 1\nSELECT 1\nFLUSHALL\nSET c 3", vec!["1 c=3".to_owned()]),
        (
            "MULTI\nSET a 1\nSELECT 1\nSET b 2\nEXEC\nSET c 3",
            vec!["0 a=1".to_owned(), "1 b=2".to_owned(), "1 c=3".to_owned()],
        ),
    ] {
        let done = import(&commands(lines));
        assert!(done.result.is_ok(), "{lines}: {:?}", done.result);
        assert_eq!(done.keys, expected, "{lines}");
    }
}

#[test]
fn restore_accepts_string_payload() {
    let payload = esker_rdb::dump::encode(b"value");
    let mut text = Vec::new();
    crate::client::write_command(&[b"RESTORE", b"k", b"0", &payload, b"REPLACE"], &mut text);
    assert_eq!(import(&text).keys, ["0 k=value"]);
    let damaged: &[&[u8]] = &[b"RESTORE", b"k", b"0", b"damaged"];
    let mut text = Vec::new();
    crate::client::write_command(damaged, &mut text);
    assert!(import(&text).result.expect_err("damaged").contains("checksum"));
}

/// A later command may remove an expiry: redis-server keeps expired keys while it loads.
#[test]
fn expired_key_that_is_persisted_is_kept() {
    let done = import(&[snapshot("aof-preamble"), commands("PERSIST dead\nAPPEND dead x")].concat());
    assert_eq!(done.keys, ["0 dead=dx", "0 old=o"]);
    assert_eq!(done.left_out.get("expired"), None);
}

#[test]
fn commands_of_other_types_are_counted_and_their_keys_absent() {
    let lines = "HSET h f v\nPEXPIREAT h 1800000001000\nSET s x\nSUNIONSTORE s h h\nSET r x\nRENAME h r\nRPUSH l a\nFUNCTION LOAD x";
    let done = import(&commands(lines));
    assert_eq!((done.result, done.keys), (Ok(8), vec![]));
    let expected = [("hashes", 1), ("sets", 1), ("lists", 1), ("functions", 1)];
    let expected = expected.map(|(family, count)| (format!("command of {family}"), count));
    assert_eq!(done.left_out, BTreeMap::from(expected));
}

#[test]
fn inapplicable_command_is_refused_with_offset_and_remedy() {
    let before = commands("SET a 1");
    for (line, expected) in [
        ("PFADD k a", "PFADD cannot be applied: it is not applied here"),
        ("BITOP AND a b c", "BITOP cannot be applied"),
        ("SWAPDB 0 1", "SWAPDB cannot be applied"),
        ("EVAL x 0", "EVAL cannot be applied"),
        ("FCALL f 0", "FCALL cannot be applied"),
        ("JSON.SET k $ 1", "a command of a module"),
        ("NONSENSE", "NONSENSE cannot be applied"),
        ("SET a b WAT", "its option 'WAT' is not known"),
        ("INCRBY a x", "its number is not a 64-bit integer"),
        ("SETRANGE a 999999999999 x", "512 MiB"),
        ("SELECT x", "its arguments are none of SELECT"),
        ("EXEC", "EXEC stands without MULTI"),
        ("PEXPIREAT a soon", "'soon' is not a time"),
    ] {
        let done = import(&[before.clone(), commands(line), commands("SET b 2")].concat());
        let error = done.result.expect_err(line);
        assert!(error.contains(expected) && error.contains(&format!("byte {}:", before.len())), "{error}");
        assert!(error.contains("BGREWRITEAOF") && done.keys == ["0 a=1"], "{error} {:?}", done.keys);
    }
}

#[test]
fn file_cut_within_command_fails_unless_accepted() {
    let whole = commands("SET a 1\nMULTI\nSET b 2\nSET c 3\nEXEC\nSET d 4");
    let accepting = Options { allow_cut: true, ..Options::default() };
    let ends: Vec<usize> =
        ["SET a 1", "SET a 1\nMULTI\nSET b 2\nSET c 3\nEXEC"].map(|lines| commands(lines).len()).to_vec();
    for end in ends[0] + 1..whole.len() {
        if ends.contains(&end) {
            continue;
        }
        let (at, keys): (usize, &[&str]) = match end < ends[1] {
            true => (ends[0], &["0 a=1"]),
            false => (ends[1], &["0 a=1", "0 b=2", "0 c=3"]),
        };
        let done = import(&whole[..end]);
        let error = done.result.expect_err("it is cut");
        assert!(error.contains(&format!("byte {at}: the file ends")), "{end}: {error}");
        assert!(error.contains("--allow-truncated") && done.keys == keys, "{end}: {error} {:?}", done.keys);
        let done = import_files(&[("file", &whole[..end])], "file", accepting, Memory::default());
        assert!(done.result.is_ok() && done.keys == keys, "{end}: {:?}", done.result);
        assert_eq!(done.left_out["byte of a command that was cut"], (end - at) as u64);
    }
}

#[test]
fn files_of_a_manifest_are_read_in_order() {
    let manifest =
        b"file a.2.incr.aof seq 2 type i\nfile a.1.base.rdb seq 1 type b\nfile a.1.incr.aof seq 1 type i\n";
    let (base, first) = (snapshot("aof-base"), commands("SELECT 2\nSET x 1\nSELECT 0\nAPPEND old 1"));
    let second = commands("APPEND old 2\nPERSIST dead");
    let files = |first| {
        [
            ("a.manifest", &manifest[..]),
            ("a.1.base.rdb", &base),
            ("a.1.incr.aof", first),
            ("a.2.incr.aof", &second),
        ]
    };
    let done = import_files(&files(&first), ".", Options::default(), Memory::default());
    assert_eq!(
        (done.result, done.keys),
        (Ok(4), vec!["0 dead=d".to_owned(), "0 old=o12".to_owned(), "2 x=1".to_owned()])
    );
    let accepting = Options { allow_cut: true, ..Options::default() };
    let done = import_files(&files(&first[..first.len() - 1]), "a.manifest", accepting, Memory::default());
    let error = done.result.expect_err("a file in the middle is cut");
    assert!(error.contains("only the last file of a manifest may be cut"), "{error}");
}

/// The commands of the file do not see the keys that the target held before.
#[test]
fn keys_of_the_target_are_absent_for_the_file() {
    let mut memory = Memory::default();
    for key in ["counter", "gone", "kept"] {
        memory.keys.insert((0, key.into()), ("100".into(), None));
    }
    let text = commands("INCR counter\nSET gone 1\nDEL gone");
    let done = import_files(&[("file", &text)], "file", Options::default(), memory);
    assert_eq!(done.keys, ["0 counter=1", "0 kept=100"]);
}

/// More data than the overlay keeps, so that commands read keys back from the target.
#[test]
fn written_keys_are_read_again() {
    let later = (NOW_MS + 9_000).to_string();
    let mut text = commands(&format!("SET n 5\nSET e 1 PXAT {later}\nSET dies x\nSET gone x"));
    let filler = vec![b'f'; 9 << 20];
    for number in 0..9 {
        crate::client::write_command(&[b"SET", format!("filler{number}").as_bytes(), &filler], &mut text);
    }
    text.extend(commands("INCR n\nAPPEND e 2\nPEXPIREAT dies 5\nDEL gone\nRENAME filler0 renamed"));
    let refused = [text.clone(), commands("FLUSHALL")].concat();
    for number in 0..9 {
        crate::client::write_command(&[b"SET", format!("more{number}").as_bytes(), &filler], &mut text);
    }
    text.extend(commands("PERSIST dies"));
    let done = import(&text);
    assert!(done.result.is_ok(), "{:?}", done.result);
    let short: Vec<_> = done.keys.iter().filter(|key| !key.ends_with("bytes")).cloned().collect();
    assert_eq!(short, ["0 dies=x".to_owned(), format!("0 e=12@{later}"), "0 n=6".to_owned()]);
    let named = |name: &str| done.keys.iter().any(|key| key.contains(name));
    assert!(named("renamed") && !named("filler0") && named("filler8"), "{:?}", done.keys);
    let error = import(&refused).result.expect_err("keys are written");
    assert!(
        error.contains("FLUSHALL cannot be applied: the keys that it removes are in the target"),
        "{error}"
    );
}

#[test]
fn only_requested_database_is_imported() {
    let options = Options { database: Some(1), ..Options::default() };
    let text = commands("SET a 0\nSELECT 1\nSET a 1\nSELECT 20\nSET a 20");
    let done = import_files(&[("file", &text)], "file", options, Memory::default());
    assert_eq!((done.result, done.keys), (Ok(3), vec!["1 a=1".to_owned()]));
    assert_eq!(done.left_out["command in database 0"], 1);
    let done = import(&text);
    assert_eq!(done.left_out["command in database 20, which does not exist"], 1);
}
