//! COMMAND: describes all verbs. Clients build their help and their key routing from it.

use std::sync::OnceLock;

use super::Answer;
use crate::resp::session::Session;
use crate::resp::verbs::{Keys, Verb, find, history};
use crate::resp::wire::commands::Command;
use crate::resp::wire::error_text::{self, is, shown};
use crate::resp::wire::glob::Pattern;
use crate::resp::wire::reply::{Protocol, Replies};
use crate::service::Service;

pub(super) mod help;

/// The implementations of the subcommands.
static ANSWERS: [(&str, Answer); 7] = [
    ("count", count),
    ("list", list),
    ("info", info),
    ("docs", docs),
    ("getkeys", get_keys),
    ("getkeysandflags", get_keys_and_flags),
    ("help", |command, _, _, replies| help::help("command", command, replies)),
];

pub(super) fn command(command: Command<'_>, session: &mut Session, service: &Service, replies: &mut Replies) {
    if command.len() == 1 {
        return all(command, session, service, replies);
    }
    match ANSWERS.iter().find(|(name, _)| is(command.argument(1), name)) {
        Some((_, answer)) => answer(command, session, service, replies),
        None => replies.error(&error_text::unknown_subcommand("COMMAND", command)),
    }
}

fn count(_: Command<'_>, _: &mut Session, _: &Service, replies: &mut Replies) {
    replies.integer(Verb::described().count() as i64);
}

/// `COMMAND LIST [FILTERBY MODULE name | ACLCAT category | PATTERN pattern]`. There are no modules.
fn list(command: Command<'_>, _: &mut Session, _: &Service, replies: &mut Replies) {
    let mut verbs: Vec<_> = Verb::described_with_subcommands().collect();
    match (command.len(), command.arguments(2).last()) {
        (2, _) => {}
        (5, Some(wanted)) if is(command.argument(2), "filterby") => match command.argument(3) {
            by if is(by, "module") => verbs.clear(),
            by if is(by, "aclcat") => {
                let category = shown(wanted, 128).to_ascii_lowercase();
                verbs.retain(|verb| history::is_in(verb, &category));
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

fn all(_: Command<'_>, _: &mut Session, _: &Service, replies: &mut Replies) {
    describe_all(replies);
}

fn describe_all(replies: &mut Replies) {
    replies.array(Verb::described().count());
    Verb::described().for_each(|verb| describe(verb, replies));
}

/// Upper bounds of answers, in bytes: descriptions of one verb and of all verbs, documentation of one verb and of all
/// verbs, and all names.
pub(in crate::resp) struct Lengths {
    pub(in crate::resp) verb: usize,
    pub(in crate::resp) all: usize,
    pub(in crate::resp) document: usize,
    pub(in crate::resp) documents: usize,
    /// The names of all verbs and subcommands.
    pub(in crate::resp) names: usize,
}

/// Returns the upper bounds, which depend only on the table of verbs and the protocol version.
pub(in crate::resp) fn lengths() -> &'static Lengths {
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
        let longest = |answer: fn(&'static Verb, &mut Replies)| {
            Verb::described().map(|verb| length(&|replies| answer(verb, replies))).max().unwrap_or(0)
        };
        let document_all = |replies: &mut Replies| Verb::described().for_each(|verb| document(verb, replies));
        Lengths {
            verb: longest(describe),
            all: length(&describe_all),
            document: longest(document),
            documents: length(&document_all),
            names: length(&|replies| list_names(Verb::described_with_subcommands().collect(), replies)),
        }
    })
}

fn info(command: Command<'_>, session: &mut Session, service: &Service, replies: &mut Replies) {
    if command.len() == 2 {
        return all(command, session, service, replies);
    }
    replies.array(command.len() - 2);
    for name in command.arguments(2) {
        match Verb::described_as(name) {
            Some(verb) => describe(verb, replies),
            None => replies.null(),
        }
    }
}

fn docs(command: Command<'_>, _: &mut Session, _: &Service, replies: &mut Replies) {
    let verbs: Vec<_> = match command.len() {
        2 => Verb::described().collect(),
        _ => command.arguments(2).filter_map(Verb::described_as).collect(),
    };
    replies.map(verbs.len());
    verbs.into_iter().for_each(|verb| document(verb, replies));
}

fn document(verb: &'static Verb, replies: &mut Replies) {
    replies.bulk(verb.name.as_bytes());
    let facts = [("summary", verb.summary), ("since", history::since(verb)), ("group", verb.group)];
    let subcommands = verb.subcommands();
    let has_subcommands = verb.has_subcommands();
    replies.map(facts.len() + usize::from(has_subcommands));
    for (name, value) in facts {
        replies.bulk(name.as_bytes());
        replies.bulk(value.as_bytes());
    }
    if has_subcommands {
        replies.bulk(b"subcommands");
        replies.map(verb.subcommands().count());
        subcommands.for_each(|subcommand| document(subcommand, replies));
    }
}

/// Answers the keys of the command in the arguments.
fn get_keys(command: Command<'_>, _: &mut Session, _: &Service, replies: &mut Replies) {
    match keys_of(command.from(2)) {
        Ok((_, keys)) => {
            replies.array(keys.len());
            keys.iter().for_each(|key| replies.bulk(key));
        }
        Err(error) => replies.error(error),
    }
}

/// Answers the keys of the command in the arguments, each with its access flags.
fn get_keys_and_flags(command: Command<'_>, _: &mut Session, _: &Service, replies: &mut Replies) {
    match keys_of(command.from(2)) {
        Ok((verb, keys)) => {
            replies.array(keys.len());
            for (behind, key) in keys.iter().enumerate() {
                let flags = match verb.name {
                    "set" => history::access_of_set(command.arguments(5).any(|word| is(word, "get"))),
                    "bitfield" => history::access_of_bitfield(only_looks(command.from(2))),
                    _ => history::access(verb, behind),
                };
                replies.array(2);
                replies.bulk(key);
                words_set(flags, replies);
            }
        }
        Err(error) => replies.error(error),
    }
}

/// Returns true if a BITFIELD only reads. As in Redis, each word at which an operation may begin must be GET or
/// OVERFLOW.
fn only_looks(command: Command<'_>) -> bool {
    let mut words = command.arguments(2);
    while let Some(word) = words.next() {
        match words.len() {
            2.. if is(word, "get") => words.nth(1),
            1.. if is(word, "overflow") => words.next(),
            _ => return false,
        };
    }
    true
}

fn keys_of(command: Command<'_>) -> Result<(&'static Verb, Vec<&[u8]>), &'static str> {
    let verb = find(command).ok_or("ERR Invalid command specified")?;
    let subcommand = command.arguments(1).next().filter(|_| verb.has_subcommands());
    let verb =
        subcommand.map_or(Some(verb), |word| verb.subcommand(word)).ok_or("ERR Invalid command specified")?;
    // Shard channels have key positions, but are not keys.
    if verb.keys.step == 0 && verb.keys.counted_at.is_none() || verb.group == "pubsub" {
        return Err("ERR The command has no key arguments");
    }
    if !verb.accepts(command.len()) {
        return Err("ERR Invalid number of arguments specified for command");
    }
    Ok((verb, verb.keys.of(command).map(|index| command.argument(index)).collect()))
}

