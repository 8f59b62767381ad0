//! What is to happen in a history.

use std::time::Duration;

use bytes::Bytes;
use esker_engine::Durability;
use serde::{Deserialize, Serialize};

use crate::config::Tiers;

/// A history before it happened. The same plan is always the same history.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Plan {
    /// Of the order of tasks, of how long I/O takes, and of what a power cut leaves.
    pub seed: u64,
    /// Which tiers the store has.
    pub tiers: Tiers,
    /// Whether it has a staging file.
    pub staging: bool,
    /// The rest of its configuration is drawn from this.
    pub config_seed: u64,
    /// The store has few segments, and short ones, so that a short history fills it.
    #[serde(default)]
    pub small: bool,
    /// What the devices may do.
    pub media: Media,
    /// The keys that are written together, each by one client.
    pub slots: Vec<SlotKeys>,
    /// Keys that all clients count up.
    pub counters: u64,
    /// From one opening to the next.
    pub lives: Vec<Life>,
}

/// What devices do beside what they are asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Media {
    /// They take long, and lose what is not durable when the power goes.
    Sound,
    /// Their operations fail, too, and say so.
    Failing,
    /// They lie: writes are lost or land elsewhere, flushes do nothing, bits rot.
    Lying,
}

/// The keys of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SlotKeys {
    /// How many there are.
    pub parts: u64,
    /// Whether they are 300 bytes long.
    pub long: bool,
    /// Whether they are keys of the second database. They are called as those of the slot before, which may be of the first.
    #[serde(default)]
    pub elsewhere: bool,
}

impl SlotKeys {
    /// The keys of the slot of this number.
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

/// From an opening to the end of the process.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Life {
    /// Segments that each tier may have more than in the life before.
    pub more_segments: u64,
    /// How far the wall clock is moved before, in milliseconds.
    pub clock_jump_ms: i64,
    /// Armed when the store is open.
    pub faults: Vec<DeviceFault>,
    /// The operations of each client.
    pub clients: Vec<Vec<Op>>,
    /// How long nobody does anything when all clients are done, in milliseconds.
    #[serde(default)]
    pub idle_ms: u64,
    /// How it ends.
    pub end: End,
    /// When it ends, unless by a close.
    pub cut: Interruption,
    /// Bytes that rot afterwards: the device's, and where, in millionths of it.
    pub rot: Vec<(Device, u64)>,
    /// Openings after it that do not come to their end.
    pub openings: Vec<Opening>,
    /// Whether the store is opened once more after it was checked, and how it ends before that.
    pub again: Option<End>,
}

/// One of the devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Device {
    /// The fast one; where there is none, the other.
    Fast,
    /// The capacity one; where there is none, the other.
    Capacity,
}

/// How a process ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum End {
    /// The power is cut.
    PowerCut,
    /// The process is killed.
    Kill,
    /// The store is closed when all clients are done.
    Close,
}

/// The moment of a cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Interruption {
    /// So many microseconds after the beginning.
    At(u64),
    /// When so many I/Os were submitted.
    Io(u64),
}

/// An opening that does not come to its end, or nearly.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Opening {
    /// When it is cut off.
    pub cut: Interruption,
    /// Whether the process is killed; otherwise the power goes.
    pub kill: bool,
    /// Armed before it.
    pub fault: Option<DeviceFault>,
}

/// What one operation of a device does instead of what it was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceFault {
    /// Whose.
    pub device: Device,
    /// Of which kind.
    pub of: OpKind,
    /// So many operations of the kind are well before it.
    pub after: u64,
    /// Whether it is the same for all later ones.
    pub for_ever: bool,
    /// What happens.
    pub what: FaultKind,
}

/// Kinds of a device's operations.
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

/// What can go wrong with a device's operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FaultKind {
    /// EIO.
    Fails,
    /// ENOSPC.
    NoSpace,
    /// A part of a write is done, then EIO.
    Torn,
    /// The device is gone.
    Vanishes,
    /// It takes so many milliseconds longer.
    Late(u64),
    /// It is acknowledged and not done.
    Lost,
    /// It is done so many bytes elsewhere.
    Misdirected(u64),
}

/// Something that a client does.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Op {
    /// Writes all keys of a slot; one by a put, several as a batch.
    Put {
        /// One of the client's own.
        slot: u64,
        /// Bytes of the value.
        bytes: u64,
        /// How it is acknowledged.
        level: Level,
        /// When it expires, in milliseconds from then.
        expires_in_ms: Option<u64>,
        /// Whether it is on condition that the key is there, or not, as it is.
        condition: bool,
    },
    /// Writes some slots and deletes others, in one batch.
    Several {
        /// The client's own, and whether they are to be deleted.
        slots: Vec<(u64, bool)>,
        /// How it is acknowledged.
        level: Level,
    },
    /// Deletes all keys of a slot.
    Delete {
        /// One of the client's own.
        slot: u64,
        /// How it is acknowledged.
        level: Level,
    },
    /// Reads all keys of a slot and writes them anew in one step.
    Update {
        /// One of the client's own.
        slot: u64,
        /// Bytes of the values.
        bytes: u64,
        /// How it is acknowledged.
        level: Level,
    },
    /// Gives what a slot holds a time at which it expires, or takes that from it.
    Expire {
        /// One of the client's own.
        slot: u64,
        /// In milliseconds from then.
        in_ms: Option<u64>,
        /// How it is acknowledged.
        level: Level,
    },
    /// Reads a key.
    Get {
        /// Anybody's.
        slot: u64,
    },
    /// Reads a part of a value.
    GetRange {
        /// Anybody's.
        slot: u64,
        /// From where, in thousandths of the value.
        from: u64,
        /// Up to so many bytes.
        bytes: u64,
    },
    /// Reads all keys of some slots at once.
    GetMany {
        /// Anybody's.
        slots: Vec<u64>,
    },
    /// Reads everything.
    Scan(ScanKind, u64),
    /// Makes everything durable that was acknowledged.
    Flush,
    /// Relocates what can be.
    Compact,
    /// Reads and compares all records with their checksums.
    Verify,
    /// Counts a counter up by a conditional put.
    Count {
        /// Which.
        counter: u64,
        /// Bytes of the value beyond the count.
        bytes: u64,
    },
    /// Deletes all keys, while nobody else does anything.
    Clear,
    /// Deletes all keys of a database, while nobody else does anything.
    ClearOne {
        /// Of which: as [`SlotKeys::elsewhere`] says.
        elsewhere: bool,
    },
    /// The two databases get each other's keys. Only a few writes that the simulator adds run at the same time.
    Swap,
    /// Waits for so many microseconds.
    Sleep(u64),
}

/// How everything is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ScanKind {
    /// Pages of entries.
    Entries,
    /// Pages of keys.
    Keys,
    /// A stream of entries.
    Stream,
}

/// A level of durability.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Level {
    /// When it is on the medium.
    Sync,
    /// When it outlives the process.
    Process,
    /// At once; on the medium so many milliseconds later.
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
    /// Operations of all clients in all lives.
    pub fn operations(&self) -> usize {
        self.lives.iter().flat_map(|life| &life.clients).map(Vec::len).sum()
    }
}
