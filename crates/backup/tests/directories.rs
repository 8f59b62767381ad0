//! Directories of backups: effects of a new backup, a rotted manifest and pruning on the existing backups.
#![allow(clippy::disallowed_methods, reason = "threads are waited for, as in any program")]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use esker_backup::{Error, Target, backup, list, prune, restore, verify};
use esker_engine::{Blocking, Compression, Durability, Options};

fn opened(path: &Path) -> Blocking {
    let options = Options::directory(path).segment_bytes(256 << 10).capacity_limit_bytes(64 << 20);
    Blocking::open(options.durability(Durability::None).compression(Compression::Off)).expect("it opens")
}

fn put(store: &Blocking, keys: std::ops::Range<u64>, round: u8) {
    for number in keys {
        store.put(number.to_le_bytes().as_slice(), vec![round; 1500]).expect("there is room");
    }
}

fn all(store: &Blocking) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let entries = store.iter().map(|entry| entry.expect("nothing is damaged"));
    entries.map(|entry| (entry.key.to_vec(), entry.value.to_vec())).collect()
}

fn take(store: &Blocking, copies: &Path) -> esker_backup::Report {
    backup(store.store(), copies, 0, |_| {}).expect("it is backed up")
}

fn manifest(copies: &Path, id: u64) -> PathBuf {
    copies.join("backups").join(format!("{id:06}.json"))
}

fn is_damaged<T>(result: Result<T, Error>) -> bool {
    matches!(result, Err(Error::Damaged { .. }))
}

/// A store that is rolled back to an older image reuses epochs and numbers for other segments. The backups taken in
/// between are the only trace of that time.
#[test]
fn a_new_backup_leaves_the_segments_of_older_ones() {
    let dir = tempfile::tempdir().expect("a directory");
    let (path, image, copies) =
        (dir.path().join("store"), dir.path().join("image"), dir.path().join("copies"));
    let store = opened(&path);
    put(&store, 0..300, 1);
    store.close().expect("it closes");
    std::fs::create_dir(&image).expect("a directory");
    std::fs::copy(path.join("data.esker"), image.join("data.esker")).expect("it is copied");
    let mut then = Vec::new();
    for (path, round) in [(&path, 2), (&image, 3)] {
        let store = opened(path);
        put(&store, 0..1000, round);
        then.push(all(&store));
        take(&store, &copies);
        then.push(all(&store));
        // A file with a name of its own is shared like the rest.
        let again = take(&store, &copies);
        assert!(again.copied_segments < 4 && again.summary.segments > 5, "{again:?}");
        store.close().expect("it closes");
    }
    for (id, then) in (1..).zip(then) {
        verify(&copies, Some(id), |_, _| {}).expect("it is whole");
        let made = dir.path().join(format!("made {id}"));
        restore(&copies, Some(id), &Target::directory(&made), |_, _| {}).expect("it is restored");
        assert!(all(&opened(&made)) == then, "backup {id}");
    }
    let before = std::fs::read_dir(copies.join("segments")).expect("it is there").count();
    assert!(prune(&copies, 2).expect("it is pruned").1 > 0);
    assert!(std::fs::read_dir(copies.join("segments")).expect("it is there").count() < before);
    verify(&copies, Some(4), |_, _| {}).expect("it is whole");
}

/// Pruning counts the manifests that exist once the directory is locked, because a concurrent backup may add one before.
#[test]
fn pruning_looks_at_backups_under_the_lock() {
    let dir = tempfile::tempdir().expect("a directory");
    let copies = dir.path().join("copies");
    let store = opened(&dir.path().join("store"));
    put(&store, 0..100, 1);
    take(&store, &copies);
    let mut tried = 0;
    backup(store.store(), &copies, 0, |_| {
        // An unreadable manifest shows whether it was read.
        std::fs::write(manifest(&copies, 9), "{").expect("it can be written");
        let refused = prune(&copies, 1).expect_err("somebody else changes it");
        assert!(matches!(refused, Error::Device(_)), "{refused}");
        std::fs::remove_file(manifest(&copies, 9)).expect("it is there");
        tried += 1;
    })
    .expect("it is backed up");
    assert!(tried > 0);
    let empty = dir.path().join("empty");
    std::fs::create_dir(&empty).expect("a directory");
    assert!(matches!(prune(&empty, 1), Err(Error::Invalid(_))));
    assert_eq!(std::fs::read_dir(&empty).expect("it is there").count(), 0, "nothing is made in it");
}

