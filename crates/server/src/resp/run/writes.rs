//! Groups of commands that write.

use esker_engine::ErrorKind;
use smallvec::SmallVec;

use super::*;
use crate::resp::commands::databases::places;
use crate::resp::commands::durability;
use crate::resp::commands::keys;
use crate::resp::wire::error_text;
use crate::service::events::{Event, KeyspaceEvents};

/// Returns the options of a SET whose outcome does not depend on the stored entry, or `None` for other commands.
fn plain(command: Command<'_>, verb: &Verb, service: &Service) -> Option<SetOptions> {
    if verb.fast != Fast::Set {
        return None;
    }
    if command.len() == 3 {
        return Some(SetOptions::default());
    }
    let now_ms = service.store.now_ms();
    let options = SetOptions::parse_blind(command, now_ms)?;
    options.expires_at_ms.is_none_or(|at| now_ms < at).then_some(options)
}

/// Plain SETs. They are appended in their order, so that the last SET of a key wins. Returns false if the first command
/// is no plain SET, or if `new` events are wanted, which require a look-up of its key.
pub(super) async fn sets(
    verb: &'static Verb,
    batch: &mut Batch<'_>,
    session: &mut Session,
    service: &Service,
    replies: &mut Replies,
) -> bool {
    let wanted = service.events.wanted();
    if wanted.has(KeyspaceEvents::NEW) {
        return false;
    }
    let mut puts = SmallVec::<[_; 1]>::with_capacity((batch.commands.len() - batch.next).min(USUAL_SETS));
    let mut durability = None;
    for (command, verb) in batch.admitted(session, service) {
        let Some(options) = plain(command, verb, service) else { break };
        if !puts.is_empty() && options.durability != durability || puts.len() == SETS_MAX {
            break;
        }
        durability = options.durability;
        puts.push((command.shared(1), command.shared(2), options.expires_at_ms));
    }
    if puts.is_empty() {
        return false;
    }
    // The answers follow from the writes.
    session.is_settled = true;
    let (width, us) = (puts.len(), bytes_us(puts.iter().map(|(_, value, _)| value.len()).sum(), service));
    let options = session.write_options();
    let options = WriteOptions { durability: durability.or(options.durability), ..options };
    let store = session.store(service);
    let tells = wanted.has(KeyspaceEvents::STRING) || wanted.has(KeyspaceEvents::GENERIC);
    let expire: SmallVec<[bool; 1]> =
        puts.iter().take_while(|_| tells).map(|(.., expires_at_ms)| expires_at_ms.is_some()).collect();
    let mut answer = |at: usize, written: Result<u64, Error>| match written {
        Ok(_) => {
            if let Some(&expires) = expire.get(at) {
                tell_set(session.database(), batch.command(batch.next + at), expires, service);
            }
            replies.ok();
        }
        Err(error) => replies.store_error(&error),
    };
    if width > 1 {
        let written = pin!(store.put_many_with(puts.into_vec(), options));
        let written = beside(work::is_long(width + us), written).await;
        assert_eq!(written.len(), width, "the store answers every put once");
        written.into_iter().enumerate().for_each(|(at, written)| answer(at, written));
    } else if let Some((key, value, expires_at_ms)) = puts.pop() {
        // The usual case, one SET, needs no lists.
        let written = pin!(store.put_with(key, value, WriteOptions { expires_at_ms, ..options }));
        answer(0, beside(work::is_long(us), written).await);
    }
    session.tally.ended(verb.counted_row, width as u64);
    batch.next += width;
    true
}

/// Returns the microseconds that a put of values of `bytes` takes.
fn bytes_us(bytes: usize, service: &Service) -> usize {
    // Below this size the time is negligible, and the compression is not consulted.
    if bytes < 256 { 0 } else { work::of_bytes(bytes) + service.compression_us(bytes) }
}

/// Publishes the keyspace events of a plain SET.
fn tell_set(database: u8, command: Command<'_>, expires: bool, service: &Service) {
    let event = |class, name| Event { database, class, name, key: command.shared(1) };
    let expire = expires.then(|| event(KeyspaceEvents::GENERIC, "expire"));
    service.events.publish([event(KeyspaceEvents::STRING, "set")].into_iter().chain(expire));
}

/// Limit of the SETs of a group.
const SETS_MAX: usize = 1024;
/// Initial capacity for the SETs of a group.
const USUAL_SETS: usize = 32;

/// Limit of the argument bytes of a group of several updates, which is one batch of the store.
const UPDATE_BYTES_MAX: usize = 1 << 20;

