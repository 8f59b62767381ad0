//! SUBSCRIBE, PUBLISH and related commands. The user's channel rights apply: read rights allow subscribing, write
//! rights publishing. For a user with rights and prefixes they are its rights to keys of the same name.

use std::collections::HashSet;

use bytes::Bytes;

use super::help;
use super::tracking;
use crate::auth::Needs;
use crate::auth::User;
use crate::resp::session::subscriptions::Subscriptions;
use crate::resp::session::{Session, audit, refused};
use crate::resp::verb::facts::{Bound, Channels, Group, InMulti, Keys, Pauses, flags};
use crate::resp::verb::{Run, Verb};
use crate::resp::wire::commands::Command;
use crate::resp::wire::error_text;
use crate::resp::wire::glob::{PARTS_FACTOR, PATTERN_BYTES_MAX, Parts};
use crate::resp::wire::reply::Replies;
use crate::service::Service;
use crate::service::acl_log::Reason;
use crate::service::channels::{Kind, Letter, Message};
use crate::service::events::database_of;

const SUBSCRIBE: &[&str] = &["pubsub", "noscript", "loading", "stale"];
const PUBLISH: &[&str] = &["pubsub", "loading", "stale", "fast"];
const STATE: &[&str] = &["pubsub", "loading", "stale"];
const PUBSUB: Verb =
    Verb { group: Group::Pubsub, flags: STATE, categories: &["pubsub"], bound, ..Verb::DEFAULT };

/// The commands of this family.
#[rustfmt::skip]
pub(super) const COMMANDS: &[Verb] = &[
    Verb { name: "psubscribe", arity: -2, run: Run::Answer(psubscribe), needs: Needs::Read, flags: SUBSCRIBE,
        subscribes: true, for_subscribers: true, channels: Channels::Heard(Kind::Pattern), bound: bound_of_patterns,
        since: "2.0.0", summary: "Listens to channels whose names match patterns.", ..PUBSUB },
    Verb { name: "publish", arity: 3, run: Run::Answer(publish), needs: Needs::Write, flags: PUBLISH,
        pauses: Pauses::OfWrites, in_scripts: true, channels: Channels::Published, since: "2.0.0",
        summary: "Sends a message to all who listen to a channel.", ..PUBSUB },
    Verb { name: "pubsub", arity: -2, flags: flags::NONE, categories: &[], help: HELP, since: "2.8.0",
        summary: "Tells which channels are listened to.", ..PUBSUB },
    Verb { name: "pubsub|channels", arity: -2,
        run: Run::Answer(|command, session, service, replies| names(Kind::Channel, command, session, service, replies)),
        bound: |command, _, service| bound_of_names(Kind::Channel, command, service), since: "2.8.0",
        summary: "Lists channels that have subscribers.", ..PUBSUB },
    Verb { name: "pubsub|help", arity: 2, run: help::RUN, flags: flags::TELL, categories: &[], bound: help::BOUND,
        since: "6.2.0", summary: "Lists the subcommands.", ..PUBSUB },
    Verb { name: "pubsub|numpat", arity: 2,
        run: Run::Answer(|_, _, service, replies| replies.integer(service.channels.names_bytes(Kind::Pattern).1 as i64)),
        since: "2.8.0", summary: "Returns how many patterns are subscribed to.", ..PUBSUB },
    Verb { name: "pubsub|numsub", arity: -2,
        run: Run::Answer(|command, _, service, replies| counts(Kind::Channel, command, service, replies)),
        since: "2.8.0", summary: "Returns how many subscribers channels have.", ..PUBSUB },
    Verb { name: "pubsub|shardchannels", arity: -2,
        run: Run::Answer(|command, session, service, replies| names(Kind::Shard, command, session, service, replies)),
        bound: |command, _, service| bound_of_names(Kind::Shard, command, service), since: "7.0.0",
        summary: "Lists shard channels that have subscribers.", ..PUBSUB },
    Verb { name: "pubsub|shardnumsub", arity: -2,
        run: Run::Answer(|command, _, service, replies| counts(Kind::Shard, command, service, replies)),
        since: "7.0.0", summary: "Returns how many subscribers shard channels have.", ..PUBSUB },
    Verb { name: "punsubscribe", arity: -1, run: Run::Answer(punsubscribe), flags: SUBSCRIBE,
        subscribes: true, for_subscribers: true, since: "2.0.0",
        summary: "Listens no more to channels whose names match patterns.", ..PUBSUB },
    Verb { name: "spublish", arity: 3, run: Run::Answer(spublish), keys: Keys::ONE, access: &[&["not_key"]],
        needs: Needs::Write, flags: PUBLISH, pauses: Pauses::OfWrites, in_scripts: true,
        channels: Channels::Published, since: "7.0.0",
        summary: "Sends a message to all who listen to a shard channel.", ..PUBSUB },
    Verb { name: "ssubscribe", arity: -2, run: Run::Answer(ssubscribe), keys: Keys::ALL, access: &[&["not_key"]],
        needs: Needs::Read, flags: SUBSCRIBE, in_multi: InMulti::RefusedByExec,
        subscribes: true, for_subscribers: true, channels: Channels::Heard(Kind::Channel), since: "7.0.0",
        summary: "Listens to shard channels.", ..PUBSUB },
    Verb { name: "subscribe", arity: -2, run: Run::Answer(subscribe), needs: Needs::Read, flags: SUBSCRIBE,
        subscribes: true, for_subscribers: true, channels: Channels::Heard(Kind::Channel), since: "2.0.0",
        summary: "Listens to channels.", ..PUBSUB },
    Verb { name: "sunsubscribe", arity: -1, run: Run::Answer(sunsubscribe), keys: Keys::ALL,
        access: &[&["not_key"]], flags: SUBSCRIBE, subscribes: true, for_subscribers: true, since: "7.0.0",
        summary: "Listens no more to shard channels.", ..PUBSUB },
    Verb { name: "unsubscribe", arity: -1, run: Run::Answer(unsubscribe), flags: SUBSCRIBE,
        subscribes: true, for_subscribers: true, since: "2.0.0", summary: "Listens no more to channels.",
        ..PUBSUB },
    Verb { name: "monitor", arity: 1, run: Run::Answer(monitor), needs: Needs::Admin, flags: flags::ADMIN,
        group: Group::Server, categories: &[], since: "1.0.0", summary: "Shows every command that runs.",
        ..PUBSUB },
];

