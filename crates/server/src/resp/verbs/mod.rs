//! The facts of every verb: its name, how many arguments it takes, which of them are keys, what a user must be allowed to run
//! it, and what `COMMAND` tells of it. No functions: how a verb runs stands in `command/runs.rs`, above all that is told here.

use std::iter;
use std::sync::LazyLock;

use super::wire::error_text::is;
use crate::auth::{CommandTable, Row};
use subcommands::SUBCOMMANDS;
use table::VERBS;

mod columns;
mod find;
pub(super) mod history;
mod subcommands;
pub(super) mod table;
mod unsupported;

pub(super) use columns::{Fast, Keys, Verb};
pub(super) use find::{find, named};
pub use unsupported::family;
pub(super) use unsupported::family_of_subcommand;

/// Arguments of a command without keys, more than there is anything to ask for: what each of them costs is not bounded by
/// its length, as it is with keys. Clients that lost their connection name all their channels in one command.
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
                | "function"
                | "latency"
                | "memory"
                | "module"
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

    /// Where it is among all commands and subcommands, as [`command_table`] has them.
    pub(super) fn row(&self) -> usize {
        let place = |table: &[Verb]| {
            let offset = std::ptr::from_ref(self).addr().checked_sub(table.as_ptr().addr())?;
            Some(offset / size_of::<Verb>()).filter(|index| *index < table.len())
        };
        place(&VERBS)
            .or_else(|| place(&SUBCOMMANDS).map(|index| VERBS.len() + index))
            .expect("it is of a table")
    }

    /// Where it is in the table.
    pub(super) fn index(&'static self) -> usize {
        (std::ptr::from_ref(self).addr() - VERBS.as_ptr().addr()) / size_of::<Verb>()
    }

    pub(super) fn accepts(&self, arguments: usize) -> bool {
        let has_long_lists =
            self.keys.step != 0 || self.keys.counted_at.is_some() || self.name.ends_with("subscribe");
        if !has_long_lists && arguments > ARGUMENTS_WITHOUT_KEYS_MAX {
            return false;
        }
        let arguments = arguments as i64;
        if self.arity < 0 { arguments >= -self.arity } else { arguments == self.arity }
    }

    /// Returns true for a line of HTTP, which ends the connection wherever it comes.
    pub(super) fn is_http(&self) -> bool {
        self.group.is_empty()
    }

    /// Whether it runs while a transaction is being queued, instead of being queued.
    pub(super) fn ends_or_leaves_transaction(&self) -> bool {
        self.is_http() || matches!(self.name, "exec" | "discard" | "multi" | "watch" | "quit" | "reset")
    }

    /// Whether a subscriber may run it that gets messages where answers would be.
    pub(super) fn is_for_subscribers(&self) -> bool {
        self.is_http()
            || self.group == "pubsub" && self.name.ends_with("subscribe")
            || matches!(self.name, "ping" | "quit" | "reset")
    }

    /// Whether it may write, or send something to others. PFCOUNT keeps the count that it finds.
    pub(super) fn may_write(&self) -> bool {
        self.flags.contains(&"write")
            || matches!(self.name, "eval" | "evalsha" | "pfcount" | "publish" | "spublish")
    }

    /// Whether its arguments may be secrets, which nobody else is to see.
    pub(super) fn has_secrets(&self) -> bool {
        matches!(self.name, "auth" | "hello" | "acl" | "config") || self.name.starts_with("acl|")
    }
}

/// All commands and subcommands, for the rights of users.
pub(crate) fn command_table() -> &'static CommandTable {
    static TABLE: LazyLock<CommandTable> = LazyLock::new(|| {
        let row = |verb: &Verb| {
            // Lines of HTTP are no commands.
            if verb.is_http() {
                return Row { name: "", needs: verb.needs, categories: 0 };
            }
            let categories = history::CATEGORIES.iter().enumerate();
            let bits =
                categories.filter(|(_, category)| history::is_in(verb, category)).map(|(bit, _)| 1 << bit);
            Row { name: verb.name, needs: verb.needs, categories: bits.sum() }
        };
        let rows = VERBS.iter().chain(&SUBCOMMANDS).map(row).collect();
        CommandTable::new(rows, &history::CATEGORIES, |name| family(name).is_some())
    });
    &TABLE
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_has_a_row_of_its_own() {
        let rows: Vec<_> = VERBS.iter().chain(&SUBCOMMANDS).map(Verb::row).collect();
        assert_eq!(rows, (0..VERBS.len() + SUBCOMMANDS.len()).collect::<Vec<_>>());
    }

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
