//! Emptied segments that are about to be freed.

use std::time::Duration;

use esker_gc::Victim;
use esker_log::{EntryList, Tier as TierName};

use crate::base::completion::Waiter;

/// Urgency from which verifying overwrites no longer delays relocation, because slots run short.
pub(crate) const SHORT: f64 = 0.5;
/// Urgency from which emptied segments do not wait for a memtable: it is flushed to free them.
pub(crate) const AT_LAST: f64 = 0.9;

/// Segments that are being emptied, with the entries of records that may be needed.
pub(crate) type Victims = Vec<(Victim, EntryList)>;

/// Victims of which nothing is needed any more.
pub(crate) struct Emptied {
    pub(crate) tier: TierName,
    pub(crate) victims: Victims,
    /// Time it took to empty them.
    pub(crate) worked: Duration,
    /// Opens when the records that superseded theirs are durable, as far as those are in a memtable.
    pub(crate) superseded_by: Option<Waiter>,
}
