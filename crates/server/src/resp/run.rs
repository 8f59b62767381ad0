//! Which commands of a pipeline go to the store together.
//!
//! A batch runs as a row of groups. A group is a stretch of neighbouring commands of one kind whose outcome cannot
//! depend on each other, so that they run concurrently and the client cannot tell: reads, or writes as long as no key
//! comes twice. Every group is over before the next begins, so a read sees the writes before it, and of two writes of a
//! key the later one stays even if the store made the earlier one wait for room. Replies are appended in the order of
//! the commands. Concurrent writes share one device write, which is what makes a pipeline of durable writes fast.

use std::collections::HashSet;
use std::sync::Arc;

use bytes::Bytes;
use esker_engine::{Error, Store, WriteOptions};
use futures_util::future::join_all;

use super::command::{self, Alone, Plan, connection, strings};
use super::frame::{Command, Commands};
use super::reply::Replies;
use super::session::Session;
use crate::auth::User;
use crate::service::{Service, count};

/// Store operations that one group has at most, unless a single command has more.
const GROUP_WIDTH_MAX: usize = 1024;

/// Keys that a group of reads asks for at most.
const READ_WIDTH_MAX: usize = 256;

/// Bytes that one group of reads should return at most.
const READ_BYTES_GOAL: usize = 1 << 20;

/// Commands that were read together, and how far they have run.
pub(super) struct Batch<'a> {
    commands: &'a Commands,
    data: Bytes,
    /// The next command to run.
    next: usize,
    /// Whom the commands of the current group run for.
    user: Option<Arc<User>>,
    /// Keys of the next command that are already answered. Only a long MGET is ever left in the middle.
    answered: usize,
}

impl<'a> Batch<'a> {
    pub(super) fn new(commands: &'a Commands, data: Bytes) -> Batch<'a> {
        Batch { commands, data, next: 0, user: None, answered: 0 }
    }

    pub(super) fn is_done(&self) -> bool {
        self.next == self.commands.len()
    }

    fn command(&self, index: usize) -> Command<'_> {
        self.commands.get(index, &self.data)
    }

    /// Plans of the commands from `next` on.
    fn plans(&self) -> impl Iterator<Item = (Command<'_>, Plan)> {
        (self.next..self.commands.len()).map(|index| {
            let command = self.command(index);
            (command, command::plan(command, self.user.as_deref()))
        })
    }
}

/// Runs the next group of a batch that is not done.
pub(super) async fn next(
    batch: &mut Batch<'_>,
    session: &mut Session,
    service: &Service,
    replies: &mut Replies,
) {
    batch.user.clone_from(&session.user);
    let command = batch.command(batch.next);
    match command::plan(command, session.user.as_deref()) {
        Plan::Answer(answer) => answer(command, session, service, replies),
        Plan::Refuse(error) => replies.error(&error),
        Plan::Alone(alone) => run_alone(alone, command, session, service, replies).await,
        Plan::Read => return read(batch, session, service, replies).await,
        Plan::Count => return count_keys(batch, service, replies).await,
        Plan::Write(_) => return write(batch, service, replies).await,
        Plan::Delete | Plan::WriteIf(_) => return write_telling(batch, service, replies).await,
    }
    batch.next += 1;
}

/// GET and MGET: one look-up of many keys, with a part of an MGET if it is a long one.
async fn read(batch: &mut Batch<'_>, session: &mut Session, service: &Service, replies: &mut Replies) {
    let mut keys = Vec::new();
    let mut skip = batch.answered;
    for (command, plan) in batch.plans() {
        let room = session.read_width - keys.len();
        if !matches!(plan, Plan::Read) || room == 0 {
            break;
        }
        keys.extend(command.arguments(1 + skip).take(room));
        skip = 0;
    }
    let values = service.store.get_many(&keys).await;
    assert_eq!(values.len(), keys.len(), "the store answers every key once");

    let (mut hits, mut bytes) = (0, 0);
    let (mut next, mut answered) = (batch.next, batch.answered);
    for value in &values {
        let command = batch.command(next);
        let wanted = command.len() - 1;
        if answered == 0 && command::is_many(command) {
            replies.array(wanted);
        }
        match value {
            Ok(value) => {
                hits += u64::from(value.is_some());
                bytes += value.as_ref().map_or(0, Bytes::len);
                replies.bulk_or_null(value.as_deref());
            }
            Err(error) => replies.store_error(error),
        }
        answered += 1;
        if answered == wanted {
            (next, answered) = (next + 1, 0);
        }
    }
    count(&service.counters.hits, hits);
    count(&service.counters.misses, values.len() as u64 - hits);
    (batch.next, batch.answered) = (next, answered);
    session.read_width = match bytes {
        0..=READ_BYTES_GOAL => (session.read_width * 2).min(READ_WIDTH_MAX),
        _ => (session.read_width / 2).max(1),
    };
}

