//! Groups the commands of a pipeline that go to the store together.
//!
//! A batch runs as a sequence of groups. A group is a run of adjacent commands of one kind:
//!
//! - reads, whose look-ups are made together;
//! - plain SETs, which are appended together, in their order, and become durable together;
//! - updates, which run one after the other on one view and are written as one batch;
//! - scripts, which run like updates.
//!
//! Every group ends before the next begins, so that a read sees the writes before it. Answers are appended in the
//! order of the commands. All refusals happen here, command by command: the functions of `command` may rely on the
//! number of arguments and on the user's rights.

use std::pin::pin;
use std::time::Instant;

use bytes::Bytes;
use esker_engine::{Entry, Error, Peek, Probe, Store, WriteOptions};
use futures_util::future::join_all;

use self::bounds::{answer_within, bound, loads_script};
use super::command::admit::admit;
use super::command::databases::places;
use super::command::runs::{Alone, Run, run_of};
use super::command::script as script_command;
use super::command::set::SetOptions;
use super::command::{Answer, OnKeys, connection, databases, iterate, object, pubsub, users};
use super::script;
use super::session::view::{Held, Place, View};
use super::session::{Answers, Session, slow};
use super::verbs::{self, Fast, Verb};
use super::wire::commands::{Command, Commands};
use super::wire::reply::Replies;
use crate::base::turn::{self, beside};
use crate::service::{Service, sampling};

mod bounds;
mod monitor;
mod pause;
mod reads;
mod transaction;
pub(super) mod work;
mod writes;

/// Limit of the keys of a group of reads or updates.
const READ_WIDTH_MAX: usize = 256;

/// Limit of the scripts of a group.
const SCRIPTS_MAX: usize = 64;

/// Commands that were read together, and the progress of running them.
pub(super) struct Batch<'a> {
    commands: &'a Commands,
    data: Bytes,
    /// The next command to run.
    next: usize,
    /// Keys of the next command that are already answered. Only a long MGET is ever interrupted.
    answered: usize,
    /// True if one of those keys was answered with an error.
    failed: bool,
    /// The index of the command that was admitted last, and its verb.
    let_in: Option<(usize, &'static Verb)>,
}

impl<'a> Batch<'a> {
    pub(super) fn new(commands: &'a Commands, data: Bytes) -> Batch<'a> {
        Batch { commands, data, next: 0, answered: 0, failed: false, let_in: None }
    }

    pub(super) fn is_done(&self) -> bool {
        self.next == self.commands.len()
    }

    /// Returns the number of commands that have run.
    pub(super) fn position(&self) -> usize {
        self.next
    }

    fn command(&self, index: usize) -> Command<'_> {
        self.commands.get(index, &self.data)
    }

    /// Returns the admitted commands from `next` on, with their verbs, up to the first refused one. If the client
    /// does not want all answers, only the first is returned.
    fn admitted<'s>(&'s self, session: &Session) -> impl Iterator<Item = (Command<'s>, &'static Verb)> {
        let alone =
            session.answers != Answers::On || session.durability_next.is_some() || session.is_caching_given();
        let end = if alone { self.next + 1 } else { self.commands.len() };
        (self.next..end).map_while(|index| {
            let command = self.command(index);
            match self.let_in {
                Some((known, verb)) if known == index => Some((command, verb)),
                _ => admit(command, session).ok().map(|verb| (command, verb)),
            }
        })
    }
}

