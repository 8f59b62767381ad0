
mod table;

pub use table::Table;
pub(crate) use table::size;

use serde::Serialize;

/// A report as JSON.
pub fn json(report: &impl Serialize) -> String {
    let mut text = serde_json::to_string_pretty(report).expect("reports have text for keys");
    text.push('\n');
    text
}
