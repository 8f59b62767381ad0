//! EVAL, EVALSHA and those of them that only read.
//!
//! 1. The script is run on the thread that serves its client, for no more than a millisecond and a little memory.
//! 2. If that is not enough, nothing of it stays, and the script is run again from its beginning: with the time and the memory
//!    that scripts may have, which it holds of the memory for clients, and beside the threads that serve clients.
//! 3. If it chooses a database, nothing of it stays either, and it is run again over its keys of that database too.

use std::sync::atomic::Ordering;

use esker_engine::{Batch, Entry, Error, WriteOptions};

use super::known::{UNKNOWN, Unknown, by_body, by_digest, digest_of};
use super::run::{Again, Call, Turn, long_bytes, run};
use crate::base::slice::aside;
use crate::resp::session::Session;
use crate::resp::session::view::{Place, View};
use crate::resp::verbs::Verb;
use crate::resp::wire::commands::Command;
use crate::resp::wire::number::parse_integer;
use crate::resp::wire::reply::Replies;
use crate::resp::wire::words;
use crate::service::Service;
use crate::service::channels::Outbox;

/// What a first attempt may write, and may answer, beside what it was given and what its keys hold.
const SHORT_BYTES: usize = 64 << 10;

/// What such a script holds of the memory for clients: its interpreter, strings that are made beside it, what it writes and
/// what it answers.
pub(in crate::resp) fn long_held_bytes(service: &Service) -> usize {
    long_bytes(service) / 2 * 5
}

/// What a first attempt may write and may answer, where its keys hold so many bytes.
pub(in crate::resp) fn short_bytes(command: Command<'_>, values: usize) -> usize {
    SHORT_BYTES.saturating_add(command.bytes()).saturating_add(values)
}

/// What a command wants to be run, or its answer.
pub(in crate::resp) fn call_of<'c>(
    verb: &Verb,
    command: Command<'c>,
    service: &Service,
) -> Result<Call<'c>, Vec<u8>> {
    let by_name = verb.name.starts_with("evalsha");
    if by_name && digest_of(command.argument(1)).is_none() {
        return Err(UNKNOWN.to_vec());
    }
    let keys = parse_integer(command.argument(2)).ok_or(words::NOT_AN_INTEGER.as_bytes())?;
    if keys > command.len() as i64 - 3 {
        return Err(b"ERR Number of keys can't be greater than number of args".to_vec());
    }
    let keys = usize::try_from(keys).map_err(|_| b"ERR Number of keys can't be negative".to_vec())?;
    let found = match by_name {
        true => by_digest(command.argument(1), service).map(|script| (script, true)),
        false => by_body(command.argument(1), service),
    };
    let (script, is_known) = found.map_err(|Unknown(why)| why)?;
    let is_read_only = verb.name.ends_with("_ro");
    Ok(Call { script, command, keys, is_read_only, is_new: !is_known })
}

/// See the module.
pub(in crate::resp) async fn eval(
    verb: &Verb,
    command: Command<'_>,
    session: &mut Session,
    service: &Service,
    replies: &mut Replies,
) {
    let call = match call_of(verb, command, service) {
        Ok(call) => call,
        Err(why) => return replies.error_bytes(&why),
    };
    let keys_of = |database| verb.keys.of(command).map(move |index| (database, command.shared(index)));
    let mut keys: Vec<Place> = keys_of(session.database()).collect();
    let options = session.write_options();
    let mut is_long = call.script.is_long.load(Ordering::Relaxed);
    loop {
        let values = keys.iter().map(|(database, key)| service.database(*database).read_bytes_hint(key));
        let values: usize = values.sum();
        let short = short_bytes(command, values);
        // What was read, what is written, and the answer.
        let held = if is_long { long_held_bytes(service) } else { 2 * short };
        if let Err(refused) = session.hold_also(values.saturating_add(held)).await {
            return replies.error(&format!("ERR cannot answer: {refused}"));
        }
        let running = if is_long { Some(service.scripts.long_turn().await) } else { None };
        let turn = || match &running {
            // 2.
            Some(running) => Turn::long(service, running.reins()),
            // 1.
            None => Turn::short(short),
        };
        match update(&call, &keys, options, turn, session, service, replies).await {
            Ok(Ok(())) => return,
            Ok(Err(Again::Longer)) => is_long = true,
            // 3.
            Ok(Err(Again::Elsewhere(database))) => keys.extend(keys_of(database)),
            Err(error) => return replies.store_error(&error),
        }
    }
}

/// Runs a script as one update over its keys. After an error it has not answered, nor where it is to be run again.
async fn update(
    call: &Call<'_>,
    keys: &[Place],
    options: WriteOptions,
    turn: impl Fn() -> Turn,
    session: &mut Session,
    service: &Service,
    replies: &mut Replies,
) -> Result<Result<(), Again>, Error> {
    let mark = replies.mark();
    session.outbox = Some(Outbox::default());
    let mut change = |entries: &[Option<Entry>]| {
        let entries: Vec<_> = keys.iter().cloned().zip(entries.iter().cloned()).collect();
        let bulk_bytes_max = service.config.limits.bulk_bytes_max;
        let mut view = View::new(service, bulk_bytes_max, session.database(), entries.into_iter());
        // Its time begins when it runs, not when it waits for its keys.
        let mut turn = turn();
        match aside(turn.is_short, || run(call, &mut turn, &mut view, session, service, replies)) {
            Ok(()) => (view.into_batch(), Ok(())),
            Err(again) => (Batch::new(), Err(again)),
        }
    };
    let outcome = match keys.is_empty() {
        true => Ok(change(&[]).1),
        false => service.store.update_across(keys, options, change).await,
    };
    let outbox = session.outbox.take().unwrap_or_default();
    match outcome {
        Ok(Ok(())) => service.channels.publish_all(outbox),
        Ok(Err(_)) => {}
        Err(_) => {
            replies.cut(mark);
            replies.take_errors();
        }
    }
    outcome
}
