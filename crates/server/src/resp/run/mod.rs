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
use std::time::Duration;

use bytes::Bytes;
use esker_engine::{Entry, Error, Peek, Probe, Store, WriteOptions};
use futures_util::future::join_all;

use self::answer::{Mute, answer_alone};
pub(super) use self::batch::Batch;
use self::monitor::Shown;
use super::commands::admit::NotAdmitted;
use super::commands::set::SetOptions;
use super::commands::{connection, object, slots};
use super::script;
use super::session::view::{Held, Place, View};
use super::session::{Session, slow};
use super::verb::facts::{Fast, InMulti};
use super::verb::{Run, Verb};
use super::wire::commands::Command;
use super::wire::reply::Replies;
use crate::base::moment::Moment;
use crate::base::turn::{self, beside};
use crate::service::traces::{Protocol, Request};
use crate::service::{Service, sampling};

mod answer;
mod batch;
mod confirm;
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

/// Runs the next group of a batch that is not done. `began`: the end of the previous group. Returns the end of this
/// group.
///
/// 1. The next command is admitted, or refused.
/// 2. A pause is waited for.
/// 3. The command is queued in a transaction, or the group that begins with it runs. In a cluster, the reads of the group are
///    then confirmed.
/// 4. Answers that the client does not want are removed, and monitors are notified.
/// 5. Calls, errors and times are counted.
pub(super) async fn next(
    batch: &mut Batch<'_>,
    began: Moment,
    session: &mut Session,
    service: &Service,
    replies: &mut Replies,
) -> Moment {
    let first = batch.next;
    let mute = Mute::begin(session, replies);
    let verb = match batch.admit_next(session, service) {
        Ok(verb) => verb,
        Err(refusal) => {
            refuse(refusal, session, service, replies).await;
            batch.next += 1;
            mute.end(true, session, replies);
            return began;
        }
    };
    if pause::waited(verb, session, service, replies).await {
        return Moment::now();
    }
    batch.let_in = Some((first, verb));
    let mut begun = Begun { at: began, errors_ever: replies.errors_ever(), confirmed: None };
    let is_queued = session.transaction.is_some() && verb.in_multi != InMulti::Runs;
    let shown = Shown::begin(is_queued, verb, session, service);
    if is_queued {
        queue(verb, batch, session, service, replies).await;
    } else if let Some(cluster) = &service.cluster {
        let check = confirm::Check::begin(cluster, verb, batch, session, replies);
        run(verb, batch, session, service, replies).await;
        let ran = service.traces.as_ref().map(|_| Moment::now());
        if check.end(batch, session, service, replies).await {
            begun.confirmed = ran.map(Moment::elapsed);
        }
    } else {
        run(verb, batch, session, service, replies).await;
    }
    // The confirmation of a subscription, or of its end, does not count as an answer.
    let is_confirmed = !is_queued && verb.subscribes && !replies.has_errors();
    let mute = if is_confirmed { mute.from(replies.mark()) } else { mute };
    mute.end(batch.next > first, session, replies);
    shown.end((first..batch.next).map(|index| batch.command(index)), session, service);
    count(verb, batch.command(first), &begun, session, service, replies)
}

/// Answers a command that may not run. A transaction that is being queued fails with it.
async fn refuse(refusal: NotAdmitted, session: &mut Session, service: &Service, replies: &mut Replies) {
    refusal.note(session, service);
    let NotAdmitted { verb, text, is_of_cluster, .. } = refusal;
    if verb.is_some_and(|verb| matches!(verb.run, Run::Exec)) {
        let is_long = work::is_long_release(session);
        let aborted = async {
            transaction::abort(session);
            transaction::tell_abort(&text, is_of_cluster, replies);
        };
        beside(is_long, pin!(aborted)).await;
    } else {
        session.spoil_transaction();
        replies.error(&text);
    }
    replies.take_errors();
    if let Some(verb) = verb {
        service.counters.calls.rejected(verb.counted_row);
    }
    if let Some(tracking) = &mut session.tracking {
        // The command may have begun and waited for memory before it was refused.
        tracking.end_command();
    }
    session.spend_caching(verb);
}

/// Queues the next command in the transaction.
async fn queue(
    verb: &'static Verb,
    batch: &mut Batch<'_>,
    session: &mut Session,
    service: &Service,
    replies: &mut Replies,
) {
    let command = batch.command(batch.next);
    let is_long = transaction::is_refused(command, session, service) && work::is_long_release(session);
    let queued = async { transaction::queue(verb, command, session, service, replies) };
    beside(is_long, pin!(queued)).await;
    if replies.take_errors() > 0 {
        service.counters.calls.rejected(verb.counted_row);
    }
    batch.next += 1;
}

