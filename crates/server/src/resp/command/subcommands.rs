//! Subcommands that a transaction may hold: one that is none, or has the wrong number of arguments, must spoil it before
//! anything of it has run.

use super::{client, describe};
use crate::resp::verbs::Verb;
use crate::resp::wire::commands::Command;
use crate::resp::wire::words::{self, is};

/// A verb, its subcommand, and the least and the greatest number of arguments with both words.
type Subcommand = (&'static str, &'static str, usize, usize);

/// Those of the verbs whose own files have no such table.
static SUBCOMMANDS: [Subcommand; 41] = [
    ("acl", "whoami", 2, 2),
    ("acl", "cat", 2, usize::MAX),
    ("acl", "dryrun", 4, usize::MAX),
    ("acl", "genpass", 2, usize::MAX),
    ("acl", "getuser", 3, 3),
    ("acl", "list", 2, 2),
    ("acl", "log", 2, usize::MAX),
    ("acl", "users", 2, 2),
    ("acl", "help", 2, 2),
    ("config", "get", 3, usize::MAX),
    ("config", "set", 4, usize::MAX),
    ("config", "resetstat", 2, 2),
    ("config", "rewrite", 2, 2),
    ("config", "help", 2, 2),
    ("latency", "latest", 2, 2),
    ("latency", "history", 3, 3),
    ("latency", "reset", 2, usize::MAX),
    ("latency", "histogram", 2, usize::MAX),
    ("latency", "doctor", 2, 2),
    ("latency", "graph", 3, 3),
    ("latency", "help", 2, 2),
    ("memory", "purge", 2, 2),
    ("memory", "doctor", 2, 2),
    ("memory", "stats", 2, 2),
    ("memory", "help", 2, 2),
    ("object", "help", 2, 2),
    ("pubsub", "channels", 2, usize::MAX),
    ("pubsub", "numpat", 2, 2),
    ("pubsub", "numsub", 2, usize::MAX),
    ("pubsub", "shardchannels", 2, usize::MAX),
    ("pubsub", "shardnumsub", 2, usize::MAX),
    ("pubsub", "help", 2, 2),
    ("script", "exists", 3, usize::MAX),
    ("script", "flush", 2, usize::MAX),
    ("script", "kill", 2, 2),
    ("script", "load", 3, 3),
    ("script", "help", 2, 2),
    ("slowlog", "len", 2, 2),
    ("slowlog", "reset", 2, 2),
    ("slowlog", "get", 2, usize::MAX),
    ("slowlog", "help", 2, 2),
];

/// The subcommand that a command names, with the least and the greatest number of its arguments. `Err` if the verb has none,
/// or none is named.
fn named(verb: &Verb, command: Command<'_>) -> Result<Option<(&'static str, usize, usize)>, NoSubcommands> {
    if command.len() < 2 {
        return Err(NoSubcommands);
    }
    let named = |name: &str| is(command.argument(1), name);
    Ok(match verb.name {
        "client" => client::SUBCOMMANDS
            .iter()
            .find(|(name, ..)| named(name))
            .map(|&(name, least, most, ..)| (name, least, most)),
        "command" => describe::SUBCOMMANDS
            .iter()
            .find(|(name, ..)| named(name))
            .map(|&(name, least, most, _)| (name, least, most)),
        "acl" | "config" | "latency" | "memory" | "object" | "pubsub" | "script" | "slowlog" => {
            let mut of_verb = SUBCOMMANDS.iter().filter(|(of, ..)| *of == verb.name);
            of_verb.find(|(_, name, ..)| named(name)).map(|&(_, name, least, most)| (name, least, most))
        }
        _ => return Err(NoSubcommands),
    })
}

/// The verb has no subcommands, or none is named.
struct NoSubcommands;

/// What a command is called in errors: its verb, and its subcommand where there is one.
pub(super) fn full_name(verb: &Verb, command: Command<'_>) -> String {
    match named(verb, command) {
        Ok(Some((name, ..))) => format!("{}|{name}", verb.name),
        Ok(None) | Err(NoSubcommands) => verb.name.to_owned(),
    }
}

/// Whether a command whose verb has subcommands names one of them, with a number of arguments that it takes.
pub(super) fn check(verb: &Verb, command: Command<'_>) -> Result<(), String> {
    let Ok(found) = named(verb, command) else { return Ok(()) };
    match found {
        Some((_, least, most)) if (least..=most).contains(&command.len()) => Ok(()),
        Some((name, ..)) => Err(words::wrong_arguments(&format!("{}|{name}", verb.name))),
        None => Err(words::unknown_subcommand(&verb.name.to_ascii_uppercase(), command)),
    }
}
