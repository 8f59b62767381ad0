//! Groups of commands that only read.
//!
//! Values in memory are answered from memory; device reads of a group are issued together.

use smallvec::SmallVec;

use super::*;
use crate::service::events::KeyspaceEvents;

/// Bytes of answers of a group of GETs. The first size that can be acquired without waiting is used.
const ROOMS: [usize; 2] = [64 << 10, 2 << 10];

/// Maximum number of GETs answered from memory in one step, in which the thread does nothing else.
const GETS_MAX: usize = 1024;

/// Bytes of an answer beside its value.
const REPLY_BYTES: usize = 32;

/// GET: values in memory are written straight to the answers; from the first value that is not, look-ups are made
/// together.
pub(super) async fn gets(
    verb: &'static Verb,
    batch: &mut Batch<'_>,
    session: &mut Session,
    service: &Service,
    replies: &mut Replies,
) {
    if session.remembers() {
        // Keys are remembered before they are read, so the keys must be known in advance.
        return mgets(batch, session, service, replies).await;
    }
    // Lengths are looked up only for values outside memory: that look-up costs as much as a look at the value.
    let Some(room) = ROOMS.into_iter().find(|room| session.try_hold_also(2 * room)) else {
        return mgets(batch, session, service, replies).await;
    };
    let (mut hits, end) = (0, replies.mark() + room.min(service.read_bytes_goal));
    let tells_misses = service.events.wanted().has(KeyspaceEvents::MISS);
    let (mut looked, mut missed) = (0, Vec::new());
    let keys = batch.admitted(session, service).take_while(|(_, verb)| verb.fast == Fast::Get).take(GETS_MAX);
    let keys = keys.map(|(command, _)| command.argument(1));
    let shown = session.store(service).peek_many_or_probe(keys, |view| {
        let bytes = view.map_or(0, |view| view.value.len());
        if replies.mark() + bytes + REPLY_BYTES > end {
            return false;
        }
        hits += u64::from(view.is_some());
        match view {
            Some(view) => replies.shown(&view),
            None => {
                missed.extend(tells_misses.then_some(looked));
                replies.null();
            }
        }
        looked += 1;
        true
    });
    for at in missed {
        service.events.missed(session.database(), batch.command(batch.next + at).argument(1));
    }
    match shown {
        Ok((0, probes)) => {
            let (verbs, keys, expected) = next_keys(batch, probes, session, service);
            if let Some(values) = read_values(&keys, expected, session, service, replies).await {
                answer_values(&verbs, &values, batch, session, service, replies);
            }
        }
        Ok((done, _)) => {
            session.tally.ended(verb.counted_row, done as u64);
            service.counters.lookups.count(session.database(), hits, done as u64 - hits);
            batch.next += done;
        }
        Err(error) => {
            replies.store_error(&error);
            session.tally.ended(verb.counted_row, 1);
            batch.next += 1;
        }
    }
}

/// MGET, and GETs that need a device: one look-up of many keys. A long MGET is looked up in parts.
pub(super) async fn mgets(
    batch: &mut Batch<'_>,
    session: &mut Session,
    service: &Service,
    replies: &mut Replies,
) {
    let (verbs, keys, expected) = next_keys(batch, Vec::new(), session, service);
    if let Some(values) = read_values(&keys, expected, session, service, replies).await {
        answer_values(&verbs, &values, batch, session, service, replies);
    }
}

/// Reads the values of keys, whose bytes are `expected`. Returns `None` if earlier answers have to be sent first.
async fn read_values(
    keys: &[Probe<'_>],
    expected: usize,
    session: &mut Session,
    service: &Service,
    replies: &Replies,
) -> Option<Vec<Result<Option<Bytes>, Error>>> {
    // Earlier answers have to be sent first, so that a client which does not take them is detected.
    if replies.unsent_bytes() > 0 && !session.try_hold_also(2 * expected) {
        return None;
    }
    // Every value exists twice for a moment: as read, and among the answers.
    let values = match session.hold_also(2 * expected).await {
        Ok(()) => {
            session.remember(keys.iter().map(Probe::key));
            let is_long = work::is_long(keys.len() + work::of_bytes(expected));
            beside(is_long, pin!(session.store(service).get_probed(keys))).await
        }
        Err(refused) => {
            let what = format!("cannot answer: {refused}");
            keys.iter().map(|_| Err(Error::Invalid { what: what.clone() })).collect()
        }
    };
    assert_eq!(values.len(), keys.len(), "the store answers every key once");
    Some(values)
}

/// Returns the next GETs and MGETs that are read together, their keys, and the bytes of their values. `probed`: probes
/// of the first of these keys.
fn next_keys<'b>(
    batch: &'b Batch<'_>,
    probed: Vec<Probe<'b>>,
    session: &Session,
    service: &Service,
) -> (SmallVec<[&'static Verb; 8]>, Vec<Probe<'b>>, usize) {
    let (store, mut probed) = (session.store(service), probed.into_iter());
    let (mut verbs, mut keys) = (SmallVec::new(), Vec::new());
    let mut skip = batch.answered;
    let mut expected = 0;
    'group: for (command, verb) in batch.admitted(session, service) {
        if !matches!(verb.fast, Fast::Get | Fast::Mget) || keys.len() >= session.read_width {
            break;
        }
        verbs.push(verb);
        for key in command.arguments(1 + skip) {
            let probe = probed.next().unwrap_or_else(|| store.probe(key));
            debug_assert_eq!(probe.key(), key, "probes are in the order of the commands");
            let hint = store.probed_bytes_hint(&probe);
            let fits = keys.len() < session.read_width && expected + hint <= service.read_bytes_goal;
            if !fits && !keys.is_empty() {
                break 'group;
            }
            expected += hint;
            keys.push(probe);
        }
        skip = 0;
    }
    (verbs, keys, expected)
}

