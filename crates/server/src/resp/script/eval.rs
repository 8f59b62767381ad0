//! EVAL, EVALSHA and their read-only variants.
//!
//! 1. First attempt: the script runs on the thread that serves its client, limited to a millisecond and a little
//!    memory. It is skipped for a script that exceeded a first attempt before, or has very many arguments.
//! 2. If that is not enough, its effects are discarded, and the script runs again from its beginning, beside the
//!    serving threads: with the time and memory limits of scripts, and with that memory acquired from the memory for
//!    clients.
//! 3. If it selects a database, its effects are discarded as well, and it runs again with its keys of that database
//!    too.
//! 4. Adjacent scripts in a pipeline run in a row, as one update over the keys of all. They share the time and memory
//!    of a first attempt. The row ends before the first script that exceeds the rest of these; that script begins the
//!    next row.

use std::sync::atomic::Ordering;

use esker_engine::{Batch, Entry, Error, ErrorKind, WriteOptions};

use super::lookup::{UNKNOWN, Unknown, by_body, by_digest, digest_of};
use super::run::{Again, CLOSED, Call, Turn, long_bytes, run};
use crate::base::turn::{aside, leave_place};
use crate::resp::session::view::{Place, View};
use crate::resp::session::{Session, denials, refused};
use crate::resp::verb::{Run, Script, Verb};
use crate::resp::wire::commands::Command;
use crate::resp::wire::error_text;
use crate::resp::wire::number::parse_integer;
use crate::resp::wire::reply::Replies;
use crate::service::Service;
use crate::service::channels::Outbox;

/// Bytes that a first attempt may write, and may answer, beside the bytes of its arguments and of its keys' values.
const SHORT_BYTES: usize = 64 << 10;

/// Number of arguments above which there is no first attempt, because building their tables takes too long for a
/// serving thread.
const SHORT_ARGUMENTS: usize = 4096;

/// Limit of the argument bytes of all scripts of a row together.
const ROW_BYTES_MAX: usize = 1 << 20;

/// Returns the bytes that a long-running script holds of the memory for clients: its interpreter, strings built
/// beside it, its writes and its answer.
pub(in crate::resp) fn long_held_bytes(service: &Service) -> usize {
    long_bytes(service) / 2 * 5
}

/// Returns the bytes that a first attempt may write and may answer. `values`: bytes of its keys' values.
pub(in crate::resp) fn short_bytes(command: Command<'_>, values: usize) -> usize {
    SHORT_BYTES.saturating_add(command.bytes()).saturating_add(values)
}

/// Returns the call that a command asks for, or its error reply. `before`: the previous call, whose script is reused
/// if it is the same.
pub(in crate::resp) fn call_of<'c>(
    how: Script,
    command: Command<'c>,
    before: Option<&Call<'c>>,
    service: &Service,
) -> Result<Call<'c>, Vec<u8>> {
    let Script { by_digest: by_name, is_read_only } = how;
    if by_name && digest_of(command.argument(1)).is_none() {
        return Err(UNKNOWN.to_vec());
    }
    let keys = parse_integer(command.argument(2)).ok_or(error_text::NOT_AN_INTEGER.as_bytes())?;
    if keys > command.len() as i64 - 3 {
        return Err(b"ERR Number of keys can't be greater than number of args".to_vec());
    }
    let keys = usize::try_from(keys).map_err(|_| b"ERR Number of keys can't be negative".to_vec())?;
    let same = before.filter(|before| !before.is_new && before.command.argument(1) == command.argument(1));
    let found = match same {
        Some(before) => Ok((before.script.clone(), true)),
        None if by_name => by_digest(command.argument(1), service).map(|script| (script, true)),
        None => by_body(command.argument(1), service),
    };
    let (script, is_known) = found.map_err(|Unknown(why)| why)?;
    Ok(Call { script, command, keys, is_read_only, is_new: !is_known })
}

/// Scripts that run as one update.
struct Row<'c> {
    calls: Vec<Call<'c>>,
    keys: Vec<Place>,
    /// Bytes of the arguments.
    bytes: usize,
    /// Bytes of the keys' values.
    values: usize,
}

impl<'c> Row<'c> {
    fn new() -> Row<'c> {
        Row { calls: Vec::new(), keys: Vec::new(), bytes: 0, values: 0 }
    }

    fn push(&mut self, call: Call<'c>, verb: &Verb, database: u8, service: &Service) {
        self.bytes = self.bytes.saturating_add(call.command.bytes());
        self.add_keys(verb, call.command, database, service);
        self.calls.push(call);
    }

    /// Adds the keys of a command in a database.
    fn add_keys(&mut self, verb: &Verb, command: Command<'c>, database: u8, service: &Service) {
        let store = service.database(database);
        for index in verb.keys.of(command) {
            let key = command.shared(index);
            self.values = self.values.saturating_add(store.read_bytes_hint(&key));
            self.keys.push((database, key));
        }
    }

    /// Returns the bytes that a first attempt may write, and may answer.
    fn short_bytes(&self) -> usize {
        SHORT_BYTES.saturating_add(self.bytes).saturating_add(self.values)
    }

    /// Returns the bytes of the values read, the writes of a first attempt, its answers and its refusals.
    fn held_bytes(&self) -> usize {
        self.values.saturating_add(2 * self.short_bytes()).saturating_add(denials::DENIALS_BYTES_MAX)
    }
}

/// Returns true if a script may run in a row with others: it is cached, and did not exceed a first attempt before.
fn is_for_row(call: &Call<'_>) -> bool {
    let is_short = call.command.len() <= SHORT_ARGUMENTS && !call.script.is_long.load(Ordering::Relaxed);
    !call.is_new && is_short
}

