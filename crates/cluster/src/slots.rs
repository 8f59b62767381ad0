//! Hash slots of Redis Cluster, and their groups.

use std::ops::Range;

/// Number of hash slots.
pub const SLOTS: u16 = 16_384;
/// Number of the meta group, which holds the nodes of the cluster.
pub const META_GROUP: u8 = 15;
/// Maximum number of data groups. Their numbers begin at 1, because keyspace 0 belongs to database 0, which is spread.
pub const DATA_GROUPS_MAX: u8 = 14;
/// Number of data groups of a new cluster, if it is not set.
pub const DATA_GROUPS: u8 = 12;

/// Maximum number of nodes of a cluster, which all have the meta group.
pub const NODES_MAX: usize = 64;

/// Generator polynomial of CRC-16/XMODEM, which Redis Cluster specifies.
const POLYNOMIAL: u16 = 0x1021;

const TABLE: [u16; 256] = {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let (mut crc, mut bit) = ((byte as u16) << 8, 0);
        while bit < 8 {
            crc = if crc & 0x8000 == 0 { crc << 1 } else { crc << 1 ^ POLYNOMIAL };
            bit += 1;
        }
        table[byte] = crc;
        byte += 1;
    }
    table
};

fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |crc, byte| crc << 8 ^ TABLE[usize::from((crc >> 8) as u8 ^ byte)])
}

/// Returns the part of a key that decides about its slot: the bytes between the first `{` and the next `}`, unless there are
/// none.
fn hashed(key: &[u8]) -> &[u8] {
    let Some(open) = key.iter().position(|byte| *byte == b'{') else { return key };
    let tag = &key[open + 1..];
    match tag.iter().position(|byte| *byte == b'}') {
        Some(length @ 1..) => &tag[..length],
        _ => key,
    }
}

/// Returns the slot of a key.
pub fn slot_of(key: &[u8]) -> u16 {
    crc16(hashed(key)) % SLOTS
}

/// The division of the slots among the data groups of a cluster: ranges that differ by at most one slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Groups(u8);

impl Groups {
    /// Returns the division among `count` groups; `None` unless there are 1 to [`DATA_GROUPS_MAX`].
    pub fn new(count: u8) -> Option<Groups> {
        (1..=DATA_GROUPS_MAX).contains(&count).then_some(Groups(count))
    }

    /// Returns the numbers of the data groups.
    pub fn numbers(self) -> impl Iterator<Item = u8> {
        1..=self.0
    }

    /// Returns the number of data groups.
    pub fn count(self) -> u8 {
        self.0
    }

    /// Returns the group of a slot.
    pub fn of_slot(self, slot: u16) -> u8 {
        (u32::from(slot) * u32::from(self.0) / u32::from(SLOTS)) as u8 + 1
    }

    /// Returns the group of a key.
    pub fn of_key(self, key: &[u8]) -> u8 {
        self.of_slot(slot_of(key))
    }

    /// Returns the slots of a data group; none for another number.
    pub fn slots(self, group: u8) -> Range<u16> {
        let first = |group: u8| (u32::from(SLOTS) * u32::from(group)).div_ceil(u32::from(self.0)) as u16;
        if group == 0 || group > self.0 { 0..0 } else { first(group - 1)..first(group) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_those_of_redis() {
        // From the specification of Redis Cluster, and CLUSTER KEYSLOT of redis-server 7.0.15.
        assert_eq!(crc16(b"123456789"), 0x31c3);
        for (key, slot) in [
            ("foo", 12_182),
            ("bar", 5061),
            ("", 0),
            ("{user1000}.following", slot_of(b"user1000")),
            ("foo{}{bar}", crc16(b"foo{}{bar}") % SLOTS),
            ("foo{{bar}}zap", slot_of(b"{bar")),
            ("foo{bar}{zap}", 5061),
        ] {
            assert_eq!(slot_of(key.as_bytes()), slot, "{key}");
        }
    }

    #[test]
    fn every_slot_is_in_one_group() {
        assert!(Groups::new(0).is_none() && Groups::new(DATA_GROUPS_MAX + 1).is_none());
        for count in 1..=DATA_GROUPS_MAX {
            let groups = Groups::new(count).unwrap();
            let mut next = 0;
            for group in groups.numbers() {
                let slots = groups.slots(group);
                assert_eq!(slots.start, next);
                assert!(slots.clone().all(|slot| groups.of_slot(slot) == group), "{count} groups, {group}");
                assert!(slots.len().abs_diff(usize::from(SLOTS / u16::from(count))) <= 1);
                next = slots.end;
            }
            assert_eq!(next, SLOTS);
            assert!(groups.slots(0).is_empty() && groups.slots(count + 1).is_empty());
        }
    }
}
