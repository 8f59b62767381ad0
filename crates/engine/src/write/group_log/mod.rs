//! The log of replicated groups: entries and small states of up to 256 groups, in segments of their own.
//!
//! See `docs/decisions/0048-consensus.md`. The log is a lane beside those of users' records: it has its own stream, memory and
//! slots, and none of its records is in the index.
//!
//! 1. An append writes records to the open segment in memory, under the lock of [`lane`]. From then on reads find them.
//! 2. The committer (`commit`) writes the open frame, durably, and opens its completion event. Records of all groups that
//!    arrive meanwhile form the next frame, so one write makes them all durable.
//! 3. A full segment gets a footer, which proves where it ends. The next segment's first frame is written after that
//!    segment is durable.
//! 4. `slots` provides the next segment, frees segments without current records, the oldest first, and copies the few that
//!    are left in the oldest one before slots run out.
//!
//! Recovery (`recovered`) applies the records in the order of their numbers, which leave no gap.

pub(crate) mod commit;
mod contents;
mod handle;
mod key;
mod lane;
mod reading;
pub(crate) mod recovered;
pub(crate) mod slots;

pub use self::handle::{Announced, GroupLog, Written};
pub(crate) use self::lane::{LEAST_LOG_SLOTS, LogLane};
