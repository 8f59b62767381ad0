//! What a store refuses, and how: the kind of the error, a message that names the value and the limit, and nothing
//! written. And what closing, a second opener and a dropped future do.

use std::collections::BTreeMap;
use std::future::Future;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::task::{Context, Waker};

use bytes::Bytes;
use esker::{
    Backend, Batch, Blocking, Condition, Cursor, Durability, Error, ErrorKind, Options, Store, WriteOptions,
};
use esker_device::{Device, MemoryDevice};

/// Every file below a directory with its bytes, and every directory.
fn listing(dir: &Path) -> BTreeMap<PathBuf, Option<Vec<u8>>> {
    let mut found = BTreeMap::new();
    for entry in std::fs::read_dir(dir).expect("the directory can be read") {
        let path = entry.expect("its entries can be read").path();
        if path.is_dir() {
            found.extend(listing(&path));
            found.insert(path, None);
        } else {
            let bytes = std::fs::read(&path).expect("its files can be read");
            found.insert(path, Some(bytes));
        }
    }
    found
}

/// As [`listing`], once nothing changes any more: an open store prepares its next segment in the background.
fn listing_at_rest(dir: &Path) -> BTreeMap<PathBuf, Option<Vec<u8>>> {
    let mut before = listing(dir);
    loop {
        #[expect(clippy::disallowed_methods, reason = "the store under test runs in real time")]
        std::thread::sleep(std::time::Duration::from_millis(50));
        let after = listing(dir);
        if after == before {
            return after;
        }
        before = after;
    }
}

fn names(listing: &BTreeMap<PathBuf, Option<Vec<u8>>>) -> Vec<(String, Option<usize>)> {
    listing.iter().map(|(p, b)| (p.display().to_string(), b.as_ref().map(Vec::len))).collect()
}

/// The error of a refused opening, after checking its kind, that its message has these words, and that every file below
/// `dir` is as it was.
#[track_caller]
fn refused(dir: &Path, options: Options, kind: ErrorKind, words: &[&str]) -> Error {
    let before = listing(dir);
    let error = match Blocking::open(options) {
        Ok(_) => panic!("it should have been refused: {words:?}"),
        Err(error) => error,
    };
    let message = error.to_string();
    assert_eq!(error.kind(), kind, "{message}");
    for word in words {
        assert!(message.contains(word), "the message does not tell {word:?}: {message}");
    }
    let after = listing(dir);
    assert!(before == after, "something was written: {:?} is now {:?}", names(&before), names(&after));
    error
}

fn temp() -> tempfile::TempDir {
    tempfile::tempdir().expect("a directory for the test")
}

/// Options of a small store, so that a test does not write much.
fn small(options: Options) -> Options {
    options.segment_bytes(1 << 20).memory_bytes(64 << 20)
}

/// A small store on two files in a directory.
fn two_tiers(dir: &Path) -> Options {
    small(Options::fast_and_capacity(dir.join("fast"), dir.join("capacity")))
        .fast_limit_bytes(16 << 20)
        .capacity_limit_bytes(64 << 20)
}

/// Makes a store with one key and closes it.
fn make(options: Options) {
    let store = Blocking::open(options).expect("the store opens");
    store.put("k", "v").expect("the put succeeds");
    store.close().expect("the store closes");
}

#[track_caller]
fn opens_with_its_key(options: Options) {
    let store = Blocking::open(options).expect("the store opens");
    assert_eq!(store.get("k").expect("the get succeeds").as_deref(), Some(&b"v"[..]));
    store.close().expect("the store closes");
}

