//! The manifest of a backup: a file of JSON Lines that names everything in it, written and read line by line.
//!
//! 1. The header: an object with the format, the number of the backup, its time, and the superblocks.
//! 2. A line per segment: an array with its tier, slot and number, the number of the backup that named its file (0: its
//!    name is the same in every backup), the length and checksum of the file, its mark, and its unreadable ranges.
//! 3. The end: an object with the number of segments, their bytes, and a checksum of everything before the checksum,
//!    because a rotted digit could turn the same segments into another store, or an empty one.

use std::fs::File;
use std::hash::Hasher;
use std::io::{BufRead, BufReader, BufWriter, Read, Seek, SeekFrom, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};

use esker_log::{Superblock, Tier};
use serde::{Deserialize, Serialize};
use twox_hash::XxHash3_64;

use crate::error::{Error, Result};
use crate::summary::{Summary, Unread};

/// Manifest format that this code writes and reads. No release wrote an earlier one.
const FORMAT: u64 = 3;

/// Start of the last line, and its text before and after the checksum, which has 16 hexadecimal digits.
const END: &str = "{\"segments\":";
const BEFORE_CHECK: &str = ",\"check\":\"";
const AFTER_CHECK: &str = "\"}\n";
const CHECK_DIGITS: usize = 16;
/// Limit of the length of a line in bytes. The header has two superblocks.
const LINE_BYTES_MAX: u64 = 16 << 20;

/// The properties of a backup.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Header {
    format: u64,
    /// Number of the backup: 1, 2, 3 … within the directory.
    pub(crate) id: u64,
    /// Time of the backup in milliseconds since the Unix epoch.
    taken_at_ms: u64,
    /// Number of keys in the store.
    keys: u64,
    /// The superblock of each tier.
    pub(crate) superblocks: Vec<Superblock>,
}

/// A segment of a backup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Segment {
    pub(crate) tier: Tier,
    pub(crate) slot: u32,
    pub(crate) number: u64,
    /// The backup that named the file, if the name is not the same in every backup.
    pub(crate) named_in: Option<u64>,
    /// Length of the file.
    pub(crate) bytes: u64,
    /// XXH3-64 of the file.
    pub(crate) check: u64,
    /// XXH3-64 of the last 64 bytes of a sealed segment, which contain a checksum of its entries, and of some of its pages.
    pub(crate) mark: Option<u64>,
    /// Unreadable ranges of the segment: they are zeros.
    pub(crate) unread: Box<[Range<u32>]>,
}

/// A segment as a line: its fields, with numbers of 64 bits in hexadecimal, and an empty text for no mark.
type Line<'a> = (&'a str, u32, u64, u64, u64, &'a str, &'a str, Vec<(u32, u32)>);

impl Header {
    pub(crate) fn new(id: u64, taken_at_ms: u64, keys: u64, superblocks: Vec<Superblock>) -> Header {
        Header { format: FORMAT, id, taken_at_ms, keys, superblocks }
    }

    pub(crate) fn store_id(&self) -> Option<u128> {
        self.superblocks.first().map(|superblock| superblock.store_id)
    }

    /// Returns the superblock of a tier.
    pub(crate) fn superblock(&self, tier: Tier) -> Option<&Superblock> {
        self.superblocks.iter().find(|superblock| superblock.tier() == tier)
    }

    /// Returns the summary of a backup without segments.
    fn summary(&self) -> Summary {
        let Header { id, taken_at_ms, keys, .. } = *self;
        Summary { id, taken_at_ms, keys, segments: 0, bytes: 0, unread: Vec::new() }
    }
}

impl Segment {
    /// Returns the name of its file below `segments`.
    pub(crate) fn file(&self) -> String {
        file_name(self.tier, self.number, self.named_in)
    }

    fn encode(&self) -> String {
        let mark = self.mark.map_or(String::new(), hex);
        let unread = self.unread.iter().map(|range| (range.start, range.end)).collect();
        let (named_in, check) = (self.named_in.unwrap_or(0), hex(self.check));
        let line: Line<'_> =
            (self.tier.name(), self.slot, self.number, named_in, self.bytes, &check, &mark, unread);
        serde_json::to_string(&line).expect("numbers and texts have a form in JSON")
    }

