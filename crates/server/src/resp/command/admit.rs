//! Whether a command may run.

use super::{rights, subcommands};
use crate::resp::session::{Session, refused};
use crate::resp::verbs::{self, Verb};
use crate::resp::wire::commands::Command;
use crate::resp::wire::error_text;
use crate::service::Service;
use crate::service::acl_log::Reason;

/// Why a command may not run.
pub(in crate::resp) struct NotAdmitted {
    /// The answer.
    pub(in crate::resp) text: String,
    /// What it was refused for want of a right.
    refused: Option<(Reason, Vec<u8>)>,
}

impl From<String> for NotAdmitted {
    fn from(text: String) -> NotAdmitted {
        NotAdmitted { text, refused: None }
    }
}

impl NotAdmitted {
    /// Notes it for admins if it was a matter of rights.
    pub(in crate::resp) fn note(&self, verb: &Verb, session: &Session, service: &Service) {
        if let Some((reason, object)) = &self.refused {
            refused::note(*reason, object, verb, session, service);
        }
    }
}

/// The verb of a command that may run, or why it is refused. Redis' order: the verb and its subcommand, the number of arguments,
/// then rights.
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

/// What is said of a command that is not here.
fn unknown(command: Command<'_>) -> String {
    match verbs::family(command.verb()) {
        Some((name, family)) => format!("ERR {}", error_text::of_another_type(name, family)),
        None => error_text::unknown_command(command),
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
