//! Reads a file by lines and by bytes, and counts the bytes read.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, stdin};
use std::path::Path;

use crate::terminal::Failure;

/// Limit of a line in bytes: base64 of a value of half a gibibyte, the longest in Redis.
const LINE_BYTES_MAX: u64 = 768 << 20;

/// Length of the read buffer in bytes.
const BUFFER_BYTES: usize = 64 << 10;

/// Returns true if a path means stdin or stdout.
pub(crate) fn is_standard(path: &Path) -> bool {
    path.as_os_str() == "-"
}

/// An input file and the position in it.
pub(super) struct Input {
    reader: BufReader<Box<dyn Read>>,
    pub(super) name: String,
    pub(super) passed: u64,
    pub(super) total: Option<u64>,
    pub(super) line: u64,
}

impl Input {
    pub(super) fn open(path: &Path) -> Result<Input, Failure> {
        let name = path.display().to_string();
        let (reader, total): (Box<dyn Read>, _) = if is_standard(path) {
            (Box::new(stdin()), None)
        } else {
            let cannot = |error: io::Error| Failure::Usage(format!("cannot read {name}: {error}"));
            let file = File::open(path).map_err(cannot)?;
            let known = file.metadata().map_err(cannot)?;
            if known.is_dir() {
                return Err(Failure::Usage(format!("cannot read {name}: it is a directory")));
            }
            (Box::new(file), known.is_file().then_some(known.len()))
        };
        Ok(Input::of(reader, name, total))
    }

    pub(super) fn of(reader: Box<dyn Read>, name: String, total: Option<u64>) -> Input {
        Input { reader: BufReader::with_capacity(BUFFER_BYTES, reader), name, passed: 0, total, line: 0 }
    }

    /// Reads the next line without its end; `None` at the end of the file. A line without an end is an
    /// error.
    pub(super) fn line(&mut self) -> Result<Option<Vec<u8>>, Failure> {
        let mut line = Vec::new();
        let limited = self.reader.by_ref().take(LINE_BYTES_MAX);
        let bytes = { limited }.read_until(b'\n', &mut line).map_err(|error| self.cannot(&error))?;
        if bytes == 0 {
            return Ok(None);
        }
        self.line += 1;
        self.passed += bytes as u64;
        if line.pop_if(|last| *last == b'\n').is_none() {
            return Err(if bytes as u64 == LINE_BYTES_MAX {
                self.wrong(&format!("the line is longer than {LINE_BYTES_MAX} bytes"))
            } else {
                self.ends_early()
            });
        }
        line.pop_if(|last| *last == b'\r');
        Ok(Some(line))
    }

    /// Returns the next byte without consuming it; `None` at the end.
    pub(super) fn peek(&mut self) -> Result<Option<u8>, Failure> {
        let first = self.reader.fill_buf().map(|bytes| bytes.first().copied());
        first.map_err(|error| self.cannot(&error))
    }

    /// Reads `count` bytes, which the caller limits. Memory grows with the bytes that arrive.
    pub(super) fn bytes(&mut self, count: u64) -> Result<Vec<u8>, Failure> {
        let mut bytes = Vec::new();
        let limited = self.reader.by_ref().take(count);
        let read = { limited }.read_to_end(&mut bytes).map_err(|error| self.cannot(&error))?;
        self.passed += read as u64;
        if (read as u64) < count { Err(self.ends_early()) } else { Ok(bytes) }
    }

    /// Returns a reader of the bytes that were not consumed yet.
    pub(super) fn into_reader(self) -> BufReader<Box<dyn Read>> {
        self.reader
    }

    pub(super) fn wrong(&self, what: &str) -> Failure {
        Failure::Failed(format!("{}, line {}: {what}", self.name, self.line))
    }

    fn cannot(&self, error: &io::Error) -> Failure {
        Failure::Failed(format!("cannot read {}: {error}", self.name))
    }

    pub(super) fn ends_early(&self) -> Failure {
        Failure::Failed(format!(
            "{} ends early, at byte {}: it was cut, or is still being written",
            self.name, self.passed
        ))
    }
}
