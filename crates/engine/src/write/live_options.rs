//! Options that may be changed while the store is open. Each is one atomic word; the next operation uses the new value.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use crate::base::compression::Compression;
use crate::base::durability::Durability;

/// Low bits of the word that hold the kind of durability; the nanoseconds of a period are above them.
const KIND_BITS: u32 = 2;

/// Options that may be changed while the store is open.
pub(crate) struct Changeable {
    durability: AtomicU64,
    /// 0: off; 1: LZ4; otherwise one plus the Zstandard level.
    compression: AtomicU32,
    /// 0 if there is no limit.
    background_bytes_per_s: AtomicU64,
    /// `u64::MAX` if no rate is configured.
    scrub_bytes_per_s: AtomicU64,
}

/// Read rate of the scrub.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ScrubRate {
    Off,
    BytesPerSecond(u64),
    PassInAWeek,
}

impl Changeable {
    pub(crate) fn new(
        durability: Durability,
        compression: Compression,
        background_bytes_per_s: Option<u64>,
        scrub_bytes_per_s: Option<u64>,
    ) -> Changeable {
        Changeable {
            durability: AtomicU64::new(pack(durability)),
            compression: AtomicU32::new(pack_compression(compression)),
            background_bytes_per_s: AtomicU64::new(background_bytes_per_s.unwrap_or(0)),
            scrub_bytes_per_s: AtomicU64::new(scrub_bytes_per_s.unwrap_or(u64::MAX)),
        }
    }

    pub(crate) fn durability(&self) -> Durability {
        unpack(self.durability.load(Ordering::Relaxed))
    }

    pub(crate) fn set_durability(&self, durability: Durability) {
        self.durability.store(pack(durability), Ordering::Relaxed);
    }

    pub(crate) fn compression(&self) -> Compression {
        match self.compression.load(Ordering::Relaxed) {
            0 => Compression::Off,
            1 => Compression::Lz4,
            more => Compression::Zstd((more - 1) as u8),
        }
    }

    pub(crate) fn set_compression(&self, compression: Compression) {
        self.compression.store(pack_compression(compression), Ordering::Relaxed);
    }

    /// Returns the limit of relocation reads and writes in bytes per second; 0 if there is none.
    pub(crate) fn background_bytes_per_s(&self) -> u64 {
        self.background_bytes_per_s.load(Ordering::Relaxed)
    }

    pub(crate) fn scrub_rate(&self) -> ScrubRate {
        match self.scrub_bytes_per_s() {
            Some(0) => ScrubRate::Off,
            Some(rate) => ScrubRate::BytesPerSecond(rate),
            None => ScrubRate::PassInAWeek,
        }
    }

    pub(crate) fn scrub_bytes_per_s(&self) -> Option<u64> {
        Some(self.scrub_bytes_per_s.load(Ordering::Relaxed)).filter(|bytes| *bytes != u64::MAX)
    }

    pub(crate) fn set_scrub_bytes_per_s(&self, bytes: Option<u64>) {
        self.scrub_bytes_per_s.store(bytes.unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    pub(crate) fn set_background_bytes_per_s(&self, bytes: Option<u64>) {
        self.background_bytes_per_s.store(bytes.unwrap_or(0), Ordering::Relaxed);
    }
}

fn pack_compression(compression: Compression) -> u32 {
    match compression {
        Compression::Off => 0,
        Compression::Lz4 => 1,
        Compression::Zstd(level) => 1 + u32::from(level.max(1)),
    }
}

fn pack(durability: Durability) -> u64 {
    match durability {
        Durability::Sync => 0,
        Durability::Process => 1,
        Durability::None => 2,
        Durability::Periodic(period) => {
            // Longer periods are cut to more than a hundred years.
            let ns = u64::try_from(period.as_nanos()).unwrap_or(u64::MAX).min(u64::MAX >> KIND_BITS);
            ns << KIND_BITS | 3
        }
    }
}

fn unpack(word: u64) -> Durability {
    match word & ((1 << KIND_BITS) - 1) {
        0 => Durability::Sync,
        1 => Durability::Process,
        2 => Durability::None,
        _ => Durability::Periodic(Duration::from_nanos(word >> KIND_BITS)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn live_options_return_last_value_set() {
        let changeable = Changeable::new(Durability::Sync, Compression::Lz4, None, None);
        assert_eq!((changeable.durability(), changeable.background_bytes_per_s()), (Durability::Sync, 0));
        let periods =
            [0, 1, 1_000_000, 60_000_000_000].map(|ns| Durability::Periodic(Duration::from_nanos(ns)));
        for durability in [Durability::None, Durability::Process, Durability::Sync].into_iter().chain(periods)
        {
            changeable.set_durability(durability);
            assert_eq!(changeable.durability(), durability);
        }
        assert_eq!(changeable.compression(), Compression::Lz4);
        for compression in [Compression::Off, Compression::Zstd(1), Compression::Zstd(22), Compression::Lz4] {
            changeable.set_compression(compression);
            assert_eq!(changeable.compression(), compression);
        }
        changeable.set_background_bytes_per_s(Some(7));
        assert_eq!(changeable.background_bytes_per_s(), 7);
    }
}
