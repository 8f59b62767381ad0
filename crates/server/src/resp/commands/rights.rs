//! Rights of a user to a command: the only place where they are checked.

use esker_engine::Store;

use super::databases;
use crate::auth::{Needs, User};
use crate::resp::verb::Verb;
use crate::resp::verb::facts::Databases;
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
            Denied::Verb => Some((Reason::Command, verb.name.into())),
            Denied::Key(index) => Some((Reason::Key, command.argument(*index).to_vec())),
            Denied::Database(database) => Some((Reason::Database, database.to_string().into_bytes())),
        }
    }

    /// Returns the error reply.
    pub(super) fn text(&self, verb: &Verb) -> String {
        match self {
            Denied::Unnamed => error_text::NO_LOGIN.to_owned(),
            Denied::Verb => error_text::no_right_to_run(verb.name),
            Denied::Key(_) => error_text::NO_RIGHT_TO_KEY.to_owned(),
            Denied::Database(database) => error_text::no_right_to_database(*database),
        }
    }

    /// Returns the answer of ACL DRYRUN.
    pub(super) fn text_of_dry_run(&self, verb: &Verb, command: Command<'_>) -> Vec<u8> {
        match self {
            Denied::Unnamed | Denied::Verb => {
                let name = verb.name;
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
    if !user.may_run(verb.row) {
        return Err(Denied::Verb);
    }
    if verb.names_channels() {
        // The arguments in the place of keys name channels, whose rights the commands check themselves.
        return Ok(());
    }
    let needs = verb.by_arguments.map_or(verb.needs, |of| of(command).0);
    let key_allowed = |key: &[u8]| {
        (needs == Needs::Write || user.may_read(key)) && (needs == Needs::Read || user.may_write(key))
    };
    if let Some(index) = verb.keys.of(command).find(|&index| !key_allowed(command.argument(index))) {
        return Err(Denied::Key(index));
    }
    if user.may_use_all_databases() {
        return Ok(());
    }
    let is_denied = |database: &u8| !user.may_use(*database);
    let denied = match verb.databases {
        Databases::All => (0..Store::DATABASES).find(is_denied),
        Databases::Current => Some(database).filter(is_denied),
        Databases::Selected | Databases::Named => databases::named(command).find(is_denied),
        Databases::OfKeys | Databases::MovedTo(_) | Databases::CopiedTo(_) => {
            let places = databases::places(verb, command, database, Store::DATABASES.into());
            places.map(|(database, _)| database).find(is_denied)
        }
    };
    denied.map_or(Ok(()), |database| Err(Denied::Database(database)))
}
