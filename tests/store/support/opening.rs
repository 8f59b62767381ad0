//! Stores in separate directories, and refused openings that leave no trace.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use esker::{Batch, Blocking, Condition, Error, ErrorKind, Options, WriteOptions};

/// Returns every file below a directory with its bytes, and every directory.
pub(crate) fn listing(dir: &Path) -> BTreeMap<PathBuf, Option<Vec<u8>>> {
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

/// As [`listing`], once nothing changes any more: an open store prepares its next segment in the
/// background.
pub(crate) fn listing_at_rest(dir: &Path) -> BTreeMap<PathBuf, Option<Vec<u8>>> {
    let mut before = listing(dir);
    loop {
        #[expect(clippy::disallowed_methods, reason = "the store under test runs in real time")]
        std::thread::sleep(std::time::Duration::from_millis(200));
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

/// Returns the error of a refused opening. Checks its kind, that its message has these words, and that
/// every file below `dir` is unchanged.
#[track_caller]
pub(crate) fn refused(dir: &Path, options: Options, kind: ErrorKind, words: &[&str]) -> Error {
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

pub(crate) fn temp() -> tempfile::TempDir {
    tempfile::tempdir().expect("a directory for the test")
}

/// Options of a small store, so that a test writes little.
pub(crate) fn small(options: Options) -> Options {
    options.segment_bytes(1 << 20).memory_bytes(64 << 20)
}

/// Options of a small store on two files in a directory.
pub(crate) fn two_tiers(dir: &Path) -> Options {
    small(Options::fast_and_capacity(dir.join("fast"), dir.join("capacity")))
        .fast_limit_bytes(16 << 20)
        .capacity_limit_bytes(64 << 20)
}

/// Makes a store with one key and closes it.
pub(crate) fn make(options: Options) {
    let store = Blocking::open(options).expect("the store opens");
    store.put("k", "v").expect("the put succeeds");
    store.close().expect("the store closes");
}

#[track_caller]
pub(crate) fn opens_with_its_key(options: Options) {
    let store = Blocking::open(options).expect("the store opens");
    assert_eq!(store.get("k").expect("the get succeeds").as_deref(), Some(&b"v"[..]));
    store.close().expect("the store closes");
}

pub(crate) fn one_put(key: &[u8], value: &[u8]) -> Batch {
    let mut batch = Batch::new();
    batch.put(key.to_vec(), value.to_vec());
    batch
}

pub(crate) fn one_delete(key: &[u8]) -> Batch {
    let mut batch = Batch::new();
    batch.delete(key.to_vec());
    batch
}

pub(crate) fn if_absent() -> WriteOptions {
    WriteOptions { condition: Condition::IfAbsent, ..WriteOptions::default() }
}
