//! Checks find damage and name the affected keys, and repairs save everything else.
//!
//! The test knows which bytes each damage changed, and the parsers of the log give the purpose of every byte of a
//! store. From both follows the expected report:
//! * If only padding and free space changed, no key is lost.
//! * Otherwise the store is not well. The keys whose current record changed are named. If the affected
//!   keys cannot be known, the report says so. No other key is named.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

use esker_device::{Buffer, ReadAt};
use esker_engine::{Blocking, Options};
use esker_inspect::{CheckOptions, Key, Name, Report, Standing, StoreView};
use esker_log::{
    Databases, FOOTER_BYTES, FRAME_HEADER_BYTES, Footer, FrameHeader, SUPERBLOCK_COPIES, Superblock,
};
use esker_simulated::Random;

use crate::made::{Made, make, view};

const SECTOR: u64 = 512;
const BLOCK: u64 = 4096;
const PREFIX_BYTES: u64 = 24;
/// Number of damages, spread over `STORES` stores.
const DAMAGES: u64 = 520;
const STORES: u64 = 4;
/// One damaged store in `REPAIRED` is repaired.
const REPAIRED: u64 = 32;
/// The index of one store in `COMPARED` is compared.
const COMPARED: u64 = 16;

/// The purpose of the bytes of a store.
struct Anatomy {
    /// Bytes in use, by tier: neither padding, nor free, nor left over.
    needed: Vec<Vec<Range<u64>>>,
    /// Current records, by tier.
    current: Vec<Vec<(Range<u64>, Key)>>,
}

impl Anatomy {
    fn of(made: &Made) -> Anatomy {
        let view = made.view();
        let mut anatomy = Anatomy { needed: Vec::new(), current: Vec::new() };
        let rows = view.slot_rows(true, &()).expect("it can be read").slots;
        for (tier, bytes) in view.tiers.iter().zip(&made.tiers) {
            let superblock = &tier.superblock;
            let (mut needed, mut current) = (Vec::new(), Vec::new());
            let stride = Superblock::stride_bytes(superblock.unit_bytes);
            let payload = u64::from(u32::from_le_bytes(bytes[20..24].try_into().expect("four bytes")));
            needed.extend(
                (0..SUPERBLOCK_COPIES as u64).map(|c| c * stride..c * stride + PREFIX_BYTES + payload),
            );
            for row in rows.iter().filter(|row| row.tier == tier.name().name() && row.segment.is_some()) {
                let start = superblock.data_offset + u64::from(row.slot) * superblock.segment_bytes;
                let segment = &bytes[start as usize..(start + superblock.segment_bytes) as usize];
                needed.extend(
                    fixed_parts(segment, superblock).into_iter().map(|r| start + r.start..start + r.end),
                );
                for record in
                    view.records(row.segment.expect("it has one"), 0, &()).expect("it is there").records
                {
                    let range =
                        start + u64::from(record.offset)..start + u64::from(record.offset + record.bytes);
                    needed.push(range.clone());
                    if let (Standing::Current, Name::Bytes(_)) = (record.standing, &record.key.name) {
                        current.push((range, record.key));
                    }
                }
            }
            anatomy.needed.push(needed);
            anatomy.current.push(current);
        }
        anatomy
    }

    fn is_needed(&self, tier: usize, changed: &[u64]) -> bool {
        self.needed[tier].iter().any(|range| is_hit(range, changed))
    }

    /// Returns the keys whose current record changed.
    fn hit(&self, tier: usize, changed: &[u64]) -> BTreeSet<Key> {
        let hit = self.current[tier].iter().filter(|(range, _)| is_hit(range, changed));
        hit.map(|(_, key)| key.clone()).collect()
    }
}

/// Returns true if one of the sorted offsets lies in the range.
fn is_hit(range: &Range<u64>, changed: &[u64]) -> bool {
    changed.get(changed.partition_point(|at| *at < range.start)).is_some_and(|at| *at < range.end)
}

