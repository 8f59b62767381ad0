//! Parsing that all formats share.

use crate::SECTOR_BYTES;
use crate::request::{Kind, Request, Stage};

/// Result of parsing a line.
#[derive(Debug)]
pub(super) enum Parsed<'l> {
    /// A request of the named device. Its device index is not known yet.
    Request(&'l str, Request),
    /// Nothing relevant.
    Nothing,
    /// A number of events that the tracer lost.
    Lost(u64),
    /// The end of the trace; a summary follows.
    End,
}

/// Returns the kind of a request from its letters (`rwbs`): an F for a preceding flush, its operation, and flags.
/// `None` for a flush and other requests without host data, such as write zeroes (N) and zone operations (Z).
pub(super) fn kind_of(letters: &str) -> Option<Kind> {
    let operation = match letters.strip_prefix('F') {
        Some(rest) if !rest.is_empty() => rest,
        _ => letters,
    };
    match operation.as_bytes().first() {
        Some(b'D') => Some(Kind::Trim),
        Some(b'W') => Some(Kind::Write),
        Some(b'R') => Some(Kind::Read),
        _ => None,
    }
}

/// Parses a number; the error contains the text found instead.
pub(super) fn number<N: std::str::FromStr>(what: &str, text: Option<&str>) -> Result<N, String> {
    let text = text.ok_or_else(|| format!("the line ends before its {what}"))?;
    text.parse().map_err(|_| format!("its {what} is '{text}'"))
}

/// Parses sectors `at + count` as a request.
pub(super) fn sectors<'t>(
    kind: Kind,
    stage: Stage,
    at_ns: u64,
    mut words: impl Iterator<Item = &'t str>,
) -> Result<Request, String> {
    let sector: u64 = number("sector", words.next())?;
    match words.next() {
        Some("+") => {}
        Some(other) => return Err(format!("a '+' is missing behind its sector, where '{other}' is")),
        None => return Err("the line ends behind its sector".to_owned()),
    }
    let count: u64 = number("number of sectors", words.next())?;
    let bytes = |sectors: u64| sectors.checked_mul(SECTOR_BYTES).ok_or("its sector is beyond 64 bits");
    Ok(Request { device: 0, kind, offset: bytes(sector)?, bytes: bytes(count)?, at_ns, stage })
}

/// Parses seconds with a fraction, such as `12.345678901`, into nanoseconds.
pub(super) fn nanoseconds(text: &str) -> Option<u64> {
    let (seconds, fraction) = text.split_once('.')?;
    if fraction.is_empty() || fraction.len() > 9 || !fraction.bytes().all(|digit| digit.is_ascii_digit()) {
        return None;
    }
    let part = fraction.parse::<u64>().ok()? * 10u64.pow(9 - fraction.len() as u32);
    seconds.parse::<u64>().ok()?.checked_mul(1_000_000_000)?.checked_add(part)
}