#[test]
fn keys_and_values_of_a_wrong_length_are_refused_and_nothing_is_written() {
    let dir = temp();
    let store = Blocking::open(small(Options::directory(dir.path().join("store")))).expect("it opens");
    store.put("k", "v").expect("the put succeeds");
    let (before, activity) = (listing_at_rest(dir.path()), store.store().stats().activity);
    #[track_caller]
    fn invalid<T>(result: Result<T, Error>, words: &[&str]) {
        let error = result.err().expect("it is refused");
        let message = error.to_string();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{message}");
        assert!(!error.is_retryable());
        for word in words {
            assert!(message.contains(word), "the message does not tell {word:?}: {message}");
        }
    }
    let long_key = Bytes::from(vec![b'k'; 65_537]);
    let limit = store.store().max_value_bytes(1);
    assert!(limit > (1 << 20) * 9 / 10, "most of a segment is to be had for one value: {limit}");
    let (too_long, limit_word) = (limit as usize + 9, limit.to_string());
    let long_value = Bytes::from(vec![1u8; too_long]);
    invalid(store.put("", "v"), &["0 bytes", "1 to 65536"]);
    invalid(store.put(long_key.clone(), "v"), &["65537", "65536"]);
    invalid(store.delete(""), &["0 bytes", "1 to 65536"]);
    invalid(store.delete(long_key.clone()), &["65537", "65536"]);
    let expiring = WriteOptions { expires_at_ms: Some(u64::MAX), ..WriteOptions::default() };
    let words = [too_long.to_string(), limit_word];
    invalid(store.put("a", long_value.clone()), &[&words[0]]);
    invalid(store.put_with("a", long_value.clone(), expiring), &[&words[0], &words[1]]);
    for key in [Bytes::new(), long_key.clone()] {
        invalid(store.write(one_put(&key, b"v")), &["1 to 65536"]);
        invalid(store.write(one_delete(&key)), &["1 to 65536"]);
    }
    invalid(store.write(one_put(b"a", &long_value)), &[&words[0]]);
    let mut batch = Batch::new();
    for n in 0..3 {
        batch.put(format!("key {n}"), vec![0u8; 400_000]);
    }
    invalid(store.write(batch), &["3 records", "fit in a segment"]);
    let conditional = WriteOptions { condition: Condition::IfAbsent, ..WriteOptions::default() };
    invalid(
        esker_device::block_on(store.store().write_with(one_put(b"a", b"v"), conditional)),
        &["condition"],
    );
    assert_eq!(store.get("").expect("an empty key is just not there"), None);
    assert_eq!(store.get(&long_key).expect("nor is one that is too long"), None);
    assert_eq!(store.store().stats().activity, activity, "nothing was counted");
    assert!(listing_at_rest(dir.path()) == before, "nothing was written");
    // The longest of both is taken.
    store.put(long_key.slice(..65_536), "v").expect("the longest key is taken");
    store.put("a", long_value.slice(..limit as usize)).expect("the longest value is taken");
    assert_eq!(store.get("a").expect("the get succeeds").map(|v| v.len()), Some(limit as usize));
    store.close().expect("the store closes");
}

fn one_put(key: &[u8], value: &[u8]) -> Batch {
    let mut batch = Batch::new();
    batch.put(key.to_vec(), value.to_vec());
    batch
}

fn one_delete(key: &[u8]) -> Batch {
    let mut batch = Batch::new();
    batch.delete(key.to_vec());
    batch
}

#[test]
fn options_that_contradict_each_other_are_refused() {
    let dir = temp();
    let d = dir.path();
    let invalid = ErrorKind::Invalid;
    for one_tier in [
        Options::directory(d.join("s")),
        Options::capacity_only(d.join("c")),
        Options::fast_only(d.join("f")),
    ] {
        refused(d, one_tier.shaping_threshold_bytes(4096), invalid, &["shaping_threshold_bytes", "one tier"]);
    }
    for no_fast in [Options::directory(d.join("s")), Options::capacity_only(d.join("c"))] {
        refused(d, no_fast.fast_limit_bytes(1 << 30), invalid, &["fast_limit_bytes", "no fast tier"]);
    }
    let no_capacity = Options::fast_only(d.join("f")).capacity_limit_bytes(1 << 30);
    refused(d, no_capacity, invalid, &["capacity_limit_bytes", "no capacity tier"]);
}

