//! The options, and the list of measurements.

use std::path::PathBuf;

use clap::ValueEnum;

use crate::instruments::failure::{Failure, Result};
use crate::workload::Shape;

/// Options of `esker-bench writeamp`.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct Arguments {
    /// Which keys are overwritten [default: uniform, and Zipf of 0.8, 0.99 and 1.2].
    #[arg(long, value_enum)]
    pub(super) distribution: Option<Distribution>,
    /// Skew of Zipf [default: 0.8, 0.99 and 1.2].
    #[arg(long, value_name = "T")]
    pub(super) theta: Option<f64>,
    /// Share of the capacity that users cannot fill, in percent [default: 7, 12, 20 and 28].
    #[arg(long, value_name = "PERCENT", value_parser = clap::value_parser!(u8).range(5..=50))]
    pub(super) reserve: Option<u8>,
    /// Print JSON.
    #[arg(long)]
    pub(super) json: bool,
    /// Records that the capacity holds.
    #[arg(long, value_name = "N", default_value_t = 524_288)]
    pub(super) records: u64,
    /// How often the whole capacity is overwritten.
    #[arg(long, value_name = "N", default_value_t = 12, value_parser = clap::value_parser!(u64).range(2..))]
    pub(super) turns: u64,
    /// Length of a value. The default makes records of 4,032 bytes (header 32, key 16), of which 65 and the header of a
    /// frame are 64 write units of 4 KiB.
    #[arg(long, value_name = "BYTES", default_value_t = 3984, value_parser = clap::value_parser!(u64).range(16..))]
    pub(super) value_bytes: u64,
    /// Length of a segment.
    #[arg(long, value_name = "SIZE", default_value = "2m", value_parser = esker_command::parse)]
    pub(super) segment: u64,
    /// Indirection unit of the capacity tier.
    #[arg(long, value_name = "SIZE", default_value = "4k", value_parser = esker_command::parse)]
    pub(super) iu: u64,
    /// Size of a fast tier in front, in percent of the capacity tier [default: no fast tier].
    #[arg(long, value_name = "PERCENT", value_parser = clap::value_parser!(u8).range(1..=100))]
    pub(super) fast_percent: Option<u8>,
    /// Shares of the user limit that are filled, in percent, such as 16,36,50,80,95.
    #[arg(long, value_name = "PERCENT", value_delimiter = ',', default_value = "100", value_parser = clap::value_parser!(u8).range(10..=100))]
    pub(super) fill: Vec<u8>,
    /// Puts in flight.
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u64).range(1..=4096))]
    pub(super) depth: u64,
    /// The store's memory budget.
    #[arg(long, value_name = "SIZE", default_value = "128m", value_parser = esker_command::parse)]
    pub(super) memory: u64,
    /// Milliseconds that puts may wait in memory to be overwritten.
    #[arg(long, value_name = "MS", default_value_t = 0)]
    pub(super) coalesce_ms: u64,
    /// Draws the workload.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(super) seed: u64,
    /// Keep the store in new files in this directory [default: in memory].
    #[arg(long, value_name = "DIR")]
    pub(super) dir: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Distribution {
    Uniform,
    Zipf,
}

/// One measurement of the matrix.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Cell {
    pub(crate) shape: Shape,
    pub(crate) reserve_percent: u8,
    pub(crate) fill_percent: u8,
}

const THETAS: [f64; 3] = [0.8, 0.99, 1.2];
const RESERVES: [u8; 4] = [7, 12, 20, 28];

impl Arguments {
    /// Returns the requested measurements.
    pub(super) fn cells(&self) -> Result<Vec<Cell>> {
        if let Some(theta) = self.theta {
            if self.distribution == Some(Distribution::Uniform) {
                return Err(Failure::usage("--theta is the skew of Zipf; a uniform distribution has none"));
            }
            if !(theta > 0.0 && theta <= 5.0) {
                return Err(Failure::usage(format!(
                    "--theta is {theta}; it has to be more than 0, at most 5"
                )));
            }
        }
        let zipf: Vec<Shape> = match self.theta {
            Some(theta) => vec![Shape::Zipf(theta)],
            None => THETAS.map(Shape::Zipf).to_vec(),
        };
        let shapes = match (self.distribution, self.theta) {
            (Some(Distribution::Uniform), _) => vec![Shape::Uniform],
            (Some(Distribution::Zipf), _) | (None, Some(_)) => zipf,
            (None, None) => [vec![Shape::Uniform], zipf].concat(),
        };
        let reserves = self.reserve.map_or(RESERVES.to_vec(), |reserve| vec![reserve]);
        let mut cells = Vec::new();
        for shape in shapes {
            for &reserve_percent in &reserves {
                let cell = |&fill_percent| Cell { shape, reserve_percent, fill_percent };
                cells.extend(self.fill.iter().map(cell));
            }
        }
        Ok(cells)
    }
}
