//! COMMAND: describes all verbs. Clients build their help and their key routing from it.

use std::sync::OnceLock;

use super::help;
use crate::resp::session::Session;
use crate::resp::verb::facts::{Bound, CATEGORIES, Group, Keys, flags, tips};
use crate::resp::verb::{Run, Table, Verb};
use crate::resp::wire::commands::Command;
use crate::resp::wire::error_text::{self, is, shown};
use crate::resp::wire::glob::{HELD_BYTES_MAX, Pattern};
use crate::resp::wire::reply::{Protocol, Replies};
use crate::service::Service;

const COMMAND: Verb =
    Verb { group: Group::Server, flags: flags::TELL, categories: &["connection"], bound, ..Verb::DEFAULT };

/// The commands of this family.
#[rustfmt::skip]
pub(super) const COMMANDS: &[Verb] = &[
    Verb { name: "command", arity: -1, run: Run::Answer(all), tips: &[tips::ANY_ORDER], help: HELP, since: "2.8.13",
        summary: "Describes commands.", ..COMMAND },
    Verb { name: "command|count", arity: 2, run: Run::Answer(count), since: "2.8.13",
        summary: "Returns the number of commands.", ..COMMAND },
    Verb { name: "command|docs", arity: -2, run: Run::Answer(docs), tips: &[tips::ANY_ORDER], bound: bound_of_docs,
        since: "7.0.0", summary: "Tells what commands are for.", ..COMMAND },
    Verb { name: "command|getkeys", arity: -4, run: Run::Answer(get_keys), bound: bound_of_keys, since: "2.8.13",
        summary: "Returns the keys of a command.", ..COMMAND },
    Verb { name: "command|getkeysandflags", arity: -4, run: Run::Answer(get_keys_and_flags), bound: bound_of_keys,
        since: "7.0.0", summary: "Returns the keys of a command, and what it does to them.", ..COMMAND },
    Verb { name: "command|help", arity: 2, run: help::RUN, bound: help::BOUND, since: "5.0.0",
        summary: "Lists the subcommands.", ..COMMAND },
    Verb { name: "command|info", arity: -2, run: Run::Answer(info), tips: &[tips::ANY_ORDER], bound: bound_of_info,
        since: "2.8.13", summary: "Tells the facts of commands.", ..COMMAND },
    Verb { name: "command|list", arity: -2, run: Run::Answer(list), tips: &[tips::ANY_ORDER], bound: bound_of_list,
        since: "7.0.0", summary: "Lists commands.", ..COMMAND },
];

const HELP: &str = "\
(no subcommand)
    Return details about all Redis commands.
COUNT
    Return the total number of commands in this Redis server.
LIST
    Return a list of all commands in this Redis server.
INFO [<command-name> ...]
    Return details about multiple Redis commands.
    If no command names are given, documentation details for all
    commands are returned.
DOCS [<command-name> ...]
    Return documentation details about multiple Redis commands.
    If no command names are given, documentation details for all
    commands are returned.
GETKEYS <full-command>
    Return the keys from a full Redis command.
GETKEYSANDFLAGS <full-command>
    Return the keys and the access flags from a full Redis command.";

/// Bytes about a key in an answer, beside the key itself.
const KEY_BYTES: usize = 128;

/// Without arguments, all commands are described. Other answers are a number or an error.
fn bound(command: Command<'_>, session: &Session, _: &Service) -> Bound {
    Bound::once(if command.len() == 1 { lengths(session.commands).all } else { 0 })
}

fn bound_of_info(command: Command<'_>, session: &Session, _: &Service) -> Bound {
    let (lengths, named) = (lengths(session.commands), command.len() - 2);
    with_pattern(command, if named == 0 { lengths.all } else { named * lengths.verb })
}

fn bound_of_docs(command: Command<'_>, session: &Session, _: &Service) -> Bound {
    let (lengths, named) = (lengths(session.commands), command.len() - 2);
    with_pattern(command, if named == 0 { lengths.documents } else { named * lengths.document })
}

fn bound_of_list(command: Command<'_>, session: &Session, _: &Service) -> Bound {
    with_pattern(command, lengths(session.commands).names)
}

fn bound_of_keys(command: Command<'_>, _: &Session, _: &Service) -> Bound {
    with_pattern(command, command.bytes() + (command.len() - 2) * KEY_BYTES)
}

/// Returns the bounds of an answer of `bytes` beside errors, and of a pattern among the arguments.
fn with_pattern(command: Command<'_>, bytes: usize) -> Bound {
    let beside = if command.len() > 2 { HELD_BYTES_MAX.min(command.bytes() * 24) } else { 0 };
    Bound { beside, ..Bound::once(bytes) }
}

fn count(_: Command<'_>, session: &mut Session, _: &Service, replies: &mut Replies) {
    replies.integer(session.commands.described().count() as i64);
}

