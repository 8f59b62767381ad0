//! Write amplification as a function of one property of a workload or a drive.

use serde::Serialize;

use super::kind::ChartKind;
use crate::report::{Table, size};
use crate::{Error, Job, PROFILES, Shape, run};

/// The modelled drives are small, because there are many of them. Still, a superblock holds many of the longest writes,
/// as in a real drive.
const NAMESPACE_BYTES: u64 = 4 << 30;
const SUPERBLOCK_BYTES: u64 = 16 << 20;
/// Over-provisioning of the sweep over write sizes: that of the D5-P5316.
const OVER_PROVISIONING: f64 = PROFILES[0].over_provisioning;
/// IU of the sweep over over-provisioning.
const IU_BYTES: u32 = 64 << 10;

/// A line of a sweep.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Line {
    /// Value of the other property, common to all of its points.
    pub name: String,
    /// Pairs of property and write amplification.
    pub points: Vec<(f64, f64)>,
}

/// Steady-state write amplification as a function of one property.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Sweep {
    /// The varied property.
    pub over: ChartKind,
    /// The lines.
    pub lines: Vec<Line>,
}

/// Runs random writes for each point of a chart.
pub fn sweep(over: ChartKind, seed: u64) -> Result<Sweep, Error> {
    let amplification = |iu_bytes: u32, over_provisioning: f64, block: u64| {
        let shape = Shape::over_provisioned(iu_bytes, NAMESPACE_BYTES, over_provisioning);
        let shape = Shape { superblock_bytes: SUPERBLOCK_BYTES, ..shape };
        let job = Job { block: block.into(), ..Job::default() };
        Ok::<_, Error>(run(&PROFILES[0], &shape, &job, seed)?.write_amplification)
    };
    let mut lines = Vec::new();
    match over {
        ChartKind::WriteSize => {
            for iu_bytes in [4 << 10, 16 << 10, 64 << 10] {
                let points = (12..=18).map(|bits| {
                    let block = 1u64 << bits;
                    Ok((block as f64, amplification(iu_bytes, OVER_PROVISIONING, block)?))
                });
                let name = format!("IU of {}", size(u64::from(iu_bytes)));
                lines.push(Line { name, points: points.collect::<Result<_, Error>>()? });
            }
        }
        ChartKind::OverProvisioning => {
            for block in [4 << 10, 16 << 10, 64 << 10] {
                let points = [0.07, 0.1, 0.13, 0.16, 0.2, 0.25, 0.28, 0.33, 0.4, 0.5]
                    .map(|share| Ok((share * 100.0, amplification(IU_BYTES, share, block)?)));
                let name = format!("writes of {}", size(block));
                lines.push(Line { name, points: points.into_iter().collect::<Result<_, Error>>()? });
            }
        }
    }
    Ok(Sweep { over, lines })
}

impl Sweep {
    /// Returns the sweep as a table with one row per point.
    pub fn table(&self) -> Table {
        let names = self.lines.iter().map(|line| line.name.as_str());
        let columns: Vec<&str> = std::iter::once(self.over.name()).chain(names).collect();
        let mut table = Table::new(&columns);
        for (at, (x, _)) in self.lines[0].points.iter().enumerate() {
            let values = self.lines.iter().map(|line| format!("{:.2}", line.points[at].1));
            table.row(std::iter::once(self.over.shown(*x)).chain(values).collect());
        }
        table
    }
}
