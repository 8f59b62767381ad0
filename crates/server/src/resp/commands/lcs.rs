//! LCS: the longest common subsequence of two values.
//!
//! It is computed for 64 bytes of the second value at a time (H. Hyyrö, "Bit-parallel LCS-length computation
//! revisited"). Each byte of the first value yields a row of bits, one for each byte of the second: a zero where the
//! subsequence grows by one. The last row gives the length; to locate the subsequence, all rows are kept and followed
//! back from the ends. Among several subsequences of the same length the result is that of Redis: where a step back
//! in either value loses nothing, the step is in the second value.

use bytes::Bytes;

use crate::auth::Needs;
use crate::base::turn::aside;
use crate::resp::session::view::View;
use crate::resp::verb::facts::{ALWAYS_LONG_US, Group, Keys, Sizes, access, flags};
use crate::resp::verb::{Run, Verb};
use crate::resp::wire::commands::Command;
use crate::resp::wire::error_text::{self, is};
use crate::resp::wire::number::parse_integer;
use crate::resp::wire::reply::Replies;

const ON_STRINGS: Verb =
    Verb { group: Group::String, keys: Keys::TWO, categories: &["string"], ..Verb::DEFAULT };

const COMPARED: Sizes = Sizes {
    after: |_, longest, _| longest,
    moved: |_, values| needed_bytes(values.after, values.sum - values.after),
    compared: Some(needed_bytes),
    ..Sizes::DEFAULT
};

/// The commands of this family.
#[rustfmt::skip]
pub(super) const COMMANDS: &[Verb] = &[
    Verb { name: "lcs", arity: -3, run: Run::Read(lcs), access: &[access::READ], needs: Needs::Read,
        flags: flags::LONG_READ, sizes: COMPARED, work_us: |_| ALWAYS_LONG_US, since: "7.0.0",
        summary: "Finds the longest common subsequence of two values.", ..ON_STRINGS },
];

/// Limit of the byte pairs that are compared, from Redis' limit of 512 MiB at four bytes per pair.
const PAIRS_MAX: u64 = 128 << 20;

/// Byte pairs above which the comparison runs beside the serving threads.
const SHORT_PAIRS_MAX: u64 = 4 << 20;

/// Upper bound of the answer's bytes for each byte of the subsequence: two ranges and a length.
const MATCH_BYTES: u64 = 96;

/// Bytes of the position lists of all byte values, beside their bits.
const PLACES_BYTES: u64 = 256 * 32;

/// Returns the upper bound of the memory for the answer and temporary data, for values of `a` and `b` bytes.
fn needed_bytes(a: usize, b: usize) -> usize {
    let (a, b) = (a as u64 + 1, b as u64 + 1);
    let pairs = a.saturating_mul(b).min(PAIRS_MAX);
    let matches = a.min(b).min(PAIRS_MAX.isqrt());
    // Rows in whole bytes, and the positions of each byte value in the second value, in whole words.
    let rows = pairs / 8 + a.max(b).min(PAIRS_MAX);
    (rows + pairs / 8 + PLACES_BYTES + matches * MATCH_BYTES) as usize
}

#[derive(Default)]
struct Options {
    indexes: bool,
    length: bool,
    least: u64,
    with_lengths: bool,
}

