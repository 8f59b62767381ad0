//! Numbered lines of a file. A line too long for any trace is an error, so that a binary file is not read into memory.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;

use crate::Error;

const LINE_MOST: u64 = 64 << 10;
const BUFFER: usize = 1 << 20;

#[derive(Debug)]
pub(super) struct Lines {
    file: BufReader<File>,
    line: Vec<u8>,
    number: u64,
}

/// The end of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// A line end.
    Whole,
    /// The end of the file.
    Cut,
    /// None within the maximum length of a line.
    TooLong,
}

impl Lines {
    pub(super) fn open(path: &Path) -> Result<Lines, Error> {
        let file = File::open(path).map_err(Error::file(path))?;
        Ok(Lines { file: BufReader::with_capacity(BUFFER, file), line: Vec::new(), number: 0 })
    }

    /// Reads the next line; `None` at the end of the file.
    pub(super) fn read(&mut self, path: &Path) -> Result<Option<End>, Error> {
        self.line.clear();
        let read = self.file.by_ref().take(LINE_MOST).read_until(b'\n', &mut self.line);
        if read.map_err(Error::file(path))? == 0 {
            return Ok(None);
        }
        self.number += 1;
        let end = match self.line.pop_if(|last| *last == b'\n') {
            Some(_) => End::Whole,
            None if self.line.len() as u64 == LINE_MOST => End::TooLong,
            None => End::Cut,
        };
        Ok(Some(end))
    }

    /// Returns the most recently read line.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.line
    }

    /// Returns its number, from 1.
    pub(super) fn number(&self) -> u64 {
        self.number
    }
}
