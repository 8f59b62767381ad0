//! The description of a history before it runs.

use std::time::Duration;

use bytes::Bytes;
use esker_engine::Durability;
use serde::{Deserialize, Serialize};

use crate::config::Tiers;

/// A history before it runs. The same plan always produces the same history.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Plan {
    /// Seed of task order, I/O latencies, and data that survives a power failure.
    pub seed: u64,
    /// Tiers of the store.
    pub tiers: Tiers,
    /// True if the store has a staging file.
    pub staging: bool,
    /// Seed of the rest of the store's configuration.
    pub config_seed: u64,
    /// True for a store with few, short segments, which a short history can fill.
    #[serde(default)]
    pub small: bool,
    /// True if the tier where records stay has three devices of different sizes.
    #[serde(default)]
    pub three_devices: bool,
    /// Behaviour of the devices.
    pub media: Media,
    /// Keys that are written together, each slot by one client.
    pub slots: Vec<SlotKeys>,
    /// Number of keys that all clients increment.
    pub counters: u64,
    /// The lives, each from an opening to the next.
    pub lives: Vec<Life>,
}

/// Behaviour of devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Media {
    /// Sound: slow, and losing only data that is not durable at a power failure.
    Sound,
    /// Failing: operations may also fail with an error.
    Failing,
    /// Lying: writes are lost or misdirected, flushes do nothing, bits rot.
    Lying,
}

/// The keys of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SlotKeys {
    /// Number of keys.
    pub parts: u64,
    /// True if the keys are 300 bytes long.
    pub long: bool,
    /// True if the keys are in the second database. They have the names of the previous slot's keys, which may be in
    /// the first.
    #[serde(default)]
    pub elsewhere: bool,
}

impl SlotKeys {
    /// Returns the keys of the slot with this number.
    pub(crate) fn keys(self, slot: usize) -> Vec<Bytes> {
        let number = if self.elsewhere { slot.wrapping_sub(1) } else { slot };
        (0..self.parts).map(|part| key(&format!("s{number}p{part}"), self.long)).collect()
    }
}

fn key(name: &str, long: bool) -> Bytes {
    let mut key = name.as_bytes().to_vec();
    if long {
        key.resize(300, b'.');
    }
    Bytes::from(key)
}

pub(crate) fn counter_key(counter: u64) -> Bytes {
    key(&format!("counter{counter}"), false)
}

/// The time from an opening to the end of the process.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Life {
    /// Segments added to the limit of each tier since the previous life.
    pub more_segments: u64,
    /// Jump of the wall clock before the life, in milliseconds.
    pub clock_jump_ms: i64,
    /// Faults armed once the store is open.
    pub faults: Vec<DeviceFault>,
    /// Operations of each client.
    pub clients: Vec<Vec<Op>>,
    /// Idle time after all clients are done, in milliseconds.
    #[serde(default)]
    pub idle_ms: u64,
    /// Kind of end.
    pub end: End,
    /// Time of the end, unless it is a close.
    pub cut: Interruption,
    /// Bits that rot afterwards: device, and position in millionths of its size.
    pub rot: Vec<(Device, u64)>,
    /// Interrupted openings after the life.
    pub openings: Vec<Opening>,
    /// If set, the store is ended this way and opened once more after it was checked.
    pub again: Option<End>,
}

/// Name of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Device {
    /// The fast device, or the only one.
    Fast,
    /// The capacity device, or the only one.
    Capacity,
}

/// Kind of end of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum End {
    /// A power failure.
    PowerCut,
    /// A kill.
    Kill,
    /// A close after all clients are done.
    Close,
}

/// Time of an interruption.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Interruption {
    /// Microseconds after the beginning.
    At(u64),
    /// Number of I/Os submitted since the beginning.
    Io(u64),
}

/// An opening that is interrupted before or soon after its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Opening {
    /// Time of the interruption.
    pub cut: Interruption,
    /// True for a kill, false for a power failure.
    pub kill: bool,
    /// Fault armed before the opening.
    pub fault: Option<DeviceFault>,
}

/// A planned fault of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceFault {
    /// The device.
    pub device: Device,
    /// Kind of operation.
    pub of: OpKind,
    /// Number of such operations that succeed before it.
    pub after: u64,
    /// True if all later operations of the kind are affected too.
    pub for_ever: bool,
    /// Kind of fault.
    pub what: FaultKind,
}

