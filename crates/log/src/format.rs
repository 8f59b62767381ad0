//! The format as text, generated from the tables that the encoders use.

use crate::layout::Field;
use crate::{frame, header, identity, summary, superblock};

/// A structure of the format.
#[derive(Clone, Copy, Debug)]
pub struct Layout {
    /// Title in `docs/format.md`.
    pub title: &'static str,
    /// Fields, in order and without gaps.
    pub fields: &'static [Field],
}

/// All structures that consist of fields.
pub const LAYOUTS: [Layout; 5] = [
    Layout { title: "Superblock prefix", fields: superblock::FIELDS },
    Layout { title: "Frame header", fields: frame::FIELDS },
    Layout { title: "Segment identity", fields: identity::FIELDS },
    Layout { title: "Record header", fields: header::FIELDS },
    Layout { title: "Summary footer", fields: summary::FIELDS },
];

/// Returns the tables of `docs/format.md`, in Markdown.
pub fn describe() -> String {
    LAYOUTS.map(|layout| layout.describe()).concat()
}

impl Layout {
    /// True if all fields have fixed offsets.
    pub fn is_fixed(&self) -> bool {
        self.fields.iter().all(|f| f.bytes > 0)
    }

    fn describe(&self) -> String {
        let Layout { title, fields } = self;
        let is_fixed = self.is_fixed();
        let row = |f: &Field| match f.bytes {
            _ if is_fixed => format!("| {} | {} | {} | {} |\n", f.offset, f.bytes, f.name, f.meaning),
            0 => format!("| LEB128 | {} | {} |\n", f.name, f.meaning),
            bytes => format!("| {bytes} | {} | {} |\n", f.name, f.meaning),
        };
        let head = if is_fixed {
            "| offset | bytes | field | meaning |\n|---|---|---|---|"
        } else {
            "| bytes | field | meaning |\n|---|---|---|"
        };
        let rows: String = fields.iter().map(row).collect();
        format!("### {title}\n\n{head}\n{rows}\n")
    }
}
