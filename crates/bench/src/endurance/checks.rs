//! The requirements on the store's endurance, and whether it meets them.

use serde::Serialize;

use super::arguments::Arguments;
use super::sample::{Phase, Sample};

/// The result of one check.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Check {
    pub(crate) what: &'static str,
    /// True if the check passed; `None` if there are too few measurements.
    pub(crate) passed: Option<bool>,
    pub(crate) found: String,
    pub(crate) asked: String,
}

/// Returns the mean of a value over the samples that ended within a time range.
fn mean(samples: &[Sample], from_s: f64, to_s: f64, of: impl Fn(&Sample) -> f64) -> Option<f64> {
    let within: Vec<f64> = samples.iter().filter(|s| s.at_s > from_s && s.at_s <= to_s).map(of).collect();
    (!within.is_empty()).then(|| within.iter().sum::<f64>() / within.len() as f64)
}

/// Returns the results of all checks. They compare minutes 5 to 10 of the phase with the last five
/// minutes; in a phase of less than half an hour, its second sixth with its last.
pub(crate) fn of(arguments: &Arguments, loaded: &Phase, baseline: Option<&Phase>) -> Vec<Check> {
    let end = loaded.took.as_secs_f64();
    let part = (end / 6.0).min(300.0);
    // The last interval may end a moment after the phase.
    let early = |of: fn(&Sample) -> f64| mean(&loaded.samples, part, 2.0 * part, of);
    let late = |of: fn(&Sample) -> f64| mean(&loaded.samples, end - part, end + 1.0, of);
    let ratio = |of: fn(&Sample) -> f64| Some((early(of)?, late(of)?, late(of)? / early(of)?));
    let steady = ratio(|s| s.operations_per_s);
    let memory = ratio(|s| s.resident_bytes as f64);
    let get_us = |phase: &Phase| phase.latencies[0].1.at_us(99.9);
    let too_few = || "too short to tell".to_owned();
    // The limit is for the time that the store adds to its device's.
    let longest = loaded.longest_put;
    let longest_ms = loaded.latencies[1].1.max_us() / 1e3;
    vec![
        Check {
            what: "throughput at the end, of that at the beginning",
            passed: steady.map(|(_, _, ratio)| ratio >= 0.9),
            found: steady.map_or_else(too_few, |(early, late, ratio)| {
                format!("{ratio:.3} ({late:.0} of {early:.0} operations/s)")
            }),
            asked: "at least 0.9".into(),
        },
        Check {
            what: "p99.9 of gets, of that without collection",
            passed: baseline.map(|b| get_us(loaded) <= 2.0 * get_us(b)),
            found: baseline.map_or_else(
                || "no baseline".to_owned(),
                |b| {
                    let (with, without) = (get_us(loaded), get_us(b));
                    format!(
                        "{:.2} ({with:.0} of {without:.0} us; {:.0} of {:.0} operations/s; {} segments freed there)",
                        with / without.max(1e-9),
                        loaded.rate(),
                        b.rate(),
                        b.segments_freed
                    )
                },
            ),
            asked: "at most 2".into(),
        },
        Check {
            what: "resident memory at the end, of that at the beginning",
            passed: memory.map(|(_, _, ratio)| ratio <= 1.05),
            found: memory.map_or_else(too_few, |(early, late, ratio)| {
                format!("{ratio:.3} ({:.0} of {:.0} MiB)", late / 1048576.0, early / 1048576.0)
            }),
            asked: "at most 1.05".into(),
        },
        Check {
            what: "longest put",
            passed: Some(longest.more_ms() <= arguments.put_limit_ms),
            found: format!(
                "{longest_ms:.1} ms; furthest beyond its device {:.1} ms beside {:.1}; {} puts were refused for a moment",
                longest.put_ms, longest.device_ms, loaded.refused
            ),
            asked: format!(
                "at most {} ms more than the longest operation of the device in the same interval and the one before, as the \
                 store times it, with its wait in the store's I/O scheduler",
                arguments.put_limit_ms
            ),
        },
    ]
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::sample::BesideDevice;
    use super::*;
    use crate::instruments::arguments::parse;
    use crate::instruments::latency::Latencies;

    /// Runs the check of the longest put with a limit of 250 ms. Each interval is the longest put and the
    /// longest device operation, in ms.
    fn longest_put(intervals: &[(u64, u64)]) -> Check {
        let arguments = parse("");
        let (mut puts, mut beside) = (Latencies::default(), BesideDevice::default());
        for (put_ms, device_ms) in intervals {
            puts.record(Duration::from_millis(*put_ms));
            beside.interval(*put_ms as f64, *device_ms as f64);
        }
        let loaded = Phase {
            keys: 1,
            took: Duration::from_secs(60),
            operations: 1,
            cpu_us_per_operation: 1.0,
            samples: Vec::new(),
            latencies: [("get", Latencies::default()), ("put", puts), ("delete", Latencies::default())],
            segments_freed: 1,
            refused: 0,
            longest_put: beside.worst,
        };
        of(&arguments, &loaded, None).pop().expect("there are checks")
    }

    #[test]
    fn put_latency_may_exceed_device_by_limit() {
        assert_eq!(longest_put(&[(245, 0)]).passed, Some(true));
        assert_eq!(longest_put(&[(260, 0)]).passed, Some(false));
        let stalled = longest_put(&[(1200, 1000)]);
        assert!(
            stalled.passed == Some(true) && stalled.found.contains("1200.0 ms beside 1000.0"),
            "{stalled:?}"
        );
        assert_eq!(longest_put(&[(1300, 1000)]).passed, Some(false));
        assert_eq!(longest_put(&[(20, 1000), (1200, 10)]).passed, Some(true));
        assert!(longest_put(&[(20, 30)]).found.contains("20.0 ms beside 30.0"));
    }

    #[test]
    fn device_latency_at_other_time_excuses_no_put() {
        assert_eq!(longest_put(&[(1000, 1000), (20, 10), (600, 10)]).passed, Some(false));
        assert_eq!(longest_put(&[(600, 10), (1000, 1000)]).passed, Some(false));
    }
}
