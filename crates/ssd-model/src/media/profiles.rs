//! Profiles of drives that documents measured or describe, and their scaling.
//!
//! A modelled drive has the dies, the IU, the over-provisioning and the medium of the real one, and superblocks of one
//! program per die. It has fewer superblocks, so that a model of 15 TB fits in a few megabytes. The cost of collection
//! depends on the ratio of flash to namespace, not on their size.

use serde::Serialize;

use super::Medium;
use crate::{Collector, Error, Shape};

/// Number of superblocks of a modelled drive.
const SUPERBLOCKS: u64 = 1024;

/// A drive profile.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Profile {
    /// Name on command lines.
    pub name: &'static str,
    /// Description.
    pub about: &'static str,
    /// Indirection unit in bytes.
    pub iu_bytes: u32,
    /// Nominal namespace size in bytes.
    pub namespace_bytes: u64,
    /// Flash beyond that namespace, as a share of it. The only figure that is fitted, or taken from a fitted drive.
    pub over_provisioning: f64,
    /// Number of dies.
    pub dies: u32,
    /// Number of channels that the dies share.
    pub channels: u32,
    /// Flash medium.
    pub medium: Medium,
    /// Power-loss-protected cache in bytes; a write is acknowledged once it is in the cache.
    pub cache_bytes: u64,
    /// Controller time per command.
    pub command_ns: u64,
    /// Maximum bytes per second that the controller moves to and from flash, if lower than that of the dies.
    pub flash_bytes_per_s: Option<u64>,
}

/// All named drives.
pub const PROFILES: [Profile; 5] = [
    // 128 dies of 1 Tb are 16 TiB of flash. The white paper on the drive (facts.md 2) measured 2,985 MiB/s sequentially
    // with a WAF of 1.02, the throughput of the controller, and 1,360 MiB/s in commands of 4 KiB, 2.87 µs per command.
    Profile {
        name: "d5-p5316",
        about: "D5-P5316, 15.36 TB of QLC, IU of 64 KiB",
        iu_bytes: 64 << 10,
        namespace_bytes: 15_360_000_000_000,
        over_provisioning: 0.124,
        dies: 128,
        channels: 16,
        medium: Medium::QLC,
        cache_bytes: 32 << 20,
        command_ns: 2_870,
        flash_bytes_per_s: Some(3_192_000_000),
    },
    // 64 dies of 512 Gb are 4 TiB of flash; 18 channels (heise.de, 2020-02). 1.4 million reads per second are 714 ns
    // per command.
    Profile {
        name: "cm6",
        about: "CM6, 3.84 TB of TLC, IU of 4 KiB",
        iu_bytes: 4 << 10,
        namespace_bytes: 3_840_000_000_000,
        over_provisioning: 0.153,
        dies: 64,
        channels: 18,
        medium: Medium::TLC,
        cache_bytes: 32 << 20,
        command_ns: 714,
        flash_bytes_per_s: None,
    },
    // Not a measured drive: a fast medium in front of QLC. 64 dies of 128 Gb are 1 TiB of flash.
    Profile {
        name: "low-latency",
        about: "a cache drive of low-latency flash, 800 GB, IU of 4 KiB",
        iu_bytes: 4 << 10,
        namespace_bytes: 800_000_000_000,
        over_provisioning: 0.37,
        dies: 64,
        channels: 16,
        medium: Medium::LOW_LATENCY,
        cache_bytes: 32 << 20,
        command_ns: 714,
        flash_bytes_per_s: None,
    },
    // Published, with the source: capacity, IU and rated endurance for random writes of one IU ("Solidigm D5-P5336 Product
    // Brief", 2025, page 3 and note 17, as quoted by others); sequential writes of 3,300 and 3,200 MB/s, and 1,005,000 and
    // 930,000 reads of 4 KiB a second, which are 995 and 1,075 ns per command (architecting.it, "100TB SSD vendors", 2024-11);
    // dies of 1.33 Tb ("Solidigm 29F02P2BMCQLI 192-Layer 1.33 Tb QLC 3D NAND", TechInsights): 384 in 64 TiB of flash.
    // Not published, and taken from the D5-P5316: over-provisioning, channels, cache, and the times of the flash.
    Profile {
        name: "d5-p5336-61t",
        about: "D5-P5336, 61.44 TB of QLC, IU of 16 KiB, 65.2 PBW",
        iu_bytes: 16 << 10,
        namespace_bytes: 61_440_000_000_000,
        over_provisioning: 0.124,
        dies: 384,
        channels: 16,
        medium: Medium::QLC,
        cache_bytes: 32 << 20,
        command_ns: 995,
        flash_bytes_per_s: Some(3_300_000_000),
    },
    Profile {
        name: "d5-p5336-122t",
        about: "D5-P5336, 122.88 TB of QLC, IU of 32 KiB, 134.3 PBW",
        iu_bytes: 32 << 10,
        namespace_bytes: 122_880_000_000_000,
        over_provisioning: 0.124,
        dies: 768,
        channels: 16,
        medium: Medium::QLC,
        cache_bytes: 32 << 20,
        command_ns: 1_075,
        flash_bytes_per_s: Some(3_200_000_000),
    },
];

