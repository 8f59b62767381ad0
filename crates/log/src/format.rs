//! The format as text, made from the tables that the encoders use.

use crate::layout::Field;
use crate::{frame, record, summary, superblock};

/// The tables of `docs/format.md`, in Markdown.
pub fn describe() -> String {
    let table = |title: &str, fields: &[Field]| {
        let rows: String = fields
            .iter()
            .map(|f| format!("| {} | {} | {} | {} |\n", f.offset, f.bytes, f.name, f.meaning))
            .collect();
        format!("### {title}\n\n| offset | bytes | field | meaning |\n|---|---|---|---|\n{rows}\n")
    };
    [
        table("Superblock prefix", superblock::FIELDS),
        table("Frame header", frame::FIELDS),
        table("Record header", record::FIELDS),
        table("Summary footer", summary::FIELDS),
    ]
    .concat()
}
