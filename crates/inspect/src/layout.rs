//! The layout of the bytes on the devices, as the encoders have it.

use esker_log::{FORMAT_VERSION, LAYOUTS};
use serde::Serialize;

/// A structure of the format.
#[derive(Clone, Debug, Serialize)]
pub struct LayoutTable {
    /// What it is called.
    pub title: &'static str,
    /// Its fields, in their order and without gaps.
    pub fields: Vec<LayoutField>,
}

/// A field of it.
#[derive(Clone, Debug, Serialize)]
pub struct LayoutField {
    /// Byte offset in the structure, where it is always the same.
    pub offset: Option<usize>,
    /// Length in bytes; nothing for a LEB128 number.
    pub bytes: Option<usize>,
    /// Its name.
    pub name: &'static str,
    /// What it is for.
    pub meaning: &'static str,
}

/// The tables of `docs/format.md`.
pub fn layout() -> Vec<LayoutTable> {
    let table = |layout: esker_log::Layout| LayoutTable {
        title: layout.title,
        fields: layout
            .fields
            .iter()
            .map(|f| LayoutField {
                offset: layout.is_fixed().then_some(f.offset),
                bytes: (f.bytes > 0).then_some(f.bytes),
                name: f.name,
                meaning: f.meaning,
            })
            .collect(),
    };
    LAYOUTS.into_iter().map(table).collect()
}

/// The same as Markdown, to the letter.
pub fn layout_text() -> String {
    esker_log::describe_format()
}

/// The version of the format that this program reads and writes.
pub fn format_version() -> u64 {
    FORMAT_VERSION
}