/// Runs the next group of a batch that is not done. `began`: the end of the previous group. Returns the end of this
/// group.
pub(super) async fn next(
    batch: &mut Batch<'_>,
    began: Instant,
    session: &mut Session,
    service: &Service,
    replies: &mut Replies,
) -> Instant {
    let first = batch.next;
    if session.answers == Answers::SkipNext {
        session.answers = Answers::Skip;
    }
    let (mark, answers) = (replies.mark(), session.answers);
    let admitted = match batch.let_in {
        // The rest of a command that is partly answered.
        Some((index, verb)) if index == first && batch.answered > 0 => Ok(verb),
        _ => admit(batch.command(first), session),
    };
    let verb = match admitted {
        Ok(verb) => verb,
        Err(error) => {
            let verb = verbs::find(batch.command(first));
            if let Some(verb) = verb {
                error.note(verb, session, service);
            }
            let error = error.text;
            if verb.is_some_and(|verb| matches!(run_of(verb), Run::Alone(Alone::Exec))) {
                let is_long = work::is_long_release(session);
                beside(is_long, pin!(async { transaction::abort(session, &error, replies) })).await;
            } else {
                session.spoil_transaction();
                replies.error(&error);
            }
            replies.take_errors();
            if let Some(verb) = verb {
                service.counters.calls.rejected(verb.index());
            }
            if let Some(tracking) = &mut session.tracking {
                // The command may have begun and waited for memory before it was refused.
                tracking.end_command();
            }
            batch.next += 1;
            session.spend_caching(verb);
            hush(answers, mark, true, session, replies);
            return began;
        }
    };
    if service.pauses.is_on() && pause::holds(verb, session, service) {
        // Earlier answers are sent first. The command is admitted again after the pause, because rights may have
        // changed.
        if replies.unsent_bytes() == 0 {
            pause::wait(verb, session, service).await;
        }
        return Instant::now();
    }
    batch.let_in = Some((first, verb));
    let is_queued = session.transaction.is_some() && !verb.ends_or_leaves_transaction();
    let is_monitored = !is_queued && service.channels.are_monitored();
    // Read before the command runs, which may select another.
    let database = session.database();
    if is_monitored && verb.name == "exec" {
        monitor::tell_queued(session, service);
    }
    if is_queued {
        let command = batch.command(first);
        let is_long = transaction::is_refused(command, session, service) && work::is_long_release(session);
        let queued = async { transaction::queue(verb, command, session, service, replies) };
        beside(is_long, pin!(queued)).await;
        if replies.take_errors() > 0 {
            service.counters.calls.rejected(verb.index());
        }
        batch.next += 1;
    } else {
        if let Some(tracking) = &mut session.tracking {
            tracking.begin_command();
        }
        group(verb, batch, session, service, replies).await;
        // An MGET may continue in the next group, also after answers of this one.
        if batch.answered == 0
            && let Some(tracking) = &mut session.tracking
        {
            tracking.end_command();
        }
        if batch.next > first {
            session.spend_caching(Some(verb));
        }
    }
    // The confirmation of a subscription, or of its end, does not count as an answer.
    let is_confirmed = !is_queued && pubsub::confirms(verb) && !replies.has_errors();
    let unwanted = if is_confirmed { replies.mark() } else { mark };
    hush(answers, unwanted, batch.next > first, session, replies);
    if is_monitored {
        let ran = (first..batch.next).map(|index| batch.command(index));
        monitor::tell_each(ran, database, session, service);
    }

    let now = Instant::now();
    let took = now - began;
    let ended = session.tally.settle(took, &service.counters.calls);
    // If commands of several verbs ran together, each has already taken its own errors.
    let errors = replies.take_errors();
    if errors > 0 {
        service.counters.calls.failed(verb.index(), errors.min(ended));
    }
    let took_us = took.as_micros() as u64;
    if service.slowlog.is_slow(took_us) {
        slow::note(batch.command(first), took_us, verb.has_secrets(), session, service);
    }
    session.client.note(verb.index(), now);
    now
}

/// Removes the answers for a client that does not want them, unless the command itself switched answers on.
fn hush(before: Answers, mark: usize, done: bool, session: &mut Session, replies: &mut Replies) {
    if before != Answers::On && session.answers != Answers::On {
        replies.cut(mark);
    }
    if done && session.answers == Answers::Skip {
        session.answers = Answers::On;
    }
}

async fn group(
    verb: &'static Verb,
    batch: &mut Batch<'_>,
    session: &mut Session,
    service: &Service,
    replies: &mut Replies,
) {
    match verb.fast {
        Fast::Get => return reads::gets(verb, batch, session, service, replies).await,
        Fast::Mget => return reads::mgets(batch, session, service, replies).await,
        Fast::Count => return reads::counts(verb, batch, session, service, replies).await,
        Fast::Set if writes::is_plain(batch.command(batch.next), verb, service) => {
            return writes::sets(verb, batch, session, service, replies).await;
        }
        Fast::Delete if batch.command(batch.next).len() > READ_WIDTH_MAX => {
            writes::long_delete(batch.command(batch.next), session, service, replies).await;
            session.tally.ended(verb.index(), 1);
            batch.next += 1;
            return;
        }
        Fast::No | Fast::Facts | Fast::Set | Fast::Delete => {}
    }
    let command = batch.command(batch.next);
    match run_of(verb) {
        Run::Answer(answer) => {
            if !answer_alone(verb, answer, command, session, service, replies).await {
                return;
            }
        }
        Run::Sampled(answer) => {
            sampling::refresh(service, |bytes| session.try_hold_also(bytes)).await;
            if !answer_alone(verb, answer, command, session, service, replies).await {
                return;
            }
        }
        Run::Load(_) if loads_script(command) => {
            let bound = bound(verb, command, session, service);
            match session.hold_at_least_also(bound.beside + replies.growth(bound.answer)).await {
                Ok(()) => script_command::load(command, session, service, replies).await,
                Err(refused) => replies.error(&format!("ERR cannot answer: {refused}")),
            }
        }
        Run::Load(answer) => {
            if !answer_alone(verb, answer, command, session, service, replies).await {
                return;
            }
        }
        Run::Usage(answer) => object::tell_usage(answer, command, session, service, replies).await,
        Run::Script => {
            let same = batch.admitted(session).take_while(|(_, other)| std::ptr::eq(*other, verb));
            let commands: Vec<_> = same.take(SCRIPTS_MAX).map(|(command, _)| command).collect();
            let us = commands.iter().map(|command| work::of_command(verb, *command)).sum();
            let eval = script::eval::eval(verb, commands.into_iter(), session, service, replies);
            let ran = beside(work::is_long(us), pin!(eval)).await;
            session.tally.ended(verb.index(), ran as u64);
            batch.next += ran;
            return;
        }
        Run::Alone(alone) => run_alone(alone, command, session, service, replies).await,
        Run::Read(_) => return reads::reads(verb, batch, session, service, replies).await,
        Run::Update(_) => return writes::updates(verb, batch, session, service, replies).await,
    }
    session.tally.ended(verb.index(), 1);
    batch.next += 1;
}