/// `COMMAND LIST [FILTERBY MODULE name | ACLCAT category | PATTERN pattern]`. There are no modules.
fn list(command: Command<'_>, session: &mut Session, _: &Service, replies: &mut Replies) {
    let mut verbs: Vec<_> = session.commands.described_with_subcommands().collect();
    match (command.len(), command.arguments(2).last()) {
        (2, _) => {}
        (5, Some(wanted)) if is(command.argument(2), "filterby") => match command.argument(3) {
            by if is(by, "module") => verbs.clear(),
            by if is(by, "aclcat") => {
                let category = shown(wanted, 128).to_ascii_lowercase();
                verbs.retain(|verb| verb.is_in(&category));
            }
            by if is(by, "pattern") => match Pattern::new(&wanted.to_ascii_lowercase()) {
                Ok(pattern) => verbs.retain(|verb| pattern.matches(verb.name.as_bytes())),
                Err(error) => return replies.error(error),
            },
            _ => return replies.error(error_text::SYNTAX),
        },
        _ => return replies.error(error_text::SYNTAX),
    }
    list_names(verbs, replies);
}

fn list_names(verbs: Vec<&Verb>, replies: &mut Replies) {
    replies.array(verbs.len());
    verbs.iter().for_each(|verb| replies.bulk(verb.name.as_bytes()));
}

fn all(_: Command<'_>, session: &mut Session, _: &Service, replies: &mut Replies) {
    describe_all(session.commands, replies);
}

fn describe_all(commands: &Table, replies: &mut Replies) {
    replies.array(commands.described().count());
    commands.described().for_each(|verb| describe(commands, verb, replies));
}

/// Upper bounds of answers, in bytes: descriptions of one verb and of all verbs, documentation of one verb and of all
/// verbs, and all names.
pub(super) struct Lengths {
    pub(super) verb: usize,
    pub(super) all: usize,
    pub(super) document: usize,
    pub(super) documents: usize,
    /// The names of all verbs and subcommands.
    pub(super) names: usize,
}

/// Returns the upper bounds, which depend only on the table of verbs and the protocol version.
pub(super) fn lengths(commands: &'static Table) -> &'static Lengths {
    static LENGTHS: OnceLock<Lengths> = OnceLock::new();
    LENGTHS.get_or_init(|| {
        let length = |answer: &dyn Fn(&mut Replies)| {
            let of = |protocol| {
                let mut replies = Replies::new();
                replies.protocol = protocol;
                answer(&mut replies);
                replies.unsent_bytes()
            };
            of(Protocol::Resp2).max(of(Protocol::Resp3))
        };
        let longest = |answer: fn(&'static Table, &'static Verb, &mut Replies)| {
            let lengths = commands.described().map(|verb| length(&|replies| answer(commands, verb, replies)));
            lengths.max().unwrap_or(0)
        };
        let document_all =
            |replies: &mut Replies| commands.described().for_each(|verb| document(commands, verb, replies));
        Lengths {
            verb: longest(describe),
            all: length(&|replies| describe_all(commands, replies)),
            document: longest(document),
            documents: length(&document_all),
            names: length(&|replies| list_names(commands.described_with_subcommands().collect(), replies)),
        }
    })
}

fn info(command: Command<'_>, session: &mut Session, service: &Service, replies: &mut Replies) {
    if command.len() == 2 {
        return all(command, session, service, replies);
    }
    replies.array(command.len() - 2);
    for name in command.arguments(2) {
        match described_as(name, session.commands) {
            Some(verb) => describe(session.commands, verb, replies),
            None => replies.null(),
        }
    }
}

fn described_as(name: &[u8], commands: &Table) -> Option<&'static Verb> {
    commands.named_fully(name).filter(|verb| verb.group != Group::Http)
}

fn docs(command: Command<'_>, session: &mut Session, _: &Service, replies: &mut Replies) {
    let commands = session.commands;
    let verbs: Vec<_> = match command.len() {
        2 => commands.described().collect(),
        _ => command.arguments(2).filter_map(|name| described_as(name, commands)).collect(),
    };
    replies.map(verbs.len());
    verbs.into_iter().for_each(|verb| document(commands, verb, replies));
}

fn document(commands: &Table, verb: &Verb, replies: &mut Replies) {
    replies.bulk(verb.name.as_bytes());
    let facts = [("summary", verb.summary), ("since", verb.since), ("group", verb.group.name())];
    let subcommands = commands.subcommands(verb);
    let has_subcommands = verb.has_subcommands();
    replies.map(facts.len() + usize::from(has_subcommands));
    for (name, value) in facts {
        replies.bulk(name.as_bytes());
        replies.bulk(value.as_bytes());
    }
    if has_subcommands {
        replies.bulk(b"subcommands");
        replies.map(subcommands.len());
        subcommands.iter().for_each(|subcommand| document(commands, subcommand, replies));
    }
}

