//! Whether a user may run a command: the only place that asks.

use super::set::SetOptions;
use super::words;
use super::{Needs, Verb};
use crate::auth::User;
use crate::resp::frame::Command;

/// Why a user may not run a command.
pub(super) enum Denied {
    /// It has not said who it is.
    Unnamed,
    /// It has no right to the verb.
    Verb,
    /// It has no right to one of the keys.
    Key,
}

impl Denied {
    /// The answer to the command.
    pub(super) fn text(&self, verb: &Verb) -> String {
        match self {
            Denied::Unnamed => words::NO_LOGIN.to_owned(),
            Denied::Verb => words::no_right_to_run(verb.name),
            Denied::Key => words::NO_RIGHT_TO_KEY.to_owned(),
        }
    }

    /// The answer to a command that was allowed when it was queued, and is not any more at EXEC.
    pub(super) fn text_at_exec(&self) -> String {
        words::no_right_any_more(match self {
            Denied::Unnamed | Denied::Verb => "no permission to execute the command or subcommand",
            Denied::Key => "no permission to touch the specified keys",
        })
    }
}

pub(super) fn check(verb: &Verb, command: Command<'_>, user: Option<&User>) -> Result<(), Denied> {
    if verb.needs == Needs::Nothing {
        return Ok(());
    }
    let Some(user) = user else { return Err(Denied::Unnamed) };
    if user.is_admin() {
        return Ok(());
    }
    // SET answers what was there if it is asked to.
    let set_tells = verb.name == "set"
        && command.len() > 3
        && SetOptions::parse(command, 0).is_ok_and(|options| options.tells());
    let needs = if set_tells { Needs::ReadWrite } else { verb.needs };
    let allowed = match needs {
        Needs::Nothing | Needs::Login => true,
        Needs::Read => user.reads(),
        Needs::Write => user.writes(),
        Needs::ReadWrite => user.reads() && user.writes(),
        Needs::Admin => false,
    };
    if !allowed {
        return Err(Denied::Verb);
    }
    let key_allowed = |key: &[u8]| {
        (needs == Needs::Write || user.may_read(key)) && (needs == Needs::Read || user.may_write(key))
    };
    if !verb.keys.of(command).all(|index| key_allowed(command.argument(index))) {
        return Err(Denied::Key);
    }
    Ok(())
}
