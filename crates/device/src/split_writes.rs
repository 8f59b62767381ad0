//! Cuts writes into pieces that the block layer does not split.
//!
//! The kernel splits a write to a block device that exceeds one command's limit of bytes (`max_sectors_kb`) or of
//! physically contiguous memory segments (`max_segments`; in the worst case one per page). The split is often in the
//! middle of a write unit, and a drive that receives half a unit reads and rewrites the whole unit. This module
//! therefore cuts writes in advance, at multiples of the largest power of two that every command can hold. Units are
//! powers of two, so a cut never falls within a unit.
//!
//! A unit may be longer than one command holds, such as the stripe of an array. Then each piece is one unit: the kernel cuts
//! it, and submits the parts together, so that the array can collect them to a full stripe before it writes any.
//!
//! The block layer may merge pieces again. It merges whole pieces, so its commands still consist of whole units.
//!
//! The pieces of a write are in flight concurrently, as the kernel's split commands would be, and a durable write is
//! durable piece by piece. The write completes with its last piece, which drops the bytes and delivers the result.

use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::task::Waker;

use esker_seeded_bugs::{Bug, planted};
use parking_lot::Mutex;

use crate::file::DeviceFile;
use crate::pending::Completion;
use crate::{DeviceError, OperationKind, Source};

/// State shared by the pieces of one write.
struct Whole {
    file: Arc<DeviceFile>,
    source: Source,
    offset: u64,
    state: Mutex<Failures>,
    completion: Completion<Result<(), DeviceError>>,
}

#[derive(Default)]
struct Failures {
    /// The error of the first piece that failed.
    failure: Option<io::Error>,
    /// True if the kernel may still read the bytes, and write them to the file, at any later time.
    leaked: bool,
}

/// A piece of a write, or all of it.
pub(crate) struct Piece {
    whole: Arc<Whole>,
    range: Range<usize>,
}

/// Cuts a write to `file` into pieces. Each piece must be ended with [`Piece::end`] or [`Piece::abandon`].
pub(crate) fn pieces(
    file: &Arc<DeviceFile>,
    source: Source,
    offset: u64,
    completion: Completion<Result<(), DeviceError>>,
) -> impl Iterator<Item = Piece> {
    let bytes = source.len();
    let longest = file.longest_piece(offset, source.as_slice());
    let mut start = 0;
    let mut rest =
        Some(Arc::new(Whole { file: file.clone(), source, offset, state: Mutex::default(), completion }));
    std::iter::from_fn(move || {
        // The last piece takes the remaining reference, so that the last piece to end can detect that it is the last.
        let whole = rest.take()?;
        let end = longest.map_or(bytes, |longest| end_of_piece(offset, start, longest).min(bytes));
        if end < bytes {
            rest = Some(whole.clone());
        }
        Some(Piece { whole, range: std::mem::replace(&mut start, end)..end })
    })
}

/// Returns the end of the piece that begins `start` bytes into a write at `offset`: a multiple of `longest` on the
/// device.
fn end_of_piece(offset: u64, start: usize, longest: usize) -> usize {
    let into = (offset + start as u64) % longest as u64;
    if planted(Bug::WriteCutWithinUnit) { start + longest } else { start + longest - into as usize }
}

impl Piece {
    /// Returns the bytes to write.
    pub(crate) fn bytes(&self) -> &[u8] {
        if planted(Bug::BufferFreedWithFuture) && !self.whole.completion.is_awaited() {
            // Simulates memory that was freed and reused.
            static OTHERS: [u8; 1 << 20] = [0xdd; 1 << 20];
            return &OTHERS[..self.range.len().min(OTHERS.len())];
        }
        &self.whole.source.as_slice()[self.range.clone()]
    }

    /// Returns the byte offset on the device.
    pub(crate) fn offset(&self) -> u64 {
        self.whole.offset + self.range.start as u64
    }

    /// Writes the piece with blocking calls.
    pub(crate) fn write(&self, dsync: bool) -> io::Result<()> {
        self.whole.file.write(self.offset(), self.bytes(), dsync)
    }

