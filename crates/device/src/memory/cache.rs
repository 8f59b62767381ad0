//! The volatile write cache of an in-memory device: writes that are not durable yet, and the part of them that survives
//! a power failure.
//!
//! Invariant: entries are in the order in which they were applied, and no entry overlaps durable bytes that are newer
//! than the entry. A power failure may therefore apply any subset of them to the durable image, oldest first.

use std::collections::VecDeque;

use super::image::Image;

/// Granularity in bytes at which a power failure usually tears writes; a write may also be torn at any byte.
pub(super) const SECTOR_BYTES: usize = 512;

/// Capacity in bytes. A drive's cache is finite: beyond this the oldest entries are written back.
const CACHE_BYTES_MAX: u64 = 64 << 20;

#[derive(Clone)]
pub(super) struct Entry {
    /// Operation count at the time of application.
    sequence: u64,
    offset: u64,
    change: Change,
    /// True if a flush that should have covered the entry failed: no later flush makes it durable, and a power failure
    /// may or may not keep it.
    abandoned: bool,
}

#[derive(Clone)]
pub(super) enum Change {
    Write(Vec<u8>),
    Clear(u64),
}

impl Change {
    fn len(&self) -> u64 {
        match self {
            Change::Write(bytes) => bytes.len() as u64,
            Change::Clear(bytes) => *bytes,
        }
    }

    fn part(&self, from: u64, to: u64) -> Change {
        match self {
            Change::Write(bytes) => Change::Write(bytes[from as usize..to as usize].to_vec()),
            Change::Clear(_) => Change::Clear(to - from),
        }
    }

    fn apply(&self, offset: u64, image: &mut Image) {
        match self {
            Change::Write(bytes) => image.write(offset, bytes),
            Change::Clear(bytes) => image.clear(offset, *bytes),
        }
    }
}

/// The durable image and the cache in front of it.
#[derive(Clone, Default)]
pub(super) struct Media {
    durable: Image,
    cache: VecDeque<Entry>,
    cache_bytes: u64,
}

impl Media {
    pub(super) fn new(durable: Image) -> Media {
        Media { durable, cache: VecDeque::new(), cache_bytes: 0 }
    }

    pub(super) fn durable(&self) -> &Image {
        &self.durable
    }

    /// Adds a change that a power failure may undo.
    pub(super) fn cached(&mut self, sequence: u64, offset: u64, change: Change) {
        self.cache_bytes += cost(&change);
        self.cache.push_back(Entry { sequence, offset, change, abandoned: false });
        while self.cache_bytes > CACHE_BYTES_MAX {
            let Some(oldest) = self.cache.pop_front() else { break };
            self.cache_bytes -= cost(&oldest.change);
            oldest.change.apply(oldest.offset, &mut self.durable);
        }
    }

    /// Makes a change durable at once. It supersedes older entries for the same bytes.
    pub(super) fn durably(&mut self, offset: u64, change: &Change) {
        change.apply(offset, &mut self.durable);
        self.forget(u64::MAX, offset, change.len());
    }

    /// Makes every entry durable that was applied before `before`.
    pub(super) fn flush(&mut self, before: u64) {
        for entry in std::mem::take(&mut self.cache) {
            if entry.sequence < before && !entry.abandoned {
                self.cache_bytes -= cost(&entry.change);
                entry.change.apply(entry.offset, &mut self.durable);
                self.forget(entry.sequence, entry.offset, entry.change.len());
            } else {
                self.cache.push_back(entry);
            }
        }
    }

    /// Records a failed flush: no later flush makes the entries that it covered durable, like a kernel that marks dirty
    /// pages clean after an error.
    pub(super) fn abandon(&mut self, before: u64) {
        self.cache
            .iter_mut()
            .filter(|entry| entry.sequence < before)
            .for_each(|entry| entry.abandoned = true);
    }

    /// Removes `[offset, offset + bytes)` from the entries that are older than `sequence`.
    fn forget(&mut self, sequence: u64, offset: u64, bytes: u64) {
        let end = offset + bytes;
        let overlaps = |entry: &Entry| {
            entry.sequence < sequence && entry.offset < end && offset < entry.offset + entry.change.len()
        };
        if !self.cache.iter().any(overlaps) {
            return;
        }
        let mut kept = VecDeque::new();
        for entry in std::mem::take(&mut self.cache) {
            if !overlaps(&entry) {
                kept.push_back(entry);
                continue;
            }
            let (start, len) = (entry.offset, entry.change.len());
            for (from, to) in [(start, offset), (end, start + len)] {
                if from < to {
                    let change = entry.change.part(from - start, to - start);
                    kept.push_back(Entry { offset: from, change, ..entry });
                }
            }
        }
        self.cache_bytes = kept.iter().map(|entry| cost(&entry.change)).sum();
        self.cache = kept;
    }

    /// Returns the image after a power failure: the durable bytes plus, of each cached or interrupted change, nothing,
    /// all, or any subset of its sectors.
    pub(super) fn after_power_cut(
        &self,
        interrupted: &[(u64, Change)],
        random: &mut dyn FnMut() -> u64,
    ) -> Image {
        let mut image = self.durable.clone();
        let cached = self.cache.iter().map(|entry| (entry.offset, &entry.change));
        for (offset, change) in cached.chain(interrupted.iter().map(|(offset, change)| (*offset, change))) {
            tear(offset, change, &mut image, random);
        }
        image
    }
}

/// Returns the approximate memory of an entry in bytes.
fn cost(change: &Change) -> u64 {
    64 + match change {
        Change::Write(bytes) => bytes.len() as u64,
        Change::Clear(_) => 0,
    }
}

/// Applies nothing of a change, all of it, a prefix, all but a prefix, or random sectors. A prefix ends at any byte.
pub(super) fn tear(offset: u64, change: &Change, image: &mut Image, random: &mut dyn FnMut() -> u64) {
    let sectors = change.len().div_ceil(SECTOR_BYTES as u64);
    let drawn = random();
    let mut apply = |from: u64, to: u64| {
        let to = to.min(change.len());
        if from < to {
            change.part(from, to).apply(offset + from, image);
        }
    };
    let cut = (drawn % (sectors + 1)) * SECTOR_BYTES as u64 + within_sector(drawn >> 32);
    match random() % 5 {
        0 => {}
        1 => apply(0, change.len()),
        2 => apply(0, cut),
        3 => apply(cut, change.len()),
        _ => {
            for sector in 0..sectors {
                if random() & 1 == 1 {
                    apply(sector * SECTOR_BYTES as u64, (sector + 1) * SECTOR_BYTES as u64);
                }
            }
        }
    }
}

/// Returns the position in a sector at which a write is torn: at its start, within the first bytes (a header), or
/// anywhere.
fn within_sector(drawn: u64) -> u64 {
    match drawn % 4 {
        0 | 1 => 0,
        2 => drawn / 4 % 64,
        _ => drawn / 4 % SECTOR_BYTES as u64,
    }
}
