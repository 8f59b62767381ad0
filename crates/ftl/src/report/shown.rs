//! Reports as people read them.

use std::fmt::{self, Display, Formatter};

use super::{Table, size};
use crate::{Latencies, ReplayReport, Reproduced, RunReport, Standing};

impl Display for Reproduced {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let mut table =
            Table::new(&["drive and workload", "published", "model", "difference", "within 10 %"]);
        for row in &self.rows {
            let within = match (row.standing, row.is_within()) {
                (Standing::Given, _) => "given",
                (Standing::Shown, _) => "not fitted",
                (Standing::Held, true) => "yes",
                (Standing::Held, false) => "NO",
            };
            table.row(vec![
                format!("{}, {}", row.drive, row.what),
                figure(row.published),
                figure(row.model),
                format!("{:+.1} %", row.deviation * 100.0),
                within.to_owned(),
            ]);
        }
        write!(f, "{table}")?;
        let fitted =
            self.over_provisioning.iter().map(|(name, share)| format!("{name} {:.1} %", share * 100.0));
        writeln!(f, "\nfitted: over-provisioning of {}", fitted.collect::<Vec<_>>().join(", of "))
    }
}

impl RunReport {
    /// What the drive did, a row for each job.
    pub fn table(reports: &[RunReport]) -> Table {
        let mut table = Table::new(&[
            "job",
            "WAF",
            "by partial IUs",
            "by collection",
            "partial writes",
            "MiB/s written",
            "writes/s",
            "reads/s",
            "erases, least to most",
        ]);
        for report in reports {
            let (counters, wear) = (&report.counters, &report.wear);
            let partial = counters.partial_writes as f64 / counters.host_writes as f64;
            let mark = if report.is_steady { "" } else { " (not steady)" };
            table.row(vec![
                format!("{}{mark}", report.job),
                amplification(report.write_amplification),
                amplification(report.iu_amplification),
                amplification(report.collection_amplification),
                if partial.is_nan() { "–".to_owned() } else { format!("{:.1} %", partial * 100.0) },
                figure(report.write_mib_per_s),
                figure(report.writes_per_s),
                figure(report.reads_per_s),
                format!("{} – {}", wear.least, wear.most),
            ]);
        }
        table
    }

    /// What requests waited for, two rows for each job.
    pub fn latencies(reports: &[RunReport]) -> Table {
        let mut table = Table::new(&[
            "latency, µs",
            "count",
            "mean",
            "p50",
            "p75",
            "p90",
            "p95",
            "p99",
            "p99.9",
            "p99.99",
            "p99.999",
            "max",
        ]);
        for report in reports {
            for (kind, latencies) in [("writes", &report.writes), ("reads", &report.reads)] {
                if latencies.count > 0 {
                    table.row(row(format!("{}: {kind}", report.job), latencies));
                }
            }
        }
        table
    }
}

fn row(name: String, l: &Latencies) -> Vec<String> {
    let values = [
        l.mean_us,
        l.p50_us,
        l.p75_us,
        l.p90_us,
        l.p95_us,
        l.p99_us,
        l.p999_us,
        l.p9999_us,
        l.p99999_us,
        l.max_us,
    ];
    [name, l.count.to_string()].into_iter().chain(values.map(figure)).collect()
}

impl Display for ReplayReport {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let trace = &self.trace;
        let share = |part: u64| format!("{:.1} %", part as f64 / trace.writes as f64 * 100.0);
        let mut table = Table::new(&["what", "value"]);
        let mut row = |what: &str, value: String| table.row(vec![what.to_owned(), value]);
        row("trace", format!("{}, device {}", self.format.name(), self.device));
        if self.lost_events > 0 {
            row("events that the tracer LOST", self.lost_events.to_string());
        }
        row("writes", format!("{}, {} each", trace.writes, size(trace.write_bytes / trace.writes)));
        row("host bytes", size(trace.write_bytes));
        row("writes shorter than an IU", share(trace.sub_iu_writes));
        row("longer writes that are misaligned", share(trace.misaligned_writes));
        let partial = trace.partial_bytes as f64 / trace.write_bytes as f64 * 100.0;
        row("bytes in either", format!("{partial:.1} %"));
        row("TRIM", size(trace.trim_bytes));
        row("drive", format!("{}, IU of {}", self.drive, size(u64::from(self.iu_bytes))));
        row("namespace", size(self.namespace_bytes));
        row("over-provisioning", format!("{:.1} %", self.over_provisioning * 100.0));
        row("device WAF", amplification(self.write_amplification));
        row("of that by partial IUs", amplification(self.iu_amplification));
        row("of that by collection", amplification(self.collection_amplification));
        row("NAND bytes", size(self.nand_bytes));
        if let Some(life) = &self.life {
            row("drive writes a day", figure(life.drive_writes_a_day));
            row("NAND bytes a day", size(life.nand_bytes_a_day as u64));
            row("NAND bytes in the drive's life", size(life.nand_bytes_in_life as u64));
            row("years of life", figure(life.years));
        }
        write!(f, "{table}")?;
        writeln!(f, "\nverdict: {}", self.verdict())?;
        let [watched, before] = self.passes;
        let steady = if self.is_steady { "" } else { "; too short for a steady state on so large a device" };
        writeln!(f, "played {before} + {watched} times, counted in the last {watched}{steady}")?;
        if self.life.is_none() {
            writeln!(
                f,
                "years of life: give --pe-cycles or --pbw, and --drive-writes-a-day if the trace has no times"
            )?;
        }
        Ok(())
    }
}

impl ReplayReport {
    /// What is to be done about it, in a sentence.
    pub fn verdict(&self) -> String {
        let iu = size(u64::from(self.iu_bytes));
        let waf = amplification(self.write_amplification);
        match (self.iu_amplification, self.collection_amplification) {
            (ius, _) if ius > 1.5 => format!(
                "WAF {waf}. {:.0} % of the writes are no whole IUs of {iu}: write in multiples of {iu}, aligned to it",
                self.trace.partial_share() * 100.0
            ),
            (_, collected) if collected > 1.5 => format!(
                "WAF {waf}. Writes are nearly all whole IUs; collection copies what outlives its neighbours: write \
                 sequentially, TRIM what is freed, or give up capacity for over-provisioning"
            ),
            _ => format!("WAF {waf}. The drive writes little more than the host"),
        }
    }
}

fn amplification(factor: f64) -> String {
    if factor.is_nan() { "–".to_owned() } else { format!("{factor:.2}") }
}

/// A number with as many digits as say something.
fn figure(value: f64) -> String {
    match value {
        value if value.is_nan() => "–".to_owned(),
        value if value >= 1000.0 => grouped(value.round() as u64),
        value if value >= 100.0 => format!("{value:.1}"),
        value => format!("{value:.2}"),
    }
}

/// A whole number with commas.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() * 4 / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}
