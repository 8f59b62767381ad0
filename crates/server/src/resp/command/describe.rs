//! COMMAND: what verbs there are. Clients build their help and their key routing from it.

use super::{Plan, Verb, is, unknown_subcommand, wrong_arguments};
use crate::resp::frame::Command;
use crate::resp::reply::Replies;
use crate::resp::session::Session;
use crate::service::Service;

pub(super) fn plan(command: Command<'_>) -> Plan {
    if command.len() == 1 {
        return Plan::Answer(all);
    }
    let exact = |name: &str, plan: Plan| {
        if command.len() == 2 { plan } else { Plan::Refuse(wrong_arguments(&format!("command|{name}"))) }
    };
    match command.argument(1) {
        word if is(word, "count") => exact("count", Plan::Answer(count)),
        word if is(word, "list") => exact("list", Plan::Answer(list)),
        word if is(word, "info") => Plan::Answer(info),
        word if is(word, "docs") => Plan::Answer(docs),
        word if is(word, "getkeys") && command.len() < 3 => Plan::Refuse(wrong_arguments("command|getkeys")),
        word if is(word, "getkeys") => Plan::Answer(get_keys),
        _ => unknown_subcommand("COMMAND", command),
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
        match named(name) {
            Some(verb) => describe(verb, replies),
            None => replies.null(),
        }
    }
}

fn docs(command: Command<'_>, _: &mut Session, _: &Service, replies: &mut Replies) {
    let verbs: Vec<_> = match command.len() {
        2 => Verb::described().collect(),
        _ => command.arguments(2).filter_map(named).collect(),
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
    let Some(verb) = named(command.argument(2)) else {
        return replies.error("ERR Invalid command specified");
    };
    let arguments = command.len() - 2;
    if !verb.accepts(arguments) {
        return replies.error("ERR Invalid number of arguments specified for command");
    }
    if verb.keys.step == 0 {
        return replies.error("ERR The command has no key arguments");
    }
    let keys = verb.keys.of(command.from(2));
    replies.array(keys.clone().count());
    keys.for_each(|index| replies.bulk(command.argument(2 + index)));
}

fn named(name: &[u8]) -> Option<&'static Verb> {
    Verb::described().find(|verb| is(name, verb.name))
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
