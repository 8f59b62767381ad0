//! Overwrites until the write amplification is stable.

use crate::device::ModelDevice;
use crate::error::Error;
use crate::load::Load;

/// Number of warm-up windows per full write of the keys.
const WINDOWS_A_PASS: u64 = 2;
/// Minimum and maximum number of warm-up windows.
const WINDOWS: (usize, usize) = (6, 40);
/// Maximum relative change between windows, twice in succession, for a stable write amplification.
const STILL: f64 = 0.015;

/// Result of the warm-up.
#[derive(Clone, Debug)]
pub(crate) struct Steady {
    /// Device write amplification of each window.
    pub(crate) windows: Vec<f64>,
    /// True if the NAND bytes per put were stable at the end.
    pub(crate) is_steady: bool,
}

/// Runs a load until the NAND bytes per put are stable.
pub(crate) async fn until_steady(load: &Load<'_>, device: &ModelDevice) -> Result<Steady, Error> {
    let (mut windows, mut before, mut still) = (Vec::new(), f64::NAN, 0);
    while windows.len() < WINDOWS.1 && (still < 2 || windows.len() < WINDOWS.0) {
        let (start, puts) = (device.seen().drive, load.puts());
        load.run(load.keys() / WINDOWS_A_PASS).await?;
        let did = device.seen().drive - start;
        let now = did.nand_bytes() as f64 / (load.puts() - puts) as f64;
        still = if (now / before - 1.0).abs() < STILL { still + 1 } else { 0 };
        before = now;
        windows.push(did.write_amplification());
    }
    Ok(Steady { windows, is_steady: still >= 2 })
}
