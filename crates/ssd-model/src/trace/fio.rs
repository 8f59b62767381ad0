//! The iologs of fio: version 2 has `FILE ACTION [OFFSET LENGTH]` per line, version 3 a time in microseconds before it.

use super::line::{Parsed, number};
use crate::request::{Kind, Request, Stage};

/// Returns the version from the first line of a log.
pub(super) fn version(line: &str) -> Option<&str> {
    line.trim().strip_prefix("fio version ")?.strip_suffix(" iolog")
}

/// Parses a line of version 2.
pub(super) fn parse_2(line: &str) -> Result<Parsed<'_>, String> {
    parse(line.split_ascii_whitespace(), 0)
}

/// Parses a line of version 3.
pub(super) fn parse_3(line: &str) -> Result<Parsed<'_>, String> {
    let mut words = line.split_ascii_whitespace();
    let Some(time) = words.next() else { return Ok(Parsed::Nothing) };
    let at_us: u64 = number("time", Some(time))?;
    parse(words, at_us.saturating_mul(1000))
}

fn parse<'l>(mut words: impl Iterator<Item = &'l str>, at_ns: u64) -> Result<Parsed<'l>, String> {
    let Some(file) = words.next() else { return Ok(Parsed::Nothing) };
    let action = words.next().ok_or("the line ends before its action")?;
    let kind = match action {
        "read" => Kind::Read,
        "write" => Kind::Write,
        "trim" => Kind::Trim,
        "add" | "open" | "close" | "wait" | "sync" | "datasync" | "sync_file_range" => {
            return Ok(Parsed::Nothing);
        }
        other => return Err(format!("'{other}' is not an action of an iolog")),
    };
    let offset = number("offset", words.next())?;
    let bytes = number("length", words.next())?;
    Ok(Parsed::Request(file, Request { device: 0, kind, offset, bytes, at_ns, stage: Stage::Issued }))
}
