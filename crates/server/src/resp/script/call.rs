//! `redis.call`: runs a command on the view of the script.

use std::sync::Arc;

use mlua::{Lua, MultiValue, Value};

use super::lua::{errors, from_reply, spelled};
use super::run::{Call, UNLIMITED_BYTES};
use crate::resp::commands::admit::admit_in_script;
use crate::resp::commands::databases::{places, repeated_bytes, selected};
use crate::resp::commands::durability;
use crate::resp::session::Session;
use crate::resp::session::view::View;
use crate::resp::verb::facts::{Databases, Values};
use crate::resp::verb::{Run, Verb};
use crate::resp::wire::commands::{Command, Copied};
use crate::resp::wire::error_text::NOT_DECLARED;
use crate::resp::wire::reply::{Protocol, Replies};
use crate::service::Service;
use crate::service::calls::Tally;
use crate::service::channels::Outbox;
use crate::service::scripts::control::{Reins, Stop};

/// Bytes of a command beside the values that it writes or answers: its name, keys and options.
const BESIDE_VALUES_BYTES: usize = 64 << 10;

/// The state of `redis.call` for the scripts of one update.
pub(super) struct Caller<'c> {
    pub(super) view: &'c mut View,
    pub(super) session: &'c mut Session,
    pub(super) service: &'c Service,
    pub(super) reins: Arc<Reins>,
    /// The keys declared by the script.
    pub(super) keys: Keys<'c>,
    pub(super) is_read_only: bool,
    /// Limit of the bytes of all values written on the view.
    pub(super) made_max: usize,
    /// Limit of the bytes of one answer.
    pub(super) answer_max: usize,
    /// True until the script's first call.
    pub(super) is_first: bool,
    /// Limit of the interpreter's memory while scripts run, in bytes.
    pub(super) memory_limit: usize,
    pub(super) tally: Tally,
    /// The database that the script selected although its keys there were not read.
    pub(super) elsewhere: Option<u8>,
    pub(super) replies: Replies,
}

/// The keys that a script may use in commands.
#[derive(Default)]
pub(super) struct Keys<'c> {
    listed: Vec<&'c [u8]>,
}

impl<'c> Keys<'c> {
    fn set(&mut self, keys: impl Iterator<Item = &'c [u8]>) {
        self.listed.clear();
        self.listed.extend(keys);
        self.listed.sort_unstable();
    }

    fn has(&self, key: &[u8]) -> bool {
        self.listed.binary_search(&key).is_ok()
    }
}

/// The reason why a call has no answer.
enum Refused {
    /// An error for the script.
    Text(String),
    /// An error for the script: too little memory.
    Memory(String),
    /// The script must run again, with its keys of this database as well.
    Elsewhere(u8),
}

impl From<&str> for Refused {
    fn from(text: &str) -> Refused {
        Refused::Text(text.to_owned())
    }
}

impl<'c> Caller<'c> {
    /// Prepares for the calls of a script: the database that it starts in, and the bytes that it may write.
    pub(super) fn begin(&mut self, call: &Call<'c>, database: u8, made_max: usize) {
        self.keys.set(call.command.arguments(3).take(call.keys));
        self.is_read_only = call.is_read_only || call.script.is_read_only;
        self.made_max = self.view.made_bytes() + made_max;
        self.is_first = true;
        self.elsewhere = None;
        // A database selected by an earlier script does not affect this one.
        self.session.enter(database);
        self.view.database = database;
    }

