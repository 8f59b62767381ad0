//! Counters of a drive, as in its SMART log.

use std::ops::Sub;

use serde::Serialize;

/// Number of IUs assembled from parts per additional IU programmed to protect unfinished ones against power failure.
/// The white paper on coarse IUs measured a WAF of 1.02 for sequential writes of 4 KiB.
const ASSEMBLED_FOR_EACH_KEPT: u64 = 50;

/// Counts since the drive was built; the difference of two snapshots covers the time between them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Counters {
    /// Indirection unit in bytes.
    pub iu_bytes: u32,
    /// Host writes.
    pub host_writes: u64,
    /// Bytes of those writes.
    pub host_bytes: u64,
    /// Host writes that were not whole, aligned IUs.
    pub partial_writes: u64,
    /// Bytes read by the host.
    pub read_bytes: u64,
    /// IUs programmed as the host wrote them.
    pub whole_ius: u64,
    /// IUs among them that were assembled from partial writes.
    pub assembled_ius: u64,
    /// IUs programmed by read-modify-write of a partial write.
    pub modified_ius: u64,
    /// IUs read for that.
    pub modify_reads: u64,
    /// IUs moved by the collector.
    pub moved_ius: u64,
    /// IUs invalidated by TRIM.
    pub trimmed_ius: u64,
    /// Erased superblocks.
    pub erases: u64,
}

/// Erase counts of superblocks.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Wear {
    /// Lowest erase count of a superblock.
    pub least: u32,
    /// Mean erase count.
    pub mean: f64,
    /// Highest erase count of a superblock.
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

    /// Returns the IUs programmed for the host, excluding collection.
    pub fn host_ius(&self) -> u64 {
        self.whole_ius + self.modified_ius
    }

    /// Returns the bytes programmed to NAND.
    pub fn nand_bytes(&self) -> u64 {
        (self.host_ius() + self.moved_ius) * u64::from(self.iu_bytes) + self.kept_bytes()
    }

    /// Returns the bytes programmed to protect partial IUs against power failure until they are whole.
    fn kept_bytes(&self) -> u64 {
        self.assembled_ius * u64::from(self.iu_bytes) / ASSEMBLED_FOR_EACH_KEPT
    }

    /// Returns the NAND bytes per host byte (WAF); NaN if the host wrote nothing.
    pub fn write_amplification(&self) -> f64 {
        self.nand_bytes() as f64 / self.host_bytes as f64
    }

    /// Returns the bytes of IUs touched by host writes, per host byte: the cost of partial IUs alone.
    pub fn iu_amplification(&self) -> f64 {
        (self.host_ius() * u64::from(self.iu_bytes) + self.kept_bytes()) as f64 / self.host_bytes as f64
    }

    /// Returns the programmed IUs per IU touched by host writes: the cost of collection.
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
