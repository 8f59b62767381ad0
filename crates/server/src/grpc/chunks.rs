//! The chunks of an upload, collected until all have arrived.

use bytes::{Bytes, BytesMut};

/// Chunks shorter than this are merged, because every chunk kept separately has a memory overhead, and a client may send any
/// number of short ones. In bytes.
const SHORT_BYTES: usize = 4 << 10;

/// Size of a piece of merged chunks, in bytes.
const PIECE_BYTES: usize = 64 << 10;

#[derive(Default)]
pub(super) struct Chunks {
    pieces: Vec<Bytes>,
    /// Short chunks that came last.
    short: BytesMut,
}

impl Chunks {
    pub(super) fn push(&mut self, chunk: Bytes) {
        if chunk.len() >= SHORT_BYTES {
            self.end_piece();
            self.pieces.push(chunk);
            return;
        }
        self.short.extend_from_slice(&chunk);
        if self.short.len() >= PIECE_BYTES {
            self.end_piece();
        }
    }

    fn end_piece(&mut self) {
        if !self.short.is_empty() {
            self.pieces.push(self.short.split().freeze());
        }
    }

    /// Returns all chunks as one value. A single chunk is not copied.
    pub(super) fn join(mut self) -> Bytes {
        self.end_piece();
        match <[Bytes; 1]>::try_from(self.pieces) {
            Ok([chunk]) => chunk,
            Err(pieces) => {
                let mut value = BytesMut::with_capacity(pieces.iter().map(Bytes::len).sum());
                pieces.iter().for_each(|piece| value.extend_from_slice(piece));
                value.freeze()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_are_joined_and_short_ones_take_little() {
        let mut chunks = Chunks::default();
        (0..100_000).for_each(|_| chunks.push(Bytes::new()));
        assert_eq!((chunks.pieces.len(), chunks.short.capacity()), (0, 0));
        assert!(chunks.join().is_empty());

        let (mut chunks, mut whole) = (Chunks::default(), Vec::new());
        for length in (0..20_000).map(|at| at % 7).chain([5000, 3, 4096, 4096, 4095, 0]) {
            let chunk = vec![length as u8; length];
            whole.extend_from_slice(&chunk);
            chunks.push(chunk.into());
        }
        assert!(chunks.pieces.len() <= 6, "{} pieces", chunks.pieces.len());
        assert!(chunks.join() == whole);

        let (one, mut chunks) = (Bytes::from(vec![7; 10_000]), Chunks::default());
        chunks.push(one.clone());
        assert_eq!(chunks.join().as_ptr(), one.as_ptr());
    }
}
