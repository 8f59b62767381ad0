//! The effect of a killed process on the writes that it had submitted: they are cut into pieces and queued, so some
//! pieces are written and others never are.

use super::cache::Change;
use super::{Contents, MemoryDevice, Payload};

impl MemoryDevice {
    /// Kills the process that uses the device. For each write in flight, `random` decides whether nothing is written,
    /// any subset of its blocks is, or it completes as usual. All other submitted operations complete.
    pub fn kill(&self, random: &mut dyn FnMut() -> u64) {
        let mut state = self.inner.state.lock();
        if state.vanished {
            return;
        }
        let writes =
            state.in_flight.iter().filter(|(_, (_, payload))| matches!(**payload, Payload::Write(_)));
        let writes: Vec<u64> = writes.map(|(index, _)| *index).collect();
        for index in writes {
            let way = random() % 5;
            if way == 0 {
                continue;
            }
            let Some((offset, payload)) = state.in_flight.remove(&index) else { continue };
            let Payload::Write(source) = &*payload else { continue };
            let cut = random();
            let block_bytes = self.inner.options.geometry.block_bytes as usize;
            let blocks = source.as_slice().chunks(block_bytes);
            let count = blocks.len() as u64;
            for (number, block) in (0..).zip(blocks) {
                let is_written = match way {
                    1 => false,
                    2 => number < cut % count,
                    3 => number >= cut % count,
                    _ => random() & 1 == 1,
                };
                if is_written {
                    self.write_block(&mut state, offset + number * block_bytes as u64, block);
                }
            }
        }
    }

    /// Applies one block of a killed write. It is not durable: a power failure may undo it.
    fn write_block(&self, state: &mut Contents, offset: u64, block: &[u8]) {
        if offset + block.len() as u64 > state.bytes {
            return;
        }
        state.live.write(offset, block);
        state.applied += 1;
        let change = Change::Write(block.to_vec());
        if self.inner.options.geometry.write_cache {
            state.media.cached(state.applied, offset, change);
        } else {
            state.media.durably(offset, &change);
        }
    }
}