/// Answers name, arity, flags, key positions, categories, tips, access to keys, and the same of each subcommand.
fn describe(verb: &'static Verb, replies: &mut Replies) {
    replies.array(10);
    replies.bulk(verb.name.as_bytes());
    replies.integer(verb.arity);
    words_set(verb.flags, replies);
    let &Keys { first, last, step, counted_at } = &verb.keys;
    for position in [first, last, step] {
        replies.integer(position);
    }
    let categories: Vec<_> = history::categories(verb).map(|category| format!("@{category}")).collect();
    words_set(&categories, replies);
    let tips = history::tips(verb);
    replies.set(tips.len());
    tips.iter().for_each(|tip| replies.bulk(tip.as_bytes()));
    if counted_at.is_some() {
        replies.set(1);
        describe_keys(verb, 0, 0, replies);
        return replies.set(0);
    }
    // One entry for each key with its own access; the last entry may be a range of keys with the same access.
    let ranges = if step == 0 { 0..0 } else { first..first + history::treatments(verb) as i64 };
    replies.set(ranges.clone().count());
    for (behind, index) in ranges.enumerate() {
        describe_keys(verb, behind, index, replies);
    }
    if !verb.has_subcommands() {
        return replies.set(0);
    }
    replies.array(verb.subcommands().count());
    verb.subcommands().for_each(|subcommand| describe(subcommand, replies));
}

/// Answers the positions of keys with the same access, and that access.
fn describe_keys(verb: &Verb, behind: usize, index: i64, replies: &mut Replies) {
    let text = |word: &str, replies: &mut Replies| replies.bulk(word.as_bytes());
    let note = history::note(verb);
    replies.map(3 + usize::from(note.is_some()));
    if let Some(note) = note {
        text("notes", replies);
        text(note, replies);
    }
    text("flags", replies);
    words_set(history::access(verb, behind), replies);
    let is_rest = behind + 1 == history::treatments(verb);
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
