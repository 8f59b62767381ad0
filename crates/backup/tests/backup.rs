//! Backups of stores in files: a restored store has the contents of one point in time.
#![allow(clippy::disallowed_methods, reason = "writers are threads, as in any program")]

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use esker_backup::{Error, Target, backup, list, prune, restore, verify};
use esker_engine::{Batch, Blocking, Compression, Durability, Options};

const SEGMENT_BYTES: u64 = 256 << 10;

fn directory(path: &Path) -> Options {
    Options::directory(path)
        .segment_bytes(SEGMENT_BYTES)
        .capacity_limit_bytes(64 << 20)
        .durability(Durability::None)
        .compression(Compression::Off)
}

fn two_tiers(path: &Path) -> Options {
    let options = Options::fast_and_capacity(path.join("fast"), path.join("capacity"));
    let options = options.segment_bytes(SEGMENT_BYTES).indirection_unit_bytes(16 << 10);
    options.fast_limit_bytes(4 << 20).capacity_limit_bytes(64 << 20).durability(Durability::None)
}

fn key(number: u64) -> Vec<u8> {
    format!("key {number:05}").into_bytes()
}

fn value(number: u64, round: u64) -> Vec<u8> {
    let mut value = format!("{round} of {number} ").into_bytes();
    value.resize(200 + (number * 37 % 3000) as usize, number as u8);
    value
}

fn all(store: &Blocking) -> BTreeMap<Vec<u8>, (Vec<u8>, Option<u64>)> {
    let entries = store.iter().map(|entry| entry.expect("nothing is damaged"));
    entries.map(|entry| (entry.key.to_vec(), (entry.value.to_vec(), entry.expires_at_ms))).collect()
}

fn opened(path: &Path) -> Blocking {
    Blocking::open(directory(path)).expect("it opens")
}

#[test]
fn restore_of_each_backup_returns_its_content() {
    let dir = tempfile::tempdir().expect("a directory");
    let (first, copies) = (dir.path().join("store"), dir.path().join("backups"));
    let store = opened(&first);
    let mut then = Vec::new();
    for round in 0..3 {
        for number in 0..2000 / (3 * round + 1) {
            store.put(key(number), value(number, round)).expect("there is room");
        }
        let expires = esker_engine::WriteOptions {
            expires_at_ms: Some(store.store().now_ms() + 3_600_000),
            ..Default::default()
        };
        store.put_with(b"expires".as_slice(), b"in an hour".as_slice(), expires).expect("there is room");
        for number in 0..100 {
            store.delete(key(number + 500 * round)).expect("it is deleted");
        }
        then.push(all(&store));
        let report = backup(store.store(), &copies, 0, |_| {}).expect("it is backed up");
        assert_eq!(report.summary.id, round + 1);
        assert_eq!(report.summary.keys, then[round as usize].len() as u64);
        // Segments that were sealed before are not copied again.
        if round > 0 {
            assert!(report.copied_bytes < report.summary.bytes, "{report:?}");
        }
    }
    store.put(b"later".as_slice(), b"not there".as_slice()).expect("there is room");
    drop(store);
    assert_eq!(list(&copies).expect("they are listed").len(), 3);
    for (round, then) in then.iter().enumerate() {
        let id = round as u64 + 1;
        verify(&copies, Some(id), |_, _| {}).expect("it is whole");
        let path = dir.path().join(format!("restored {id}"));
        restore(&copies, Some(id), &Target::directory(&path), |_, _| {}).expect("it is restored");
        for _ in 0..2 {
            let restored = opened(&path);
            assert!(all(&restored) == *then, "backup {id}");
            restored.put(b"new".as_slice(), b"too".as_slice()).expect("it can be written to");
            restored.delete(b"new".as_slice()).expect("and deleted from");
            restored.close().expect("it closes");
        }
    }
    // Backing up a restored store into the original's directory is a mistake.
    let other = opened(&dir.path().join("restored 3"));
    let refused = backup(other.store(), &copies, 0, |_| {}).expect_err("it is another store");
    assert!(matches!(refused, Error::Invalid(_)), "{refused}");
}

