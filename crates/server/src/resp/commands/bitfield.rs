//! BITFIELD and BITFIELD_RO: integers of any width at any bit of a value.

use super::bits::{LOOKED_AT_BYTES_MAX, grown, offset_of};
use crate::auth::Needs;
use crate::resp::session::view::View;
use crate::resp::verb::facts::{Access, Group, Keys, Sizes, access, flags};
use crate::resp::verb::{Run, Verb};
use crate::resp::wire::commands::Command;
use crate::resp::wire::error_text::{self, is};
use crate::resp::wire::number::parse_integer;
use crate::resp::wire::reply::Replies;
use crate::service::events::KeyspaceEvents;

const ON_BITS: Verb =
    Verb { group: Group::Bitmap, keys: Keys::ONE, categories: &["bitmap"], ..Verb::DEFAULT };

const WRITTEN: Sizes = Sizes {
    after: |command, longest, most| longest.max(made_bytes(command, most)),
    made: |command, most| made_bytes(command, most).min(most),
    ..Sizes::MADE
};

/// BITFIELD may only read.
fn access_of(command: Command<'_>) -> (Needs, Access) {
    (Needs::ReadWrite, if only_looks(command) { access::READ } else { access::READ_UPDATE })
}

/// The commands of this family.
#[rustfmt::skip]
pub(super) const COMMANDS: &[Verb] = &[
    Verb { name: "bitfield", arity: -2, run: Run::Update(bitfield), access: &[access::VARIABLE],
        needs: Needs::ReadWrite, flags: flags::LONG_WRITE, sizes: WRITTEN, by_arguments: Some(access_of),
        access_note: Some("This command allows both access and modification of the key"), since: "3.2.0",
        summary: "Reads and changes integers of any width at any bit of a value.", ..ON_BITS },
    Verb { name: "bitfield_ro", arity: -2, run: Run::Read(bitfield_ro), access: &[access::READ], needs: Needs::Read,
        flags: flags::READ, since: "6.0.0", summary: "Reads integers of any width at any bit of a value.",
        ..ON_BITS },
];

const NO_TYPE: &str =
    "ERR Invalid bitfield type. Use something like i16 u8. Note that u64 is not supported but i64 is.";

/// The width and signedness of an integer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Type {
    signed: bool,
    bits: u32,
}

/// The treatment of a number that is out of range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Overflow {
    /// The lowest bits are taken.
    Wrap,
    /// The nearest number in range is taken.
    Saturate,
    /// Nothing is written.
    Fail,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Action {
    Get,
    Set(i64),
    Add(i64),
}

#[derive(Clone, Copy, Debug)]
struct Operation {
    of: Type,
    offset: u64,
    action: Action,
    overflow: Overflow,
}

impl Type {
    fn parse(text: &[u8]) -> Result<Type, &'static str> {
        let (signed, most) = match text.first() {
            Some(b'i') => (true, 64),
            Some(b'u') => (false, 63),
            _ => return Err(NO_TYPE),
        };
        let bits = parse_integer(&text[1..]).filter(|bits| (1..=most).contains(bits)).ok_or(NO_TYPE)?;
        Ok(Type { signed, bits: bits as u32 })
    }

    fn least(self) -> i128 {
        if self.signed { -(1 << (self.bits - 1)) } else { 0 }
    }

    fn most(self) -> i128 {
        if self.signed { (1 << (self.bits - 1)) - 1 } else { (1 << self.bits) - 1 }
    }

    /// Returns the number to write, or `None` if nothing is written.
    fn fit(self, number: i128, overflow: Overflow) -> Option<i128> {
        if (self.least()..=self.most()).contains(&number) {
            return Some(number);
        }
        match overflow {
            Overflow::Fail => None,
            Overflow::Saturate => Some(number.clamp(self.least(), self.most())),
            Overflow::Wrap => Some(self.of_bits((number as u128 & ((1 << self.bits) - 1)) as u64)),
        }
    }

    /// Returns the number with the given lowest bits.
    fn of_bits(self, bits: u64) -> i128 {
        let number = i128::from(bits);
        if self.signed && number > self.most() { number - (1 << self.bits) } else { number }
    }

    /// Returns the number at a bit offset. Bits beyond the end are zeros.
    fn read(self, value: &[u8], offset: u64) -> i128 {
        let bit = |at: u64| value.get((at / 8) as usize).map_or(0, |byte| byte >> (7 - at % 8) & 1);
        let bits = (offset..offset + u64::from(self.bits)).fold(0, |bits, at| bits << 1 | u64::from(bit(at)));
        self.of_bits(bits)
    }

    fn write(self, value: &mut [u8], offset: u64, number: i128) {
        for place in 0..self.bits {
            let at = offset + u64::from(self.bits - 1 - place);
            let (byte, shift) = (&mut value[(at / 8) as usize], 7 - at % 8);
            *byte = *byte & !(1 << shift) | ((number >> place & 1) as u8) << shift;
        }
    }
}