#[test]
fn sizes_that_cannot_be_are_refused_by_name_with_the_limits() {
    let dir = temp();
    let d = dir.path();
    let store = || Options::directory(d.join("store"));
    for bytes in [0, 1, 2048, 5000, 12_288, 2 << 20, u64::MAX] {
        let words = ["indirection_unit_bytes", &bytes.to_string(), "4096", "1048576"];
        refused(d, store().indirection_unit_bytes(bytes), ErrorKind::Invalid, &words);
    }
    for bytes in [0, 4096, 32 << 10, 100_000, 3 << 20, 256 << 20, 2 << 30, u64::MAX] {
        let words = ["segment_bytes", &bytes.to_string(), "65536", "134217728"];
        refused(d, store().segment_bytes(bytes), ErrorKind::Invalid, &words);
    }
    for percent in [0, 4, 51, 100, 255] {
        let words = ["reserve_percent", &percent.to_string(), "5 to 50"];
        refused(d, store().reserve_percent(percent), ErrorKind::Invalid, &words);
    }
    // Each is fine by itself, but not both.
    let both = store().segment_bytes(64 << 10).indirection_unit_bytes(16 << 10);
    refused(d, both, ErrorKind::Invalid, &["segment_bytes", "65536", "16384"]);
    let by_default = Options::capacity_only(d.join("capacity")).segment_bytes(256 << 10);
    refused(d, by_default, ErrorKind::Invalid, &["segment_bytes", "262144", "65536"]);
}

#[test]
fn what_a_store_was_formatted_with_cannot_be_changed() {
    let dir = temp();
    let store = || Options::directory(dir.path().join("store")).memory_bytes(64 << 20);
    make(store().segment_bytes(1 << 20).indirection_unit_bytes(16 << 10));
    for (asked, formatted) in [(4096u64, "16384"), (32 << 10, "16384")] {
        let words = ["indirection_unit_bytes", &asked.to_string(), formatted];
        refused(dir.path(), store().indirection_unit_bytes(asked), ErrorKind::Invalid, &words);
    }
    for asked in [512u64 << 10, 2 << 20] {
        let words = ["segment_bytes", &asked.to_string(), "1048576"];
        refused(dir.path(), store().segment_bytes(asked), ErrorKind::Invalid, &words);
    }
    // Named as they are, or not at all, they are fine.
    opens_with_its_key(store().segment_bytes(1 << 20).indirection_unit_bytes(16 << 10));
    opens_with_its_key(store());
}

#[test]
fn too_little_room_is_refused_with_what_is_needed() {
    let dir = temp();
    let d = dir.path();
    let least = (1 << 20) + 8 * (1 << 20);
    let words = [(least - 1).to_string(), least.to_string()];
    let words = [words[0].as_str(), words[1].as_str()];
    let small = |o: Options| o.segment_bytes(1 << 20).memory_bytes(64 << 20);
    let new = small(Options::directory(d.join("store"))).capacity_limit_bytes(least - 1);
    refused(d, new, ErrorKind::Invalid, &words);
    let new = small(Options::fast_only(d.join("fast"))).fast_limit_bytes(least - 1);
    refused(d, new, ErrorKind::Invalid, &words);
    for fast_is_small in [true, false] {
        let (fast, capacity) = if fast_is_small { (least - 1, 1 << 30) } else { (1 << 30, least - 1) };
        let new = two_tiers(d).fast_limit_bytes(fast).capacity_limit_bytes(capacity);
        let name = if fast_is_small { "fast" } else { "capacity" };
        refused(d, new, ErrorKind::Invalid, &[words[0], words[1], name]);
    }
    // A device that is there, empty and too short.
    let device = Arc::new(MemoryDevice::new(least - 4096));
    let new = small(Options::devices(None, Some(device.clone())));
    refused(d, new, ErrorKind::Invalid, &[&(least - 4096).to_string(), words[1]]);
    assert_eq!(device.counters().writes, 0, "nothing was written");
    // A limit below what a store already has is no reason to refuse it.
    make(small(Options::directory(d.join("store"))));
    opens_with_its_key(small(Options::directory(d.join("store"))).capacity_limit_bytes(least - 1));
}

