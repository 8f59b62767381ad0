//! All commands, by family: each has the functions that run its commands, and their descriptors.
//!
//! [`admit`] decides whether a command may run. A new command needs a function and a descriptor in the file of its family.

use std::sync::LazyLock;

use super::verb::facts::{CATEGORIES, Group};
use super::verb::{Table, Verb, arranged};
use crate::auth::{CommandTable, Row};

mod acl;
pub(super) mod admit;
mod bitfield;
mod bits;
mod client;
mod cluster;
mod command;
mod config;
pub(super) mod connection;
mod counters;
pub(in crate::resp) mod databases;
mod devices;
mod dump;
pub(super) mod durability;
mod expiry;
mod help;
pub(crate) mod hyperloglog;
mod info;
pub(super) mod keys;
mod latency;
mod lcs;
mod long_double;
pub(super) mod object;
mod pauses;
pub(super) mod pubsub;
mod ranges;
mod replica;
mod rights;
mod scan;
mod scripts;
mod server;
pub(super) mod set;
pub(super) mod slots;
mod strings;
mod tracking;
mod transactions;
mod unsupported;
mod users;

pub use unsupported::family;
pub(super) use unsupported::names_elsewhere;

/// The families, in the order in which COMMAND reports their commands.
const FAMILIES: &[&[Verb]] = &[
    ranges::COMMANDS,
    counters::COMMANDS,
    strings::COMMANDS,
    set::COMMANDS,
    lcs::COMMANDS,
    bits::COMMANDS,
    bitfield::COMMANDS,
    hyperloglog::COMMANDS,
    keys::COMMANDS,
    dump::COMMANDS,
    expiry::COMMANDS,
    object::COMMANDS,
    scan::COMMANDS,
    durability::COMMANDS,
    transactions::COMMANDS,
    scripts::COMMANDS,
    connection::COMMANDS,
    client::COMMANDS,
    pubsub::COMMANDS,
    cluster::COMMANDS,
    server::COMMANDS,
    acl::COMMANDS,
    config::COMMANDS,
    devices::COMMANDS,
    command::COMMANDS,
    latency::COMMANDS,
];

const COUNT: usize = {
    let (mut count, mut family) = (0, 0);
    while family < FAMILIES.len() {
        count += FAMILIES[family].len();
        family += 1;
    }
    count
};

static ROWS: [Verb; COUNT] = arranged(FAMILIES);

/// All commands.
pub(super) static TABLE: Table = Table::new(&ROWS);

/// Returns all commands and subcommands, for the rights of users.
pub(crate) fn command_table() -> &'static CommandTable {
    static OF_RIGHTS: LazyLock<CommandTable> = LazyLock::new(|| {
        let row = |verb: &Verb| {
            // Lines of HTTP are not commands.
            if verb.group == Group::Http {
                return Row { name: "", needs: verb.needs, categories: 0 };
            }
            let categories = CATEGORIES.iter().enumerate();
            let bits = categories.filter(|(_, category)| verb.is_in(category)).map(|(bit, _)| 1 << bit);
            Row { name: verb.name, needs: verb.needs, categories: bits.sum() }
        };
        CommandTable::new(ROWS.iter().map(row).collect(), &CATEGORIES, |name| family(name).is_some())
    });
    &OF_RIGHTS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_is_found_in_any_case() {
        for verb in TABLE.described() {
            for name in [verb.name.to_owned(), verb.name.to_uppercase()] {
                assert_eq!(TABLE.named(name.as_bytes()).map(|found| found.name), Some(verb.name));
            }
        }
        for other in ["", "g", "gets", "ge", "lpush", "zadd", "host\x1a", "config|get", &"x".repeat(1000)] {
            assert!(TABLE.named(other.as_bytes()).is_none(), "{other}");
        }
        assert!(TABLE.longest_probe() < 6);
    }

    #[test]
    fn rows_have_places_and_documentation_of_their_own() {
        for (row, verb) in ROWS.iter().enumerate() {
            assert_eq!(verb.row, row);
            let command = verb.name.split('|').next().unwrap();
            assert!(verb.is_counted || TABLE.counted_as(verb).name == command, "{}", verb.name);
            let of_command = TABLE.named(command.as_bytes()).unwrap();
            assert!(verb.name == command || TABLE.subcommands(of_command).iter().any(|one| one.row == row));
            assert!(verb.group == Group::Http || !verb.summary.is_empty(), "{}", verb.name);
            assert_eq!(ROWS.iter().filter(|other| other.name == verb.name).count(), 1, "{}", verb.name);
        }
        for verb in TABLE.described() {
            assert_eq!(verb.has_subcommands(), !verb.help.is_empty() || !verb.unsupported.0.is_empty());
        }
    }

    /// Returns true if a line of code compares something with the name of a command.
    fn compares_with_a_name(line: &str) -> bool {
        let code = line.split("//").next().unwrap_or("");
        let parts: Vec<_> = code.split('"').collect();
        let is_compared = |at: usize| {
            let (before, after) =
                (parts[at - 1].trim_end(), parts.get(at + 1).map_or("", |after| after.trim_start()));
            let is_operand = |text: &str| before.ends_with(text) || after.starts_with(text);
            let takes = [
                "matches!(",
                "contains(",
                "_with(",
                "is(",
                "named(",
                "eq_ignore_ascii_case(",
                "strip_prefix(",
            ];
            ["==", "!=", "|"].into_iter().any(is_operand)
                || after.starts_with("=>")
                || takes.iter().any(|function| code.contains(function))
        };
        let names_command = |at: &usize| ROWS.iter().any(|verb| verb.name.eq_ignore_ascii_case(parts[*at]));
        (1..parts.len()).step_by(2).filter(names_command).any(is_compared)
    }

    #[test]
    fn names_are_compared_in_commands_alone() {
        for line in [
            r#"if verb.name == "get" {"#,
            r#""mget" | "GET" if other => {}"#,
            r#"is(word, "client")"#,
            r#"name.starts_with("evalsha")"#,
            r#"matches!(verb.name, "x" | "lcs")"#,
            r#"b"select" => {}"#,
        ] {
            assert!(compares_with_a_name(line), "{line}");
        }
        for line in [r#"event(STRING, "set")"#, r#"Group::Pubsub => "pubsub","#, r#"is(word, "nx") // "get""#]
        {
            assert!(!compares_with_a_name(line), "{line}");
        }
        let mut folders = vec![std::path::PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/src/resp"))];
        let mut files = 0;
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(&folder).unwrap() {
                let path = entry.unwrap().path();
                // The interpreter has functions of its own with such names.
                if path.is_dir() && !path.ends_with("resp/commands") && !path.ends_with("script/lua") {
                    folders.push(path);
                } else if path.extension().is_some_and(|extension| extension == "rs") {
                    let text = std::fs::read_to_string(&path).unwrap();
                    let code = text.split("#[cfg(test)]").next().unwrap_or("");
                    let found = code.lines().find(|line| compares_with_a_name(line));
                    assert_eq!(found, None, "{}", path.display());
                    files += 1;
                }
            }
        }
        assert!(files > 30, "only {files} files were read");
    }
}
