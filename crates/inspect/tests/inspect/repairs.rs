//! Repairs that fail on the way, and paths in any order and with any bytes.

use std::ffi::OsStr;
use std::fs::Permissions;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use esker_device::{Buffer, ReadAt};
use esker_engine::{Blocking, Options};
use esker_inspect::{CheckOptions, StoreView, Watcher};

use crate::made::make;

/// A device that becomes unreadable after the superblocks as soon as a file exists.
struct Failing {
    bytes: Arc<Vec<u8>>,
    data_offset: u64,
    once: PathBuf,
}

impl ReadAt for Failing {
    fn path(&self) -> String {
        "failing".to_owned()
    }

    fn bytes(&self) -> u64 {
        self.bytes.len() as u64
    }

    fn read_at(&self, offset: u64, buffer: &mut Buffer) -> std::io::Result<()> {
        match self.once.exists() && offset >= self.data_offset {
            true => Err(std::io::Error::from_raw_os_error(5)),
            false => self.bytes.read_at(offset, buffer),
        }
    }
}

#[test]
fn failed_repair_leaves_no_file_that_blocks_the_next_one() {
    let made = make(false, true, 12);
    let directory = tempfile::tempdir().expect("a directory for the test");
    let to = directory.path().join("to");
    let data_offset = made.view().tiers[0].superblock.data_offset;
    // The name of the new store until it is complete.
    let once = directory.path().join("to.unfinished");
    let failing = Failing { bytes: made.tiers[0].clone(), data_offset, once };
    let view = StoreView::over(vec![Arc::new(failing)]).expect("it is a store");
    let error = view.repair_to(std::slice::from_ref(&to), &()).expect_err("the device fails on the way");
    assert!(error.to_string().contains("is damaged now"), "{error}");
    let left: Vec<_> = std::fs::read_dir(directory.path()).expect("it is there").collect();
    assert!(left.is_empty(), "{left:?}");
    assert!(made.view().repair_to(&[to], &()).expect("nothing is in the way").well);
}

/// Puts a key into a store of two tiers.
fn two_tiers(fast: &Path, capacity: &Path) {
    let options = Options::fast_and_capacity(fast, capacity)
        .segment_bytes(128 << 10)
        .indirection_unit_bytes(4096)
        .fast_limit_bytes(8 << 20)
        .capacity_limit_bytes(16 << 20)
        .memory_bytes(64 << 20);
    let store = Blocking::open(options).expect("a new store opens");
    store.put("river", "meander").expect("there is room");
    store.close().expect("it closes");
}

#[test]
fn each_tier_keeps_its_name_in_whatever_order_they_are_given() {
    let directory = tempfile::tempdir().expect("a directory for the test");
    let [fast, capacity] =
        [b"fast-\xff", b"capa-\xff"].map(|name| directory.path().join(OsStr::from_bytes(name)));
    two_tiers(&fast, &capacity);
    let given = [capacity.clone(), fast.clone()];
    let view = StoreView::open(&given).expect("the order does not matter");
    let options = view.engine_options().expect("nobody has it open");
    let store =
        Blocking::open(options.memory_bytes(64 << 20)).expect("its names are no text, and are its names");
    assert_eq!(store.get("river").expect("it can be read").as_deref(), Some(&b"meander"[..]));
    store.close().expect("it closes");

    let repaired =
        StoreView::open(&given).and_then(|view| view.repair_in_place(&())).expect("it is repaired");
    assert!(repaired.well, "{repaired:?}");
    let is_fast = |path: &PathBuf| match StoreView::open(std::slice::from_ref(path)) {
        Ok(_) => panic!("it is one tier of two"),
        Err(error) => error.to_string().contains("is the fast tier"),
    };
    assert!(is_fast(&fast) && !is_fast(&capacity));
    let report = StoreView::open(&given).and_then(|view| view.check(CheckOptions::default(), &()));
    assert!(report.expect("it can be checked").well);
}