#[test]
fn too_little_memory_is_refused_with_what_is_needed() {
    let dir = temp();
    let d = dir.path();
    // 24 MiB, and two segments for each lane and two for relocation.
    let least = (24 << 20) + 4 * (16 << 20);
    let words = [(least - 1).to_string(), least.to_string()];
    let words = ["memory_bytes", &words[0], &words[1]];
    let store = || Options::directory(d.join("store"));
    refused(d, store().memory_bytes(least - 1), ErrorKind::Invalid, &words);
    refused(d, store().memory_bytes(0), ErrorKind::Invalid, &["memory_bytes is 0"]);
    make(store().memory_bytes(least));
    refused(d, store().memory_bytes(least - 1), ErrorKind::Invalid, &words);
    opens_with_its_key(store().memory_bytes(least));
    let least_of_two = (24 << 20) + 6 * (16 << 20);
    let two = Options::fast_and_capacity(d.join("fast"), d.join("capacity")).memory_bytes(least_of_two - 1);
    refused(d, two, ErrorKind::Invalid, &["memory_bytes", &least_of_two.to_string()]);
}

#[test]
fn paths_that_cannot_hold_a_store_are_refused() {
    let dir = temp();
    let d = dir.path();
    std::fs::create_dir(d.join("directory")).expect("a directory");
    std::fs::write(d.join("file"), b"").expect("a file");
    let invalid = ErrorKind::Invalid;
    for make in [Options::fast_only, Options::capacity_only] {
        refused(d, make(d.join("directory")), invalid, &["/directory", "a directory"]);
        refused(d, make(d.join("missing/file")), invalid, &["missing/file", "No such file"]);
        refused(d, make(d.join("file/file")), invalid, &["file/file", "Not a directory"]);
        refused(d, make(d.join("new")).create(false), invalid, &["/new", "No such file"]);
    }
    refused(d, Options::fast_only("/dev/null"), invalid, &["/dev/null", "a special file"]);
    refused(d, Options::directory(d.join("file")), invalid, &["/file", "not a directory"]);
    refused(d, Options::directory(d.join("missing/store")), invalid, &["missing/store", "No such file"]);
    refused(d, Options::directory(d.join("store")).create(false), invalid, &["/store", "holds no store"]);
    refused(
        d,
        Options::directory(d.join("directory")).create(false),
        invalid,
        &["/directory", "No such file"],
    );
    refused(d, Options::fast_only(d.join("file")).create(false), invalid, &["/file", "holds no store"]);
    let no_place = Options::directory(d.join("store")).staging(d.join("missing/staging"));
    refused(d, no_place, invalid, &["staging file", "missing/staging", "No such file"]);
}

/// An attribute of a file that even root cannot write against.
struct Immutable(PathBuf);

impl Immutable {
    fn new(path: &Path) -> Result<Immutable, String> {
        let set = Command::new("chattr").arg("+i").arg(path).output();
        match set {
            Ok(output) if output.status.success() => Ok(Immutable(path.to_owned())),
            Ok(output) => Err(String::from_utf8_lossy(&output.stderr).trim().to_string()),
            Err(error) => Err(format!("chattr: {error}")),
        }
    }
}

impl Drop for Immutable {
    fn drop(&mut self) {
        Command::new("chattr").arg("-i").arg(&self.0).status().ok();
    }
}

#[test]
fn a_file_that_cannot_be_written_is_refused() {
    let dir = temp();
    let path = dir.path().join("fast");
    let store = || small(Options::fast_only(&path));
    make(store());
    let immutable = match Immutable::new(&path) {
        Ok(immutable) => immutable,
        Err(why) => return println!("SKIPPED: no file can be made immutable here: {why}"),
    };
    refused(dir.path(), store(), ErrorKind::Invalid, &["/fast", "not permitted"]);
    drop(immutable);
    opens_with_its_key(store());
}

