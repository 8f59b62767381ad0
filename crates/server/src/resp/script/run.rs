//! One run of a script on a view.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use mlua::{MultiValue, Value};

use super::call::{Caller, Keys};
use super::known::{self, Unknown};
use super::lua::sandbox::{self, Failure};
use super::lua::{errors, to_reply};
use crate::resp::session::Session;
use crate::resp::session::view::View;
use crate::resp::wire::commands::Command;
use crate::resp::wire::reply::Replies;
use crate::service::Service;
use crate::service::calls::Tally;
use crate::service::scripts::cache::Script;
use crate::service::scripts::interpreter::Interpreter;
use crate::service::scripts::reins::{Reins, Stop};

/// What scripts of one update may take together.
pub(in crate::resp) struct Turn {
    /// Whether this is a first attempt: what takes more is run again, and nothing of it stays.
    pub(in crate::resp) is_short: bool,
    pub(in crate::resp) until: Instant,
    /// Of the interpreter.
    pub(in crate::resp) memory: usize,
    /// Bytes of a string that is made beside it.
    pub(in crate::resp) string: usize,
    /// Bytes of the values that are written.
    pub(in crate::resp) made: usize,
    /// Bytes of the answers.
    pub(in crate::resp) answers: usize,
    pub(in crate::resp) reins: Arc<Reins>,
}

/// Why a script is to be run again, from its beginning.
#[derive(Clone, Copy, Debug)]
pub(in crate::resp) enum Again {
    /// A first attempt took more than it may.
    Longer,
    /// It chose this database, of which its keys are to be read too.
    Elsewhere(u8),
}

/// How long a first attempt may take.
const SHORT: Duration = Duration::from_millis(1);

/// Memory of its interpreter.
const SHORT_MEMORY: usize = 1 << 20;

/// What a run may be given without a look at its memory.
const UNLIMITED_BYTES: usize = 16 << 10;

/// Memory that a script may have which runs for long.
pub(in crate::resp) fn long_bytes(service: &Service) -> usize {
    let limits = &service.config.limits;
    limits.script_bytes_max.min(limits.connection_bytes_max / 4)
}

impl Turn {
    pub(in crate::resp) fn short(extra: usize) -> Turn {
        Turn {
            is_short: true,
            until: Instant::now() + SHORT,
            memory: SHORT_MEMORY,
            string: SHORT_MEMORY,
            made: extra,
            answers: extra,
            reins: Arc::default(),
        }
    }

    pub(in crate::resp) fn long(service: &Service, reins: &Arc<Reins>) -> Turn {
        let bytes = long_bytes(service);
        Turn {
            is_short: false,
            until: Instant::now() + service.config.limits.script_time,
            memory: bytes,
            string: bytes / 2,
            made: bytes / 2,
            answers: bytes / 2,
            reins: reins.clone(),
        }
    }
}

/// What is run: a script on keys, as a command named both.
pub(in crate::resp) struct Call<'c> {
    pub(in crate::resp) script: Arc<Script>,
    /// EVAL or one of its kin, with a good number of keys.
    pub(in crate::resp) command: Command<'c>,
    pub(in crate::resp) keys: usize,
    pub(in crate::resp) is_read_only: bool,
    /// The script was sent, and is kept if it can be compiled.
    pub(in crate::resp) is_new: bool,
}

