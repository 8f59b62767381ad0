//! Values as bit strings: SETBIT, GETBIT, BITCOUNT, BITPOS, BITOP. Bit 0 is the highest bit of the first byte.

use bytes::{Bytes, BytesMut};

use crate::auth::Needs;
use crate::resp::session::view::View;
use crate::resp::verb::facts::{Group, Keys, Sizes, access, flags};
use crate::resp::verb::{Run, Verb};
use crate::resp::wire::commands::Command;
use crate::resp::wire::error_text::{self, is};
use crate::resp::wire::number::parse_integer;
use crate::resp::wire::reply::Replies;
use crate::service::events::KeyspaceEvents;

const ON_BITS: Verb =
    Verb { group: Group::Bitmap, keys: Keys::ONE, categories: &["bitmap"], ..Verb::DEFAULT };

/// A value that would be too long is refused, not made.
const BIT_SET: Sizes = Sizes {
    after: |command, longest, most| longest.max(Some(end(command)).filter(|end| *end <= most).unwrap_or(0)),
    made: |command, most| end(command).min(most),
    ..Sizes::MADE
};

/// Values are scanned in one uninterruptible step, so the scanned bytes are bounded as well.
const JOINED: Sizes =
    Sizes { moved: |_, values| values.after.saturating_add((values.repeated)()), ..Sizes::DEFAULT };

/// Returns the length of the value that a SETBIT makes of an absent key.
fn end(command: Command<'_>) -> usize {
    let bit = parse_integer(command.argument(2)).and_then(|bit| usize::try_from(bit).ok());
    bit.map_or(0, |bit| bit / 8 + 1)
}

/// The commands of this family.
#[rustfmt::skip]
pub(super) const COMMANDS: &[Verb] = &[
    Verb { name: "bitcount", arity: -2, run: Run::Read(bitcount), access: &[access::READ], needs: Needs::Read,
        flags: flags::LONG_READ, sizes: Sizes { is_scan: true, ..Sizes::DEFAULT }, since: "2.6.0",
        summary: "Counts the ones in a value, or in a part of it.", ..ON_BITS },
    Verb { name: "bitop", arity: -4, run: Run::Update(bitop), keys: Keys::FROM_SECOND,
        access: &[access::OVERWRITE, access::READ], needs: Needs::ReadWrite, flags: flags::LONG_WRITE,
        sizes: JOINED, since: "2.6.0", summary: "Joins values bit by bit, and writes what comes of it.",
        ..ON_BITS },
    Verb { name: "bitpos", arity: -3, run: Run::Read(bitpos), access: &[access::READ], needs: Needs::Read,
        flags: flags::LONG_READ, sizes: Sizes { is_scan: true, ..Sizes::DEFAULT }, since: "2.8.7",
        summary: "Finds the first one or zero in a value.", ..ON_BITS },
    Verb { name: "getbit", arity: 3, run: Run::Read(getbit), access: &[access::READ], needs: Needs::Read,
        flags: flags::READ, since: "2.2.0", summary: "Returns a bit of a value.", ..ON_BITS },
    Verb { name: "setbit", arity: 4, run: Run::Update(setbit), access: &[access::READ_UPDATE],
        needs: Needs::ReadWrite, flags: flags::LONG_WRITE, sizes: BIT_SET, since: "2.2.0",
        summary: "Sets a bit of a value, and returns what it was.", ..ON_BITS },
];

const NO_OFFSET: &str = "ERR bit offset is not an integer or out of range";

/// Limit of the offset of a bit that is read, in bytes, as in Redis. May exceed the limit of values: bits beyond the
/// end are zeros.
pub(super) const LOOKED_AT_BYTES_MAX: usize = 512 << 20;

/// Parses the offset of a bit in a value of at most `bytes_max` bytes. `#4` is the start of unit 4 of `unit_bits`
/// bits, where units are allowed.
pub(super) fn offset_of(text: &[u8], unit_bits: Option<u64>, bytes_max: usize) -> Result<u64, &'static str> {
    let (number, factor) = match (text.strip_prefix(b"#"), unit_bits) {
        (Some(number), Some(bits)) => (number, bits),
        _ => (text, 1),
    };
    let offset = parse_integer(number).and_then(|number| u64::try_from(number).ok());
    let offset = offset.and_then(|offset| offset.checked_mul(factor));
    offset.filter(|offset| offset / 8 < bytes_max as u64).ok_or(NO_OFFSET)
}

/// Returns a copy of a key's value, extended with zeros to include `last_bit`, and its expiry.
pub(super) fn grown(view: &View, key: &[u8], last_bit: u64) -> (BytesMut, Option<u64>) {
    let (old, expires_at_ms) =
        view.get(key).map_or((Bytes::new(), None), |held| (held.value.clone(), held.expires_at_ms));
    let bytes = old.len().max((last_bit / 8) as usize + 1);
    let mut value = BytesMut::with_capacity(bytes);
    value.extend_from_slice(&old);
    value.resize(bytes, 0);
    (value, expires_at_ms)
}

