//! The static description of every verb: name, number of arguments, positions of keys, required rights, and the
//! answers of `COMMAND`. Contains no functions: `command/runs.rs`, a layer above, maps verbs to functions.

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

/// Limit of the arguments of a command without keys, larger than any useful number: unlike with keys, the cost of
/// such an argument is not bounded by its length. Not for subscriptions: clients that lost their connection name all
/// their channels in one command.
const ARGUMENTS_WITHOUT_KEYS_MAX: usize = 1024;

impl Verb {
    /// Returns the verbs that `COMMAND` describes.
    pub(super) fn described() -> impl Iterator<Item = &'static Verb> {
        VERBS.iter().filter(|verb| !verb.group.is_empty() && !verb.name.contains('|'))
    }

    /// Returns the verbs that `COMMAND` describes, each followed by its subcommands.
    pub(super) fn described_with_subcommands() -> impl Iterator<Item = &'static Verb> {
        Verb::described().flat_map(|verb| iter::once(verb).chain(verb.subcommands()))
    }

    /// Returns true if the verb does little or nothing without a subcommand.
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

    /// Returns the subcommands of the verb.
    pub(super) fn subcommands(&self) -> impl Iterator<Item = &'static Verb> + use<> {
        let name = self.name;
        let rows = SUBCOMMANDS.iter().chain(&VERBS);
        rows.filter(move |row| row.name.strip_prefix(name).is_some_and(|rest| rest.starts_with('|')))
    }

    /// Returns the subcommand with a name in any case.
    pub(super) fn subcommand(&self, word: &[u8]) -> Option<&'static Verb> {
        let mut subcommands = self.has_subcommands().then(|| self.subcommands())?;
        subcommands.find(|row| is(word, &row.name[self.name.len() + 1..]))
    }

    /// Returns the verb or subcommand with a full name such as `config|get`.
    pub(super) fn described_as(name: &[u8]) -> Option<&'static Verb> {
        Verb::described_with_subcommands().find(|verb| is(name, verb.name))
    }

    /// Returns the index among all commands and subcommands, as in [`command_table`].
    pub(super) fn row(&self) -> usize {
        let place = |table: &[Verb]| {
            let offset = std::ptr::from_ref(self).addr().checked_sub(table.as_ptr().addr())?;
            Some(offset / size_of::<Verb>()).filter(|index| *index < table.len())
        };
        place(&VERBS)
            .or_else(|| place(&SUBCOMMANDS).map(|index| VERBS.len() + index))
            .expect("every verb is in one of the tables")
    }

    /// Returns the index in [`VERBS`].
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

    /// Returns true for a line of HTTP, which always ends the connection.
    pub(super) fn is_http(&self) -> bool {
        self.group.is_empty()
    }

    /// Returns true if the verb runs while a transaction is being queued, instead of being queued.
    pub(super) fn ends_or_leaves_transaction(&self) -> bool {
        self.is_http() || matches!(self.name, "exec" | "discard" | "multi" | "watch" | "quit" | "reset")
    }

    /// Returns true if a client whose messages arrive in place of answers (a RESP2 subscriber) may run the verb.
    pub(super) fn is_for_subscribers(&self) -> bool {
        self.is_http()
            || self.group == "pubsub" && self.name.ends_with("subscribe")
            || matches!(self.name, "ping" | "quit" | "reset")
    }

    /// Returns true if the verb may write, or send messages to other clients. PFCOUNT may write, because it caches
    /// the count.
    pub(super) fn may_write(&self) -> bool {
        self.flags.contains(&"write")
            || matches!(self.name, "eval" | "evalsha" | "pfcount" | "publish" | "spublish")
    }

    /// Returns true if the arguments may contain secrets, which must not be shown to others.
    pub(super) fn has_secrets(&self) -> bool {
        matches!(self.name, "auth" | "hello" | "acl" | "config") || self.name.starts_with("acl|")
    }
}

/// Returns all commands and subcommands, for the rights of users.
pub(crate) fn command_table() -> &'static CommandTable {
    static TABLE: LazyLock<CommandTable> = LazyLock::new(|| {
        let row = |verb: &Verb| {
            // Lines of HTTP are not commands.
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