#[test]
fn what_is_not_ours_is_not_formatted() {
    let dir = temp();
    let path = dir.path().join("disk");
    let mut ext4 = vec![0u8; 2 << 20];
    ext4[1080..1082].copy_from_slice(b"\x53\xef");
    let mut gzip = vec![0u8; 100_000];
    gzip[..4].copy_from_slice(b"\x1f\x8b\x08\x00");
    let noise: Vec<u8> = (0..8192u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8 | 1).collect();
    let mut late = vec![0u8; 68 << 10];
    late[60_000] = 1;
    for (bytes, what) in [
        (ext4, "ext4"),
        (gzip, "not zero"),
        (noise, "not zero"),
        (late, "not zero"),
        (b"x".to_vec(), "not zero"),
    ] {
        for make in [Options::fast_only, Options::capacity_only] {
            std::fs::write(&path, &bytes).expect("the file is written");
            refused(
                dir.path(),
                small(make(path.clone())),
                ErrorKind::Invalid,
                &["/disk", what, "force_format"],
            );
        }
        // As one of two, with the other new.
        let fast = small(Options::fast_and_capacity(&path, dir.path().join("other")));
        refused(dir.path(), fast, ErrorKind::Invalid, &["/disk", what, "force_format"]);
        let capacity = small(Options::fast_and_capacity(dir.path().join("other"), &path));
        refused(dir.path(), capacity, ErrorKind::Invalid, &["/disk", what, "force_format"]);
        make(small(Options::fast_only(&path)).force_format(true));
        opens_with_its_key(small(Options::fast_only(&path)));
    }
    // A store is not formatted again because somebody left the option on.
    opens_with_its_key(small(Options::fast_only(&path)).force_format(true));
}

#[test]
fn tiers_that_do_not_belong_together_are_refused() {
    let dir = temp();
    let (a, b) = (dir.path().join("a"), dir.path().join("b"));
    for d in [&a, &b] {
        std::fs::create_dir(d).expect("a directory");
        make(two_tiers(d));
    }
    make(small(Options::capacity_only(a.join("alone"))));
    let d = dir.path();
    let invalid = ErrorKind::Invalid;
    let pair = |fast: PathBuf, capacity: PathBuf| small(Options::fast_and_capacity(fast, capacity));
    let (fast, capacity) = (a.join("fast"), a.join("capacity"));
    refused(d, pair(capacity.clone(), fast.clone()), invalid, &["is the capacity tier", "as the fast tier"]);
    refused(d, pair(fast.clone(), b.join("capacity")), invalid, &["different stores"]);
    refused(d, pair(fast.clone(), a.join("alone")), invalid, &["a/alone", "the only tier"]);
    refused(d, small(Options::fast_only(&fast)), invalid, &["a/fast", "one of two tiers"]);
    refused(d, small(Options::capacity_only(&capacity)), invalid, &["a/capacity", "one of two tiers"]);
    refused(
        d,
        small(Options::fast_only(a.join("alone"))),
        invalid,
        &["is the capacity tier", "as the fast tier"],
    );
    refused(d, pair(fast.clone(), fast.clone()), ErrorKind::Locked, &["a/fast", "in use"]);
    // With one that is new, or empty, or missing.
    refused(d, pair(fast.clone(), a.join("new")), invalid, &["a/new", "belong together"]);
    refused(d, pair(a.join("new"), capacity.clone()), invalid, &["a/new", "belong together"]);
    std::fs::write(a.join("empty"), vec![0u8; 4096]).expect("a file");
    refused(d, pair(fast, a.join("empty")), invalid, &["a/empty", "belong together"]);
    refused(d, pair(a.join("empty"), capacity), invalid, &["a/empty", "belong together"]);
    opens_with_its_key(two_tiers(&a));
    opens_with_its_key(two_tiers(&b));
}

