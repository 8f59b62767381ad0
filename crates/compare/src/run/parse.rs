//! Parses the output of db_bench, `esker-bench` and the programs in `rivals/`, which have the same
//! format; and the JSON that the latter two also write.

use std::collections::BTreeMap;
use std::path::Path;

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Latencies of one kind of operation, in microseconds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Latency {
    pub(crate) count: u64,
    pub(crate) mean: f64,
    pub(crate) max: f64,
    /// Latencies by percentile, such as `99.9`.
    pub(crate) percentiles: BTreeMap<String, f64>,
}

/// The result of one benchmark.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Run {
    pub(crate) name: String,
    pub(crate) micros_per_operation: f64,
    pub(crate) operations_per_s: f64,
    pub(crate) seconds: f64,
    pub(crate) operations: u64,
    pub(crate) mb_per_s: Option<f64>,
    /// The text after the numbers.
    pub(crate) message: String,
    /// Latencies by kind of operation: `read`, `write`.
    pub(crate) latency_us: BTreeMap<String, Latency>,
}

/// Collects runs line by line.
#[derive(Debug, Default)]
pub(crate) struct Parser {
    pub(crate) runs: Vec<Run>,
    /// Lines in which the program warns about its own results.
    pub(crate) warnings: Vec<String>,
    /// The kind of operation whose histogram is being read.
    kind: Option<String>,
}

impl Parser {
    /// Parses a line. Returns true if a benchmark ended with it.
    pub(crate) fn line(&mut self, line: &str) -> bool {
        let line = line.trim_end();
        if let Some(run) = result(line) {
            self.runs.push(run);
            self.kind = None;
            return true;
        }
        if let Some(warning) = line.strip_prefix("WARNING: ") {
            self.warnings.push(warning.to_owned());
        }
        if let Some(kind) = line.strip_prefix("Microseconds per ").and_then(|rest| rest.strip_suffix(':')) {
            self.kind = Some(kind.to_owned());
        }
        let (Some(kind), Some(run)) = (&self.kind, self.runs.last_mut()) else { return false };
        let of = run.latency_us.entry(kind.clone()).or_default();
        let words: Vec<&str> = line.split_whitespace().collect();
        let after = |name: &str| {
            let at = words.iter().position(|word| *word == name)?;
            words.get(at + 1)?.parse::<f64>().ok()
        };
        if line.starts_with("Count: ") {
            of.count = after("Count:").unwrap_or(0.0) as u64;
            of.mean = after("Average:").unwrap_or(0.0);
        } else if line.starts_with("Min: ") {
            of.max = after("Max:").unwrap_or(0.0);
        } else if line.starts_with("Percentiles: ") {
            for pair in words[1..].chunks_exact(2) {
                let percentile = pair[0].trim_start_matches('P').trim_end_matches(':');
                if let Ok(us) = pair[1].parse() {
                    of.percentiles.insert(percentile.to_owned(), us);
                }
            }
            self.kind = None;
        }
        false
    }
}

/// Parses `name : N micros/op N ops/sec N seconds N operations; N MB/s (message)`.
fn result(line: &str) -> Option<Run> {
    let (name, rest) = line.split_once(" : ")?;
    let (figures, rest) = rest.split_once(" operations;")?;
    let words: Vec<&str> = figures.split_whitespace().collect();
    let [micros, "micros/op", rate, "ops/sec", seconds, "seconds", operations] = words[..] else {
        return None;
    };
    let (mb_per_s, message) = match rest.split_once(" MB/s") {
        Some((rate, message)) if rate.trim().parse::<f64>().is_ok() => (rate.trim().parse().ok(), message),
        _ => (None, rest),
    };
    Some(Run {
        name: name.trim().to_owned(),
        micros_per_operation: micros.parse().ok()?,
        operations_per_s: rate.parse().ok()?,
        seconds: seconds.parse().ok()?,
        operations: operations.parse().ok()?,
        mb_per_s,
        message: message.trim().to_owned(),
        latency_us: BTreeMap::new(),
    })
}

/// Returns the latencies of each run, and the store's statistics, from the JSON that a program wrote.
pub(crate) fn figures(path: &Path) -> (Vec<BTreeMap<String, Latency>>, Option<Value>) {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let all: Value = serde_json::from_str(&text).unwrap_or_default();
    let latency = |of: &Value| Latency {
        count: of["count"].as_u64().unwrap_or(0),
        mean: of["mean"].as_f64().unwrap_or(0.0),
        max: of["max"].as_f64().unwrap_or(0.0),
        percentiles: of["percentiles"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(|pair| Some((pair[0].as_f64()?.to_string(), pair[1].as_f64()?)))
            .collect(),
    };
    let of_run = |run: &Value| {
        let kinds = run["latency_us"].as_object().into_iter().flatten();
        kinds.map(|(kind, of)| (kind.clone(), latency(of))).collect()
    };
    let runs = all["runs"].as_array().into_iter().flatten().map(of_run).collect();
    (runs, all.get("store").cloned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn db_bench_output_is_parsed() {
        let mut parser = Parser::default();
        let ends =
            include_str!("captured/db_bench-7.8.3.txt").lines().filter(|line| parser.line(line)).count();
        assert_eq!(ends, 4);
        let names: Vec<_> = parser.runs.iter().map(|run| run.name.as_str()).collect();
        assert_eq!(names, ["fillrandom", "readrandom", "readrandomwriterandom", "overwrite"]);
        let fill = &parser.runs[0];
        assert_eq!(
            (fill.micros_per_operation, fill.operations_per_s, fill.operations),
            (8.357, 236_246.0, 40_000)
        );
        assert_eq!((fill.seconds, fill.mb_per_s), (0.169, Some(228.9)));
        assert_eq!(parser.runs[1].message, "(17196 of 20000 found)");
        let mixed = &parser.runs[2];
        assert_eq!(mixed.mb_per_s, None);
        let read = &mixed.latency_us["read"];
        assert_eq!((read.count, read.mean, read.max), (28_000, 2.3451, 4354.0));
        assert_eq!((read.percentiles["99.9"], read.percentiles["99.99"]), (12.78, 100.93));
        assert_eq!(mixed.latency_us["write"].percentiles["50"], 7.37);
        assert_eq!(parser.warnings, ["Assertions are enabled; benchmarks unnecessarily slow"]);
    }

    #[test]
    fn names_with_step_are_whole_and_other_lines_ignored() {
        let run = result(
            "writepressure 40 MB/s :      99.1 micros/op 10084 ops/sec 2.000 seconds 20168 operations;   39.5 MB/s (1 of 1 found) (writers beside: 9 puts, 40.0 MB/s)",
        )
        .expect("it is one");
        assert_eq!((run.name.as_str(), run.mb_per_s), ("writepressure 40 MB/s", Some(39.5)));
        assert!(run.message.ends_with("40.0 MB/s)"));
        for line in [
            "",
            "fillrandom : skipped (--use_existing_db is true)",
            "Keys:       16 bytes each",
            "a : b operations; c",
        ] {
            assert!(result(line).is_none(), "{line}");
        }
    }
}
