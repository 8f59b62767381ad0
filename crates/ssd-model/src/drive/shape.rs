//! What a drive is built from, and whether that can work.

use serde::{Deserialize, Serialize};

use crate::Error;

/// The smallest unit of a request.
pub const SECTOR_BYTES: u64 = 512;

/// IUs in a superblock, at least and at most, if a shape is not told otherwise.
const SUPERBLOCK_IUS: (u64, u64) = (16, 4096);
/// IUs that wait for the rest of their sectors, if a shape is not told otherwise.
const COALESCING_IUS: usize = 64;
/// Handles, at most.
const HANDLES_MOST: u16 = 128;
/// IUs of flash, at most: their maps take 4 GiB.
const PLACES_MOST: u64 = 1 << 29;
/// Superblocks that the collector keeps free for itself, beyond one for each handle.
const FREE_LEAST: u64 = 3;

/// How the collector chooses its victim.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Collector {
    /// The superblock with the fewest valid IUs.
    #[default]
    Greedy,
    /// The superblock with the most to gain for its cost, counting its age: `age × (1 − u) / 2u`.
    CostBenefit,
}

/// What a drive is built from.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Shape {
    /// The indirection unit.
    pub iu_bytes: u32,
    /// What the host sees.
    pub namespace_bytes: u64,
    /// The flash behind it, without the superblocks that are open or kept free. Those are a negligible share of a real drive,
    /// and would be much of a small model's over-provisioning.
    pub raw_bytes: u64,
    /// What is erased together.
    pub superblock_bytes: u64,
    /// How many partly written IUs wait for the rest of their sectors.
    pub coalescing_ius: usize,
    /// How many placement handles the host may name.
    pub handles: u16,
    /// How victims are chosen.
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
    /// A drive with so much flash behind its namespace. It has about twice as many superblocks as a superblock has IUs: with
    /// fewer IUs in one, the collector finds emptier victims than in a real drive, and with fewer superblocks it has less choice.
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

    /// A drive with so much more flash than its namespace: 0.07 is 7 %.
    pub fn over_provisioned(iu_bytes: u32, namespace_bytes: u64, over_provisioning: f64) -> Shape {
        let raw = namespace_bytes as f64 * (1.0 + over_provisioning.max(0.0));
        Shape::with_raw(iu_bytes, namespace_bytes, raw as u64)
    }

    /// Flash beyond the namespace, as a share of the namespace.
    pub fn over_provisioning(&self) -> f64 {
        self.raw_bytes as f64 / self.namespace_bytes as f64 - 1.0
    }

    /// IUs of the namespace.
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

    /// Two append points for each handle, and what is kept free.
    fn working_superblocks(&self) -> u64 {
        2 * u64::from(self.handles) + self.free_target()
    }

    /// Free superblocks below which the collector works.
    pub(super) fn free_target(&self) -> u64 {
        FREE_LEAST + u64::from(self.handles)
    }
}
