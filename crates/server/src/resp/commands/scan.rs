//! Commands on all keys: SCAN, KEYS, RANDOMKEY, FLUSHALL, FLUSHDB, WAIT, WAITAOF.

use std::hash::{BuildHasher, RandomState};
use std::pin::pin;

use bytes::Bytes;
use esker_cluster::slots::slot_of;
use esker_engine::{Cursor, KeyEntry, KeyPage};

use crate::auth::Needs;
use crate::base::turn::{self, beside};
use crate::resp::session::Session;
use crate::resp::verb::facts::{Databases, Group, InMulti, flags, tips};
use crate::resp::verb::{Run, Verb};
use crate::resp::wire::commands::Command;
use crate::resp::wire::error_text::{self, is};
use crate::resp::wire::glob::Pattern;
use crate::resp::wire::number::parse_integer;
use crate::resp::wire::reply::Replies;
use crate::service::Service;
use crate::service::key_scans::{KeyScan, is_in_log_order};

const ON_ALL_KEYS: Verb = Verb {
    group: Group::Generic,
    needs: Needs::Read,
    flags: flags::LONG_READ,
    categories: &["keyspace"],
    databases: Databases::Current,
    in_multi: InMulti::Refused,
    ..Verb::DEFAULT
};

/// The commands of this family.
#[rustfmt::skip]
pub(super) const COMMANDS: &[Verb] = &[
    Verb { name: "keys", arity: 2,
        run: Run::Wait(|command, session, service, replies| Box::pin(keys(command, session, service, replies))),
        categories: &["keyspace", "dangerous"], tips: &[tips::EVERYWHERE, tips::ANY_ORDER], since: "1.0.0",
        summary: "Returns all keys that match a pattern.", ..ON_ALL_KEYS },
    Verb { name: "randomkey", arity: 1,
        run: Run::Wait(|_, session, service, replies| Box::pin(random_key(session, service, replies))),
        tips: &[tips::EVERYWHERE, tips::VARIES], since: "1.0.0", summary: "Returns some key.", ..ON_ALL_KEYS },
    Verb { name: "scan", arity: -2,
        run: Run::Wait(|command, session, service, replies| Box::pin(scan(command, session, service, replies))),
        tips: &[tips::VARIES, "request_policy:special"], options: |command| Wanted::parse(command).map(drop),
        since: "2.8.0", summary: "Iterates over the keys.", ..ON_ALL_KEYS },
];

/// Keys that a SCAN looks at without COUNT.
const COUNT_DEFAULT: usize = 10;

/// Limit of COUNT, because the keys of one step are in memory.
const COUNT_MAX: usize = 1000;

/// Number of keys above which KEYS is refused, because its reply is built in memory.
const KEYS_MAX: u64 = 1_000_000;

/// Keys per look-up in the store: some 200 us of work.
const PART_MAX: usize = 100;

/// Keys that a step in log order examines until COUNT keys were found, and limit of the bytes of the keys that it returns,
/// exceeded only by the last one, which is no longer than that either.
const EXAMINED_MAX: usize = 1000;
const LOG_STEP_BYTES: usize = 64 << 10;

/// Limit of the key bytes of one step of an iteration, exceeded only by a single long key; and bytes of a key's entry
/// beside the key.
const STEP_BYTES: usize = 1 << 20;
const ENTRY_BYTES: usize = 256;

/// `SCAN cursor [MATCH pattern] [COUNT count] [TYPE type]`.
pub(in crate::resp) async fn scan(
    command: Command<'_>,
    session: &mut Session,
    service: &Service,
    replies: &mut Replies,
) {
    let (cursor, wanted) = match Wanted::parse(command) {
        Ok(parsed) => parsed,
        Err(error) => return replies.error(&error),
    };
    let step = match log_scan(cursor, session, service) {
        Some(scan) => log_step(scan, wanted, session, service).await,
        None => {
            // A cursor in log order whose scan was dropped begins a scan in the order of the index.
            let at = if is_in_log_order(cursor) { Cursor::START } else { Cursor::from_u64(cursor) };
            index_step(at, wanted, session, service).await
        }
    };
    let Step { keys, next } = match step {
        Ok(step) => step,
        Err(error) => return replies.error(&error),
    };
    replies.array(2);
    replies.bulk(next.to_string().as_bytes());
    replies.array(keys.len());
    keys.iter().for_each(|key| replies.bulk(key));
}

