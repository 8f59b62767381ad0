//! `esker-bench writeamp`: how many bytes go to the devices for each byte that is put, in steady state.
//!
//! 1. A new store is filled with keys up to the user limit.
//! 2. They are overwritten, drawn uniformly or by Zipf, as many times as the capacity holds records, times `--turns`.
//! 3. What was written during the second half is divided by what was put, and set beside the closed form and the table
//!    of a simulation. All values are read back at the end.

mod closed_form;
mod measure;
mod reference;
mod report;

use std::path::PathBuf;

use clap::ValueEnum;

use crate::failure::{Failure, Result};
use crate::size;
use crate::workload::Shape;

/// Options of `esker-bench writeamp`.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct Arguments {
    /// Which keys are overwritten [default: uniform, and Zipf of 0.8, 0.99 and 1.2].
    #[arg(long, value_enum)]
    distribution: Option<Distribution>,
    /// Skew of Zipf [default: 0.8, 0.99 and 1.2].
    #[arg(long, value_name = "T")]
    theta: Option<f64>,
    /// Share of the capacity that users cannot fill, in percent [default: 7, 12, 20 and 28].
    #[arg(long, value_name = "PERCENT", value_parser = clap::value_parser!(u8).range(5..=50))]
    reserve: Option<u8>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
    /// Records that the capacity holds.
    #[arg(long, value_name = "N", default_value_t = 524_288)]
    records: u64,
    /// How often the whole capacity is overwritten.
    #[arg(long, value_name = "N", default_value_t = 12, value_parser = clap::value_parser!(u64).range(2..))]
    turns: u64,
    /// Length of a value. The default makes records of 4,032 bytes (header 32, key 16), of which 65 and the header of a
    /// frame are 64 write units of 4 KiB.
    #[arg(long, value_name = "BYTES", default_value_t = 3984, value_parser = clap::value_parser!(u64).range(16..))]
    value_bytes: u64,
    /// Length of a segment.
    #[arg(long, value_name = "SIZE", default_value = "2m", value_parser = size::parse)]
    segment: u64,
    /// Indirection unit of the capacity tier.
    #[arg(long, value_name = "SIZE", default_value = "4k", value_parser = size::parse)]
    iu: u64,
    /// Size of a fast tier in front, in percent of the capacity tier [default: no fast tier].
    #[arg(long, value_name = "PERCENT", value_parser = clap::value_parser!(u8).range(1..=100))]
    fast_percent: Option<u8>,
    /// Share of the user limit that is filled, in percent.
    #[arg(long, value_name = "PERCENT", default_value_t = 100, value_parser = clap::value_parser!(u8).range(10..=100))]
    fill: u8,
    /// Puts in flight.
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u64).range(1..=4096))]
    depth: u64,
    /// The store's memory budget.
    #[arg(long, value_name = "SIZE", default_value = "128m", value_parser = size::parse)]
    memory: u64,
    /// Draws the workload.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Keep the store in new files in this directory [default: in memory].
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Distribution {
    Uniform,
    Zipf,
}

/// One measurement of the matrix.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Cell {
    pub(crate) shape: Shape,
    pub(crate) reserve_percent: u8,
}

const THETAS: [f64; 3] = [0.8, 0.99, 1.2];
const RESERVES: [u8; 4] = [7, 12, 20, 28];

impl Arguments {
    /// The measurements that were asked for.
    fn cells(&self) -> Result<Vec<Cell>> {
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
        let of = |shape| reserves.iter().map(move |&reserve_percent| Cell { shape, reserve_percent });
        Ok(shapes.into_iter().flat_map(of).collect())
    }
}

/// Measures, and prints what was measured.
pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    if arguments.records < 1000 || arguments.records > u64::from(u32::MAX) {
        return Err(Failure::usage(format!("--records is {}; it has to be 1000 to 2^32", arguments.records)));
    }
    let mut measured = Vec::new();
    for cell in arguments.cells()? {
        let run = measure::measure(arguments, cell)?;
        if !arguments.json {
            report::line(&run, measured.is_empty());
        }
        measured.push(run);
    }
    if arguments.json {
        report::json(arguments, &measured)
    } else {
        report::notes(arguments, &measured)
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::parse;

    #[test]
    fn without_arguments_the_whole_matrix_is_measured() {
        let cells = |words: &str| parse::<Arguments>(words).cells();
        assert_eq!(cells("").expect("cells").len(), 16);
        assert_eq!(cells("--reserve 20").expect("cells").len(), 4);
        assert_eq!(cells("--distribution zipf").expect("cells").len(), 12);
        let cell = Cell { shape: Shape::Zipf(0.99), reserve_percent: 20 };
        assert_eq!(cells("--theta 0.99 --reserve 20").expect("cells"), [cell]);
        assert!(cells("--distribution uniform --theta 1").is_err());
        assert!(cells("--theta 0").is_err());
    }

    #[test]
    fn a_small_measurement_agrees_with_itself() {
        let arguments: Arguments = parse(
            "--distribution uniform --reserve 20 --records 16000 --turns 4 --segment 256k --value-bytes 976 --memory 32m",
        );
        let cell = arguments.cells().expect("a cell")[0];
        let run = measure::measure(&arguments, cell).expect("it is measured");
        assert_eq!(run.second_half.user_bytes, run.second_half.user_records * (16 + 976));
        assert!(run.second_half.user_records * 2 >= 4 * 16_000 - 2, "{run:?}");
        // A fifth of the capacity is garbage, so records have to be moved for most of the room that is made.
        assert!(run.wa_of_records.is_some_and(|wa| wa > 1.3), "{run:?}");
        let second_half = (run.wa_by_turn[2] + run.wa_by_turn[3]) / 2.0;
        assert!((run.wa_per_user_byte - second_half).abs() < 0.01, "{run:?}");
        // The store and its device count the same; a few writes may be counted by one and not yet by the other.
        assert!(run.unnamed_bytes.abs() <= 8 << 16, "{run:?}");
        assert_eq!(run.unnamed_bytes, run.second_half.unnamed_bytes());
        assert!(run.effective_reserve > 0.15 && run.effective_reserve < 0.35, "{run:?}");
        assert_eq!(run.keys, run.verified_keys);
    }
}