/// Runs a script and answers.
pub(in crate::resp) fn run(
    call: &Call<'_>,
    turn: &mut Turn,
    view: &mut View,
    session: &mut Session,
    service: &Service,
    replies: &mut Replies,
) -> Result<(), Again> {
    let asked = Instant::now();
    if asked >= turn.until {
        // Scripts before it in a transaction took all the time that there is for them together.
        return match turn.is_short {
            true => Err(Again::Longer),
            false => {
                replies.error(&stop_text(Stop::Time, service.config.limits.script_time));
                Ok(())
            }
        };
    }
    let mut interpreter = match known::interpreter(service) {
        Ok(interpreter) => interpreter,
        Err(Unknown(why)) => {
            replies.error_bytes(&why);
            return Ok(());
        }
    };
    // Making one may take as long as a first attempt.
    turn.until += asked.elapsed();
    let (made, start) = (view.made_bytes(), replies.mark());
    turn.reins.begin(turn.until, turn.string, turn.is_short);
    turn.reins.random.store(service.scripts.random.load(Ordering::Relaxed), Ordering::Relaxed);
    turn.reins.protocol.store(2, Ordering::Relaxed);
    let mut tally = Tally::default();
    let began = Instant::now();
    // What it chooses is its own.
    let (of_client, database, mut elsewhere) = (session.database(), view.database, None);
    session.enter(database);
    let run = Run { call, turn, tally: &mut tally, elsewhere: &mut elsewhere };
    let answer = run_in(&mut interpreter, run, view, session, service, replies.protocol);
    session.enter(of_client);
    view.database = database;
    let answer = match answer {
        Ok(answer) => answer,
        Err(error) => {
            let mut answer = Replies::new();
            if matches!(errors::raised(&error), errors::Raised::Text(text) if text == errors::NO_MEMORY) {
                let _ = turn.reins.lacks_memory();
            }
            answer.error_bytes(&said(&error));
            Answered { replies: answer, is_cut_short: false }
        }
    };
    service.scripts.random.store(turn.reins.random.load(Ordering::Relaxed), Ordering::Relaxed);
    known::give_back(interpreter, service);
    if let (Some(Stop::Elsewhere), Some(database)) = (turn.reins.stopped(), elsewhere) {
        return Err(Again::Elsewhere(database));
    }
    let is_over = matches!(turn.reins.stopped(), Some(Stop::Time | Stop::Memory));
    if turn.is_short && (is_over || answer.is_cut_short) {
        call.script.is_long.store(true, Ordering::Relaxed);
        return Err(Again::Longer);
    }
    if !turn.is_short && began.elapsed() < SHORT {
        call.script.is_long.store(false, Ordering::Relaxed);
    }
    tally.settle(began.elapsed(), &service.counters.calls);
    let mut answer = answer;
    if answer.is_cut_short {
        replies.error(&format!("ERR cannot answer: it would take more than {} bytes", turn.answers));
    } else {
        let bytes = answer.replies.unsent_bytes();
        answer.replies.move_to(replies, bytes);
        if answer.replies.take_errors() > 0 {
            replies.note_error();
        }
    }
    turn.made = turn.made.saturating_sub(view.made_bytes().saturating_sub(made));
    turn.answers = turn.answers.saturating_sub(replies.mark() - start);
    Ok(())
}

fn said(error: &mlua::Error) -> Vec<u8> {
    match errors::raised(error) {
        errors::Raised::Text(text) => [b"ERR ", &*text].concat(),
        errors::Raised::Reply(text) => text,
        errors::Raised::Stop(_) => b"ERR Script ended".to_vec(),
    }
}

/// What a script answered.
struct Answered {
    replies: Replies,
    is_cut_short: bool,
}

/// A run of a script, and what is noted of it.
struct Run<'r> {
    call: &'r Call<'r>,
    turn: &'r Turn,
    tally: &'r mut Tally,
    /// The database that it chose and its keys were not read from.
    elsewhere: &'r mut Option<u8>,
}

