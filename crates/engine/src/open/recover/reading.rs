//! Reads from devices with unreadable sectors: piece by piece, noting the unreadable ranges.

use std::ops::Range;

use esker_device::Buffer;
use futures_util::stream::{self, StreamExt, TryStreamExt};

use crate::base::error::{Error, Result};
use crate::segments::tier::Tier;

/// Bytes per read of a segment that cannot be read at once.
const PIECE_BYTES: u32 = 1 << 20;
/// Maximum number of those reads in flight.
const DEPTH: usize = 8;
const PAGE_BYTES: u32 = 4096;
/// Fill byte for unreadable ranges: neither zero nor part of the format.
const UNREAD: u8 = 0xff;

/// Bytes of a slot, some of which may be unreadable.
#[derive(Default)]
struct Part {
    bytes: Vec<u8>,
    /// Unreadable ranges.
    unread: Vec<Range<u32>>,
    error: Option<Error>,
}

impl Part {
    fn add(&mut self, other: Part) {
        self.bytes.extend_from_slice(&other.bytes);
        for range in other.unread {
            match self.unread.last_mut().filter(|last| last.end == range.start) {
                Some(last) => last.end = range.end,
                None => self.unread.push(range),
            }
        }
        self.error = self.error.take().or(other.error);
    }
}

/// Reads the border in front of a slot, as [`Tier::read_border`] does. An unreadable block counts as empty.
pub(super) async fn read_border(tier: &Tier, slot: u32, slots: u32) -> Result<(Buffer, usize)> {
    match tier.read_border(slot, slots).await {
        Err(error) if error.is_of_reading() => {
            tracing::error!(tier = tier.name().name(), slot, %error, "reading two slot ends one by one");
        }
        read => return read,
    }
    let (block, segment_bytes) = (tier.device()?.geometry().block_bytes, tier.shape().segment_bytes);
    let mut border = match slot.checked_sub(1) {
        Some(before) => read_page(tier, before, segment_bytes - block, block).await?,
        None => Part { bytes: vec![UNREAD; block as usize], ..Part::default() },
    };
    if slot < slots {
        border.add(read_page(tier, slot, 0, block).await?);
    }
    Ok((Buffer::copy_from(&border.bytes), block as usize))
}

/// Reads one complete segment after the other, into the same memory as long as no read fails.
#[derive(Default)]
pub(super) struct Whole {
    buffer: Option<Buffer>,
    /// Unreadable ranges.
    pub(super) unread: Vec<Range<u32>>,
}

impl Whole {
    /// Returns the bytes of the last segment read.
    pub(super) fn bytes(&self) -> &[u8] {
        self.buffer.as_deref().unwrap_or_default()
    }

    /// Reads a segment. Returns the error if no part of it is readable.
    pub(super) async fn read(&mut self, tier: &Tier, slot: u32) -> Result<()> {
        let segment_bytes = tier.shape().segment_bytes;
        self.unread.clear();
        match tier.read_into(slot, 0, segment_bytes.into(), self.buffer.take()).await {
            Ok((buffer, at)) => {
                assert_eq!((at, buffer.len()), (0, segment_bytes as usize), "segments are whole blocks");
                self.buffer = Some(buffer);
                return Ok(());
            }
            Err(error) if error.is_of_reading() => {}
            Err(error) => return Err(error),
        }
        let piece_bytes = segment_bytes.min(PIECE_BYTES);
        let pieces = (0..segment_bytes).step_by(piece_bytes as usize);
        let mut reads =
            stream::iter(pieces).map(|at| read_piece(tier, slot, at, piece_bytes)).buffered(DEPTH);
        let (mut buffer, mut at) = (tier.device()?.buffer(segment_bytes as usize), 0);
        let mut whole = Part::default();
        while let Some(mut piece) = reads.try_next().await? {
            buffer[at..][..piece.bytes.len()].copy_from_slice(&piece.bytes);
            at += std::mem::take(&mut piece.bytes).len();
            whole.add(piece);
        }
        if let Some(error) = whole.error {
            if whole.unread.first() == Some(&(0..segment_bytes)) {
                return Err(error);
            }
            tracing::error!(tier = tier.name().name(), slot, unread = ?whole.unread, %error, "part of a slot cannot be read");
        }
        (self.buffer, self.unread) = (Some(buffer), whole.unread);
        Ok(())
    }
}

async fn read_piece(tier: &Tier, slot: u32, at: u32, bytes: u32) -> Result<Part> {
    match tier.read(slot, at, bytes.into()).await {
        Ok((buffer, at)) => return Ok(Part { bytes: buffer[at..].to_vec(), ..Part::default() }),
        Err(error) if error.is_of_reading() => {}
        Err(error) => return Err(error),
    }
    let page = PAGE_BYTES.max(tier.device()?.geometry().block_bytes);
    let mut piece = Part::default();
    for at in (at..at + bytes).step_by(page as usize) {
        piece.add(read_page(tier, slot, at, page).await?);
    }
    Ok(piece)
}

async fn read_page(tier: &Tier, slot: u32, at: u32, bytes: u32) -> Result<Part> {
    match tier.read(slot, at, bytes.into()).await {
        Ok((buffer, at)) => Ok(Part { bytes: buffer[at..].to_vec(), ..Part::default() }),
        Err(error) if error.is_of_reading() => {
            let unread = std::iter::once(at..at + bytes).collect();
            Ok(Part { bytes: vec![UNREAD; bytes as usize], unread, error: Some(error) })
        }
        Err(error) => Err(error),
    }
}
