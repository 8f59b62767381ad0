//! MULTI, EXEC, DISCARD, WATCH, UNWATCH.
//!
//! Commands are queued as copies. EXEC is one update of the store over the keys of all of them and the watched ones: the
//! commands run one after the other on one view, and what it holds at the end is written as one batch. See decision 0006.

use std::sync::atomic::Ordering;
use std::time::Instant;

use bytes::Bytes;
use esker_engine::{Batch, Entry, Error, WriteOptions};

use self::sizes::Wanted;
use super::calls::Tally;
use super::command::{self, Run, Verb, words};
use super::frame::{Command, Copied};
use super::reply::Replies;
use super::session::Session;
use super::view::View;
use crate::service::Service;

mod sizes;

/// Commands that wait for EXEC.
#[derive(Default)]
pub(crate) struct Transaction {
    commands: Vec<Queued>,
    bytes: usize,
    /// One of them was refused: EXEC is going to be refused too.
    spoiled: bool,
}

type Queued = (&'static Verb, Copied);

/// A key, and its version when it was looked at.
pub(crate) struct Watched {
    key: Bytes,
    version: Option<u64>,
}

impl Transaction {
    pub(super) fn held_bytes(&self) -> usize {
        self.bytes
    }
}

impl Watched {
    pub(super) fn held_bytes(&self) -> usize {
        2 * size_of::<Watched>() + self.key.len()
    }
}

/// What a queued command takes beside its arguments: its place in the queue, which doubles when it grows, and its copy.
const COMMAND_BYTES: usize = 192;

/// And for each argument.
const ARGUMENT_BYTES: usize = 8;

/// What EXEC takes for a key: its reservation, its entry, its place in the view and in the batch.
const KEY_BYTES: usize = 512;

/// Spoils the transaction that is being queued, if there is one: a command was refused.
pub(super) fn spoil(session: &mut Session) {
    if let Some(transaction) = &mut session.transaction {
        transaction.spoiled = true;
    }
}

/// Queues a command. The transaction as a whole is bounded as a single command is.
pub(super) fn queue(
    verb: &'static Verb,
    command: Command<'_>,
    session: &mut Session,
    service: &Service,
    replies: &mut Replies,
) {
    let limits = &service.config.limits;
    let Some(transaction) = &mut session.transaction else { return };
    if !verb.may_be_queued() {
        transaction.spoiled = true;
        return replies.error(words::NOT_IN_TRANSACTION);
    }
    let bytes = transaction.bytes + command.bytes() + command.len() * ARGUMENT_BYTES + COMMAND_BYTES;
    if bytes > limits.command_bytes_max || transaction.commands.len() >= limits.arguments_max {
        transaction.spoiled = true;
        transaction.commands = Vec::new();
        transaction.bytes = 0;
        let (bytes, commands) = (limits.command_bytes_max, limits.arguments_max);
        return replies.error(&format!("ERR transaction of more than {bytes} bytes or {commands} commands"));
    }
    transaction.bytes = bytes;
    transaction.commands.push((verb, Copied::of(command)));
    session.client.note_queued(Some(transaction.commands.len()));
    replies.simple("QUEUED");
}

/// Ends the transaction that is being queued, if there is one: its EXEC was refused.
pub(super) fn abort(session: &mut Session, why: &str, replies: &mut Replies) {
    session.transaction = None;
    session.unwatch();
    session.client.note_queued(None);
    let why = why.strip_prefix("ERR ").unwrap_or(why);
    replies.error(&format!("EXECABORT Transaction discarded because of: {why}"));
}

pub(super) fn multi(_: Command<'_>, session: &mut Session, _: &Service, replies: &mut Replies) {
    if session.transaction.is_some() {
        return replies.error("ERR MULTI calls can not be nested");
    }
    session.transaction = Some(Transaction::default());
    session.client.note_queued(Some(0));
    replies.simple("OK");
}

pub(super) fn discard(_: Command<'_>, session: &mut Session, _: &Service, replies: &mut Replies) {
    if session.transaction.take().is_none() {
        return replies.error("ERR DISCARD without MULTI");
    }
    session.unwatch();
    session.client.note_queued(None);
    replies.simple("OK");
}

pub(super) fn unwatch(_: Command<'_>, session: &mut Session, _: &Service, replies: &mut Replies) {
    session.unwatch();
    replies.simple("OK");
}

pub(super) async fn watch(
    command: Command<'_>,
    session: &mut Session,
    service: &Service,
    replies: &mut Replies,
) {
    if session.transaction.is_some() {
        return replies.error("ERR WATCH inside MULTI is not allowed");
    }
    if session.watched_len() + command.len() > service.config.limits.arguments_max {
        return replies.error("ERR too many watched keys");
    }
    for key in command.arguments(1) {
        if let Err(refused) = session.hold_also(service.store.read_bytes_hint(key)).await {
            return replies.error(&format!("ERR cannot watch: {refused}"));
        }
        match service.store.get_entry(key).await {
            Ok(entry) => {
                let version = entry.map(|entry| entry.version);
                session.watch(Watched { key: Bytes::copy_from_slice(key), version });
            }
            Err(error) => return replies.store_error(&error),
        }
    }
    replies.simple("OK");
}

pub(super) async fn exec(session: &mut Session, service: &Service, replies: &mut Replies) {
    let Some(transaction) = session.transaction.take() else {
        return replies.error("ERR EXEC without MULTI");
    };
    session.client.note_queued(None);
    let watched = session.unwatch();
    if transaction.spoiled {
        return replies.error("EXECABORT Transaction discarded because of previous errors.");
    }
    let wanted = sizes::of(&transaction.commands, &watched, service);
    let bytes = (wanted.keys.len() * KEY_BYTES).saturating_add(wanted.bytes);
    if let Err(refused) = session.hold_also(bytes).await {
        return replies.error(&format!("EXECABORT Transaction discarded because of: {refused}"));
    }
    let start = replies.mark();
    let durability = session.take_durability();
    if let Err(error) = run(&transaction, &watched, &wanted, durability, session, service, replies).await {
        replies.cut(start);
        let mut text = Replies::text_of(&error);
        text.insert_str(0, "EXECABORT Transaction discarded because of: ");
        replies.error(&text);
    }
}

async fn run(
    transaction: &Transaction,
    watched: &[Watched],
    wanted: &Wanted,
    durability: Option<esker_engine::Durability>,
    session: &mut Session,
    service: &Service,
    replies: &mut Replies,
) -> Result<(), Error> {
    let keys = &wanted.keys;
    let options = WriteOptions { durability, ..WriteOptions::default() };
    let value_bytes_max = service.config.limits.bulk_bytes_max;
    let mut change = |entries: &[Option<Entry>]| {
        let version = |entry: &Option<Entry>| entry.as_ref().map(|entry| entry.version);
        if watched.iter().zip(&wanted.watched).any(|(watched, &at)| watched.version != version(&entries[at]))
        {
            replies.null_array();
            return (Batch::new(), ());
        }
        let entries = keys.iter().cloned().zip(entries.iter().cloned());
        let mut view = View::new(service.store.now_ms(), value_bytes_max, entries);
        replies.array(transaction.commands.len());
        let (mut tally, began) = (Tally::default(), Instant::now());
        for (verb, copied) in &transaction.commands {
            let command = copied.command();
            tally.ended(verb, 1);
            session.uncommitted_keys = view.grown();
            match command::admit_again(verb, command, session) {
                Ok(()) => match verb.run {
                    Run::Answer(answer) | Run::Sampled(answer) => answer(command, session, service, replies),
                    Run::Read(on_keys) | Run::Update(on_keys) => on_keys(command, &mut view, replies),
                    Run::Alone(_) => replies.error(words::NOT_IN_TRANSACTION),
                },
                Err(denied) => replies.error(&denied),
            }
            if replies.take_errors() > 0 {
                service.counters.calls.failed(verb, 1);
            }
        }
        tally.settle(began.elapsed(), &service.counters.calls);
        session.uncommitted_keys = 0;
        (view.into_batch(), ())
    };
    if keys.is_empty() {
        // Nothing of it is the store's.
        change(&[]);
        return Ok(());
    }
    service.store.update(keys, options, change).await?;
    service.counters.transactions.fetch_add(1, Ordering::Relaxed);
    Ok(())
}