/// One changed digit could turn the same segments into another store, or an empty one.
#[test]
fn a_manifest_that_rotted_is_damaged() {
    let dir = tempfile::tempdir().expect("a directory");
    let copies = dir.path().join("copies");
    let store = opened(&dir.path().join("store"));
    put(&store, 0..10, 1);
    let then = all(&store);
    take(&store, &copies);
    let path = manifest(&copies, 1);
    let whole = std::fs::read(&path).expect("it can be read");
    let text = String::from_utf8(whole.clone()).expect("it is text");
    for line in text.lines() {
        assert!(serde_json::from_str::<serde_json::Value>(line).is_ok(), "{line}");
    }

    let digit = text.find("\"salt\":").expect("it is there") + "\"salt\":".len();
    let mut rotted = whole.clone();
    rotted[digit] = if rotted[digit] == b'1' { b'2' } else { b'1' };
    std::fs::write(&path, &rotted).expect("it can be written");
    let target = Target::directory(&dir.path().join("made"));
    assert!(is_damaged(list(&copies)));
    assert!(is_damaged(verify(&copies, None, |_, _| {})));
    assert!(is_damaged(verify(&copies, Some(1), |_, _| {})));
    assert!(is_damaged(restore(&copies, None, &target, |_, _| {})));
    assert!(is_damaged(prune(&copies, 1)));
    assert!(is_damaged(backup(store.store(), &copies, 0, |_| {})));
    assert!(!dir.path().join("made").exists(), "nothing was made");

    // Every bit of it.
    for at in 0..whole.len() {
        let mut rotted = whole.clone();
        rotted[at] ^= 1 << (at % 8);
        std::fs::write(&path, &rotted).expect("it can be written");
        assert!(list(&copies).is_err(), "byte {at} of {text}");
    }
    for end in [0, 1, whole.len() / 2, whole.len() - 1] {
        std::fs::write(&path, &whole[..end]).expect("it can be written");
        assert!(is_damaged(list(&copies)), "{end} bytes");
    }
    std::fs::write(&path, &whole).expect("it can be written");
    take(&store, &copies);
    // A manifest in the place of another.
    std::fs::copy(manifest(&copies, 2), manifest(&copies, 1)).expect("it is copied");
    assert!(is_damaged(list(&copies)));
    std::fs::write(&path, &whole).expect("it can be written");
    // A rotted manifest does not prevent the others from being restored.
    std::fs::write(manifest(&copies, 2), b"{").expect("it can be written");
    assert!(is_damaged(restore(&copies, None, &target, |_, _| {})));
    restore(&copies, Some(1), &target, |_, _| {}).expect("it is restored");
    assert!(all(&opened(&dir.path().join("made"))) == then);
}

#[test]
fn a_manifest_of_another_format_is_refused_with_its_format() {
    let dir = tempfile::tempdir().expect("a directory");
    std::fs::create_dir(dir.path().join("backups")).expect("a directory");
    std::fs::write(manifest(dir.path(), 1), "{\n  \"format\": 1,\n  \"id\": 1\n}")
        .expect("it can be written");
    let refused = list(dir.path()).expect_err("it is of format 1");
    assert!(matches!(refused, Error::Invalid(_)), "{refused}");
    assert!(refused.to_string().ends_with("has format 1; this program reads format 3"), "{refused}");
}

