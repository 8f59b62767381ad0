//! What the reclaimer knows from one step to the next.

use std::collections::BTreeMap;
use std::time::Duration;

use esker_gc::CopyBudget;
use esker_log::Tier as TierName;

use crate::background::expire::Expirer;
use crate::background::relocate::Relocator;
use crate::base::requests::Requests;
use crate::base::when_full::WhenFull;
use crate::catalog::Catalog;
use crate::segments::groups::Group;
use crate::segments::space::Space;
use crate::write::Writer;

/// Destages, collects and compacts; one for each store.
pub(super) struct Reclaimer<'a> {
    pub(super) space: &'a Space,
    pub(super) catalog: &'a Catalog,
    pub(super) writer: &'a Writer,
    pub(super) expirer: Expirer<'a>,
    /// Where compactions are asked for.
    pub(super) compactions: &'a Requests,
    pub(super) relocator: Relocator<'a>,
    pub(super) progress: Progress,
    /// Destaging found no room for copies.
    pub(super) stuck: Option<Stuck>,
    /// There was no room to relocate several segments together, and none was freed since.
    pub(super) one_at_a_time: bool,
    /// How often reading a segment failed.
    pub(super) failures: BTreeMap<u64, u32>,
    pub(super) unverified: Unverified,
    pub(super) sweep: Sweep,
    /// What may be copied of segments that are freed by dropping what is cold.
    pub(super) copies: CopyBudget,
    /// With this setting, and with sealed segments of which the numbers have this sum, nothing could be evicted then.
    pub(super) nothing_to_evict: Option<((WhenFull, u64), Duration)>,
    /// Segments that a checkpoint has still to read are no candidates.
    pub(super) leaves_kept: bool,
    /// In this step a segment was wanted that a checkpoint has still to read. The step was bounded all the same; see
    /// `segments/kept.rs`.
    pub(super) waits_for_reader: bool,
    /// What was asked for and is not done yet.
    pub(super) compaction: Option<Compaction>,
    /// The last step was for that.
    pub(super) compacted_last: bool,
}

/// What to relocate, and how urgent it is.
pub(super) struct Choice {
    pub(super) tier: TierName,
    pub(super) slots: Vec<u32>,
    pub(super) urgency: f64,
    /// What they seem to be worth.
    pub(super) yield_bytes: u64,
}

/// Whether collecting gives slots back. Where records fill their write units and segments badly, copies can take as much
/// room as what they were copied from; then only what is sure to give some back is collected until there is new garbage.
#[derive(Default)]
pub(super) struct Progress {
    /// The reclaim group that is being emptied.
    pub(super) group: Option<Group>,
    /// Bytes that the victims seemed to be worth since it was last looked at.
    pub(super) expected_bytes: u64,
    /// What had been gained then.
    pub(super) gained_bytes: i64,
    /// It was given up until so many bytes will have died.
    pub(super) given_up_until: Option<u64>,
    /// How often it was without progress since it last was not.
    pub(super) without_progress: u32,
}

/// How things were when destaging found no room. Until something has changed, only collecting is tried.
pub(super) struct Stuck {
    pub(super) free_slots: u32,
    pub(super) dead_bytes: u64,
}

/// What is known of the unverified overwrites that are left.
#[derive(Default)]
pub(super) struct Unverified {
    /// Segments with unverified overwrites of them, those with most last, as they were counted.
    pub(super) segments: Vec<Displaced>,
    /// The last write that was seen, and when.
    pub(super) written: (u64, Duration),
    /// Since there are too many of them: how many had been verified in all when that was last looked at, and when it was.
    pub(super) verified: Option<(u64, Duration)>,
    /// There was nothing else to do in the last step.
    pub(super) at_leisure: bool,
    /// Segments that had been begun when none of the unverified overwrites was against a sealed one.
    pub(super) out_of_reach: Option<u64>,
}

/// Records of a segment that were displaced by keys of which nobody knows whether they are theirs.
pub(super) struct Displaced {
    pub(super) tier: TierName,
    pub(super) slot: u32,
    /// Where they begin, in ascending order.
    pub(super) offsets: Vec<u32>,
}

/// The round that is under way.
#[derive(Default)]
pub(super) struct Sweep {
    /// Segments that are still to be looked at.
    pub(super) segments: Vec<(TierName, u32)>,
    /// When the next of them may be, and when the next round may begin, by the runtime's clock.
    pub(super) next_look: Duration,
    pub(super) next_round: Duration,
}

/// What a compaction is about.
#[derive(Clone, Copy)]
pub(super) struct Compaction {
    /// Segments up to this number.
    pub(super) segments_through: u64,
    /// Tombstones up to this sequence number.
    pub(super) sequence_through: u64,
}