    /// Returns the length in bytes of the whole write.
    pub(crate) fn bytes_of_whole(&self) -> usize {
        self.whole.source.len()
    }

    /// Returns the source of the whole write.
    pub(crate) fn source(&self) -> &Source {
        &self.whole.source
    }

    /// Ends the piece with its result. The last piece completes the whole write and returns the waker to wake.
    #[must_use = "the waiter sleeps until it is woken"]
    pub(crate) fn end(self, outcome: io::Result<()>) -> Option<Waker> {
        if let Err(error) = outcome {
            self.whole.state.lock().failure.get_or_insert(error);
        }
        let Whole { file, source, offset, state, completion } = Arc::into_inner(self.whole)?;
        let (bytes, state) = (source.len(), state.into_inner());
        let outcome = match state.failure {
            Some(error) => Err(file.error(OperationKind::Write, offset, bytes, error)),
            None => Ok(()),
        };
        file.counters.completed();
        // Memory and file are released before the result is delivered, because otherwise a waiter could not recycle the
        // segment or reopen the device.
        if state.leaked {
            std::mem::forget(source);
            // Keeps the device lock for the life of the process, because this write may still reach the medium and
            // would overwrite the data of the next opener.
            std::mem::forget(file);
        } else {
            drop(source);
            drop(file);
        }
        completion.complete(outcome)
    }

