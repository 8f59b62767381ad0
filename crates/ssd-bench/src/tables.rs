//! Text form of reports.

use std::fmt::{self, Display, Formatter};

use esker_ssd_model::{Latencies, Table};

use crate::engine::{EngineReport, LEAST_GAIN, MOST_DEVICE_WAF};
use crate::tiers::TierRow;

impl Display for EngineReport {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let mut table = Table::new(&[
            "workload",
            "engine WA",
            "device WAF",
            "product",
            "in place",
            "in place, rest trimmed",
            "times less",
            "drive writes before",
            "goals",
        ]);
        for row in &self.rows {
            let gain = format!("{:.1}", row.gain);
            let mark = if row.is_steady { "" } else { " (not steady)" };
            table.row(vec![
                format!("{}{mark}", row.workload),
                format!("{:.2}", row.engine_write_amplification),
                format!("{:.3}", row.device_write_amplification),
                format!("{:.2}", row.write_amplification),
                format!("{:.2}", row.in_place),
                format!("{:.2}", row.in_place_trimmed),
                if row.must_gain { format!("{gain} (goal {LEAST_GAIN:.0})") } else { gain },
                format!("{:.1}", row.drive_writes[0]),
                if row.meets_goals() { "met" } else { "MISSED" }.to_owned(),
            ]);
        }
        write!(f, "{table}")?;
        let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
        writeln!(
            f,
            "\n{}: {:.0} MiB, superblocks of {:.0} MiB, {} placement handles; segments of {:.0} MiB; goals: device WAF at \
             most {MOST_DEVICE_WAF} in every row, {LEAST_GAIN:.0} times less than in place where it says so",
            self.drive,
            mib(self.namespace_bytes),
            mib(self.superblock_bytes),
            self.placement_handles,
            mib(self.segment_bytes),
        )
    }
}

impl TierRow {
    /// Returns the rates of configurations and their drives.
    pub fn rates(rows: &[TierRow]) -> Table {
        let mut table = Table::new(&[
            "configuration",
            "gets/s",
            "puts/s",
            "reads/s of the drive",
            "writes/s",
            "MiB/s written",
            "device WAF",
            "engine WA",
            "NAND bytes a user byte",
        ]);
        for row in rows {
            let mark = if row.is_steady { "" } else { " (not steady)" };
            table.row(vec![
                format!("{}{mark}", row.configuration.about()),
                format!("{:.0}", row.gets_per_s),
                format!("{:.0}", row.puts_per_s),
                String::new(),
                String::new(),
                String::new(),
                String::new(),
                format!("{:.2}", row.engine_write_amplification),
                format!("{:.2}", row.write_amplification),
            ]);
            for drive in &row.drives {
                table.row(vec![
                    format!("… {}", drive.drive),
                    String::new(),
                    String::new(),
                    format!("{:.0}", drive.reads_per_s),
                    format!("{:.0}", drive.writes_per_s),
                    format!("{:.1}", drive.write_mib_per_s),
                    format!("{:.3}", drive.write_amplification),
                    String::new(),
                    String::new(),
                ]);
            }
        }
        table
    }

    /// Returns the latencies of callers and drives.
    pub fn latencies(rows: &[TierRow]) -> Table {
        let mut table = Latencies::table();
        let mut row = |name: String, latencies: &Latencies| {
            if latencies.count > 0 {
                table.row(latencies.cells(name));
            }
        };
        for one in rows {
            let about = one.configuration.about();
            row(format!("{about}: gets"), &one.waits.gets);
            row(format!("{about}: puts"), &one.waits.puts);
            for drive in &one.drives {
                row(format!("{about}: reads of {}", drive.drive), &drive.reads);
                row(format!("{about}: writes of {}", drive.drive), &drive.writes);
            }
        }
        table
    }
}
