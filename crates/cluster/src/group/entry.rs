//! Entries of a group's log as bytes. Numbers of fixed length are little-endian.
//!
//! ```text
//! entry:    level (1) | number of proposals (varint) | proposals
//! proposal: number of changes (varint) | changes           a clear has one change, of which there is only the kind
//! change:   kind (1) | key length (varint) | key | [expiry (8)] | [codec (1) | raw length (4)] | [value length (varint) | value]
//! ```

use bytes::{Buf, BufMut, Bytes};
use esker_engine::StoredChange;

use crate::changes::{changes_bytes, get_counted, put_changes};
use crate::input::{get_number, put_number};
use crate::levels::Levels;

const CLEAR: u8 = 0xff;

/// Maximum length in bytes of the level and the number of proposals.
const HEAD_BYTES: usize = 1 + 10;

/// A proposal in an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Changes that become visible as a whole.
    Changes(Vec<StoredChange>),
    /// Deletes all keys.
    Clear,
}

/// Returns the length of a proposal in an entry, or a little more.
pub(super) fn step_bytes(step: &Step) -> usize {
    match step {
        Step::Clear => 2,
        Step::Changes(changes) => changes_bytes(changes),
    }
}

/// Encodes an entry for a cluster that uses a level.
pub fn encode_entry<'a>(level: u8, steps: impl ExactSizeIterator<Item = &'a Step> + Clone) -> Bytes {
    let bytes: usize = steps.clone().map(step_bytes).sum();
    let mut to = Vec::with_capacity(HEAD_BYTES + bytes);
    to.put_u8(level);
    put_number(&mut to, steps.len() as u64);
    for step in steps {
        match step {
            Step::Clear => to.put_slice(&[1, CLEAR]),
            Step::Changes(changes) => put_changes(&mut to, changes),
        }
    }
    to.into()
}

fn get_step(from: &mut Bytes) -> Option<Step> {
    let count = get_number(from)?;
    if count == 1 && from.first() == Some(&CLEAR) {
        from.advance(1);
        return Some(Step::Clear);
    }
    get_counted(count, from).map(Step::Changes)
}

/// Decodes an entry; `None` if it is damaged, or of a level that this program does not support. Keys and values share its memory.
pub fn decode_entry(entry: &Bytes) -> Option<Vec<Step>> {
    let mut from = entry.clone();
    if !Levels::supported().contains(from.try_get_u8().ok()?) {
        return None;
    }
    let count = get_number(&mut from)?;
    let mut steps = Vec::new();
    for _ in 0..count {
        steps.push(get_step(&mut from)?);
    }
    from.is_empty().then_some(steps)
}

#[cfg(test)]
#[path = "entry_tests.rs"]
mod tests;
