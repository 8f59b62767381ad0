//! An operation on its way through the ring: it owns its memory and its completion until the kernel's completion was
//! seen.

use std::io;
use std::ops::Range;
use std::os::fd::RawFd;
use std::sync::Arc;
use std::task::Waker;

use esker_seeded_bugs::{Bug, planted};
use io_uring::{opcode, squeue, types};

use super::ring::SLAB_INDEX;
use super::scheduler::PIECE_BYTES;
use crate::buffer::Pool;
use crate::file::{DeviceFile, RETRIES_MAX, is_transient, progress};
use crate::pending::Completion;
use crate::split_writes::Piece;
use crate::{Buffer, DeviceError, OperationKind, PlacementHandle, Source};

/// Maximum bytes per kernel request, in whole blocks.
const TRANSFER_BYTES_MAX: usize = 1 << 30;
/// Maximum length in bytes of a short read.
const SHORT_BYTES: usize = 64 << 10;

pub(crate) enum Request {
    Read { buffer: Buffer, behind: bool, completion: Completion<(Buffer, Result<(), DeviceError>)> },
    Write { piece: Piece, dsync: bool, handle: PlacementHandle },
    Flush { completion: Completion<Result<(), DeviceError>> },
}

/// Scheduling class of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Length {
    /// A short foreground read.
    Short,
    /// May be submitted in pieces, after others.
    Long,
    Other,
}

pub(crate) struct Operation {
    request: Request,
    offset: u64,
    bytes: usize,
    /// Bytes transferred so far; the rest of a short transfer is submitted again.
    done: usize,
    /// Retries without progress.
    retries: u32,
    /// True if the memory is part of the registered slab.
    registered: bool,
}

impl Operation {
    pub(crate) fn new(request: Request, offset: u64, pool: Option<&Arc<Pool>>) -> Operation {
        let from_pool = |buffer: &Buffer| pool.is_some_and(|pool| buffer.is_from(pool));
        let (bytes, registered) = match &request {
            Request::Read { buffer, .. } => (buffer.len(), from_pool(buffer)),
            Request::Write { piece, .. } => {
                let registered = matches!(piece.source(), Source::Owned(buffer) if from_pool(buffer));
                (piece.bytes().len(), registered)
            }
            Request::Flush { .. } => (0, false),
        };
        Operation { request, offset, bytes, done: 0, retries: 0, registered }
    }

    /// Returns the bytes per piece for a limit of `most_bytes`; a write's pieces are whole write units.
    pub(crate) fn bytes_at_a_time(&self, most_bytes: usize, unit_bytes: usize) -> usize {
        match self.request {
            Request::Write { .. } => most_bytes.max(unit_bytes),
            _ => most_bytes,
        }
    }

    pub(crate) fn length(&self) -> Length {
        match self.request {
            Request::Read { behind: false, .. } if self.bytes <= SHORT_BYTES => Length::Short,
            Request::Read { behind: true, .. } if self.bytes > PIECE_BYTES => Length::Long,
            // Excludes durable writes, because each of their pieces would be made durable separately.
            Request::Write { dsync: false, ref piece, .. } if piece.bytes_of_whole() > PIECE_BYTES => {
                Length::Long
            }
            _ => Length::Other,
        }
    }

    /// Returns the submission entry for the remainder, limited to `most_bytes` bytes (whole blocks). Its pointers are
    /// valid while this operation exists: moving the operation does not move the memory that it owns.
    pub(crate) fn entry(&mut self, file: RawFd, most_bytes: usize) -> squeue::Entry {
        let (at, left) = self.left(most_bytes);
        let file = types::Fd(file);
        match &mut self.request {
            Request::Read { buffer, .. } => {
                let target = &mut buffer[left];
                let (start, len) = (target.as_mut_ptr(), target.len() as u32);
                if self.registered {
                    opcode::ReadFixed::new(file, start, len, SLAB_INDEX).offset(at).build()
                } else {
                    opcode::Read::new(file, start, len).offset(at).build()
                }
            }
            Request::Write { piece, dsync, handle } => {
                let bytes = &piece.bytes()[left];
                let (start, len) = (bytes.as_ptr(), bytes.len() as u32);
                let flags = if *dsync { libc::RWF_DSYNC } else { 0 };
                if self.registered {
                    let write = opcode::WriteFixed::new(file, start, len, SLAB_INDEX).offset(at);
                    write.rw_flags(flags).write_stream(handle.0).build()
                } else {
                    let write = opcode::Write::new(file, start, len).offset(at);
                    write.rw_flags(flags).write_stream(handle.0).build()
                }
            }
            Request::Flush { .. } => opcode::Fsync::new(file).flags(types::FsyncFlags::DATASYNC).build(),
        }
    }