    fn decode(line: &[u8]) -> Option<Segment> {
        let (tier, slot, number, named_in, bytes, check, mark, unread): Line<'_> =
            serde_json::from_slice(line).ok()?;
        let tier = [Tier::Fast, Tier::Capacity].into_iter().find(|it| it.name() == tier)?;
        let mark = if mark.is_empty() { None } else { Some(number_of(mark)?) };
        let unread = unread.into_iter().map(|(start, end)| start..end).collect();
        let named_in = Some(named_in).filter(|id| *id > 0);
        Some(Segment { tier, slot, number, named_in, bytes, check: number_of(check)?, mark, unread })
    }

    /// Adds the segment to the summary of its backup.
    fn count(&self, summary: &mut Summary) {
        summary.segments += 1;
        summary.bytes += self.bytes;
        let unread = self.unread.iter().cloned();
        summary.unread.extend(unread.map(|bytes| Unread { tier: self.tier, segment: self.number, bytes }));
    }
}

fn hex(number: u64) -> String {
    format!("{number:0CHECK_DIGITS$x}")
}

fn number_of(hex: &str) -> Option<u64> {
    u64::from_str_radix(hex, 16).ok()
}

/// Returns the name of a segment's file; for a sealed segment it is the same in every backup, unless one has named it.
pub(crate) fn file_name(tier: Tier, number: u64, named_in: Option<u64>) -> String {
    match named_in {
        None => format!("{}-{number}.seg", tier.name()),
        Some(id) => format!("{id}-{}-{number}.seg", tier.name()),
    }
}

/// A manifest that is being written.
pub(crate) struct ManifestWriter {
    file: BufWriter<File>,
    pub(crate) path: PathBuf,
    check: XxHash3_64,
    summary: Summary,
}

impl ManifestWriter {
    /// Starts a manifest in a new file.
    pub(crate) fn create(path: PathBuf, header: &Header) -> Result<ManifestWriter> {
        let file = BufWriter::new(File::create(&path).map_err(Error::io(&path))?);
        let mut writer = ManifestWriter { file, path, check: XxHash3_64::new(), summary: header.summary() };
        let header = serde_json::to_string(header).expect("a header has nothing that JSON has not");
        writer.write(&(header + "\n"))?;
        Ok(writer)
    }

    /// Adds a segment.
    pub(crate) fn add(&mut self, segment: &Segment) -> Result<()> {
        segment.count(&mut self.summary);
        self.write(&(segment.encode() + "\n"))
    }

    /// Ends the manifest durably. Returns the summary of the backup, and the path of the file.
    pub(crate) fn finish(mut self) -> Result<(Summary, PathBuf)> {
        let Summary { segments, bytes, .. } = self.summary;
        self.write(&format!("{END}{segments},\"bytes\":{bytes}"))?;
        let check = hex(self.check.finish());
        self.write(&format!("{BEFORE_CHECK}{check}{AFTER_CHECK}"))?;
        let written = self.file.into_inner().map_err(std::io::IntoInnerError::into_error);
        written.and_then(|file| file.sync_all()).map_err(Error::io(&self.path))?;
        Ok((self.summary, self.path))
    }

    fn write(&mut self, text: &str) -> Result<()> {
        self.check.write(text.as_bytes());
        self.file.write_all(text.as_bytes()).map_err(Error::io(&self.path))
    }
}

/// A whole manifest. Its segments stay in the file.
#[derive(Debug)]
pub(crate) struct Manifest {
    file: File,
    path: PathBuf,
    pub(crate) header: Header,
    pub(crate) summary: Summary,
}