/// Answers a command that waits only for memory: for its answer and for temporary data. Returns false if too little
/// is left while earlier answers are unsent. Those have to be sent first, so that a client which does not take its
/// answers is detected, and holds no memory while it waits for more.
async fn answer_alone(
    verb: &'static Verb,
    answer: Answer,
    command: Command<'_>,
    session: &mut Session,
    service: &Service,
    replies: &mut Replies,
) -> bool {
    let bound = bound(verb, command, session, service);
    let bytes = bound.beside + replies.growth(bound.answer);
    if replies.unsent_bytes() > 0 && !session.try_hold_at_least_also(bytes) {
        return false;
    }
    match session.hold_at_least_also(bytes).await {
        Ok(()) => {
            let us = work::of_command(verb, command)
                + work::of_release(verb, session)
                + bound.answer / work::ANSWER_BYTES_A_US;
            let answered = async { answer_within(bound, answer, command, session, service, replies) };
            beside(work::is_long(us), pin!(answered)).await;
        }
        Err(refused) => replies.error(&format!("ERR cannot answer: {refused}")),
    }
    true
}

async fn run_alone(
    alone: Alone,
    command: Command<'_>,
    session: &mut Session,
    service: &Service,
    replies: &mut Replies,
) {
    match alone {
        Alone::Hello | Alone::Auth => {
            let wait = service.config.limits.login_wait;
            let done = match alone {
                Alone::Hello => connection::hello(command, session, &service.users, wait, replies).await,
                _ => connection::auth(command, session, &service.users, wait, replies).await,
            };
            if let Err(refusal) = done {
                connection::refuse_login(&refusal, command, session, service, replies);
            }
        }
        Alone::FlushAll => iterate::flush(command, true, session, service, replies).await,
        Alone::FlushOne => iterate::flush(command, false, session, service, replies).await,
        Alone::Swap => databases::swap(command, session, service, replies).await,
        Alone::Scan => iterate::scan(command, session, service, replies).await,
        Alone::Keys => iterate::keys(command, session, service, replies).await,
        Alone::RandomKey => iterate::random_key(session, service, replies).await,
        Alone::RemoveUsers => users::remove(command, session, service, replies),
        Alone::LoadUsers => users::load(session, service, replies).await,
        Alone::SaveUsers => users::save(session, service, replies).await,
        Alone::SetUser => users::set(command, session, service, replies).await,
        Alone::Wait => iterate::wait(command, service, replies).await,
        Alone::WaitAof => iterate::wait_aof(command, service, replies).await,
        Alone::Watch => transaction::watch(command, session, service, replies).await,
        Alone::Exec => {
            let is_long = work::is_long_release(session);
            beside(is_long, pin!(transaction::exec(session, service, replies))).await;
        }
    }
}

/// Acquires memory for values that are about to be read. Each value exists twice for a moment: as read, and as
/// answered or transformed. If too little is left, answers with an error and returns false.
async fn hold_values(bytes: usize, session: &mut Session, replies: &mut Replies) -> bool {
    match session.hold_also(2 * bytes).await {
        Ok(()) => true,
        Err(refused) => {
            replies.error(&format!("ERR cannot answer: {refused}"));
            false
        }
    }
}

/// Returns the number of leading keys that are looked up together, from one to `width`, and the bytes read for them,
/// `of_key` each.
fn together<K>(keys: &[K], width: usize, of_key: impl Fn(&K) -> usize, service: &Service) -> (usize, usize) {
    let mut bytes = 0;
    for (count, key) in keys.iter().enumerate() {
        let hint = of_key(key);
        if count == width || count > 0 && bytes + hint > service.read_bytes_goal {
            return (count, bytes);
        }
        bytes += hint;
    }
    (keys.len(), bytes)
}

/// A command, its verb, and the function that answers it.
type OnView<'a> = (Command<'a>, &'static Verb, OnKeys);

/// Verbs of commands that answered with an error.
type Failed = Vec<&'static Verb>;

/// Runs commands of one database on a view of the entries of their keys.
fn run_on_view(
    group: &[OnView<'_>],
    database: u8,
    keys: &[Place],
    entries: impl Iterator<Item = Option<impl Into<Held>>>,
    service: &Service,
    replies: &mut Replies,
) -> (View, Failed) {
    let entries: Vec<_> = keys.iter().cloned().zip(entries).collect();
    let limits = &service.config.limits;
    let mut view = View::new(service, limits.bulk_bytes_max, database, entries.into_iter());
    let mut failed = Failed::new();
    for (command, verb, on_keys) in group {
        on_keys(*command, &mut view, replies);
        if replies.take_errors() > 0 {
            failed.push(*verb);
        }
    }
    (view, failed)
}

fn count_failed(failed: &Failed, service: &Service) {
    failed.iter().for_each(|verb| service.counters.calls.failed(verb.index(), 1));
}
