//! The layout of the on-disk structures, as the encoders define it.

use esker_log::{FORMAT_VERSION, LAYOUTS};
use serde::Serialize;

/// A structure of the format.
#[derive(Clone, Debug, Serialize)]
pub struct LayoutTable {
    /// Its title.
    pub title: &'static str,
    /// Its fields, in order and without gaps.
    pub fields: Vec<LayoutField>,
}

/// A field of a structure.
#[derive(Clone, Debug, Serialize)]
pub struct LayoutField {
    /// Byte offset in the structure, if it is constant.
    pub offset: Option<usize>,
    /// Length in bytes; `None` for a LEB128 number.
    pub bytes: Option<usize>,
    /// Its name.
    pub name: &'static str,
    /// Its meaning.
    pub meaning: &'static str,
}

/// Returns the tables of `docs/format.md`.
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

/// Returns the same tables as Markdown, byte for byte as in `docs/format.md`.
pub fn layout_text() -> String {
    esker_log::describe_format()
}

/// Returns the version of the format that this program reads and writes.
pub fn format_version() -> u64 {
    FORMAT_VERSION
}
