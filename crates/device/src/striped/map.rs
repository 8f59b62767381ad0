//! The map from the slots of a tier to its devices.
//!
//! Slots are numbered through ranges. In each range some devices take the next slot in turn, so that consecutive slots lie on
//! different devices, and the numbers stay dense however different the devices are. Ranges are only added: the number of a slot,
//! and so every location, stays valid.

use std::collections::BTreeMap;

/// Position of a slot: a device, and the number of the slot on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlotPlace {
    /// Position of the device in the list of the tier's devices.
    pub member: usize,
    /// Number of the slot on the device.
    pub local: u32,
}

/// A range of slots.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Range {
    /// Its first slot.
    first: u32,
    rows: u32,
    /// The devices that take part, and on each the number of its first slot of this range.
    members: Vec<(usize, u32)>,
}

/// Distribution of slots over devices.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StripeMap {
    head_bytes: u64,
    slot_bytes: u64,
    ranges: Vec<Range>,
    slots: u32,
    /// Number of slots that the ranges have on each device.
    of_member: Vec<u32>,
    /// Slots that lie in the place of another slot.
    moved: BTreeMap<u32, u32>,
    /// The other way: slots whose place another slot has, or had before it moved on (`None`).
    taken: BTreeMap<u32, Option<u32>>,
}

impl StripeMap {
    /// Returns a map without slots. On each device, `head_bytes` precede the slots of `slot_bytes` each.
    pub fn new(head_bytes: u64, slot_bytes: u64) -> StripeMap {
        StripeMap {
            head_bytes,
            slot_bytes,
            ranges: Vec::new(),
            slots: 0,
            of_member: Vec::new(),
            moved: BTreeMap::new(),
            taken: BTreeMap::new(),
        }
    }

    /// Adds a range of `rows` slots on each device whose bit is set in `members`.
    pub fn add(&mut self, rows: u32, members: u32) {
        let first = self.slots;
        let positions = (0..u32::BITS as usize).filter(|position| members >> position & 1 == 1);
        let mut range = Range { first, rows, members: Vec::new() };
        for position in positions {
            if self.of_member.len() <= position {
                self.of_member.resize(position + 1, 0);
            }
            range.members.push((position, self.of_member[position]));
            self.of_member[position] += rows;
        }
        self.slots += rows * range.members.len() as u32;
        self.ranges.push(range);
    }

    /// Puts a slot into the place of the slot `to`, which has no place from then on. Places that the slot had before hold nothing
    /// from then on, because they have the written part of its segment.
    pub fn move_slot(&mut self, slot: u32, to: u32) {
        if let Some(left) = self.moved.insert(slot, to) {
            self.taken.insert(left, None);
        }
        self.taken.insert(to, Some(slot));
    }

    /// Returns the number of slots.
    pub fn slots(&self) -> u32 {
        self.slots
    }

    /// Returns the number of slots that a device has.
    pub fn slots_of(&self, member: usize) -> u32 {
        self.of_member.get(member).copied().unwrap_or(0)
    }

    /// Returns the bytes in front of the slots of each device.
    pub fn head_bytes(&self) -> u64 {
        self.head_bytes
    }

    /// Returns the length of a slot in bytes.
    pub fn slot_bytes(&self) -> u64 {
        self.slot_bytes
    }

    /// Returns the place of a slot; `None` if it has none.
    pub fn place(&self, slot: u32) -> Option<SlotPlace> {
        if !self.moved.is_empty() {
            if self.taken.contains_key(&slot) {
                return None;
            }
            if let Some(&to) = self.moved.get(&slot) {
                return self.formatted_place(to);
            }
        }
        self.formatted_place(slot)
    }

    /// Returns the place that the ranges give a slot, wherever it was moved.
    fn formatted_place(&self, slot: u32) -> Option<SlotPlace> {
        if slot >= self.slots {
            return None;
        }
        let range = &self.ranges[self.ranges.partition_point(|range| range.first <= slot) - 1];
        let (count, number) = (range.members.len() as u32, slot - range.first);
        let (member, base) = range.members[(number % count) as usize];
        Some(SlotPlace { member, local: base + number / count })
    }

    /// Returns the slot at a place; `None` if there is none.
    pub fn slot_at(&self, SlotPlace { member, local }: SlotPlace) -> Option<u32> {
        let slot = self.formatted_slot(member, local)?;
        if let Some(&moved) = self.taken.get(&slot) {
            return moved;
        }
        (!self.moved.contains_key(&slot)).then_some(slot)
    }

    /// Returns the places of a device, by number on it, that slots were moved from, and that hold nothing from then on.
    pub fn places_left(&self, member: usize) -> impl Iterator<Item = u32> {
        let left_again = self.taken.iter().filter(|(_, moved)| moved.is_none()).map(|(slot, _)| slot);
        let places = self.moved.keys().chain(left_again).filter_map(|slot| self.formatted_place(*slot));
        places.filter(move |place| place.member == member).map(|place| place.local)
    }

