//! Whether a command may run.

use super::{rights, subcommands};
use crate::resp::session::Session;
use crate::resp::verbs::{self, Verb};
use crate::resp::wire::commands::Command;
use crate::resp::wire::words;

/// The verb of a command that may run, or why it is refused. Redis' order: the verb, the number of arguments, then rights.
/// A subcommand is looked at by whoever answers it, and here too where that is not before EXEC.
pub(in crate::resp) fn admit(command: Command<'_>, session: &Session) -> Result<&'static Verb, String> {
    let verb = verbs::find(command).ok_or_else(|| unknown(command))?;
    if !verb.accepts(command.len()) {
        return Err(words::wrong_arguments(verb.name));
    }
    if session.transaction.is_some() {
        subcommands::check(verb, command)?;
    }
    let database = session.database_of_next();
    check_rights(verb, command, session, database).map_err(|denied| denied.text(verb))?;
    if session.hears_only() && !verb.is_for_subscribers() {
        return Err(words::not_while_subscribed(&subcommands::full_name(verb, command)));
    }
    Ok(verb)
}

/// What is said of a command that is not here.
fn unknown(command: Command<'_>) -> String {
    match verbs::family(command.verb()) {
        Some((name, family)) => format!("ERR {}", words::of_another_type(name, family)),
        None => words::unknown_command(command),
    }
}

/// Whether a command that was admitted to a transaction may still run, or why not: the user's rights may be others since, and
/// it may be about another database.
pub(in crate::resp) fn admit_again(
    verb: &Verb,
    command: Command<'_>,
    session: &Session,
    database: u8,
) -> Result<(), String> {
    check_rights(verb, command, session, database).map_err(|denied| denied.text_at_exec())
}

fn check_rights(
    verb: &Verb,
    command: Command<'_>,
    session: &Session,
    database: u8,
) -> Result<(), rights::Denied> {
    rights::check(verb, command, session.user.as_deref(), database)
}

/// Whether a script may call a command, or why not.
pub(in crate::resp) fn admit_in_script(
    verb: &Verb,
    command: Command<'_>,
    session: &Session,
) -> Result<(), &'static str> {
    check_rights(verb, command, session, session.database()).map_err(|denied| denied.text_in_script())
}