/// Runs the scripts of the first commands, at least one. Returns the number of commands run. All have the same verb.
/// See the module.
pub(in crate::resp) async fn eval(
    verb: &Verb,
    mut commands: impl Iterator<Item = Command<'_>>,
    session: &mut Session,
    service: &Service,
    replies: &mut Replies,
) -> usize {
    let (Some(command), Run::Script(how)) = (commands.next(), verb.run) else { return 0 };
    let first = match call_of(how, command, None, service) {
        Ok(call) => call,
        Err(why) => {
            replies.error_bytes(&why);
            return 1;
        }
    };
    let database = session.database();
    let options = match first.is_read_only {
        true => WriteOptions::default(),
        false => session.write_options(),
    };
    let mut row = Row::new();
    let may_others_follow = is_for_row(&first);
    row.push(first, verb, database, service);
    for command in commands.filter(|_| may_others_follow) {
        let call = match call_of(how, command, row.calls.last(), service) {
            Ok(call) if is_for_row(&call) => call,
            _ => break,
        };
        if row.keys.len() + call.keys > session.read_width
            || row.bytes + command.bytes() > ROW_BYTES_MAX
            || row.values > service.read_bytes_goal
        {
            break;
        }
        row.push(call, verb, database, service);
    }
    session.is_settled = true;
    // 4.
    if row.calls.len() > 1 && session.try_hold_also(row.held_bytes()) {
        let turn = || Turn::short(row.short_bytes());
        match update(&row.calls, &row.keys, options, turn, session, service, replies).await {
            Ok(Ok(ran)) => return ran,
            Ok(Err(_)) => {}
            // They may have written: a second run could do that twice.
            Err(error) if matches!(error.kind(), ErrorKind::Uncertain) => {
                row.calls.iter().for_each(|_| replies.store_error(&error));
                return row.calls.len();
            }
            // After an error the scripts run one by one, so that only those at fault fail.
            Err(_) => {
                for call in &row.calls {
                    eval_one(verb, call, options, session, service, replies).await;
                }
                return row.calls.len();
            }
        }
    }
    eval_one(verb, &row.calls[0], options, session, service, replies).await;
    1
}

/// Runs one script by itself.
async fn eval_one(
    verb: &Verb,
    call: &Call<'_>,
    options: WriteOptions,
    session: &mut Session,
    service: &Service,
    replies: &mut Replies,
) {
    let calls = std::slice::from_ref(call);
    let mut row = Row::new();
    row.bytes = call.command.bytes();
    row.add_keys(verb, call.command, session.database(), service);
    let has_many = call.command.len() > SHORT_ARGUMENTS;
    let mut is_long = has_many || call.script.is_long.load(Ordering::Relaxed);
    loop {
        let held =
            if is_long { row.values.saturating_add(long_held_bytes(service)) } else { row.held_bytes() };
        if let Err(refused) = session.hold_also(held).await {
            return replies.error(&format!("ERR cannot answer: {refused}"));
        }
        let running = if is_long { Some(service.scripts.long_turn().await) } else { None };
        let turn = || match &running {
            // 2.
            Some(running) => Turn::long(service, running.reins()),
            // 1.
            None => Turn::short(row.short_bytes()),
        };
        match update(calls, &row.keys, options, turn, session, service, replies).await {
            Ok(Ok(_)) => return,
            Ok(Err(Again::Longer)) => is_long = true,
            Ok(Err(Again::Never | Again::Compared(_))) => return replies.error(CLOSED),
            // 3.
            Ok(Err(Again::Elsewhere(database))) => row.add_keys(verb, call.command, database, service),
            Err(error) => return replies.store_error(&error),
        }
    }
}

/// Runs scripts as one update over their keys. Returns the number of scripts run. If it fails, or if the first script
/// must run again, there are no answers.
async fn update(
    calls: &[Call<'_>],
    keys: &[Place],
    options: WriteOptions,
    turn: impl Fn() -> Turn,
    session: &mut Session,
    service: &Service,
    replies: &mut Replies,
) -> Result<Result<usize, Again>, Error> {
    let (mark, mut writes) = (replies.mark(), false);
    session.outbox = Some(Outbox::default());
    let mut change = |entries: &[Option<Entry>]| {
        let entries = keys.iter().cloned().zip(entries.iter().cloned());
        let bulk_bytes_max = service.config.limits.bulk_bytes_max;
        let mut view = View::new(service, bulk_bytes_max, session.database(), entries);
        // The time begins when the script runs, not while it waits for its keys.
        let mut turn = turn();
        if !turn.is_short {
            leave_place();
        }
        match aside(turn.is_short, || run(calls, &mut turn, &mut view, session, service, replies)) {
            Ok(ran) => {
                writes = view.writes();
                (view.into_batch(), Ok(ran))
            }
            Err(again) => (Batch::new(), Err(again)),
        }
    };
    let outcome = match keys.is_empty() {
        true => Ok(change(&[]).1),
        false => service.store.update_across(keys, options, change).await,
    };
    // Of several updates in a row, all have to be settled.
    session.is_settled &= writes || !matches!(outcome, Ok(Ok(_)));
    let outbox = session.outbox.take().unwrap_or_default();
    // Scripts of a row run one by one after an error.
    match outcome {
        Ok(Err(_)) => session.denials.clear(),
        Err(_) if calls.len() > 1 => session.denials.clear(),
        Ok(Ok(_)) | Err(_) => refused::note_held(session, service),
    }
    match outcome {
        Ok(Ok(_)) => service.channels.publish_all(outbox),
        Ok(Err(_)) => {}
        Err(_) => {
            replies.cut(mark);
            replies.take_errors();
        }
    }
    outcome
}
