//! The text of `blkparse` in its default format:
//! `8,0    3       11     0.009507758   697  D   W 223490 + 8 [kjournald]`. The tracer `blk` with the option blk_classic prints the
//! same without the sequence number, which is the third column.

use super::line::{Parsed, kind_of, nanoseconds, number, sectors};
use crate::request::Stage;

/// Actions of `blkparse(1)` that are not requests: bounces, merges, remaps, requeues, splits, plugs, messages.
const OTHER_ACTIONS: [&str; 17] =
    ["A", "B", "F", "G", "I", "M", "P", "R", "S", "T", "U", "UT", "W", "X", "Z", "m", "Ca"];

/// Parses a line: a request, or another kind of line.
pub(super) fn parse(line: &str) -> Result<Parsed<'_>, String> {
    let mut words = line.split_ascii_whitespace();
    let Some(device) = words.next() else { return Ok(Parsed::Nothing) };
    if is_summary(line) {
        return Ok(Parsed::End);
    }
    if is_said_of_files(line) {
        return Ok(Parsed::Nothing);
    }
    if !is_device(device) {
        return Err(format!("it starts with '{device}' instead of a device such as 8,0"));
    }
    let _cpu: u32 = number("CPU", words.next())?;
    let mut time = words.next().ok_or("the line ends before its time")?;
    if !time.contains('.') {
        let _sequence: u64 = number("sequence number", Some(time))?;
        time = words.next().ok_or("the line ends before its time")?;
    }
    let at_ns = nanoseconds(time).ok_or_else(|| format!("its time is '{time}'"))?;
    let process = words.next().ok_or("the line ends before its process")?;
    let _process: i64 = number("process", Some(process))?;
    let behind = process.as_ptr() as usize + process.len() - line.as_ptr() as usize;
    action(device, at_ns, &line[behind..])
}

/// Parses an action and its fields, such as `D  WS 2048 + 8 [fio]`.
pub(super) fn action<'l>(device: &'l str, at_ns: u64, fields: &'l str) -> Result<Parsed<'l>, String> {
    let mut words = fields.split_ascii_whitespace();
    let action = words.next().ok_or("the line ends before its action")?;
    let stage = match action {
        "Q" => Stage::Queued,
        "D" => Stage::Issued,
        "C" => Stage::Completed,
        other if OTHER_ACTIONS.contains(&other) => return Ok(Parsed::Nothing),
        other => return Err(format!("'{other}' is not an action of blkparse")),
    };
    if !fields.trim_end().ends_with(']') {
        return Err("the line ends before its process in [brackets]".to_owned());
    }
    let letters = words.next().ok_or("the line ends before the kind of its request")?;
    let Some(kind) = kind_of(letters) else { return Ok(Parsed::Nothing) };
    let mut ahead = words.clone();
    let is_without_sectors = match (ahead.next(), ahead.next()) {
        // A flush has no sectors, and its completion only a start sector.
        (Some(first), None) => first.starts_with('['),
        (Some(first), Some(second)) => {
            // The command of a pass-through request.
            first.starts_with('(')
                || second.starts_with('(')
                || (second.starts_with('[') && stage == Stage::Completed)
        }
        _ => false,
    };
    if is_without_sectors {
        return Ok(Parsed::Nothing);
    }
    let request = sectors(kind, stage, at_ns, words)?;
    Ok(if request.bytes == 0 { Parsed::Nothing } else { Parsed::Request(device, request) })
}

/// True if a word is a device, such as `8,0`.
pub(super) fn is_device(word: &str) -> bool {
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|digit| digit.is_ascii_digit());
    word.split_once(',').is_some_and(|(major, minor)| is_number(major) && is_number(minor))
}

/// True for the first line of the summary that `blkparse` prints after the events.
fn is_summary(line: &str) -> bool {
    ["CPU", "Total (", "Throughput (", "Events ("].iter().any(|start| line.starts_with(start))
}

/// True for messages of `blkparse` about its files, which are in the text if both output streams were redirected there.
fn is_said_of_files(line: &str) -> bool {
    line.starts_with("Input file ") || line.starts_with("discarded traces ")
}
