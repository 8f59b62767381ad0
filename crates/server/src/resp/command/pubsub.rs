//! SUBSCRIBE, PUBLISH and related commands. The user's channel rights apply: read rights allow subscribing, write
//! rights publishing. For a user with rights and prefixes they are its rights to keys of the same name.

use std::collections::HashSet;

use bytes::Bytes;

use super::describe::help::help;
use super::tracking;
use crate::auth::User;
use crate::resp::session::subscriptions::Subscriptions;
use crate::resp::session::{Session, audit, refused};
use crate::resp::verbs::{self, Verb};
use crate::resp::wire::commands::Command;
use crate::resp::wire::error_text::{self, is};
use crate::resp::wire::glob::{PARTS_FACTOR, PATTERN_BYTES_MAX, Parts};
use crate::resp::wire::reply::Replies;
use crate::service::Service;
use crate::service::acl_log::Reason;
use crate::service::channels::{Kind, Letter, Message};
use crate::service::events::database_of;

/// Wildcards of a glob pattern: all matching names begin with the part of the pattern before the first of them.
const SPECIAL: &[u8] = b"*?[\\";

/// Limit of the bytes of a channel name, equal to that of a pattern. Every published name is matched with all
/// patterns, and no other task runs on that thread meanwhile.
const NAME_BYTES_MAX: usize = PATTERN_BYTES_MAX;

/// Limit of the bytes of a name of a keyspace event channel: the longest key after `__keyspace@15__:`.
const EVENTS_NAME_BYTES_MAX: usize = (64 << 10) + 16;

const NAME_TOO_LONG: &str = "ERR the name of a channel has up to 4096 bytes, but for channels of keyspace events that are listened to";

pub(super) fn subscribe(c: Command<'_>, session: &mut Session, service: &Service, replies: &mut Replies) {
    add(Kind::Channel, "subscribe", c, session, service, replies);
}

pub(super) fn psubscribe(c: Command<'_>, session: &mut Session, service: &Service, replies: &mut Replies) {
    add(Kind::Pattern, "psubscribe", c, session, service, replies);
}

pub(super) fn ssubscribe(c: Command<'_>, session: &mut Session, service: &Service, replies: &mut Replies) {
    add(Kind::Shard, "ssubscribe", c, session, service, replies);
}

pub(super) fn unsubscribe(c: Command<'_>, session: &mut Session, _: &Service, replies: &mut Replies) {
    remove(Kind::Channel, "unsubscribe", c, session, replies);
}

pub(super) fn punsubscribe(c: Command<'_>, session: &mut Session, _: &Service, replies: &mut Replies) {
    remove(Kind::Pattern, "punsubscribe", c, session, replies);
}

pub(super) fn sunsubscribe(c: Command<'_>, session: &mut Session, _: &Service, replies: &mut Replies) {
    remove(Kind::Shard, "sunsubscribe", c, session, replies);
}

/// Returns true if the answers to a command confirm subscriptions.
pub(in crate::resp) fn confirms(verb: &Verb) -> bool {
    verb.name.ends_with("subscribe")
}

/// Returns true for a command that EXEC answers with an error, as Redis does: SUBSCRIBE and PSUBSCRIBE run there, SSUBSCRIBE does
/// not.
pub(in crate::resp) fn is_refused_in_transaction(verb: &Verb) -> bool {
    verb.name == "ssubscribe"
}

fn may_listen(kind: Kind, name: &[u8], session: &Session) -> bool {
    session.user.as_ref().is_some_and(|user| user_may_listen(kind, name, user))
}

fn user_may_listen(kind: Kind, name: &[u8], user: &User) -> bool {
    let end = match kind {
        Kind::Pattern => name.iter().position(|byte| SPECIAL.contains(byte)).unwrap_or(name.len()),
        Kind::Channel | Kind::Shard => name.len(),
    };
    let is_of_usable = matches!(kind, Kind::Pattern) || is_of_usable(name, user);
    user.may_hear(&name[..end]) && is_of_usable
}

/// Returns false for a keyspace event channel of a database that the user may not use.
fn is_of_usable(channel: &[u8], user: &User) -> bool {
    user.may_use_all_databases() || database_of(channel).is_none_or(|database| user.may_use(database))
}

fn may_publish(channel: &[u8], user: &User) -> bool {
    user.may_publish(channel) && is_of_usable(channel, user)
}

/// Returns the first channel of a command that the user may not use.
pub(super) fn kept<'c>(verb: &Verb, command: Command<'c>, user: &User) -> Option<&'c [u8]> {
    let kept = |kind| command.arguments(1).find(|name| !user_may_listen(kind, name, user));
    match verb.name {
        "subscribe" | "ssubscribe" => kept(Kind::Channel),
        "psubscribe" => kept(Kind::Pattern),
        "publish" | "spublish" => Some(command.argument(1)).filter(|channel| !may_publish(channel, user)),
        _ => None,
    }
}

