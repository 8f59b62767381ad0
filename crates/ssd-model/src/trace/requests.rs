//! The requests of a trace, in the order of its lines.

use std::path::{Path, PathBuf};

use serde::Serialize;

use super::format::Format;
use super::line::Parsed;
use super::line_reader::{End, Lines};
use crate::Error;
use crate::request::Request;

/// Upper bound in bytes of a request's end: no device is larger, and sums of offsets and lengths cannot overflow.
const END_MOST: u64 = 1 << 60;

/// Lines of a trace that could not be parsed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct NotUnderstood {
    /// Number of such lines.
    pub lines: u64,
    /// Number of the first such line, and the problem with it.
    pub first: Option<(u64, String)>,
}

/// Reads the requests of a trace.
#[derive(Debug)]
pub struct Requests {
    path: PathBuf,
    format: Format,
    lines: Lines,
    devices: Vec<String>,
    lost: u64,
    not_understood: NotUnderstood,
    is_over: bool,
}

impl Requests {
    /// Opens a trace.
    pub fn open(path: &Path) -> Result<Requests, Error> {
        let format = Format::of(path)?;
        let lines = Lines::open(path)?;
        let (path, devices, not_understood) = (path.to_owned(), Vec::new(), NotUnderstood::default());
        Ok(Requests { path, format, lines, devices, lost: 0, not_understood, is_over: false })
    }

    /// Returns the format.
    pub fn format(&self) -> Format {
        self.format
    }

    /// Returns the devices seen so far.
    pub fn devices(&self) -> &[String] {
        &self.devices
    }

    /// Returns the number of events so far that the tracer reported as lost.
    pub fn lost(&self) -> u64 {
        self.lost
    }

    /// Returns the lines so far that could not be parsed and were skipped.
    pub fn not_understood(&self) -> &NotUnderstood {
        &self.not_understood
    }

    /// Returns the next request; `None` at the end.
    pub fn read(&mut self) -> Result<Option<Request>, Error> {
        while !self.is_over {
            let Some(end) = self.lines.read(&self.path)? else {
                self.is_over = true;
                break;
            };
            if end == End::TooLong {
                return Err(self.too_long());
            }
            match self.line(end) {
                Ok(Some(request)) => return Ok(Some(request)),
                Ok(None) => {}
                Err(what) => {
                    self.not_understood.lines += 1;
                    let number = self.lines.number();
                    self.not_understood.first.get_or_insert((number, what));
                }
            }
        }
        Ok(None)
    }

    fn line(&mut self, end: End) -> Result<Option<Request>, String> {
        let line =
            std::str::from_utf8(self.lines.bytes()).map_err(|_| "not text (invalid UTF-8)".to_owned())?;
        let parsed = self.format.parse(line)?;
        // A line without a line end may be truncated.
        if end == End::Cut && !line.trim().is_empty() {
            return Err("the file ends in the middle of the line".to_owned());
        }
        match parsed {
            Parsed::Nothing => {}
            Parsed::Lost(lost) => self.lost += lost,
            Parsed::End => self.is_over = true,
            Parsed::Request(_, request) if !is_on_a_device(&request) => {
                return Err("its request ends beyond 2^60 bytes".to_owned());
            }
            Parsed::Request(device, request) => {
                let device = match self.devices.iter().position(|known| known == device) {
                    Some(known) => known,
                    None => {
                        self.devices.push(device.to_owned());
                        self.devices.len() - 1
                    }
                };
                return Ok(Some(Request { device, ..request }));
            }
        }
        Ok(None)
    }

    fn too_long(&self) -> Error {
        let (line, name) = (self.lines.number(), self.path.display());
        let what = "it is longer than any line of a trace".to_owned();
        let kept = line.saturating_sub(1);
        let remedy =
            format!("record the trace again, or keep what is before it: head -n {kept} {name} > whole.txt");
        Error::TraceLine { path: self.path.clone(), line, what, remedy }
    }
}

fn is_on_a_device(request: &Request) -> bool {
    request.offset.checked_add(request.bytes).is_some_and(|end| end <= END_MOST)
}
