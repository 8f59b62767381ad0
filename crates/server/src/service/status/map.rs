//! Map of a tier's segments in a bounded number of cells, one byte each.

use base64ct::{Base64, Encoding};
use esker_engine::{Segment, SegmentClass, SegmentState};

use super::document::Map;

/// Maximum number of cells per tier.
const CELLS_MAX: usize = 2048;

/// Minimum number of slots shown, however few are used.
const PLACES_LEAST: usize = 64;

/// Maximum live fraction of a cell, which starts at 0.
const LIVE_MAX: u64 = 15;

/// Kinds of cells by number: free, the class of a sealed segment, or the current operation on it.
pub const KINDS: [&str; 13] = [
    "free",
    "lane",
    "large",
    "long_lived",
    "destaged",
    "collected_short_lived",
    "collected_young",
    "collected_middle",
    "collected_old",
    "other",
    "open",
    "relocating",
    "damaged",
];

const FREE: u8 = 0;
const OPEN: u8 = 10;
const RELOCATING: u8 = 11;
const DAMAGED: u8 = 12;

/// Decoded cell of a [`Map`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cell {
    /// Index in [`KINDS`].
    pub kind: u8,
    /// Live fraction, from 0 for none to 15 for all.
    pub live: u8,
}

impl Map {
    /// Returns the cells; empty if they cannot be decoded.
    pub fn decoded(&self) -> Vec<Cell> {
        let bytes = Base64::decode_vec(&self.cells).unwrap_or_default();
        bytes.into_iter().map(|byte| Cell { kind: byte >> 4, live: byte & 0xf }).collect()
    }

    /// Builds the map from the slots of a tier in order.
    pub(super) fn of(places: &[MapSegment], segment_bytes: u64) -> Map {
        let used = places.iter().rposition(|place| place.kind != FREE);
        let shown = used.map_or(0, |last| last + 1).next_power_of_two().max(PLACES_LEAST);
        let shown = &places[..shown.min(places.len())];
        let per_cell = shown.len().div_ceil(CELLS_MAX).max(1);
        let cells: Vec<u8> = shown.chunks(per_cell).map(|cell| byte_of(cell, segment_bytes)).collect();
        Map {
            segments: shown.len() as u64,
            segments_per_cell: per_cell as u64,
            kinds: KINDS.map(str::to_owned).to_vec(),
            cells: Base64::encode_string(&cells),
        }
    }
}

/// State of one slot of a tier.
#[derive(Clone, Copy, Debug)]
pub(super) struct MapSegment {
    kind: u8,
    live_bytes: u64,
}

impl MapSegment {
    pub(super) fn of(segment: &Segment) -> MapSegment {
        let kind = match segment.state {
            SegmentState::Free => FREE,
            SegmentState::Open => OPEN,
            SegmentState::Relocating => RELOCATING,
            SegmentState::Damaged => DAMAGED,
            _ => {
                let class = segment.class.unwrap_or(SegmentClass::Other);
                1 + class as u8
            }
        };
        MapSegment { kind, live_bytes: segment.live_bytes }
    }
}

/// Encodes several slots as one cell: the kind is a rare and important one if present, else the most frequent kind that is not
/// free.
fn byte_of(places: &[MapSegment], segment_bytes: u64) -> u8 {
    let mut counts = [0_u32; KINDS.len()];
    places.iter().for_each(|place| counts[usize::from(place.kind)] += 1);
    let is_there = |kind: &u8| counts[usize::from(*kind)] > 0;
    let rare = [DAMAGED, RELOCATING, OPEN].into_iter().find(is_there);
    let most = (1..OPEN).max_by_key(|&kind| counts[usize::from(kind)]).filter(is_there);
    let kind = rare.or(most).unwrap_or(FREE);
    let live: u64 = places.iter().map(|place| place.live_bytes).sum();
    let all = places.len() as u64 * segment_bytes;
    // Rounded up, so that few live bytes do not show as none.
    let live = (live * LIVE_MAX).div_ceil(all.max(1)).min(LIVE_MAX);
    kind << 4 | live as u8
}

#[cfg(test)]
mod tests {
    use super::*;

    const SEGMENT_BYTES: u64 = 1000;

    fn map(places: &[(u8, u64)]) -> (Map, Vec<(u8, u8)>) {
        let places: Vec<_> =
            places.iter().map(|&(kind, live_bytes)| MapSegment { kind, live_bytes }).collect();
        let map = Map::of(&places, SEGMENT_BYTES);
        let cells = map.decoded().iter().map(|cell| (cell.kind, cell.live)).collect();
        (map, cells)
    }

    #[test]
    fn map_of_small_tier_has_cell_per_segment_without_free_tail() {
        let (map, cells) =
            map(&[vec![(1, 1000), (FREE, 0), (OPEN, 1), (9, 500)], vec![(FREE, 0); 996]].concat());
        assert_eq!((map.segments, map.segments_per_cell, cells.len()), (64, 1, 64));
        assert_eq!(cells[..5], [(1, 15), (FREE, 0), (OPEN, 1), (9, 8), (FREE, 0)]);
        assert_eq!(map.kinds[9], "other");
    }

    #[test]
    fn a_large_tier_has_no_more_cells_and_shows_what_matters() {
        let mut places = vec![(2, 1000); 100_000];
        (places[1], places[2], places[99_999]) = ((DAMAGED, 0), (RELOCATING, 0), (FREE, 0));
        places[49..98].fill((FREE, 0));
        places[50] = (7, 490);
        let (map, cells) = map(&places);
        assert_eq!((map.segments, map.segments_per_cell), (100_000, 49));
        assert!(cells.len() <= CELLS_MAX && cells.len() == 100_000_usize.div_ceil(49), "{}", cells.len());
        assert_eq!(cells[..3], [(DAMAGED, 15), (7, 1), (2, 15)]);
        assert!(map.cells.len() <= CELLS_MAX * 4 / 3 + 4);
    }

    #[test]
    fn kinds_are_the_classes_between_free_and_what_is_going_on() {
        let classes = SegmentClass::ALL.map(SegmentClass::name);
        assert_eq!(KINDS[1..=classes.len()], classes);
        for (kind, name) in [(FREE, "free"), (OPEN, "open"), (RELOCATING, "relocating"), (DAMAGED, "damaged")]
        {
            assert_eq!(KINDS[usize::from(kind)], name);
        }
    }
}
