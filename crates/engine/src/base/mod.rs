//! Common foundations: errors, completion events, the failure latch, background tasks, counters. Independent of
//! segments and keys.

pub(crate) mod cluster_error;
pub(crate) mod completion;
pub(crate) mod compression;
pub(crate) mod counters;
pub(crate) mod damage_watch;
pub(crate) mod durability;
pub(crate) mod error;
pub(crate) mod fixed_hash;
pub(crate) mod health;
pub(crate) mod latency;
pub(crate) mod max_garbage;
pub(crate) mod on_device_loss;
pub(crate) mod option_name;
pub(crate) mod replicated;
pub(crate) mod requests;
pub(crate) mod tasks;
pub(crate) mod to_bytes;
pub(crate) mod waiting;
pub(crate) mod when_full;
pub(crate) mod word;
