//! Whole stores: bytes of a store's files are changed, and it is opened, read, compacted and closed. It may refuse to
//! open, and reads may fail, but every value returned was put under its key.
//!
//! An input is a list of changes: position (three bytes), length (one byte), and the bytes.

use std::path::Path;
use std::sync::OnceLock;

use esker_engine::{Blocking, Durability, Options};

const FILES: [&str; 2] = ["data.esker", "staging.esker"];
const KEYS: u32 = 60;

/// The files of a store after a close or a kill.
struct Left([Option<Vec<u8>>; 2]);

/// A store that was closed; changes apply to its tier.
pub(crate) fn image(bytes: &[u8]) {
    static CLOSED: OnceLock<Left> = OnceLock::new();
    live(CLOSED.get_or_init(|| Left::make(true)), FILES[0], bytes);
}

/// A store that was killed; changes apply to its staging file.
pub(crate) fn staging(bytes: &[u8]) {
    static KILLED: OnceLock<Left> = OnceLock::new();
    live(KILLED.get_or_init(|| Left::make(false)), FILES[1], bytes);
}

fn options(directory: &Path) -> Options {
    Options::directory(directory)
        .segment_bytes(256 << 10)
        .memory_bytes(64 << 20)
        .capacity_limit_bytes(8 << 20)
        .durability(Durability::Process)
}

fn key(number: u32) -> String {
    format!("key-{number:03}")
}

/// Returns a value: the key's name, repeated; older versions are shorter.
fn value(number: u32, version: u32) -> Vec<u8> {
    key(number).repeat((version * 40 + number) as usize + 1).into_bytes()
}

impl Left {
    fn make(is_closed: bool) -> Left {
        let home = tempfile::tempdir().expect("a directory");
        let store = home.path().join("store");
        let open = Blocking::open(options(&store)).expect("the store opens");
        for version in 0..3 {
            for number in (0..KEYS).filter(|number| number % (version + 1) == 0) {
                open.put(key(number), value(number, version)).expect("it is put");
            }
            if version == 1 {
                open.flush().expect("it is flushed");
            }
        }
        (0..KEYS).step_by(7).for_each(|number| assert!(open.delete(key(number)).expect("it is deleted")));
        // A killed process leaves its files as they are at that moment.
        let read = |name: &str| std::fs::read(store.join(name)).ok();
        if is_closed {
            open.close().expect("it closes");
            return Left(FILES.map(read));
        }
        let left = Left(FILES.map(read));
        open.close().expect("it closes");
        left
    }
}

fn live(left: &Left, changed: &str, changes: &[u8]) {
    let home = tempfile::tempdir().expect("a directory");
    let store = home.path().join("store");
    std::fs::create_dir(&store).expect("a directory");
    for (name, bytes) in FILES.into_iter().zip(&left.0) {
        let Some(bytes) = bytes else { continue };
        let mut bytes = bytes.clone();
        if name == changed {
            change(&mut bytes, changes);
        }
        std::fs::write(store.join(name), bytes).expect("it is written");
    }
    let Ok(open) = Blocking::open(options(&store)) else { return };
    read(&open);
    let _ = open.compact();
    read(&open);
    let _ = open.close();
}

fn change(bytes: &mut [u8], mut changes: &[u8]) {
    while let Some(([a, b, c, length], rest)) = changes.split_first_chunk::<4>() {
        let (patch, rest) = rest.split_at(rest.len().min(usize::from(*length)));
        changes = rest;
        let at = u32::from_le_bytes([*a, *b, *c, 0]) as usize % bytes.len().max(1);
        let end = bytes.len().min(at + patch.len());
        bytes[at..end].copy_from_slice(&patch[..end - at]);
    }
}

fn read(store: &Blocking) {
    for number in 0..KEYS {
        let Ok(Some(found)) = store.get(key(number)) else { continue };
        let is_one = (0..3).any(|version| value(number, version) == found[..]);
        assert!(is_one, "{} has a value that it was never given, of {} bytes", key(number), found.len());
    }
    let _ = store.len();
}
