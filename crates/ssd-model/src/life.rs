//! Lifetime of a drive under a given write amplification.
//!
//! Flash lasts for a number of erases: raw capacity times P/E cycles is the total that may be programmed. Vendors state
//! petabytes written (PBW) instead; that counts host bytes under a workload of theirs, so it is multiplied by the write
//! amplification of that workload.

use serde::Serialize;

use crate::{Error, Profile};

const PETABYTE: f64 = 1e15;
const DAYS_A_YEAR: f64 = 365.25;

/// Endurance rating of a drive, and its write load.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Endurance {
    /// Capacity; `None`: that of the profile.
    pub capacity_bytes: Option<u64>,
    /// Erases that each block endures.
    pub pe_cycles: Option<f64>,
    /// Petabytes (10^15 bytes) that the host may write, as rated.
    pub pbw: Option<f64>,
    /// Write amplification of the rating's workload.
    pub pbw_write_amplification: f64,
    /// Drive writes per day: how often the host writes the capacity.
    pub drive_writes_a_day: Option<f64>,
}

/// Lifetime of a drive.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Life {
    /// Capacity in bytes.
    pub capacity_bytes: u64,
    /// Total bytes that may be programmed to its flash.
    pub nand_bytes_in_life: f64,
    /// Drive writes per day.
    pub drive_writes_a_day: f64,
    /// Bytes programmed per day.
    pub nand_bytes_a_day: f64,
    /// Years until the flash is worn out.
    pub years: f64,
}

impl Endurance {
    /// Validates the figures.
    pub fn check(&self) -> Result<(), Error> {
        let given = [
            ("P/E cycles", self.pe_cycles),
            ("PBW", self.pbw),
            ("drive writes a day", self.drive_writes_a_day),
            ("the write amplification of the PBW", Some(self.pbw_write_amplification)),
            ("the capacity", self.capacity_bytes.map(|bytes| bytes as f64)),
        ];
        for (what, value) in given {
            if let Some(value) = value.filter(|value| !(*value > 0.0 && value.is_finite())) {
                return Err(Error::Value { what, given: value.to_string(), allowed: "more than 0" });
            }
        }
        Ok(())
    }

    /// Returns the lifetime; `None` if no endurance is given. Without drive writes per day, `bytes_a_day` is used.
    pub fn life(
        &self,
        profile: &Profile,
        write_amplification: f64,
        bytes_a_day: Option<f64>,
    ) -> Option<Life> {
        let capacity_bytes = self.capacity_bytes.unwrap_or(profile.namespace_bytes);
        let capacity = capacity_bytes as f64;
        let by_cycles = self.pe_cycles.map(|cycles| capacity * (1.0 + profile.over_provisioning) * cycles);
        let by_word = self.pbw.map(|pbw| pbw * PETABYTE * self.pbw_write_amplification);
        let nand_bytes_in_life = by_cycles.or(by_word)?;
        let drive_writes_a_day = self.drive_writes_a_day.or(bytes_a_day.map(|bytes| bytes / capacity))?;
        let nand_bytes_a_day = drive_writes_a_day * capacity * write_amplification;
        Some(Life {
            capacity_bytes,
            nand_bytes_in_life,
            drive_writes_a_day,
            nand_bytes_a_day,
            years: nand_bytes_in_life / nand_bytes_a_day / DAYS_A_YEAR,
        })
    }
}
