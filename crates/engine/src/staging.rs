//! The staging file: lane memory that outlives the process, for [`Durability::Process`](crate::Durability).
//!
//! Each piece of lane memory lies in the file behind a header of one page that says which segment is being built in it. The
//! file counts only if it was written since the machine was started (the boot id tells) and in the last opening of the
//! store (the epoch tells): then the page cache holds exactly what the process wrote before it died.

use std::ops::Deref;
use std::os::unix::fs::FileExt;

use esker_device::PrivateFile;
use esker_log::{Entry, FRAME_HEADER_BYTES, FrameHeader, RecordView, Secret, SegmentName, SegmentShape};

use crate::error::{Error, Result};
use crate::memory::{MemoryPool, STAGING_HEADER_BYTES};

const MAGIC: &[u8; 8] = b"ESKERST1";
const HEADER_BYTES: usize = 64;

/// A staging file that this process has for itself.
pub(crate) struct StagingFile {
    pub(crate) file: PrivateFile,
    /// What is in it counts if it was written in this start of the machine.
    pub(crate) boot: BootId,
}

impl Deref for StagingFile {
    type Target = std::fs::File;

    fn deref(&self) -> &std::fs::File {
        &self.file
    }
}

/// Number of one start of the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BootId(u64);

/// Number of this start of the machine, if the kernel tells. One that is unknown is the same as no other, not even as one
/// that was unknown: the pages of a file may or may not have outlived what was between.
pub(crate) fn boot_id() -> Option<BootId> {
    parse_boot_id(&std::fs::read("/proc/sys/kernel/random/boot_id").ok()?)
}

fn parse_boot_id(text: &[u8]) -> Option<BootId> {
    let digits = text.trim_ascii().iter().filter(|byte| byte.is_ascii_hexdigit()).count();
    // A UUID, which never is zero.
    let known = digits == 32 && text.iter().any(|byte| byte.is_ascii_hexdigit() && *byte != b'0');
    known.then(|| BootId(xor_fold(text)))
}

