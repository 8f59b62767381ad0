//! Traces of block devices, as other tools write them, and what a drive makes of them.
//!
//! A trace is read line by line and never kept. Its format is told from its first lines.

mod blkparse;
mod fio;
mod format;
mod ftrace;
mod lines;
mod replay;
mod requests;
mod tally;

pub use format::Format;
pub use replay::{Replay, ReplayReport, replay};
pub use requests::Requests;
pub use tally::Tally;

/// What a request does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// It writes.
    Write,
    /// It reads.
    Read,
    /// It tells that a range holds nothing of value.
    Trim,
}

/// Where in its life a request was seen; a trace may have seen it several times.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    /// When it was queued.
    Queued,
    /// When it was completed.
    Completed,
    /// When it was issued to the device, whole or in the pieces that the queue made of it.
    Issued,
}

/// A request of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// Which device, as an index into [`Requests::devices`].
    pub device: usize,
    /// What it does.
    pub kind: Kind,
    /// Where it starts.
    pub offset: u64,
    /// Its length.
    pub bytes: u64,
    /// When it was seen.
    pub at_ns: u64,
    /// At which stage.
    pub stage: Stage,
}

/// What a parser finds in a line.
#[derive(Debug)]
enum Parsed<'l> {
    /// A request of the named device. Its index is not known yet.
    Request(&'l str, Request),
    /// Nothing that matters here.
    Nothing,
    /// The tracer lost so many events.
    Lost(u64),
    /// The trace is over; a summary follows.
    End,
}

/// What a request does, by the letters that block traces have for it; `None` for a flush and other requests without data.
fn kind_of(letters: &str) -> Option<Kind> {
    let discards = letters.contains('D');
    let writes = letters.contains('W');
    let reads = letters.contains('R');
    match (discards, writes, reads) {
        (true, _, _) => Some(Kind::Trim),
        (_, true, _) => Some(Kind::Write),
        (_, _, true) => Some(Kind::Read),
        _ => None,
    }
}

/// A number, or what stands there instead.
fn number<N: std::str::FromStr>(what: &str, text: Option<&str>) -> Result<N, String> {
    let text = text.ok_or_else(|| format!("the line ends before its {what}"))?;
    text.parse().map_err(|_| format!("its {what} is '{text}'"))
}

/// Sectors `at + count` as a request.
fn sectors<'t>(
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
    let bytes = |sectors: u64| sectors.checked_mul(crate::SECTOR_BYTES).ok_or("its sector is beyond 64 bits");
    Ok(Request { device: 0, kind, offset: bytes(sector)?, bytes: bytes(count)?, at_ns, stage })
}

/// Seconds with a fraction, such as `12.345678901`, in nanoseconds.
fn nanoseconds(text: &str) -> Option<u64> {
    let (seconds, fraction) = text.split_once('.')?;
    if fraction.is_empty() || fraction.len() > 9 || !fraction.bytes().all(|digit| digit.is_ascii_digit()) {
        return None;
    }
    let part = fraction.parse::<u64>().ok()? * 10u64.pow(9 - fraction.len() as u32);
    seconds.parse::<u64>().ok()?.checked_mul(1_000_000_000)?.checked_add(part)
}
