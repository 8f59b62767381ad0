//! Positions of iterations. In a replicated store, an iteration over database 0 goes through the keyspaces of all groups, one
//! after the other, and its cursor begins with the group.

use esker_index::{Cursor as IndexCursor, Keyspace};

use crate::catalog::routing::data_groups;
use crate::read::Reader;
use crate::read::scan::Cursor;

/// Number of bits of a position in one keyspace.
const INDEX_BITS: u32 = 42;
const INDEX_MASK: u64 = (1 << INDEX_BITS) - 1;

impl Reader {
    /// Returns the keyspace and the position in it that a cursor stands for; `None` for a number beyond the last keyspace.
    pub(super) fn position(&self, database: u8, cursor: Cursor) -> Option<(Keyspace, IndexCursor)> {
        let raw = cursor.to_u64();
        if !self.catalog.is_spread(database) {
            return Some((self.catalog.keyspace(database), IndexCursor::from_u64(raw)));
        }
        let keyspace = data_groups().nth(usize::try_from(raw >> INDEX_BITS).ok()?)?;
        Some((keyspace, IndexCursor::from_u64(raw & INDEX_MASK)))
    }

    /// Returns the cursor of the position after a step in a keyspace; `None` at the end.
    pub(super) fn next_position(
        &self,
        database: u8,
        keyspace: Keyspace,
        next: Option<IndexCursor>,
    ) -> Option<Cursor> {
        if !self.catalog.is_spread(database) {
            return next.map(|next| Cursor::from_u64(next.to_u64()));
        }
        let mut groups = data_groups().enumerate().skip_while(|(_, group)| *group != keyspace);
        let (place, _) = groups.next()?;
        if let Some(next) = next {
            return Some(cursor_of(place, next.to_u64()));
        }
        let has_keys = |(_, group): &(usize, Keyspace)| self.catalog.index.len_of(*group) > 0;
        groups.find(has_keys).map(|(place, _)| cursor_of(place, 0))
    }

    /// Returns true if the keys of a keyspace are still those of a database.
    pub(super) fn is_in_database(&self, database: u8, keyspace: Keyspace) -> bool {
        self.catalog.is_spread(database) || self.catalog.keyspace(database) == keyspace
    }

    /// Returns a cursor that is evenly distributed if `random` is.
    pub(crate) fn random_cursor(&self, database: u8, random: u64) -> Cursor {
        if !self.catalog.is_spread(database) {
            return Cursor::from_u64(random & INDEX_MASK);
        }
        let with_keys: Vec<usize> = data_groups()
            .enumerate()
            .filter(|(_, group)| self.catalog.index.len_of(*group) > 0)
            .map(|(place, _)| place)
            .collect();
        let chosen = (random >> INDEX_BITS) as usize % with_keys.len().max(1);
        cursor_of(with_keys.get(chosen).copied().unwrap_or(0), random & INDEX_MASK)
    }
}

fn cursor_of(place: usize, index: u64) -> Cursor {
    Cursor::from_u64((place as u64) << INDEX_BITS | index)
}
