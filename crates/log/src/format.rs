//! The format as text, made from the tables that the encoders use.

use crate::layout::Field;
use crate::{frame, record, summary, superblock};

/// A structure of fixed layout.
#[derive(Clone, Copy, Debug)]
pub struct Layout {
    /// What it is called.
    pub title: &'static str,
    /// Its fields, in their order and without gaps.
    pub fields: &'static [Field],
}

/// Every structure of fixed layout.
pub const LAYOUTS: [Layout; 4] = [
    Layout { title: "Superblock prefix", fields: superblock::FIELDS },
    Layout { title: "Frame header", fields: frame::FIELDS },
    Layout { title: "Record header", fields: record::FIELDS },
    Layout { title: "Summary footer", fields: summary::FIELDS },
];

/// The tables of `docs/format.md`, in Markdown.
pub fn describe() -> String {
    let table = |Layout { title, fields }: Layout| {
        let rows: String = fields
            .iter()
            .map(|f| format!("| {} | {} | {} | {} |\n", f.offset, f.bytes, f.name, f.meaning))
            .collect();
        format!("### {title}\n\n| offset | bytes | field | meaning |\n|---|---|---|---|\n{rows}\n")
    };
    LAYOUTS.map(table).concat()
}
