//! OBJECT: the answers that Redis would give about the representation of a value.

use esker_engine::{Error, Store, Usage};

use super::help;
use crate::auth::Needs;
use crate::resp::session::Session;
use crate::resp::session::view::View;
use crate::resp::verb::facts::{Group, Keys, access, flags, tips};
use crate::resp::verb::{OnUsage, Run, Verb};
use crate::resp::wire::commands::Command;
use crate::resp::wire::number::parse_integer;
use crate::resp::wire::reply::Replies;
use crate::service::Service;

const OBJECT: Verb = Verb { group: Group::Generic, ..Verb::DEFAULT };

/// The commands of this family.
#[rustfmt::skip]
pub(super) const COMMANDS: &[Verb] = &[
    Verb { name: "object", arity: -2, help: HELP, since: "2.2.3",
        summary: "Tells what Redis would of how it keeps a value.", ..OBJECT },
    Verb { name: "object|help", arity: 2, run: help::RUN, flags: flags::TELL, categories: &["keyspace"],
        bound: help::BOUND, since: "6.2.0", summary: "Lists the subcommands.", ..OBJECT },
    Verb { name: "object|encoding", arity: 3, run: Run::Read(encoding), keys: Keys::SECOND, access: &[access::LOOK],
        needs: Needs::Read, flags: flags::LONG_READ, categories: &["keyspace"], tips: &[tips::VARIES],
        is_counted: true, since: "2.2.3", summary: "Returns how a value is kept.", ..OBJECT },
    Verb { name: "object|freq", arity: 3, run: Run::Usage(freq), keys: Keys::SECOND, access: &[access::LOOK],
        needs: Needs::Read, flags: flags::LONG_READ, categories: &["keyspace"], tips: &[tips::VARIES],
        is_counted: true, since: "4.0.0", summary: "Returns how often a key is used.", ..OBJECT },
    Verb { name: "object|idletime", arity: 3, run: Run::Usage(idletime), keys: Keys::SECOND,
        access: &[access::LOOK], needs: Needs::Read, flags: flags::LONG_READ, categories: &["keyspace"],
        tips: &[tips::VARIES], is_counted: true, since: "2.2.3",
        summary: "Returns for how long a key was not used.", ..OBJECT },
    Verb { name: "object|refcount", arity: 3, run: Run::Read(refcount), keys: Keys::SECOND, access: &[access::LOOK],
        needs: Needs::Read, flags: flags::LONG_READ, categories: &["keyspace"], tips: &[tips::VARIES],
        is_counted: true, since: "2.2.3", summary: "Returns how often a value is referred to.", ..OBJECT },
];

const HELP: &str = "\
ENCODING <key>
    Return the kind of internal representation used in order to store the value
    associated with a <key>.
FREQ <key>
    Return the access frequency index of the <key>. The returned integer is
    proportional to the logarithm of the recent access frequency of the key.
IDLETIME <key>
    Return the idle time of the <key>, that is the approximated number of
    seconds elapsed since the last access to the key.
REFCOUNT <key>
    Return the number of references of the value associated with the specified
    <key>.";

/// Limit of the bytes of a value that Redis stores inside its object header.
const EMBEDDED_BYTES_MAX: usize = 44;

/// Numbers below this are shared objects in Redis, which reports the maximum count for them.
const SHARED_NUMBERS: i64 = 10_000;
const SHARED_COUNT: i64 = i32::MAX as i64;

/// `OBJECT ENCODING key`: the encoding that Redis would choose for a value written by SET.
fn encoding(command: Command<'_>, view: &mut View, replies: &mut Replies) {
    match view.get(command.argument(2)).map(|held| &held.value) {
        Some(value) if parse_integer(value).is_some() => replies.bulk(b"int"),
        Some(value) if value.len() <= EMBEDDED_BYTES_MAX => replies.bulk(b"embstr"),
        Some(_) => replies.bulk(b"raw"),
        None => replies.null(),
    }
}

/// `OBJECT REFCOUNT key`.
fn refcount(command: Command<'_>, view: &mut View, replies: &mut Replies) {
    match view.get(command.argument(2)).map(|held| parse_integer(&held.value)) {
        Some(Some(0..SHARED_NUMBERS)) => replies.integer(SHARED_COUNT),
        Some(_) => replies.integer(1),
        None => replies.null(),
    }
}

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
fn idletime(usage: Usage, service: &Service, replies: &mut Replies) {
    if is_lfu(service) {
        return replies.error(
            "ERR An LFU maxmemory policy is selected, idle time not tracked. Please note that when switching between \
             policies at runtime LRU and LFU data will take some time to adjust.",
        );
    }
    replies.integer(usage.idle.as_secs() as i64);
}

/// `OBJECT FREQ key`: 1 if the key was used since the store last considered it for eviction, else 0.
fn freq(usage: Usage, service: &Service, replies: &mut Replies) {
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