/// Runs the next group. Invalidations that are redirected are held back meanwhile.
async fn run(
    verb: &'static Verb,
    batch: &mut Batch<'_>,
    session: &mut Session,
    service: &Service,
    replies: &mut Replies,
) {
    let first = batch.next;
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

/// State at the beginning of a group.
struct Begun {
    at: Moment,
    /// Errors answered so far on the connection.
    errors_ever: u64,
    /// Time of the confirmation by the cluster, once it ran, if the server has traces.
    confirmed: Option<Duration>,
}

/// Counts the calls, errors and times of a group that began with `command`. Notes it in the slow log and for the traces.
/// Returns the end of the group.
fn count(
    verb: &Verb,
    command: Command<'_>,
    begun: &Begun,
    session: &mut Session,
    service: &Service,
    replies: &mut Replies,
) -> Moment {
    let now = Moment::now();
    let took = now - begun.at;
    let ended = session.tally.settle(took, &service.counters.calls);
    // If several commands ran together, each has already taken its own errors.
    let errors = replies.take_errors();
    if errors > 0 {
        service.counters.calls.failed(verb.counted_row, errors.min(ended));
    }
    let took_us = took.as_micros() as u64;
    if service.slowlog.is_slow(took_us) {
        slow::note(command, took_us, verb.has_secrets, session, service);
    }
    if let Some(traces) = service.traces.as_ref().filter(|traces| traces.is_slow(took)) {
        let errors = replies.errors_ever() - begun.errors_ever;
        let protocol = Protocol::Resp { commands: ended, errors, confirmed: begun.confirmed };
        let (name, database, peer) = (verb.name, session.database(), &session.peer);
        traces.note(Request { name, protocol, database, peer, parent: None }, took);
    }
    session.client.note(verb.counted_row, now);
    now
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
        Fast::Set => {
            if writes::sets(verb, batch, session, service, replies).await {
                return;
            }
        }
        Fast::Delete if batch.command(batch.next).len() > READ_WIDTH_MAX => {
            writes::long_delete(batch.command(batch.next), session, service, replies).await;
            session.tally.ended(verb.counted_row, 1);
            batch.next += 1;
            return;
        }
        Fast::No | Fast::Facts | Fast::Delete => {}
    }
    let command = batch.command(batch.next);
    match verb.run {
        Run::Subcommand => {}
        Run::Session(_) | Run::Answer(_) | Run::Refuse(_) | Run::WaitBounded(_) => {
            if !answer_alone(verb, command, session, service, replies).await {
                return;
            }
        }
        Run::Sampled(_) => {
            sampling::refresh(service, |bytes| session.try_hold_also(bytes)).await;
            if !answer_alone(verb, command, session, service, replies).await {
                return;
            }
        }
        Run::Usage(answer) => object::tell_usage(answer, command, session, service, replies).await,
        Run::Script(_) => {
            let of_group = slots::group_of(verb, command, session, service);
            let same = batch.admitted(session, service).take_while(|(command, other)| {
                std::ptr::eq(*other, verb) && slots::group_of(verb, *command, session, service) == of_group
            });
            let commands: Vec<_> = same.take(SCRIPTS_MAX).map(|(command, _)| command).collect();
            let us = commands.iter().map(|command| work::of_command(verb, *command)).sum();
            let eval = script::eval::eval(verb, commands.into_iter(), session, service, replies);
            let ran = beside(work::is_long(us), pin!(eval)).await;
            session.tally.ended(verb.counted_row, ran as u64);
            batch.next += ran;
            return;
        }
        Run::LogIn(log_in) => {
            let wait = service.config.limits.login_wait;
            if let Err(refusal) = log_in(command, session, &service.users, wait, replies).await {
                connection::refuse_login(&refusal, verb, command, session, service, replies);
            }
        }
        Run::Wait(wait) => wait(command, session, service, replies).await,
        Run::Watch => transaction::watch(command, session, service, replies).await,
        Run::Exec => {
            let is_long = work::is_long_release(session);
            beside(is_long, pin!(transaction::exec(session, service, replies))).await;
        }
        Run::Read(_) => return reads::reads(verb, batch, session, service, replies).await,
        Run::Update(_) => return writes::updates(verb, batch, session, service, replies).await,
    }
    session.tally.ended(verb.counted_row, 1);
    batch.next += 1;
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

/// A command on keys, and its descriptor.
type OnView<'a> = (Command<'a>, &'static Verb);

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
    for (command, verb) in group {
        verb.run_on(*command, &mut view, replies);
        if replies.take_errors() > 0 {
            failed.push(*verb);
        }
    }
    (view, failed)
}

fn count_failed(failed: &Failed, service: &Service) {
    failed.iter().for_each(|verb| service.counters.calls.failed(verb.counted_row, 1));
}
