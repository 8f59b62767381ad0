//! What a drive has done, as its SMART log would tell.

use std::ops::Sub;

use serde::Serialize;

/// IUs that a drive assembles from parts for each IU that it programs besides, to keep unfinished ones over a power cut. The
/// white paper on coarse IUs measured a WAF of 1.02 for sequential writes of 4 KiB.
const ASSEMBLED_FOR_EACH_KEPT: u64 = 50;

/// Counts since the drive was built; the difference of two is what happened between them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Counters {
    /// The indirection unit.
    pub iu_bytes: u32,
    /// Writes of the host.
    pub host_writes: u64,
    /// Their bytes.
    pub host_bytes: u64,
    /// Writes of the host that were no whole number of IUs, or not aligned to them.
    pub partial_writes: u64,
    /// Bytes that the host read.
    pub read_bytes: u64,
    /// IUs that were programmed as the host wrote them.
    pub whole_ius: u64,
    /// Of these, IUs that were assembled from writes of parts.
    pub assembled_ius: u64,
    /// IUs that were programmed because the host wrote a part of them.
    pub modified_ius: u64,
    /// IUs that were read for that.
    pub modify_reads: u64,
    /// IUs that the collector moved.
    pub moved_ius: u64,
    /// IUs that became invalid by TRIM.
    pub trimmed_ius: u64,
    /// Superblocks that were erased.
    pub erases: u64,
}

/// How often superblocks were erased.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Wear {
    /// Erases of the superblock that was erased least.
    pub least: u32,
    /// Erases on average.
    pub mean: f64,
    /// Erases of the superblock that was erased most.
    pub most: u32,
}

impl Counters {
    pub(super) fn new(iu_bytes: u32) -> Counters {
        Counters {
            iu_bytes,
            host_writes: 0,
            host_bytes: 0,
            partial_writes: 0,
            read_bytes: 0,
            whole_ius: 0,
            assembled_ius: 0,
            modified_ius: 0,
            modify_reads: 0,
            moved_ius: 0,
            trimmed_ius: 0,
            erases: 0,
        }
    }

    /// IUs that were programmed for the host, before any collection.
    pub fn host_ius(&self) -> u64 {
        self.whole_ius + self.modified_ius
    }

    /// Bytes programmed to NAND.
    pub fn nand_bytes(&self) -> u64 {
        (self.host_ius() + self.moved_ius) * u64::from(self.iu_bytes) + self.kept_bytes()
    }

    /// Bytes programmed to keep parts of IUs over a power cut until the IUs are whole.
    fn kept_bytes(&self) -> u64 {
        self.assembled_ius * u64::from(self.iu_bytes) / ASSEMBLED_FOR_EACH_KEPT
    }

    /// NAND bytes for each byte of the host (WAF); not a number if the host wrote nothing.
    pub fn write_amplification(&self) -> f64 {
        self.nand_bytes() as f64 / self.host_bytes as f64
    }

    /// Bytes of IUs that the host's writes touched, for each byte of the host: what partial IUs alone cost.
    pub fn iu_amplification(&self) -> f64 {
        (self.host_ius() * u64::from(self.iu_bytes) + self.kept_bytes()) as f64 / self.host_bytes as f64
    }

    /// IUs programmed for each IU that the host's writes touched: what collection costs.
    pub fn collection_amplification(&self) -> f64 {
        (self.host_ius() + self.moved_ius) as f64 / self.host_ius() as f64
    }
}

impl Sub for Counters {
    type Output = Counters;

    fn sub(self, before: Counters) -> Counters {
        Counters {
            iu_bytes: self.iu_bytes,
            host_writes: self.host_writes - before.host_writes,
            host_bytes: self.host_bytes - before.host_bytes,
            partial_writes: self.partial_writes - before.partial_writes,
            read_bytes: self.read_bytes - before.read_bytes,
            whole_ius: self.whole_ius - before.whole_ius,
            assembled_ius: self.assembled_ius - before.assembled_ius,
            modified_ius: self.modified_ius - before.modified_ius,
            modify_reads: self.modify_reads - before.modify_reads,
            moved_ius: self.moved_ius - before.moved_ius,
            trimmed_ius: self.trimmed_ius - before.trimmed_ius,
            erases: self.erases - before.erases,
        }
    }
}
