//! COMMAND: what verbs there are. Clients build their help and their key routing from it.

use super::verbs::{find, named};
use super::words::{self, is};
use super::{Answer, Needs, Verb};
use crate::resp::frame::Command;
use crate::resp::reply::Replies;
use crate::resp::session::Session;
use crate::service::Service;

/// Name, least and greatest number of arguments with both words, and the answer.
pub(super) type Subcommand = (&'static str, usize, usize, Answer);

pub(super) static SUBCOMMANDS: [Subcommand; 6] = [
    ("count", 2, 2, count),
    ("list", 2, 2, list),
    ("info", 2, usize::MAX, info),
    ("docs", 2, usize::MAX, docs),
    ("getkeys", 3, usize::MAX, get_keys),
    ("getkeysandflags", 3, usize::MAX, get_keys_and_flags),
];

pub(super) fn command(command: Command<'_>, session: &mut Session, service: &Service, replies: &mut Replies) {
    if command.len() == 1 {
        return all(command, session, service, replies);
    }
    match SUBCOMMANDS.iter().find(|(name, ..)| is(command.argument(1), name)) {
        Some(&(_, least, most, answer)) if (least..=most).contains(&command.len()) => {
            answer(command, session, service, replies);
        }
        Some((name, ..)) => replies.error(&words::wrong_arguments(&format!("command|{name}"))),
        None => replies.error(&words::unknown_subcommand("COMMAND", command)),
    }
}

fn count(_: Command<'_>, _: &mut Session, _: &Service, replies: &mut Replies) {
    replies.integer(Verb::described().count() as i64);
}

fn list(_: Command<'_>, _: &mut Session, _: &Service, replies: &mut Replies) {
    replies.array(Verb::described().count());
    Verb::described().for_each(|verb| replies.bulk(verb.name.as_bytes()));
}

fn all(_: Command<'_>, _: &mut Session, _: &Service, replies: &mut Replies) {
    replies.array(Verb::described().count());
    Verb::described().for_each(|verb| describe(verb, replies));
}

fn info(command: Command<'_>, session: &mut Session, service: &Service, replies: &mut Replies) {
    if command.len() == 2 {
        return all(command, session, service, replies);
    }
    replies.array(command.len() - 2);
    for name in command.arguments(2) {
        match described(name) {
            Some(verb) => describe(verb, replies),
            None => replies.null(),
        }
    }
}

fn docs(command: Command<'_>, _: &mut Session, _: &Service, replies: &mut Replies) {
    let verbs: Vec<_> = match command.len() {
        2 => Verb::described().collect(),
        _ => command.arguments(2).filter_map(described).collect(),
    };
    replies.map(verbs.len());
    for verb in verbs {
        replies.bulk(verb.name.as_bytes());
        let facts = [("summary", verb.summary), ("since", "1.0.0"), ("group", verb.group)];
        replies.map(facts.len());
        for (name, value) in facts {
            replies.bulk(name.as_bytes());
            replies.bulk(value.as_bytes());
        }
    }
}

/// The keys of the command that follows.
fn get_keys(command: Command<'_>, _: &mut Session, _: &Service, replies: &mut Replies) {
    match keys_of(command.from(2)) {
        Ok((_, keys)) => {
            replies.array(keys.len());
            keys.iter().for_each(|key| replies.bulk(key));
        }
        Err(error) => replies.error(error),
    }
}

/// The same, with what the command does to each of them.
fn get_keys_and_flags(command: Command<'_>, _: &mut Session, _: &Service, replies: &mut Replies) {
    match keys_of(command.from(2)) {
        Ok((verb, keys)) => {
            let flags: &[&str] = match verb.needs {
                Needs::Write => &["OW", "update"],
                Needs::ReadWrite => &["RW", "access", "update"],
                _ => &["RO", "access"],
            };
            replies.array(keys.len());
            for key in keys {
                replies.array(2);
                replies.bulk(key);
                replies.set(flags.len());
                flags.iter().for_each(|flag| replies.simple(flag));
            }
        }
        Err(error) => replies.error(error),
    }
}

fn keys_of(command: Command<'_>) -> Result<(&'static Verb, Vec<&[u8]>), &'static str> {
    let verb = find(command).ok_or("ERR Invalid command specified")?;
    if !verb.accepts(command.len()) {
        return Err("ERR Invalid number of arguments specified for command");
    }
    let keys: Vec<_> = verb.keys.of(command).map(|index| command.argument(index)).collect();
    if keys.is_empty() { Err("ERR The command has no key arguments") } else { Ok((verb, keys)) }
}

fn described(name: &[u8]) -> Option<&'static Verb> {
    named(name).filter(|verb| !verb.group.is_empty())
}

/// Name, arity, flags, positions of keys, and four lists that are empty here: categories, tips, key specifications,
/// subcommands.
fn describe(verb: &Verb, replies: &mut Replies) {
    replies.array(10);
    replies.bulk(verb.name.as_bytes());
    replies.integer(verb.arity);
    replies.set(verb.flags.len());
    verb.flags.iter().for_each(|flag| replies.simple(flag));
    for position in [verb.keys.first, verb.keys.last, verb.keys.step] {
        replies.integer(position);
    }
    replies.set(0);
    replies.array(0);
    replies.array(0);
    replies.array(0);
}
