//! Internal; use the crate `esker`.
//!
//! The Esker store: put, get, delete, batches, recovery, destaging.
//!
//! Folders, from top to bottom; each uses only those below it:
//!
//! * `store`: the handle that users hold.
//! * `open`: opening and recovery.
//! * `background`: destage, collect, compact, expiry, eviction, discard, scrub.
//! * `read`: gets, parts of values, scans.
//! * `write`: puts, deletes, batches, updates; the lane that orders them and the committer that writes them.
//! * `catalog`: the current record of each key: index, publish, lookup, verification, read cache.
//! * `segments`: tiers, slots, superblocks, and the one writer of segments.
//! * `base`: errors, completion events, the failure latch, tasks, counters.
//!
//! `docs/architecture.md` follows a put, a get, a relocation and an opening from file to file.

mod background;
mod base;
mod catalog;
mod open;
mod read;
mod segments;
mod store;
#[cfg(test)]
mod testing;
mod write;

pub use base::cluster_error::ClusterError;
pub use base::compression::Compression;
pub use base::counters::Activity;
pub use base::damage_watch::DamageWatch;
pub use base::durability::Durability;
pub use base::error::{Error, ErrorKind, Result};
pub use base::latency::{Histogram, Latencies, Latency, TierLatencies};
pub use base::max_garbage::MaxGarbage;
pub use base::on_device_loss::OnDeviceLoss;
pub use base::option_name::OptionName;
pub use base::replicated::{Proposal, Replicator, StoredChange, StoredValue};
pub use base::to_bytes::ToBytes;
pub use base::when_full::WhenFull;
pub use catalog::cache::Entry;
pub use catalog::feed::{Cause, Change, KeyWatch, Observation, Observer};
pub use catalog::record_heads::KeyEntry;
pub use open::devices::DEFAULT_UNIT_BYTES;
pub use open::options::Options;
pub use open::progress::{Progress, Recovery, RecoveryStep, StepProgress};
#[doc(hidden)]
pub use open::sizing;
pub use open::staging_look::{StagingContent, StagingLook};
pub use read::keys::KeyPage;
pub use read::peek::{Peek, Usage, View};
#[doc(hidden)]
pub use read::probe::Probe;
pub use read::scan::{Cursor, Page};
pub use read::verification::Verification;
pub use segments::accounting::Written;
pub use segments::counts::{Classes, States};
pub use segments::unidentified::LostSegments;
pub use store::blocking::Blocking;
pub use store::checkpoint::{Checkpoint, CheckpointSegment};
pub use store::devices::TierDevice;
pub use store::handle::Store;
pub use store::iterating::{EntryStream, Iter};
pub use store::places::RecordPlace;
pub use store::segments::{Segment, SegmentState};
pub use store::stats::{Stats, TierStats};
pub use write::apply::Applier;
pub use write::batch::Batch;
pub use write::group_log::{Announced, GroupLog, Written as LogWritten};
pub use write::options::{Condition, WriteOptions};
pub use write::room::RefusedWrite;

pub use bytes::Bytes;
pub use esker_device as device;
pub use esker_device::{Backend, Device, DeviceCounters, DeviceError, Runtime};
pub use esker_log::{Codec, Compressed, SegmentClass, Tier};