/// Returns the ranges of the frame headers, the summary and the footer of a segment.
fn fixed_parts(segment: &[u8], superblock: &Superblock) -> Vec<Range<u64>> {
    let secret = superblock.secret();
    let length = segment.len();
    let footer =
        Footer::parse(&segment[length - FOOTER_BYTES..], &secret, length as u32).expect("it is sealed");
    let (start, end) = (u64::from(footer.start), u64::from(footer.start + footer.entry_bytes));
    let mut parts = vec![start..end, (length - FOOTER_BYTES) as u64..length as u64];
    let mut at = 0;
    while at < footer.tail {
        let header = FrameHeader::parse(&segment[at as usize..], &secret, at).expect("it is not damaged");
        parts.push(u64::from(at)..u64::from(at) + FRAME_HEADER_BYTES as u64);
        at += header.padded_bytes;
    }
    parts
}

/// A damage: its tier, the bytes after it, and its name.
struct Planted {
    tier: usize,
    bytes: Arc<Vec<u8>>,
    name: String,
}

/// Fills a range of bytes.
fn fill(
    bytes: &mut [u8],
    at: u64,
    length: u64,
    with: impl FnMut() -> u8,
    name: &'static str,
) -> &'static str {
    bytes[at as usize..(at + length) as usize].fill_with(with);
    name
}

fn plant(random: &mut Random, made: &Made, anatomy: &Anatomy) -> Planted {
    let tier = random.below(made.tiers.len() as u64) as usize;
    let mut bytes = made.tiers[tier].to_vec();
    let length = bytes.len() as u64;
    // Mostly at bytes in use.
    let needed = &anatomy.needed[tier];
    let place = |random: &mut Random| match random.below(5) {
        0 => random.below(length),
        _ => {
            let range = &needed[random.below(needed.len() as u64) as usize];
            range.start + random.below(range.end - range.start)
        }
    };
    let at = place(random);
    let (sector, block, other) = (at / SECTOR * SECTOR, at / BLOCK * BLOCK, place(random) / BLOCK * BLOCK);
    let name = match random.below(16) {
        0..5 => {
            bytes[at as usize] ^= 1 << random.below(8);
            "a bit"
        }
        5..7 => fill(&mut bytes, sector, SECTOR, || 0, "a sector of zeros"),
        7..9 => fill(&mut bytes, sector, SECTOR, || random.bits() as u8, "a sector of garbage"),
        9 => fill(&mut bytes, block, BLOCK, || 0, "a block of zeros"),
        10 => fill(&mut bytes, block, BLOCK, || random.bits() as u8, "a block of garbage"),
        11..13 => {
            let (a, b) = (block.min(other) as usize, block.max(other) as usize);
            if a + BLOCK as usize <= b {
                let (front, back) = bytes.split_at_mut(b);
                front[a..a + BLOCK as usize].swap_with_slice(&mut back[..BLOCK as usize]);
            }
            "two blocks that changed places"
        }
        13..15 => {
            bytes.copy_within(block as usize..(block + BLOCK) as usize, other as usize);
            "a block over another one"
        }
        _ => {
            bytes.truncate(sector.max(SECTOR) as usize);
            "the end"
        }
    };
    Planted { tier, bytes: Arc::new(bytes), name: format!("{name} at {at}, other {other}, tier {tier}") }
}

/// Returns the offsets of bytes that differ. Cut-off bytes differ too.
fn changed(before: &[u8], after: &[u8]) -> Vec<u64> {
    let mut changed = Vec::new();
    for (number, block) in before.chunks(BLOCK as usize).enumerate() {
        let at = number * BLOCK as usize;
        let now = after.get(at..(at + block.len()).min(after.len())).unwrap_or(&[]);
        if now != block {
            let differs = |within: &usize| now.get(*within) != Some(&block[*within]);
            changed.extend((0..block.len()).filter(differs).map(|within| (at + within) as u64));
        }
    }
    changed
}

