//! What the model says, for people and for programs: tables, JSON, charts.

mod chart;
mod shown;
mod sweep;
mod table;

pub use chart::{ChartKind, draw};
pub use sweep::{Line, Sweep, sweep};
pub use table::Table;
pub(crate) use table::size;

use serde::Serialize;

/// A report as JSON.
pub fn json(report: &impl Serialize) -> String {
    let mut text = serde_json::to_string_pretty(report).expect("reports have text for keys");
    text.push('\n');
    text
}
