//! Queued commands, EXEC, and WATCH.
//!
//! Commands are queued as copies. EXEC is one update of the store over the keys of all commands and the watched keys:
//! the commands run one after the other on one view, and its final state is written as one batch. See decision 0006.
//!
//! Commands that work on no key run after the update, unless it failed or a watched key had changed, and their answers
//! are put between the others'. Their answers do not depend on the view. There may be many of them, each of which takes
//! long: other clients must not wait for all of them together.

use std::pin::pin;

use bytes::Bytes;
use esker_engine::{Batch, Entry, Error, Store, WriteOptions};

use self::sizes::{Places, Wanted};
use super::answer::answer_within;
use super::work;
use crate::base::moment::Moment;
use crate::base::turn::{self, aside, beside};
use crate::resp::commands::admit::admit_again;
use crate::resp::commands::databases::selected;
use crate::resp::commands::durability;
use crate::resp::commands::object;
use crate::resp::script::eval::call_of;
use crate::resp::script::run::{Again, CLOSED, Turn, run as run_scripts};
use crate::resp::session::queue::{Queued, Watched};
use crate::resp::session::view::View;
use crate::resp::session::{Session, refused};
use crate::resp::verb::facts::{Databases, InMulti};
use crate::resp::verb::{Run, Verb};
use crate::resp::wire::commands::Command;
use crate::resp::wire::error_text;
use crate::resp::wire::reply::{Protocol, Replies};
use crate::service::Service;
use crate::service::calls::Tally;
use crate::service::channels::Outbox;
use crate::service::events::KeyspaceEvents;
use crate::service::scripts::Running;

mod sizes;

/// Bytes that EXEC takes for a key: its reservation, its entry, its place in the view and in the batch.
const KEY_BYTES: usize = 512;

/// Limit of the bytes that BITCOUNT and BITPOS of one transaction scan, in one step during which the thread serves no
/// other client.
const LOOKED_THROUGH_MAX: usize = 256 << 20;

/// Queues a command. The transaction as a whole has the limits of a single command.
pub(super) fn queue(
    verb: &'static Verb,
    command: Command<'_>,
    session: &mut Session,
    service: &Service,
    replies: &mut Replies,
) {
    let limits = &service.config.limits;
    let Some(transaction) = &mut session.transaction else { return };
    if verb.in_multi == InMulti::Refused {
        transaction.spoil();
        return replies.error(error_text::NOT_IN_TRANSACTION);
    }
    match transaction.push(verb, command, limits) {
        Ok(queued) => {
            if let Databases::Selected = verb.databases
                && let Ok(database) = selected(command, service.config.databases)
            {
                transaction.choose(database);
            }
            session.client.note_queued(Some(queued));
            replies.simple("QUEUED");
        }
        Err(error) => replies.error(&error),
    }
}

/// Returns true if a command does not fit into the transaction, which is then discarded.
pub(super) fn is_refused(command: Command<'_>, session: &Session, service: &Service) -> bool {
    session.transaction.as_ref().is_some_and(|queued| !queued.has_room(command, &service.config.limits))
}

/// Discards the transaction that is being queued, if any, because its EXEC was refused.
pub(super) fn abort(session: &mut Session) {
    session.transaction = None;
    session.unwatch();
    session.client.note_queued(None);
}