/// Returns the oldest segment file of a sealed segment.
fn shared_file(copies: &Path) -> PathBuf {
    let files = std::fs::read_dir(copies.join("segments")).expect("it is there").flatten();
    let is_shared =
        |path: &PathBuf| path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"cap"));
    files.map(|file| file.path()).filter(is_shared).min().expect("there is one")
}

fn rot(path: &Path) {
    let mut bytes = std::fs::read(path).expect("it can be read");
    bytes[1000] ^= 4;
    std::fs::write(path, bytes).expect("it can be written");
}

/// When a backup is taken, an existing shared file is checked only by its length.
#[test]
fn rotten_shared_file_is_copied_again_after_verification() {
    let dir = tempfile::tempdir().expect("a directory");
    let copies = dir.path().join("copies");
    let store = opened(&dir.path().join("store"));
    put(&store, 0..1000, 1);
    take(&store, &copies);
    let file = shared_file(&copies);
    rot(&file);
    take(&store, &copies);
    let aside = PathBuf::from(format!("{}.damaged", file.display()));
    let said = verify(&copies, Some(2), |_, _| {}).expect_err("it rotted").to_string();
    assert!(said.contains("checksum mismatch") && said.contains("with the suffix .damaged"), "{said}");
    assert!(aside.exists() && !file.exists());
    let made = Target::directory(&dir.path().join("made"));
    let said = restore(&copies, Some(1), &made, |_, _| {}).expect_err("it rotted").to_string();
    assert!(said.contains("put aside"), "{said}");
    // It is the only remaining copy.
    prune(&copies, 9).expect("it is pruned");
    assert!(aside.exists());
    assert!(take(&store, &copies).copied_segments > 0);
    for id in 1..=3 {
        verify(&copies, Some(id), |_, _| {}).expect("it is whole again");
    }
    prune(&copies, 9).expect("it is pruned");
    assert!(file.exists() && !aside.exists());
}

/// All files are verified, so that a single further backup heals all of them.
#[test]
fn a_verification_puts_all_aside_that_rotted() {
    let dir = tempfile::tempdir().expect("a directory");
    let copies = dir.path().join("copies");
    let store = opened(&dir.path().join("store"));
    put(&store, 0..1000, 1);
    take(&store, &copies);
    let first = shared_file(&copies);
    let hidden = dir.path().join("hidden");
    std::fs::rename(&first, &hidden).expect("it is moved");
    rot(&shared_file(&copies));
    std::fs::rename(&hidden, &first).expect("it is moved back");
    rot(&first);
    let said = verify(&copies, None, |_, _| {}).expect_err("they rotted").to_string();
    assert!(said.contains("and 1 more of its files"), "{said}");
    take(&store, &copies);
    verify(&copies, Some(1), |_, _| {}).expect("it is whole again");
}

/// Reading every earlier manifest would take longer with each of them.
#[test]
fn a_new_backup_reads_the_newest_manifest_only() {
    let dir = tempfile::tempdir().expect("a directory");
    let copies = dir.path().join("copies");
    let store = opened(&dir.path().join("store"));
    put(&store, 0..1000, 1);
    for _ in 0..3 {
        take(&store, &copies);
    }
    for id in [1, 2] {
        std::fs::write(manifest(&copies, id), "{").expect("it can be written");
    }
    let fourth = take(&store, &copies);
    assert!(fourth.summary.id == 4 && fourth.copied_segments < 3, "{fourth:?}");
    verify(&copies, None, |_, _| {}).expect("it is whole");
    assert!(is_damaged(list(&copies)));
    // The manifests of removed backups are not read either.
    assert_eq!(prune(&copies, 2).expect("it is pruned").0, 2);
    assert_eq!(list(&copies).expect("the rest is whole").len(), 2);
    verify(&copies, Some(3), |_, _| {}).expect("it is whole");
    std::fs::write(manifest(&copies, 4), "{").expect("it can be written");
    assert!(is_damaged(backup(store.store(), &copies, 0, |_| {})));
}
