//! What is printed while a benchmark runs: db_bench's interval lines on stderr, its report file, and a bar on a terminal.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::time::{Duration, Instant};

use indicatif::ProgressBar;

use super::config::Config;
use crate::failure::{Failure, Result};

/// Operations a second over time, in db_bench's CSV.
pub(crate) struct ReportFile {
    file: BufWriter<File>,
    every: Duration,
    began: Instant,
    lines: u32,
    last: u64,
}

impl ReportFile {
    pub(crate) fn new(config: &Config) -> Result<Option<ReportFile>> {
        let Some((path, every)) = &config.report else { return Ok(None) };
        let failed = |error| Failure::usage(format!("--report_file={}: {error}", path.display()));
        let mut file = BufWriter::new(File::create(path).map_err(failed)?);
        writeln!(file, "secs_elapsed,interval_qps").and_then(|()| file.flush()).map_err(failed)?;
        Ok(Some(ReportFile { file, every: *every, began: Instant::now(), lines: 0, last: 0 }))
    }

    /// Looks at the clock; `done` counts all operations so far.
    pub(crate) fn tick(&mut self, done: u64) -> Result<()> {
        if self.began.elapsed() < self.every * (self.lines + 1) {
            return Ok(());
        }
        self.lines += 1;
        let seconds = self.every.as_secs() * u64::from(self.lines);
        let rate = (done - self.last) / self.every.as_secs().max(1);
        self.last = done;
        writeln!(self.file, "{seconds},{rate}")
            .and_then(|()| self.file.flush())
            .map_err(|error| Failure::failed("writing the report file", error))
    }
}

/// Lines and bar of one benchmark.
pub(crate) struct Watch {
    interval: Option<Duration>,
    bar: ProgressBar,
    began: Instant,
    last: (Instant, u64),
}

impl Watch {
    pub(crate) fn new(config: &Config, bar: ProgressBar) -> Watch {
        let now = Instant::now();
        Watch { interval: config.stats_interval, bar, began: now, last: (now, 0) }
    }

    /// Looks at the clock; `done` counts the benchmark's operations.
    pub(crate) fn tick(&mut self, done: u64) {
        self.bar.set_position(done);
        let Some(interval) = self.interval else { return };
        let now = Instant::now();
        let (since, before) = self.last;
        if now - since < interval {
            return;
        }
        let (part, all) = ((now - since).as_secs_f64(), (now - self.began).as_secs_f64());
        let line = format!(
            "... thread 0: ({},{done}) ops and ({:.1},{:.1}) ops/second in ({part:.6},{all:.6}) seconds",
            done - before,
            (done - before) as f64 / part,
            done as f64 / all
        );
        self.bar.suspend(|| eprintln!("{line}"));
        self.last = (now, done);
    }

    pub(crate) fn end(&self) {
        self.bar.finish_and_clear();
    }
}
