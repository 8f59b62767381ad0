//! Upper bounds of the lengths of values that commands make, from their arguments.

use std::collections::HashSet;
use std::hash::Hash;

use super::bitfield;
use super::dump::restored_bytes;
use super::{hyperloglog, lcs};
use crate::resp::verbs::Verb;
use crate::resp::wire::commands::Command;
use crate::resp::wire::number::parse_integer;

/// Returns the upper bound of the length of the values of a command's keys after it ran.
pub(in crate::resp) fn after_bytes(
    verb: &Verb,
    command: Command<'_>,
    largest: usize,
    bulk_bytes_max: usize,
) -> usize {
    match verb.name {
        "append" => largest.saturating_add(command.bytes()),
        "setrange" => {
            let offset = parse_integer(command.argument(2)).and_then(|offset| usize::try_from(offset).ok());
            let made = offset.unwrap_or(0).saturating_add(command.argument(3).len());
            // A value that would be too long is refused, not made.
            if made > bulk_bytes_max { largest } else { largest.max(made) }
        }
        "setbit" => {
            let bit = parse_integer(command.argument(2)).and_then(|bit| usize::try_from(bit).ok());
            let made = bit.map_or(0, |bit| bit / 8 + 1);
            if made > bulk_bytes_max { largest } else { largest.max(made) }
        }
        "bitfield" => largest.max(bitfield::made_bytes(command, bulk_bytes_max)),
        // As above, a value that would be too long is refused.
        "restore" => largest.max(restored_bytes(command).min(bulk_bytes_max)),
        "pfadd" | "pfcount" | "pfmerge" => largest.max(hyperloglog::MADE_BYTES),
        "lcs" => largest,
        "incrbyfloat" => largest.max(FLOAT_BYTES),
        // The new value is an argument, another of the command's values, or an integer.
        _ => largest.max(command.bytes()).max(INTEGER_BYTES),
    }
}

/// Returns the total length of the values of keys that were named before in the same command.
pub(in crate::resp) fn repeated_bytes<K: Hash + Eq>(keys: impl Iterator<Item = (K, usize)>) -> usize {
    let mut known = HashSet::new();
    keys.filter_map(|(key, bytes)| (!known.insert(key)).then_some(bytes)).fold(0, usize::saturating_add)
}

/// Returns the value bytes that a command scans in one uninterruptible step without making or answering anything
/// long.
pub(in crate::resp) fn looked_through_bytes(verb: &Verb, sum: usize) -> usize {
    if matches!(verb.name, "bitcount" | "bitpos") { sum } else { 0 }
}

/// Returns the bytes of a value that becomes a separate copy only when it is written.
pub(in crate::resp) fn copied_bytes(verb: &Verb, after: usize) -> usize {
    if verb.name == "copy" { after } else { 0 }
}

/// Returns the bytes of values that a command answers, makes from others, or scans, plus the temporary data of LCS.
/// `repeated` returns the bytes that are scanned again because a key is named again; few commands call it.
pub(in crate::resp) fn moved_bytes(
    verb: &Verb,
    command: Command<'_>,
    sum: usize,
    after: usize,
    repeated: impl FnOnce() -> usize,
) -> usize {
    match verb.name {
        "append" | "setrange" | "setbit" | "bitfield" | "incrbyfloat" | "restore" | "pfadd" => after,
        // These scan in one uninterruptible step, so the scanned bytes are bounded as well.
        "bitop" | "pfcount" | "pfmerge" => after.saturating_add(repeated()),
        "lcs" => lcs::needed_bytes(after, sum - after),
        "dump" => sum.saturating_add(esker_rdb::dump::OVERHEAD_BYTES),
        "set" if command.len() == 3 => 0,
        "get" | "getex" | "getdel" | "getset" | "mget" | "getrange" | "substr" | "set" => sum,
        _ => 0,
    }
}

const INTEGER_BYTES: usize = 20;

/// Limit of the bytes of a number that INCRBYFLOAT makes.
const FLOAT_BYTES: usize = 5 << 10;