/// Returns true if the user still has the rights to all subscriptions of the client.
pub(in crate::resp) fn still_may_listen(session: &Session) -> bool {
    let Some(subscriptions) = &session.subscriptions else { return true };
    let may_monitor = |user: &User| verbs::named(b"monitor").is_some_and(|verb| user.may_run(verb.row()));
    if subscriptions.monitors() && !session.user.as_ref().is_some_and(|user| may_monitor(user)) {
        return false;
    }
    let may_all = |kind: Kind| subscriptions.names(kind).iter().all(|name| may_listen(kind, name, session));
    Kind::ALL.into_iter().all(may_all)
}

fn add(
    kind: Kind,
    word: &str,
    command: Command<'_>,
    session: &mut Session,
    service: &Service,
    replies: &mut Replies,
) {
    let is_too_long = |name: &[u8]| match database_of(name) {
        Some(_) => name.len() > EVENTS_NAME_BYTES_MAX,
        None => name.len() > NAME_BYTES_MAX,
    };
    if kind != Kind::Pattern && command.arguments(1).any(is_too_long) {
        return replies.error(NAME_TOO_LONG);
    }
    if let Some(name) = command.arguments(1).find(|name| !may_listen(kind, name, session)) {
        refuse_channel(name, command, session, service);
        return replies.error(error_text::NO_RIGHT_TO_CHANNEL);
    }
    let most = service.config.limits.arguments_max;
    if session.subscriptions.as_ref().map_or(0, Subscriptions::len) + command.len() > most {
        return replies.error("ERR too many subscriptions");
    }
    let client = &session.client;
    let subscriptions =
        session.subscriptions.get_or_insert_with(|| Subscriptions::new(&service.channels, client));
    if kind == Kind::Pattern {
        match subscriptions.begin_patterns(command.arguments(1)) {
            Ok(mut new) => {
                for name in command.arguments(1) {
                    subscriptions.keep_pattern(name, &mut new);
                    tell(word, Some(name), subscriptions.count(kind), replies);
                }
            }
            Err(why) => replies.error(why),
        }
    } else {
        for name in command.arguments(1) {
            subscriptions.add(kind, name);
            tell(word, Some(name), subscriptions.count(kind), replies);
        }
    }
    session.forget_subscriptions_if_none();
}

/// Ends the named subscriptions, or all of the kind if none is named.
fn remove(kind: Kind, word: &str, command: Command<'_>, session: &mut Session, replies: &mut Replies) {
    let mut names: Vec<Bytes> = command.arguments(1).map(Bytes::copy_from_slice).collect();
    if names.is_empty() {
        names = session.subscriptions.as_ref().map_or(Vec::new(), |subscriptions| subscriptions.names(kind));
    }
    let Some(subscriptions) = &mut session.subscriptions else {
        let tell_each = |name: &Bytes| tell(word, Some(name), 0, &mut *replies);
        names.iter().for_each(tell_each);
        if names.is_empty() {
            tell(word, None, 0, replies);
        }
        return;
    };
    if names.is_empty() {
        tell(word, None, subscriptions.count(kind), replies);
    }
    let mut ended = HashSet::new();
    for name in &names {
        ended.extend(subscriptions.remove(kind, name));
        tell(word, Some(name), subscriptions.count(kind), replies);
    }
    subscriptions.discard(kind, &ended);
    session.forget_subscriptions_if_none();
}

/// Confirms that a subscription began or ended, with the new count.
fn tell(word: &str, name: Option<&[u8]>, count: usize, replies: &mut Replies) {
    replies.push(3);
    replies.bulk(word.as_bytes());
    replies.bulk_or_null(name);
    replies.integer(count as i64);
}

/// `MONITOR`: from now on the client receives all commands, until RESET.
pub(super) fn monitor(_: Command<'_>, session: &mut Session, service: &Service, replies: &mut Replies) {
    let client = &session.client;
    session.subscriptions.get_or_insert_with(|| Subscriptions::new(&service.channels, client)).monitor();
    audit::note(session, "MONITOR");
    replies.simple("OK");
}

/// Answers a message from the client's mailbox.
pub(in crate::resp) fn deliver(letter: &Letter, session: &Session, replies: &mut Replies) {
    match letter {
        // A pattern may match events of databases that the user may not use.
        Letter::Message(message)
            if session.user.as_ref().is_some_and(|user| !is_of_usable(&message.channel, user)) => {}
        Letter::Message(message) => tell_message(message, replies),
        Letter::Command(line) => replies.simple_bytes(line),
        Letter::Invalid(keys) => tracking::tell_invalid(keys.as_deref(), session, replies),
        Letter::BrokenRedirection(id) => tracking::tell_broken(*id, replies),
    }
}

fn tell_message(message: &Message, replies: &mut Replies) {
    let Message { kind, pattern, channel, payload } = message;
    match (kind, pattern) {
        (_, Some(pattern)) => {
            replies.push(4);
            replies.bulk(b"pmessage");
            replies.bulk(pattern);
        }
        (Kind::Shard, None) => {
            replies.push(3);
            replies.bulk(b"smessage");
        }
        (_, None) => {
            replies.push(3);
            replies.bulk(b"message");
        }
    }
    replies.bulk(channel);
    replies.value(payload);
}