/// The arguments of a SCAN.
struct Wanted {
    pattern: Option<Pattern>,
    count: usize,
    /// False if keys of another type are wanted, of which there are none.
    strings: bool,
}

impl Wanted {
    /// Parses the cursor and the options.
    fn parse(command: Command<'_>) -> Result<(u64, Wanted), String> {
        let cursor = parse_cursor(command.argument(1)).ok_or("ERR invalid cursor")?;
        let (mut pattern, mut count, mut strings) = (None, COUNT_DEFAULT, true);
        let mut arguments = command.arguments(2);
        while let Some(word) = arguments.next() {
            let value = arguments.next().ok_or(error_text::SYNTAX)?;
            match word {
                _ if is(word, "match") => pattern = Some(value),
                _ if is(word, "type") => strings = is(value, "string"),
                _ if is(word, "count") => match parse_integer(value) {
                    Some(wanted @ 1..) => count = usize::try_from(wanted).unwrap_or(COUNT_MAX).min(COUNT_MAX),
                    Some(_) => return Err(error_text::SYNTAX.to_owned()),
                    None => return Err(error_text::NOT_AN_INTEGER.to_owned()),
                },
                _ => return Err(error_text::SYNTAX.to_owned()),
            }
        }
        let pattern = pattern.map(Pattern::new).transpose()?;
        Ok((cursor, Wanted { pattern, count, strings }))
    }
}

/// The result of one step of a SCAN: keys, and the cursor of the next step.
struct Step {
    keys: Vec<Bytes>,
    next: u64,
}

async fn index_step(
    at: Cursor,
    wanted: Wanted,
    session: &mut Session,
    service: &Service,
) -> Result<Step, String> {
    let beside = wanted.pattern.as_ref().map_or(0, Pattern::held_bytes);
    let page = page(at, wanted.count, beside, session, service).await?;
    let mut keys: Vec<Bytes> = page.keys.into_iter().map(|entry| entry.key).collect();
    keys.retain(|key| wanted.strings && may_see(session, key) && is_here(key, service));
    if let Some(pattern) = wanted.pattern {
        keys = matching(&pattern, keys).await;
    }
    Ok(Step { keys, next: page.next.map_or(0, Cursor::to_u64) })
}

/// Returns the scan in log order that a cursor continues or begins, if there is one.
fn log_scan(cursor: u64, session: &Session, service: &Service) -> Option<KeyScan> {
    let store = session.store(service);
    let database = store.database_number();
    if cursor == 0 && !store.log_order_pays() {
        service.key_scans.make_room();
    }
    match cursor {
        0 if store.log_order_pays() => Some(KeyScan::new(database, store.stream_keys())),
        _ if is_in_log_order(cursor) => service.key_scans.take(cursor, database),
        _ => None,
    }
}

/// Makes a step in log order. Keys that do not match cost little there, so a step examines more than `count` of them.
async fn log_step(
    mut scan: KeyScan,
    wanted: Wanted,
    session: &mut Session,
    service: &Service,
) -> Result<Step, String> {
    let Wanted { pattern, count, strings } = wanted;
    let held = pattern.as_ref().map_or(0, Pattern::held_bytes);
    session
        .hold_also(2 * LOG_STEP_BYTES + count * ENTRY_BYTES + held)
        .await
        .map_err(|refused| format!("ERR cannot answer: {refused}"))?;
    let (mut keys, mut bytes) = (Vec::new(), 0);
    for examined in 0..count.max(EXAMINED_MAX) {
        if keys.len() >= count || bytes >= LOG_STEP_BYTES {
            break;
        }
        if examined % PART_MAX == 0 {
            turn::pause().await;
        }
        let Some(item) = scan.stream().next().await else { return Ok(Step { keys, next: 0 }) };
        let KeyEntry { key, .. } = item.map_err(|error| Replies::text_of(&error))?;
        let matches = match &pattern {
            Some(pattern) => pattern.matches_long(&key).await,
            None => true,
        };
        if matches && strings && may_see(session, &key) && is_here(&key, service) {
            bytes += key.len();
            keys.push(key);
        }
    }
    Ok(Step { keys, next: service.key_scans.keep(scan) })
}

/// Returns the keys that match.
async fn matching(pattern: &Pattern, mut keys: Vec<Bytes>) -> Vec<Bytes> {
    let mut found = 0;
    for at in 0..keys.len() {
        if pattern.matches_long(&keys[at]).await {
            keys.swap(found, at);
            found += 1;
        }
    }
    keys.truncate(found);
    keys
}