/// CRC32C, bit by bit.
fn crc32c(bytes: impl IntoIterator<Item = u8>) -> u32 {
    !bytes.into_iter().fold(!0u32, |crc, byte| {
        (0..8).fold(crc ^ u32::from(byte), |crc, _| (crc >> 1) ^ (0x82f6_3b78 & (crc & 1).wrapping_neg()))
    })
}

#[test]
fn a_store_of_another_format_version_is_refused() {
    let dir = temp();
    let store = || small(Options::directory(dir.path().join("store")));
    make(store());
    let path = dir.path().join("store/data.esker");
    let ours = std::fs::read(&path).expect("the store is there");
    let mut theirs = ours.clone();
    for copy in (0..4).map(|copy| copy * 4096) {
        let payload =
            u32::from_le_bytes(theirs[copy + 20..copy + 24].try_into().expect("four bytes")) as usize;
        let crc_of = |bytes: &[u8]| {
            crc32c(std::iter::repeat_n(0, 20).chain(bytes[copy + 12..copy + 24 + payload].iter().copied()))
        };
        let crc_at = copy + 8..copy + 12;
        assert_eq!(
            crc_of(&theirs).to_le_bytes(),
            theirs[crc_at.clone()],
            "this test computes it as the store does"
        );
        theirs[copy + 12..copy + 16].copy_from_slice(&2u32.to_le_bytes());
        let crc = crc_of(&theirs);
        theirs[crc_at].copy_from_slice(&crc.to_le_bytes());
    }
    std::fs::write(&path, &theirs).expect("the file is written");
    refused(dir.path(), store(), ErrorKind::Invalid, &["data.esker", "version 2", "version 1"]);
    refused(dir.path(), store().force_format(true), ErrorKind::Invalid, &["version 2"]);
    // One that cannot be read at all is damage, and not an empty device.
    theirs[..16384].iter_mut().skip(100).step_by(512).for_each(|byte| *byte ^= 1);
    std::fs::write(&path, &theirs).expect("the file is written");
    refused(dir.path(), store(), ErrorKind::Corrupt, &["data.esker", "superblock"]);
    std::fs::write(&path, &ours).expect("the file is written");
    opens_with_its_key(store());
}

/// Not a test of its own: what the child runs.
#[test]
fn child_that_opens() {
    let Ok(dir) = std::env::var("ESKER_CHILD_DIR") else { return };
    match Blocking::open(small(Options::directory(dir))) {
        Ok(_) => println!("\nanswer: opened"),
        Err(error) => println!("\nanswer: {:?} {error}", error.kind()),
    }
}

fn open_in_another_process(dir: &Path) -> String {
    let output = Command::new(std::env::current_exe().expect("this program has a path"))
        .args(["child_that_opens", "--exact", "--nocapture", "--test-threads=1"])
        .env("ESKER_CHILD_DIR", dir)
        .output()
        .expect("the child runs");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let answer = text.lines().find_map(|line| line.strip_prefix("answer: ")).map(str::to_string);
    answer.unwrap_or_else(|| panic!("the child says what it found: {text}"))
}

#[test]
fn a_second_opener_is_locked_out_here_and_from_elsewhere() {
    let dir = temp();
    let path = dir.path().join("store");
    let store = Blocking::open(small(Options::directory(&path))).expect("the store opens");
    store.put("k", "v").expect("the put succeeds");
    let this = format!("process {}", std::process::id());
    let words = ["data.esker", &this, "this process"];
    listing_at_rest(dir.path());
    let error = refused(dir.path(), small(Options::directory(&path)), ErrorKind::Locked, &words);
    assert!(!error.is_retryable());
    let before = listing(dir.path());
    let answer = open_in_another_process(&path);
    assert!(answer.starts_with("Locked") && answer.contains(&this), "{answer}");
    assert!(listing(dir.path()) == before, "the other process wrote nothing");
    store.put("k2", "v").expect("the first opener goes on");
    store.close().expect("the store closes");
    assert_eq!(open_in_another_process(&path), "opened");
}

