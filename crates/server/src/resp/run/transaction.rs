//! Commands that wait for EXEC, EXEC itself, and WATCH.
//!
//! Commands are queued as copies. EXEC is one update of the store over the keys of all of them and the watched ones: the
//! commands run one after the other on one view, and what it holds at the end is written as one batch. See decision 0006.
//!
//! Commands that work on no key run after that, if anything was written, and their answers are put between the others'. What
//! they tell does not depend on the view, and there may be very many that take long: nobody is to wait for all of them.

use std::pin::pin;
use std::sync::atomic::Ordering;
use std::time::Instant;

use bytes::Bytes;
use esker_engine::{Batch, Entry, Store, WriteOptions};

use self::sizes::{Places, Wanted};
use super::bounds::{answer_within, bound, loads_script};
use super::work;
use crate::base::turn::{self, aside, beside};
use crate::resp::command::admit::admit_again;
use crate::resp::command::databases::selected;
use crate::resp::command::durability;
use crate::resp::command::runs::{Run, run_of};
use crate::resp::command::{lcs, object, pubsub, script, tracking};
use crate::resp::script::eval::call_of;
use crate::resp::script::run::{Again, CLOSED, Turn, run as run_scripts};
use crate::resp::session::Session;
use crate::resp::session::queue::{Queued, Watched};
use crate::resp::session::view::View;
use crate::resp::verbs::Verb;
use crate::resp::wire::commands::Command;
use crate::resp::wire::reply::{Protocol, Replies};
use crate::resp::wire::words;
use crate::service::Service;
use crate::service::calls::Tally;
use crate::service::channels::Outbox;
use crate::service::events::KeyspaceEvents;
use crate::service::scripts::Running;

mod sizes;

/// What EXEC takes for a key: its reservation, its entry, its place in the view and in the batch.
const KEY_BYTES: usize = 512;

/// Bytes that BITCOUNT and BITPOS of a transaction may go through, in one step in which its thread does nothing else.
const LOOKED_THROUGH_MAX: usize = 256 << 20;

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
    // Who would keep keys from the middle of a transaction on would not hear of those that it has read by then.
    let is_of_tracking = tracking::is_tracking(verb, command);
    if matches!(run_of(verb), Run::Alone(_)) || verb.name == "shutdown" || is_of_tracking {
        transaction.spoil();
        return replies.error(words::NOT_IN_TRANSACTION);
    }
    match transaction.push(verb, command, limits) {
        Ok(queued) => {
            if verb.name == "select"
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

/// Returns true if a command does not fit into the transaction, which then frees what it has.
pub(super) fn is_refused(command: Command<'_>, session: &Session, service: &Service) -> bool {
    session.transaction.as_ref().is_some_and(|queued| !queued.has_room(command, &service.config.limits))
}

/// Ends the transaction that is being queued, if there is one: its EXEC was refused.
pub(super) fn abort(session: &mut Session, why: &str, replies: &mut Replies) {
    session.transaction = None;
    session.unwatch();
    session.client.note_queued(None);
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
        let watch = store.watch(key);
        match store.get_entry(key).await {
            Ok(entry) => {
                let (database, version) = (session.database(), entry.map(|entry| entry.version));
                session.watch(Watched { database, key: Bytes::copy_from_slice(key), version, watch });
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
        replies.error(&format!("EXECABORT Transaction discarded because of: {why}"));
    }
}

/// What commands on keys answered.
struct Answered {
    replies: Replies,
    /// For each command, where its answer ends.
    ends: Vec<End>,
}

struct End {
    mark: usize,
    /// How many more keys there are in each database than before the transaction.
    grown: [i64; Store::DATABASES as usize],
}

/// Which database each command of a transaction is about: it may choose others in the middle.
pub(super) fn databases_of(commands: &[Queued], session: &Session, service: &Service) -> Vec<u8> {
    let mut database = session.database();
    let of = |(verb, copied): &Queued| {
        let before = database;
        if verb.name == "select" && admit_again(verb, copied.command(), session, before).is_ok() {
            database = selected(copied.command(), service.config.databases).unwrap_or(before);
        }
        before
    };
    commands.iter().map(of).collect()
}

/// How a transaction is acknowledged: as the strongest of its SETs asks, and no weaker than without them.
fn options_of(commands: &[Queued], session: &mut Session, service: &Service) -> WriteOptions {
    let options = session.write_options();
    let asked = commands.iter().filter_map(|(verb, copied)| durability::own(copied.command(), verb));
    let durability = asked.fold(options.durability, |so_far, asked| {
        Some(durability::stronger(so_far.unwrap_or_else(|| service.store.durability()), asked))
    });
    WriteOptions { durability, ..options }
}

/// Memory is taken for what may be answered before anything runs, or why nothing does.
async fn run(
    commands: &[Queued],
    watched: &[Watched],
    session: &mut Session,
    service: &Service,
    replies: &mut Replies,
) -> Result<(), String> {
    let options = options_of(commands, session, service);
    let has_scripts = commands.iter().any(|(verb, _)| matches!(run_of(verb), Run::Script));
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
            Again::Never => return Err(CLOSED.to_owned()),
        }
    }
}

/// A transaction that is to be run: as it is, or, where its scripts took too long for that, beside the threads that serve
/// clients.
struct Attempt<'a> {
    commands: &'a [Queued],
    /// The database of each.
    databases: &'a [u8],
    /// Databases that scripts choose.
    elsewhere: &'a [u8],
    watched: &'a [Watched],
    options: WriteOptions,
    /// The place among those that run for long.
    running: Option<Running<'a>>,
    /// Bytes that an LCS needed in the attempt before, if the attempt held fewer; otherwise 0.
    compared: usize,
}

