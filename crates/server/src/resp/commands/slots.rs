//! The slots of a cluster: the check of a command's keys before it runs, and the group of a command.

use crate::resp::session::Session;
use crate::resp::verb::facts::Databases;
use crate::resp::verb::{Run, Verb};
use crate::resp::wire::commands::Command;
use crate::resp::wire::error_text;
use crate::resp::wire::number::parse_integer;
use crate::service::Service;
use crate::service::cluster::Cluster;

/// Returns the keys of a command, and the channels that are assigned to slots like keys.
pub(super) fn keys<'c>(verb: &Verb, command: Command<'c>) -> impl Iterator<Item = &'c [u8]> + use<'c> {
    verb.keys.of(command).map(move |index| command.argument(index))
}

/// Returns the keys that EXEC uses: those of the queued commands, and the watched ones.
fn keys_of_transaction(session: &Session) -> impl Iterator<Item = &[u8]> {
    let queued = session.transaction.iter().flat_map(|transaction| transaction.commands());
    let queued = queued.flat_map(|(verb, copied)| keys(verb, copied.command()));
    queued.chain(session.watched_keys())
}

/// Checks that all keys of a command, or of the commands that EXEC runs, are in one slot, and that this node leads it.
/// Returns the error reply otherwise, and for a command that uses another database.
pub(super) fn check(
    verb: &Verb,
    command: Command<'_>,
    session: &Session,
    cluster: &Cluster,
) -> Result<(), String> {
    let checked = match verb.run {
        Run::Exec => cluster.check(keys_of_transaction(session)),
        _ => cluster.check(keys(verb, command)),
    };
    checked.map_err(|error| error_text::of_cluster(&error))?;
    check_databases(verb, command).map_err(|text| format!("ERR {text}"))
}

/// Refuses commands that use another database than 0, without an error code.
pub(super) fn check_databases(verb: &Verb, command: Command<'_>) -> Result<(), String> {
    let not_allowed = || Err(format!("{} is not allowed in cluster mode", verb.name.to_ascii_uppercase()));
    match verb.databases {
        Databases::Selected if parse_integer(command.argument(1)).is_some_and(|number| number != 0) => {
            not_allowed()
        }
        Databases::Named | Databases::MovedTo(_) => not_allowed(),
        Databases::CopiedTo(of) if of(command).is_some_and(|database| database != 0) => {
            Err("Copying to another database is not allowed in cluster mode".to_owned())
        }
        _ => Ok(()),
    }
}

/// Returns the first key of a command, or of the commands that EXEC runs. Channels are no keys.
pub(in crate::resp) fn key_of<'c>(
    verb: &Verb,
    command: Command<'c>,
    session: &'c Session,
) -> Option<&'c [u8]> {
    match verb.run {
        _ if verb.names_channels() => None,
        Run::Exec => keys_of_transaction(session).next(),
        _ => keys(verb, command).next(),
    }
}

/// Returns the group of the keys of a command. `None` without keys, and without a cluster.
pub(in crate::resp) fn group_of(
    verb: &Verb,
    command: Command<'_>,
    session: &Session,
    service: &Service,
) -> Option<u8> {
    let cluster = service.cluster.as_ref()?;
    key_of(verb, command, session).map(|key| cluster.group_of(key))
}
