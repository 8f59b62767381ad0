//! The arguments of a command as the slow log and MONITOR show them.

use super::Session;
use crate::resp::wire::commands::Command;
use crate::service::{Service, wall_clock_ms};

/// Redis' bounds: arguments of an entry, and bytes of an argument.
const ARGUMENTS_MAX: usize = 32;
const ARGUMENT_BYTES_MAX: usize = 128;

/// Adds a command to the slow log. Of a command that may contain secrets only the verb is kept.
pub(in crate::resp) fn note(
    command: Command<'_>,
    took_us: u64,
    secret: bool,
    session: &Session,
    service: &Service,
) {
    let arguments = shortened(command, secret, ARGUMENTS_MAX, ARGUMENT_BYTES_MAX);
    service.slowlog.note(
        wall_clock_ms() / 1000,
        took_us,
        arguments,
        session.peer.clone(),
        session.client.name(),
    );
}

/// Returns the arguments of a command, cut to the given number and length. Of a command that may contain secrets only
/// the verb is shown.
pub(in crate::resp) fn shortened(
    command: Command<'_>,
    secret: bool,
    arguments_max: usize,
    argument_bytes_max: usize,
) -> Vec<Vec<u8>> {
    let mut arguments = Vec::new();
    for (index, argument) in command.arguments(0).enumerate() {
        if index + 1 == arguments_max && command.len() > arguments_max {
            let more = command.len() - index;
            arguments.push(format!("... ({more} more arguments)").into_bytes());
            break;
        }
        arguments.push(match argument.len().checked_sub(argument_bytes_max) {
            _ if secret && index > 0 => b"(redacted)".to_vec(),
            None | Some(0) => argument.to_vec(),
            Some(more) => {
                let mut cut = argument[..argument_bytes_max].to_vec();
                cut.extend_from_slice(format!("... ({more} more bytes)").as_bytes());
                cut
            }
        });
    }
    arguments
}