/// Commands whose writes depend on stored entries. If the store refuses the batch of several commands, they run one
/// by one, so that only the commands at fault fail. If it may have been written nevertheless, none runs again.
pub(super) async fn updates(
    first: &'static Verb,
    batch: &mut Batch<'_>,
    session: &mut Session,
    service: &Service,
    replies: &mut Replies,
) {
    let (mut group, mut keys, mut bytes, mut expected, mut us) = (Vec::new(), Vec::new(), 0, 0, 0);
    let (database, databases) = (session.database(), service.databases().len());
    let (mut acknowledged, mut of_group) = (None, None);
    for (command, verb) in batch.admitted(session, service) {
        let Run::Update(_) = verb.run else { break };
        let own = durability::own(command, verb);
        let long = matches!(verb.fast, Fast::Delete) && command.len() > READ_WIDTH_MAX;
        let places = places(verb, command, database, databases);
        let of_key = |(database, index)| service.database(database).read_bytes_hint(command.argument(index));
        let made = (verb.sizes.made)(command, service.config.limits.bulk_bytes_max);
        let hint = places.clone().map(of_key).sum::<usize>() + made;
        let full = keys.len() >= session.read_width
            || bytes + command.bytes() > UPDATE_BYTES_MAX
            || expected + hint > service.read_bytes_goal;
        // The updates of a group of the store run as one batch, which belongs to one group of a cluster.
        let group_of_cluster = slots::group_of(verb, command, session, service);
        let is_of_another = group_of_cluster != of_group;
        if !group.is_empty() && (full || long || own.is_some() || acknowledged.is_some() || is_of_another) {
            break;
        }
        of_group = group_of_cluster;
        bytes += command.bytes();
        expected += hint;
        us += work::of_command(verb, command);
        acknowledged = own;
        keys.extend(places.map(|(database, index)| (database, command.shared(index))));
        group.push((command, verb));
    }
    let done = group.len();
    if !hold_values(expected, session, replies).await {
        session.tally.ended(first.counted_row, 1);
        batch.next += 1;
        return;
    }
    group.iter().for_each(|(_, verb)| session.tally.ended(verb.counted_row, 1));
    let options = session.write_options();
    let options = WriteOptions { durability: acknowledged.or(options.durability), ..options };
    let is_long = work::is_long(us + bytes_us(bytes + expected, service));
    let updated = beside(is_long, pin!(update(&group, &keys, options, session, service, replies))).await;
    session.is_settled = !matches!(updated, Ok(false));
    if let Err(error) = updated {
        if let [one] = *group {
            session.is_settled = !refuse(&[one], &keys, (error, options), session, service, replies).await;
        } else if matches!(error.kind(), ErrorKind::Uncertain) {
            // They may have written: a second run could do that twice.
            for (_, verb) in &group {
                replies.store_error(&error);
                let errors = replies.take_errors();
                service.counters.calls.failed(verb.counted_row, errors);
            }
        } else {
            for one in group {
                let (command, verb) = one;
                let places = places(verb, command, database, databases);
                let keys: Vec<_> =
                    places.map(|(database, index)| (database, command.shared(index))).collect();
                let one = [one];
                let updated = update(&one, &keys, options, session, service, replies);
                let updated = beside(is_long, pin!(updated)).await;
                session.is_settled &= !matches!(updated, Ok(false));
                if let Err(error) = updated {
                    let has_read = refuse(&one, &keys, (error, options), session, service, replies).await;
                    session.is_settled &= !has_read;
                    let errors = replies.take_errors();
                    service.counters.calls.failed(verb.counted_row, errors);
                }
            }
        }
    }
    batch.next += done;
}

