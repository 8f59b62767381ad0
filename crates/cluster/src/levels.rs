//! Levels of the protocol between nodes and of the entries in the log, for rolling upgrades. See
//! `docs/decisions/0051-groups.md`.
//!
//! A level covers everything that another node, or a later start with another program, has to understand: frames, requests, entries,
//! and the keys of the meta group. The cluster stores the level that is in use; a program supports a range.
//!
//! | level | contents |
//! |--:|---|
//! | 1 | the first clusters |
//! | 2 | the requests for keys and damage of a copy (`HEALING_LEVEL`); frames and entries carry the number 2 |

use std::fmt;

use bytes::{Buf, BufMut, Bytes};
use esker_seeded_bugs::{Bug, planted};

use crate::input::{get_text, put_text};

/// Level of a cluster that has stored none.
pub const FIRST_LEVEL: u8 = 1;
/// Level from which on nodes are asked for keys of a group, and for their damage.
pub(crate) const HEALING_LEVEL: u8 = 2;

/// Lowest and highest level of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Levels {
    /// Lowest level.
    pub lowest: u8,
    /// Highest level.
    pub highest: u8,
}

impl Levels {
    /// Returns the levels that this program supports.
    pub fn supported() -> Levels {
        Levels { lowest: FIRST_LEVEL, highest: if planted(Bug::EarlierProgram) { FIRST_LEVEL } else { 2 } }
    }

    /// Returns the levels that a node accepts in a cluster that uses a level.
    pub(crate) fn from(self, level: u8) -> Levels {
        let lowest = if planted(Bug::LowerLevelAdmitted) { self.lowest } else { self.lowest.max(level) };
        Levels { lowest: lowest.min(self.highest), ..self }
    }

    /// Returns true if a level is in the range.
    pub fn contains(self, level: u8) -> bool {
        (self.lowest..=self.highest).contains(&level)
    }

    /// Returns the level of a connection between two programs in a cluster that uses `level`; `None` if they have none in common.
    pub(crate) fn common(self, other: Levels, level: u8) -> Option<u8> {
        let (lowest, highest) = (self.lowest.max(other.lowest), self.highest.min(other.highest));
        (lowest <= highest).then(|| level.clamp(lowest, highest))
    }
}

impl fmt::Display for Levels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.lowest == self.highest {
            true => write!(f, "level {}", self.lowest),
            false => write!(f, "levels {} to {}", self.lowest, self.highest),
        }
    }
}

/// The program of a node, as it says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program {
    /// Levels that it supports.
    pub levels: Levels,
    /// Its version, or an empty text for a program that does not say.
    pub version: String,
}

impl Program {
    /// Returns this program.
    pub fn own() -> Program {
        Program { levels: Levels::supported(), version: env!("CARGO_PKG_VERSION").to_owned() }
    }

    /// Returns a program that does not know the question: it has the first level alone.
    pub(crate) fn first() -> Program {
        let levels = Levels { lowest: FIRST_LEVEL, highest: FIRST_LEVEL };
        Program { levels, version: String::new() }
    }

    /// Appends it to a message.
    pub(crate) fn put(&self, to: &mut Vec<u8>) {
        to.put_slice(&[self.levels.lowest, self.levels.highest]);
        put_text(to, &self.version);
    }

    /// Takes it from a message; `None` if it is damaged.
    pub(crate) fn get(from: &mut Bytes) -> Option<Program> {
        let (lowest, highest) = (from.try_get_u8().ok()?, from.try_get_u8().ok()?);
        let version = get_text(from)?;
        (lowest <= highest).then_some(Program { levels: Levels { lowest, highest }, version })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connection_uses_the_level_of_the_cluster_where_both_have_it() {
        let levels = |lowest, highest| Levels { lowest, highest };
        for (one, other, level, common) in [
            (levels(1, 2), levels(1, 1), 1, Some(1)),
            (levels(1, 2), levels(1, 2), 1, Some(1)),
            (levels(2, 2), levels(1, 2), 1, Some(2)),
            (levels(1, 3), levels(2, 4), 2, Some(2)),
            (levels(1, 3), levels(1, 3), 9, Some(3)),
            (levels(2, 2), levels(1, 1), 2, None),
            (levels(1, 2), levels(7, 9), 1, None),
        ] {
            assert_eq!(one.common(other, level), common, "{one} and {other}");
            assert_eq!(other.common(one, level), common, "{other} and {one}");
        }
        assert_eq!(levels(1, 3).from(2), levels(2, 3));
        assert_eq!(levels(1, 1).from(2), levels(1, 1), "it cannot accept more than it has");
        assert_eq!(format!("{}, {}", levels(1, 1), levels(1, 2)), "level 1, levels 1 to 2");
    }
}
