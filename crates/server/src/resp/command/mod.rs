//! What every verb means.
//!
//! A [`Verb`] is an entry of the table ([`verbs`]): what `COMMAND` tells of it, what a user must be allowed to run it
//! ([`rights`]), and how it runs ([`Run`]). `run` decides what goes to the store together. One file per group of verbs; a
//! new verb is a function there and a line in the table.

use super::frame::Command;
use super::reply::Replies;
use super::session::Session;
use super::view::View;
use crate::service::Service;

mod acl;
mod bounds;
mod client;
mod config;
pub(super) mod connection;
mod counters;
mod describe;
mod durability;
mod expiry;
mod extended;
pub(super) mod glob;
mod info;
pub(super) mod iterate;
mod keys;
pub(super) mod number;
mod observe;
mod ranges;
mod rights;
mod server;
pub(super) mod set;
mod strings;
mod subcommands;
mod verbs;
pub(super) mod words;

pub(super) use bounds::{answer_within, bound};
pub(super) use verbs::{VERBS, find};

/// Answers a command that does not wait for anything.
pub(super) type Answer = fn(Command<'_>, &mut Session, &Service, &mut Replies);

/// Answers a command on keys from a view of them, and may write to it.
pub(super) type OnKeys = fn(Command<'_>, &mut View, &mut Replies);

/// How a command runs.
#[derive(Clone, Copy)]
pub(super) enum Run {
    /// At once.
    Answer(Answer),
    /// At once, after the keys were sampled. In a transaction, where nothing is waited for, the last sample counts.
    Sampled(Answer),
    /// On a view of its keys that it only reads.
    Read(OnKeys),
    /// On a view of its keys that nobody else writes meanwhile.
    Update(OnKeys),
    /// By itself, waiting for something.
    Alone(Alone),
}

/// Ways to run some commands with less work than on a view, where they do not stand in a transaction.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Fast {
    No,
    /// GET.
    Get,
    /// MGET, which may be of very many keys.
    Mget,
    /// EXISTS and TOUCH: the values are not needed.
    Count,
    /// SET, if it does not depend on what is there.
    Set,
    /// DEL and UNLINK, which may be of very many keys.
    Delete,
}

/// Commands that wait for something.
#[derive(Clone, Copy)]
pub(super) enum Alone {
    Hello,
    Auth,
    Flush,
    Scan,
    Keys,
    RandomKey,
    Wait,
    WaitAof,
    Watch,
    Exec,
}

/// What a user must be allowed for a command to run. Where keys are named, it must hold for each of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Needs {
    /// Not even to have said who one is.
    Nothing,
    /// To have said who one is.
    Login,
    Read,
    Write,
    /// Both to read and to write: the reply, or another key, tells what was there.
    ReadWrite,
    /// To see what the server does, or any key.
    ReadOrMonitor,
    /// To see what the server does.
    Monitor,
    Admin,
}

/// Positions of keys among the arguments, as `COMMAND` reports them; a negative last counts from the end.
pub(super) struct Keys {
    first: i64,
    last: i64,
    step: i64,
}

impl Keys {
    /// Which arguments of a command are keys.
    pub(super) fn of(&self, command: Command<'_>) -> impl Iterator<Item = usize> + Clone + use<> {
        let last = if self.last < 0 { command.len() as i64 + self.last } else { self.last };
        let end = if self.step == 0 { 0 } else { last as usize + 1 };
        (self.first as usize..end).step_by(self.step.max(1) as usize)
    }
}

/// An entry of the table.
pub(super) struct Verb {
    pub(super) name: &'static str,
    /// Number of arguments with the verb; at least so many if negative.
    arity: i64,
    pub(super) run: Run,
    pub(super) fast: Fast,
    pub(super) keys: Keys,
    needs: Needs,
    flags: &'static [&'static str],
    group: &'static str,
    summary: &'static str,
}

/// Arguments of a command without keys, more than there is anything to ask for: what each of them costs is not bounded by
/// its length, as it is with keys.
const ARGUMENTS_WITHOUT_KEYS_MAX: usize = 1024;

impl Verb {
    /// The verbs that `COMMAND` tells of.
    fn described() -> impl Iterator<Item = &'static Verb> {
        VERBS.iter().filter(|verb| !verb.group.is_empty())
    }

    /// Where it is in the table.
    pub(super) fn index(&'static self) -> usize {
        (std::ptr::from_ref(self).addr() - VERBS.as_ptr().addr()) / size_of::<Verb>()
    }

    fn accepts(&self, arguments: usize) -> bool {
        if self.keys.step == 0 && arguments > ARGUMENTS_WITHOUT_KEYS_MAX {
            return false;
        }
        let arguments = arguments as i64;
        if self.arity < 0 { arguments >= -self.arity } else { arguments == self.arity }
    }

    /// Whether it runs while a transaction is being queued, instead of being queued.
    pub(super) fn ends_or_leaves_transaction(&self) -> bool {
        matches!(self.name, "exec" | "discard" | "multi" | "watch" | "quit" | "reset")
    }

    /// Whether it can be part of a transaction.
    pub(super) fn may_be_queued(&self) -> bool {
        !matches!(self.run, Run::Alone(_)) && self.name != "shutdown"
    }
}

/// The verb of a command that may run, or why it is refused. Redis' order: the verb, the number of arguments, then rights.
/// A subcommand is looked at by whoever answers it, and here too where that is not before EXEC.
pub(super) fn admit(command: Command<'_>, session: &Session) -> Result<&'static Verb, String> {
    let verb = verbs::find(command).ok_or_else(|| words::unknown_command(command))?;
    if !verb.accepts(command.len()) {
        return Err(words::wrong_arguments(verb.name));
    }
    if session.transaction.is_some() {
        subcommands::check(verb, command)?;
    }
    rights::check(verb, command, session.user.as_deref()).map_err(|denied| denied.text(verb))?;
    Ok(verb)
}

/// Whether a command that was admitted to a transaction may still run, or why not: the user's rights may be others since.
pub(super) fn admit_again(verb: &Verb, command: Command<'_>, session: &Session) -> Result<(), String> {
    rights::check(verb, command, session.user.as_deref()).map_err(|denied| denied.text_at_exec())
}

/// Whether arguments of the verb may be secrets, which nobody else is to see.
pub(super) fn has_secrets(verb: &Verb) -> bool {
    matches!(verb.name, "auth" | "hello" | "acl" | "config")
}
