//! Runs scripts on a view.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use mlua::{Either, Function, Lua, LuaString, MultiValue, Value};

use super::call::{Caller, Keys};
pub(in crate::resp) use super::lookup::CLOSED;
use super::lookup::{self, SHORT, SHORT_BODY_BYTES, Unknown, stop_text};
use super::lua::sandbox::{self, Failure};
use super::lua::{errors, to_reply};
use crate::base::moment::Moment;
use crate::base::turn;
use crate::resp::session::Session;
use crate::resp::session::view::View;
use crate::resp::wire::commands::Command;
use crate::resp::wire::reply::Replies;
use crate::service::Service;
use crate::service::calls::Tally;
use crate::service::channels::Outbox;
use crate::service::scripts::cache::Script;
use crate::service::scripts::control::{Reins, Stop};
use crate::service::scripts::interpreter::Interpreter;

/// The limits that the scripts of one update share.
pub(in crate::resp) struct Turn {
    /// True for a first attempt: a script that exceeds it runs again, and its effects are discarded.
    pub(in crate::resp) is_short: bool,
    pub(in crate::resp) until: Instant,
    /// Bytes of the interpreter's memory.
    pub(in crate::resp) memory: usize,
    /// Bytes of a string that is built outside the interpreter's memory.
    pub(in crate::resp) string: usize,
    /// Bytes of the written values.
    pub(in crate::resp) made: usize,
    /// Bytes of the answers.
    pub(in crate::resp) answers: usize,
    pub(in crate::resp) reins: Arc<Reins>,
}

/// The reason why a script must run again from its beginning.
#[derive(Clone, Copy, Debug)]
pub(in crate::resp) enum Again {
    /// It exceeded a first attempt.
    Longer,
    /// It selected this database, so its keys there must be read too.
    Elsewhere(u8),
    /// An LCS after a script of the transaction needs this many bytes, more than the attempt held.
    Compared(usize),
    /// It must not run again: the server stops, and its effects are discarded.
    Never,
}

/// Interpreter memory of a first attempt, in bytes.
const SHORT_MEMORY: usize = 1 << 20;

/// Number of KEYS and ARGV passed to a script between two checks of its time. Interning strings of one hash takes quadratic time.
const WORDS_A_LOOK: usize = 32;

/// Limit of the bytes of arguments and of an answer that are passed to a script without a memory limit.
pub(super) const UNLIMITED_BYTES: usize = 16 << 10;

/// Returns the memory limit of a long-running script, in bytes.
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

/// A script with its keys and arguments, as a command names them.
pub(in crate::resp) struct Call<'c> {
    pub(in crate::resp) script: Arc<Script>,
    /// EVAL or one of its variants, with a valid number of keys.
    pub(in crate::resp) command: Command<'c>,
    pub(in crate::resp) keys: usize,
    pub(in crate::resp) is_read_only: bool,
    /// True if the script's text was sent and is not yet cached; it is cached once it compiles.
    pub(in crate::resp) is_new: bool,
}

