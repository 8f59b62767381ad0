//! Lines during a run, and CSV.

use std::fs::File;
use std::io::{BufWriter, Write};

use super::arguments::Arguments;
use super::sample::Sample;
use crate::instruments::failure::{Failure, Result};

/// Prints samples when they are taken.
pub(crate) struct Lines {
    csv: Option<BufWriter<File>>,
    /// True if stdout is reserved for JSON.
    json: bool,
    samples: u64,
}

/// A column of the CSV: its name, and its value.
type Column = (&'static str, fn(&Sample) -> String);
const COLUMNS: &[Column] = &[
    ("phase", |s| s.phase.to_owned()),
    ("at_s", |s| format!("{:.1}", s.at_s)),
    ("operations_per_s", |s| format!("{:.0}", s.operations_per_s)),
    ("gets_per_s", |s| format!("{:.0}", s.gets_per_s)),
    ("puts_per_s", |s| format!("{:.0}", s.puts_per_s)),
    ("get_p50_us", |s| format!("{:.1}", s.get_p50_us)),
    ("get_p99_us", |s| format!("{:.1}", s.get_p99_us)),
    ("get_p999_us", |s| format!("{:.1}", s.get_p999_us)),
    ("get_max_us", |s| format!("{:.1}", s.get_max_us)),
    ("put_p50_us", |s| format!("{:.1}", s.put_p50_us)),
    ("put_p99_us", |s| format!("{:.1}", s.put_p99_us)),
    ("put_p999_us", |s| format!("{:.1}", s.put_p999_us)),
    ("put_max_us", |s| format!("{:.1}", s.put_max_us)),
    ("delete_max_us", |s| format!("{:.1}", s.delete_max_us)),
    ("resident_bytes", |s| s.resident_bytes.to_string()),
    ("free_segments", |s| s.free_segments.to_string()),
    ("live_bytes", |s| s.live_bytes.to_string()),
    ("wa_per_user_byte", |s| format!("{:.3}", s.wa_per_user_byte)),
    ("segments_freed", |s| s.segments_freed.to_string()),
    ("stall_us", |s| s.stall_us.to_string()),
    ("refused", |s| s.refused.to_string()),
];

impl Lines {
    pub(crate) fn new(arguments: &Arguments) -> Result<Lines> {
        let Some(path) = &arguments.csv else {
            return Ok(Lines { csv: None, json: arguments.json, samples: 0 });
        };
        let failed = |error| Failure::usage(format!("--csv {}: {error}", path.display()));
        let mut csv = BufWriter::new(File::create(path).map_err(failed)?);
        let names: Vec<_> = COLUMNS.iter().map(|(name, _)| *name).collect();
        writeln!(csv, "{}", names.join(",")).map_err(failed)?;
        Ok(Lines { csv: Some(csv), json: arguments.json, samples: 0 })
    }

    /// Prints a note beside the results.
    pub(crate) fn note(&self, text: &str) {
        eprintln!("{text}");
    }

    pub(crate) fn sample(&mut self, sample: &Sample) -> Result<()> {
        if let Some(csv) = &mut self.csv {
            let values: Vec<_> = COLUMNS.iter().map(|(_, value)| value(sample)).collect();
            // Flushed, so that the file can be read during the run.
            writeln!(csv, "{}", values.join(","))
                .and_then(|()| csv.flush())
                .map_err(|error| Failure::failed("writing the CSV", error))?;
        }
        if self.samples.is_multiple_of(20) {
            self.print(&format!(
                "{:>9} {:>7} {:>9} | {:>26} | {:>26} | {:>8} {:>5} {:>6}",
                "phase",
                "s",
                "ops/s",
                "get us: p50, p99.9, max",
                "put us: p50, p99.9, max",
                "RSS MiB",
                "free",
                "WA"
            ));
        }
        self.samples += 1;
        self.print(&format!(
            "{:>9} {:>7.0} {:>9.0} | {:>7.0} {:>8.0} {:>9.0} | {:>7.0} {:>8.0} {:>9.0} | {:>8.0} {:>5} {:>6.2}",
            sample.phase,
            sample.at_s,
            sample.operations_per_s,
            sample.get_p50_us,
            sample.get_p999_us,
            sample.get_max_us,
            sample.put_p50_us,
            sample.put_p999_us,
            sample.put_max_us,
            sample.resident_bytes as f64 / 1048576.0,
            sample.free_segments,
            sample.wa_per_user_byte
        ));
        Ok(())
    }

    fn print(&self, line: &str) {
        if self.json { eprintln!("{line}") } else { println!("{line}") }
    }
}