    /// Runs a call. Returns the answer, or the table of an error unless `raises`.
    pub(super) fn call(&mut self, lua: &Lua, arguments: &MultiValue, raises: bool) -> mlua::Result<Value> {
        // The time was checked just before the script began, and is checked while it computes, so the first call
        // skips that check.
        let is_first = std::mem::replace(&mut self.is_first, false);
        let may_go_on = if is_first { self.reins.check_asked() } else { self.reins.check() };
        may_go_on.map_err(errors::Raised::Stop)?;
        let failed = |text: String| match raises {
            true => Err(errors::reply(&text)),
            false => errors::error_table(lua, format!("ERR {text}").as_bytes()),
        };
        let outcome = self.run(arguments);
        let answer = self.replies.joined();
        match outcome {
            Ok(()) => match from_reply::error_in(answer) {
                Some(text) if raises => Err(errors::Raised::Reply(text.to_vec()).into()),
                _ => shown(lua, answer, self.memory_limit),
            },
            Err(Refused::Text(text)) => failed(text),
            Err(Refused::Elsewhere(database)) => {
                self.elsewhere = Some(database);
                Err(errors::Raised::Stop(self.reins.stop(Stop::Elsewhere)).into())
            }
            Err(Refused::Memory(text)) => {
                self.reins.lacks_memory().map_err(errors::Raised::Stop)?;
                failed(text)
            }
        }
    }

    /// Returns the limit of the bytes of a command. Arguments are copied, and the same string may occur very often
    /// among them, so their sum may far exceed the script's memory.
    fn command_bytes_max(&self) -> usize {
        self.made_max.max(self.answer_max).saturating_add(BESIDE_VALUES_BYTES).min(u32::MAX as usize)
    }

    /// Copies the arguments of a call.
    fn copied(&self, arguments: &MultiValue) -> Result<Copied, Refused> {
        if arguments.is_empty() {
            return Err("Please specify at least one argument for this redis lib call".into());
        }
        let most = self.command_bytes_max();
        Copied::of_each(arguments, |value, bytes| {
            let mut put = |argument: &[u8]| match bytes.len() + argument.len() > most {
                true => Err(Refused::Memory(format!("a command has more than {most} bytes (script-memory)"))),
                false => {
                    bytes.extend_from_slice(argument);
                    Ok(())
                }
            };
            match value {
                Value::String(text) => put(&text.as_bytes()),
                Value::Integer(number) => put(spelled(*number as f64, 17).as_bytes()),
                Value::Number(number) => put(spelled(*number, 17).as_bytes()),
                _ => Err("Lua redis lib command arguments must be strings or integers".into()),
            }
        })
    }

    /// Runs a command; its answer is left in `replies`.
    fn run(&mut self, arguments: &MultiValue) -> Result<(), Refused> {
        self.replies.clear();
        let copied = self.copied(arguments)?;
        let command = copied.command();
        let verb = admit_in_script(command, self.session, self.service).map_err(Refused::Text)?;
        self.check(verb, command)?;
        self.replies.protocol = match self.reins.protocol.load(std::sync::atomic::Ordering::Relaxed) {
            3 => Protocol::Resp3,
            _ => Protocol::Resp2,
        };
        self.replies.limit(self.answer_max);
        self.tally.ended(verb.counted_row, 1);
        self.session.remember_read(verb, command);
        self.session.asks_about_all |= verb.is_about_all();
        if matches!(verb.run, Run::Update(_)) && self.reins.write().is_err() {
            return Err("".into());
        }
        if !verb.run_on(command, self.view, &mut self.replies) {
            // DBSIZE includes the keys that the script added.
            let grown = self.view.grown()[usize::from(self.view.database)];
            self.session.uncommitted_keys = grown;
            verb.answer(command, self.session, self.service, &mut self.replies);
            self.session.uncommitted_keys = 0;
        }
        if let Some(outbox) = &mut self.session.outbox {
            self.service.events.put(self.view.take_events(), outbox);
        }
        if self.replies.take_errors() > 0 {
            self.tally.failed(verb.counted_row);
        }
        match self.replies.unlimit() {
            true => Err(Refused::Memory(format!(
                "cannot answer: it would take more than {} bytes",
                self.answer_max
            ))),
            false => Ok(()),
        }
    }