impl Options {
    fn parse(command: Command<'_>) -> Result<Options, &'static str> {
        let mut options = Options::default();
        let mut arguments = command.arguments(3);
        while let Some(word) = arguments.next() {
            match word {
                _ if is(word, "idx") => options.indexes = true,
                _ if is(word, "len") => options.length = true,
                _ if is(word, "withmatchlen") => options.with_lengths = true,
                _ if is(word, "minmatchlen") => {
                    let least = arguments.next().ok_or(error_text::SYNTAX)?;
                    let least = parse_integer(least).ok_or(error_text::NOT_AN_INTEGER)?;
                    options.least = u64::try_from(least).unwrap_or(0);
                }
                _ => return Err(error_text::SYNTAX),
            }
        }
        if options.indexes && options.length {
            return Err("ERR If you want both the length and indexes, please just use IDX.");
        }
        Ok(options)
    }
}

/// `LCS key key [LEN] [IDX] [MINMATCHLEN length] [WITHMATCHLEN]`.
pub(super) fn lcs(command: Command<'_>, view: &mut View, replies: &mut Replies) {
    // The look-ups precede the options, as in Redis: a missing key is reported even if the options are wrong.
    let value = |at| view.look_up(command.argument(at)).map_or(Bytes::new(), |held| held.value.clone());
    let [a, b] = [1, 2].map(value);
    let options = match Options::parse(command) {
        Ok(options) => options,
        Err(error) => return replies.error(error),
    };
    let pairs = (a.len() as u64 + 1).saturating_mul(b.len() as u64 + 1);
    if pairs > PAIRS_MAX {
        return replies.error("ERR Insufficient memory, transient memory for LCS exceeds proto-max-bulk-len");
    }
    let found = aside(pairs <= SHORT_PAIRS_MAX, || Common::find(&a, &b, !options.length));
    if options.length {
        return replies.integer(found.length as i64);
    }
    if !options.indexes {
        let common: Vec<u8> =
            found.matches.iter().rev().flat_map(|at| &a[at.a..at.a + at.length]).copied().collect();
        return replies.bulk(&common);
    }
    let wanted = found.matches.iter().filter(|at| at.length as u64 >= options.least);
    replies.map(2);
    replies.bulk(b"matches");
    replies.array(wanted.clone().count());
    for at in wanted {
        replies.array(2 + usize::from(options.with_lengths));
        for start in [at.a, at.b] {
            replies.array(2);
            replies.integer(start as i64);
            replies.integer((start + at.length - 1) as i64);
        }
        if options.with_lengths {
            replies.integer(at.length as i64);
        }
    }
    replies.bulk(b"len");
    replies.integer(found.length as i64);
}

/// A run of bytes that occurs in both values.
#[derive(Clone, Copy, Debug)]
struct Match {
    a: usize,
    b: usize,
    length: usize,
}

/// The longest common subsequence of two values.
struct Common {
    length: usize,
    /// From the last to the first; empty if not requested.
    matches: Vec<Match>,
}

impl Common {
    fn find(a: &[u8], b: &[u8], keeps_rows: bool) -> Common {
        let (words, width) = (b.len().div_ceil(64), b.len().div_ceil(8));
        let mut places = vec![Vec::new(); 256];
        let mut row = vec![u64::MAX; words];
        // The last word of the last row may extend beyond the row.
        let mut rows = Vec::with_capacity(if keeps_rows { width * a.len() + 8 } else { 0 });
        for byte in a {
            let of_byte = &mut places[usize::from(*byte)];
            if of_byte.is_empty() {
                *of_byte = places_of(*byte, b);
            }
            step(&mut row, of_byte);
            if keeps_rows {
                let end = rows.len() + width;
                row.iter().for_each(|word| rows.extend_from_slice(&word.to_le_bytes()));
                rows.truncate(end);
            }
        }
        let unused = words * 64 - b.len();
        let ones: usize = row.iter().map(|word| word.count_ones() as usize).sum();
        let length = b.len() - (ones - unused);
        let matches = if keeps_rows { follow(a, b, &rows, width) } else { Vec::new() };
        Common { length, matches }
    }
}

/// Returns a bit string with a one at each position of a byte value.
fn places_of(byte: u8, b: &[u8]) -> Vec<u64> {
    let word = |part: &[u8]| part.iter().rev().fold(0, |word, other| word << 1 | u64::from(*other == byte));
    b.chunks(64).map(word).collect()
}

/// Computes the next row in place.
fn step(row: &mut [u64], places: &[u64]) {
    let mut carry = false;
    for (word, places) in row.iter_mut().zip(places) {
        let common = *word & places;
        let (sum, over) = word.overflowing_add(common);
        let (sum, again) = sum.overflowing_add(carry.into());
        carry = over | again;
        *word = sum | *word & !places;
    }
}

/// Returns the matches, from the ends back to the beginnings.
fn follow(a: &[u8], b: &[u8], rows: &[u8], width: usize) -> Vec<Match> {
    let (mut i, mut j) = (a.len(), b.len());
    let (mut matches, mut current) = (Vec::new(), None);
    while i > 0 && j > 0 {
        if a[i - 1] == b[j - 1] {
            (i, j) = (i - 1, j - 1);
            let length = current.map_or(0, |known: Match| known.length);
            current = Some(Match { a: i, b: j, length: length + 1 });
            continue;
        }
        matches.extend(current.take());
        let grows = rows[(i - 1) * width + (j - 1) / 8] >> ((j - 1) % 8) & 1 == 0;
        // Dropping the last byte of the second value would shorten the subsequence, so that of the first is dropped,
        // which does not.
        if grows { i -= 1 } else { j -= 1 }
    }
    matches.extend(current);
    matches
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Reference implementation: the textbook table of all lengths.
    fn plainly(a: &[u8], b: &[u8]) -> (usize, Vec<u8>) {
        let mut table = vec![vec![0; b.len() + 1]; a.len() + 1];
        for i in 1..=a.len() {
            for j in 1..=b.len() {
                table[i][j] = match a[i - 1] == b[j - 1] {
                    true => table[i - 1][j - 1] + 1,
                    false => table[i - 1][j].max(table[i][j - 1]),
                };
            }
        }
        let (mut i, mut j, mut common) = (a.len(), b.len(), Vec::new());
        while i > 0 && j > 0 {
            if a[i - 1] == b[j - 1] {
                common.push(a[i - 1]);
                (i, j) = (i - 1, j - 1);
            } else if table[i - 1][j] > table[i][j - 1] {
                i -= 1;
            } else {
                j -= 1;
            }
        }
        common.reverse();
        (table[a.len()][b.len()], common)
    }

    proptest! {
        #[test]
        fn it_is_that_of_the_table_of_all_lengths(
            a in prop::collection::vec(0..4_u8, 0..200),
            b in prop::collection::vec(0..4_u8, 0..200),
        ) {
            let (length, common) = plainly(&a, &b);
            prop_assert_eq!(Common::find(&a, &b, false).length, length);
            let found = Common::find(&a, &b, true);
            prop_assert_eq!(found.length, length);
            for at in &found.matches {
                prop_assert_eq!(&a[at.a..at.a + at.length], &b[at.b..at.b + at.length]);
            }
            let spelled: Vec<u8> =
                found.matches.iter().rev().flat_map(|at| &a[at.a..at.a + at.length]).copied().collect();
            prop_assert_eq!(spelled, common);
        }
    }

    #[test]
    fn lcs_needed_bytes_are_bounded_and_cover_its_tables() {
        assert!(needed_bytes(100, 100) < 30 << 10);
        assert!(needed_bytes(32 << 20, 32 << 20) < 100 << 20);
        assert!(needed_bytes(8 << 10, 3) < 300 << 10);
        // The rows and positions of the largest values that are compared, and of one that is much longer than the
        // other.
        for (a, b) in [(11_584_u64, 11_584_u64), ((1 << 26) - 1, 1), (1, 1 << 26), (1 << 20, 126)] {
            let made = a * b.div_ceil(8) + a.min(256) * b.div_ceil(64) * 8;
            assert!(needed_bytes(a as usize, b as usize) as u64 >= made, "{a} {b}");
        }
    }
}