const HELP: &str = "\
CHANNELS [<pattern>]
    Return the currently active channels matching a <pattern> (default: '*').
NUMPAT
    Return number of subscriptions to patterns.
NUMSUB [<channel> ...]
    Return the number of subscribers for the specified channels, excluding
    pattern subscriptions(default: no channels).
SHARDCHANNELS [<pattern>]
    Return the currently active shard level channels matching a <pattern> (default: '*').
SHARDNUMSUB [<shardchannel> ...]
    Return the number of subscribers for the specified shard level channel(s)";

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
    match verb.channels {
        Channels::None => None,
        Channels::Heard(kind) => command.arguments(1).find(|name| !user_may_listen(kind, name, user)),
        Channels::Published => Some(command.argument(1)).filter(|channel| !may_publish(channel, user)),
    }
}

/// Returns true if the user still has the rights to all subscriptions of the client.
pub(in crate::resp) fn still_may_listen(session: &Session) -> bool {
    let Some(subscriptions) = &session.subscriptions else { return true };
    let may_monitor =
        |user: &User| session.commands.named(b"monitor").is_some_and(|verb| user.may_run(verb.row));
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
fn refuse_channel(name: &[u8], command: Command<'_>, session: &mut Session, service: &Service) {
    let Some(verb) = session.commands.find(command) else { return };
    let counted = session.commands.counted_as(verb).name;
    match session.outbox {
        Some(_) => refused::hold(Reason::Channel, name, counted, session),
        None => refused::note(Reason::Channel, name, counted, session, service),
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
        None => service.channels.publish_everywhere(kind, &command.shared(1), &command.shared(2)),
    };
    replies.integer(receivers as i64);
}

/// Answers the channels that match a pattern, or all, as far as the user may subscribe to them.
fn names(kind: Kind, command: Command<'_>, session: &Session, service: &Service, replies: &mut Replies) {
    if command.len() > 3 {
        return replies.error(&error_text::unknown_or_wrong_arguments("PUBSUB", command));
    }
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

/// Bytes of an answer about a channel, beside the bytes of its name.
const ANSWER_BYTES: usize = 64;

/// Returns the bounds of a command that names channels, or ends all subscriptions.
fn bound(command: Command<'_>, session: &Session, _: &Service) -> Bound {
    let subscriptions = session.subscriptions.as_ref();
    let all = subscriptions.map_or(0, |all| all.held_bytes() + all.len() * ANSWER_BYTES);
    bound_of(command, all)
}

/// Returns the bounds of a command that names patterns, which exist compiled until they are stored.
fn bound_of_patterns(command: Command<'_>, session: &Session, service: &Service) -> Bound {
    let Bound { answer, .. } = bound(command, session, service);
    Bound { answer, beside: answer + command.bytes() * PARTS_FACTOR }
}

/// Returns the bounds of a command that lists all channels.
fn bound_of_names(kind: Kind, command: Command<'_>, service: &Service) -> Bound {
    let (bytes, count) = service.channels.names_bytes(kind);
    bound_of(command, bytes + count * ANSWER_BYTES)
}

fn bound_of(command: Command<'_>, bytes: usize) -> Bound {
    let Bound { answer, beside } = Bound::twice(command.bytes() + command.len() * ANSWER_BYTES + bytes);
    let pattern = (command.bytes() * PARTS_FACTOR).min(PATTERN_BYTES_MAX * PARTS_FACTOR);
    Bound { answer, beside: beside + pattern }
}
