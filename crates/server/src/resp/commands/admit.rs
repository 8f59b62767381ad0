//! Admission: checks before a command runs.

use super::unsupported::family;
use super::{replica, rights, slots};
use crate::resp::session::{Session, refused};
use crate::resp::verb::{Table, Verb};
use crate::resp::wire::commands::Command;
use crate::resp::wire::error_text::{self, is};
use crate::service::Service;
use crate::service::acl_log::Reason;
use crate::service::cluster::Cluster;

/// The refusal of a command.
pub(in crate::resp) struct NotAdmitted {
    /// The descriptor of the command, if it is known.
    pub(in crate::resp) verb: Option<&'static Verb>,
    /// The error reply.
    pub(in crate::resp) text: String,
    /// True if the cluster refuses the command: its keys are in several slots, or this node does not lead theirs.
    pub(in crate::resp) is_of_cluster: bool,
    /// The missing right and its object, if a right was missing.
    refused: Option<(Reason, Vec<u8>)>,
}

impl NotAdmitted {
    /// Records the refusal in the ACL log if a right was missing.
    pub(in crate::resp) fn note(&self, session: &Session, service: &Service) {
        if let (Some((reason, object)), Some(verb)) = (&self.refused, self.verb) {
            refused::note(*reason, object, session.commands.counted_as(verb).name, session, service);
        }
    }
}

/// Returns the descriptor of a command that may run, or the refusal. The checks are in Redis' order: the command and
/// its subcommand, the number of arguments, rights, then the slots of a cluster.
pub(in crate::resp) fn admit(
    command: Command<'_>,
    session: &Session,
    cluster: Option<&Cluster>,
) -> Result<&'static Verb, NotAdmitted> {
    let refusal = |verb, text, refused| NotAdmitted { verb, text, refused, is_of_cluster: false };
    let verb = session.commands.find(command).ok_or_else(|| refusal(None, unknown(command), None))?;
    check_arguments(session.commands, verb, command).map_err(|text| refusal(Some(verb), text, None))?;
    check_rights(verb, command, session, session.database_of_next())
        .map_err(|denied| refusal(Some(verb), denied.text(verb), denied.noted(verb, command)))?;
    if session.hears_only() && !verb.for_subscribers {
        return Err(refusal(Some(verb), error_text::not_while_subscribed(verb.name), None));
    }
    if let Some(cluster) = cluster {
        let checked = match session.replica {
            None => slots::check(verb, command, session, cluster),
            Some(_) => replica::check(verb, command, session, cluster),
        };
        checked.map_err(|text| NotAdmitted { is_of_cluster: true, ..refusal(Some(verb), text, None) })?;
    }
    Ok(verb)
}

/// Checks the number of arguments, and that a command with subcommands names one of them. A command that requires a
/// subcommand enforces this by its own arity.
pub(in crate::resp) fn check_arguments(
    commands: &Table,
    verb: &'static Verb,
    command: Command<'_>,
) -> Result<(), String> {
    let parent = commands.counted_as(verb);
    if !parent.accepts(command.len()) {
        return Err(error_text::wrong_arguments(parent.name));
    }
    if verb.row != parent.row && !verb.accepts(command.len()) {
        return Err(error_text::wrong_arguments(verb.name));
    }
    let Some(word) = command.arguments(1).next().filter(|_| verb.has_subcommands()) else { return Ok(()) };
    let (family, words) = verb.unsupported;
    Err(match words.iter().any(|known| is(word, known)) {
        true => {
            let name = format!("{} {}", verb.name, error_text::shown(word, 128));
            format!("ERR {}", error_text::of_another_type(&name, family))
        }
        false => error_text::unknown_subcommand(&verb.name.to_ascii_uppercase(), command),
    })
}

/// Returns the error for an unknown command.
pub(in crate::resp) fn unknown(command: Command<'_>) -> String {
    match family(command.verb()) {
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

/// Returns the descriptor of a command that a script may call, or the error for the script.
pub(in crate::resp) fn admit_in_script(
    command: Command<'_>,
    session: &mut Session,
    service: &Service,
) -> Result<&'static Verb, String> {
    let verb = session.commands.find(command).ok_or_else(|| match family(command.verb()) {
        Some((name, family)) => error_text::of_another_type(name, family),
        None => "Unknown Redis command called from script".to_owned(),
    })?;
    if !session.commands.counted_as(verb).accepts(command.len()) {
        return Err("Wrong number of args calling Redis command from script".to_owned());
    }
    if !verb.runs_in_scripts() {
        return Err(error_text::NOT_IN_SCRIPT.to_owned());
    }
    check_rights(verb, command, session, session.database()).map_err(|denied| {
        if let Some((reason, object)) = denied.noted(verb, command) {
            refused::hold(reason, &object, session.commands.counted_as(verb).name, session);
        }
        denied.text_in_script().to_owned()
    })?;
    if service.cluster.is_some() {
        slots::check_databases(verb, command)?;
    }
    Ok(verb)
}
