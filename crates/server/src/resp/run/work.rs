//! Estimates of the processor time of commands, so that long ones run beside the serving threads.
//!
//! An estimate is in microseconds of a release build, and is computed from the arguments and from the sizes of values
//! in the index. It is an upper bound for most commands: an estimate that is too high costs a thread hand-over (some
//! 50 us), one that is too low delays other clients.

use crate::resp::session::Session;
use crate::resp::verbs::Verb;
use crate::resp::wire::commands::{Command, Commands};

/// Microseconds above which commands run beside the serving threads.
const LONG_US: usize = 250;

/// Bytes of answers about the server that are built per microsecond.
pub(super) const ANSWER_BYTES_A_US: usize = 100;

/// Bytes that are read, checked, decompressed or copied per microsecond.
const BYTES_A_US: usize = 1024;

/// Microseconds for merging one HyperLogLog of 16,384 registers with others.
const SKETCH_US: usize = 70;

/// Microseconds of INCRBYFLOAT on a number with thousands of digits, which a short argument such as 1e4931 can make
/// of any value.
const LONG_FLOAT_US: usize = 100;

/// Digits of a number up to which INCRBYFLOAT takes no notable time.
const FLOAT_DIGITS: usize = 40;

/// Returns true if work of `us` microseconds should run beside the serving threads.
pub(super) fn is_long(us: usize) -> bool {
    us > LONG_US
}

/// Returns the microseconds that `bytes` of values or arguments take.
pub(super) fn of_bytes(bytes: usize) -> usize {
    bytes / BYTES_A_US
}

/// Returns true if the arguments of one of the commands take long even without values.
pub(in crate::resp) fn has_long_arguments(commands: &Commands) -> bool {
    let (arguments, bytes) = commands.longest();
    is_long(arguments + of_bytes(bytes))
}

/// Returns the microseconds of a command without the values of its keys.
pub(super) fn of_command(verb: &Verb, command: Command<'_>) -> usize {
    let arguments = match verb.name {
        "pfcount" | "pfmerge" => command.len() * SKETCH_US,
        "incrbyfloat" if is_long_float(command.argument(2)) => LONG_FLOAT_US,
        // Two values of 2,000 bytes are four million pairs.
        "lcs" => LONG_US + 1,
        _ => command.len(),
    };
    arguments + of_bytes(command.bytes())
}

/// The microseconds that a command takes to free what the session keeps.
pub(super) fn of_release(verb: &Verb, session: &Session) -> usize {
    if matches!(verb.name, "unwatch" | "discard" | "reset" | "exec") { session.kept_len() } else { 0 }
}

/// Returns true if freeing what the session keeps takes long.
pub(in crate::resp) fn is_long_release(session: &Session) -> bool {
    is_long(session.kept_len())
}

fn is_long_float(argument: &[u8]) -> bool {
    argument.len() > FLOAT_DIGITS || argument.iter().any(|byte| matches!(byte, b'e' | b'E'))
}
