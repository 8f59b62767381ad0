//! Whether a user may run a command: the only place that asks.

use super::set::SetOptions;
use super::words;
use super::{Needs, Verb};
use crate::auth::User;
use crate::resp::frame::Command;

pub(super) fn check(verb: &Verb, command: Command<'_>, user: Option<&User>) -> Result<(), String> {
    if verb.needs == Needs::Nothing {
        return Ok(());
    }
    let Some(user) = user else { return Err(words::NO_LOGIN.to_owned()) };
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
        return Err(words::no_right_to_run(verb.name));
    }
    let key_allowed = |key: &[u8]| {
        (needs == Needs::Write || user.may_read(key)) && (needs == Needs::Read || user.may_write(key))
    };
    if !verb.keys.of(command).all(|index| key_allowed(command.argument(index))) {
        return Err(words::NO_RIGHT_TO_KEY.to_owned());
    }
    Ok(())
}
