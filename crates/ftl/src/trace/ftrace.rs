//! The text of ftrace with `block_rq_issue` or `block_rq_complete`, as `trace`, `trace_pipe` and `trace-cmd report` have it:
//! `fio-1234  [001] d..1.  123.456789: block_rq_issue: 259,0 WS 4096 () 2048 + 8 none,0,0 [fio]`.

use super::{Parsed, Stage, kind_of, nanoseconds, sectors};

const ISSUED: &str = ": block_rq_issue: ";
const COMPLETED: &str = ": block_rq_complete: ";

/// Whether a line has one of the events.
pub(super) fn has_event(line: &str) -> bool {
    line.contains(ISSUED) || line.contains(COMPLETED)
}

/// What a line says.
pub(super) fn parse(line: &str) -> Result<Parsed<'_>, String> {
    if line.trim().is_empty() || line.starts_with('#') || line.starts_with("cpus=") {
        return Ok(Parsed::Nothing);
    }
    if let Some(lost) = lost(line) {
        return Ok(Parsed::Lost(lost));
    }
    let (stage, event) = match (line.split_once(ISSUED), line.split_once(COMPLETED)) {
        (Some(event), _) => (Stage::Issued, event),
        (_, Some(event)) => (Stage::Completed, event),
        _ if line.contains(": ") => return Ok(Parsed::Nothing),
        _ => return Err("there is no event in the line".to_owned()),
    };
    let (before, fields) = event;
    let time = before.split_ascii_whitespace().next_back().unwrap_or_default();
    let at_ns = nanoseconds(time).ok_or_else(|| format!("its time is '{time}'"))?;
    let (device, rest) = fields.split_once(' ').ok_or("the line ends behind its device")?;
    if !super::blkparse::is_device(device) {
        return Err(format!("its device is '{device}', which is none such as 8,0"));
    }
    let (letters, rest) = rest.split_once(' ').ok_or("the line ends behind the kind of its request")?;
    let Some(kind) = kind_of(letters) else { return Ok(Parsed::Nothing) };
    // The command of a pass-through request stands between brackets.
    let (_, rest) = rest.split_once(") ").ok_or("the line ends before its sector")?;
    let request = sectors(kind, stage, at_ns, rest.split_ascii_whitespace())?;
    if !rest.trim_end().ends_with(']') {
        return Err("the line ends before its process or error in [brackets]".to_owned());
    }
    Ok(Parsed::Request(device, request))
}

/// How many events a line says that were lost: `CPU:1 [LOST 345 EVENTS]`.
fn lost(line: &str) -> Option<u64> {
    let (_, rest) = line.split_once("[LOST ")?;
    rest.split_once(" EVENTS]")?.0.trim().parse().ok()
}
