//! Files of records: their formats, and output files that appear only when complete.

use std::io::{self, BufWriter, Write, stdout};
use std::path::Path;

use clap::ValueEnum;

use super::input::{Input, is_standard};
use super::record::{LeftOut, Record, Sink, Source};
use super::table::Encoding;
use super::{json_lines, stream, table};
use crate::new_file::NewFile;
use crate::terminal::Failure;

/// Formats of files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Format {
    /// An object in JSON on each line.
    Jsonl,
    /// Comma-separated values, with bytes in base64 or hex.
    Csv,
    /// Commands of RESP, as redis-cli --pipe takes them.
    Resp,
}

fn format_of(path: &Path, given: Option<Format>) -> Result<Format, Failure> {
    let by_name = match path.extension().and_then(|ending| ending.to_str()) {
        Some("jsonl" | "ndjson" | "json") => Some(Format::Jsonl),
        Some("csv") => Some(Format::Csv),
        Some("resp") => Some(Format::Resp),
        _ => None,
    };
    given.or(by_name).ok_or_else(|| {
        let shown = path.display();
        Failure::Usage(format!("which format has {shown}? Give --format jsonl, csv or resp"))
    })
}

/// Opens a file as a source of records.
pub(super) fn open(path: &Path, given: Option<Format>) -> Result<Box<dyn Source>, Failure> {
    let format = format_of(path, given)?;
    read_as(format, Input::open(path)?)
}

/// Returns a source of records in a format.
pub(super) fn read_as(format: Format, input: Input) -> Result<Box<dyn Source>, Failure> {
    Ok(match format {
        Format::Jsonl => Box::new(json_lines::Reader::new(input)),
        Format::Csv => Box::new(table::Reader::new(input)?),
        Format::Resp => Box::new(stream::Reader::new(input)),
    })
}

/// Encodes one record in a format.
type Encode = Box<dyn FnMut(&Record, &mut Vec<u8>)>;

/// An output file.
struct Output {
    writer: BufWriter<Box<dyn Write>>,
    name: String,
    encode: Encode,
    text: Vec<u8>,
    written: u64,
}

/// Returns a sink that writes a file. Also returns the file, to be named when it is complete; `None` for
/// stdout.
pub(super) fn create(
    path: &Path,
    given: Option<Format>,
    encoding: Encoding,
) -> Result<(Box<dyn Sink>, Option<NewFile>), Failure> {
    let format = format_of(path, given)?;
    let name = path.display().to_string();
    let new_file = if is_standard(path) { None } else { Some(NewFile::create(path)?) };
    let writer: Box<dyn Write> = match &new_file {
        Some(file) => Box::new(file.writer()?),
        None => Box::new(stdout()),
    };
    let mut text = Vec::new();
    let encode: Encode = match format {
        Format::Jsonl => Box::new(json_lines::write),
        Format::Csv => {
            table::write_head(encoding, &mut text);
            Box::new(move |record, text| table::write(record, encoding, text))
        }
        Format::Resp => {
            let mut database = 0;
            Box::new(move |record, text| stream::write(record, &mut database, text))
        }
    };
    let mut output = Output { writer: BufWriter::new(writer), name, encode, text, written: 0 };
    output.flush_text()?;
    Ok((Box::new(output), new_file))
}

impl Output {
    fn flush_text(&mut self) -> Result<(), Failure> {
        let done = self.writer.write_all(&self.text);
        self.text.clear();
        done.map_err(|error| self.cannot(&error))
    }

    fn cannot(&self, error: &io::Error) -> Failure {
        Failure::Failed(format!("cannot write {}: {error}", self.name))
    }
}

impl Sink for Output {
    fn put(&mut self, record: Record, _: &mut LeftOut) -> Result<(), Failure> {
        (self.encode)(&record, &mut self.text);
        self.written += 1;
        self.flush_text()
    }

    fn finish(&mut self, _: &mut LeftOut) -> Result<(), Failure> {
        self.writer.flush().map_err(|error| self.cannot(&error))
    }

    fn written(&self) -> u64 {
        self.written
    }
}
