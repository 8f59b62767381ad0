//! How long values are that commands make, as far as the commands say.

use std::collections::HashSet;
use std::hash::Hash;

use super::bitfield;
use super::dump::restored_bytes;
use super::{hyperloglog, lcs};
use crate::resp::verbs::Verb;
use crate::resp::wire::commands::Command;
use crate::resp::wire::number::parse_integer;

/// How long the longest value of a command's keys can be when it has run.
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
            // What would be too long is refused, and not made.
            if made > bulk_bytes_max { largest } else { largest.max(made) }
        }
        "setbit" => {
            let bit = parse_integer(command.argument(2)).and_then(|bit| usize::try_from(bit).ok());
            let made = bit.map_or(0, |bit| bit / 8 + 1);
            if made > bulk_bytes_max { largest } else { largest.max(made) }
        }
        "bitfield" => largest.max(bitfield::made_bytes(command, bulk_bytes_max)),
        // What would be too long is refused here, too.
        "restore" => largest.max(restored_bytes(command).min(bulk_bytes_max)),
        "pfadd" | "pfcount" | "pfmerge" => largest.max(hyperloglog::MADE_BYTES),
        "lcs" => largest,
        "incrbyfloat" => largest.max(FLOAT_BYTES),
        // What is no argument is another of its values, or an integer.
        _ => largest.max(command.bytes()).max(INTEGER_BYTES),
    }
}

/// How long the values of a command's keys are that were named before, in the same command.
pub(in crate::resp) fn repeated_bytes<K: Hash + Eq>(keys: impl Iterator<Item = (K, usize)>) -> usize {
    let mut known = HashSet::new();
    keys.filter_map(|(key, bytes)| (!known.insert(key)).then_some(bytes)).fold(0, usize::saturating_add)
}

/// Bytes of values that a command goes through in one step, which nobody can interrupt, and neither makes nor answers anything long.
pub(in crate::resp) fn looked_through_bytes(verb: &Verb, sum: usize) -> usize {
    if matches!(verb.name, "bitcount" | "bitpos") { sum } else { 0 }
}

/// Bytes of the value that becomes one of its own when it is written, and is none before.
pub(in crate::resp) fn copied_bytes(verb: &Verb, after: usize) -> usize {
    if verb.name == "copy" { after } else { 0 }
}

/// Bytes of values that a command answers, makes of others, or goes through; what LCS makes on the way; and values that a command goes
/// through once more because their key is named again, `repeated`, which few commands ask for.
pub(in crate::resp) fn moved_bytes(
    verb: &Verb,
    command: Command<'_>,
    sum: usize,
    after: usize,
    repeated: impl FnOnce() -> usize,
) -> usize {
    match verb.name {
        "append" | "setrange" | "setbit" | "bitfield" | "incrbyfloat" | "restore" | "pfadd" => after,
        // In one step, which nobody can interrupt: so that is bounded too.
        "bitop" | "pfcount" | "pfmerge" => after.saturating_add(repeated()),
        "lcs" => lcs::needed_bytes(after, sum - after),
        "dump" => sum.saturating_add(esker_rdb::dump::OVERHEAD_BYTES),
        "set" if command.len() == 3 => 0,
        "get" | "getex" | "getdel" | "getset" | "mget" | "getrange" | "substr" | "set" => sum,
        _ => 0,
    }
}

const INTEGER_BYTES: usize = 20;

/// The longest number that INCRBYFLOAT makes.
const FLOAT_BYTES: usize = 5 << 10;