/// EXISTS: a key counts as often as it is named.
async fn count_keys(batch: &mut Batch<'_>, service: &Service, replies: &mut Replies) {
    let mut group = Vec::new();
    let mut width = 0;
    for (command, plan) in batch.plans() {
        width += command.len();
        if !matches!(plan, Plan::Count) || (width > GROUP_WIDTH_MAX && !group.is_empty()) {
            break;
        }
        group.push(command);
    }
    let keys: Vec<&[u8]> = group.iter().flat_map(|command| command.arguments(1)).collect();
    let mut found = Vec::with_capacity(keys.len());
    for keys in keys.chunks(GROUP_WIDTH_MAX) {
        found.extend(join_all(keys.iter().map(|key| service.store.contains(*key))).await);
    }
    let mut found = found.into_iter();
    for command in &group {
        let total = found.by_ref().take(command.len() - 1).try_fold(0, |n, found| Ok(n + i64::from(found?)));
        count_reply(total, replies);
    }
    batch.next += group.len();
}

/// SET without conditions, and MSET.
async fn write(batch: &mut Batch<'_>, service: &Service, replies: &mut Replies) {
    let mut operations = Vec::new();
    let mut touched = HashSet::new();
    for (command, plan) in batch.plans() {
        let Plan::Write(options) = plan else { break };
        let keys = if command::is_many(command) { command.len() } else { 2 };
        let keys = || (1..keys).step_by(2).map(|index| command.argument(index));
        let repeats = !operations.is_empty() && keys().any(|key| touched.contains(key));
        if repeats || operations.len() == GROUP_WIDTH_MAX {
            break;
        }
        touched.extend(keys());
        operations.push(strings::write(&service.store, command, options));
    }
    let width = operations.len();
    for written in join_all(operations).await {
        match written {
            Ok(()) => replies.simple("OK"),
            Err(error) => replies.store_error(&error),
        }
    }
    batch.next += width;
}

/// DEL and UNLINK, SET NX and SET XX: their replies say what they found, so a key that was touched ends the group.
async fn write_telling(batch: &mut Batch<'_>, service: &Service, replies: &mut Replies) {
    let mut operations = Vec::new();
    let mut group = Vec::new();
    let mut touched = HashSet::new();
    for (command, plan) in batch.plans() {
        let keys = match plan {
            Plan::Delete => command.arguments(1).len(),
            Plan::WriteIf(_) => 1,
            _ => break,
        };
        let mut named = command.arguments(1).take(keys);
        if !group.is_empty()
            && (operations.len() + keys > GROUP_WIDTH_MAX || named.any(|k| touched.contains(k)))
        {
            break;
        }
        let before = operations.len();
        match plan {
            Plan::WriteIf(options) => {
                touched.insert(command.argument(1));
                operations.push(Telling::Put(command, options));
            }
            _ => {
                let fresh = (1..=keys).filter(|&index| touched.insert(command.argument(index)));
                operations.extend(fresh.map(|index| Telling::Delete(command.owned(index))));
            }
        }
        group.push((plan, operations.len() - before));
    }

    let mut outcomes = Vec::with_capacity(operations.len());
    let mut operations = operations.into_iter().peekable();
    while operations.peek().is_some() {
        let some = operations.by_ref().take(GROUP_WIDTH_MAX).map(|operation| operation.run(&service.store));
        outcomes.extend(join_all(some).await);
    }
    let mut outcomes = outcomes.into_iter();
    for (plan, width) in &group {
        let mut own = outcomes.by_ref().take(*width);
        match plan {
            Plan::Delete => count_reply(own.try_fold(0, |n, deleted| Ok(n + i64::from(deleted?))), replies),
            _ => match own.next().expect("a put has one outcome") {
                Ok(true) => replies.simple("OK"),
                Ok(false) => replies.null(),
                Err(error) => replies.store_error(&error),
            },
        }
        own.for_each(drop);
    }
    batch.next += group.len();
}

/// A write whose outcome is yes or no.
enum Telling<'a> {
    Delete(Bytes),
    Put(Command<'a>, WriteOptions),
}

impl Telling<'_> {
    async fn run(self, store: &Store) -> Result<bool, Error> {
        match self {
            Telling::Delete(key) => store.delete(key).await,
            Telling::Put(command, options) => strings::write_if(store, command, options).await,
        }
    }
}

async fn run_alone(
    alone: Alone,
    command: Command<'_>,
    session: &mut Session,
    service: &Service,
    replies: &mut Replies,
) {
    match alone {
        Alone::Swap(options) => strings::swap(&service.store, command, options, replies).await,
        Alone::Hello => connection::hello(command, session, service, replies).await,
        Alone::Auth => connection::auth(command, session, service, replies).await,
        Alone::Clear => match service.store.clear().await {
            Ok(()) => replies.simple("OK"),
            Err(error) => replies.store_error(&error),
        },
    }
}

fn count_reply(total: Result<i64, Error>, replies: &mut Replies) {
    match total {
        Ok(total) => replies.integer(total),
        Err(error) => replies.store_error(&error),
    }
}
