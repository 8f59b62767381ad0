//! Admission: checks before a command runs.

use super::{rights, subcommands};
use crate::resp::session::{Session, refused};
use crate::resp::verbs::{self, Verb};
use crate::resp::wire::commands::Command;
use crate::resp::wire::error_text;
use crate::service::Service;
use crate::service::acl_log::Reason;

/// The refusal of a command.
pub(in crate::resp) struct NotAdmitted {
    /// The error reply.
    pub(in crate::resp) text: String,
    /// The missing right and its object, if a right was missing.
    refused: Option<(Reason, Vec<u8>)>,
}

impl From<String> for NotAdmitted {
    fn from(text: String) -> NotAdmitted {
        NotAdmitted { text, refused: None }
    }
}

impl NotAdmitted {
    /// Records the refusal in the ACL log if a right was missing.
    pub(in crate::resp) fn note(&self, verb: &Verb, session: &Session, service: &Service) {
        if let Some((reason, object)) = &self.refused {
            refused::note(*reason, object, verb, session, service);
        }
    }
}

/// Returns the verb of a command that may run, or the refusal. The checks are in Redis' order: the verb and its
/// subcommand, the number of arguments, then rights.
pub(in crate::resp) fn admit(command: Command<'_>, session: &Session) -> Result<&'static Verb, NotAdmitted> {
    let verb = verbs::find(command).ok_or_else(|| unknown(command))?;
    if !verb.accepts(command.len()) {
        return Err(error_text::wrong_arguments(verb.name).into());
    }
    subcommands::check(verb, command)?;
    let database = session.database_of_next();
    check_rights(verb, command, session, database).map_err(|denied| NotAdmitted {
        text: denied.text(verb, command),
        refused: denied.noted(verb, command),
    })?;
    if session.hears_only() && !verb.is_for_subscribers() {
        return Err(error_text::not_while_subscribed(subcommands::full_name(verb, command)).into());
    }
    Ok(verb)
}

/// Returns the error for an unknown command.
fn unknown(command: Command<'_>) -> String {
    match verbs::family(command.verb()) {
        Some((name, family)) => format!("ERR {}", error_text::of_another_type(name, family)),
        None => error_text::unknown_command(command),
    }
}

/// Checks a queued command again at EXEC: the user's rights may have changed since, and the database may be another.
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

/// Checks the rights to a command that a script calls.
pub(in crate::resp) fn admit_in_script(
    verb: &Verb,
    command: Command<'_>,
    session: &Session,
    service: &Service,
) -> Result<(), &'static str> {
    check_rights(verb, command, session, session.database()).map_err(|denied| {
        if let Some((reason, object)) = denied.noted(verb, command) {
            let user = session.user.as_ref().map_or("", |user| user.name());
            refused::note_of(reason, "lua", &object, user.as_bytes(), verb.name, session, service);
        }
        denied.text_in_script()
    })
}
