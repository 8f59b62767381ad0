//! Text form of a replay report.

use std::fmt::{self, Display, Formatter};

use super::NotUnderstood;
use super::replay::ReplayReport;
use crate::Latencies;
use crate::report::{Table, amplification, figure, size};

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
        if let NotUnderstood { lines, first: Some((number, why)) } = &self.not_understood {
            row("lines NOT UNDERSTOOD", format!("{lines}; the first is line {number}: {why}"));
        }
        row("writes", format!("{}, {} each", trace.writes, size(trace.write_bytes / trace.writes)));
        row("host bytes", size(trace.write_bytes));
        row("writes shorter than an IU", share(trace.sub_iu_writes));
        row("longer writes that are misaligned", share(trace.misaligned_writes));
        let partial = trace.partial_bytes as f64 / trace.write_bytes as f64 * 100.0;
        row("bytes in either", format!("{partial:.1} %"));
        row("TRIM", size(trace.trim_bytes));
        row("drive", format!("{}, IU of {}", self.drive, size(u64::from(self.iu_bytes))));
        row(
            "namespace",
            format!("{}, superblocks of {}", size(self.namespace_bytes), size(self.superblock_bytes)),
        );
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
        if let Some(timed) = &self.timed {
            row("reads a second", figure(timed.reads_per_s));
            row("MiB read a second", figure(timed.read_mib_per_s));
            row("writes a second", figure(timed.writes_per_s));
            row("MiB written a second", figure(timed.write_mib_per_s));
        }
        write!(f, "{table}")?;
        if let Some(timed) = &self.timed {
            let mut table = Latencies::table();
            table.row(timed.reads.cells("reads".to_owned()));
            table.row(timed.writes.cells("writes".to_owned()));
            write!(f, "\n{table}")?;
        }
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
    /// Returns a recommendation in one sentence.
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
