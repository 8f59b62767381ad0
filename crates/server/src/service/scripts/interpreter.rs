//! A Lua interpreter that runs scripts one after the other.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use mlua::{Function, Lua, Table};

use super::cache::Sha;
use super::control::Reins;

/// Maximum number of compiled scripts kept by an interpreter.
const COMPILED_MAX: usize = 64;

/// The reins of the current run, for functions of the interpreter.
#[derive(Clone, Default)]
pub(crate) struct Held(Arc<Shared>);

#[derive(Default)]
struct Shared {
    reins: Mutex<Arc<Reins>>,
    /// Time of the hook's last check.
    looked: Mutex<Option<Instant>>,
    is_over: AtomicBool,
    /// True if the hook checks more often than at the begin of a run.
    is_slow: AtomicBool,
    catches_next: AtomicBool,
    has_tables: AtomicBool,
}

impl Held {
    pub(crate) fn get(&self) -> Arc<Reins> {
        self.0.reins.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn set(&self, reins: Arc<Reins>) {
        *self.0.reins.lock().unwrap_or_else(PoisonError::into_inner) = reins;
    }

    /// Records that a script was ended, so that each of its instructions raises the error, or resets that.
    pub(crate) fn note_over(&self, is_over: bool) {
        self.0.is_over.store(is_over, Ordering::Relaxed);
    }

    /// Records the time of a check. Returns that of the previous check in this run.
    pub(crate) fn looked_at(&self, now: Option<Instant>) -> Option<Instant> {
        std::mem::replace(&mut *self.0.looked.lock().unwrap_or_else(PoisonError::into_inner), now)
    }

    /// Records whether the hook checks more often than at the begin of a run. Returns the old value.
    pub(crate) fn note_slow(&self, is_slow: bool) -> bool {
        self.0.is_slow.swap(is_slow, Ordering::Relaxed)
    }

    pub(crate) fn is_over(&self) -> bool {
        self.0.is_over.load(Ordering::Relaxed)
    }

    /// Records that the script obtained the `table` library, whose functions bypass the metatables of shared tables.
    pub(crate) fn note_tables(&self) {
        self.0.has_tables.store(true, Ordering::Relaxed);
    }

    /// Returns true if the script obtained the library, and resets that.
    pub(crate) fn take_tables(&self) -> bool {
        self.0.has_tables.swap(false, Ordering::Relaxed)
    }

    /// Sets whether the next command returns its error instead of raising it. Returns the old value.
    pub(crate) fn catch_next(&self, catches: bool) -> bool {
        self.0.catches_next.swap(catches, Ordering::Relaxed)
    }
}

/// See the module.
pub(crate) struct Interpreter {
    pub(crate) lua: Lua,
    pub(crate) held: Held,
    /// Global variables as scripts see them.
    pub(crate) environment: Table,
    /// Lua's own `load`, which reads its text from a function.
    pub(crate) load: Function,
    /// The table `redis`, which is read-only for scripts.
    pub(crate) redis: Table,
    /// Calls a script, after its KEYS and ARGV are set.
    pub(crate) run: Function,
    /// Removes a script's changes to shared tables.
    pub(crate) clean: Function,
    /// True if the last run was a first attempt; `None` before the first run.
    pub(crate) is_short: Option<bool>,
    compiled: HashMap<Sha, Function>,
}

impl Interpreter {
    pub(crate) fn new(
        lua: Lua,
        held: Held,
        [environment, redis]: [Table; 2],
        [load, run, clean]: [Function; 3],
    ) -> Interpreter {
        Interpreter {
            lua,
            held,
            environment,
            load,
            redis,
            run,
            clean,
            is_short: None,
            compiled: HashMap::new(),
        }
    }

    pub(crate) fn compiled(&self, sha: &Sha) -> Option<Function> {
        self.compiled.get(sha).cloned()
    }

    pub(crate) fn keep_compiled(&mut self, sha: Sha, function: Function) {
        if self.compiled.len() >= COMPILED_MAX {
            self.compiled.clear();
        }
        self.compiled.insert(sha, function);
    }

    pub(crate) fn forget_compiled(&mut self) {
        self.compiled.clear();
    }
}
