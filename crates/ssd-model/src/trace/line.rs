//! What the lines of all formats have in common.

use crate::SECTOR_BYTES;
use crate::request::{Kind, Request, Stage};

/// What a parser finds in a line.
#[derive(Debug)]
pub(super) enum Parsed<'l> {
    /// A request of the named device. Its index is not known yet.
    Request(&'l str, Request),
    /// Nothing that matters here.
    Nothing,
    /// The tracer lost so many events.
    Lost(u64),
    /// The trace is over; a summary follows.
    End,
}

/// Returns what a request does, by its letters (`rwbs`): an F for a flush before it, its operation, and flags. `None` for a flush
/// and other requests without data of the host, such as write zeroes (N) and those of zones (Z).
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

/// A number, or what stands there instead.
pub(super) fn number<N: std::str::FromStr>(what: &str, text: Option<&str>) -> Result<N, String> {
    let text = text.ok_or_else(|| format!("the line ends before its {what}"))?;
    text.parse().map_err(|_| format!("its {what} is '{text}'"))
}

/// Sectors `at + count` as a request.
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

/// Seconds with a fraction, such as `12.345678901`, in nanoseconds.
pub(super) fn nanoseconds(text: &str) -> Option<u64> {
    let (seconds, fraction) = text.split_once('.')?;
    if fraction.is_empty() || fraction.len() > 9 || !fraction.bytes().all(|digit| digit.is_ascii_digit()) {
        return None;
    }
    let part = fraction.parse::<u64>().ok()? * 10u64.pow(9 - fraction.len() as u32);
    seconds.parse::<u64>().ok()?.checked_mul(1_000_000_000)?.checked_add(part)
}