impl Manifest {
    /// Opens the manifest of a backup, and verifies all of it.
    pub(crate) fn open(path: &Path, id: u64) -> Result<Manifest> {
        let file = File::open(path).map_err(Error::io(path))?;
        let mut lines = Lines::of(&file, path)?;
        let (mut header, mut summary, mut wrong) = (None, None, None);
        let mut check = XxHash3_64::new();
        // The checksum is verified before anything is believed, because any field may have rotted.
        while let Some((number, line)) = lines.next()? {
            if line.starts_with(END.as_bytes()) {
                if !is_end(line, check) || lines.next()?.is_some() {
                    return Err(Error::damaged(path, "checksum mismatch"));
                }
                let header: Header = header.ok_or_else(|| Error::damaged(path, "it has no header"))?;
                if header.format != FORMAT {
                    return Err(other_format(path, header.format));
                }
                if let Some(line) = wrong {
                    return Err(Error::damaged(path, format!("line {line} is not a segment")));
                }
                if header.id != id {
                    let what = format!("it contains the manifest of backup {}", header.id);
                    return Err(Error::damaged(path, what));
                }
                let summary = summary.unwrap_or_else(|| header.summary());
                return Ok(Manifest { file, path: path.to_owned(), header, summary });
            }
            check.write(line);
            if number == 1 {
                header = serde_json::from_slice::<Header>(line).ok();
                summary = header.as_ref().map(Header::summary);
            } else {
                match (Segment::decode(line), &mut summary) {
                    (Some(segment), Some(summary)) => segment.count(summary),
                    _ => wrong = wrong.or(Some(number)),
                }
            }
        }
        match format_of(&file) {
            Some(format) if format != FORMAT => Err(other_format(path, format)),
            _ => Err(Error::damaged(path, "it has no checksum")),
        }
    }

    /// Passes every segment to `see`, in the order of the file.
    pub(crate) fn each_segment(&self, mut see: impl FnMut(Segment) -> Result<()>) -> Result<()> {
        let mut lines = Lines::of(&self.file, &self.path)?;
        while let Some((number, line)) = lines.next()? {
            if line.starts_with(END.as_bytes()) {
                return Ok(());
            }
            if number > 1 {
                let segment = Segment::decode(line);
                see(segment.ok_or_else(|| Error::damaged(&self.path, "it changed while it was read"))?)?;
            }
        }
        Err(Error::damaged(&self.path, "it changed while it was read"))
    }
}

fn other_format(path: &Path, format: u64) -> Error {
    Error::Invalid(format!("{} has format {format}; this program reads format {FORMAT}", path.display()))
}

/// Returns true if the last line ends with the checksum of everything before it.
fn is_end(line: &[u8], mut check: XxHash3_64) -> bool {
    let Ok(text) = str::from_utf8(line) else { return false };
    let split = text
        .strip_suffix(AFTER_CHECK)
        .and_then(|rest| rest.split_at_checked(rest.len().checked_sub(CHECK_DIGITS)?));
    let Some((Some(counts), digits)) = split.map(|(rest, digits)| (rest.strip_suffix(BEFORE_CHECK), digits))
    else {
        return false;
    };
    check.write(counts.as_bytes());
    hex(check.finish()) == digits
}

/// Returns the format that the first bytes of a manifest without a checksum of this format state.
fn format_of(mut file: &File) -> Option<u64> {
    let mut start = Vec::new();
    file.seek(SeekFrom::Start(0)).ok()?;
    file.take(256).read_to_end(&mut start).ok()?;
    let text = String::from_utf8_lossy(&start);
    let (_, rest) = text.split_once("\"format\":")?;
    let digits: String = rest.trim_start().chars().take_while(char::is_ascii_digit).collect();
    digits.parse().ok()
}

/// The lines of a file.
struct Lines<'a> {
    reader: BufReader<&'a File>,
    path: &'a Path,
    line: Vec<u8>,
    /// The number of the present line, from 1.
    number: u64,
}

impl<'a> Lines<'a> {
    fn of(mut file: &'a File, path: &'a Path) -> Result<Lines<'a>> {
        file.seek(SeekFrom::Start(0)).map_err(Error::io(path))?;
        Ok(Lines { reader: BufReader::new(file), path, line: Vec::new(), number: 0 })
    }

    /// Returns the next line, with its number and its end.
    fn next(&mut self) -> Result<Option<(u64, &[u8])>> {
        self.line.clear();
        self.number += 1;
        let mut limited = (&mut self.reader).take(LINE_BYTES_MAX);
        let read = limited.read_until(b'\n', &mut self.line).map_err(Error::io(self.path))?;
        Ok((read > 0).then_some((self.number, &self.line[..])))
    }
}