/// Parses a cursor as C parses an unsigned number: an empty text is zero, a negative number wraps around.
fn parse_cursor(text: &[u8]) -> Option<u64> {
    let (negative, digits) = match text {
        [] => return Some(0),
        [b'-', digits @ ..] => (true, digits),
        [b'+', digits @ ..] => (false, digits),
        digits => (false, digits),
    };
    if !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let cursor: u64 = std::str::from_utf8(digits).ok()?.parse().ok()?;
    Some(if negative { cursor.wrapping_neg() } else { cursor })
}

/// Returns one step of the iteration, with fewer than `most` keys if they are long. Acquires memory for it, and for
/// `beside` bytes more.
async fn page(
    at: Cursor,
    most: usize,
    beside: usize,
    session: &mut Session,
    service: &Service,
) -> Result<KeyPage, String> {
    let store = session.store(service);
    let wanted = service.step_of_keys(store, at, most, STEP_BYTES) + most * ENTRY_BYTES + beside;
    session.hold_also(wanted).await.map_err(|refused| format!("ERR cannot answer: {refused}"))?;
    let mut page = KeyPage { keys: Vec::new(), damaged: Vec::new(), next: None };
    let (mut bytes, mut looked) = (0, 0);
    let mut next = Some(at);
    while let Some(at) = next.filter(|_| looked < most && bytes < STEP_BYTES) {
        turn::pause().await;
        let count = PART_MAX.min(most - looked);
        let part = store.scan_keys(at, count, STEP_BYTES - bytes).await;
        let part = part.map_err(|error| Replies::text_of(&error))?;
        // A reply cannot report damage beside keys, and a partial list must not look complete.
        part.damaged.first().map_or(Ok(()), |error| Err(Replies::text_of(error)))?;
        bytes += part.keys.iter().map(|entry| entry.key.len()).sum::<usize>();
        // A part may contain no live keys.
        looked += part.keys.len().max(count);
        page.keys.extend(part.keys);
        next = part.next;
    }
    page.next = next;
    Ok(page)
}

/// Calls `each` with the keys of a slot until it returns false. All keys of the node are read for it.
pub(super) async fn in_slot(
    slot: u16,
    session: &mut Session,
    service: &Service,
    mut each: impl FnMut(Bytes) -> bool,
) -> Result<(), String> {
    if session.store(service).len() > KEYS_MAX {
        return Err(format!(
            "ERR the keys of a slot are not looked for among more than {KEYS_MAX} keys; use SCAN"
        ));
    }
    let mut cursor = Some(Cursor::START);
    while let Some(at) = cursor {
        let page = page(at, COUNT_MAX, COUNT_MAX * ENTRY_BYTES + STEP_BYTES, session, service).await?;
        for KeyEntry { key, .. } in page.keys {
            if slot_of(&key) == slot && may_see(session, &key) && !each(key) {
                return Ok(());
            }
        }
        cursor = page.next;
    }
    Ok(())
}

/// Returns true if the keys of a database that commands on all keys return include this one. In a cluster they are those of
/// the groups that this node leads, as in Redis Cluster.
fn is_here(key: &[u8], service: &Service) -> bool {
    service.cluster.as_ref().is_none_or(|cluster| cluster.leads(key))
}

/// Key names are shown only to users with read rights to the keys.
fn may_see(session: &Session, key: &[u8]) -> bool {
    session.user.as_ref().is_some_and(|user| user.may_read(key))
}

pub(in crate::resp) async fn keys(
    command: Command<'_>,
    session: &mut Session,
    service: &Service,
    replies: &mut Replies,
) {
    if session.store(service).len() > KEYS_MAX {
        return replies.error(&format!("ERR KEYS is refused with more than {KEYS_MAX} keys; use SCAN"));
    }
    let pattern = match Pattern::new(command.argument(1)) {
        Ok(pattern) => pattern,
        Err(error) => return replies.error(error),
    };
    let mut found = Found::default();
    let read = match session.store(service).log_order_pays() {
        true => keys_in_log_order(&pattern, &mut found, session, service).await,
        false => keys_in_index_order(&pattern, &mut found, session, service).await,
    };
    if let Err(error) = read {
        return replies.error(&error);
    }
    if let Err(refused) = session.hold_also(found.answered_bytes()).await {
        return replies.error(&format!("ERR cannot answer: {refused}"));
    }
    let is_long = found.spans.len() > PART_MAX;
    beside(is_long, pin!(async { found.answer(replies) })).await;
}