/// Judges a check. Returns true if the check had to find the damage.
fn judge(made: &Made, anatomy: &Anatomy, planted: &Planted, checked: esker_inspect::Result<Report>) -> bool {
    let Planted { tier, bytes, name } = planted;
    let cut = bytes.len() < made.tiers[*tier].len();
    let changed = changed(&made.tiers[*tier], bytes);
    let needed = anatomy.is_needed(*tier, &changed);
    let report = match checked {
        Ok(report) => report,
        // Part of a superblock is cut off, or the device is too short for one.
        Err(error) => {
            assert!(cut, "{name}: {error}");
            return true;
        }
    };
    let hit = anatomy.hit(*tier, &changed);
    assert!(!needed || !report.well, "{name}: damage was not found; {} keys are hit", hit.len());
    let view = made.view();
    let secret = view.tiers[0].superblock.secret();
    let digest = |key: &Key| {
        let Name::Bytes(bytes) = &key.name else { panic!("{key} has a name") };
        let hash = secret.key_hash(Databases::keyspace(view.databases.bits(), key.database), bytes);
        Key { name: Name::Digest(hash.slot, hash.check), ..key.clone() }
    };
    let names: BTreeMap<Key, &Key> =
        hit.iter().flat_map(|key| [(key.clone(), key), (digest(key), key)]).collect();
    let mut named = BTreeSet::new();
    for key in &report.lost_keys {
        let Some(key) = names.get(key) else { panic!("{name}: {key} was not hit: {:#?}", report.findings) };
        named.insert((*key).clone());
    }
    if !report.unnamed_keys {
        assert_eq!(named, hit, "{name}: {:#?}", report.findings);
    }
    needed
}

/// Repairs a damaged store, and checks that every unharmed key is in the new store.
fn repair(made: &Made, anatomy: &Anatomy, planted: &Planted, damaged: &StoreView) {
    let directory = tempfile::tempdir().expect("a directory for the test");
    let to: Vec<_> = ["fast", "capacity"].map(|name| directory.path().join(name)).to_vec();
    let to = &to[2 - made.tiers.len()..];
    let name = &planted.name;
    let repaired = damaged.repair_to(to, &()).unwrap_or_else(|error| panic!("{name}: {error}"));
    assert!(repaired.well, "{name}");
    let options = match to {
        [fast, capacity] => Options::fast_and_capacity(fast, capacity),
        [capacity] => Options::capacity_only(capacity),
        _ => unreachable!("a store has one tier or two"),
    };
    let store =
        Blocking::open(options.memory_bytes(64 << 20).create(false)).expect("what was repaired opens");
    let hit = anatomy.hit(planted.tier, &changed(&made.tiers[planted.tier], &planted.bytes));
    let elsewhere = made.elsewhere.iter().map(|(key, value)| (3, key, Some(value)));
    for (database, key, expected) in
        made.expected.iter().map(|(key, value)| (0, key, value.as_ref())).chain(elsewhere)
    {
        let found = store.database(database).and_then(|store| store.get(key)).expect("it can be read");
        let key = Key::named(database, key);
        let stale = repaired.stale_keys.contains(&key);
        if hit.contains(&key) {
            // Either absent, or listed as stale.
            assert!(found.is_none() || stale, "{name}: {key} is back");
        } else if found.as_deref() != expected.map(|value| &value[..]) {
            // Keys lost with a summary or cut off cannot be named.
            assert!(repaired.unnamed_keys && (found.is_none() || stale), "{name}: {key}");
        }
    }
    store.close().expect("it closes");
}