/// Runs scripts of one database one after the other on a view, and answers. Returns the number of scripts run. All
/// share the time and memory of `turn`. If these do not suffice for a later script, its effects are discarded and the
/// row ends before it. Only a first attempt has several scripts.
pub(in crate::resp) fn run(
    calls: &[Call<'_>],
    turn: &mut Turn,
    view: &mut View,
    session: &mut Session,
    service: &Service,
    replies: &mut Replies,
) -> Result<usize, Again> {
    let asked = Instant::now();
    if asked >= turn.until {
        // Earlier scripts of the transaction used up the time that all share.
        return match turn.is_short {
            true => Err(Again::Longer),
            false => {
                replies.error(&stop_text(Stop::Time, service.config.limits.script_time));
                Ok(1)
            }
        };
    }
    let interpreter = match lookup::interpreter(service) {
        Ok(interpreter) => interpreter,
        Err(Unknown(why)) => {
            replies.error_bytes(&why);
            return Ok(1);
        }
    };
    // Creating an interpreter may take as long as a first attempt, so that time is not counted.
    let began = Instant::now();
    turn.until += began - asked;
    turn.reins.random.store(service.scripts.random.load(Ordering::Relaxed), Ordering::Relaxed);
    let (of_client, database) = (session.database(), view.database);
    let (reins, is_short) = (turn.reins.clone(), turn.is_short);
    let lua = interpreter.lua.clone();
    let limit = lua.used_memory() + turn.memory;
    let caller = Caller {
        view,
        session,
        service,
        reins,
        keys: Keys::default(),
        is_read_only: false,
        made_max: 0,
        answer_max: turn.string,
        is_first: true,
        memory_limit: limit,
        tally: Tally::default(),
        elsewhere: None,
        replies: Replies::new(),
    };
    let caller = RefCell::new(caller);
    let mut row = Row {
        interpreter,
        lua,
        caller: &caller,
        limit,
        turn,
        database,
        last: None,
        answer: Replies::new(),
        tally: Tally::default(),
    };
    row.answer.protocol = replies.protocol;
    let ran = row.run(calls, replies);
    let Row { interpreter, mut tally, turn, .. } = row;
    let Caller { session, view, .. } = caller.into_inner();
    session.enter(of_client);
    view.database = database;
    service.scripts.random.store(turn.reins.random.load(Ordering::Relaxed), Ordering::Relaxed);
    lookup::give_back(interpreter, service);
    let took = began.elapsed();
    match (&ran, is_short, calls) {
        (Err(Again::Longer), _, [first, ..]) => first.script.is_long.store(true, Ordering::Relaxed),
        (Ok(_), false, [first, ..]) if took < SHORT => first.script.is_long.store(false, Ordering::Relaxed),
        _ => {}
    }
    if ran.is_ok() {
        tally.settle(took, &service.counters.calls);
    }
    ran
}

fn said(error: &mlua::Error) -> Vec<u8> {
    match errors::raised(error) {
        errors::Raised::Text(text) => [b"ERR ", &*text].concat(),
        errors::Raised::Reply(text) => text,
        errors::Raised::Stop(_) => b"ERR Script ended".to_vec(),
    }
}

/// Scripts that run one after the other in one interpreter.
struct Row<'r, 'c, 't> {
    interpreter: Interpreter,
    lua: Lua,
    caller: &'r RefCell<Caller<'c>>,
    /// Limit of the interpreter's memory, in bytes.
    limit: usize,
    turn: &'t mut Turn,
    database: u8,
    /// The script that ran last, and its compiled function.
    last: Option<(Arc<Script>, Function)>,
    /// The answer of the current script.
    answer: Replies,
    /// The calls of the scripts that have run.
    tally: Tally,
}

