//! Several devices as one, for reading without a lock.

use std::io;
use std::sync::Arc;

use super::{SlotPlace, StripeMap};

use crate::{Buffer, ReadAt};

/// Bytes of a position: its device, if it has one, and the number of its covered slots.
type Source = (Option<Arc<dyn ReadAt>>, u32);

/// Devices that look like one. The range in front of the slots is that of the first device.
pub struct StripedReader {
    sources: Vec<Source>,
    map: StripeMap,
}

impl StripedReader {
    /// Joins devices, in the order of their positions.
    pub fn new(sources: Vec<Source>, map: StripeMap) -> StripedReader {
        StripedReader { sources, map }
    }

    /// Returns the devices.
    pub fn sources(&self) -> impl Iterator<Item = &Arc<dyn ReadAt>> {
        self.sources.iter().filter_map(|(source, _)| source.as_ref())
    }

    /// Reads within the head, or within a slot.
    fn read_piece(&self, offset: u64, buffer: &mut Buffer) -> io::Result<()> {
        let Some(in_slots) = offset.checked_sub(self.map.head_bytes()) else {
            return match self.sources().next() {
                Some(source) => source.read_at(offset, buffer),
                None => {
                    buffer.fill(0);
                    Ok(())
                }
            };
        };
        let slot = u32::try_from(in_slots / self.map.slot_bytes()).ok();
        let place = slot.and_then(|slot| self.map.place(slot));
        let source = place.and_then(|SlotPlace { member, local }| match self.sources.get(member) {
            Some((Some(source), covered)) if local < *covered => Some((source, local)),
            _ => None,
        });
        let Some((source, local)) = source else {
            buffer.fill(0);
            return Ok(());
        };
        let at = self.map.head_bytes() + u64::from(local) * self.map.slot_bytes();
        source.read_at(at + in_slots % self.map.slot_bytes(), buffer)
    }
}

impl ReadAt for StripedReader {
    fn path(&self) -> String {
        let paths: Vec<String> = self.sources().map(|source| source.path()).collect();
        paths.join(", ")
    }

    /// Returns the length of one device with all slots.
    fn bytes(&self) -> u64 {
        self.map.head_bytes() + u64::from(self.map.slots()) * self.map.slot_bytes()
    }

    fn read_at(&self, offset: u64, buffer: &mut Buffer) -> io::Result<()> {
        let (head, slot) = (self.map.head_bytes(), self.map.slot_bytes());
        let end = offset + buffer.len() as u64;
        let piece_end = |at: u64| match at.checked_sub(head) {
            None => head.min(end),
            Some(in_slots) => (head + (in_slots / slot + 1) * slot).min(end),
        };
        if piece_end(offset) == end {
            return self.read_piece(offset, buffer);
        }
        let mut at = offset;
        while at < end {
            let until = piece_end(at);
            let mut piece = Buffer::zeroed((until - at) as usize);
            self.read_piece(at, &mut piece)?;
            buffer[(at - offset) as usize..(until - offset) as usize].copy_from_slice(&piece);
            at = until;
        }
        Ok(())
    }
}
