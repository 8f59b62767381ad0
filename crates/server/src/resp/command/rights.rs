//! Rights of a user to a command: the only place where they are checked.

use esker_engine::Store;

use super::databases;
use super::set::SetOptions;
use super::subcommands::full_name;
use crate::auth::{Needs, User};
use crate::resp::verbs::Verb;
use crate::resp::wire::commands::Command;
use crate::resp::wire::error_text;
use crate::service::acl_log::Reason;

/// The reason why a user may not run a command.
pub(super) enum Denied {
    /// The client must log in first.
    Unnamed,
    /// No right to the verb or subcommand.
    Verb,
    /// No right to the key in this argument.
    Key(usize),
    /// No right to this database.
    Database(u8),
}

impl Denied {
    /// Returns the reason and the object of the refusal for the ACL log; `None` for a client that has not logged in.
    pub(super) fn noted(&self, verb: &Verb, command: Command<'_>) -> Option<(Reason, Vec<u8>)> {
        match self {
            Denied::Unnamed => None,
            Denied::Verb => Some((Reason::Command, full_name(verb, command).into())),
            Denied::Key(index) => Some((Reason::Key, command.argument(*index).to_vec())),
            Denied::Database(database) => Some((Reason::Database, database.to_string().into_bytes())),
        }
    }

    /// Returns the error reply.
    pub(super) fn text(&self, verb: &Verb, command: Command<'_>) -> String {
        match self {
            Denied::Unnamed => error_text::NO_LOGIN.to_owned(),
            Denied::Verb => error_text::no_right_to_run(full_name(verb, command)),
            Denied::Key(_) => error_text::NO_RIGHT_TO_KEY.to_owned(),
            Denied::Database(database) => error_text::no_right_to_database(*database),
        }
    }

    /// Returns the answer of ACL DRYRUN.
    pub(super) fn text_of_dry_run(&self, verb: &Verb, command: Command<'_>) -> Vec<u8> {
        match self {
            Denied::Unnamed | Denied::Verb => {
                let name = full_name(verb, command);
                format!("This user has no permissions to run the '{name}' command").into_bytes()
            }
            Denied::Key(index) => no_access(command.argument(*index), "key"),
            Denied::Database(database) => {
                format!("This user has no permissions to access database {database}").into_bytes()
            }
        }
    }

    /// Returns the error for a script that called the command.
    pub(super) fn text_in_script(&self) -> &'static str {
        match self {
            Denied::Unnamed | Denied::Verb => {
                "The user executing the script can't run this command or subcommand"
            }
            Denied::Key(_) => {
                "The user executing the script can't access at least one of the keys mentioned in the command arguments"
            }
            Denied::Database(_) => "The user executing the script can't access the database",
        }
    }

    /// Returns the error for a queued command that is no longer allowed at EXEC.
    pub(super) fn text_at_exec(&self) -> String {
        error_text::no_right_any_more(match self {
            Denied::Unnamed | Denied::Verb => "no permission to execute the command or subcommand",
            Denied::Key(_) => "no permission to touch the specified keys",
            Denied::Database(_) => "no permission to access the database",
        })
    }
}

/// Returns the answer of ACL DRYRUN if the user has no right to a key or a channel.
pub(super) fn no_access(name: &[u8], kind: &str) -> Vec<u8> {
    [b"This user has no permissions to access the '", name, b"' ", kind.as_bytes()].concat()
}

/// Checks a user's rights. `database`: the current database of the command.
pub(super) fn check(
    verb: &Verb,
    command: Command<'_>,
    user: Option<&User>,
    database: u8,
) -> Result<(), Denied> {
    if verb.needs == Needs::Nothing {
        return Ok(());
    }
    let Some(user) = user else { return Err(Denied::Unnamed) };
    if user.is_admin() {
        return Ok(());
    }
    // SET with GET also reads the key.
    let set_tells = verb.name == "set"
        && command.len() > 3
        && SetOptions::parse(command, 0).is_ok_and(|options| options.tells());
    let needs = if set_tells { Needs::ReadWrite } else { verb.needs };
    let subcommand = command.arguments(1).next().and_then(|word| verb.subcommand(word));
    if !user.may_run(subcommand.unwrap_or(verb).row()) {
        return Err(Denied::Verb);
    }
    if verb.group == "pubsub" {
        // The arguments in the place of keys name channels, whose rights the commands check themselves.
        return Ok(());
    }
    let key_allowed = |key: &[u8]| {
        (needs == Needs::Write || user.may_read(key)) && (needs == Needs::Read || user.may_write(key))
    };
    if let Some(index) = verb.keys.of(command).find(|&index| !key_allowed(command.argument(index))) {
        return Err(Denied::Key(index));
    }
    if user.may_use_all_databases() {
        return Ok(());
    }
    if verb.name == "flushall" {
        let kept = (0..Store::DATABASES).find(|database| !user.may_use(*database));
        return kept.map_or(Ok(()), |database| Err(Denied::Database(database)));
    }
    // These commands read or write keys that they do not name.
    let own = ["dbsize", "flushdb", "keys", "randomkey", "scan"].contains(&verb.name).then_some(database);
    let of_keys = databases::places(verb, command, database, Store::DATABASES.into()).map(|(of, _)| of);
    let named = databases::named(verb, command);
    match of_keys.chain(own).chain(named).find(|database| !user.may_use(*database)) {
        Some(denied) => Err(Denied::Database(denied)),
        None => Ok(()),
    }
}
