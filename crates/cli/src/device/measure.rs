//! `esker device DEVICE --measure`: how coarsely a drive maps, found by timing writes.
//!
//! A drive that maps units of `U` bytes programs one unit for an aligned write of `U`. The same write 4 KiB farther on
//! touches two units, each in part: the drive reads and programs both. So for each size the rate of aligned writes is
//! divided by that of shifted ones. Counted in programs alone, that is 2 for writes of `U`, 1.5 for half and for twice of it,
//! and 1 where 4 KiB is all that the drive maps. What a command costs is the same in both, so it hides nothing.

use std::time::Duration;

use esker_inspect::Watcher;
use serde::Serialize;

use crate::terminal::Failure;

/// How far a shifted write lies behind an aligned one: what every drive maps, or a part of it.
pub(super) const SHIFT_BYTES: u64 = 4 << 10;
/// The units that are looked for.
pub(super) const SIZES: [u64; 5] = [8 << 10, 16 << 10, 32 << 10, 64 << 10, 128 << 10];
/// What writes of the unit's length reach, and those of half of it do not, so that a unit beyond all sizes is not taken for the
/// longest of them.
const LEAST_RATIO: f64 = 1.6;
const ROUNDS: usize = 5;

/// What is written to: a device, or the model of one.
pub(super) trait Scratch {
    /// Writes all of it once, in order, so that every unit of the drive is mapped.
    fn fill(&mut self) -> Result<(), Failure>;
    /// Writes at random multiples of `bytes`, each `shift` bytes farther on, for so long. Returns how many writes a second.
    fn write(&mut self, bytes: u64, shift: u64, time: Duration) -> Result<f64, Failure>;
}

/// What was measured of one size.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(super) struct Row {
    pub(super) bytes: u64,
    /// Bytes a second, medians.
    pub(super) aligned: f64,
    pub(super) shifted: f64,
    /// The median of what the rounds had; the two of a round are neighbours in time.
    pub(super) ratio: f64,
}

/// What was measured.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Measured {
    pub(super) rows: Vec<Row>,
    /// `None`: none coarser than 4 KiB shows.
    pub(super) unit_bytes: Option<u64>,
}

/// Fills the device, and measures all sizes in turn. `time` is for each size and round.
pub(super) fn measure(
    scratch: &mut dyn Scratch,
    time: Duration,
    watcher: &dyn Watcher,
) -> Result<Measured, Failure> {
    watcher.begin("filling the device", 0);
    scratch.fill()?;
    watcher.begin("writing at random places", 0);
    let mut rounds: Vec<Vec<(f64, f64)>> = vec![Vec::new(); SIZES.len()];
    for round in 0..ROUNDS {
        for (bytes, of_size) in SIZES.into_iter().zip(&mut rounds) {
            let mut write = |shift| scratch.write(bytes, shift, time / 2);
            // Neither always comes behind the other, whose writes the drive may still be busy with.
            let (aligned, shifted) = if round % 2 == 0 {
                let aligned = write(0)?;
                (aligned, write(SHIFT_BYTES)?)
            } else {
                let shifted = write(SHIFT_BYTES)?;
                (write(0)?, shifted)
            };
            of_size.push((aligned * bytes as f64, shifted * bytes as f64));
        }
    }
    let rows: Vec<Row> = SIZES.into_iter().zip(&rounds).map(|(bytes, rounds)| row(bytes, rounds)).collect();
    Ok(Measured { unit_bytes: unit(&rows), rows })
}

fn row(bytes: u64, rounds: &[(f64, f64)]) -> Row {
    let median = |of: fn(&(f64, f64)) -> f64| {
        let mut sorted: Vec<f64> = rounds.iter().map(of).collect();
        sorted.sort_by(f64::total_cmp);
        sorted[sorted.len() / 2]
    };
    Row {
        bytes,
        aligned: median(|round| round.0),
        shifted: median(|round| round.1),
        ratio: median(|round| round.0 / round.1),
    }
}

/// The size at which being aligned matters most.
fn unit(rows: &[Row]) -> Option<u64> {
    let most = rows.iter().max_by(|a, b| a.ratio.total_cmp(&b.ratio))?;
    (most.ratio >= LEAST_RATIO).then_some(most.bytes)
}
