//! The file of a group: parts with changes, and an end.
//!
//! ```text
//! part: length of the changes (4) | number of changes (4) | CRC-32C (4) | changes, as in a part of a snapshot
//! end:  a part of length 0, with the number of parts before it as its number
//! ```
//!
//! The checksum covers the number of the backup, the group, the position of the part, both numbers and the changes: a part of another
//! file or place does not verify.

use std::fs::File;
use std::io::{BufReader, BufWriter, Read, Write};
use std::path::{Path, PathBuf};

use esker_cluster::changes::decode_changes;
use esker_engine::{Bytes, StoredChange};

use super::manifest::GroupFile;
use crate::terminal::Failure;

/// Longest part in bytes: one value may be as long as the server takes.
const PART_BYTES_MAX: u32 = 1 << 30;
const HEAD_BYTES: usize = 12;

/// Identity of a file: the number of the backup, and the group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Identity {
    pub(super) backup: u64,
    pub(super) group: u8,
}

impl Identity {
    fn checksum(self, part: u64, head: &[u8], changes: &[u8]) -> u32 {
        let begun = crc32c::crc32c(&self.backup.to_le_bytes());
        let begun = crc32c::crc32c_append(begun, &[self.group]);
        let begun = crc32c::crc32c_append(begun, &part.to_le_bytes());
        crc32c::crc32c_append(crc32c::crc32c_append(begun, head), changes)
    }
}

/// Returns the name of a group's file.
pub(super) fn name(group: u8) -> String {
    format!("group-{group:02}.esker")
}

/// A file being written.
pub(super) struct Writer {
    path: PathBuf,
    to: BufWriter<File>,
    identity: Identity,
    parts: u64,
    bytes: u64,
}

impl Writer {
    /// Makes the file, or empties the one of an attempt before.
    pub(super) fn create(directory: &Path, identity: Identity) -> Result<Writer, Failure> {
        let path = directory.join(name(identity.group));
        let file = File::create(&path)
            .map_err(|error| Failure::Failed(format!("cannot write {}: {error}", path.display())))?;
        Ok(Writer { path, to: BufWriter::new(file), identity, parts: 0, bytes: 0 })
    }

    fn failed(&self, error: &std::io::Error) -> Failure {
        Failure::Failed(format!("cannot write {}: {error}", self.path.display()))
    }

    fn write(&mut self, count: u32, changes: &[u8]) -> Result<(), Failure> {
        let length = u32::try_from(changes.len()).ok().filter(|length| *length <= PART_BYTES_MAX);
        let length = length.ok_or_else(|| {
            Failure::Failed(format!("a part has {} bytes, and {PART_BYTES_MAX} is the limit", changes.len()))
        })?;
        let mut head = [length.to_le_bytes(), count.to_le_bytes()].concat();
        let sum = self.identity.checksum(self.parts, &head, changes);
        head.extend(sum.to_le_bytes());
        self.to
            .write_all(&head)
            .and_then(|()| self.to.write_all(changes))
            .map_err(|error| self.failed(&error))?;
        self.parts += 1;
        self.bytes += (HEAD_BYTES + changes.len()) as u64;
        Ok(())
    }

    /// Appends a part, unless it is empty.
    pub(super) fn part(&mut self, count: u64, changes: &[u8]) -> Result<(), Failure> {
        match (u32::try_from(count), changes) {
            (_, []) => Ok(()),
            (Ok(count), changes) => self.write(count, changes),
            (Err(_), _) => {
                Err(Failure::Failed(format!("a part has {count} changes, more than a part can have")))
            }
        }
    }

    /// Ends the file, durably. Returns the number of its parts, without the end, and its bytes.
    pub(super) fn end(mut self) -> Result<(u64, u64), Failure> {
        let parts = self.parts;
        let number =
            u32::try_from(parts).map_err(|_| Failure::Failed(format!("a file has {parts} parts")))?;
        self.write(number, &[])?;
        let synced = self.to.flush().and_then(|()| self.to.get_ref().sync_all());
        synced.map_err(|error| self.failed(&error))?;
        Ok((parts, self.bytes))
    }
}

/// A file being read.
pub(super) struct Reader {
    path: PathBuf,
    from: BufReader<File>,
    identity: Identity,
    parts: u64,
    at: u64,
    has_ended: bool,
}

impl Reader {
    /// Opens the file of a group in a backup.
    pub(super) fn open(directory: &Path, backup: u64, of: &GroupFile) -> Result<Reader, Failure> {
        let path = directory.join(name(of.group));
        let file = File::open(&path)
            .map_err(|error| Failure::Failed(format!("cannot read {}: {error}", path.display())))?;
        let identity = Identity { backup, group: of.group };
        Ok(Reader { path, from: BufReader::new(file), identity, parts: 0, at: 0, has_ended: false })
    }

    /// Returns an error that names the place.
    pub(super) fn damaged(&self, what: &str) -> Failure {
        let (path, at, part) = (self.path.display(), self.at, self.parts);
        Failure::Failed(format!("{path} is damaged at byte {at}, part {part}: {what}; take another backup"))
    }

    fn take(&mut self, bytes: usize) -> Result<Vec<u8>, Failure> {
        // The buffer grows with the bytes that were read: a damaged length allocates nothing.
        let mut taken = Vec::new();
        let read = self.from.by_ref().take(bytes as u64).read_to_end(&mut taken);
        read.map_err(|error| Failure::Failed(format!("cannot read {}: {error}", self.path.display())))?;
        match taken.len() == bytes {
            true => Ok(taken),
            false => Err(self.damaged(&format!("it ends {} bytes too early", bytes - taken.len()))),
        }
    }

    /// Returns the changes of the next part; `None` at the end, which is checked.
    pub(super) fn next(&mut self) -> Result<Option<Vec<StoredChange>>, Failure> {
        if self.has_ended {
            return Ok(None);
        }
        let head = self.take(HEAD_BYTES)?;
        let number = |at: usize| u32::from_le_bytes(head[at..at + 4].try_into().expect("four bytes"));
        let (length, count, sum) = (number(0), number(4), number(8));
        if length > PART_BYTES_MAX {
            return Err(self.damaged(&format!("a part of {length} bytes, and {PART_BYTES_MAX} is the limit")));
        }
        let changes = self.take(length as usize)?;
        if self.identity.checksum(self.parts, &head[..8], &changes) != sum {
            return Err(self.damaged("the checksum does not match"));
        }
        if length == 0 {
            if u64::from(count) != self.parts {
                return Err(self.damaged(&format!("it has {} parts, and {count} were written", self.parts)));
            }
            self.has_ended = true;
            let mut rest = [0];
            return match self.from.read(&mut rest) {
                Ok(0) => Ok(None),
                _ => Err(self.damaged("there are bytes behind its end")),
            };
        }
        let decoded = decode_changes(&Bytes::from(changes));
        let decoded = decoded.filter(|changes| changes.len() == count as usize);
        let decoded = decoded.ok_or_else(|| self.damaged("its changes do not decode"))?;
        self.parts += 1;
        self.at += HEAD_BYTES as u64 + u64::from(length);
        Ok(Some(decoded))
    }

    /// Returns the number of parts read.
    pub(super) fn parts(&self) -> u64 {
        self.parts
    }
}