async fn keys_in_index_order(
    pattern: &Pattern,
    found: &mut Found,
    session: &mut Session,
    service: &Service,
) -> Result<(), String> {
    let mut cursor = Some(Cursor::START);
    while let Some(at) = cursor {
        let beside = found.answered_bytes() + pattern.held_bytes();
        let page = page(at, COUNT_MAX, beside, session, service).await?;
        let mut keys: Vec<Bytes> = page.keys.into_iter().map(|entry| entry.key).collect();
        keys.retain(|key| may_see(session, key) && is_here(key, service));
        matching(pattern, keys).await.iter().for_each(|key| found.push(key));
        cursor = page.next;
    }
    Ok(())
}

async fn keys_in_log_order(
    pattern: &Pattern,
    found: &mut Found,
    session: &mut Session,
    service: &Service,
) -> Result<(), String> {
    let mut stream = session.store(service).stream_keys();
    // More is held before as many keys as fit may have been found.
    let mut left = 0;
    while let Some(item) = stream.next().await {
        // A reply cannot report damage beside keys, and a partial list must not look complete.
        let KeyEntry { key, .. } = item.map_err(|error| Replies::text_of(&error))?;
        if left < key.len() + ENTRY_BYTES {
            turn::pause().await;
            left = LOG_STEP_BYTES + key.len();
            let wanted = found.answered_bytes() + pattern.held_bytes() + left;
            session.hold_also(wanted).await.map_err(|refused| format!("ERR cannot answer: {refused}"))?;
        }
        left -= ENTRY_BYTES;
        if may_see(session, &key) && is_here(&key, service) && pattern.matches_long(&key).await {
            left = left.saturating_sub(key.len());
            found.push(&key);
        }
    }
    Ok(())
}

/// Keys that matched, concatenated.
#[derive(Default)]
struct Found {
    bytes: Vec<u8>,
    spans: Vec<(usize, u32)>,
}

impl Found {
    fn push(&mut self, key: &[u8]) {
        self.spans.push((self.bytes.len(), key.len() as u32));
        self.bytes.extend_from_slice(key);
    }

    fn answer(self, replies: &mut Replies) {
        // A key that moved during the iteration may have been found twice.
        let Found { bytes, mut spans } = self;
        let key = |&(start, length): &(usize, u32)| &bytes[start..start + length as usize];
        spans.sort_unstable_by_key(key);
        spans.dedup_by(|a, b| key(a) == key(b));
        replies.array(spans.len());
        spans.iter().for_each(|span| replies.bulk(key(span)));
    }

    /// Returns the bytes of the keys and of their answer. Buffers double when they grow.
    fn answered_bytes(&self) -> usize {
        const HEAD_BYTES: usize = 16;
        let answer = self.bytes.len() + self.spans.len() * HEAD_BYTES;
        2 * (self.bytes.capacity() + self.spans.capacity() * size_of::<(usize, u32)>() + answer)
    }
}

pub(in crate::resp) async fn random_key(session: &mut Session, service: &Service, replies: &mut Replies) {
    match some_key(session, service).await {
        Ok(key) => replies.bulk_or_null(key.as_deref()),
        Err(error) => replies.error(&error),
    }
}

/// Limit of the keys that RANDOMKEY examines for one that the user may read.
const RANDOM_KEYS_MAX: usize = 10_000;

/// Returns a key near a random position of the iteration, else one after it, else one from the beginning. May return
/// `None` to a user with read rights to only few of many keys.
async fn some_key(session: &mut Session, service: &Service) -> Result<Option<Bytes>, String> {
    let random = || RandomState::new().hash_one(0);
    let places = [session.store(service).random_cursor(random()), Cursor::START];
    let (mut seen, mut count) = (0, COUNT_DEFAULT);
    for place in places {
        let mut cursor = Some(place);
        while let Some(at) = cursor {
            if seen >= RANDOM_KEYS_MAX {
                return Ok(None);
            }
            let page = page(at, count, 0, session, service).await?;
            // A page may contain no live keys.
            seen += page.keys.len().max(count);
            count = (2 * count).min(COUNT_MAX);
            let mut keys: Vec<_> = page.keys.into_iter().map(|entry| entry.key).collect();
            keys.retain(|key| may_see(session, key) && is_here(key, service));
            if !keys.is_empty() {
                let chosen = random() as usize % keys.len();
                return Ok(Some(keys.swap_remove(chosen)));
            }
            cursor = page.next;
        }
    }
    Ok(None)
}
