//! Formats of traces and their detection.

use std::path::Path;

use serde::Serialize;

use super::line::Parsed;
use super::line_reader::{End, Lines};
use super::{blkparse, fio, ftrace};
use crate::Error;

/// A format of traces.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Format {
    /// The text of `blkparse`.
    Blkparse,
    /// The text of ftrace, trace-cmd or perf.
    Ftrace,
    /// An iolog of fio, version 2.
    Fio2,
    /// An iolog of fio, version 3.
    Fio3,
}

/// Magic bytes of binary formats that have a text form, and the command that prints it.
const BINARIES: [(&[u8], &str); 5] = [
    (b"\x07\x74\x61\x65", "it is blktrace's binary output; convert it to text with: blkparse -i FILE"),
    (b"PERFILE2", "it is perf's binary output; convert it to text with: perf script -i FILE"),
    (
        b"\x17\x08\x44tracing",
        "it is trace-cmd's binary output; convert it to text with: trace-cmd report FILE",
    ),
    (b"\x1f\x8b", "it is compressed; unpack it with gunzip"),
    (b"\x28\xb5\x2f\xfd", "it is compressed; unpack it with unzstd"),
];

impl Format {
    /// Detects the format of a file from the first line that matches one.
    pub fn of(path: &Path) -> Result<Format, Error> {
        let mut lines = Lines::open(path)?;
        let mut first = None;
        while let Some(end) = lines.read(path)? {
            let unknown = |what: String| {
                Err(Error::UnknownFormat { path: path.to_owned(), line: lines.number(), what })
            };
            let bytes = lines.bytes();
            if first.is_none()
                && let Some((_, what)) = BINARIES.iter().find(|(start, _)| bytes.starts_with(start))
            {
                return unknown((*what).to_owned());
            }
            let text = match std::str::from_utf8(bytes) {
                Ok(text) if end != End::TooLong => text.trim_start(),
                Err(_) if first.is_some() && end != End::TooLong => continue,
                _ => return unknown("not text (invalid UTF-8)".to_owned()),
            };
            match Format::of_line(text) {
                Some(Ok(format)) => return Ok(format),
                Some(Err(version)) if first.is_none() => {
                    return unknown(format!("its iolog version is {version}"));
                }
                _ if text.is_empty() || text.starts_with('#') => {}
                _ => {
                    first.get_or_insert_with(|| {
                        (
                            lines.number(),
                            format!("it starts with '{}'", text.chars().take(40).collect::<String>()),
                        )
                    });
                }
            }
        }
        Err(match first {
            Some((line, what)) => {
                let what = format!("{what}, and no line is in a known trace format");
                Error::UnknownFormat { path: path.to_owned(), line, what }
            }
            None => Error::Trace {
                path: path.to_owned(),
                what: "the file is empty: record the trace again".to_owned(),
            },
        })
    }

    /// Returns the format that begins with this line, or the unsupported version of an iolog.
    fn of_line(line: &str) -> Option<Result<Format, String>> {
        match fio::version(line) {
            Some("2") => return Some(Ok(Format::Fio2)),
            Some("3") => return Some(Ok(Format::Fio3)),
            Some(other) => return Some(Err(other.to_owned())),
            None => {}
        }
        if line.starts_with("# tracer:") || line.starts_with("cpus=") || ftrace::has_event(line) {
            return Some(Ok(Format::Ftrace));
        }
        let device = line.split_ascii_whitespace().next()?;
        (blkparse::is_device(device) && blkparse::parse(line).is_ok()).then_some(Ok(Format::Blkparse))
    }

    /// Parses a line.
    pub(super) fn parse(self, line: &str) -> Result<Parsed<'_>, String> {
        match self {
            Format::Blkparse => blkparse::parse(line),
            Format::Ftrace => ftrace::parse(line),
            Format::Fio2 | Format::Fio3 if fio::version(line).is_some() => Ok(Parsed::Nothing),
            Format::Fio2 => fio::parse_2(line),
            Format::Fio3 => fio::parse_3(line),
        }
    }

    /// Returns the name for messages.
    pub fn name(self) -> &'static str {
        match self {
            Format::Blkparse => "blkparse",
            Format::Ftrace => "ftrace",
            Format::Fio2 => "fio iolog, version 2",
            Format::Fio3 => "fio iolog, version 3",
        }
    }
}
