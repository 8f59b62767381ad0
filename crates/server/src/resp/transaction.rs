//! MULTI, EXEC, DISCARD, WATCH, UNWATCH.
//!
//! Commands are queued as copies. EXEC is one update of the store over the keys of all of them and the watched ones: the
//! commands run one after the other on one view, and what it holds at the end is written as one batch. See decision 0006.

use std::sync::atomic::Ordering;

use bytes::Bytes;
use esker_engine::{Batch, Entry, Error, WriteOptions};

use super::command::{Run, Verb, words};
use super::frame::{Command, Copied};
use super::reply::Replies;
use super::session::Session;
use super::view::View;
use crate::service::{Service, count, wall_clock_ms};

/// Commands that wait for EXEC.
#[derive(Default)]
pub(crate) struct Transaction {
    commands: Vec<(&'static Verb, Copied)>,
    bytes: usize,
    /// One of them was refused: EXEC is going to be refused too.
    spoiled: bool,
}

/// A key, and its version when it was looked at.
pub(crate) struct Watched {
    key: Bytes,
    version: Option<u64>,
}

/// What a queued command takes beside its arguments, about.
const COMMAND_BYTES: usize = 64;

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
    let bytes = transaction.bytes + command.bytes() + COMMAND_BYTES;
    if bytes > limits.command_bytes_max || transaction.commands.len() >= limits.arguments_max {
        transaction.spoiled = true;
        transaction.commands.clear();
        let (bytes, commands) = (limits.command_bytes_max, limits.arguments_max);
        return replies.error(&format!("ERR transaction of more than {bytes} bytes or {commands} commands"));
    }
    transaction.bytes = bytes;
    transaction.commands.push((verb, Copied::of(command)));
    session.client.note_queued(Some(transaction.commands.len()));
    replies.simple("QUEUED");
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
    session.watched.clear();
    session.client.note_queued(None);
    replies.simple("OK");
}

pub(super) fn unwatch(_: Command<'_>, session: &mut Session, _: &Service, replies: &mut Replies) {
    session.watched.clear();
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
    if session.watched.len() + command.len() > service.config.limits.arguments_max {
        return replies.error("ERR too many watched keys");
    }
    for key in command.arguments(1) {
        match service.store.get_entry(key).await {
            Ok(entry) => {
                let version = entry.map(|entry| entry.version);
                session.watched.push(Watched { key: Bytes::copy_from_slice(key), version });
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
    let watched = std::mem::take(&mut session.watched);
    if transaction.spoiled {
        return replies.error("EXECABORT Transaction discarded because of previous errors.");
    }
    let start = replies.mark();
    let durability = session.take_durability();
    if let Err(error) = run(&transaction, &watched, durability, session, service, replies).await {
        replies.cut(start);
        let mut text = Replies::text_of(&error);
        text.insert_str(0, "EXECABORT Transaction discarded because of: ");
        replies.error(&text);
    }
}

async fn run(
    transaction: &Transaction,
    watched: &[Watched],
    durability: Option<esker_engine::Durability>,
    session: &mut Session,
    service: &Service,
    replies: &mut Replies,
) -> Result<(), Error> {
    let mut keys: Vec<Bytes> = watched.iter().map(|watched| watched.key.clone()).collect();
    for (verb, copied) in &transaction.commands {
        keys.extend(verb.keys.of(copied.command()).map(|index| copied.command().shared(index)));
    }
    let options = WriteOptions { durability, ..WriteOptions::default() };
    let value_bytes_max = service.config.limits.bulk_bytes_max;
    let mut change = |entries: &[Option<Entry>]| {
        let version = |entry: &Option<Entry>| entry.as_ref().map(|entry| entry.version);
        if watched.iter().zip(entries).any(|(watched, entry)| watched.version != version(entry)) {
            replies.null_array();
            return (Batch::new(), ());
        }
        let entries = keys.iter().cloned().zip(entries.iter().cloned());
        let mut view = View::new(wall_clock_ms(), value_bytes_max, entries);
        replies.array(transaction.commands.len());
        for (verb, copied) in &transaction.commands {
            let command = copied.command();
            count(&service.counters.calls[verb.index()], 1);
            match verb.run {
                Run::Answer(answer) => answer(command, session, service, replies),
                Run::Read(on_keys) | Run::Update(on_keys) => on_keys(command, &mut view, replies),
                Run::Alone(_) => replies.error(words::NOT_IN_TRANSACTION),
            }
        }
        (view.into_batch(), ())
    };
    if keys.is_empty() {
        // Nothing of it is the store's.
        change(&[]);
        return Ok(());
    }
    service.store.update(&keys, options, change).await?;
    service.counters.transactions.fetch_add(1, Ordering::Relaxed);
    Ok(())
}