impl<'c> Row<'_, 'c, '_> {
    fn run(&mut self, calls: &[Call<'c>], replies: &mut Replies) -> Result<usize, Again> {
        let (lua, held, caller) = (self.lua.clone(), self.interpreter.held.clone(), self.caller);
        let mut ran = Ok(0);
        let outcome = lua.scope(|scope| {
            sandbox::take_reins(&mut self.interpreter, &self.turn.reins, self.turn.is_short)?;
            let answer = scope.create_function(|lua, arguments: MultiValue| {
                caller.borrow_mut().call(lua, &arguments, !held.catch_next(false))
            })?;
            self.interpreter.redis.raw_set("call", answer)?;
            ran = self.run_each(calls, replies);
            Ok(())
        });
        if let Err(error) = outcome {
            replies.error_bytes(&said(&error));
            ran = Ok(1);
        }
        ran
    }

    /// Runs the scripts. Returns the number of scripts run, which may be less than all if they take long, because
    /// other clients wait for this thread.
    fn run_each(&mut self, calls: &[Call<'c>], replies: &mut Replies) -> Result<usize, Again> {
        for (ran, call) in calls.iter().enumerate() {
            let outbox = self.caller.borrow().session.outbox.as_ref().map(Outbox::mark);
            let denials = self.caller.borrow().session.denials.clone();
            if ran > 0 {
                if turn::is_over_at(Moment::now()) || sandbox::clean(&self.interpreter).is_err() {
                    return Ok(ran);
                }
                self.caller.borrow_mut().view.save();
            }
            match (self.run_one(call, replies), ran) {
                (Ok(()), _) => {}
                (Err(again), 0) => return Err(again),
                (Err(_), _) => {
                    let mut caller = self.caller.borrow_mut();
                    caller.view.undo();
                    if let (Some(kept), Some(mark)) = (&mut caller.session.outbox, outbox) {
                        kept.cut(mark);
                    }
                    caller.session.denials = denials;
                    return Ok(ran);
                }
            }
        }
        Ok(calls.len())
    }

    /// Runs a script and answers, or returns the reason why it must run again.
    fn run_one(&mut self, call: &Call<'c>, replies: &mut Replies) -> Result<(), Again> {
        let reins = self.turn.reins.clone();
        reins.begin(self.turn.until, self.turn.string, self.turn.is_short);
        reins.protocol.store(2, Ordering::Relaxed);
        let made = {
            let mut caller = self.caller.borrow_mut();
            caller.begin(call, self.database, self.turn.made);
            caller.view.made_bytes()
        };
        self.answer.limit(self.turn.answers);
        if let Err(error) = self.answer(call) {
            if matches!(errors::raised(&error), errors::Raised::Text(text) if text == errors::NO_MEMORY) {
                let _ = reins.lacks_memory();
            }
            self.answer.error_bytes(&said(&error));
        }
        let is_cut_short = self.answer.unlimit();
        let mut caller = self.caller.borrow_mut();
        if reins.stopped() == Some(Stop::Shutdown) {
            return Err(Again::Never);
        }
        if let (Some(Stop::Elsewhere), Some(database)) = (reins.stopped(), caller.elsewhere) {
            return Err(Again::Elsewhere(database));
        }
        let is_over = matches!(reins.stopped(), Some(Stop::Time | Stop::Memory));
        if self.turn.is_short && (is_over || is_cut_short) {
            return Err(Again::Longer);
        }
        self.tally.absorb(&mut caller.tally);
        let start = replies.mark();
        if is_cut_short {
            replies.error(&format!("ERR cannot answer: it would take more than {} bytes", self.turn.answers));
        } else {
            let bytes = self.answer.unsent_bytes();
            self.answer.move_to(replies, bytes);
            if self.answer.take_errors() > 0 {
                replies.note_error();
            }
        }
        self.turn.made = self.turn.made.saturating_sub(caller.view.made_bytes().saturating_sub(made));
        self.turn.answers = self.turn.answers.saturating_sub(replies.mark() - start);
        Ok(())
    }

    /// Runs a script and leaves its answer in `self.answer`.
    fn answer(&mut self, call: &Call<'c>) -> mlua::Result<()> {
        let (command, lua) = (call.command, &self.lua);
        // With a memory limit each allocation is a protected call, which is slow. So small data that every run needs
        // is allocated without a limit.
        let is_last = |(script, _): &mut (Arc<Script>, Function)| Arc::ptr_eq(script, &call.script);
        let last = self.last.take_if(is_last);
        let is_ready = last.is_some() || self.interpreter.compiled(&call.script.sha).is_some();
        if !is_ready && self.turn.is_short && call.script.body.len() > SHORT_BODY_BYTES {
            self.turn.reins.stop(Stop::Time);
            return Ok(());
        }
        let is_limited = !is_ready || command.bytes() > UNLIMITED_BYTES;
        let _ = lua.set_memory_limit(if is_limited { self.limit } else { 0 });
        let compiled = match last {
            Some((_, function)) => Ok(function),
            None => lookup::compile(&mut self.interpreter, &call.script),
        };
        let function = match compiled {
            Ok(function) => function,
            Err(Unknown(why)) => {
                if why.ends_with(errors::NO_MEMORY) {
                    let _ = self.turn.reins.lacks_memory();
                }
                let stopped = self.turn.reins.stopped();
                let time = self.caller.borrow().service.config.limits.script_time;
                let why = stopped.map_or(why, |stop| stop_text(stop, time).into_bytes());
                self.answer.error_bytes(&why);
                return Ok(());
            }
        };
        if call.is_new {
            self.caller.borrow().service.scripts.cache().keep(call.script.clone(), None);
        }
        if call.script.has_flags && !call.script.is_read_only && call.is_read_only {
            self.answer.error("ERR Can not execute a script with write flag using *_ro command.");
            return Ok(());
        }
        let reins = self.turn.reins.clone();
        let list = |from: usize, count: usize| {
            let words = command.arguments(from).take(count).enumerate();
            let words =
                words.take_while(|(index, _)| (index + 1) % WORDS_A_LOOK > 0 || reins.check().is_ok());
            // A UTF-8 text is passed without creating a handle for it.
            let words = words.map(|(_, word)| match std::str::from_utf8(word) {
                Ok(text) => Either::Left(text),
                Err(_) => Either::Right(LuaString::wrap(word)),
            });
            lua.create_sequence_from(words)
        };
        let (keys, arguments) = (list(3, call.keys)?, list(3 + call.keys, usize::MAX)?);
        if let Some(stop) = reins.stopped() {
            let _ = lua.set_memory_limit(0);
            let time = self.caller.borrow().service.config.limits.script_time;
            self.answer.error(&stop_text(stop, time));
            return Ok(());
        }
        let _ = lua.set_memory_limit(self.limit);
        let ended = self.interpreter.run.call::<(bool, Value)>((&function, keys, arguments));
        // From here on only our own code runs.
        let _ = lua.set_memory_limit(0);
        self.last = Some((call.script.clone(), function));
        let value = match ended {
            Ok((true, value)) => {
                to_reply::answer(&value, self.turn.reins.protocol.load(Ordering::Relaxed), &mut self.answer);
                return Ok(());
            }
            Ok((false, value)) => value,
            // A stopped script fails again where its error is caught.
            Err(error) => Value::Error(Box::new(error)),
        };
        let failure = lua.remove_app_data::<Failure>();
        let failed = failed(failure, &value, call, self.turn, self.caller.borrow().service);
        self.answer.error_bytes(&failed);
        Ok(())
    }
}

/// Returns the error reply of a failed script.
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
            // The handler of errors did not run, because there was no memory for it.
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
