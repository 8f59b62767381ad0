//! Loading the shards of the index: of the entries of each key the newest wins.

use std::ops::Range;
use std::sync::Arc;

use esker_index::{Index, KeyHash, Pointer};
use esker_log::Packing;
use futures_util::future::try_join_all;

use super::deal::{Claimant, Hand, LENGTH_SHIFT, STAGED, STAGED_NUMBER_BITS, TOMBSTONE};
use super::sort::Sorter;
use super::{Scene, StagedWinner, run};
use crate::error::Result;
use crate::tier::Tier;

impl Scene<'_> {
    /// Step 4. Loads the shards that were dealt. Returns the hands but the last, that of the staged records, and which of those
    /// won.
    pub(super) async fn load_shards(
        &self,
        hands: Vec<Hand>,
        shards: Range<usize>,
    ) -> Result<(Vec<Hand>, Vec<StagedWinner>)> {
        let hands = Arc::new(hands);
        let workers = self.runtime.parallelism().max(1);
        let loaders = (0..workers).map(|worker| {
            let mut loader = Loader {
                packing: self.packing,
                index: self.index.clone(),
                cleared_through: self.tiers.iter().map(|(_, s)| s.cleared_through).max().unwrap_or(0),
                live: self
                    .tiers
                    .iter()
                    .map(|(tier, _)| (Arc::clone(tier), vec![0; tier.slots().len()]))
                    .collect(),
                staged: Vec::new(),
                order: Vec::new(),
                rivals: Vec::new(),
                winners: Vec::new(),
                sorter: Sorter::default(),
            };
            let (hands, shards) = (hands.clone(), shards.len());
            run(self.runtime, async move {
                (worker..shards).step_by(workers).for_each(|shard| loader.load(&hands, shard));
                loader.count_live();
                Ok(loader.staged)
            })
        });
        let mut winners = Vec::new();
        for place in try_join_all(loaders).await?.into_iter().flatten() {
            let piece = ((place & !STAGED) >> STAGED_NUMBER_BITS) as usize;
            let number = (place & ((1 << STAGED_NUMBER_BITS) - 1)) as usize;
            winners.push(StagedWinner { piece, entry: self.staged[piece].entries[number] });
        }
        let mut hands = Arc::try_unwrap(hands).ok().expect("the loaders have ended");
        hands.pop();
        Ok((hands, winners))
    }
}

struct Loader {
    packing: Packing,
    index: Arc<Index>,
    cleared_through: u64,
    /// For each tier, the bytes of records that turned out to be current, by slot.
    live: Vec<(Arc<Tier>, Vec<i64>)>,
    /// Staged records that won.
    staged: Vec<u64>,
    /// Stored hash in the upper half, number of the claimant in the lower.
    order: Vec<u64>,
    /// Claimants of one stored hash.
    rivals: Vec<Claimant>,
    winners: Vec<(KeyHash, Pointer)>,
    sorter: Sorter,
}

impl Loader {
    /// Loads a shard.
    fn load(&mut self, hands: &[Hand], shard: usize) {
        let parts = || hands.iter().map(|hand| hand.shards[shard].as_slice());
        let claimant = |number: u64| {
            let mut number = number as u32 as usize;
            for part in parts() {
                if let Some(claimant) = part.get(number) {
                    return claimant;
                }
                number -= part.len();
            }
            unreachable!("a claimant has a number below their count")
        };
        let mut order = std::mem::take(&mut self.order);
        order.clear();
        let stored = |claimant: &Claimant| self.index.stored_hash(&claimant.hash) << 32;
        order.extend((0..).zip(parts().flatten()).map(|(number, claimant)| stored(claimant) | number));
        self.sorter.sort(&mut order);
        self.winners.clear();
        for same in order.chunk_by(|a, b| a >> 32 == b >> 32) {
            if let [number] = same {
                self.win(claimant(*number));
                continue;
            }
            let mut rivals = std::mem::take(&mut self.rivals);
            rivals.clear();
            rivals.extend(same.iter().map(|number| *claimant(*number)));
            rivals.sort_unstable_by(|a, b| {
                let key = |c: &Claimant| (c.hash.slot, c.hash.check);
                key(a).cmp(&key(b)).then(b.sequence.cmp(&a.sequence)).then(a.place.cmp(&b.place))
            });
            rivals.dedup_by_key(|rival| rival.hash);
            rivals.iter().for_each(|rival| self.win(rival));
            self.rivals = rivals;
        }
        self.index.load_shard(&self.winners);
        self.order = order;
    }

    /// The newest version of its key.
    fn win(&mut self, claimant: &Claimant) {
        if claimant.sequence <= self.cleared_through {
            return;
        }
        if claimant.place & STAGED == STAGED {
            self.staged.push(claimant.place);
            return;
        }
        let packed = claimant.place & (TOMBSTONE - 1);
        let location = self.packing.unpack(packed);
        let live =
            self.live.iter_mut().find(|(tier, _)| tier.name() == location.tier).expect("its tier is there");
        live.1[location.slot as usize] +=
            ((claimant.place >> LENGTH_SHIFT) * self.packing.granule_bytes) as i64;
        if claimant.place & TOMBSTONE == 0 {
            self.winners
                .push((claimant.hash, Pointer::new(packed).expect("a record never begins at offset 0")));
        }
    }

    fn count_live(&self) {
        for (tier, live) in &self.live {
            for (slot, bytes) in live.iter().enumerate().filter(|(_, bytes)| **bytes != 0) {
                tier.add_live(slot as u32, *bytes);
            }
        }
    }
}