impl Profile {
    /// Returns the drive with this name.
    pub fn named(name: &str) -> Result<&'static Profile, Error> {
        PROFILES.iter().find(|profile| profile.name == name).ok_or_else(|| Error::Value {
            what: "the drive",
            given: format!("'{name}'"),
            allowed: "d5-p5316, d5-p5336-61t, d5-p5336-122t, cm6 or low-latency",
        })
    }

    /// Returns all of its flash in bytes.
    pub fn raw_bytes(&self) -> u64 {
        (self.namespace_bytes as f64 * (1.0 + self.over_provisioning)) as u64
    }

    /// Returns the scaled-down drive. Its namespace is the given share of the nominal one.
    pub fn shape(&self, namespace_share: f64) -> Shape {
        let superblock_bytes = self.medium.program_bytes() * u64::from(self.dies);
        let raw_bytes = superblock_bytes * SUPERBLOCKS;
        let iu = u64::from(self.iu_bytes);
        let namespace = raw_bytes as f64 / (1.0 + self.over_provisioning) * namespace_share;
        Shape {
            superblock_bytes,
            collector: Collector::Greedy,
            ..Shape::with_raw(self.iu_bytes, namespace as u64 / iu * iu, raw_bytes)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Drive;

    #[test]
    fn every_profile_is_a_drive_with_a_name_of_its_own() {
        for profile in &PROFILES {
            assert_eq!(Profile::named(profile.name).expect("it has a name"), profile);
            let shape = profile.shape(1.0);
            assert_eq!(shape.superblock_bytes, profile.medium.program_bytes() * u64::from(profile.dies));
            Drive::new(&shape).unwrap_or_else(|error| panic!("{}: {error}", profile.name));
        }
        let refused = Profile::named("floppy").expect_err("there is none").to_string();
        assert!(PROFILES.iter().all(|profile| refused.contains(profile.name)), "{refused}");
    }

    /// The rated endurance is that of the daily writes over five years: 0.58 and 0.6 of the capacity.
    #[test]
    fn drive_profiles_match_flash_and_endurance_of_data_sheets() {
        for (name, daily, petabytes) in [("d5-p5336-61t", 0.58, 65.2), ("d5-p5336-122t", 0.6, 134.3)] {
            let profile = Profile::named(name).expect("a profile");
            let rated = profile.namespace_bytes as f64 * daily * 5.0 * 365.0 / 1e15;
            assert!((rated / petabytes - 1.0).abs() < 0.005, "{name}: {rated}");
            assert!(profile.about.contains(&format!("{petabytes} PBW")), "{name}");
            // Dies of 4/3 Tbit.
            let flash = f64::from(profile.dies) * 4.0 / 3.0 * (1u64 << 40) as f64 / 8.0;
            assert!(flash > profile.raw_bytes() as f64, "{name} has more flash than the collector uses");
        }
    }
}
