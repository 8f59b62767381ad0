//! OBJECT: the answers that Redis would give about the representation of a value.

use esker_engine::{Error, Store, Usage};

use super::describe::help::help;
use crate::resp::session::Session;
use crate::resp::session::view::View;
use crate::resp::wire::commands::Command;
use crate::resp::wire::error_text::{self, is};
use crate::resp::wire::number::parse_integer;
use crate::resp::wire::reply::Replies;
use crate::service::Service;

/// Limit of the bytes of a value that Redis stores inside its object header.
const EMBEDDED_BYTES_MAX: usize = 44;

/// Numbers below this are shared objects in Redis, which reports the maximum count for them.
const SHARED_NUMBERS: i64 = 10_000;
const SHARED_COUNT: i64 = i32::MAX as i64;

/// Answers the subcommands without a key.
pub(super) fn object(command: Command<'_>, _: &mut Session, _: &Service, replies: &mut Replies) {
    match command.argument(1) {
        word if is(word, "help") => help("object", command, replies),
        _ => replies.error(&error_text::unknown_subcommand("OBJECT", command)),
    }
}

/// `OBJECT ENCODING key`: the encoding that Redis would choose for a value written by SET.
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

/// Answers from the usage of an existing key.
pub(in crate::resp) type OnUsage = fn(Usage, &Service, &mut Replies);

/// Answers IDLETIME or FREQ.
pub(in crate::resp) async fn tell_usage(
    answer: OnUsage,
    command: Command<'_>,
    session: &Session,
    service: &Service,
    replies: &mut Replies,
) {
    match usage_of(command.argument(2), session.store(service)).await {
        Ok(Some(usage)) => answer(usage, service, replies),
        Ok(None) => replies.null(),
        Err(error) => replies.store_error(&error),
    }
}

/// Returns the usage of a key. The index may confuse the key with another one, and does not know its expiry; so the
/// record is read, except for its value, which does not count as a use.
async fn usage_of(key: &[u8], store: &Store) -> Result<Option<Usage>, Error> {
    let Some(usage) = store.usage(key) else { return Ok(None) };
    Ok(store.get_key(key).await?.map(|_| usage))
}

/// `OBJECT IDLETIME key`: the minimum time since the last use; 0 if the store does not track it.
pub(super) fn idletime(usage: Usage, service: &Service, replies: &mut Replies) {
    if is_lfu(service) {
        return replies.error(
            "ERR An LFU maxmemory policy is selected, idle time not tracked. Please note that when switching between \
             policies at runtime LRU and LFU data will take some time to adjust.",
        );
    }
    replies.integer(usage.idle.as_secs() as i64);
}

/// `OBJECT FREQ key`: 1 if the key was used since the store last considered it for eviction, else 0.
pub(super) fn freq(usage: Usage, service: &Service, replies: &mut Replies) {
    if !is_lfu(service) {
        return replies.error(
            "ERR An LFU maxmemory policy is not selected, access frequency not tracked. Please note that when switching \
             between policies at runtime LRU and LFU data will take some time to adjust.",
        );
    }
    replies.integer(i64::from(usage.was_asked));
}

fn is_lfu(service: &Service) -> bool {
    service.policy.word(service.store.when_full()).ends_with("-lfu")
}