/// `SETBIT key offset bit`.
pub(super) fn setbit(command: Command<'_>, view: &mut View, replies: &mut Replies) {
    let key = command.argument(1);
    let offset = match offset_of(command.argument(2), None, view.value_bytes_max) {
        Ok(offset) => offset,
        Err(error) => return replies.error(error),
    };
    let bit = match parse_integer(command.argument(3)) {
        Some(bit @ (0 | 1)) => bit as u8,
        _ => return replies.error("ERR bit is not an integer or out of range"),
    };
    let (mut value, expires_at_ms) = grown(view, key, offset);
    let (byte, shift) = (&mut value[(offset / 8) as usize], 7 - offset % 8);
    let old = *byte >> shift & 1;
    *byte = *byte & !(1 << shift) | bit << shift;
    put_bits(view, key, value.freeze(), expires_at_ms);
    replies.integer(old.into());
}

/// Writes a value if it has changed.
fn put_bits(view: &mut View, key: &[u8], value: Bytes, expires_at_ms: Option<u64>) {
    if view.get(key).is_none_or(|held| held.value != value) {
        view.put(key, value, expires_at_ms);
        view.tell(KeyspaceEvents::STRING, "setbit", key);
    }
}

/// `GETBIT key offset`: bits beyond the end are zeros.
pub(super) fn getbit(command: Command<'_>, view: &mut View, replies: &mut Replies) {
    let offset = match offset_of(command.argument(2), None, LOOKED_AT_BYTES_MAX) {
        Ok(offset) => offset,
        Err(error) => return replies.error(error),
    };
    let byte = view.look_up(command.argument(1)).and_then(|held| held.value.get((offset / 8) as usize));
    replies.integer(byte.map_or(0, |byte| byte >> (7 - offset % 8) & 1).into());
}

/// Bits from `start` to `end`, inclusive.
struct Range {
    start: u64,
    end: u64,
}

/// Returns the bits between two positions in `length` units of `unit_bits` bits, or `None` if the range is empty.
/// Negative positions count from the end.
fn range(first: i64, last: i64, length: u64, unit_bits: u64) -> Option<Range> {
    let length = length as i64;
    let from_end = |at: i64| if at < 0 { at.saturating_add(length).max(0) } else { at };
    let (start, end) = (from_end(first), from_end(last).min(length - 1));
    (start <= end).then(|| Range { start: start as u64 * unit_bits, end: (end as u64 + 1) * unit_bits - 1 })
}

/// Returns the bits of a unit: 1 for BIT, 8 for BYTE, which is the default.
fn unit_bits(word: Option<&[u8]>) -> Option<u64> {
    match word {
        Some(word) if is(word, "bit") => Some(1),
        Some(word) if is(word, "byte") => Some(8),
        Some(_) => None,
        None => Some(8),
    }
}

/// Returns the first and the last byte of a range, and the masks of the bits in the range for both.
fn edges(range: &Range) -> (usize, usize, u8, u8) {
    let (first, last) = ((range.start / 8) as usize, (range.end / 8) as usize);
    (first, last, 0xFF >> (range.start % 8), 0xFF << (7 - range.end % 8))
}

fn count(value: &[u8], range: &Range) -> u64 {
    let (first, last, head, tail) = edges(range);
    if first == last {
        return (value[first] & head & tail).count_ones().into();
    }
    let (words, rest) = value[first + 1..last].as_chunks::<8>();
    let of_words: u64 = words.iter().map(|word| u64::from(u64::from_ne_bytes(*word).count_ones())).sum();
    let of_rest: u32 = rest.iter().map(|byte| byte.count_ones()).sum();
    of_words + u64::from(of_rest + (value[first] & head).count_ones() + (value[last] & tail).count_ones())
}

/// `BITCOUNT key [start end [BYTE | BIT]]`.
pub(super) fn bitcount(command: Command<'_>, view: &mut View, replies: &mut Replies) {
    let Some(held) = view.look_up(command.argument(1)) else { return replies.integer(0) };
    let value = &held.value;
    let range = match command.len() {
        2 => range(0, -1, value.len() as u64, 8),
        4 | 5 => {
            let positions = [2, 3].map(|at| parse_integer(command.argument(at)));
            let [Some(first), Some(last)] = positions else {
                return replies.error(error_text::NOT_AN_INTEGER);
            };
            if first < 0 && last < 0 && first > last {
                return replies.integer(0);
            }
            let Some(bits) = unit_bits(command.arguments(4).next()) else {
                return replies.error(error_text::SYNTAX);
            };
            range(first, last, value.len() as u64 * 8 / bits, bits)
        }
        _ => return replies.error(error_text::SYNTAX),
    };
    replies.integer(range.map_or(0, |range| count(value, &range)) as i64);
}

