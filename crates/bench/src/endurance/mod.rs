//! `esker-bench endurance`: a store that is nearly full, under mixed load for a long time.
//!
//! 1. Fill a new store to `--fill` percent of the user limit.
//! 2. Run gets, puts, deletes and puts with an expiry for `--minutes`. Verify every value read. Print a
//!    line per interval: throughput, percentiles, memory, write amplification, free segments.
//! 3. Run the same keys and load on a store with enough space that nothing has to be collected, for
//!    `--baseline-minutes` or until that space is used up.
//! 4. Check, within the tolerances of `checks`: throughput and memory at the end are those of the start,
//!    gets are not much slower than without collection, and the longest put exceeds the longest device
//!    operation at that time by at most a limit.

mod arguments;
mod checks;
mod client;
mod keys;
mod phase;
mod progress_lines;
mod report;
mod sample;

pub(crate) use arguments::Arguments;

use std::time::Duration;

use crate::instruments::failure::{Failure, Result};

/// Runs the load and its checks. Fails if a check fails.
pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    arguments.check()?;
    let mut lines = progress_lines::Lines::new(arguments)?;
    let loaded = phase::run(arguments, phase::Kind::Loaded, arguments.duration(), &mut lines)?;
    let baseline = if arguments.baseline_minutes > 0.0 {
        let most = Duration::from_secs_f64(arguments.baseline_minutes * 60.0);
        Some(phase::run(
            arguments,
            phase::Kind::Baseline { rate: loaded.rate(), keys: loaded.keys },
            most,
            &mut lines,
        )?)
    } else {
        None
    };
    let checks = checks::of(arguments, &loaded, baseline.as_ref());
    report::end(arguments, &loaded, baseline.as_ref(), &checks);
    match checks.iter().filter(|check| check.passed == Some(false)).count() {
        0 => Ok(()),
        failed => Err(Failure::Failed(format!("{failed} of {} checks failed", checks.len()))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::instruments::arguments::parse;

    #[test]
    fn short_run_reads_back_its_writes() {
        let csv = tempfile::NamedTempFile::new().expect("a temporary file");
        let words = format!(
            "--minutes 0.05 --baseline-minutes 0.02 --interval 0.5 --fill 85 --capacity 32m --segment 256k \
             --value-bytes 1000 --memory 40m --durability none --csv {}",
            csv.path().display()
        );
        let arguments: Arguments = parse(&words);
        let mut lines = progress_lines::Lines::new(&arguments).expect("the CSV is made");
        let loaded = phase::run(&arguments, phase::Kind::Loaded, arguments.duration(), &mut lines);
        let loaded = loaded.expect("the load runs");
        assert!(loaded.segments_freed > 0, "a store that is nearly full collects");
        let did =
            |kind: &str| loaded.latencies.iter().find(|(name, _)| *name == kind).map(|(_, l)| l.count());
        assert!(did("get") > did("put") && did("put") > did("delete") && did("delete") > Some(0));
        let kind = phase::Kind::Baseline { rate: loaded.rate(), keys: loaded.keys };
        let baseline = phase::run(&arguments, kind, Duration::from_secs(1), &mut lines).expect("it runs");
        assert_eq!(baseline.segments_freed, 0, "there is space enough");
        let checks = checks::of(&arguments, &loaded, Some(&baseline));
        assert_eq!(checks.len(), 4);
        drop(lines);
        let csv = std::fs::read_to_string(csv.path()).expect("the CSV can be read");
        let widths: Vec<usize> = csv.lines().map(|line| line.split(',').count()).collect();
        assert!(widths.len() >= 6 && widths.iter().all(|width| *width == widths[0]), "{csv}");
    }

    #[test]
    fn small_stores_are_filled_to_their_limit() {
        let words = "--minutes 0.005 --baseline-minutes 0 --interval 0.1 --fill 95 --capacity 8m --segment 256k \
                     --value-bytes 1000 --memory 40m --durability none";
        let arguments: Arguments = parse(words);
        let mut lines = progress_lines::Lines::new(&arguments).expect("no CSV is asked for");
        let loaded = phase::run(&arguments, phase::Kind::Loaded, arguments.duration(), &mut lines);
        assert!(loaded.expect("there is room").keys > 1000);
    }

    #[test]
    fn contradictions_are_refused() {
        for words in [
            "--gets 90 --deletes 20",
            "--minutes 0",
            "--minutes nan",
            "--minutes inf",
            "--baseline-minutes inf",
            "--interval nan",
            "--interval 1e300",
            "--rate 0.5",
            "--rate nan",
            "--theta=-3",
            "--theta nan",
            "--put-limit-ms nan",
            "--value-bytes 1099511627776",
            "--segment 0",
            "--capacity 16777215t",
        ] {
            assert!(matches!(run(&parse(words)), Err(Failure::Usage(_))), "{words}");
        }
    }
}
