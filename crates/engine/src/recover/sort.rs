//! Sorting what is evenly spread.

/// Bits of the numbers that are sorted.
const BITS: u32 = 63;
/// Numbers in a bucket, on average.
const PER_BUCKET: usize = 4;

/// Sorts numbers below 2^63. Hashes in their upper bits make it take linear time; whatever they are it is never slower than
/// sorting by comparison.
#[derive(Default)]
pub(super) struct Sorter {
    numbers: Vec<u64>,
    ends: Vec<u32>,
}

impl Sorter {
    /// # Panics
    /// If there are more than 2^32 of them.
    pub(super) fn sort(&mut self, numbers: &mut [u64]) {
        u32::try_from(numbers.len()).expect("a shard has less than 2^32 entries");
        let bits = (numbers.len() / PER_BUCKET).max(1).next_power_of_two().trailing_zeros();
        let bucket = |number: u64| (number >> (BITS - bits)) as usize;
        self.ends.clear();
        self.ends.resize(1 << bits, 0);
        for number in numbers.iter() {
            self.ends[bucket(*number)] += 1;
        }
        let mut start = 0;
        for end in &mut self.ends {
            start += std::mem::replace(end, start);
        }
        self.numbers.clear();
        self.numbers.resize(numbers.len(), 0);
        for number in numbers.iter() {
            let at = &mut self.ends[bucket(*number)];
            self.numbers[*at as usize] = *number;
            *at += 1;
        }
        numbers.copy_from_slice(&self.numbers);
        let mut start = 0;
        for end in &self.ends {
            let end = *end as usize;
            numbers[start..end].sort_unstable();
            start = end;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sorts_what_is_spread_and_what_is_not() {
        let mut sorter = Sorter::default();
        for len in [0u64, 1, 2, 3, 5, 100, 10_000] {
            let spread = |n: u64| n.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 1;
            let crowded = |n: u64| n.wrapping_mul(7_919) % 100;
            let equal = |_| (1 << 63) - 1;
            for number in [&spread as &dyn Fn(u64) -> u64, &crowded, &equal] {
                let mut numbers: Vec<u64> = (0..len).map(number).collect();
                let mut expected = numbers.clone();
                expected.sort_unstable();
                sorter.sort(&mut numbers);
                assert_eq!(numbers, expected);
            }
        }
    }
}