/// Returns the position of the first bit in a range with the value `bit`.
fn find(value: &[u8], range: &Range, bit: u8) -> Option<u64> {
    let (first, last, head, tail) = edges(range);
    // Inverts the bytes for `bit` 0, so that the search is always for a one.
    let turn = if bit == 0 { 0xFF } else { 0 };
    let looked_at = |at: usize| {
        let mut byte = value[at] ^ turn;
        if at == first {
            byte &= head;
        }
        if at == last {
            byte &= tail;
        }
        byte
    };
    let inner = value.get(first + 1..last).unwrap_or_default();
    let at = match looked_at(first) {
        0 => inner.iter().position(|byte| byte ^ turn != 0).map_or(last, |at| first + 1 + at),
        _ => first,
    };
    let byte = looked_at(at);
    (byte != 0).then(|| at as u64 * 8 + u64::from(byte.leading_zeros()))
}

/// `BITPOS key bit [start [end [BYTE | BIT]]]`. Bits beyond the end of a value are zeros, unless an end is given.
pub(super) fn bitpos(command: Command<'_>, view: &mut View, replies: &mut Replies) {
    let bit = match parse_integer(command.argument(2)) {
        Some(bit @ (0 | 1)) => bit as u8,
        Some(_) => return replies.error("ERR The bit argument must be 1 or 0."),
        None => return replies.error(error_text::NOT_AN_INTEGER),
    };
    let Some(held) = view.look_up(command.argument(1)) else {
        return replies.integer(if bit == 1 { -1 } else { 0 });
    };
    let value = &held.value;
    if command.len() > 6 {
        return replies.error(error_text::SYNTAX);
    }
    let mut arguments = command.arguments(3);
    let Some(first) = arguments.next().map_or(Some(0), parse_integer) else {
        return replies.error(error_text::NOT_AN_INTEGER);
    };
    let end = arguments.next();
    let Some(bits) = unit_bits(arguments.next()) else { return replies.error(error_text::SYNTAX) };
    let Some(last) = end.map_or(Some(-1), parse_integer) else {
        return replies.error(error_text::NOT_AN_INTEGER);
    };
    let found = match range(first, last, value.len() as u64 * 8 / bits, bits) {
        Some(range) => find(value, &range, bit),
        None => return replies.integer(-1),
    };
    let behind = (bit == 0 && end.is_none()).then_some(value.len() as u64 * 8);
    replies.integer(found.or(behind).map_or(-1, |at| at as i64));
}

/// `BITOP AND | OR | XOR | NOT destination key …`. Short values are padded with zeros.
pub(super) fn bitop(command: Command<'_>, view: &mut View, replies: &mut Replies) {
    let operation = command.argument(1);
    let join: fn(u8, u8) -> u8 = match operation {
        word if is(word, "and") => |a, b| a & b,
        word if is(word, "or") => |a, b| a | b,
        word if is(word, "xor") => |a, b| a ^ b,
        word if is(word, "not") && command.len() == 4 => |a, _| !a,
        word if is(word, "not") => {
            return replies.error("ERR BITOP NOT must be called with a single source key.");
        }
        _ => return replies.error(error_text::SYNTAX),
    };
    let sources: Vec<Bytes> = command
        .arguments(3)
        .map(|key| view.look_up(key).map_or(Bytes::new(), |held| held.value.clone()))
        .collect();
    let bytes = sources.iter().map(Bytes::len).max().unwrap_or(0);
    let destination = command.argument(2);
    if bytes == 0 {
        if view.delete(destination) {
            view.tell(KeyspaceEvents::GENERIC, "del", destination);
        }
        return replies.integer(0);
    }
    let mut made = BytesMut::zeroed(bytes);
    made[..sources[0].len()].copy_from_slice(&sources[0]);
    if is(operation, "not") {
        made.iter_mut().for_each(|byte| *byte = join(*byte, 0));
    }
    for source in &sources[1..] {
        let (both, beyond) = made.split_at_mut(source.len());
        both.iter_mut().zip(source).for_each(|(byte, other)| *byte = join(*byte, *other));
        beyond.iter_mut().for_each(|byte| *byte = join(*byte, 0));
    }
    view.put(destination, made.freeze(), None);
    view.tell(KeyspaceEvents::STRING, "set", destination);
    replies.integer(bytes as i64);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn bits_of(value: &[u8]) -> Vec<u8> {
        value.iter().flat_map(|byte| (0..8).map(move |at| byte >> (7 - at) & 1)).collect()
    }

    proptest! {
        #[test]
        fn counting_and_finding_agree_with_a_list_of_bits(
            value in prop::collection::vec(prop_oneof![Just(0_u8), Just(0xFF), any::<u8>()], 1..40),
            start in any::<prop::sample::Index>(),
            end in any::<prop::sample::Index>(),
            bit in 0..2_u8,
        ) {
            let bits = bits_of(&value);
            let (start, end) = (start.index(bits.len()), end.index(bits.len()));
            let range = Range { start: start.min(end) as u64, end: start.max(end) as u64 };
            let part = &bits[start.min(end)..=start.max(end)];
            let ones = part.iter().filter(|bit| **bit == 1).count();
            prop_assert_eq!(count(&value, &range), ones as u64);
            let first = part.iter().position(|found| *found == bit).map(|at| at as u64 + range.start);
            prop_assert_eq!(find(&value, &range, bit), first);
        }
    }
}
