//! Checks of subcommands.

use crate::resp::verbs::{self, Verb};
use crate::resp::wire::commands::Command;
use crate::resp::wire::error_text;

/// Returns the name of a command in errors: its verb, with its subcommand if it has one.
pub(super) fn full_name(verb: &Verb, command: Command<'_>) -> &'static str {
    let subcommand = command.arguments(1).next().and_then(|word| verb.subcommand(word));
    subcommand.map_or(verb.name, |subcommand| subcommand.name)
}

/// Checks that a command whose verb has subcommands names one of them, with a valid number of arguments. A verb
/// that requires a subcommand enforces this by its own arity.
pub(super) fn check(verb: &Verb, command: Command<'_>) -> Result<(), String> {
    let Some(word) = command.arguments(1).next().filter(|_| verb.has_subcommands()) else { return Ok(()) };
    match verb.subcommand(word) {
        Some(subcommand) if subcommand.accepts(command.len()) => Ok(()),
        Some(subcommand) => Err(error_text::wrong_arguments(subcommand.name)),
        None => Err(match verbs::family_of_subcommand(verb.name, word) {
            Some(family) => {
                let name = format!("{} {}", verb.name, error_text::shown(word, 128));
                format!("ERR {}", error_text::of_another_type(&name, family))
            }
            None => error_text::unknown_subcommand(&verb.name.to_ascii_uppercase(), command),
        }),
    }
}