    /// Checks the limits of a script for a command, and follows a SELECT.
    fn check(&mut self, verb: &'static Verb, command: Command<'_>) -> Result<(), Refused> {
        let publishes = verb.names_channels();
        if self.is_read_only && (publishes || matches!(verb.run, Run::Update(_))) {
            return Err("Write commands are not allowed from read-only scripts.".into());
        }
        if durability::own(command, verb).is_some() {
            return Err(
                "DURABILITY is not allowed from script: what a script writes is acknowledged as one".into()
            );
        }
        // Channel names are not keys, although COMMAND reports their positions like those of keys.
        if !publishes {
            self.check_keys(verb, command)?;
        }
        if let Databases::Selected = verb.databases {
            self.choose(command)?;
        }
        let published = self.session.outbox.as_ref().map_or(0, Outbox::bytes);
        // Keyspace events are published together with the script's messages.
        if (publishes || published > 0) && published + command.bytes() > self.answer_max {
            let most = self.answer_max;
            let text = format!(
                "the script publishes more than {most} bytes, what is told of keys among it (script-memory)"
            );
            return Err(Refused::Memory(text));
        }
        Ok(())
    }

    /// Switches the view to the database that a SELECT chooses, if it exists.
    fn choose(&mut self, command: Command<'_>) -> Result<(), Refused> {
        let Ok(database) = selected(command, self.service.config.databases) else { return Ok(()) };
        if !self.keys.listed.iter().all(|key| self.view.has(database, key)) {
            return Err(Refused::Elsewhere(database));
        }
        self.view.database = database;
        Ok(())
    }

    /// Checks that the script declared the command's keys, and that the values made by the command fit.
    fn check_keys(&self, verb: &'static Verb, command: Command<'_>) -> Result<(), Refused> {
        let (mut sum, mut largest) = (0, 0);
        let databases = self.service.databases().len();
        for (database, index) in places(verb, command, self.view.database, databases) {
            let key = command.argument(index);
            if !self.keys.has(key) {
                let shown = String::from_utf8_lossy(key);
                return Err(Refused::Text(format!(
                    "{NOT_DECLARED}: '{shown}' (Esker runs a script over the keys that it declares: pass it in KEYS)"
                )));
            }
            let bytes = self.view.value_bytes(database, key).ok_or(Refused::Elsewhere(database))?;
            (sum, largest) = (sum + bytes, largest.max(bytes));
        }
        let sizes = &verb.sizes;
        if sizes.compared.is_some_and(|needed| needed(largest, sum - largest) > self.made_max) {
            let most = self.made_max;
            let text = format!("cannot compare: it would take more than {most} bytes (script-memory)");
            return Err(Refused::Memory(text));
        }
        if !matches!(verb.run, Run::Update(_)) {
            return Ok(());
        }
        let after = (sizes.after)(command, largest, self.view.value_bytes_max);
        let repeated = || {
            let named = places(verb, command, self.view.database, databases);
            repeated_bytes(named.filter_map(|(database, index)| {
                let key = command.argument(index);
                Some(((database, key), self.view.value_bytes(database, key)?))
            }))
        };
        let moved = (sizes.moved)(command, &Values { sum, after, repeated: &repeated });
        let made = moved.max(after).saturating_add(self.view.made_bytes());
        match made > self.made_max {
            true => Err(Refused::Memory(format!(
                "the script writes values of more than {} bytes (script-memory)",
                self.made_max
            ))),
            false => Ok(()),
        }
    }
}

/// Returns an answer as a Lua value. A short one is built without a memory limit, because limited allocation is slow.
fn shown(lua: &Lua, answer: &[u8], memory_limit: usize) -> mlua::Result<Value> {
    if answer.len() > UNLIMITED_BYTES {
        return from_reply::value_of(lua, answer);
    }
    let _ = lua.set_memory_limit(0);
    let value = from_reply::value_of(lua, answer);
    let _ = lua.set_memory_limit(memory_limit);
    value
}