/// Plants the damages of one store. Returns the number of damages in bytes in use, the number of repaired
/// stores, and the kinds of damage.
fn damage_store(store: u64) -> (u64, u64, BTreeSet<String>) {
    let (mut found, mut repaired, mut kinds) = (0, 0, BTreeSet::new());
    let made = make(store.is_multiple_of(2), true, 40 + store);
    let anatomy = Anatomy::of(&made);
    let mut random = Random::new(store);
    for number in 0..DAMAGES / STORES {
        let planted = plant(&mut random, &made, &anatomy);
        let mut tiers = made.tiers.clone();
        tiers[planted.tier] = planted.bytes.clone();
        let damaged = view(&tiers);
        let options = CheckOptions { index: number % COMPARED == 0 };
        let checked = damaged.and_then(|view| Ok((view.check(options, &())?, view)));
        let (report, view) = match checked {
            Ok((report, view)) => (Ok(report), Some(view)),
            Err(error) => (Err(error), None),
        };
        found += u64::from(judge(&made, &anatomy, &planted, report));
        kinds.insert(planted.name.split(" at ").next().unwrap_or_default().to_owned());
        if let Some(view) = view.filter(|_| number % REPAIRED == 0) {
            repair(&made, &anatomy, &planted, &view);
            repaired += 1;
        }
    }
    (found, repaired, kinds)
}

#[test]
fn every_damage_is_found_and_everything_else_is_saved() {
    let (mut found, mut repaired, mut kinds) = (0, 0, BTreeSet::new());
    let stores: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..STORES).map(|store| scope.spawn(move || damage_store(store))).collect();
        threads.into_iter().map(|thread| thread.join().expect("what failed is told above")).collect()
    });
    for (of_store, repaired_there, planted) in stores {
        (found, repaired) = (found + of_store, repaired + repaired_there);
        kinds.extend(planted);
    }
    assert!(
        found * 2 > DAMAGES && repaired > 10,
        "{found} damages hit something, {repaired} stores were repaired"
    );
    assert_eq!(kinds.len(), 8, "{kinds:?}");
}

/// A device with unreadable pages.
struct Holes {
    bytes: Arc<Vec<u8>>,
    unread: Range<u64>,
}

impl ReadAt for Holes {
    fn path(&self) -> String {
        "holes".to_owned()
    }

    fn bytes(&self) -> u64 {
        self.bytes.len() as u64
    }

    fn read_at(&self, offset: u64, buffer: &mut Buffer) -> std::io::Result<()> {
        let end = offset + buffer.len() as u64;
        match offset < self.unread.end && self.unread.start < end {
            true => Err(std::io::Error::from_raw_os_error(5)),
            false => self.bytes.read_at(offset, buffer),
        }
    }
}

/// Unreadable pages anywhere are damage to the keys stored there, and to no others.
#[test]
fn pages_that_cannot_be_read_are_named_with_their_keys() {
    let made = make(false, true, 77);
    let anatomy = Anatomy::of(&made);
    let data_offset = made.view().tiers[0].superblock.data_offset;
    let (mut named, mut silent) = (0, 0);
    for page in (data_offset / BLOCK..made.tiers[0].len() as u64 / BLOCK).step_by(7) {
        let unread = page * BLOCK..(page + 1) * BLOCK;
        let holes = Holes { bytes: made.tiers[0].clone(), unread: unread.clone() };
        let view = StoreView::over(vec![Arc::new(holes)]).expect("its superblocks can be read");
        let report = view.check(CheckOptions { index: false }, &()).expect("it can be checked");
        let changed: Vec<u64> = unread.collect();
        let hit = anatomy.hit(0, &changed);
        assert!(!anatomy.is_needed(0, &changed) || !report.well, "page {page} was not missed");
        if !report.unnamed_keys {
            assert_eq!(report.lost_keys.len(), hit.len(), "page {page}: {:#?}", report.findings);
        }
        named += u64::from(!report.lost_keys.is_empty());
        silent += u64::from(report.well);
        assert!(view.overview().is_ok());
    }
    assert!(named > 4 && silent > 10, "{named} with keys, {silent} without anything");
    let all = Holes { bytes: made.tiers[0].clone(), unread: 0..u64::MAX };
    let error = StoreView::over(vec![Arc::new(all)]).err().expect("nothing of it can be read");
    assert!(!error.is_of_the_call() && error.to_string().contains("cannot be read at 0"), "{error}");
}