    /// As [`entry`](Self::entry), for a read on a ring without registered memory; `None` for other operations.
    pub(crate) fn read_entry(&mut self, file: RawFd) -> Option<squeue::Entry> {
        let (at, left) = self.left(TRANSFER_BYTES_MAX);
        let Request::Read { buffer, .. } = &mut self.request else { return None };
        let target = &mut buffer[left];
        let read = opcode::Read::new(types::Fd(file), target.as_mut_ptr(), target.len() as u32);
        Some(read.offset(at).build())
    }

    /// Returns the device offset of the remainder, and the range of its bytes to submit now, at most `most_bytes`.
    fn left(&self, most_bytes: usize) -> (u64, Range<usize>) {
        let end = self.bytes.min(self.done + most_bytes.min(TRANSFER_BYTES_MAX));
        (self.offset + self.done as u64, self.done..end)
    }

    /// Applies the result of a completion. Returns `None` if the remainder must be submitted, otherwise the outcome of
    /// the whole.
    pub(crate) fn advance(&mut self, result: i32, block_bytes: usize) -> Option<io::Result<()>> {
        if let Some(errno) = result.checked_neg().filter(|errno| *errno > 0) {
            let error = io::Error::from_raw_os_error(errno);
            // A flush is never retried: the kernel reports lost bytes only once, so a retry could succeed although
            // bytes were lost.
            let is_flush = matches!(self.request, Request::Flush { .. });
            let is_repeated = if is_flush { planted(Bug::FailedFlushRepeated) } else { is_transient(&error) };
            if is_repeated && self.retries < RETRIES_MAX {
                self.retries += 1;
                return None;
            }
            return Some(Err(error));
        }
        if self.done == self.bytes {
            return Some(Ok(()));
        }
        match progress(self.done, result as usize, self.bytes, block_bytes) {
            Ok(done) => {
                self.done = done;
                self.retries = 0;
                (done == self.bytes).then_some(Ok(()))
            }
            Err(error) => Some(Err(error)),
        }
    }

    /// Delivers the result and returns the waker to wake.
    pub(crate) fn complete(self, outcome: io::Result<()>, file: &DeviceFile) -> Option<Waker> {
        let Operation { request, offset, bytes, .. } = self;
        let fail = |op| move |source| file.error(op, offset, bytes, source);
        match request {
            Request::Read { buffer, completion, .. } => {
                file.counters.completed();
                completion.complete((buffer, outcome.map_err(fail(OperationKind::Read))))
            }
            Request::Write { piece, .. } => piece.end(outcome),
            Request::Flush { completion } => {
                file.counters.completed();
                completion.complete(outcome.map_err(fail(OperationKind::Flush)))
            }
        }
    }

    /// Fails an operation whose completion will never be seen. The kernel may still use its memory, which is leaked.
    pub(crate) fn abandon(mut self, errno: i32, file: &DeviceFile) -> Option<Waker> {
        let error = io::Error::from_raw_os_error(errno);
        match self.request {
            Request::Read { ref mut buffer, .. } => {
                std::mem::forget(std::mem::replace(buffer, Buffer::zeroed(self.bytes)));
                self.complete(Err(error), file)
            }
            Request::Write { piece, .. } => piece.abandon(error),
            Request::Flush { .. } => self.complete(Err(error), file),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Pending;

    const BLOCK: usize = 512;

    fn flush() -> Operation {
        Operation::new(Request::Flush { completion: Pending::new().1 }, 0, None)
    }

    fn write(dsync: bool) -> Operation {
        let file = tempfile::tempfile().expect("a file");
        let volume = crate::probe::Volume::default();
        let file = Arc::new(DeviceFile::new(file, "a file".into(), crate::Geometry::memory(4096), volume));
        let source = crate::Source::Owned(Buffer::zeroed(BLOCK));
        let mut pieces = crate::split_writes::pieces(&file, source, 0, Pending::new().1);
        let piece = pieces.next().expect("it has one");
        Operation::new(Request::Write { piece, dsync, handle: PlacementHandle(0) }, 0, None)
    }

    /// A failed flush must not be retried, because its retry could succeed although bytes were lost. A failed write may
    /// be retried, because the retry writes all of its bytes again.
    #[test]
    fn a_failed_flush_is_not_asked_again() {
        let errors =
            [libc::EIO, libc::ENOSPC, libc::EDQUOT, libc::EINTR, libc::EAGAIN, libc::ECANCELED, libc::ENODEV];
        let repeated = [libc::EINTR, libc::EAGAIN];
        for errno in errors {
            for (name, mut operation, may_repeat) in [
                ("flush", flush(), false),
                ("write", write(false), repeated.contains(&errno)),
                ("durable write", write(true), repeated.contains(&errno)),
            ] {
                match operation.advance(-errno, BLOCK) {
                    None => assert!(may_repeat, "a {name} that failed with {errno} is submitted again"),
                    Some(outcome) => {
                        let found = outcome.expect_err("it failed").raw_os_error();
                        assert_eq!((found, may_repeat), (Some(errno), false), "{name}");
                    }
                }
            }
        }
        assert!(matches!(flush().advance(0, BLOCK), Some(Ok(()))));
    }
}