pub(super) fn publish(command: Command<'_>, session: &mut Session, service: &Service, replies: &mut Replies) {
    publish_to(Kind::Channel, command, session, service, replies);
}

pub(super) fn spublish(
    command: Command<'_>,
    session: &mut Session,
    service: &Service,
    replies: &mut Replies,
) {
    publish_to(Kind::Shard, command, session, service, replies);
}

/// Records the refusal of a channel in the ACL log.
fn refuse_channel(name: &[u8], command: Command<'_>, session: &Session, service: &Service) {
    if let Some(verb) = verbs::find(command) {
        refused::note(Reason::Channel, name, verb, session, service);
    }
}

fn publish_to(
    kind: Kind,
    command: Command<'_>,
    session: &mut Session,
    service: &Service,
    replies: &mut Replies,
) {
    let channel = command.argument(1);
    if channel.len() > NAME_BYTES_MAX {
        return replies.error(NAME_TOO_LONG);
    }
    if !session.user.as_ref().is_some_and(|user| may_publish(channel, user)) {
        refuse_channel(channel, command, session, service);
        return replies.error(error_text::NO_RIGHT_TO_CHANNEL);
    }
    let receivers = match &mut session.outbox {
        // A script's messages are published once its writes are visible.
        Some(outbox) => {
            outbox.put(kind, command.shared(1), command.shared(2));
            service.channels.receivers(kind, channel)
        }
        None => service.channels.publish(kind, channel, command.argument(2)),
    };
    replies.integer(receivers as i64);
}

/// PUBSUB: reports channels and their subscribers.
pub(super) fn pubsub(command: Command<'_>, session: &mut Session, service: &Service, replies: &mut Replies) {
    let named = |name: &str| is(command.argument(1), name);
    match command.len() {
        2 if named("help") => help("pubsub", command, replies),
        2 | 3 if named("channels") => names(Kind::Channel, command, session, service, replies),
        2 | 3 if named("shardchannels") => names(Kind::Shard, command, session, service, replies),
        _ if named("numsub") => counts(Kind::Channel, command, service, replies),
        _ if named("shardnumsub") => counts(Kind::Shard, command, service, replies),
        2 if named("numpat") => replies.integer(service.channels.names_bytes(Kind::Pattern).1 as i64),
        _ if named("channels") || named("shardchannels") => {
            replies.error(&error_text::unknown_or_wrong_arguments("PUBSUB", command));
        }
        _ if named("help") || named("numpat") => {
            let name = error_text::shown(command.argument(1), 128).to_ascii_lowercase();
            replies.error(&error_text::wrong_arguments(&format!("pubsub|{name}")));
        }
        _ => replies.error(&error_text::unknown_subcommand("PUBSUB", command)),
    }
}

/// Answers the channels that match a pattern, or all, as far as the user may subscribe to them.
fn names(kind: Kind, command: Command<'_>, session: &Session, service: &Service, replies: &mut Replies) {
    let pattern = match command.arguments(2).next().map(Parts::new).transpose() {
        Ok(pattern) => pattern,
        Err(why) => return replies.error(why),
    };
    let mut names = service.channels.names(kind);
    names.retain(|name| {
        may_listen(Kind::Channel, name, session)
            && pattern.as_ref().is_none_or(|pattern| pattern.matches(name))
    });
    replies.array(names.len());
    names.iter().for_each(|name| replies.bulk(name));
}

fn counts(kind: Kind, command: Command<'_>, service: &Service, replies: &mut Replies) {
    replies.array((command.len() - 2) * 2);
    for name in command.arguments(2) {
        replies.bulk(name);
        replies.integer(service.channels.subscribers(kind, name) as i64);
    }
}

/// Returns the upper bound of the answer's bytes, for commands that name channels and for PUBSUB, which lists them.
pub(in crate::resp) fn answer_bytes(command: Command<'_>, session: &Session, service: &Service) -> usize {
    const ANSWER_BYTES: usize = 64;
    let named = command.bytes() + command.len() * ANSWER_BYTES;
    let of_all = |kind| {
        let (bytes, count) = service.channels.names_bytes(kind);
        bytes + count * ANSWER_BYTES
    };
    let word = if command.len() > 1 { command.argument(1) } else { b"" };
    if is(command.verb(), "pubsub") {
        let listed = if is(word, "channels") {
            of_all(Kind::Channel)
        } else if is(word, "shardchannels") {
            of_all(Kind::Shard)
        } else {
            0
        };
        return named + listed;
    }
    let Some(subscriptions) = &session.subscriptions else { return named };
    named + subscriptions.held_bytes() + subscriptions.len() * ANSWER_BYTES
}

/// Returns the bytes of compiled patterns until they are stored.
pub(in crate::resp) fn beside_bytes(command: Command<'_>) -> usize {
    let all = command.bytes() * PARTS_FACTOR;
    if is(command.verb(), "psubscribe") { all } else { all.min(PATTERN_BYTES_MAX * PARTS_FACTOR) }
}
