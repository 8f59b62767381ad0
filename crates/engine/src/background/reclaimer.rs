//! State of the reclaimer between two steps.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use esker_gc::CopyBudget;
use esker_log::Tier as TierName;

use crate::background::expire::Expirer;
use crate::background::relocate::{Relocator, Terms};
use crate::base::requests::Requests;
use crate::base::when_full::WhenFull;
use crate::catalog::Catalog;
use crate::segments::groups::Group;
use crate::segments::space::Space;
use crate::write::Writer;

/// Destages, collects and compacts; one per store.
pub(super) struct Reclaimer<'a> {
    pub(super) space: &'a Space,
    pub(super) catalog: &'a Catalog,
    pub(super) writer: &'a Writer,
    pub(super) expirer: Expirer<'a>,
    /// Requests for compactions.
    pub(super) compactions: &'a Requests,
    pub(super) relocator: Relocator<'a>,
    pub(super) progress: Progress,
    /// State of the output tier when destaging found no room for copies; `None` if it found room.
    pub(super) stuck: Option<Stuck>,
    /// True if there was no room to relocate several segments together, and none was freed since.
    pub(super) one_at_a_time: bool,
    /// Segments without a current record that hold expired ones which still hide older versions: freeing them takes copies,
    /// so they are left until free slots run low.
    pub(super) hiding: BTreeSet<u64>,
    /// State when no segment without a current record was found.
    pub(super) none_dead: Option<NoneDead>,
    /// Number of failed reads, by segment.
    pub(super) failures: BTreeMap<u64, u32>,
    pub(super) unverified: Unverified,
    pub(super) sweep: Sweep,
    /// Budget for copying referenced records of evicted segments.
    pub(super) copies: CopyBudget,
    /// Setting, sum of the numbers of sealed segments, and time, when nothing could be evicted.
    pub(super) nothing_to_evict: Option<((WhenFull, u64), Duration)>,
    /// True while segments that a checkpoint has still to read are no candidates.
    pub(super) leaves_kept: bool,
    /// True if this step requested a segment that a checkpoint has still to read. The step was bounded nevertheless; see
    /// `segments/kept.rs`.
    pub(super) waits_for_reader: bool,
    /// Compaction in progress.
    pub(super) compaction: Option<Compaction>,
    /// True if the last step was part of it.
    pub(super) compacted_last: bool,
}

impl<'a> Reclaimer<'a> {
    /// Creates the reclaimer of a store that was just opened.
    pub(super) fn new(writer: &'a Writer, compactions: &'a Requests) -> Reclaimer<'a> {
        let (space, catalog) = (&*writer.space, &*writer.catalog);
        let expirer = Expirer { space, catalog, writer };
        Reclaimer {
            space,
            catalog,
            writer,
            expirer,
            relocator: Relocator::new(expirer),
            compactions,
            progress: Progress::default(),
            stuck: None,
            one_at_a_time: false,
            hiding: BTreeSet::new(),
            none_dead: None,
            failures: BTreeMap::new(),
            unverified: Unverified::default(),
            sweep: Sweep::default(),
            copies: CopyBudget::default(),
            nothing_to_evict: None,
            leaves_kept: false,
            waits_for_reader: false,
            compaction: None,
            compacted_last: false,
        }
    }
}

/// Segments to relocate, and the urgency.
pub(super) struct Choice {
    pub(super) tier: TierName,
    pub(super) slots: Vec<u32>,
    pub(super) urgency: f64,
    /// Expected gain in bytes.
    pub(super) yield_bytes: u64,
    pub(super) terms: Terms,
}

/// Progress of collecting. If records fill their write units and segments badly, copies can take as much room as their
/// originals; then only segments that surely give room back are collected until there is new garbage.
#[derive(Default)]
pub(super) struct Progress {
    /// The reclaim group that is being emptied.
    pub(super) group: Option<Group>,
    /// Expected gain in bytes of the victims since the last check.
    pub(super) expected_bytes: u64,
    /// Gained bytes at that check.
    pub(super) gained_bytes: i64,
    /// Total of dead bytes until which collecting is given up.
    pub(super) given_up_until: Option<u64>,
    /// Number of consecutive checks without progress.
    pub(super) without_progress: u32,
}

/// Total of dead bytes, and time, when no segment without a current record was found.
pub(super) struct NoneDead {
    pub(super) dead_bytes: u64,
    pub(super) at: Duration,
}

/// State of the output tier when destaging found no room. Until it changes, only collecting is tried.
pub(super) struct Stuck {
    pub(super) free_slots: u32,
    pub(super) dead_bytes: u64,
}

/// State of the unverified overwrites that remain.
#[derive(Default)]
pub(super) struct Unverified {
    /// Segments with displaced records according to the last count, those with most last.
    pub(super) segments: Vec<Displaced>,
    /// Last sequence number seen, and when.
    pub(super) written: (u64, Duration),
    /// While there are too many: total number verified at the last check, and its time.
    pub(super) verified: Option<(u64, Duration)>,
    /// True if there was no other work in the last step.
    pub(super) at_leisure: bool,
    /// Number of the newest segment when none of the displaced records was in a sealed one.
    pub(super) out_of_reach: Option<u64>,
}

/// Records of a segment that were displaced by keys not yet compared with their own.
pub(super) struct Displaced {
    pub(super) tier: TierName,
    pub(super) slot: u32,
    /// Offsets of the records, in ascending order.
    pub(super) offsets: Vec<u32>,
}

/// The sweep in progress.
#[derive(Default)]
pub(super) struct Sweep {
    /// Segments still to be examined.
    pub(super) segments: Vec<(TierName, u32)>,
    /// Earliest times of examining the next segment and of the next round, by the runtime's clock.
    pub(super) next_look: Duration,
    pub(super) next_round: Duration,
}

/// Scope of a compaction.
#[derive(Clone, Copy)]
pub(super) struct Compaction {
    /// Highest segment number.
    pub(super) segments_through: u64,
    /// Highest sequence number of tombstones.
    pub(super) sequence_through: u64,
}
