//! Output while a benchmark runs: db_bench's interval lines on stderr, its report file, and a progress
//! bar on a terminal.
//!
//! The report file has its own thread with a clock, and so have the other outputs; all use one shared
//! count of operations.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant, SystemTime};

use indicatif::ProgressBar;

use super::date;
use crate::db_bench::command_line::config::Config;
use crate::instruments::failure::{Failure, Result};

/// Interval at which the bar is redrawn and the time for a line is checked.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// A thread that repeats a task at an interval until it is ended.
#[derive(Debug)]
struct Clock {
    /// Dropped to end the thread.
    go_on: Sender<()>,
    thread: JoinHandle<std::io::Result<()>>,
}

impl Clock {
    fn new(every: Duration, mut tick: impl FnMut() -> std::io::Result<()> + Send + 'static) -> Clock {
        let (go_on, told) = mpsc::channel();
        let thread = thread::spawn(move || {
            while told.recv_timeout(every) == Err(RecvTimeoutError::Timeout) {
                tick()?;
            }
            Ok(())
        });
        Clock { go_on, thread }
    }

    /// Ends the thread. Returns its first failure.
    fn end(self) -> std::io::Result<()> {
        drop(self.go_on);
        self.thread.join().unwrap_or(Ok(()))
    }
}

/// Operations per second over time, in db_bench's CSV, for all benchmarks together.
#[derive(Debug)]
pub(crate) struct ReportFile(Clock);

impl ReportFile {
    /// Starts the file, if one was requested; `done` counts all operations so far.
    pub(crate) fn begin(config: &Config, done: Arc<AtomicU64>) -> Result<Option<ReportFile>> {
        let Some((path, every)) = config.report.clone() else { return Ok(None) };
        let failed = |error| Failure::usage(format!("--report_file={}: {error}", path.display()));
        let mut file = BufWriter::new(File::create(&path).map_err(failed)?);
        writeln!(file, "secs_elapsed,interval_qps").and_then(|()| file.flush()).map_err(failed)?;
        let (began, mut last) = (Instant::now(), 0);
        Ok(Some(ReportFile(Clock::new(every, move || {
            let now = done.load(Ordering::Relaxed);
            let rate = (now - last) / every.as_secs().max(1);
            last = now;
            writeln!(file, "{:.0},{rate}", began.elapsed().as_secs_f64())?;
            file.flush()
        }))))
    }

    /// Ends the file.
    pub(crate) fn end(self) -> Result<()> {
        self.0.end().map_err(|error| Failure::failed("writing the report file", error))
    }
}

/// The extent of a benchmark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Extent {
    Operations(u64),
    Time(Duration),
}

impl Extent {
    /// Returns the length of the bar, in operations or milliseconds.
    pub(crate) fn length(self) -> u64 {
        match self {
            Extent::Operations(count) => count,
            Extent::Time(time) => time.as_millis() as u64,
        }
    }

    /// Returns the position in the bar.
    fn position(self, done: u64, elapsed: Duration) -> u64 {
        match self {
            Extent::Operations(_) => done,
            Extent::Time(_) => elapsed.as_millis() as u64,
        }
    }
}

/// Lines and progress bar of one benchmark; ends when dropped.
#[derive(Debug)]
pub(crate) struct Watch {
    clock: Option<Clock>,
    bar: ProgressBar,
}

impl Watch {
    /// Starts the output; `done` counts operations, including those of earlier benchmarks.
    pub(crate) fn begin(
        interval: Option<Duration>,
        extent: Extent,
        bar: ProgressBar,
        done: Arc<AtomicU64>,
    ) -> Watch {
        let (began, before) = (Instant::now(), done.load(Ordering::Relaxed));
        let (mut lines, drawn) = (Lines { began, last: (began, 0) }, bar.clone());
        let clock = Clock::new(LOOK_EVERY, move || {
            let (now, done) = (Instant::now(), done.load(Ordering::Relaxed) - before);
            drawn.set_position(extent.position(done, now - began));
            if interval.is_some_and(|interval| now - lines.last.0 >= interval) {
                let line = lines.line(SystemTime::now(), now, done);
                drawn.suspend(|| eprintln!("{line}"));
            }
            Ok(())
        });
        Watch { clock: Some(clock), bar }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.clock.take().map(Clock::end);
        self.bar.finish_and_clear();
    }
}

/// The start and the last line, from which the next line counts.
struct Lines {
    began: Instant,
    last: (Instant, u64),
}

impl Lines {
    /// Returns db_bench's line for the interval that ends now.
    fn line(&mut self, time: SystemTime, now: Instant, done: u64) -> String {
        let (since, before) = std::mem::replace(&mut self.last, (now, done));
        let (part, all) = ((now - since).as_secs_f64(), (now - self.began).as_secs_f64());
        format!(
            "{}  ... thread 0: ({},{done}) ops and ({:.1},{:.1}) ops/second in ({part:.6},{all:.6}) seconds",
            date::stamp(time),
            done - before,
            (done - before) as f64 / part,
            done as f64 / all
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_match_db_bench() {
        let (began, time) = (Instant::now(), SystemTime::UNIX_EPOCH);
        let mut lines = Lines { began, last: (began, 0) };
        lines.line(time, began + Duration::from_secs(1), 1000);
        assert_eq!(
            lines.line(time, began + Duration::from_millis(3000), 4000),
            "1970/01/01-00:00:00  ... thread 0: (3000,4000) ops and (1500.0,1333.3) ops/second in \
             (2.000000,3.000000) seconds"
        );
    }

    #[test]
    fn progress_bar_follows_end_condition() {
        let (time, count) = (Extent::Time(Duration::from_secs(10)), Extent::Operations(100));
        let at = |extent: Extent| (extent.position(50, Duration::from_secs(1)), extent.length());
        assert_eq!((at(time), at(count)), ((1000, 10_000), (50, 100)));
    }
}
