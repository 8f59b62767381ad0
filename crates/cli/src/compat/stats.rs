//! Reads the lines of `INFO commandstats`: `cmdstat_get:calls=3,usec=5,…`.

use std::io::BufRead;

use esker_server::served::Caller;

use super::monitor::line_of;
use super::report::{At, Report};
use crate::terminal::Failure;

/// Begins the name of a command.
const PREFIX: &str = "cmdstat_";

/// Reads all lines; those of other sections of INFO are skipped.
///
/// # Errors
/// If a line of the section is malformed, or there is none.
pub(super) fn read(reader: &mut dyn BufRead, name: &str, report: &mut Report) -> Result<(), Failure> {
    let (mut number, mut commands) = (0, 0);
    while let Some((line, _)) = line_of(reader, name)? {
        number += 1;
        let text = String::from_utf8_lossy(&line);
        let Some(rest) = text.trim().strip_prefix(PREFIX) else { continue };
        let (command, calls) = parse(rest).ok_or_else(|| {
            Failure::Usage(format!("{name}, line {number}: expected cmdstat_NAME:calls=NUMBER,…"))
        })?;
        report.name(command, calls, Caller::Client, At::Line { name, number });
        commands += 1;
    }
    match commands {
        0 => Err(Failure::Usage(format!(
            "{name} has no line that begins with {PREFIX}: give the output of INFO commandstats"
        ))),
        _ => Ok(()),
    }
}

fn parse(rest: &str) -> Option<(&str, u64)> {
    let (command, fields) = rest.split_once(':')?;
    let calls = fields.split(',').find_map(|field| field.strip_prefix("calls="))?;
    Some((command, calls.parse().ok()?)).filter(|(command, _)| !command.is_empty())
}
