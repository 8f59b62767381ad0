//! Mapping from databases to keyspaces, and the clear marks of keyspaces, as superblocks store them.
//!
//! A store with two tiers writes one superblock after the other, so after a crash they may differ. For both values the
//! later one can be determined.

use bincode::error::{DecodeError, EncodeError};
use bincode::{Decode, Encode, de::Decoder, enc::Encoder};
use esker_index::{KeyHash, Keyspace};

use crate::superblock::{Superblock, encoded_as};

/// Bits of a keyspace number.
const BITS: u32 = 4;

/// Keyspace of each database. Users address databases by number; swapping two databases changes this mapping and no
/// key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Databases {
    /// Number of changes so far.
    changes: u64,
    /// Four bits per database, the first database lowest.
    keyspaces: u64,
}

impl Databases {
    /// Number of databases.
    pub const COUNT: u8 = Keyspace::COUNT as u8;

    /// Returns the mapping as one word, for sharing between threads.
    pub fn bits(&self) -> u64 {
        self.keyspaces
    }

    /// Returns the keyspace of a database, given the word of [`bits`](Self::bits).
    ///
    /// # Panics
    /// If there is no such database.
    #[inline]
    pub fn keyspace(bits: u64, database: u8) -> Keyspace {
        assert!(database < Databases::COUNT, "database {database} of {}", Databases::COUNT);
        Keyspace::new((bits >> (u32::from(database) * BITS)) as u8 % Databases::COUNT).expect("of four bits")
    }

    /// Returns the database of a keyspace.
    pub fn database(&self, keyspace: Keyspace) -> u8 {
        Databases::database_by(self.keyspaces, keyspace)
    }

    /// Returns the database of a keyspace, given the word of [`bits`](Self::bits).
    pub fn database_by(bits: u64, keyspace: Keyspace) -> u8 {
        let has_it = |database: &u8| Databases::keyspace(bits, *database) == keyspace;
        // For an invalid superblock any answer is acceptable.
        (0..Databases::COUNT).find(has_it).unwrap_or(keyspace.number())
    }

    /// Returns the mapping with the keyspaces of two databases swapped.
    ///
    /// # Panics
    /// If there is no such database.
    #[must_use]
    pub fn swapped(&self, first: u8, second: u8) -> Databases {
        let number = |database| u64::from(Databases::keyspace(self.keyspaces, database).number());
        let both = number(first) ^ number(second);
        let differ = both << (u32::from(first) * BITS) ^ both << (u32::from(second) * BITS);
        Databases { changes: self.changes + 1, keyspaces: self.keyspaces ^ differ }
    }

    /// True if each database has a keyspace of its own, as in every valid store.
    pub fn is_sound(&self) -> bool {
        let mut met: Vec<u8> =
            (0..Databases::COUNT).map(|d| Databases::keyspace(self.keyspaces, d).number()).collect();
        met.sort_unstable();
        met.into_iter().eq(0..Databases::COUNT)
    }

    /// Returns the most recently changed mapping among the superblocks of a store.
    pub fn of<'a>(superblocks: impl IntoIterator<Item = &'a Superblock>) -> Databases {
        let all = superblocks.into_iter().map(|superblock| superblock.databases);
        all.max_by_key(|databases| databases.changes).unwrap_or_default()
    }
}

encoded_as!(Databases { changes, keyspaces });

impl Default for Databases {
    /// Maps each database to the keyspace of its number.
    fn default() -> Databases {
        let keyspaces = (0..u64::from(Databases::COUNT)).fold(0, |bits, d| bits | d << (d as u32 * BITS));
        Databases { changes: 0, keyspaces }
    }
}

/// Per keyspace, the sequence number up to which its records were cleared. On the medium it is a list of the keyspaces that
/// were, in ascending order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(into = "Vec<(u8, u64)>", try_from = "Vec<(u8, u64)>"))]
pub struct Cleared([u64; Keyspace::COUNT]);

impl From<Cleared> for Vec<(u8, u64)> {
    fn from(Cleared(all): Cleared) -> Vec<(u8, u64)> {
        (0..).zip(all).filter(|(_, through)| *through > 0).collect()
    }
}

impl TryFrom<Vec<(u8, u64)>> for Cleared {
    type Error = &'static str;

    fn try_from(list: Vec<(u8, u64)>) -> Result<Cleared, &'static str> {
        let mut cleared = Cleared::default();
        if !list.is_sorted_by(|one, other| one.0 < other.0) {
            return Err("cleared keyspaces out of order");
        }
        for (keyspace, through) in list {
            let keyspace =
                Keyspace::new(keyspace).ok_or("a cleared keyspace that this version does not have")?;
            cleared.clear(keyspace, through);
        }
        Ok(cleared)
    }
}

impl Encode for Cleared {
    fn encode<E: Encoder>(&self, encoder: &mut E) -> Result<(), EncodeError> {
        Vec::from(*self).encode(encoder)
    }
}

impl<Context> Decode<Context> for Cleared {
    fn decode<D: Decoder<Context = Context>>(decoder: &mut D) -> Result<Cleared, DecodeError> {
        Cleared::try_from(Vec::decode(decoder)?).map_err(DecodeError::Other)
    }
}

impl Cleared {
    /// Returns the sequence number up to which the records of a keyspace were cleared.
    pub fn through(&self, keyspace: Keyspace) -> u64 {
        self.0[usize::from(keyspace.number())]
    }

    /// True if a record was cleared.
    #[inline]
    pub fn covers(&self, hash: &KeyHash, sequence: u64) -> bool {
        sequence <= self.through(hash.keyspace())
    }

    /// Marks the records of a keyspace up to a sequence number as cleared.
    pub fn clear(&mut self, keyspace: Keyspace, through: u64) {
        self.0[usize::from(keyspace.number())] = through;
    }

    /// Returns the highest of the sequence numbers.
    pub fn highest(&self) -> u64 {
        self.0.iter().copied().max().unwrap_or(0)
    }

    /// Merges the superblocks of a store: for each keyspace the later clear.
    pub fn of<'a>(superblocks: impl IntoIterator<Item = &'a Superblock>) -> Cleared {
        let later = |Cleared(mut all): Cleared, superblock: &Superblock| {
            all.iter_mut().zip(superblock.cleared.0).for_each(|(one, other)| *one = other.max(*one));
            Cleared(all)
        };
        superblocks.into_iter().fold(Cleared::default(), later)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keyspaces(databases: &Databases) -> Vec<u8> {
        (0..16).map(|d| Databases::keyspace(databases.bits(), d).number()).collect()
    }

    #[test]
    fn databases_are_swapped_and_found_by_their_keyspaces() {
        let mut databases = Databases::default();
        let mut wanted: Vec<u8> = (0..16).collect();
        assert_eq!(keyspaces(&databases), wanted);
        for (first, second) in [(0, 15), (15, 1), (3, 3), (0, 1), (14, 0)] {
            databases = databases.swapped(first, second);
            wanted.swap(first.into(), second.into());
            assert_eq!(keyspaces(&databases), wanted);
            assert!(databases.is_sound());
            for (database, keyspace) in (0..).zip(&wanted) {
                assert_eq!(databases.database(Keyspace::new(*keyspace).expect("below 16")), database);
            }
        }
        assert_eq!(databases.changes, 5);
        let twice = Databases { keyspaces: databases.keyspaces & !0xff, ..databases };
        assert!(!twice.is_sound(), "two databases have the first keyspace");
    }
}