/// Answers the commands whose keys were read; the last command may be answered in part.
fn answer_values(
    verbs: &[&'static Verb],
    values: &[Result<Option<Bytes>, Error>],
    batch: &mut Batch<'_>,
    session: &mut Session,
    service: &Service,
    replies: &mut Replies,
) {
    let (mut hits, mut bytes) = (0, 0);
    let (mut next, mut answered) = (batch.next, batch.answered);
    for value in values {
        let command = batch.command(next);
        let verb = verbs[next - batch.next];
        let wanted = command.len() - 1;
        if answered == 0 && verb.fast == Fast::Mget {
            replies.array(wanted);
        }
        match value {
            Ok(value) => {
                hits += u64::from(value.is_some());
                if value.is_none() {
                    service.events.missed(session.database(), command.argument(1 + answered));
                }
                bytes += value.as_ref().map_or(0, Bytes::len);
                replies.value_or_null(value.as_ref());
            }
            Err(error) => {
                replies.store_error(error);
                batch.failed = true;
            }
        }
        answered += 1;
        if answered == wanted {
            session.tally.ended(verb.counted_row, 1);
            if std::mem::take(&mut batch.failed) {
                service.counters.calls.failed(verb.counted_row, 1);
            }
            (next, answered) = (next + 1, 0);
        }
    }
    replies.take_errors();
    service.counters.lookups.count(session.database(), hits, values.len() as u64 - hits);
    if answered > 0 {
        // A partly answered command continues even if rights change.
        batch.let_in = Some((next, verbs[next - batch.next]));
    }
    (batch.next, batch.answered) = (next, answered);
    adapt(session, bytes, service);
}

/// Doubles the read width after few bytes, and halves it after many.
fn adapt(session: &mut Session, bytes: usize, service: &Service) {
    session.read_width = if bytes <= service.read_bytes_goal {
        (session.read_width * 2).min(READ_WIDTH_MAX)
    } else {
        (session.read_width / 2).max(1)
    };
}

/// Limit of the keys that EXISTS and TOUCH look at together.
const COUNT_WIDTH_MAX: usize = 128;

/// Bytes read of a record to compare its key, apart from the key: a block or two.
const BEGINNING_BYTES: usize = 8 << 10;

/// Returns the bytes for a look at a key that does not read its value.
fn beginning_bytes(key: &[u8], store: &Store) -> usize {
    store.read_bytes_hint(key).min(BEGINNING_BYTES + 2 * key.len())
}

/// EXISTS and TOUCH: a key counts as often as it is named.
pub(super) async fn counts(
    verb: &'static Verb,
    batch: &mut Batch<'_>,
    session: &mut Session,
    service: &Service,
    replies: &mut Replies,
) {
    session.tally.ended(verb.counted_row, 1);
    let command = batch.command(batch.next);
    let keys: Vec<&[u8]> = command.arguments(1).collect();
    let store = session.store(service);
    let (mut total, mut rest) = (Ok(0), &keys[..]);
    while !rest.is_empty() {
        let of_key = |key: &&[u8]| beginning_bytes(key, store);
        let (count, bytes) = together(rest, session.read_width.min(COUNT_WIDTH_MAX), of_key, service);
        let (keys, others) = rest.split_at(count);
        rest = others;
        if !hold_values(bytes, session, replies).await {
            batch.next += 1;
            return;
        }
        session.remember(keys.iter().copied());
        let found = join_all(keys.iter().map(|key| is_there(key, store))).await;
        let absent = keys.iter().zip(&found).filter(|(_, found)| matches!(found, Ok(false)));
        absent.for_each(|(key, _)| service.events.missed(session.database(), key));
        total =
            found.into_iter().fold(total, |total: Result<i64, Error>, found| Ok(total? + i64::from(found?)));
        turn::pause().await;
    }
    match total {
        Ok(total) => replies.integer(total),
        Err(error) => replies.store_error(&error),
    }
    batch.next += 1;
}

async fn is_there(key: &[u8], store: &Store) -> Result<bool, Error> {
    match store.peek(key, |_| ())? {
        Peek::Seen(()) => Ok(true),
        Peek::Absent => Ok(false),
        Peek::Unknown => store.contains(key).await,
    }
}

/// Other commands that only read. Commands that need no values form separate groups.
pub(super) async fn reads(
    first: &'static Verb,
    batch: &mut Batch<'_>,
    session: &mut Session,
    service: &Service,
    replies: &mut Replies,
) {
    let (store, database) = (session.store(service), session.database());
    let (mut group, mut keys, mut expected, mut us) = (Vec::new(), Vec::new(), 0, 0);
    for (command, verb) in batch.admitted(session, service) {
        let Run::Read(_) = verb.run else { break };
        let of_key = |index| match verb.fast {
            Fast::Facts => beginning_bytes(command.argument(index), store),
            _ => store.read_bytes_hint(command.argument(index)),
        };
        let mut hint: usize = verb.keys.of(command).map(of_key).sum();
        if let Some(needed) = verb.sizes.compared {
            hint += needed(of_key(1), of_key(2)) / 2;
        }
        let full = keys.len() >= session.read_width || expected + hint > service.read_bytes_goal;
        if verb.fast != first.fast || !group.is_empty() && full {
            break;
        }
        expected += hint;
        us += work::of_command(verb, command) + work::of_bytes(hint);
        keys.extend(verb.keys.of(command).map(|index| (database, command.shared(index))));
        group.push((command, verb));
    }
    if !hold_values(expected, session, replies).await {
        session.tally.ended(first.counted_row, 1);
        batch.next += 1;
        return;
    }
    let done = group.len();
    let looked = async {
        match first.fast {
            Fast::Facts => look_at_keys(&group, &keys, session, service, replies).await,
            _ => look(&group, &keys, session, service, replies).await,
        }
    };
    let looked = beside(work::is_long(us), pin!(looked)).await;
    match looked {
        Ok(bytes) => {
            group.iter().for_each(|(_, verb)| session.tally.ended(verb.counted_row, 1));
            adapt(session, bytes, service);
            batch.next += done;
        }
        Err(error) if done == 1 => {
            replies.store_error(&error);
            session.tally.ended(first.counted_row, 1);
            batch.next += 1;
        }
        // Commands run one by one after an error, so that only those with unreadable keys fail.
        Err(_) => session.read_width = 1,
    }
}

/// Runs commands on the entries of their keys, without writing. Returns the bytes of the values. After an error, the
/// commands have not answered.
pub(super) async fn look(
    group: &[OnView<'_>],
    keys: &[Place],
    session: &Session,
    service: &Service,
    replies: &mut Replies,
) -> Result<usize, Error> {
    let store = session.store(service);
    let entries = each(keys, session, |key| store.get_entry(key)).await?;
    let bytes = entries.iter().flatten().map(|entry| entry.value.len()).sum();
    answer(group, keys, entries, session, service, replies);
    Ok(bytes)
}

/// Like [`look`], for commands that need no values; no values are read.
async fn look_at_keys(
    group: &[OnView<'_>],
    keys: &[Place],
    session: &Session,
    service: &Service,
    replies: &mut Replies,
) -> Result<usize, Error> {
    let store = session.store(service);
    let entries = each(keys, session, |key| store.get_key(key)).await?;
    answer(group, keys, entries, session, service, replies);
    Ok(0)
}

/// Reads all keys concurrently.
async fn each<'k, T, R: Future<Output = Result<T, Error>>>(
    keys: &'k [Place],
    session: &Session,
    read: impl Fn(&'k Bytes) -> R,
) -> Result<Vec<T>, Error> {
    session.remember(keys.iter().map(|(_, key)| &key[..]));
    join_all(keys.iter().map(|(_, key)| read(key))).await.into_iter().collect()
}

fn answer(
    group: &[OnView<'_>],
    keys: &[Place],
    entries: Vec<Option<impl Into<Held>>>,
    session: &Session,
    service: &Service,
    replies: &mut Replies,
) {
    let (mut view, failed) =
        run_on_view(group, session.database(), keys, entries.into_iter(), service, replies);
    service.events.publish(view.take_events());
    count_failed(&failed, service);
}