    /// Returns the slot that the ranges put at a place.
    fn formatted_slot(&self, member: usize, local: u32) -> Option<u32> {
        self.ranges.iter().find_map(|range| {
            let number = range.members.iter().position(|(position, _)| *position == member)?;
            let row = local.checked_sub(range.members[number].1).filter(|row| *row < range.rows)?;
            Some(range.first + row * range.members.len() as u32 + number as u32)
        })
    }

    /// Returns the number of a device's slots below a slot of the tier, wherever slots were moved.
    pub fn slots_below(&self, member: usize, slot: u32) -> u32 {
        let (mut low, mut high) = (0, self.slots_of(member));
        while low < high {
            let middle = low + (high - low) / 2;
            match self.formatted_slot(member, middle).is_some_and(|at| at < slot) {
                true => low = middle + 1,
                false => high = middle,
            }
        }
        low
    }
}

/// Returns ranges that give devices as many slots as `wanted` says, at most `most` slots in all: each device takes part until it
/// is full. The result is for [`StripeMap::add`]: rows, and the bits of the devices.
pub fn stripes_for(wanted: &[u32], most: u64) -> Vec<(u32, u32)> {
    let (mut given, mut left, mut stripes) = (0, most, Vec::new());
    loop {
        let members = (0..wanted.len()).filter(|&member| wanted[member] > given);
        let bits = members.clone().fold(0u32, |bits, member| bits | 1 << member);
        let Some(next) = members.map(|member| wanted[member]).min() else { return stripes };
        let rows = u64::from(next - given).min(left / u64::from(bits.count_ones())) as u32;
        if rows == 0 {
            return stripes;
        }
        stripes.push((rows, bits));
        left -= u64::from(rows) * u64::from(bits.count_ones());
        given += rows;
        if given < next {
            return stripes;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map_of(stripes: &[(u32, u32)]) -> StripeMap {
        let mut map = StripeMap::new(4096, 65_536);
        stripes.iter().for_each(|(rows, members)| map.add(*rows, *members));
        map
    }

    #[test]
    fn stripes_fill_devices_of_different_sizes() {
        assert_eq!(stripes_for(&[4, 4, 4], 100), [(4, 0b111)]);
        assert_eq!(stripes_for(&[2, 7, 4], 100), [(2, 0b111), (2, 0b110), (3, 0b010)]);
        assert_eq!(stripes_for(&[2, 7, 4], 9), [(2, 0b111), (1, 0b110)]);
        assert_eq!(stripes_for(&[0, 5], 100), [(5, 0b10)]);
        assert_eq!(stripes_for(&[], 100), []);
    }

    #[test]
    fn every_slot_has_one_place_and_every_place_its_slot() {
        let mut map = map_of(&[(2, 0b111), (2, 0b110), (3, 0b010), (4, 0b1001)]);
        assert_eq!((map.slots(), [0, 1, 2, 3, 4].map(|member| map.slots_of(member))), (21, [6, 7, 4, 4, 0]));
        let of = |map: &StripeMap| (0..map.slots()).map(|slot| map.place(slot)).collect::<Vec<_>>();
        let places = of(&map);
        for (slot, place) in (0..).zip(&places) {
            assert_eq!(place.and_then(|place| map.slot_at(place)), Some(slot));
            assert_eq!(places.iter().filter(|other| *other == place).count(), 1);
        }
        assert_eq!(map.place(1), Some(SlotPlace { member: 1, local: 0 }));
        assert_eq!(map.place(20), Some(SlotPlace { member: 3, local: 3 }));
        assert_eq!((map.place(21), map.slot_at(SlotPlace { member: 2, local: 4 })), (None, None));
        assert_eq!([0, 1, 4, 5, 21].map(|slot| map.slots_below(1, slot)), [0, 0, 1, 2, 7]);
        map.move_slot(1, 8);
        assert_eq!((map.place(1), map.place(8)), (places[8], None));
        assert_eq!(places[8].and_then(|place| map.slot_at(place)), Some(1));
        assert_eq!(places[1].and_then(|place| map.slot_at(place)), None, "the old place holds nothing");
        assert_eq!([0, 1].map(|member| map.places_left(member).collect::<Vec<_>>()), [vec![], vec![0]]);

        map.move_slot(1, 9);
        assert_eq!((map.place(1), map.place(8), map.place(9)), (places[9], None, None));
        assert_eq!(places[9].and_then(|place| map.slot_at(place)), Some(1));
        let SlotPlace { member, local } = places[8].expect("it had one");
        assert_eq!(map.slot_at(SlotPlace { member, local }), None, "it has a part of the segment");
        assert!(map.places_left(member).any(|left| left == local), "it is never taken");
    }
}