/// After a repair by another user, the service can still open the store.
#[test]
fn store_repaired_in_place_keeps_owner_and_mode() {
    let directory = tempfile::tempdir().expect("a directory for the test");
    let path = directory.path().join("store");
    let options = || Options::directory(&path).segment_bytes(128 << 10).capacity_limit_bytes(16 << 20);
    let store = Blocking::open(options().memory_bytes(64 << 20)).expect("a new store opens");
    store.put("river", "meander").expect("there is room");
    store.close().expect("it closes");
    let (file, staging) = (path.join("data.esker"), path.join("staging.esker"));
    let shown = |path: &Path| {
        let found = std::fs::metadata(path).expect("it is there");
        (found.uid(), found.gid(), found.mode() & 0o7777)
    };
    // Only root can change the owner; any other user tests only that the mode is kept.
    for path in [&path, &file, &staging] {
        let _ = chown(path, Some(4321), Some(1234));
    }
    std::fs::set_permissions(&path, Permissions::from_mode(0o750)).expect("it is ours, or we are root");
    std::fs::set_permissions(&file, Permissions::from_mode(0o640)).expect("it is ours, or we are root");
    let before = [&path, &file, &staging].map(|path| shown(path));
    let view = StoreView::open(std::slice::from_ref(&path)).expect("it is a store");
    assert!(view.repair_in_place(&()).expect("it is repaired").well);
    assert_eq!([&path, &file, &staging].map(|path| shown(path)), before);
}

/// Moves a new store away once it exists, and puts a link in its place.
struct Mover<'a> {
    new: &'a Path,
    to: &'a Path,
}

impl Watcher for Mover<'_> {
    fn begin(&self, what: &str, _: u64) {
        // The last step of checking the new store. The check of the old store skips it.
        if what == "comparing the index with the log" {
            std::fs::rename(self.new, self.new.with_extension("moved")).expect("it is there");
            symlink(self.to, self.new).expect("the name is free");
        }
    }

    fn advance(&self, _: u64) {}
}

/// The owner of the store also owns its directory, with all rights in it, while root repairs the store.
#[test]
fn a_repair_by_root_gives_away_nothing_that_a_link_leads_to() {
    let directory = tempfile::tempdir().expect("a directory for the test");
    let [path, secrets] = ["store", "secrets"].map(|name| directory.path().join(name));
    let options = Options::directory(&path).segment_bytes(128 << 10).capacity_limit_bytes(16 << 20);
    let store = Blocking::open(options.memory_bytes(64 << 20)).expect("a new store opens");
    store.put("river", "meander").expect("there is room");
    store.close().expect("it closes");
    std::fs::create_dir(&secrets).expect("a directory");
    let jobs = ["data.esker", "job"].map(|name| secrets.join(name));
    jobs.iter().for_each(|job| std::fs::write(job, "").expect("a file"));
    if chown(&path, Some(4321), Some(1234)).is_err() {
        eprintln!("skipped: only root can give anything away");
        return;
    }
    let new = directory.path().join("store.repaired");
    let view = StoreView::open(std::slice::from_ref(&path)).expect("it is a store");
    let error = view.repair_in_place(&Mover { new: &new, to: &secrets }).expect_err("it is a link");
    assert!(error.to_string().contains("cannot be given"), "{error}");
    let owner = |path: &Path| std::fs::metadata(path).expect("it is there").uid();
    assert_eq!([&secrets, &jobs[0], &jobs[1]].map(|path| owner(path)), [0; 3]);
    assert_eq!(owner(&path), 4321);
}

/// Puts a link in the place of the new store while the old one is checked.
struct Linker<'a> {
    new: &'a Path,
    to: &'a Path,
}

impl Watcher for Linker<'_> {
    fn begin(&self, what: &str, _: u64) {
        if what == "reading segments" && !self.new.is_symlink() {
            symlink(self.to, self.new).expect("the name is free");
        }
    }

    fn advance(&self, _: u64) {}
}

#[test]
fn a_repair_makes_nothing_where_a_link_leads_to() {
    let directory = tempfile::tempdir().expect("a directory for the test");
    let [path, elsewhere] = ["store", "elsewhere"].map(|name| directory.path().join(name));
    let options = Options::directory(&path).segment_bytes(128 << 10).capacity_limit_bytes(16 << 20);
    let store = Blocking::open(options.memory_bytes(64 << 20)).expect("a new store opens");
    store.put("river", "meander").expect("there is room");
    store.close().expect("it closes");
    let new = directory.path().join("store.repaired");
    let view = StoreView::open(std::slice::from_ref(&path)).expect("it is a store");
    for is_there_before in [false, true] {
        for exists in [false, true] {
            if exists {
                std::fs::create_dir(&elsewhere).expect("a directory");
            }
            if is_there_before {
                symlink(&elsewhere, &new).expect("the name is free");
            }
            let error =
                view.repair_in_place(&Linker { new: &new, to: &elsewhere }).expect_err("a link is there");
            assert!(error.to_string().contains("store.repaired already exists"), "{error}");
            assert_eq!(std::fs::read_dir(&elsewhere).map_or(0, Iterator::count), 0);
            assert_eq!(elsewhere.exists(), exists);
            std::fs::remove_file(&new).expect("the link is as it was");
            let _ = std::fs::remove_dir(&elsewhere);
        }
    }
}

