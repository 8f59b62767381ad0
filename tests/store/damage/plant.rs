//! A single damage: its kinds, its place, and its effect on the bytes.

use std::ops::Range;

use esker_simulated::Random;

use crate::damage::anatomy::{Part, Piece, What};

const SECTOR: u64 = 512;
const BLOCK: u64 = 4096;

/// The kind of a damage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    Bit,
    ZeroSector,
    GarbageSector,
    ZeroBlock,
    GarbageBlock,
    /// Two blocks are swapped.
    Swap,
    /// A block also overwrites another one.
    Double,
    /// The device or file ends here.
    Cut,
}

/// A single damage.
#[derive(Clone, Debug)]
pub(crate) struct Damage {
    pub(crate) part: Part,
    pub(crate) kind: Kind,
    /// The structure at which it was aimed.
    pub(crate) what: What,
    pub(crate) at: u64,
    /// Offset of the other block, for kinds that have one.
    pub(crate) other: u64,
    seed: u64,
}

impl std::fmt::Display for Damage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Damage { part, kind, what, at, other, .. } = self;
        write!(f, "{kind:?} at {at} of {part:?}, aimed at {what:?}")?;
        match kind {
            Kind::Swap | Kind::Double => write!(f, ", with {other}"),
            _ => Ok(()),
        }
    }
}

/// The effect of a damage: whole sectors to overwrite, or the new end of the part.
#[derive(Default)]
pub(crate) struct Change {
    pub(crate) writes: Vec<(u64, Vec<u8>)>,
    pub(crate) cut: Option<u64>,
}

impl Change {
    /// Applies the change to a copy of the bytes.
    pub(crate) fn apply(&self, bytes: &mut Vec<u8>) {
        for (at, with) in &self.writes {
            bytes[*at as usize..*at as usize + with.len()].copy_from_slice(with);
        }
        bytes.truncate(self.cut.map_or(usize::MAX, |at| at as usize));
    }
}

impl Damage {
    /// Draws a damage to these parts. `bytes_of` returns the bytes of a part.
    pub(crate) fn draw<'a>(
        random: &mut Random,
        pieces: &[Piece],
        bytes_of: impl Fn(Part) -> &'a [u8],
    ) -> Damage {
        loop {
            let piece = aim(random, pieces);
            let bytes = bytes_of(piece.part);
            let kind = match random.below(40) {
                0..12 => Kind::Bit,
                12..16 => Kind::ZeroSector,
                16..20 => Kind::GarbageSector,
                20..25 => Kind::ZeroBlock,
                25..29 => Kind::GarbageBlock,
                29..33 => Kind::Swap,
                33..37 => Kind::Double,
                _ => Kind::Cut,
            };
            let within = piece.range.start + random.below(piece.range.end - piece.range.start);
            let other = partner(random, pieces, piece, within);
            let down = |at: u64| at.min(bytes.len() as u64 - BLOCK) / BLOCK * BLOCK;
            let at = match kind {
                Kind::Bit => within,
                // A staging file can end anywhere, a device only at a block.
                Kind::Cut if piece.part == Part::Staging => within,
                Kind::ZeroSector | Kind::GarbageSector | Kind::Cut => within / SECTOR * SECTOR,
                _ => down(within),
            };
            let (part, what, seed) = (piece.part, piece.what, random.bits());
            let damage = Damage { part, kind, what, at, other: down(other), seed };
            if damage.changes(bytes) {
                return damage;
            }
        }
    }

    /// Returns true if the damage changes any byte. A tier without its first sector is excluded, because
    /// it is an empty device.
    fn changes(&self, bytes: &[u8]) -> bool {
        match self.kind {
            Kind::Cut if self.part == Part::Staging => self.at < bytes.len() as u64,
            Kind::Cut => (SECTOR..bytes.len() as u64).contains(&self.at),
            _ => self.change(bytes).writes.iter().any(|(at, with)| {
                let before = &bytes[*at as usize..*at as usize + with.len()];
                before != with.as_slice()
            }),
        }
    }

    /// Returns its effect on the bytes of its part.
    pub(crate) fn change(&self, bytes: &[u8]) -> Change {
        let copy = |at: u64, length: u64| {
            let end = (at + length).min(bytes.len() as u64);
            bytes[at as usize..end as usize].to_vec()
        };
        let garbage = |length: u64| {
            let mut random = Random::new(self.seed);
            copy(self.at, length).iter().map(|_| random.bits() as u8).collect::<Vec<u8>>()
        };
        let zeros = |length: u64| vec![0; copy(self.at, length).len()];
        let writes = match self.kind {
            Kind::Bit => {
                let start = self.at / SECTOR * SECTOR;
                let mut sector = copy(start, SECTOR);
                sector[(self.at - start) as usize] ^= 1 << (self.seed % 8);
                vec![(start, sector)]
            }
            Kind::ZeroSector => vec![(self.at, zeros(SECTOR))],
            Kind::GarbageSector => vec![(self.at, garbage(SECTOR))],
            Kind::ZeroBlock => vec![(self.at, zeros(BLOCK))],
            Kind::GarbageBlock => vec![(self.at, garbage(BLOCK))],
            Kind::Swap => vec![(self.at, copy(self.other, BLOCK)), (self.other, copy(self.at, BLOCK))],
            Kind::Double => vec![(self.at, copy(self.other, BLOCK))],
            Kind::Cut => return Change { writes: Vec::new(), cut: Some(self.at) },
        };
        Change { writes, cut: None }
    }

    /// Returns the ranges of changed bytes (empty if the kind changes none), for a part of this length.
    pub(crate) fn harmed(&self, length: u64) -> Vec<Range<u64>> {
        let block = |at: u64| at..at + BLOCK;
        match self.kind {
            Kind::Bit => std::iter::once(self.at..self.at + 1).collect(),
            Kind::ZeroSector | Kind::GarbageSector => std::iter::once(self.at..self.at + SECTOR).collect(),
            Kind::ZeroBlock | Kind::GarbageBlock | Kind::Double => std::iter::once(block(self.at)).collect(),
            Kind::Swap => vec![block(self.at), block(self.other)],
            Kind::Cut => std::iter::once(self.at..length).collect(),
        }
    }
}

