//! Background work that makes room: destaging, collecting, compacting, expiry, discards, and checking whether a full file
//! system has space again. Also the scrub, which looks for rot.

pub(crate) mod clear_ahead;
pub(crate) mod coalesce;
mod compact;
mod copies;
pub(crate) mod discard;
mod drain;
mod expire;
pub(crate) mod expire_groups;
pub(crate) mod file_system;
pub(crate) mod pause;
pub(crate) mod reclaim;
mod reclaimer;
mod relocate;
pub(crate) mod reported;
pub(crate) mod scrub;
mod tombstones;
pub(crate) mod watermarks;
