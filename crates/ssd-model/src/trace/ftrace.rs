//! The text of block events, as `trace`, `trace_pipe`, `trace-cmd report` and `perf script` print it, and that of the tracer `blk`:
//!
//! ```text
//! fio-1234  [001] d..1.  123.456789: block_rq_issue: 259,0 WS 4096 () 2048 + 8 none,0,0 [fio]
//! fio-1234  [001]   123.456789: block_rq_issue:       259,0 WS 4096 () 2048 + 8 0x2,0,4 [fio]
//! fio  1234 [001]   123.456789: block:block_rq_issue: 259,0 WS 4096 () 2048 + 8 0x2,0,4 [fio]
//! fio-1234  [001] d..1.  123.456789: 259,0    D  WS 2048 + 8 [fio]
//! ```

use super::blkparse::{action, is_device, parse as parse_columns};
use super::line::{Parsed, kind_of, nanoseconds, sectors};
use crate::request::Stage;

/// Events that are requests, and their stages.
const EVENTS: [(&str, Stage); 3] = [
    ("block_rq_issue", Stage::Issued),
    ("block_rq_complete", Stage::Completed),
    ("block_bio_queue", Stage::Queued),
];

/// Returns true if a line is a block event or a line of the tracer `blk`.
pub(super) fn has_event(line: &str) -> bool {
    let event = Line::of(line);
    event.is_some_and(|event| event.name.starts_with("block_") || is_device(event.name))
}

/// Parses a line: a request, or another kind of line.
pub(super) fn parse(line: &str) -> Result<Parsed<'_>, String> {
    if is_no_event(line) {
        return Ok(Parsed::Nothing);
    }
    if let Some(lost) = lost(line) {
        return Ok(Parsed::Lost(lost));
    }
    // The tracer `blk` with the option blk_classic.
    if line.split_ascii_whitespace().next().is_some_and(is_device) {
        return parse_columns(line);
    }
    let Line { at_ns, name, fields } = Line::of(line).ok_or("there is no event in the line")?;
    if is_device(name) {
        return action(name, at_ns, fields);
    }
    let Some((_, stage)) = EVENTS.iter().find(|(known, _)| *known == name) else {
        return Ok(Parsed::Nothing);
    };
    let (device, rest) = fields.split_once(' ').ok_or("the line ends behind its device")?;
    if !is_device(device) {
        return Err(format!("its device is '{device}', which is none such as 8,0"));
    }
    let (letters, rest) = rest.split_once(' ').ok_or("the line ends behind the kind of its request")?;
    if !rest.trim_end().ends_with(']') {
        return Err("the line ends before its process or error in [brackets]".to_owned());
    }
    let Some(kind) = kind_of(letters) else { return Ok(Parsed::Nothing) };
    // The command of a pass-through request is in brackets.
    let rest = match stage {
        Stage::Queued => rest,
        _ => rest.split_once(") ").ok_or("the line ends before its sector")?.1,
    };
    let request = sectors(kind, *stage, at_ns, rest.split_ascii_whitespace())?;
    // The end of a flush appears as a write of zero bytes.
    Ok(if request.bytes == 0 { Parsed::Nothing } else { Parsed::Request(device, request) })
}

/// The parts of a line after its process and CPU.
struct Line<'l> {
    at_ns: u64,
    /// Event name without its subsystem, or the device in a line of the tracer `blk`.
    name: &'l str,
    fields: &'l str,
}

impl<'l> Line<'l> {
    /// Finds the first word that is a time, and the event after it. `None` if there is none.
    fn of(line: &'l str) -> Option<Line<'l>> {
        let mut rest = line;
        let mut at_ns = None;
        while let Some((word, behind)) = next_word(rest) {
            rest = behind;
            let Some(at) = at_ns else {
                at_ns = time(word);
                continue;
            };
            // Skips the time since the previous event, and the end of a time in the latency format.
            if word.starts_with("(+") || word == ":" {
                continue;
            }
            if is_device(word) {
                return Some(Line { at_ns: at, name: word, fields: behind });
            }
            let name = word.strip_suffix(':')?;
            let name = name.rsplit_once(':').map_or(name, |(_, name)| name);
            return Some(Line { at_ns: at, name, fields: behind.trim_start() });
        }
        None
    }
}

fn next_word(text: &str) -> Option<(&str, &str)> {
    let text = text.trim_start();
    (!text.is_empty()).then(|| text.split_once([' ', '\t']).unwrap_or((text, "")))
}

/// Parses the time of an event: seconds such as `12.345678:`, microseconds such as `18474us+:` in the latency format,
/// or the count of another clock, which has no unit and becomes 0.
fn time(word: &str) -> Option<u64> {
    if let Some((us, _)) = word.split_once("us") {
        return us.parse::<u64>().ok()?.checked_mul(1000);
    }
    let word = word.strip_suffix(':')?;
    nanoseconds(word).or_else(|| word.parse::<u64>().ok().map(|_| 0))
}

/// True for lines between events: comments, headings, and the stacks of `perf script`.
fn is_no_event(line: &str) -> bool {
    let words = line.trim();
    let is_address = |word: &str| word.len() >= 4 && word.bytes().all(|digit| digit.is_ascii_hexdigit());
    let is_of_stack = line.starts_with([' ', '\t'])
        && words.ends_with(')')
        && words.split_ascii_whitespace().next().is_some_and(is_address);
    words.is_empty()
        || ["#", "cpus=", "version = "].iter().any(|start| words.starts_with(start))
        || (words.starts_with("CPU ") && words.ends_with(" is empty"))
        || is_of_stack
}

/// Returns the number of lost events that a line reports: `CPU:1 [LOST 345 EVENTS]`, `CPU:1 [345 EVENTS DROPPED]`, or
/// `LOST 345 events` of `perf script`. 1 if the line has no number.
fn lost(line: &str) -> Option<u64> {
    let is_lost = ["[LOST ", "EVENTS DROPPED]", "PERF_RECORD_LOST "].iter().any(|mark| line.contains(mark));
    let mut numbers = line.split(['[', ']', ' ', '\t']).filter_map(|word| word.parse().ok());
    is_lost.then(|| numbers.next_back().unwrap_or(1))
}
