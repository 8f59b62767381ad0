//! Records that the last process left in the staging file.

use esker_log::{Entry, RecordView, Secret};

use crate::base::error::{Error, Result};

/// A segment as the last process left it in memory.
#[cfg_attr(test, derive(Clone))]
pub(crate) struct Staged {
    pub(crate) segment: u64,
    pub(crate) bytes: Vec<u8>,
    pub(crate) entries: Vec<Entry>,
}

impl Staged {
    /// Returns one of its records.
    pub(crate) fn record(&self, entry: &Entry, secret: &Secret) -> RecordView<'_> {
        let bytes = &self.bytes[entry.offset as usize..(entry.offset + entry.bytes) as usize];
        RecordView::parse(bytes, &secret.identity(self.segment, entry.offset))
            .expect("it verified when the staging file was read")
    }
}

/// Records that the last process left in the staging file.
pub(crate) struct Left {
    pub(crate) staged: Vec<Staged>,
    /// Descriptions of checksum mismatches, although only the process ended since the write: acknowledged records are lost.
    pub(crate) damage: Vec<String>,
}

impl Left {
    /// Combines the pieces that were read with the damage of the headers.
    pub(crate) fn of(pieces: Vec<(Staged, Option<usize>)>, mut damage: Vec<String>) -> Left {
        let mut staged = Vec::new();
        for (piece, damaged_at) in pieces {
            damage
                .extend(damaged_at.map(|offset| format!("segment {} is damaged at {offset}", piece.segment)));
            staged.push(piece);
        }
        Left { staged, damage }
    }

    /// Returns the segments. Damage is an error, unless the loss is accepted.
    pub(crate) fn accept(self, path: &str, accept_loss: bool) -> Result<Vec<Staged>> {
        let Some(first) = self.damage.first() else { return Ok(self.staged) };
        let what = format!("staging file {path}: {first}");
        if accept_loss {
            tracing::error!("{what}; accepted");
            return Ok(self.staged);
        }
        let what = format!(
            "{what}; records that were acknowledged and are nowhere else may be lost; open with accept_loss (esker serve --accept-loss) to go on \
             without them"
        );
        Err(Error::Corrupt { key: None, segment: 0, offset: 0, what })
    }
}
