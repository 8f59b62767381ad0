//! Overwriting until nothing changes any more.

use crate::device::ModelDevice;
use crate::error::Error;
use crate::load::Load;

/// Windows of the warm-up write this share of the keys, as a divisor.
const WINDOWS_A_PASS: u64 = 2;
/// Windows of the warm-up, at least and at most.
const WINDOWS: (usize, usize) = (6, 40);
/// Write amplification holds still if its change from window to window is less than this, twice.
const STILL: f64 = 0.015;

/// What the warm-up saw.
#[derive(Clone, Debug)]
pub(crate) struct Steady {
    /// Write amplification of the drive in each window.
    pub(crate) windows: Vec<f64>,
    /// Whether the bytes that are programmed for a put held still at the end.
    pub(crate) is_steady: bool,
}

/// Runs a load until the bytes that a drive programs for each put hold still.
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
