//! Parameters of a modelled drive, and their validation.

use serde::{Deserialize, Serialize};

use crate::Error;

/// Smallest unit of a request in bytes.
pub const SECTOR_BYTES: u64 = 512;

/// Default minimum and maximum number of IUs in a superblock.
const SUPERBLOCK_IUS: (u64, u64) = (16, 4096);
/// Default capacity of the coalescing buffer in IUs.
const COALESCING_IUS: usize = 64;
/// Maximum number of placement handles.
const HANDLES_MOST: u16 = 128;
/// Maximum number of IUs of flash: their maps take 4 GiB.
const PLACES_MOST: u64 = 1 << 29;
/// Superblocks that the collector keeps free for itself, in addition to one per handle.
const FREE_LEAST: u64 = 3;

/// Victim selection of the collector.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Collector {
    /// The superblock with the fewest valid IUs.
    #[default]
    Greedy,
    /// The superblock with the highest benefit for its cost and age: `age × (1 − u) / 2u`.
    CostBenefit,
}

/// Parameters of a drive.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Shape {
    /// Indirection unit in bytes.
    pub iu_bytes: u32,
    /// Capacity visible to the host.
    pub namespace_bytes: u64,
    /// Flash behind the namespace, excluding superblocks that are open or kept free. Those are a negligible share of a
    /// real drive, but would be a large part of a small model's over-provisioning.
    pub raw_bytes: u64,
    /// Erase unit in bytes.
    pub superblock_bytes: u64,
    /// Capacity of the coalescing buffer in IUs.
    pub coalescing_ius: usize,
    /// Number of placement handles.
    pub handles: u16,
    /// Victim selection of the collector.
    pub collector: Collector,
}

/// A shape in IUs and superblocks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sizes {
    pub(super) namespace_ius: u32,
    pub(super) superblock_ius: u32,
    pub(super) superblocks: u32,
}

impl Shape {
    /// Returns a drive with `raw_bytes` of flash behind its namespace. It has about twice as many superblocks as a
    /// superblock has IUs: with fewer IUs per superblock the collector would find emptier victims than in a real drive,
    /// and with fewer superblocks it would have less choice.
    pub fn with_raw(iu_bytes: u32, namespace_bytes: u64, raw_bytes: u64) -> Shape {
        let iu = u64::from(iu_bytes.max(1));
        let (least, most) = SUPERBLOCK_IUS;
        let superblock_ius = (raw_bytes / iu / 2).isqrt().clamp(least, most);
        Shape {
            iu_bytes,
            namespace_bytes,
            raw_bytes,
            superblock_bytes: superblock_ius * iu,
            coalescing_ius: COALESCING_IUS,
            handles: 1,
            collector: Collector::Greedy,
        }
    }

    /// Returns a drive with the given over-provisioning: 0.07 is 7 %.
    pub fn over_provisioned(iu_bytes: u32, namespace_bytes: u64, over_provisioning: f64) -> Shape {
        let raw = namespace_bytes as f64 * (1.0 + over_provisioning.max(0.0));
        Shape::with_raw(iu_bytes, namespace_bytes, raw as u64)
    }

    /// Returns the flash beyond the namespace, as a share of the namespace.
    pub fn over_provisioning(&self) -> f64 {
        self.raw_bytes as f64 / self.namespace_bytes as f64 - 1.0
    }

    /// Returns the number of IUs in the namespace.
    pub fn namespace_ius(&self) -> u64 {
        self.namespace_bytes / u64::from(self.iu_bytes)
    }

    pub(super) fn sizes(&self) -> Result<Sizes, Error> {
        if !self.iu_bytes.is_power_of_two() || !(4 << 10..=64 << 10).contains(&self.iu_bytes) {
            return Err(Error::Iu { iu_bytes: self.iu_bytes });
        }
        let iu = u64::from(self.iu_bytes);
        let (namespace, superblock) = (self.namespace_bytes, self.superblock_bytes);
        for (what, bytes, ius, allowed) in [
            ("a namespace", namespace, 1, "an IU or more"),
            ("a superblock", superblock, 2, "two IUs or more"),
        ] {
            if !bytes.is_multiple_of(iu) {
                let below = bytes / iu * iu;
                return Err(Error::NotWholeIus { what, bytes, iu_bytes: self.iu_bytes, below });
            }
            if bytes < ius * iu {
                return Err(Error::Value { what, given: format!("{bytes} bytes"), allowed });
            }
        }
        if !(1..=HANDLES_MOST).contains(&self.handles) {
            let given = self.handles.to_string();
            return Err(Error::Value {
                what: "the number of placement handles",
                given,
                allowed: "from 1 to 128",
            });
        }
        let superblocks = self.raw_bytes / self.superblock_bytes;
        let spare = superblocks.saturating_sub(self.namespace_bytes.div_ceil(self.superblock_bytes));
        if spare == 0 {
            return Err(Error::TooLittleSpare {
                raw_bytes: self.raw_bytes,
                superblock_bytes: self.superblock_bytes,
            });
        }
        let superblocks = superblocks + self.working_superblocks();
        let superblock_ius = self.superblock_bytes / iu;
        if superblocks * superblock_ius > PLACES_MOST {
            let given = format!("{} units of {} bytes", superblocks * superblock_ius, self.iu_bytes);
            let allowed = "at most 536,870,912 units: model a smaller drive with the same ratios";
            return Err(Error::Value { what: "the drive's flash", given, allowed });
        }
        Ok(Sizes {
            namespace_ius: (self.namespace_bytes / iu) as u32,
            superblock_ius: superblock_ius as u32,
            superblocks: superblocks as u32,
        })
    }

    /// Returns two append points per handle, plus the superblocks kept free.
    fn working_superblocks(&self) -> u64 {
        2 * u64::from(self.handles) + self.free_target()
    }

    /// Returns the number of free superblocks below which the collector works.
    pub(super) fn free_target(&self) -> u64 {
        FREE_LEAST + u64::from(self.handles)
    }
}
