//! `esker-bench writeamp`: measures device bytes per byte put, in steady state.
//!
//! 1. Fill a new store with keys, up to the user limit or to the share of it that `--fill` gives.
//! 2. Overwrite them, drawn uniformly or by Zipf, as many times as the capacity holds records, times
//!    `--turns`.
//! 3. Divide the bytes written during the second half by the bytes put, and compare the result with the
//!    closed form and the table of a simulation. Read all values back at the end.

mod arguments;
mod closed_form;
mod measure;
mod reference;
mod report;

pub(crate) use arguments::Arguments;

use crate::instruments::failure::{Failure, Result};

/// Measures, and prints the results.
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
    use super::arguments::Cell;
    use super::*;
    use crate::instruments::arguments::parse;
    use crate::workload::Shape;

    #[test]
    fn without_arguments_the_whole_matrix_is_measured() {
        let cells = |words: &str| parse::<Arguments>(words).cells();
        assert_eq!(cells("").expect("cells").len(), 16);
        assert_eq!(cells("--reserve 20").expect("cells").len(), 4);
        assert_eq!(cells("--distribution zipf").expect("cells").len(), 12);
        let cell = Cell { shape: Shape::Zipf(0.99), reserve_percent: 20, fill_percent: 100 };
        assert_eq!(cells("--theta 0.99 --reserve 20").expect("cells"), [cell]);
        let levels = cells("--distribution uniform --reserve 20 --fill 16,36,50,80,95").expect("cells");
        let levels: Vec<u8> = levels.iter().map(|cell| cell.fill_percent).collect();
        assert_eq!(levels, [16, 36, 50, 80, 95]);
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
        // A store half full has more room for garbage, which makes the drive's spare share larger.
        let half = Cell { fill_percent: 50, ..cell };
        let half =
            measure::measure(&Arguments { turns: 2, ..arguments.clone() }, half).expect("it is measured");
        assert!(half.effective_reserve > run.effective_reserve + 0.3, "{half:?}");
        assert!(half.closed_form_effective < run.closed_form_effective, "{half:?}");
        assert_eq!(half.fill_percent, 50);
        assert_eq!(run.second_half.user_bytes, run.second_half.user_records * (16 + 976));
        assert!(run.second_half.user_records * 2 >= 4 * 16_000 - 2, "{run:?}");
        // A fifth of the capacity is garbage, so most of the freed space requires moving records.
        assert!(run.wa_of_records.is_some_and(|wa| wa > 1.3), "{run:?}");
        let second_half = (run.wa_by_turn[2] + run.wa_by_turn[3]) / 2.0;
        assert!((run.wa_per_user_byte - second_half).abs() < 0.01, "{run:?}");
        // The store and its device count the same bytes; a few writes in flight may be counted by one
        // only.
        assert!(run.unnamed_bytes.abs() <= 8 << 16, "{run:?}");
        assert_eq!(run.unnamed_bytes, run.second_half.unnamed_bytes());
        assert!(run.effective_reserve > 0.15 && run.effective_reserve < 0.35, "{run:?}");
        assert_eq!(run.keys, run.verified_keys);
    }
}
