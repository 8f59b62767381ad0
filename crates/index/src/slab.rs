//! Memory of tables: one slab per table size, with a fixed place for every shard.
//!
//! A shard whose table grows moves from its place in one slab to its place in the next, and the pages it leaves are released. A
//! place never belongs to another shard, and a slab is never unmapped while the index lives. A reader that still examines a
//! place its shard has left therefore sees entries of its own shard or empty slots, and needs neither a lock nor an epoch.

use std::ops::Range;
use std::sync::OnceLock;

use parking_lot::Mutex;

use crate::bucket::BUCKET_BYTES;
use crate::geometry::{GENERATIONS, GEOMETRIES};
use crate::hash::SHARDS;
use crate::memory::{Region, page_bytes};
use crate::table::Table;

/// The slabs of all sizes, each created when the first shard needs it.
#[derive(Debug)]
pub(crate) struct Slabs {
    all: [OnceLock<Slab>; GENERATIONS],
    /// Maximum number of buckets in a place.
    buckets_max: usize,
}

#[derive(Debug)]
struct Slab {
    region: Region,
    /// True for each shard that has its table here. The lock is held while pages are released, because a page shared by two
    /// shards must not be released by one while the other moves in.
    residents: Box<Mutex<[bool; SHARDS]>>,
}

impl Slabs {
    /// Creates the slabs, with every shard in the first one.
    pub(crate) fn new(buckets_max: Option<usize>) -> Slabs {
        let buckets_max = buckets_max.unwrap_or(usize::MAX);
        let slabs = Slabs { all: [const { OnceLock::new() }; GENERATIONS], buckets_max };
        let first = slabs.open(0).expect("memory for the smallest tables");
        *first.residents.lock() = [true; SHARDS];
        slabs
    }

    /// Returns the shard's place in the slab of this generation, which some shard must have entered before.
    #[inline]
    pub(crate) fn table(&self, generation: usize, shard: usize) -> Table<'_> {
        let slab = self.all[generation].get().expect("a shard lives in a slab");
        let geometry = &GEOMETRIES[generation];
        let first = shard * geometry.buckets();
        Table::new(&slab.region.buckets()[first..first + geometry.buckets()], geometry)
    }

    /// Returns the slab of this generation, creating it if necessary. Returns `None` if there is no such generation or no
    /// address space.
    fn open(&self, generation: usize) -> Option<&Slab> {
        let cell = self.all.get(generation)?;
        if GEOMETRIES[generation].buckets() > self.buckets_max {
            return None;
        }
        // Another shard may be creating it too, whose region may be the reason why this one fails.
        if cell.get().is_none()
            && let Ok(region) = Region::new(SHARDS * GEOMETRIES[generation].buckets())
        {
            // If another shard was faster, its region stays and this one is dropped.
            let _ = cell.set(Slab { region, residents: Box::new(Mutex::new([false; SHARDS])) });
        }
        cell.get()
    }

    /// Takes the shard's place in the slab of this generation. The caller must zero the content.
    pub(crate) fn enter(&self, generation: usize, shard: usize) -> Option<Table<'_>> {
        let slab = self.open(generation)?;
        let was_there = std::mem::replace(&mut slab.residents.lock()[shard], true);
        assert!(!was_there, "a shard has one table of a size");
        Some(self.table(generation, shard))
    }

    /// Requests huge pages for the places of these shards, all of which are about to be filled: huge pages then cost nothing,
    /// and small pages need not be copied into huge ones later.
    pub(crate) fn prefer_huge_pages(&self, generation: usize, shards: Range<usize>) {
        let place_bytes = GEOMETRIES[generation].buckets() * BUCKET_BYTES;
        if generation > 0
            && let Some(slab) = self.open(generation)
        {
            slab.region.prefer_huge_pages(shards.start * place_bytes..shards.end * place_bytes);
        }
    }

    /// Leaves the shard's place, and releases those of its pages that no neighbour uses.
    pub(crate) fn leave(&self, generation: usize, shard: usize) {
        let slab = self.all[generation].get().expect("a shard lives in a slab");
        let place_bytes = GEOMETRIES[generation].buckets() * BUCKET_BYTES;
        let mut residents = slab.residents.lock();
        assert!(residents[shard], "a shard leaves only a slab that holds its table");
        residents[shard] = false;
        slab.region.give_back(free_pages(&residents, place_bytes, shard, page_bytes()));
    }

    /// Collapses the pages of the shard's place into huge pages where all their places are occupied: otherwise two random cache
    /// lines in a hundred megabytes or more cost two TLB misses. Huge pages from the start would be touched by the first shard
    /// that moves in, and stay empty until its neighbours follow.
    pub(crate) fn collapse(&self, generation: usize, shard: usize) {
        let slab = self.all[generation].get().expect("a shard lives in a slab");
        let place_bytes = GEOMETRIES[generation].buckets() * BUCKET_BYTES;
        for huge_page in slab.region.huge_pages(shard * place_bytes..(shard + 1) * place_bytes) {
            let shards = huge_page.start / place_bytes..huge_page.end.div_ceil(place_bytes);
            let is_full = slab.residents.lock()[shards].iter().all(|lives_here| *lives_here);
            if is_full {
                slab.region.collapse(huge_page);
            }
        }
    }

    /// Returns the bytes of the slabs without their buckets.
    pub(crate) fn overhead_bytes(&self) -> u64 {
        let open = self.all.iter().filter(|slab| slab.get().is_some()).count();
        (size_of::<Slabs>() + open * size_of::<[bool; SHARDS]>()) as u64
    }
}

/// Returns the byte range of all pages that intersect the shard's place and that no shard uses.
fn free_pages(residents: &[bool; SHARDS], place_bytes: usize, shard: usize, page: usize) -> Range<usize> {
    let lives_in = |bytes: Range<usize>| {
        residents[bytes.start / place_bytes..bytes.end.div_ceil(place_bytes).min(SHARDS)].contains(&true)
    };
    let (place_start, place_end) = (shard * place_bytes, (shard + 1) * place_bytes);
    let slab_end = SHARDS * place_bytes;

    let mut start = place_start / page * page;
    if lives_in(start..place_start) {
        start = place_start.next_multiple_of(page);
    }
    let mut end = place_end.next_multiple_of(page).min(slab_end);
    if lives_in(place_end..end) {
        end = place_end / page * page;
    }
    if start < end { start..end } else { 0..0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_shared_with_a_neighbour_stay() {
        let (place, page) = (8_896, 4_096);
        let mut residents = [true; SHARDS];
        residents[1] = false;
        // Shard 1 is at 8,896..17,792: the page at 8,192 is shared with shard 0, the page at 16,384 with shard 2.
        assert_eq!(free_pages(&residents, place, 1, page), 12_288..16_384);
        residents[0] = false;
        assert_eq!(free_pages(&residents, place, 1, page), 8_192..16_384);
        residents[2] = false;
        assert_eq!(free_pages(&residents, place, 1, page), 8_192..20_480);
        residents[SHARDS - 1] = false;
        assert_eq!(free_pages(&residents, place, SHARDS - 1, page).end, SHARDS * place);
    }

    #[test]
    fn a_place_within_one_page_is_given_back_with_its_neighbours() {
        let (place, page) = (8_896, 65_536);
        let mut residents = [false; SHARDS];
        assert_eq!(free_pages(&residents, place, 3, page), 0..65_536);
        residents[0] = true;
        assert_eq!(free_pages(&residents, place, 3, page), 0..0);
    }
}
