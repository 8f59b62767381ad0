//! Refused openings and unchanged files: paths that cannot hold a store, files of other programs, tiers
//! of different stores, other format versions, and stores that another process has open.

use std::path::{Path, PathBuf};
use std::process::Command;

use esker::{Blocking, ErrorKind, Options};

use crate::support::opening::{
    listing, listing_at_rest, make, opens_with_its_key, refused, small, temp, two_tiers,
};

use crate::support::{answer_of, child};

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

/// A file attribute that prevents even root from writing.
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
fn device_with_foreign_data_is_not_formatted() {
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
        // As one of two tiers, with a new one.
        let fast = small(Options::fast_and_capacity(&path, dir.path().join("other")));
        refused(dir.path(), fast, ErrorKind::Invalid, &["/disk", what, "force_format"]);
        let capacity = small(Options::fast_and_capacity(dir.path().join("other"), &path));
        refused(dir.path(), capacity, ErrorKind::Invalid, &["/disk", what, "force_format"]);
        make(small(Options::fast_only(&path)).force_format(true));
        opens_with_its_key(small(Options::fast_only(&path)));
    }
    // A leftover option does not format a store again.
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

#[test]
fn force_format_leaves_a_tier_of_a_store_as_it_is() {
    let dir = temp();
    let d = dir.path();
    make(two_tiers(d));
    let (fast, capacity) = (d.join("fast"), d.join("capacity"));
    let forced = || two_tiers(d).force_format(true);
    let mut ext4 = vec![0u8; 16 << 20];
    ext4[1080..1082].copy_from_slice(b"\x53\xef");
    for (exchanged, kept) in [(&fast, &capacity), (&capacity, &fast)] {
        let name = |path: &PathBuf| path.display().to_string();
        let words = [&format!("{}, given as", name(exchanged)), &name(kept), "would format", "backup"];
        let original = std::fs::read(exchanged).expect("the tier can be read");
        // Replaced by a file system, replaced by an empty file, and missing.
        for other in [Some(ext4.clone()), Some(vec![0u8; 16 << 20]), None] {
            match other {
                Some(bytes) => std::fs::write(exchanged, bytes).expect("the file is written"),
                None => std::fs::remove_file(exchanged).expect("the file is removed"),
            }
            refused(d, forced(), ErrorKind::Invalid, &words);
            refused(d, two_tiers(d), ErrorKind::Invalid, &words);
        }
        std::fs::write(exchanged, original).expect("the tier is put back");
        opens_with_its_key(forced());
    }
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
        theirs[copy + 12..copy + 16].copy_from_slice(&3u32.to_le_bytes());
        let crc = crc_of(&theirs);
        theirs[crc_at].copy_from_slice(&crc.to_le_bytes());
    }
    std::fs::write(&path, &theirs).expect("the file is written");
    refused(dir.path(), store(), ErrorKind::Invalid, &["data.esker", "version 3", "version 5"]);
    refused(dir.path(), store().force_format(true), ErrorKind::Invalid, &["version 3"]);
    // A superblock without any readable copy is damage, and not an empty device.
    theirs[..16384].iter_mut().skip(100).step_by(512).for_each(|byte| *byte ^= 1);
    std::fs::write(&path, &theirs).expect("the file is written");
    refused(dir.path(), store(), ErrorKind::Corrupt, &["data.esker", "superblock"]);
    std::fs::write(&path, &ours).expect("the file is written");
    opens_with_its_key(store());
}

/// Not a test: the code of the child.
#[test]
fn child_that_opens() {
    let Ok(dir) = std::env::var("ESKER_CHILD_DIR") else { return };
    match Blocking::open(small(Options::directory(dir))) {
        Ok(_) => println!("\nanswer: opened"),
        Err(error) => println!("\nanswer: {:?} {error}", error.kind()),
    }
}

fn open_in_another_process(dir: &Path) -> String {
    answer_of(child("refused_openings::child_that_opens", dir))
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
    assert!(error.is_retryable(), "the other one may close it");
    let before = listing(dir.path());
    let answer = open_in_another_process(&path);
    assert!(answer.starts_with("Locked") && answer.contains(&this), "{answer}");
    assert!(listing(dir.path()) == before, "the other process wrote nothing");
    store.put("k2", "v").expect("the first opener goes on");
    store.close().expect("the store closes");
    assert_eq!(open_in_another_process(&path), "opened");
}