#[test]
fn a_closed_store_refuses_everything_and_reopens_at_once() {
    let dir = temp();
    let options = || small(Options::directory(dir.path().join("store")));
    let store = Blocking::open(options()).expect("the store opens");
    let other = store.clone();
    assert!(!store.store().is_closed());
    store.put("k", "v").expect("the put succeeds");
    store.close().expect("the store closes");
    assert!(store.store().is_closed() && other.store().is_closed());
    #[track_caller]
    fn closed<T>(result: Result<T, Error>) {
        let error = result.err().expect("it is refused");
        assert_eq!(error.kind(), ErrorKind::Closed, "{error}");
        assert!(!error.is_retryable());
    }
    for store in [&store, &other] {
        closed(store.get("k"));
        closed(store.get("not there"));
        closed(store.get_entry("k"));
        closed(store.get_many(&["k"]).remove(0));
        closed(store.put("k", "w"));
        closed(store.put_with("k", "w", if_absent()));
        closed(store.delete("k"));
        closed(store.write(one_put(b"k", b"w")));
        closed(store.scan(Cursor::START, 10));
        closed(store.clear());
        closed(store.flush());
        store.close().expect("closing again is fine");
        assert_eq!(store.store().stats().activity.puts, 1, "numbers can still be asked for");
    }
    // No handle was dropped, and nobody waits.
    for _ in 0..5 {
        opens_with_its_key(options());
    }
}

#[test]
fn a_store_whose_handles_are_dropped_can_be_opened_again() {
    let dir = temp();
    let options = || small(Options::directory(dir.path().join("store")));
    for round in 0..5u8 {
        let store = Blocking::open(options()).expect("the store opens");
        let found = store.get("k").expect("the get succeeds");
        assert_eq!(found.as_deref(), round.checked_sub(1).as_ref().map(std::slice::from_ref));
        store.put("k", vec![round]).expect("the put succeeds");
    }
}

fn if_absent() -> WriteOptions {
    WriteOptions { condition: Condition::IfAbsent, ..WriteOptions::default() }
}

#[test]
fn durability_that_cannot_be_had_is_refused() {
    let device = Arc::new(MemoryDevice::new(64 << 20));
    let store = Blocking::open(small(Options::devices(None, Some(device)))).expect("the store opens");
    let process = WriteOptions { durability: Some(Durability::Process), ..WriteOptions::default() };
    let error = store.put_with("k", "v", process).expect_err("there is no staging file");
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(error.to_string().contains("Process") && error.to_string().contains("staging"), "{error}");
    assert_eq!(store.get("k").expect("the get succeeds"), None);
    store.close().expect("the store closes");
}

#[test]
fn only_busy_says_to_try_again() {
    let store_errors = [
        (Error::Invalid { what: "x".into() }, false),
        (Error::Conflict { what: "x".into(), current: None }, false),
        (Error::Full { live_bytes: 2, limit_bytes: 1 }, false),
        (Error::Busy { waited_ms: 1, tier: "fast" }, true),
        (Error::Corrupt { key: None, segment: 1, offset: 2, what: "x".into() }, false),
        (Error::Locked { path: "p".into(), holder: "h".into() }, false),
        (Error::Closed { reason: "x".into() }, false),
    ];
    for (error, retryable) in store_errors {
        assert_eq!(error.is_retryable(), retryable, "{error}");
    }
}

/// Compiles only if it is given something that may go to another thread.
fn may_be_sent<T: Send>(it: T) -> T {
    it
}