/// Each writer numbers its writes, in pairs that belong together; large values go directly to the capacity tier. If a
/// backup has a write, it also has all writes by any writer that were acknowledged before that one.
#[test]
fn a_backup_under_load_is_of_one_point_in_time() {
    for two in [false, true] {
        let dir = tempfile::tempdir().expect("a directory");
        let made = if two { two_tiers(dir.path()) } else { directory(&dir.path().join("store")) };
        let store = Blocking::open(made).expect("it opens");
        let (stop, clock) = (AtomicBool::new(false), AtomicU64::new(1));
        let copies = dir.path().join("backups");
        // Per (writer, key) and round: the time before the write was issued, and the time of its acknowledgement.
        let writer = |writer: u64| {
            let mut written: Vec<(u64, u64, u64)> = Vec::new();
            for round in 1u64.. {
                if stop.load(Ordering::Relaxed) {
                    break;
                }
                let number = round * 31 % 150;
                let bytes = if round % 50 == 0 { 60_000 } else { 1500 + (round * 97 % 1500) as usize };
                let mut value = round.to_le_bytes().to_vec();
                value.resize(bytes, writer as u8);
                let began = clock.fetch_add(1, Ordering::SeqCst);
                let (one, other) = (format!("{writer} {number} a"), format!("{writer} {number} b"));
                if round % 50 == 0 {
                    store.put(one, value.clone()).expect("there is room");
                    store.put(other, value).expect("there is room");
                } else {
                    let mut batch = Batch::new();
                    batch.put(one, value.clone());
                    batch.put(other, value);
                    store.write(batch).expect("there is room");
                }
                written.push((number, began, clock.fetch_add(1, Ordering::SeqCst)));
            }
            written
        };
        let written: Vec<Vec<(u64, u64, u64)>> = std::thread::scope(|scope| {
            let writers: Vec<_> = (0..3).map(|number| scope.spawn(move || writer(number))).collect();
            for _ in 0..3 {
                std::thread::sleep(std::time::Duration::from_millis(300));
                backup(store.store(), &copies, 0, |_| {}).expect("it is backed up");
            }
            stop.store(true, Ordering::Relaxed);
            writers.into_iter().map(|writer| writer.join().expect("it ends")).collect()
        });
        store.close().expect("it closes");
        for id in 1..=3 {
            let path = dir.path().join(format!("restored {id}"));
            let target = match two {
                true => Target {
                    fast: Some(path.join("fast")),
                    capacity: Some(path.join("capacity")),
                    overwrite: false,
                },
                false => Target::directory(&path),
            };
            restore(&copies, Some(id), &target, |_, _| {}).expect("it is restored");
            let options = if two { two_tiers(&path) } else { directory(&path) };
            let restored = Blocking::open(options).expect("it opens");
            // For each key the surviving round, which was issued before the point in time.
            let (mut begun_before, mut absent_acked) = (0, u64::MAX);
            for (writer, written) in written.iter().enumerate() {
                let mut rounds: BTreeMap<(u64, char), u64> = BTreeMap::new();
                for number in 0..150 {
                    for half in ['a', 'b'] {
                        if let Some(found) =
                            restored.get(format!("{writer} {number} {half}")).expect("it is read")
                        {
                            let round = u64::from_le_bytes(found[..8].try_into().expect("eight bytes"));
                            rounds.insert((number, half), round);
                        }
                    }
                }
                for (at, (number, began, acked)) in written.iter().enumerate() {
                    let round = at as u64 + 1;
                    let halves = ['a', 'b'].map(|half| rounds.get(&(*number, half)).copied().unwrap_or(0));
                    if halves.contains(&round) {
                        begun_before = begun_before.max(*began);
                    }
                    if halves.iter().any(|there| *there < round) {
                        absent_acked = absent_acked.min(*acked);
                    }
                    if !round.is_multiple_of(50) && halves.contains(&round) {
                        assert!(
                            halves.iter().all(|there| *there >= round),
                            "half of a batch: {halves:?}, {round}"
                        );
                    }
                }
            }
            assert!(begun_before > 0, "something is in the backup");
            assert!(
                begun_before < absent_acked,
                "backup {id} has what was begun at {begun_before}, and not what was acknowledged at {absent_acked}"
            );
            restored.close().expect("it closes");
        }
    }
}

/// A killed store leaves a staging file. A store restored at the same place from an earlier backup must not replay the
/// later writes in it.
#[test]
fn a_staging_file_of_later_is_not_believed() {
    let dir = tempfile::tempdir().expect("a directory");
    let (first, made, copies) =
        (dir.path().join("store"), dir.path().join("made"), dir.path().join("backups"));
    let open =
        |path: &Path| Blocking::open(directory(path).durability(Durability::Process)).expect("it opens");
    let store = open(&first);
    store.put("then", "there").expect("there is room");
    backup(store.store(), &copies, 0, |_| {}).expect("it is backed up");
    store.put("later", "not there").expect("there is room");
    // As after a kill.
    std::fs::create_dir(&made).expect("a directory");
    std::fs::copy(first.join("staging.esker"), made.join("staging.esker")).expect("it is copied");
    store.close().expect("it closes");
    restore(&copies, None, &Target::directory(&made), |_, _| {}).expect("it is restored");
    let restored = open(&made);
    assert_eq!(restored.get("then").expect("it is read").as_deref(), Some(&b"there"[..]));
    assert_eq!(restored.get("later").expect("it is read"), None);
}

