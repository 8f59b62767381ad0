//! Segments on their way to be freed.

use std::time::Duration;

use esker_gc::Victim;
use esker_log::{EntryList, Tier as TierName};

use crate::base::completion::Waiter;

/// So urgent it is where slots run short: no slot waits for what has time.
pub(crate) const SHORT: f64 = 0.5;
/// So urgent it is where there is hardly a slot: what is emptied does not wait for a memtable.
pub(crate) const AT_LAST: f64 = 0.9;

/// Segments that are being emptied, with what their summaries say of records that may be needed.
pub(crate) type Victims = Vec<(Victim, EntryList)>;

/// Victims of which nothing is needed any more.
pub(crate) struct Emptied {
    pub(crate) tier: TierName,
    pub(crate) victims: Victims,
    /// How long it took to empty them.
    pub(crate) worked: Duration,
    /// Opens when what superseded their records is durable, as far as that waits in memory to be overwritten.
    pub(crate) superseded_by: Option<Waiter>,
}
