//! OBJECT: what Redis would tell of how it keeps a value.

use super::describe::help::help;
use crate::resp::session::Session;
use crate::resp::session::view::View;
use crate::resp::wire::commands::Command;
use crate::resp::wire::number::parse_integer;
use crate::resp::wire::reply::Replies;
use crate::resp::wire::words::{self, is};
use crate::service::Service;

/// The longest value that Redis keeps beside what it knows of it.
const EMBEDDED_BYTES_MAX: usize = 44;

/// Redis has each of the numbers below this once, and says so with the highest count that there is.
const SHARED_NUMBERS: i64 = 10_000;
const SHARED_COUNT: i64 = i32::MAX as i64;

/// Subcommands that ask for no key.
pub(super) fn object(command: Command<'_>, _: &mut Session, _: &Service, replies: &mut Replies) {
    match command.argument(1) {
        word if is(word, "help") => help("object", command, replies),
        _ => replies.error(&words::unknown_subcommand("OBJECT", command)),
    }
}

/// `OBJECT ENCODING key`: as if the value had been written by a SET.
pub(super) fn encoding(command: Command<'_>, view: &mut View, replies: &mut Replies) {
    match view.get(command.argument(2)).map(|held| &held.value) {
        Some(value) if parse_integer(value).is_some() => replies.bulk(b"int"),
        Some(value) if value.len() <= EMBEDDED_BYTES_MAX => replies.bulk(b"embstr"),
        Some(_) => replies.bulk(b"raw"),
        None => replies.null(),
    }
}

/// `OBJECT REFCOUNT key`.
pub(super) fn refcount(command: Command<'_>, view: &mut View, replies: &mut Replies) {
    match view.get(command.argument(2)).map(|held| parse_integer(&held.value)) {
        Some(Some(0..SHARED_NUMBERS)) => replies.integer(SHARED_COUNT),
        Some(_) => replies.integer(1),
        None => replies.null(),
    }
}

/// `OBJECT IDLETIME key`: for how long nobody used a key, at least; 0 where no account is kept of that.
pub(super) fn idletime(command: Command<'_>, _: &mut Session, service: &Service, replies: &mut Replies) {
    match service.store.usage(command.argument(2)) {
        Some(_) if is_lfu(service) => replies.error(
            "ERR An LFU maxmemory policy is selected, idle time not tracked. Please note that when switching between \
             policies at runtime LRU and LFU data will take some time to adjust.",
        ),
        Some(usage) => replies.integer(usage.idle.as_secs() as i64),
        None => replies.null(),
    }
}

/// `OBJECT FREQ key`: 1 if a key was used since the store last looked whether to keep it, else 0.
pub(super) fn freq(command: Command<'_>, _: &mut Session, service: &Service, replies: &mut Replies) {
    match service.store.usage(command.argument(2)) {
        Some(usage) if is_lfu(service) => replies.integer(i64::from(usage.was_asked)),
        Some(_) => replies.error(
            "ERR An LFU maxmemory policy is not selected, access frequency not tracked. Please note that when switching \
             between policies at runtime LRU and LFU data will take some time to adjust.",
        ),
        None => replies.null(),
    }
}

fn is_lfu(service: &Service) -> bool {
    service.policy.word(service.store.when_full()).ends_with("-lfu")
}
