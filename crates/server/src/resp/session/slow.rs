//! What the slow log keeps of a command.

use super::Session;
use crate::resp::wire::commands::Command;
use crate::service::{Service, wall_clock_ms};

/// Redis' bounds: arguments of an entry, and bytes of one.
const ARGUMENTS_MAX: usize = 32;
const ARGUMENT_BYTES_MAX: usize = 128;

/// Writes a command down. Of one that may have secrets only the verb is kept.
pub(in crate::resp) fn note(
    command: Command<'_>,
    took_us: u64,
    secret: bool,
    session: &Session,
    service: &Service,
) {
    let mut arguments = Vec::new();
    for (index, argument) in command.arguments(0).enumerate() {
        if index + 1 == ARGUMENTS_MAX && command.len() > ARGUMENTS_MAX {
            let more = command.len() - index;
            arguments.push(format!("... ({more} more arguments)").into_bytes());
            break;
        }
        arguments.push(match argument.len().checked_sub(ARGUMENT_BYTES_MAX) {
            _ if secret && index > 0 => b"(redacted)".to_vec(),
            None | Some(0) => argument.to_vec(),
            Some(more) => {
                let mut cut = argument[..ARGUMENT_BYTES_MAX].to_vec();
                cut.extend_from_slice(format!("... ({more} more bytes)").as_bytes());
                cut
            }
        });
    }
    service.slowlog.note(wall_clock_ms() / 1000, took_us, arguments, session.peer, session.client.name());
}