/// The data file of a store in a directory: the staging file beside it belongs to the old store, and
/// moves with it.
#[test]
fn file_repaired_in_place_moves_staging_file_with_old_store() {
    let directory = tempfile::tempdir().expect("a directory for the test");
    let path = directory.path().join("store");
    let options = || Options::directory(&path).segment_bytes(128 << 10).capacity_limit_bytes(16 << 20);
    let store = Blocking::open(options().memory_bytes(64 << 20)).expect("a new store opens");
    store.put("river", "meander").expect("there is room");
    store.close().expect("it closes");
    let staging = std::fs::read(path.join("staging.esker")).expect("it is read");
    let view = StoreView::open(&[path.join("data.esker")]).expect("it is a store");
    assert!(view.repair_in_place(&()).expect("it is repaired").well);
    let mut names: Vec<_> = std::fs::read_dir(&path).expect("it is read").flatten().collect();
    names.sort_by_key(|entry| entry.file_name());
    let names: Vec<_> = names.iter().map(|entry| entry.file_name()).collect();
    assert_eq!(names, ["data.esker", "data.esker.damaged", "data.esker.damaged.staging"]);
    assert!(std::fs::read(path.join("data.esker.damaged.staging")).expect("it is read") == staging);
    let store = Blocking::open(options().memory_bytes(64 << 20)).expect("the new store opens");
    assert_eq!(store.get("river").expect("it is read").as_deref(), Some(&b"meander"[..]));
    store.close().expect("it closes");
}

/// Records the names beside a new store while it is made.
struct Names<'a> {
    directory: &'a Path,
    seen: std::sync::Mutex<Vec<Vec<String>>>,
}

impl Watcher for Names<'_> {
    fn begin(&self, _: &str, _: u64) {
        let entries = std::fs::read_dir(self.directory).expect("a directory").flatten();
        let mut names: Vec<String> =
            entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        self.seen.lock().expect("no other thread panics").push(names);
    }

    fn advance(&self, _: u64) {}
}

#[test]
fn new_store_that_a_killed_repair_left_is_replaced() {
    let directory = tempfile::tempdir().expect("a directory for the test");
    let at = directory.path();
    let path = at.join("store");
    let options = |path: &Path| {
        let options = Options::directory(path).segment_bytes(128 << 10).capacity_limit_bytes(16 << 20);
        options.memory_bytes(64 << 20)
    };
    let store = Blocking::open(options(&path)).expect("a new store opens");
    store.put("river", "meander").expect("there is room");
    store.close().expect("it closes");
    let view = StoreView::open(std::slice::from_ref(&path)).expect("it is a store");
    let (new, left) = (at.join("new"), at.join("new.unfinished"));
    let of_killed = Blocking::open(options(&left)).expect("a new store opens");
    of_killed.put("half", "of it").expect("there is room");
    let error = view.repair_to(std::slice::from_ref(&new), &()).expect_err("it is in use").to_string();
    assert!(error.contains("in use"), "{error}");
    of_killed.close().expect("it closes");
    std::fs::write(left.join("letter"), "dear").expect("a file");
    let error = view.repair_to(std::slice::from_ref(&new), &()).expect_err("a file of others").to_string();
    assert!(error.contains("holds other files"), "{error}");
    std::fs::remove_file(left.join("letter")).expect("it is there");
    let names = Names { directory: at, seen: std::sync::Mutex::default() };
    assert!(view.repair_to(std::slice::from_ref(&new), &names).expect("it is repaired").well);
    let seen = names.seen.into_inner().expect("no other thread panics");
    assert!(seen.iter().any(|names| names == &["new.unfinished", "store"]), "{seen:?}");
    assert!(new.join("data.esker").exists() && !left.exists());
    let repaired = Blocking::open(options(&new).create(false)).expect("it opens");
    assert_eq!(
        (repaired.len(), repaired.get("river").expect("it is read").as_deref()),
        (1, Some(&b"meander"[..]))
    );
}