/// Runs a transaction. Nothing of it has happened where it is to be run again.
async fn attempt_once(
    attempt: Attempt<'_>,
    session: &mut Session,
    service: &Service,
    replies: &mut Replies,
) -> Result<Option<Again>, String> {
    let Attempt { commands, databases, elsewhere, watched, options, running, compared } = attempt;
    let named = sizes::places_bytes(commands, watched, 1 + elsewhere.len());
    session.hold_also(named).await.map_err(|refused| refused.to_string())?;
    let places = sizes::Places { commands, databases, elsewhere, watched };
    let wanted = sizes::of(places, running.is_some(), compared, session, service).await;
    let limit = service.config.limits.backlog_bytes_hard;
    if wanted.other_answers > limit {
        return Err(format!("its answers may take more than {limit} bytes (reply-queue-limit)"));
    }
    if wanted.looked_through > LOOKED_THROUGH_MAX {
        return Err(format!("its BITCOUNTs and BITPOSs go through more than {LOOKED_THROUGH_MAX} bytes"));
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
        // What the transaction says of it is said once more when it is answered.
        session.give_caching(is_caching);
        answered
    };
    let outcome = if wanted.keys.is_empty() {
        // Nothing of it is the store's.
        change(&[]).1
    } else {
        let us =
            commands.iter().map(|(verb, copied)| work::of_command(verb, copied.command())).sum::<usize>();
        let us = us + wanted.keys.len() + work::of_bytes(bytes) + service.compression_us(bytes);
        let update = service.store.update_across(&wanted.keys, options, change);
        let outcome = beside(work::is_long(us), pin!(update)).await;
        service.counters.transactions.fetch_add(u64::from(outcome.is_ok()), Ordering::Relaxed);
        if outcome.is_err() {
            session.outbox = None;
        }
        outcome.map_err(|error| Replies::text_of(&error))?
    };
    let published = session.outbox.take().filter(|_| matches!(outcome, Outcome::Answered(_)));
    service.channels.publish_all(published.unwrap_or_default());
    match outcome {
        Outcome::Changed => replies.null_array(),
        Outcome::TooLong => {
            return Err(format!("its answers take more than {most} bytes (reply-queue-limit)"));
        }
        Outcome::Again(again) => return Ok(Some(again)),
        Outcome::Answered(answered) => answer_others(commands, answered, session, service, replies).await,
    }
    Ok(None)
}

/// What an event takes beside its key, on both its channels.
const EVENT_BYTES: usize = 512;

/// What is told of keys when a transaction has run.
fn told_bytes(commands: &[Queued], service: &Service) -> usize {
    if service.events.wanted() == KeyspaceEvents::default() {
        return 0;
    }
    let of = |(_, copied): &Queued| {
        let command = copied.command();
        // A command tells of a key up to three times: that it is missed or new, what was done, and when it expires.
        6 * command.bytes() + 3 * command.len() * EVENT_BYTES
    };
    commands.iter().map(of).sum()
}

/// What became of a transaction on its keys.
enum Outcome {
    /// A watched key is not what it was.
    Changed,
    /// There was no room for all answers.
    TooLong,
    /// Its scripts took too long for a first attempt, or chose a database.
    Again(Again),
    Answered(Answered),
}