    /// Ends a piece that the kernel may still read and write. Its memory is never freed and its file never closed.
    #[must_use = "the waiter sleeps until it is woken"]
    pub(crate) fn abandon(self, error: io::Error) -> Option<Waker> {
        self.whole.state.lock().leaked = true;
        self.end(Err(error))
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt;

    use super::*;
    use crate::probe::{CommandLimit, Volume};
    use crate::{Buffer, DeviceKind, Geometry, Pending};

    const KIB: usize = 1 << 10;

    /// A device with commands of at most 128 KiB, or 64 KiB from memory that is not page-aligned.
    fn device(unit_bytes: u32) -> Arc<DeviceFile> {
        let file = tempfile::tempfile().expect("a file");
        let limit = CommandLimit { of_pages: 128 * KIB, of_memory: 64 * KIB };
        let volume = Volume { limit: Some(limit), start_bytes: 0 };
        let geometry = Geometry { kind: DeviceKind::Block, ..Geometry::memory(16 << 20) };
        let file = Arc::new(DeviceFile::new(file, "device".into(), geometry, volume));
        file.set_unit_bytes(unit_bytes);
        file
    }

    fn cut(offset: u64, bytes: usize) -> (Vec<Piece>, Pending<Result<(), DeviceError>>, Arc<DeviceFile>) {
        cut_on(device(0), offset, bytes)
    }

    fn cut_on(
        file: Arc<DeviceFile>,
        offset: u64,
        bytes: usize,
    ) -> (Vec<Piece>, Pending<Result<(), DeviceError>>, Arc<DeviceFile>) {
        let mut buffer = Buffer::zeroed(bytes);
        buffer.iter_mut().enumerate().for_each(|(at, byte)| *byte = (at / 512) as u8);
        file.counters.write(bytes);
        let (pending, completion) = Pending::new();
        (pieces(&file, buffer.into(), offset, completion).collect(), pending, file)
    }

    fn ranges(offset: u64, bytes: usize) -> Vec<(u64, usize)> {
        ranges_in(0, offset, bytes)
    }

    fn ranges_in(unit_bytes: u32, offset: u64, bytes: usize) -> Vec<(u64, usize)> {
        let (pieces, pending, _) = cut_on(device(unit_bytes), offset, bytes);
        drop(pending);
        let ranges = pieces.iter().map(|piece| (piece.offset(), piece.bytes().len())).collect();
        pieces.into_iter().for_each(|piece| drop(piece.end(Ok(()))));
        ranges
    }

    #[test]
    fn cuts_lie_on_multiples_of_what_a_command_holds() {
        let k = KIB as u64;
        assert_eq!(ranges(0, 0), [(0, 0)]);
        assert_eq!(ranges(64 * k, 64 * KIB), [(64 * k, 64 * KIB)]);
        assert_eq!(ranges(0, 256 * KIB), [(0, 128 * KIB), (128 * k, 128 * KIB)]);
        assert_eq!(
            ranges(96 * k, 320 * KIB),
            [(96 * k, 32 * KIB), (128 * k, 128 * KIB), (256 * k, 128 * KIB), (384 * k, 32 * KIB)]
        );
        // If memory and device offset are not page-aligned to each other, the transfer touches one more page.
        assert_eq!(ranges(512, 128 * KIB), [(512, 64 * KIB - 512), (64 * k, 64 * KIB), (128 * k, 512)]);
    }

    #[test]
    fn units_longer_than_a_command_are_one_piece() {
        let k = KIB as u64;
        assert_eq!(ranges_in(64 << 10, 0, 256 * KIB), ranges(0, 256 * KIB), "a command holds two units");
        assert_eq!(ranges_in(512 << 10, 0, 512 * KIB), [(0, 512 * KIB)]);
        assert_eq!(ranges_in(512 << 10, 512 * k, 1024 * KIB), [(512 * k, 512 * KIB), (1024 * k, 512 * KIB)]);
    }

    #[test]
    fn every_byte_is_in_one_piece() {
        let (pieces, pending, file) = cut(96 << 10, 320 << 10);
        for piece in pieces {
            file.file.write_all_at(piece.bytes(), piece.offset()).expect("it is written");
            drop(piece.end(Ok(())));
        }
        pending.wait().expect("it is written");
        let mut found = vec![0; 320 << 10];
        file.file.read_exact_at(&mut found, 96 << 10).expect("it is read");
        assert!(found.iter().enumerate().all(|(at, byte)| *byte == (at / 512) as u8));
    }

    #[test]
    fn bytes_outlive_a_dropped_answer() {
        let (pieces, pending, _) = cut(0, 256 << 10);
        drop(pending);
        for piece in pieces {
            let from = piece.offset() as usize;
            assert!(
                piece.bytes().iter().zip(from..).all(|(byte, at)| *byte == (at / 512) as u8),
                "from {from}"
            );
            drop(piece.end(Ok(())));
        }
    }

    #[test]
    fn the_last_to_end_answers_with_the_first_failure() {
        for order in [[0, 1, 2], [2, 0, 1], [1, 2, 0]] {
            let (pieces, pending, file) = cut(0, 384 << 10);
            let mut pieces: Vec<Option<Piece>> = pieces.into_iter().map(Some).collect();
            for (turn, piece) in order.into_iter().enumerate() {
                assert_eq!(file.counters.snapshot().in_flight, 1);
                let outcome = match turn {
                    0 => Ok(()),
                    1 => Err(io::Error::from_raw_os_error(libc::EIO)),
                    _ => Err(io::Error::from_raw_os_error(libc::ENOSPC)),
                };
                drop(pieces[piece].take().expect("it is ended once").end(outcome));
            }
            assert_eq!(file.counters.snapshot().in_flight, 0);
            let error = pending.wait().expect_err("a piece failed");
            assert_eq!(error.errno(), Some(libc::EIO));
            assert!(error.to_string().contains("write of 393216 bytes at offset 0"), "{error}");
        }
    }

    #[test]
    fn buffer_of_abandoned_piece_is_not_freed_by_another_piece() {
        let file = device(0);
        let mut appender = crate::SegmentBuffer::anonymous(256 << 10).expect("memory");
        appender.append_with(256 << 10, |_| {});
        let (pending, completion) = Pending::new();
        file.counters.write(256 << 10);
        let source = Source::Shared { buffer: appender.buffer(), range: 0..256 << 10 };
        let mut pieces = pieces(&file, source, 0, completion);
        let (first, second) = (pieces.next().expect("one"), pieces.next().expect("two"));
        drop(first.abandon(io::Error::from_raw_os_error(libc::EIO)));
        drop(second.end(Ok(())));
        pending.wait().expect_err("a piece was abandoned");
        assert!(!appender.restart(), "the kernel's reference stays");
    }
}
