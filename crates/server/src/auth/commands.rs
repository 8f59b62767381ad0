//! Commands that a user may run: a set of rows of the command table, and the rules that produce it.
//!
//! The table belongs to the protocol, which passes in the needed part of it ([`CommandTable`]).

use std::sync::OnceLock;

use super::file::Right;

/// Rights that a command requires. If keys are named, they must be permitted for each key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Needs {
    /// No login.
    Nothing,
    /// A login.
    Login,
    /// Read.
    Read,
    /// Write.
    Write,
    /// Read and write: the reply or another key reveals the previous value.
    ReadWrite,
    /// Monitor, or read of any key.
    ReadOrMonitor,
    /// Monitor.
    Monitor,
    /// Admin.
    Admin,
}

impl Needs {
    fn is_met_by(self, rights: &[Right]) -> bool {
        let has = |right| rights.contains(&right) || rights.contains(&Right::Admin);
        match self {
            Needs::Nothing | Needs::Login => true,
            Needs::Read => has(Right::Read),
            Needs::Write => has(Right::Write),
            Needs::ReadWrite => has(Right::Read) && has(Right::Write),
            Needs::ReadOrMonitor => has(Right::Read) || has(Right::Monitor),
            Needs::Monitor => has(Right::Monitor),
            Needs::Admin => has(Right::Admin),
        }
    }
}

/// A command, or a subcommand as `command|subcommand`.
#[derive(Debug)]
pub(crate) struct Row {
    /// Lower case; empty if no rule can name it.
    pub(crate) name: &'static str,
    pub(crate) needs: Needs,
    /// Bit per entry of [`CommandTable::categories`].
    pub(crate) categories: u32,
}

/// Set of table rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct CommandSet([u64; 4]);

impl CommandSet {
    /// Maximum number of rows in a table.
    const ROWS_MAX: usize = 256;

    pub(crate) fn contains(&self, row: usize) -> bool {
        self.0[row / 64] & (1 << (row % 64)) != 0
    }

    fn insert(&mut self, row: usize) {
        self.0[row / 64] |= 1 << (row % 64);
    }

    fn change(&mut self, others: &CommandSet, gives: bool) {
        for (mine, others) in self.0.iter_mut().zip(others.0) {
            *mine = if gives { *mine | others } else { *mine & !others };
        }
    }

    fn meets(&self, others: &CommandSet) -> bool {
        self.0.iter().zip(others.0).any(|(mine, others)| mine & others != 0)
    }

    fn covers(&self, others: &CommandSet) -> bool {
        self.0.iter().zip(others.0).all(|(mine, others)| others & !mine == 0)
    }
}

/// All commands and the rights that they require.
#[derive(Debug)]
pub(crate) struct CommandTable {
    rows: Vec<Row>,
    categories: &'static [&'static str],
    /// Returns true if Redis has a command of this name that Esker lacks.
    is_elsewhere: fn(&[u8]) -> bool,
    all: CommandSet,
    /// Names and their rows, sorted by name.
    by_name: Vec<(&'static str, usize)>,
    /// Computed once per combination of rights, because there may be very many users.
    by_rights: [OnceLock<Allowed>; 1 << Right::COUNT],
}

/// Error in a rule about commands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WrongRule {
    /// It begins with no sign.
    NoRule,
    Unknown,
    FirstArgument,
}