/// Runs commands as one update. Returns false if they wrote nothing. After an error, the commands have not answered.
async fn update(
    group: &[OnView<'_>],
    keys: &[Place],
    options: WriteOptions,
    session: &Session,
    service: &Service,
    replies: &mut Replies,
) -> Result<bool, Error> {
    let mark = replies.mark();
    let change = |entries: &[Option<Entry>]| {
        // PFCOUNT counts as reading, though it may write. No other client writes these keys before the update is
        // visible.
        group.iter().for_each(|(command, verb)| session.remember_read(verb, *command));
        let (mut view, failed) =
            run_on_view(group, session.database(), keys, entries.iter().cloned(), service, replies);
        let (events, writes) = (view.take_events(), view.writes());
        (view.into_batch(), (failed, events, writes))
    };
    match service.store.update_across(keys, options, change).await {
        Ok((failed, events, writes)) => {
            count_failed(&failed, service);
            service.events.publish(events);
            Ok(writes)
        }
        Err(error) => {
            replies.cut(mark);
            Err(error)
        }
    }
}

/// Answers a command whose update the store refused: with the error, or, if the command would only have written data
/// cached for later reads, from the stored entries. Returns true if it answered from a read.
async fn refuse(
    one: &[OnView<'_>; 1],
    keys: &[Place],
    (error, options): (Error, WriteOptions),
    session: &Session,
    service: &Service,
    replies: &mut Replies,
) -> bool {
    let [(_, verb)] = one;
    let is_delete = matches!(verb.fast, Fast::Delete);
    if is_delete && is_unreadable(&error) {
        match delete_each(keys.iter().cloned(), options, service).await {
            Ok(deleted) => replies.integer(deleted as i64),
            Err(error) => replies.store_error(&error),
        }
        return true;
    }
    let looked = match verb.only_reads() {
        true => reads::look(one, keys, session, service, replies).await.map(drop),
        false => Err(error),
    };
    if let Err(error) = &looked {
        replies.store_error(error);
    }
    looked.is_ok()
}

/// Returns true if a record cannot be read but can be deleted: it is damaged, or this build lacks the codec of its value.
fn is_unreadable(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Corrupt | ErrorKind::Unsupported)
}

/// Deletes keys one by one, because some are damaged and an update would have to read them. Returns the number of
/// keys that existed.
async fn delete_each(
    keys: impl Iterator<Item = Place>,
    options: WriteOptions,
    service: &Service,
) -> Result<usize, Error> {
    let (mut deleted, class) = (0, KeyspaceEvents::GENERIC);
    for (database, key) in keys {
        if service.database(database).delete_with(key.clone(), options).await? {
            deleted += 1;
            if service.events.wanted().has(class) {
                service.events.publish([Event { database, class, name: "del", key }]);
            }
        }
    }
    Ok(deleted)
}

/// Limit of the keys that a DEL of very many keys deletes together.
const DELETE_WIDTH_MAX: usize = 128;

/// A DEL of very many keys, which deletes some at a time: their values would not all fit in memory.
pub(super) async fn long_delete(
    command: Command<'_>,
    session: &mut Session,
    service: &Service,
    replies: &mut Replies,
) {
    let options = session.write_options();
    let (store, database) = (session.store(service), session.database());
    let named: Vec<Bytes> = (1..command.len()).map(|index| command.shared(index)).collect();
    let (mut deleted, mut rest) = (0, &named[..]);
    while !rest.is_empty() {
        turn::pause().await;
        let (count, bytes) = together(
            rest,
            session.read_width.min(DELETE_WIDTH_MAX),
            |key| store.read_bytes_hint(key),
            service,
        );
        let (some, others) = rest.split_at(count);
        rest = others;
        if !hold_values(bytes, session, replies).await {
            return;
        }
        let change = |entries: &[Option<Entry>]| {
            let places = some.iter().map(|key| (database, key.clone()));
            let entries: Vec<_> = places.zip(entries.iter().cloned()).collect();
            let mut view = View::new(service, usize::MAX, database, entries.into_iter());
            let gone = some.iter().filter(|key| keys::delete_one(key, &mut view)).count();
            let events = view.take_events();
            (view.into_batch(), (gone, events))
        };
        match store.update(some, options, change).await {
            Ok((gone, events)) => {
                deleted += gone;
                service.events.publish(events);
            }
            Err(error) if is_unreadable(&error) => {
                let places = some.iter().map(|key| (database, key.clone()));
                match delete_each(places, options, service).await {
                    Ok(gone) => deleted += gone,
                    Err(error) => return replies.store_error(&error),
                }
            }
            Err(Error::Cluster(error)) => {
                session.is_settled = true;
                return replies.error(&match deleted {
                    0 => error_text::of_cluster(&error),
                    _ => error_text::uncertain(&error),
                });
            }
            Err(error) => return replies.store_error(&error),
        }
    }
    replies.integer(deleted as i64);
}

#[cfg(test)]
mod tests {
    use crate::Limits;
    use crate::resp::commands::TABLE;
    use crate::resp::wire::commands::Commands;
    use crate::resp::wire::frame::Parser;

    #[test]
    fn commands_report_bytes_made_of_their_arguments() {
        for (line, made) in [
            ("APPEND k 12345", 5),
            ("SETRANGE k 0 12345", 5),
            ("SETRANGE k 20 12345", 25),
            ("SETRANGE k 2000 12345", 1000),
            ("SETRANGE k -1 12345", 0),
            ("SETBIT k 80 1", 11),
            ("INCR k", 0),
        ] {
            let mut input = bytes::BytesMut::from(format!("{line}\r\n").as_bytes());
            let (mut parser, mut commands) = (Parser::new(&Limits::default()), Commands::default());
            parser.parse(&mut input, &mut commands, usize::MAX).1.unwrap();
            let data = input.freeze();
            let command = commands.get(0, &data);
            assert_eq!((TABLE.find(command).unwrap().sizes.made)(command, 1000), made, "{line}");
        }
    }
}
