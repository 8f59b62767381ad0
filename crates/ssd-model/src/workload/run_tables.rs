//! Text form of runs and reproductions.

use std::fmt::{self, Display, Formatter};

use super::reproduce::{Reproduced, Standing};
use super::run::RunReport;
use crate::media::Latencies;
use crate::report::{Table, amplification, figure};

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
    /// Returns the drive statistics, one row per job.
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

    /// Returns the latencies, two rows per job.
    pub fn latencies(reports: &[RunReport]) -> Table {
        let mut table = Latencies::table();
        for report in reports {
            for (kind, latencies) in [("writes", &report.writes), ("reads", &report.reads)] {
                if latencies.count > 0 {
                    table.row(latencies.cells(format!("{}: {kind}", report.job)));
                }
            }
        }
        table
    }
}