fn xor_fold(bytes: &[u8]) -> u64 {
    bytes.chunks(8).fold(0u64, |sum, chunk| {
        let mut word = [0u8; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        sum.rotate_left(9) ^ u64::from_le_bytes(word)
    })
}

fn io(error: std::io::Error) -> Error {
    Error::invalid(format!("staging file: {error}"))
}

fn header(boot: BootId, secret: &Secret, name: SegmentName) -> [u8; HEADER_BYTES] {
    let mut bytes = [0u8; HEADER_BYTES];
    bytes[..8].copy_from_slice(MAGIC);
    for (at, value) in
        [boot.0, name.epoch, name.segment, u64::from(name.slot), name.opened_at].iter().enumerate()
    {
        bytes[16 + at * 8..24 + at * 8].copy_from_slice(&value.to_le_bytes());
    }
    let crc = secret.identity(name.segment, 0).crc(&[&bytes[16..]]);
    bytes[8..12].copy_from_slice(&crc.to_le_bytes());
    bytes
}

/// Says which segment is being built in a piece of memory.
pub(crate) fn write_header(
    file: &StagingFile,
    index: usize,
    secret: &Secret,
    shape: SegmentShape,
    name: SegmentName,
) -> Result<()> {
    let at = MemoryPool::staging_offset(index, u64::from(shape.segment_bytes));
    file.write_all_at(&header(file.boot, secret, name), at).map_err(io)
}

/// Says that what lies in a piece of memory is of no use to another process.
pub(crate) fn void(file: &StagingFile, index: usize, shape: SegmentShape) -> Result<()> {
    let at = MemoryPool::staging_offset(index, u64::from(shape.segment_bytes));
    file.write_all_at(&[0u8; HEADER_BYTES], at).map_err(io)
}

/// A segment as the last process left it in memory.
pub(crate) struct Staged {
    pub(crate) segment: u64,
    pub(crate) bytes: Vec<u8>,
    pub(crate) entries: Vec<Entry>,
}

/// What the last process, of epoch `epoch`, left in the staging file.
pub(crate) fn read(
    file: &StagingFile,
    secret: &Secret,
    shape: SegmentShape,
    epoch: u64,
) -> Result<Vec<Staged>> {
    let stride = MemoryPool::staging_offset(1, u64::from(shape.segment_bytes));
    let pieces = file.metadata().map_err(io)?.len() / stride;
    let mut found = Vec::new();
    for index in 0..pieces {
        let at = index * stride;
        let mut head = [0u8; HEADER_BYTES];
        file.read_exact_at(&mut head, at).map_err(io)?;
        let word =
            |i: usize| u64::from_le_bytes(head[16 + i * 8..24 + i * 8].try_into().expect("eight bytes"));
        let name = SegmentName {
            epoch: word(1),
            segment: word(2),
            slot: word(3) as u32,
            stream: esker_log::Stream::LANE,
            opened_at: word(4),
        };
        if name.epoch != epoch || head != header(file.boot, secret, name) {
            continue;
        }
        let mut bytes = vec![0u8; shape.segment_bytes as usize];
        file.read_exact_at(&mut bytes, at + STAGING_HEADER_BYTES).map_err(io)?;
        let entries = entries(&bytes, secret, shape, name);
        found.push(Staged { segment: name.segment, bytes, entries });
    }
    Ok(found)
}

/// Walks closed frames by their headers, then the open one, which has none yet, record by record. A batch at the very end
/// that is not whole is left out.
fn entries(bytes: &[u8], secret: &Secret, shape: SegmentShape, name: SegmentName) -> Vec<Entry> {
    let mut entries = Vec::new();
    let mut frame = 0usize;
    loop {
        let header = bytes.get(frame..).and_then(|b| FrameHeader::parse(b, secret, frame as u32));
        let fits = |h: &FrameHeader| frame as u64 + u64::from(h.padded_bytes) <= bytes.len() as u64;
        let closed = header.filter(|h| h.segment == name.segment && fits(h));
        let end = closed.map_or(bytes.len(), |h| frame + h.bytes as usize);
        let mut at = frame + FRAME_HEADER_BYTES.next_multiple_of(shape.granule_bytes as usize);
        let mut whole = entries.len();
        while at < end {
            let identity = secret.identity(name.segment, at as u32);
            let Ok(record) = RecordView::parse(&bytes[at..end], &identity) else { break };
            if record.verify_value(secret).is_err() {
                break;
            }
            entries.push(Entry {
                digest: secret.digest(record.key),
                sequence: record.sequence,
                offset: at as u32,
                bytes: record.bytes() as u32,
                kind: record.kind,
                expires_at_ms: record.expires_at_ms,
            });
            if !record.batch_goes_on {
                whole = entries.len();
            }
            at += shape.padded(record.bytes()) as usize;
        }
        entries.truncate(whole);
        match closed {
            Some(header) => frame += header.padded_bytes as usize,
            None => return entries,
        }
    }
}

/// Makes the staging file void.
pub(crate) fn clear(file: &StagingFile, shape: SegmentShape) -> Result<()> {
    let stride = MemoryPool::staging_offset(1, u64::from(shape.segment_bytes));
    let pieces = file.metadata().map_err(io)?.len() / stride;
    for index in 0..pieces {
        file.write_all_at(&[0u8; HEADER_BYTES], index * stride).map_err(io)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_boot_id_is_unknown() {
        let known = parse_boot_id(b"7d9e3b0c-5b1c-4c7c-9f0e-2a51c8f7f1aa\n").expect("a boot id");
        assert_eq!(parse_boot_id(b"7d9e3b0c-5b1c-4c7c-9f0e-2a51c8f7f1aa\n"), Some(known));
        assert_ne!(parse_boot_id(b"7d9e3b0c-5b1c-4c7c-9f0e-2a51c8f7f1ab\n"), Some(known));
        for unknown in ["", "\n", "7d9e3b0c", "00000000-0000-0000-0000-000000000000\n"] {
            assert_eq!(parse_boot_id(unknown.as_bytes()), None, "{unknown:?}");
        }
    }
}
