//! The text of `blkparse` in its default format:
//! `8,0    3       11     0.009507758   697  D   W 223490 + 8 [kjournald]`.

use super::{Parsed, Stage, kind_of, nanoseconds, number, sectors};

/// What a line says.
pub(super) fn parse(line: &str) -> Result<Parsed<'_>, String> {
    let mut words = line.split_ascii_whitespace();
    let Some(device) = words.next() else { return Ok(Parsed::Nothing) };
    if is_summary(line) {
        return Ok(Parsed::End);
    }
    if !is_device(device) {
        return Err(format!("it starts with '{device}', which is no device such as 8,0"));
    }
    let _cpu: u32 = number("CPU", words.next())?;
    let _sequence: u64 = number("sequence number", words.next())?;
    let time = words.next().ok_or("the line ends before its time")?;
    let at_ns = nanoseconds(time).ok_or_else(|| format!("its time is '{time}'"))?;
    let _process: i64 = number("process", words.next())?;
    let action = words.next().ok_or("the line ends before its action")?;
    let stage = match action {
        "Q" => Stage::Queued,
        "D" => Stage::Issued,
        "C" => Stage::Completed,
        _ => return Ok(Parsed::Nothing),
    };
    let letters = words.next().ok_or("the line ends before the kind of its request")?;
    let Some(kind) = kind_of(letters) else { return Ok(Parsed::Nothing) };
    let request = sectors(kind, stage, at_ns, words)?;
    if !line.trim_end().ends_with(']') {
        return Err("the line ends before its process in [brackets]".to_owned());
    }
    Ok(Parsed::Request(device, request))
}

/// Whether a word is a device, such as `8,0`.
pub(super) fn is_device(word: &str) -> bool {
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|digit| digit.is_ascii_digit());
    word.split_once(',').is_some_and(|(major, minor)| is_number(major) && is_number(minor))
}

/// Whether the summary starts here that `blkparse` prints behind the events.
fn is_summary(line: &str) -> bool {
    ["CPU", "Total (", "Throughput (", "Events ("].iter().any(|start| line.starts_with(start))
}