#[test]
fn futures_may_be_sent_to_other_threads() {
    fn both<T: Send + Sync + Clone + 'static>(_: &T) {}
    let dir = temp();
    let open = may_be_sent(Store::open(small(Options::directory(dir.path().join("store")))));
    let store = esker_device::block_on(open).expect("the store opens");
    both(&store);
    both(&store.blocking());
    let all = async {
        may_be_sent(store.put("k", "v")).await?;
        may_be_sent(store.put_with("k2", "v", if_absent())).await?;
        may_be_sent(store.write(one_put(b"a", b"b"))).await?;
        may_be_sent(store.get("k")).await?;
        may_be_sent(store.get_entry("k")).await?;
        may_be_sent(store.get_many(&["k"])).await;
        may_be_sent(store.contains("k")).await?;
        may_be_sent(store.scan(Cursor::START, 10)).await?;
        may_be_sent(store.delete("k")).await?;
        may_be_sent(store.delete_with("k2", WriteOptions::default())).await?;
        may_be_sent(store.flush()).await?;
        may_be_sent(store.clear()).await?;
        may_be_sent(store.close()).await
    };
    esker_device::block_on(may_be_sent(all)).expect("all of it succeeds");
}

/// Polls a future so many times and drops it.
fn poll_and_drop(future: impl Future, polls: usize) {
    let mut future = std::pin::pin!(future);
    let mut context = Context::from_waker(Waker::noop());
    for _ in 0..polls {
        if future.as_mut().poll(&mut context).is_ready() {
            return;
        }
    }
}

#[test]
fn a_future_that_is_dropped_leaves_the_store_usable() {
    let dir = temp();
    let options = || two_tiers(dir.path()).indirection_unit_bytes(16 << 10);
    let store = Blocking::open(options()).expect("the store opens");
    let versions = ["one", "two", "three"].map(|v| Bytes::from(v.repeat(9000)));
    for round in 0..200usize {
        let key = format!("key {}", round % 10);
        let value = versions[round % 3].clone();
        let polls = round % 4;
        let s = store.store();
        match round % 5 {
            0 => poll_and_drop(s.put(key, value.slice(..3)), polls),
            // Large: it has the key reserved, and goes another way.
            1 => poll_and_drop(s.put(key, value), polls),
            2 => poll_and_drop(s.put_with(key, value, if_absent()), polls),
            3 => poll_and_drop(s.delete(key), polls),
            _ => poll_and_drop(s.write(one_put(key.as_bytes(), &value[..3])), polls),
        }
    }
    // No key stays reserved, and what is there was written as it is.
    let check = |store: &Blocking| {
        for n in 0..10 {
            let found = store.get(format!("key {n}")).expect("the get succeeds");
            let whole = |f: &Bytes| versions.iter().any(|v| f == v || f == &v.slice(..3));
            assert!(found.as_ref().is_none_or(whole), "key {n} holds {} bytes", found.map_or(0, |f| f.len()));
        }
    };
    check(&store);
    store.flush().expect("the store can be flushed");
    for n in 0..10 {
        store.put(format!("key {n}"), versions[0].clone()).expect("the put succeeds");
        store.delete(format!("key {n}")).expect("the delete succeeds");
        store.put_with(format!("key {n}"), "v", if_absent()).expect("the key is absent");
        store.put(format!("key {n}"), versions[n % 3].clone()).expect("the put succeeds");
    }
    store.close().expect("the store closes");
    let store = Blocking::open(options()).expect("the store opens");
    check(&store);
    assert_eq!(store.store().len(), 10);
    store.close().expect("the store closes");
}

#[test]
fn a_backend_can_be_asked_for_by_name() {
    let dir = temp();
    for (backend, name) in [(Backend::Threads, "threads"), (Backend::Uring, "io_uring")] {
        let options = small(Options::directory(dir.path().join(name))).backend(backend);
        match Blocking::open(options) {
            Ok(store) => {
                assert_eq!(store.store().stats().tiers[0].backend, name);
                store.close().expect("the store closes");
            }
            Err(error) if backend == Backend::Uring => {
                assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
                println!("SKIPPED: {error}");
            }
            Err(error) => panic!("{error}"),
        }
    }
}