impl CommandTable {
    pub(crate) fn new(
        rows: Vec<Row>,
        categories: &'static [&'static str],
        is_elsewhere: fn(&[u8]) -> bool,
    ) -> CommandTable {
        assert!(rows.len() <= CommandSet::ROWS_MAX, "a set has {} rows", CommandSet::ROWS_MAX);
        let mut by_name: Vec<_> = rows.iter().enumerate().map(|(index, row)| (row.name, index)).collect();
        by_name.sort_unstable();
        let all = CommandSet::default();
        let mut table =
            CommandTable { rows, categories, is_elsewhere, all, by_name, by_rights: Default::default() };
        table.all = table.rows_that(|_| true);
        table
    }

    /// Returns the names of all rows, in their order.
    pub(crate) fn names(&self) -> impl Iterator<Item = &'static str> {
        self.rows.iter().map(|row| row.name)
    }

    fn bit(&self, category: &str) -> Option<u32> {
        self.categories.iter().position(|known| *known == category).map(|index| 1 << index)
    }

    fn rows_that(&self, chosen: impl Fn(&Row) -> bool) -> CommandSet {
        let mut set = CommandSet::default();
        let rows = self.rows.iter().enumerate().filter(|(_, row)| chosen(row));
        rows.for_each(|(index, _)| set.insert(index));
        set
    }

    pub(super) fn is_all(&self, set: &CommandSet) -> bool {
        set.covers(&self.all)
    }

    /// Returns the row of a command by its lower-case name.
    pub(crate) fn row_of(&self, name: &str) -> Option<usize> {
        let found = self.by_name.binary_search_by_key(&name, |(known, _)| known);
        found.ok().map(|index| self.by_name[index].1)
    }

    /// Returns the commands that rights permit. A subcommand also requires the rights of its command.
    fn of_rights(&self, rights: &[Right]) -> CommandSet {
        let verb_of = |row: &Row| {
            let verb = row.name.split('|').next();
            self.rows.iter().find(|other| Some(other.name) == verb)
        };
        self.rows_that(|row| {
            row.needs.is_met_by(rights) && verb_of(row).is_none_or(|verb| verb.needs.is_met_by(rights))
        })
    }

    /// Returns rights in the notation of Redis. The rules permit exactly the same commands, except that a command without any
    /// effect of its own, which only has subcommands, may be missing.
    pub(super) fn allowed_by(&self, rights: &[Right]) -> &Allowed {
        let bits = rights.iter().fold(0, |bits, right| bits | 1 << *right as usize);
        self.by_rights[bits].get_or_init(|| self.rules_of_rights(rights))
    }

    fn rules_of_rights(&self, rights: &[Right]) -> Allowed {
        let goal = self.of_rights(rights);
        let mut allowed = Allowed::default();
        let rule = |allowed: &mut Allowed, rule: &str| {
            self.apply(rule, allowed).expect("the rules name existing commands and categories");
        };
        if rights.contains(&Right::Admin) {
            rule(&mut allowed, "+@all");
            return allowed;
        }
        rule(&mut allowed, "+@connection");
        rule(&mut allowed, "+@transaction");
        for (right, text) in [
            (Right::Read, "+@read"),
            (Right::Write, "+@write"),
            (Right::Read, "+@pubsub"),
            (Right::Write, "+@scripting"),
        ] {
            if rights.contains(&right) {
                rule(&mut allowed, text);
            }
        }
        for (index, row) in self.rows.iter().enumerate().filter(|(_, row)| !row.name.is_empty()) {
            let gives = goal.contains(index);
            if gives == allowed.set.contains(index) {
                continue;
            }
            // A command that only has subcommands stands for all of them. Otherwise some are named one by one.
            let of_row = self.named(row.name).ok().flatten().unwrap_or_default();
            if gives && goal.covers(&of_row) {
                rule(&mut allowed, &format!("+{}", row.name));
            } else if !gives && !goal.meets(&of_row) {
                rule(&mut allowed, &format!("-{}", row.name));
            }
        }
        allowed
    }

    /// Applies a rule such as `+get`, `-config|set`, `+@read` or `allcommands`.
    pub(super) fn apply(&self, rule: &str, to: &mut Allowed) -> Result<(), WrongRule> {
        let rule = match rule.to_ascii_lowercase() {
            rule if rule == "allcommands" => "+@all".to_owned(),
            rule if rule == "nocommands" => "-@all".to_owned(),
            rule => rule,
        };
        let gives = match rule.as_bytes().first() {
            Some(b'+') => true,
            Some(b'-') => false,
            _ => return Err(WrongRule::NoRule),
        };
        let name = &rule[1..];
        if name == "@all" {
            to.rules.clear();
            to.set.change(&self.all, gives);
        } else {
            let rows = match name.strip_prefix('@') {
                Some(category) => self.of_category(category)?,
                None => self.named(name)?,
            };
            let Some(rows) = rows else { return Ok(()) };
            // The rule replaces earlier rules about the same command.
            let is_of_it = |other: &str| {
                other.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with('|'))
            };
            to.rules.retain(|other| !is_of_it(&other[1..]));
            to.set.change(&rows, gives);
        }
        to.rules.push(rule);
        Ok(())
    }

    fn of_category(&self, category: &str) -> Result<Option<CommandSet>, WrongRule> {
        let bit = self.bit(category).ok_or(WrongRule::Unknown)?;
        Ok(Some(self.rows_that(|row| row.categories & bit != 0)))
    }

    /// Returns the rows of a name; `None` for a Redis command that Esker lacks, which no user can run.
    fn named(&self, name: &str) -> Result<Option<CommandSet>, WrongRule> {
        let verb = name.split('|').next().filter(|verb| !verb.is_empty()).ok_or(WrongRule::Unknown)?;
        let rows = self.rows_that(|row| {
            row.name == name
                || name == verb
                    && row.name.strip_prefix(verb).is_some_and(|subcommand| subcommand.starts_with('|'))
        });
        if rows != CommandSet::default() {
            return Ok(Some(rows));
        }
        if (self.is_elsewhere)(verb.as_bytes()) {
            return Ok(None);
        }
        let has_first_argument = |row: &Row| {
            name.strip_prefix(row.name).is_some_and(|rest| rest.starts_with('|')) && {
                let inside = self.rows.iter().any(|other| {
                    other.name.strip_prefix(row.name).is_some_and(|subcommand| subcommand.starts_with('|'))
                });
                !inside
            }
        };
        let named = self.rows.iter().filter(|row| !row.name.is_empty());
        Err(if named.into_iter().any(has_first_argument) {
            WrongRule::FirstArgument
        } else {
            WrongRule::Unknown
        })
    }
}

/// Permitted commands and the rules that produce them. Later rules override earlier ones, and each name occurs once.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Allowed {
    pub(super) set: CommandSet,
    rules: Vec<String>,
}

impl Default for Allowed {
    /// No commands.
    fn default() -> Allowed {
        Allowed { set: CommandSet::default(), rules: vec!["-@all".to_owned()] }
    }
}

impl Allowed {
    /// Returns the memory beyond the struct itself, in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.rules.iter().map(|rule| size_of::<String>() + rule.capacity()).sum()
    }

    /// Returns the rules, separated by blanks.
    pub(super) fn text(&self) -> String {
        self.rules.join(" ")
    }
}