/// Answers the keys of the command in the arguments.
fn get_keys(command: Command<'_>, session: &mut Session, _: &Service, replies: &mut Replies) {
    match keys_of(command.from(2), session.commands) {
        Ok((_, keys)) => {
            replies.array(keys.len());
            keys.iter().for_each(|key| replies.bulk(key));
        }
        Err(error) => replies.error(error),
    }
}

/// Answers the keys of the command in the arguments, each with its access flags.
fn get_keys_and_flags(command: Command<'_>, session: &mut Session, _: &Service, replies: &mut Replies) {
    match keys_of(command.from(2), session.commands) {
        Ok((verb, keys)) => {
            replies.array(keys.len());
            for (behind, key) in keys.iter().enumerate() {
                let flags = verb.by_arguments.map_or_else(|| verb.access(behind), |of| of(command.from(2)).1);
                replies.array(2);
                replies.bulk(key);
                words_set(flags, replies);
            }
        }
        Err(error) => replies.error(error),
    }
}

fn keys_of<'c>(
    command: Command<'c>,
    commands: &Table,
) -> Result<(&'static Verb, Vec<&'c [u8]>), &'static str> {
    let verb = commands.find(command).ok_or("ERR Invalid command specified")?;
    if verb.has_subcommands() && command.len() > 1 {
        return Err("ERR Invalid command specified");
    }
    // Shard channels have key positions, but are not keys.
    if verb.keys.is_none() || verb.names_channels() {
        return Err("ERR The command has no key arguments");
    }
    if !verb.accepts(command.len()) {
        return Err("ERR Invalid number of arguments specified for command");
    }
    Ok((verb, verb.keys.of(command).map(|index| command.argument(index)).collect()))
}

/// Answers name, arity, flags, key positions, categories, tips, access to keys, and the same of each subcommand.
fn describe(commands: &Table, verb: &Verb, replies: &mut Replies) {
    replies.array(10);
    replies.bulk(verb.name.as_bytes());
    replies.integer(verb.arity);
    words_set(verb.flags, replies);
    let &Keys { first, last, step, counted_at } = &verb.keys;
    for position in [first, last, step] {
        replies.integer(position);
    }
    let categories: Vec<_> = CATEGORIES
        .iter()
        .filter(|category| verb.is_in(category))
        .map(|category| format!("@{category}"))
        .collect();
    words_set(&categories, replies);
    replies.set(verb.tips.len());
    verb.tips.iter().for_each(|tip| replies.bulk(tip.as_bytes()));
    if counted_at.is_some() {
        replies.set(1);
        describe_keys(verb, 0, 0, replies);
        return replies.set(0);
    }
    // One entry for each key with its own access; the last entry may be a range of keys with the same access.
    let ranges = if step == 0 { 0..0 } else { first..first + verb.access.len().max(1) as i64 };
    replies.set(ranges.clone().count());
    for (behind, index) in ranges.enumerate() {
        describe_keys(verb, behind, index, replies);
    }
    if !verb.has_subcommands() {
        return replies.set(0);
    }
    let subcommands = commands.subcommands(verb);
    replies.array(subcommands.len());
    subcommands.iter().for_each(|subcommand| describe(commands, subcommand, replies));
}

/// Answers the positions of keys with the same access, and that access.
fn describe_keys(verb: &Verb, behind: usize, index: i64, replies: &mut Replies) {
    let text = |word: &str, replies: &mut Replies| replies.bulk(word.as_bytes());
    let note = verb.access_note;
    replies.map(3 + usize::from(note.is_some()));
    if let Some(note) = note {
        text("notes", replies);
        text(note, replies);
    }
    text("flags", replies);
    words_set(verb.access(behind), replies);
    let is_rest = behind + 1 == verb.access.len().max(1);
    let (last, step) = match verb.keys.last {
        last @ ..0 if is_rest => (last, verb.keys.step),
        last if is_rest => (last - index, 1),
        _ => (0, 1),
    };
    let index = verb.keys.counted_at.map_or(index, |at| at as i64);
    let begin: &[(&str, i64)] = &[("index", index)];
    let (how, find): (_, &[(&str, i64)]) = match verb.keys.counted_at {
        Some(_) => ("keynum", &[("keynumidx", 0), ("firstkey", 1), ("keystep", 1)]),
        None => ("range", &[("lastkey", last), ("keystep", step), ("limit", 0)]),
    };
    for (name, kind, spec) in [("begin_search", "index", begin), ("find_keys", how, find)] {
        text(name, replies);
        replies.map(2);
        text("type", replies);
        text(kind, replies);
        text("spec", replies);
        replies.map(spec.len());
        for (name, value) in spec {
            text(name, replies);
            replies.integer(*value);
        }
    }
}

/// Answers a set of simple strings.
fn words_set<W: AsRef<str>>(words: &[W], replies: &mut Replies) {
    replies.set(words.len());
    words.iter().for_each(|word| replies.simple(word.as_ref()));
}