fn run_in(
    interpreter: &mut Interpreter,
    Run { call, turn, tally, elsewhere }: Run<'_>,
    view: &mut View,
    session: &mut Session,
    service: &Service,
    protocol: crate::resp::wire::reply::Protocol,
) -> mlua::Result<Answered> {
    let (command, lua) = (call.command, interpreter.lua.clone());
    sandbox::take_reins(interpreter, &turn.reins, turn.is_short)?;
    lua.remove_app_data::<Failure>();
    let limit = lua.used_memory() + turn.memory;
    // Where memory is limited each allocation is made as a call that may fail, which is slow: so the little that every run
    // needs is made before.
    if interpreter.compiled(&call.script.sha).is_none() || command.bytes() > UNLIMITED_BYTES {
        let _ = lua.set_memory_limit(limit);
    }
    let mut replies = Replies::new();
    replies.protocol = protocol;
    let function = match known::compile(interpreter, &call.script) {
        Ok(function) => function,
        Err(Unknown(why)) => {
            if why.ends_with(errors::NO_MEMORY) {
                let _ = turn.reins.lacks_memory();
            }
            replies.error_bytes(&why);
            return Ok(Answered { replies, is_cut_short: false });
        }
    };
    if call.is_new {
        service.scripts.cache().keep(call.script.clone(), false);
    }
    if call.script.has_flags && !call.script.is_read_only && call.is_read_only {
        replies.error("ERR Can not execute a script with write flag using *_ro command.");
        return Ok(Answered { replies, is_cut_short: false });
    }
    let list = |from: usize, count: usize| {
        let words = command.arguments(from).take(count).map(|word| lua.create_string(word));
        lua.create_sequence_from(words.collect::<mlua::Result<Vec<_>>>()?)
    };
    interpreter.globals.raw_set("KEYS", list(3, call.keys)?)?;
    interpreter.globals.raw_set("ARGV", list(3 + call.keys, usize::MAX)?)?;
    let caller = Caller {
        made_max: view.made_bytes() + turn.made,
        view,
        session,
        service,
        reins: turn.reins.clone(),
        keys: Keys::of(command.arguments(3).take(call.keys)),
        is_read_only: call.is_read_only || call.script.is_read_only,
        answer_max: turn.string,
        tally,
        elsewhere,
        replies: Replies::new(),
    };
    let caller = RefCell::new(caller);
    replies.limit(turn.answers);
    let held = &interpreter.held;
    let outcome = lua.scope(|scope| {
        let answer = scope.create_function(|lua, arguments: MultiValue| {
            caller.borrow_mut().call(lua, &arguments, !held.catch_next(false))
        })?;
        interpreter.redis.raw_set("call", answer)?;
        let _ = lua.set_memory_limit(limit);
        let ended = interpreter.run.call::<(bool, Value)>(function);
        // What follows is ours.
        let _ = lua.set_memory_limit(0);
        let value = match ended {
            Ok((true, value)) => {
                to_reply::answer(&value, turn.reins.protocol.load(Ordering::Relaxed), &mut replies);
                return Ok(());
            }
            Ok((false, value)) => value,
            // A script that is over fails again where its error is caught.
            Err(error) => Value::Error(Box::new(error)),
        };
        let failure = lua.remove_app_data::<Failure>();
        replies.error_bytes(&failed(failure, &value, call, turn, service));
        Ok(())
    });
    for name in ["KEYS", "ARGV"] {
        interpreter.globals.raw_set(name, Value::Nil)?;
    }
    outcome?;
    let is_cut_short = replies.unlimit();
    Ok(Answered { replies, is_cut_short })
}

/// What is answered where a script failed.
fn failed(
    failure: Option<Failure>,
    value: &Value,
    call: &Call<'_>,
    turn: &Turn,
    service: &Service,
) -> Vec<u8> {
    let sha = String::from_utf8_lossy(&call.script.sha).into_owned();
    let (mut text, place) = match (turn.reins.stopped(), failure) {
        (Some(stop), failure) => {
            let text = stop_text(stop, service.config.limits.script_time).into_bytes();
            (text, failure.and_then(|failure| failure.place))
        }
        (None, Some(failure)) => (failure.text, failure.place),
        (None, None) => {
            // Nobody was told where it was: there was no memory for that.
            let why = match value {
                Value::String(text) => text.as_bytes().to_vec(),
                Value::Error(error) => said(error),
                _ => b"execution failure".to_vec(),
            };
            ([format!("ERR Error running script {sha}, ").as_bytes(), &why].concat(), None)
        }
    };
    if text.ends_with(errors::NO_MEMORY) {
        let _ = turn.reins.lacks_memory();
    }
    if let Some((name, line)) = place.filter(|(_, line)| *line > 0) {
        text.extend_from_slice(format!(" script: {sha}, on {name}:{line}.").as_bytes());
    }
    text
}

fn stop_text(stop: Stop, time: Duration) -> String {
    match stop {
        Stop::Time => format!("ERR Script ended: it ran for more than {time:?} (script-time-limit)"),
        Stop::Memory => "ERR Script ended: it took too much memory (script-memory)".to_owned(),
        Stop::Killed => "ERR Script killed by user with SCRIPT KILL...".to_owned(),
        Stop::Elsewhere => "ERR Script ended: it is run again".to_owned(),
    }
}