/// Runs the commands that work on keys, and says what they write: nothing, unless all of them could be answered.
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
    // It may have come and gone; or databases were swapped, and swapped back. Who puts it just while it is being looked at for the
    // first time ends the transaction too, and never the next one.
    let has_changed = |(watched, &at): (&Watched, &usize)| {
        watched.watch.was_put() || watched.version != entries[at].as_ref().map(|entry| entry.version)
    };
    if watched.iter().zip(&wanted.watched).any(has_changed) {
        return (Batch::new(), Outcome::Changed);
    }
    let entries = wanted.keys.iter().cloned().zip(entries.iter().cloned());
    let mut view = View::new(service, service.config.limits.bulk_bytes_max, session.database(), entries);
    let (mut tally, began) = (Tally::default(), Instant::now());
    let mut replies = Replies::new();
    replies.protocol = protocol;
    replies.limit(most);
    let (mut ends, mut has_run_scripts) = (Vec::with_capacity(commands.len()), false);
    for ((verb, copied), &database) in commands.iter().zip(databases) {
        let command = copied.command();
        view.database = database;
        if let Run::Read(on_keys) | Run::Update(on_keys) = run_of(verb) {
            tally.ended(verb.index(), 1);
            if has_run_scripts && verb.name == "lcs" {
                let needed = lcs::bytes_on(command, &view);
                if needed > wanted.compared {
                    return (Batch::new(), Outcome::Again(Again::Compared(needed)));
                }
            }
            match admit_again(verb, command, session, database) {
                Ok(()) => {
                    remember(verb, command, session);
                    on_keys(command, &mut view, &mut replies);
                }
                Err(denied) => replies.error(&denied),
            }
            if replies.take_errors() > 0 {
                service.counters.calls.failed(verb.index(), 1);
            }
        } else if let Run::Script = run_of(verb) {
            tally.ended(verb.index(), 1);
            has_run_scripts = true;
            match admit_again(verb, command, session, database)
                .map(|()| call_of(verb, command, None, service))
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
                service.counters.calls.failed(verb.index(), 1);
            }
        } else {
            tracking::follow(verb, command, session);
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
    (view.into_batch(), Outcome::Answered(Answered { replies, ends }))
}

/// A command reads its keys, which nobody else writes until the transaction is seen.
fn remember(verb: &Verb, command: Command<'_>, session: &Session) {
    if verb.flags.contains(&"readonly") {
        session.remember(verb.keys.of(command).map(|index| command.argument(index)));
    }
}

/// Answers in the order of the commands: those on keys were answered, the others run now.
async fn answer_others(
    commands: &[Queued],
    answered: Answered,
    session: &mut Session,
    service: &Service,
    replies: &mut Replies,
) {
    let Answered { replies: mut of_keys, ends } = answered;
    let grown = ends.last().map_or([0; _], |end| end.grown);
    let mut from = 0;
    replies.array(commands.len());
    for ((verb, copied), end) in commands.iter().zip(ends) {
        of_keys.move_to(replies, end.mark - from);
        from = end.mark;
        let run = run_of(verb);
        if !matches!(run, Run::Answer(_) | Run::Sampled(_) | Run::Usage(_) | Run::Load(_)) {
            continue;
        }
        let (command, began) = (copied.command(), Instant::now());
        let database = session.database();
        session.uncommitted_keys = end.grown[usize::from(database)] - grown[usize::from(database)];
        match admit_again(verb, command, session, database) {
            Ok(()) => answer_now(verb, run, command, session, service, replies).await,
            Err(denied) => replies.error(&denied),
        }
        if replies.take_errors() > 0 {
            service.counters.calls.failed(verb.index(), 1);
        }
        let now = Instant::now();
        let mut tally = Tally::default();
        tally.ended(verb.index(), 1);
        tally.settle(now - began, &service.counters.calls);
        turn::pause_at(now).await;
    }
    session.uncommitted_keys = 0;
}

/// Answers a command that works on no key, or looks at one from outside.
async fn answer_now(
    verb: &Verb,
    run: Run,
    command: Command<'_>,
    session: &mut Session,
    service: &Service,
    replies: &mut Replies,
) {
    match run {
        Run::Answer(_) if pubsub::is_refused_in_transaction(verb) => {
            let name = verb.name.to_ascii_uppercase();
            replies.error(&format!("ERR {name} isn't allowed for a DENY BLOCKING client"));
        }
        Run::Answer(answer) | Run::Sampled(answer) => {
            let bound = bound(verb, command, session, service);
            let us = work::of_command(verb, command) + bound.answer / work::ANSWER_BYTES_A_US;
            let answered = async { answer_within(bound, answer, command, session, service, replies) };
            beside(work::is_long(us), pin!(answered)).await;
        }
        Run::Load(_) if loads_script(command) => script::load(command, session, service, replies).await,
        Run::Load(answer) => {
            let bound = bound(verb, command, session, service);
            answer_within(bound, answer, command, session, service, replies);
        }
        Run::Usage(answer) => object::tell_usage(answer, command, session, service, replies).await,
        Run::Read(_) | Run::Update(_) | Run::Script | Run::Alone(_) => {}
    }
}