#[test]
fn restore_to_unfit_target_or_of_damaged_copy_is_refused() {
    let dir = tempfile::tempdir().expect("a directory");
    let copies = dir.path().join("backups");
    assert!(matches!(list(&copies), Err(Error::Invalid(_))));
    let store = opened(&dir.path().join("store"));
    (0..3000).for_each(|number| {
        store.put(key(number), value(number, 0)).expect("there is room");
    });
    backup(store.store(), &copies, 0, |_| {}).expect("it is backed up");
    let target = Target::directory(&dir.path().join("restored"));
    let said = |result: Result<esker_backup::Summary, Error>| result.expect_err("it is refused").to_string();
    assert!(said(restore(&copies, Some(2), &target, |_, _| {})).contains("has no backup 2; it has 1"));
    let both = Target { fast: Some(dir.path().join("fast")), ..target.clone() };
    assert!(said(restore(&copies, None, &both, |_, _| {})).contains("the backup has no fast tier"));
    // A live store is never overwritten, even with `overwrite`.
    let live = Target { overwrite: true, ..Target::directory(&dir.path().join("store")) };
    assert!(matches!(restore(&copies, None, &live, |_, _| {}), Err(Error::Device(_))));
    drop(store);
    let live = Target { overwrite: false, ..live };
    assert!(said(restore(&copies, None, &live, |_, _| {})).contains("holds a store of Esker"));

    let mut files: Vec<_> =
        std::fs::read_dir(copies.join("segments")).expect("they are there").flatten().collect();
    files.sort_unstable_by_key(|file| file.file_name());
    let victim = files[0].path();
    let bytes = std::fs::read(&victim).expect("it can be read");
    for damage in [bytes[..bytes.len() - 1].to_vec(), [&bytes[..], b"x"].concat(), {
        let mut flipped = bytes.clone();
        flipped[1000] ^= 4;
        flipped
    }] {
        std::fs::write(&victim, damage).expect("it can be written");
        assert!(matches!(verify(&copies, None, |_, _| {}), Err(Error::Damaged { .. })));
        let target = Target { overwrite: true, ..target.clone() };
        assert!(matches!(restore(&copies, None, &target, |_, _| {}), Err(Error::Damaged { .. })));
        let path = dir.path().join("restored");
        assert!(Blocking::open(directory(&path).create(false)).is_err(), "half a store is none");
    }
}

#[test]
fn pruning_leaves_what_the_newest_need() {
    let dir = tempfile::tempdir().expect("a directory");
    let copies = dir.path().join("backups");
    let store = opened(&dir.path().join("store"));
    for round in 0..4 {
        (0..1500).for_each(|number| {
            store.put(key(number), value(number, round)).expect("there is room");
        });
        backup(store.store(), &copies, 0, |_| {}).expect("it is backed up");
    }
    let then = all(&store);
    let (removed, bytes) = prune(&copies, 2).expect("it is pruned");
    assert!(removed == 2 && bytes > 0, "{removed} backups, {bytes} bytes");
    let left: Vec<u64> = list(&copies).expect("they are listed").iter().map(|backup| backup.id).collect();
    assert_eq!(left, [3, 4]);
    for id in left {
        verify(&copies, Some(id), |_, _| {}).expect("it is whole");
    }
    let path = dir.path().join("restored");
    restore(&copies, None, &Target::directory(&path), |_, _| {}).expect("it is restored");
    assert!(all(&opened(&path)) == then);
}

/// A checkpoint that is not read keeps its segments allocated; the store continues when the checkpoint is dropped.
#[test]
fn a_checkpoint_keeps_segments_and_its_end_frees_them() {
    let dir = tempfile::tempdir().expect("a directory");
    let options = Options::directory(dir.path().join("store")).segment_bytes(64 << 10);
    let store =
        Blocking::open(options.capacity_limit_bytes(8 << 20).durability(Durability::None)).expect("it opens");
    let put = |number: u64, round| store.put(key(number % 1000), value(number, round));
    (0..1500).for_each(|number| {
        put(number, 0).expect("there is room");
    });
    let checkpoint = esker_engine::device::block_on(store.store().checkpoint()).expect("it is taken");
    let second = esker_engine::device::block_on(store.store().checkpoint());
    assert!(second.expect_err("one at a time").to_string().contains("another checkpoint"));
    let first = checkpoint.next().expect("there are segments");
    let read = |checkpoint: &esker_engine::Checkpoint, offset, bytes| {
        esker_engine::device::block_on(checkpoint.read(&first, offset, bytes))
    };
    let before = read(&checkpoint, 0, 4096).expect("it is read");
    assert!(read(&checkpoint, first.bytes - 1, 2).is_err());
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            (0..20_000).for_each(|number| {
                put(number, 1).expect("there is room");
            })
        });
        std::thread::sleep(std::time::Duration::from_millis(300));
        assert!(read(&checkpoint, 0, 4096).expect("it is still there") == before);
        drop(checkpoint);
        writer.join().expect("the writer ends");
    });
    store.close().expect("it closes");
}

#[test]
fn checkpoint_counts_down_remaining_bytes_and_segments() {
    let dir = tempfile::tempdir().expect("a directory");
    let store = opened(dir.path());
    (0..1000).for_each(|number| {
        store.put(key(number), value(number, 0)).expect("there is room");
    });
    let mut checkpoint = esker_engine::device::block_on(store.store().checkpoint()).expect("it is taken");
    let mut left = checkpoint.bytes_left();
    assert!(left > SEGMENT_BYTES && checkpoint.segments_left() > 1);
    while let Some(next) = checkpoint.next() {
        checkpoint.let_go(&next);
        checkpoint.let_go(&next);
        left -= u64::from(next.bytes);
        assert_eq!(checkpoint.bytes_left(), left);
    }
    assert_eq!((left, checkpoint.segments_left()), (0, 0));
}
