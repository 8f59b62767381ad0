//! Estimates of the processor time of commands, so that long ones run beside the serving threads.
//!
//! An estimate is in microseconds of a release build, and is computed from the arguments and from the sizes of values
//! in the index. It is an upper bound for most commands: an estimate that is too high costs a thread hand-over (some
//! 50 us), one that is too low delays other clients.

use crate::resp::session::Session;
use crate::resp::verb::Verb;
use crate::resp::wire::commands::{Command, Commands};

/// Microseconds above which commands run beside the serving threads.
const LONG_US: usize = 250;

/// Bytes of answers about the server that are built per microsecond.
pub(super) const ANSWER_BYTES_A_US: usize = 100;

/// Bytes that are read, checked, decompressed or copied per microsecond.
const BYTES_A_US: usize = 1024;

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
    (verb.work_us)(command) + of_bytes(command.bytes())
}

/// Returns the microseconds that a command takes to free the state of the session.
pub(super) fn of_release(verb: &Verb, session: &Session) -> usize {
    if verb.frees_session { session.kept_len() } else { 0 }
}

/// Returns true if freeing the state of the session takes long.
pub(in crate::resp) fn is_long_release(session: &Session) -> bool {
    is_long(session.kept_len())
}