/// Returns the other block of a damage that has two: near the first, in the same segment, or anywhere.
fn partner(random: &mut Random, pieces: &[Piece], piece: &Piece, within: u64) -> u64 {
    let how = random.below(4);
    if how == 0 {
        // Adjacent structures are similar.
        return within.saturating_add(BLOCK << random.below(5));
    }
    let there = |p: &&Piece| p.part == piece.part && (how > 1 || p.segment == piece.segment);
    let there: Vec<&Piece> = pieces.iter().filter(there).collect();
    // Chosen by kind, because the ends of a segment are few among its records.
    let what = there[random.below(there.len() as u64) as usize].what;
    let ends = [What::Footer, What::Summary, What::FreeMarker, What::FrameHeader, what];
    let what = ends[random.below(ends.len() as u64) as usize];
    let mut alike: Vec<&Piece> = there.iter().filter(|p| p.what == what).copied().collect();
    if alike.is_empty() {
        alike = there;
    }
    alike[random.below(alike.len() as u64) as usize].range.start
}

/// Chooses a target: every kind of structure equally often, and later segments more often.
fn aim<'a>(random: &mut Random, pieces: &'a [Piece]) -> &'a Piece {
    let mut kinds: Vec<What> = pieces.iter().map(|piece| piece.what).collect();
    kinds.sort_unstable();
    kinds.dedup();
    // Damage to bytes that no opening reads shows little.
    let dull = [What::Unused, What::Stale, What::Padding, What::Gap, What::Identity];
    let mut what = kinds[random.below(kinds.len() as u64) as usize];
    if dull.contains(&what) {
        what = kinds[random.below(kinds.len() as u64) as usize];
    }
    let mut there: Vec<&Piece> = pieces.iter().filter(|piece| piece.what == what).collect();
    there.sort_by_key(|piece| piece.segment);
    let mut position = random.below(there.len() as u64);
    if random.one_in(2) {
        position = position.max(random.below(there.len() as u64)).max(random.below(there.len() as u64));
    }
    there[position as usize]
}