/// Parses all operations of a command, in their order.
fn operations(command: Command<'_>, bytes_max: usize) -> Result<Vec<Operation>, &'static str> {
    let (mut operations, mut overflow) = (Vec::new(), Overflow::Wrap);
    let mut arguments = command.arguments(2);
    while let Some(word) = arguments.next() {
        let left = arguments.len();
        if is(word, "overflow") && left >= 1 {
            overflow = match arguments.next() {
                Some(word) if is(word, "wrap") => Overflow::Wrap,
                Some(word) if is(word, "sat") => Overflow::Saturate,
                Some(word) if is(word, "fail") => Overflow::Fail,
                _ => return Err("ERR Invalid OVERFLOW type specified"),
            };
            continue;
        }
        let writes = is(word, "set") || is(word, "incrby");
        if !(writes && left >= 3 || is(word, "get") && left >= 2) {
            return Err(error_text::SYNTAX);
        }
        let of = Type::parse(arguments.next().unwrap_or_default())?;
        let place = arguments.next().unwrap_or_default();
        let most = if writes { bytes_max } else { LOOKED_AT_BYTES_MAX };
        let offset = offset_of(place, Some(u64::from(of.bits)), most)?;
        let mut action = Action::Get;
        if writes {
            let text = arguments.next().unwrap_or_default();
            let number = parse_integer(text).ok_or(error_text::NOT_AN_INTEGER)?;
            action = if is(word, "set") { Action::Set(number) } else { Action::Add(number) };
        }
        operations.push(Operation { of, offset, action, overflow });
    }
    Ok(operations)
}

/// Returns the last bit that a command writes, or `None` if it writes nothing.
fn last_written(operations: &[Operation]) -> Option<u64> {
    let writes = operations.iter().filter(|operation| operation.action != Action::Get);
    writes.map(|operation| operation.offset + u64::from(operation.of.bits) - 1).max()
}

/// Returns the minimum length of the value that a command makes, in bytes.
pub(in crate::resp) fn made_bytes(command: Command<'_>, bytes_max: usize) -> usize {
    let operations = operations(command, bytes_max).unwrap_or_default();
    last_written(&operations).map_or(0, |bit| (bit / 8) as usize + 1)
}

pub(super) fn bitfield(command: Command<'_>, view: &mut View, replies: &mut Replies) {
    let operations = match operations(command, view.value_bytes_max) {
        Ok(operations) => operations,
        Err(error) => return replies.error(error),
    };
    let key = command.argument(1);
    let Some(last) = last_written(&operations) else { return read_all(&operations, key, view, replies) };
    if (last / 8) as usize >= view.value_bytes_max {
        return replies.error(error_text::TOO_LONG);
    }
    let (mut value, expires_at_ms) = grown(view, key, last);
    let is_longer = view.get(key).is_none_or(|held| held.value.len() < value.len());
    let mut has_changed = false;
    replies.array(operations.len());
    for Operation { of, offset, action, overflow } in operations {
        let old = of.read(&value, offset);
        let (wanted, answers_old) = match action {
            Action::Get => {
                replies.integer(old as i64);
                continue;
            }
            // For an unsigned type, a negative number is taken as a very large one.
            Action::Set(number) if !of.signed => (i128::from(number as u64), true),
            Action::Set(number) => (number.into(), true),
            Action::Add(number) => (old + i128::from(number), false),
        };
        match of.fit(wanted, overflow) {
            Some(new) => {
                of.write(&mut value, offset, new);
                has_changed |= is_longer || new != old;
                replies.integer(if answers_old { old } else { new } as i64);
            }
            None => replies.null(),
        }
    }
    // If every operation failed, a value that was only extended is kept without an event, as in Redis.
    if has_changed || is_longer {
        view.put(key, value.freeze(), expires_at_ms);
    }
    if has_changed {
        view.tell(KeyspaceEvents::STRING, "setbit", key);
    }
}

fn read_all(operations: &[Operation], key: &[u8], view: &mut View, replies: &mut Replies) {
    let value = view.look_up(key).map_or(&[][..], |held| &held.value);
    replies.array(operations.len());
    operations
        .iter()
        .for_each(|operation| replies.integer(operation.of.read(value, operation.offset) as i64));
}

pub(super) fn bitfield_ro(command: Command<'_>, view: &mut View, replies: &mut Replies) {
    match operations(command, view.value_bytes_max) {
        Ok(operations) if last_written(&operations).is_some() => {
            replies.error("ERR BITFIELD_RO only supports the GET subcommand");
        }
        Ok(operations) => read_all(&operations, command.argument(1), view, replies),
        Err(error) => replies.error(error),
    }
}

/// Returns true if a BITFIELD only reads. As in Redis, each word at which an operation may begin must be GET or
/// OVERFLOW.
fn only_looks(command: Command<'_>) -> bool {
    let mut words = command.arguments(2);
    while let Some(word) = words.next() {
        match words.len() {
            2.. if is(word, "get") => words.nth(1),
            1.. if is(word, "overflow") => words.next(),
            _ => return false,
        };
    }
    true
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn bitfield_overflow_wraps_saturates_or_fails() {
        let (i8, u8) = (Type { signed: true, bits: 8 }, Type { signed: false, bits: 8 });
        assert_eq!(
            [127, 128, -128, -129].map(|n| i8.fit(n, Overflow::Wrap)),
            [127, -128, -128, 127].map(Some)
        );
        assert_eq!([127, 128, -129].map(|n| i8.fit(n, Overflow::Saturate)), [127, 127, -128].map(Some));
        assert_eq!([255, 256, -1].map(|n| u8.fit(n, Overflow::Wrap)), [255, 0, 255].map(Some));
        assert_eq!([256, -1].map(|n| u8.fit(n, Overflow::Fail)), [None, None]);
        let i64 = Type { signed: true, bits: 64 };
        assert_eq!(i64.fit(i128::from(i64::MAX) + 1, Overflow::Wrap), Some(i64::MIN.into()));
    }

    proptest! {
        #[test]
        fn bitfield_write_is_read_back_and_changes_only_its_bits(
            value in prop::collection::vec(any::<u8>(), 20),
            offset in 0..90_u64,
            (signed, bits) in prop_oneof![(Just(true), 1..=64_u32), (Just(false), 1..=63_u32)],
            number in any::<i64>(),
        ) {
            let of = Type { signed, bits };
            let number = of.fit(number.into(), Overflow::Wrap).expect("wrapping never fails");
            let mut written = value.clone();
            of.write(&mut written, offset, number);
            prop_assert_eq!(of.read(&written, offset), number);
            of.write(&mut written, offset, of.read(&value, offset));
            prop_assert_eq!(written, value);
        }
    }
}
