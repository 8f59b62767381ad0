//! Building blocks of reports: tables, figures, JSON.

mod figures;
mod table;

pub(crate) use figures::{amplification, figure, size};
use serde::Serialize;
pub use table::Table;

/// Returns a report as JSON.
pub fn json(report: &impl Serialize) -> String {
    let mut text = serde_json::to_string_pretty(report).expect("reports have text for keys");
    text.push('\n');
    text
}
