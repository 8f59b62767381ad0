//! `esker device DEVICE --measure`: finds the mapping unit of a drive by timing writes.
//!
//! A drive that maps units of `U` bytes programs one unit for an aligned write of `U`. The same write
//! shifted by 4 KiB touches two units partially: the drive reads and programs both. So for each size the
//! rate of aligned writes is divided by the rate of shifted ones. In programs alone, the ratio is 2 for
//! writes of `U`, 1.5 for half and for twice that size, and 1 if the drive maps 4 KiB. The overhead of a
//! command is the same in both and does not hide the difference.

use std::time::Duration;

use esker_inspect::Watcher;
use serde::Serialize;

use crate::terminal::Failure;

/// Distance of a shifted write from an aligned one, in bytes. The mapping unit of every drive is a multiple of it.
pub(super) const SHIFT_BYTES: u64 = 4 << 10;
/// The candidate units in bytes.
pub(super) const SIZES: [u64; 5] = [8 << 10, 16 << 10, 32 << 10, 64 << 10, 128 << 10];
/// Ratio that proves a unit. Writes of a unit reach it and writes of half a unit do not, so a unit longer
/// than all sizes is not mistaken for the longest size.
const LEAST_RATIO: f64 = 1.6;
const ROUNDS: usize = 5;

/// The target of the writes: a device, or the model of one.
pub(super) trait Scratch {
    /// Writes the whole device once, in order, so that every unit of the drive is mapped.
    fn fill(&mut self) -> Result<(), Failure>;
    /// Writes for `time` at random multiples of `bytes`, each shifted by `shift` bytes. Returns the
    /// writes per second.
    fn write(&mut self, bytes: u64, shift: u64, time: Duration) -> Result<f64, Failure>;
}

/// The measurement of one size.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(super) struct Row {
    pub(super) bytes: u64,
    /// Median of the bytes per second.
    pub(super) aligned: f64,
    pub(super) shifted: f64,
    /// Median of the ratios of the rounds; the two writes of a round are adjacent in time.
    pub(super) ratio: f64,
}

/// All measurements.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Measured {
    pub(super) rows: Vec<Row>,
    /// The unit; `None` if no unit above 4 KiB was found.
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
            // The order alternates, because the drive may still be busy with the previous writes.
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

/// Returns the size with the highest ratio of aligned to shifted writes.
fn unit(rows: &[Row]) -> Option<u64> {
    let most = rows.iter().max_by(|a, b| a.ratio.total_cmp(&b.ratio))?;
    (most.ratio >= LEAST_RATIO).then_some(most.bytes)
}