/// Kinds of device operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum OpKind {
    /// Reads.
    Read,
    /// Writes.
    Write,
    /// Flushes.
    Flush,
    /// Discards, allocations and resizes.
    Other,
}

/// Kinds of faults.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FaultKind {
    /// The operation fails with EIO.
    Fails,
    /// The operation fails with ENOSPC.
    NoSpace,
    /// A write is done in part, then fails with EIO.
    Torn,
    /// The device vanishes.
    Vanishes,
    /// The operation takes this many milliseconds longer.
    Late(u64),
    /// The operation is acknowledged without effect.
    Lost,
    /// The operation is misdirected by this many bytes.
    Misdirected(u64),
}

/// An operation of a client.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Op {
    /// Writes all keys of a slot; a single one by a put, several as a batch.
    Put {
        /// One of the client's own slots.
        slot: u64,
        /// Length of the value in bytes.
        bytes: u64,
        /// Durability level.
        level: Level,
        /// Time to live in milliseconds.
        expires_in_ms: Option<u64>,
        /// True for a conditional put whose condition matches the known presence of the key.
        condition: bool,
    },
    /// Writes some slots and deletes others, in one batch.
    Several {
        /// The client's own slots, and true for those to be deleted.
        slots: Vec<(u64, bool)>,
        /// Durability level.
        level: Level,
    },
    /// Deletes all keys of a slot.
    Delete {
        /// One of the client's own slots.
        slot: u64,
        /// Durability level.
        level: Level,
    },
    /// Reads all keys of a slot and rewrites them in one update.
    Update {
        /// One of the client's own slots.
        slot: u64,
        /// Length of the values in bytes.
        bytes: u64,
        /// Durability level.
        level: Level,
    },
    /// Sets or removes the expiry of a slot's keys.
    Expire {
        /// One of the client's own slots.
        slot: u64,
        /// Time to live in milliseconds; `None` removes the expiry.
        in_ms: Option<u64>,
        /// Durability level.
        level: Level,
    },
    /// Reads a key.
    Get {
        /// A slot of any client.
        slot: u64,
    },
    /// Reads a part of a value.
    GetRange {
        /// A slot of any client.
        slot: u64,
        /// Start, in thousandths of the value.
        from: u64,
        /// Maximum length in bytes.
        bytes: u64,
    },
    /// Reads all keys of some slots concurrently.
    GetMany {
        /// Slots of any client.
        slots: Vec<u64>,
    },
    /// Reads everything.
    Scan(ScanKind, u64),
    /// Makes all acknowledged writes durable.
    Flush,
    /// Relocates all that can be relocated.
    Compact,
    /// Verifies the checksums of all records.
    Verify,
    /// Increments a counter by a conditional put.
    Count {
        /// Number of the counter.
        counter: u64,
        /// Bytes of the value in addition to the count.
        bytes: u64,
    },
    /// Deletes all keys while no other client is active.
    Clear,
    /// Deletes all keys of a database while no other client is active.
    ClearOne {
        /// Selects the database, as [`SlotKeys::elsewhere`].
        elsewhere: bool,
    },
    /// Swaps the two databases. Only a few writes that the simulator adds run concurrently.
    Swap,
    /// Waits for this many microseconds.
    Sleep(u64),
}

/// Ways to read everything.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ScanKind {
    /// Pages of entries.
    Entries,
    /// Pages of keys.
    Keys,
    /// A stream of entries.
    Stream,
    /// A stream of entries in the order of the log.
    LogEntries,
    /// A stream of keys in the order of the log.
    LogKeys,
}

impl ScanKind {
    /// Every way.
    pub const ALL: [ScanKind; 5] =
        [ScanKind::Entries, ScanKind::Keys, ScanKind::Stream, ScanKind::LogEntries, ScanKind::LogKeys];
}

/// A durability level: the time of acknowledgement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Level {
    /// Once durable on the medium.
    Sync,
    /// Once the write survives the end of the process.
    Process,
    /// At once; durable this many milliseconds later.
    Periodic(u64),
    /// At once.
    None,
}

impl From<Level> for Durability {
    fn from(level: Level) -> Durability {
        match level {
            Level::Sync => Durability::Sync,
            Level::Process => Durability::Process,
            Level::Periodic(ms) => Durability::Periodic(Duration::from_millis(ms)),
            Level::None => Durability::None,
        }
    }
}

impl Plan {
    /// Returns the number of operations of all clients in all lives.
    pub fn operations(&self) -> usize {
        self.lives.iter().flat_map(|life| &life.clients).map(Vec::len).sum()
    }
}
