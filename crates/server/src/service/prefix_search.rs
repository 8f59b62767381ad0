//! Search for the registered prefixes of a key.

use std::collections::BTreeMap;
use std::ops::Bound;

use bytes::Bytes;

/// Visits the prefixes of a key in a map by prefix, from the longest to the shortest. Costs one search in the map per step,
/// whatever the number of other prefixes.
pub(super) fn each_prefix_of<T>(
    by_prefix: &mut BTreeMap<Bytes, T>,
    key: &[u8],
    mut each: impl FnMut(&Bytes, &mut T),
) {
    // Each step finds a prefix, or shortens the key to the part that it has in common with the next name in order: no prefix
    // of the key among the names before is longer than that part.
    let mut below = Bound::Included(key);
    while let Some((name, value)) = by_prefix.range_mut::<[u8], _>((Bound::Unbounded, below)).next_back() {
        let common = name.iter().zip(key).take_while(|(one, other)| one == other).count();
        below = if common == name.len() {
            each(name, value);
            Bound::Excluded(&key[..common])
        } else {
            Bound::Included(&key[..common])
        };
    }
}

#[cfg(test)]
mod tests {
    use rand::rngs::SmallRng;
    use rand::{Rng, SeedableRng};

    use super::*;

    /// Compared with a check of every prefix.
    #[test]
    fn all_prefixes_of_a_key_are_found_longest_first() {
        let seed = rand::random();
        println!("SmallRng::seed_from_u64({seed})");
        let mut random = SmallRng::seed_from_u64(seed);
        let mut text = |most| -> Bytes {
            let length = random.random_range(0..most);
            (0..length).map(|_| random.random_range(b'a'..b'c')).collect::<Vec<u8>>().into()
        };
        for _ in 0..200 {
            let mut by_prefix: BTreeMap<Bytes, ()> = (0..20).map(|_| (text(6), ())).collect();
            for _ in 0..20 {
                let key = text(8);
                let all = by_prefix.keys().rev().filter(|prefix| key.starts_with(prefix));
                let expected: Vec<Bytes> = all.cloned().collect();
                let mut found = Vec::new();
                each_prefix_of(&mut by_prefix, &key, |prefix, ()| found.push(prefix.clone()));
                assert_eq!(found, expected, "{key:?} of {by_prefix:?}");
            }
        }
    }
}