/// Answers an EXEC that was refused. Clients of a cluster look at the code of an error, so its errors stay as they are.
pub(super) fn tell_abort(why: &str, is_of_cluster: bool, replies: &mut Replies) {
    if is_of_cluster {
        return replies.error(why);
    }
    let why = why.strip_prefix("ERR ").unwrap_or(why);
    replies.error(&format!("EXECABORT Transaction discarded because of: {why}"));
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
        turn::pause().await;
        let store = session.store(service);
        if let Err(refused) = session.hold_also(store.read_bytes_hint(key)).await {
            return replies.error(&format!("ERR cannot watch: {refused}"));
        }
        let leader_changes = leader_changes(key, service);
        let watch = store.watch(key);
        match store.get_entry(key).await {
            Ok(entry) => {
                let (database, version) = (session.database(), entry.map(|entry| entry.version));
                let key = Bytes::copy_from_slice(key);
                session.watch(Watched { database, key, version, watch, leader_changes });
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
    if transaction.is_spoiled() {
        return replies.error("EXECABORT Transaction discarded because of previous errors.");
    }
    let start = replies.mark();
    if let Err(why) = run(transaction.commands(), &watched, session, service, replies).await {
        replies.cut(start);
        session.is_settled = true;
        match why {
            Undone::Refused(why) => {
                replies.error(&format!("EXECABORT Transaction discarded because of: {why}"));
            }
            Undone::Store(error) => tell_abort_by(&error, replies),
        }
    }
}

/// Answers an EXEC that the store refused.
fn tell_abort_by(error: &Error, replies: &mut Replies) {
    match error {
        Error::Cluster(_) => replies.store_error(error),
        _ => {
            let why = Replies::text_of(error);
            replies.error(&format!("EXECABORT Transaction discarded because of: {why}"));
        }
    }
}

/// The reason why a transaction did not run.
enum Undone {
    Refused(String),
    Store(Error),
}

impl From<String> for Undone {
    fn from(why: String) -> Undone {
        Undone::Refused(why)
    }
}

/// Returns the number of changes of the leadership of a key's group. 0 without a cluster.
fn leader_changes(key: &[u8], service: &Service) -> u64 {
    service.cluster.as_ref().map_or(0, |cluster| cluster.leader_changes(key))
}

/// The answers of the commands on keys.
struct Answered {
    replies: Replies,
    /// The end of each command's answer.
    ends: Vec<End>,
    /// True if the transaction changes the store.
    writes: bool,
}

struct End {
    mark: usize,
    /// For each database, net keys added since the transaction began.
    grown: [i64; Store::DATABASES as usize],
}

/// Returns the database of each command of a transaction: a SELECT inside it changes the database.
pub(super) fn databases_of(commands: &[Queued], session: &Session, service: &Service) -> Vec<u8> {
    let mut database = session.database();
    let of = |(verb, copied): &Queued| {
        let before = database;
        if matches!(verb.databases, Databases::Selected)
            && admit_again(verb, copied.command(), session, before).is_ok()
        {
            database = selected(copied.command(), service.config.databases).unwrap_or(before);
        }
        before
    };
    commands.iter().map(of).collect()
}

/// Returns the write options of a transaction: the strongest durability of its SETs, but no weaker than that of the
/// session.
fn options_of(commands: &[Queued], session: &mut Session, service: &Service) -> WriteOptions {
    let options = session.write_options();
    let asked = commands.iter().filter_map(|(verb, copied)| durability::own(copied.command(), verb));
    let durability = asked.fold(options.durability, |so_far, asked| {
        Some(durability::stronger(so_far.unwrap_or_else(|| service.store.durability()), asked))
    });
    WriteOptions { durability, ..options }
}

/// Runs a transaction. Memory for its answers is acquired first; an error means that nothing ran.
async fn run(
    commands: &[Queued],
    watched: &[Watched],
    session: &mut Session,
    service: &Service,
    replies: &mut Replies,
) -> Result<(), Undone> {
    let options = options_of(commands, session, service);
    let has_scripts = commands.iter().any(|(verb, _)| matches!(verb.run, Run::Script(_)));
    let databases = databases_of(commands, session, service);
    let (mut elsewhere, mut is_long, mut compared) = (Vec::new(), false, 0);
    loop {
        let running = if is_long { Some(service.scripts.long_turn().await) } else { None };
        let attempt = Attempt {
            commands,
            databases: &databases,
            elsewhere: &elsewhere,
            watched,
            options,
            running,
            compared,
        };
        let again = attempt_once(attempt, session, service, replies).await?;
        let Some(again) = again else { return Ok(()) };
        assert!(has_scripts, "only scripts are run again");
        match again {
            Again::Longer => is_long = true,
            Again::Elsewhere(database) => elsewhere.push(database),
            Again::Compared(bytes) => compared = bytes,
            Again::Never => return Err(CLOSED.to_owned().into()),
        }
    }
}

/// One attempt to run a transaction: on the serving thread, or, if its scripts took too long there, beside the
/// serving threads.
struct Attempt<'a> {
    commands: &'a [Queued],
    /// The database of each.
    databases: &'a [u8],
    /// Databases that scripts select.
    elsewhere: &'a [u8],
    watched: &'a [Watched],
    options: WriteOptions,
    /// The slot among the long-running scripts, if the attempt has one.
    running: Option<Running<'a>>,
    /// Bytes that an LCS needed in the previous attempt, if that attempt held fewer; otherwise 0.
    compared: usize,
}

/// Runs a transaction once. If it has to run again, this attempt wrote, published and answered nothing.
async fn attempt_once(
    attempt: Attempt<'_>,
    session: &mut Session,
    service: &Service,
    replies: &mut Replies,
) -> Result<Option<Again>, Undone> {
    let Attempt { commands, databases, elsewhere, watched, options, running, compared } = attempt;
    let named = sizes::places_bytes(commands, watched, 1 + elsewhere.len());
    session.hold_also(named).await.map_err(|refused| refused.to_string())?;
    let places = sizes::Places { commands, databases, elsewhere, watched };
    let wanted = sizes::of(places, running.is_some(), compared, session, service).await;
    let limit = service.config.limits.backlog_bytes_hard;
    if wanted.other_answers > limit {
        return Err(format!("its answers may take more than {limit} bytes (reply-queue-limit)").into());
    }
    if wanted.looked_through > LOOKED_THROUGH_MAX {
        let why = format!("its BITCOUNTs and BITPOSs go through more than {LOOKED_THROUGH_MAX} bytes");
        return Err(why.into());
    }
    let answers = wanted.answers.saturating_add(wanted.other_answers);
    let bytes = wanted.bytes.saturating_add(wanted.keys.len() * KEY_BYTES).saturating_add(wanted.answers);
    let bytes = bytes.saturating_add(replies.growth(answers)).saturating_add(told_bytes(commands, service));
    session.hold_also(bytes).await.map_err(|refused| refused.to_string())?;
    let most = wanted.answers.min(limit);
    let protocol = replies.protocol;
    session.outbox = Some(Outbox::default());
    let mut change = |entries: &[Option<Entry>]| {
        let mut turn = match &running {
            Some(running) => {
                turn::leave_place();
                Turn::long(service, running.reins())
            }
            None => Turn::short(wanted.of_scripts),
        };
        let is_caching = session.is_caching_given();
        let answered = aside(running.is_none(), || {
            answer_keys(places, &wanted, most, entries, &mut turn, session, service, protocol)
        });
        // Restored, because a CLIENT CACHING of the transaction takes effect again when it is answered.
        session.give_caching(is_caching);
        answered
    };
    let outcome = if wanted.keys.is_empty() {
        // Without keys, the store is not needed.
        change(&[]).1
    } else {
        let us =
            commands.iter().map(|(verb, copied)| work::of_command(verb, copied.command())).sum::<usize>();
        let us = us + wanted.keys.len() + work::of_bytes(bytes) + service.compression_us(bytes);
        let update = service.store.update_across(&wanted.keys, options, change);
        let outcome = beside(work::is_long(us), pin!(update)).await;
        if outcome.is_err() {
            session.outbox = None;
            refused::note_held(session, service);
        }
        outcome.map_err(Undone::Store)?
    };
    session.is_settled = matches!(&outcome, Outcome::Answered(answered) if answered.writes);
    match outcome {
        Outcome::Again(_) => session.denials.clear(),
        _ => refused::note_held(session, service),
    }
    let published = session.outbox.take().filter(|_| matches!(outcome, Outcome::Answered(_)));
    service.channels.publish_all(published.unwrap_or_default());
    match outcome {
        Outcome::Changed => replies.null_array(),
        Outcome::TooLong => {
            return Err(format!("its answers take more than {most} bytes (reply-queue-limit)").into());
        }
        Outcome::Again(again) => return Ok(Some(again)),
        Outcome::Answered(answered) => answer_others(commands, answered, session, service, replies).await,
    }
    Ok(None)
}

/// Bytes of an event beside its key, on both its channels.
const EVENT_BYTES: usize = 512;

/// Returns the bytes of the keyspace events that a transaction may cause.
fn told_bytes(commands: &[Queued], service: &Service) -> usize {
    if service.events.wanted() == KeyspaceEvents::default() {
        return 0;
    }
    let of = |(_, copied): &Queued| {
        let command = copied.command();
        // A command causes up to three events per key: missed or new, the change, and the expiry.
        6 * command.bytes() + 3 * command.len() * EVENT_BYTES
    };
    commands.iter().map(of).sum()
}

/// The outcome of a transaction on its keys.
enum Outcome {
    /// A watched key has changed.
    Changed,
    /// The answers exceeded their limit.
    TooLong,
    /// The scripts took too long for a first attempt, or selected a database.
    Again(Again),
    Answered(Answered),
}

/// Runs the commands that work on keys. Returns the batch to write, which is empty unless all commands could be
/// answered.
#[allow(clippy::too_many_arguments, reason = "it is the body of one function that must not wait")]
fn answer_keys(
    Places { commands, databases, watched, .. }: Places<'_>,
    wanted: &Wanted,
    most: usize,
    entries: &[Option<Entry>],
    turn: &mut Turn,
    session: &mut Session,
    service: &Service,
    protocol: Protocol,
) -> (Batch, Outcome) {
    // `was_written` also detects a key that was put and deleted again, and databases that were swapped and swapped back.
    // A write during WATCH's own read aborts this transaction as well, but never the next one.
    let has_changed = |(watched, &at): (&Watched, &usize)| {
        watched.watch.was_written()
            || watched.version != entries[at].as_ref().map(|entry| entry.version)
            || watched.leader_changes != leader_changes(&watched.key, service)
    };
    if watched.iter().zip(&wanted.watched).any(has_changed) {
        return (Batch::new(), Outcome::Changed);
    }
    let entries = wanted.keys.iter().cloned().zip(entries.iter().cloned());
    let mut view = View::new(service, service.config.limits.bulk_bytes_max, session.database(), entries);
    let (mut tally, began) = (Tally::default(), Moment::now());
    let mut replies = Replies::new();
    replies.protocol = protocol;
    replies.limit(most);
    let (mut ends, mut has_run_scripts) = (Vec::with_capacity(commands.len()), false);
    for ((verb, copied), &database) in commands.iter().zip(databases) {
        let command = copied.command();
        view.database = database;
        if verb.run.is_on_view() {
            tally.ended(verb.counted_row, 1);
            if has_run_scripts && let Some(needed) = verb.sizes.compared {
                let bytes = |at| view.value_bytes(database, command.argument(at)).unwrap_or(0);
                let needed = needed(bytes(1), bytes(2));
                if needed > wanted.compared {
                    return (Batch::new(), Outcome::Again(Again::Compared(needed)));
                }
            }
            match admit_again(verb, command, session, database) {
                Ok(()) => {
                    session.remember_read(verb, command);
                    verb.run_on(command, &mut view, &mut replies);
                }
                Err(denied) => replies.error(&denied),
            }
            if replies.take_errors() > 0 {
                tally.failed(verb.counted_row);
            }
        } else if let Run::Script(how) = verb.run {
            tally.ended(verb.counted_row, 1);
            has_run_scripts = true;
            match admit_again(verb, command, session, database).map(|()| call_of(how, command, None, service))
            {
                Ok(Ok(call)) => {
                    if let Err(again) = run_scripts(&[call], turn, &mut view, session, service, &mut replies)
                    {
                        return (Batch::new(), Outcome::Again(again));
                    }
                }
                Ok(Err(why)) => replies.error_bytes(&why),
                Err(denied) => replies.error(&denied),
            }
            if replies.take_errors() > 0 {
                tally.failed(verb.counted_row);
            }
        } else if let Some(follow) = verb.at_its_turn {
            follow(command, session);
        }
        if let Some(outbox) = &mut session.outbox {
            service.events.put(view.take_events(), outbox);
        }
        ends.push(End { mark: replies.mark(), grown: view.grown() });
    }
    tally.settle(began.elapsed(), &service.counters.calls);
    if replies.unlimit() {
        return (Batch::new(), Outcome::TooLong);
    }
    let writes = view.writes();
    (view.into_batch(), Outcome::Answered(Answered { replies, ends, writes }))
}

/// Appends all answers in the order of the commands: those on keys are already answered, the others run now.
async fn answer_others(
    commands: &[Queued],
    answered: Answered,
    session: &mut Session,
    service: &Service,
    replies: &mut Replies,
) {
    let Answered { replies: mut of_keys, ends, .. } = answered;
    let grown = ends.last().map(|end| end.grown).unwrap_or_default();
    let mut from = 0;
    replies.array(commands.len());
    for ((verb, copied), end) in commands.iter().zip(ends) {
        of_keys.move_to(replies, end.mark - from);
        from = end.mark;
        if !verb.run.is_without_view() {
            continue;
        }
        let (command, began) = (copied.command(), Moment::now());
        let database = session.database();
        session.uncommitted_keys = end.grown[usize::from(database)] - grown[usize::from(database)];
        match admit_again(verb, command, session, database) {
            Ok(()) => answer_other(verb, command, session, service, replies).await,
            Err(denied) => replies.error(&denied),
        }
        if replies.take_errors() > 0 {
            service.counters.calls.failed(verb.counted_row, 1);
        }
        let now = Moment::now();
        let mut tally = Tally::default();
        tally.ended(verb.counted_row, 1);
        tally.settle(now - began, &service.counters.calls);
        turn::pause_at(now).await;
    }
    session.uncommitted_keys = 0;
}

/// Answers a command that works on no key, or that only inspects a key from outside the view.
async fn answer_other(
    verb: &'static Verb,
    command: Command<'_>,
    session: &mut Session,
    service: &Service,
    replies: &mut Replies,
) {
    if verb.in_multi == InMulti::RefusedByExec {
        let name = verb.name.to_ascii_uppercase();
        return replies.error(&format!("ERR {name} isn't allowed for a DENY BLOCKING client"));
    }
    if let Run::Usage(answer) = verb.run {
        return object::tell_usage(answer, command, session, service, replies).await;
    }
    let bound = (verb.bound)(command, session, service);
    answer_within(bound, verb, command, session, service, replies).await;
}
