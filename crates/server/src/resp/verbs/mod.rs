//! The facts of every verb: its name, how many arguments it takes, which of them are keys, what a user must be allowed to run
//! it, and what `COMMAND` tells of it. No functions: how a verb runs stands in `command/runs.rs`, above all that is told here.

use std::iter;

use super::wire::commands::Command;
use super::wire::number::parse_integer;
use super::wire::words::is;
use subcommands::SUBCOMMANDS;
use table::VERBS;

mod elsewhere;
mod find;
pub(super) mod history;
mod subcommands;
pub(super) mod table;

pub(super) use elsewhere::family;
pub(super) use find::{find, named};

/// An entry of the table.
pub(super) struct Verb {
    pub(super) name: &'static str,
    /// Number of arguments with the verb; at least so many if negative.
    pub(super) arity: i64,
    pub(super) fast: Fast,
    pub(super) keys: Keys,
    pub(super) needs: Needs,
    pub(super) flags: &'static [&'static str],
    pub(super) group: &'static str,
    pub(super) summary: &'static str,
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
    pub(super) first: i64,
    pub(super) last: i64,
    pub(super) step: i64,
    /// Where it is said how many keys follow, if it is: they begin behind it, and the other positions are zero.
    pub(super) counted_at: Option<usize>,
}

impl Keys {
    /// Which arguments of a command are keys.
    pub(super) fn of(&self, command: Command<'_>) -> impl Iterator<Item = usize> + Clone + use<> {
        if let Some(at) = self.counted_at {
            let count = (command.len() > at).then(|| parse_integer(command.argument(at))).flatten();
            let count = count.and_then(|count| usize::try_from(count).ok()).unwrap_or(0);
            // What names more keys than there are arguments is refused when it runs.
            let count = if count >= command.len().saturating_sub(at) { 0 } else { count };
            return (at + 1..at + 1 + count).step_by(1);
        }
        let last = if self.last < 0 { command.len() as i64 + self.last } else { self.last };
        let end = if self.step == 0 { 0 } else { last as usize + 1 };
        (self.first as usize..end).step_by(self.step.max(1) as usize)
    }
}

/// Arguments of a command without keys, more than there is anything to ask for: what each of them costs is not bounded by
/// its length, as it is with keys.
const ARGUMENTS_WITHOUT_KEYS_MAX: usize = 1024;

impl Verb {
    /// The verbs that `COMMAND` tells of.
    pub(super) fn described() -> impl Iterator<Item = &'static Verb> {
        VERBS.iter().filter(|verb| !verb.group.is_empty() && !verb.name.contains('|'))
    }

    /// The same, each before its subcommands.
    pub(super) fn described_with_subcommands() -> impl Iterator<Item = &'static Verb> {
        Verb::described().flat_map(|verb| iter::once(verb).chain(verb.subcommands()))
    }

    /// Whether it does nothing by itself, or little.
    pub(super) fn has_subcommands(&self) -> bool {
        matches!(
            self.name,
            "acl"
                | "client"
                | "command"
                | "config"
                | "latency"
                | "memory"
                | "object"
                | "pubsub"
                | "script"
                | "slowlog"
        )
    }

    /// Its subcommands.
    pub(super) fn subcommands(&self) -> impl Iterator<Item = &'static Verb> + use<> {
        let name = self.name;
        let rows = SUBCOMMANDS.iter().chain(&VERBS);
        rows.filter(move |row| row.name.strip_prefix(name).is_some_and(|rest| rest.starts_with('|')))
    }

    /// Its subcommand of this name, in any case.
    pub(super) fn subcommand(&self, word: &[u8]) -> Option<&'static Verb> {
        let mut subcommands = self.has_subcommands().then(|| self.subcommands())?;
        subcommands.find(|row| is(word, &row.name[self.name.len() + 1..]))
    }

    /// The one of this name, which may be a subcommand with that of its verb.
    pub(super) fn described_as(name: &[u8]) -> Option<&'static Verb> {
        Verb::described_with_subcommands().find(|verb| is(name, verb.name))
    }

    /// Where it is in the table.
    pub(super) fn index(&'static self) -> usize {
        (std::ptr::from_ref(self).addr() - VERBS.as_ptr().addr()) / size_of::<Verb>()
    }

    pub(super) fn accepts(&self, arguments: usize) -> bool {
        if self.keys.step == 0 && self.keys.counted_at.is_none() && arguments > ARGUMENTS_WITHOUT_KEYS_MAX {
            return false;
        }
        let arguments = arguments as i64;
        if self.arity < 0 { arguments >= -self.arity } else { arguments == self.arity }
    }

    /// Whether it runs while a transaction is being queued, instead of being queued.
    pub(super) fn ends_or_leaves_transaction(&self) -> bool {
        matches!(self.name, "exec" | "discard" | "multi" | "watch" | "quit" | "reset")
    }

    /// Whether a subscriber may run it that gets messages where answers would be.
    pub(super) fn is_for_subscribers(&self) -> bool {
        self.group == "pubsub" && self.name.ends_with("subscribe")
            || matches!(self.name, "ping" | "quit" | "reset")
    }

    /// Whether it may write, or send something to others. PFCOUNT keeps the count that it finds.
    pub(super) fn may_write(&self) -> bool {
        self.flags.contains(&"write")
            || matches!(self.name, "eval" | "evalsha" | "pfcount" | "publish" | "spublish")
    }

    /// Whether its arguments may be secrets, which nobody else is to see.
    pub(super) fn has_secrets(&self) -> bool {
        matches!(self.name, "auth" | "hello" | "acl" | "config")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_subcommand_is_of_a_verb_that_has_some_and_has_its_facts() {
        let ours: Vec<_> = Verb::described().flat_map(Verb::subcommands).map(|row| row.name).collect();
        assert!(SUBCOMMANDS.iter().all(|row| ours.contains(&row.name)));
        for verb in &VERBS {
            assert_eq!(verb.subcommands().next().is_some(), verb.has_subcommands(), "{}", verb.name);
        }
        for row in Verb::described_with_subcommands() {
            assert!(!row.summary.is_empty() && history::is_known(row), "{}", row.name);
        }
        let find = |verb: &[u8], word: &[u8]| named(verb).unwrap().subcommand(word).map(|row| row.name);
        assert_eq!(find(b"config", b"GeT"), Some("config|get"));
        assert_eq!(find(b"memory", b"USAGE"), Some("memory|usage"));
        assert_eq!([find(b"config", b""), find(b"config", b"usage"), find(b"get", b"get")], [None; 3]);
    }
}
