//! An interpreter of Lua that runs one script after the other.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use mlua::{Function, Lua, Table};

use super::cache::Sha;
use super::control::Reins;

/// Scripts that an interpreter keeps compiled.
const COMPILED_MAX: usize = 64;

/// The reins of the run at hand, as functions of the interpreter reach them.
#[derive(Clone, Default)]
pub(crate) struct Held(Arc<Shared>);

#[derive(Default)]
struct Shared {
    reins: Mutex<Arc<Reins>>,
    /// When the hook last looked at the clock.
    looked: Mutex<Option<Instant>>,
    is_over: AtomicBool,
    /// Whether the hook looks more often than at the begin of a run.
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

    /// Notes whether a script was ended, and is stopped at each of its instructions.
    pub(crate) fn note_over(&self, is_over: bool) {
        self.0.is_over.store(is_over, Ordering::Relaxed);
    }

    /// Notes a look at the clock. Returns the one before it in this run.
    pub(crate) fn looked_at(&self, now: Option<Instant>) -> Option<Instant> {
        std::mem::replace(&mut *self.0.looked.lock().unwrap_or_else(PoisonError::into_inner), now)
    }

    /// Notes whether the hook looks more often than at the begin of a run. Returns the old value.
    pub(crate) fn note_slow(&self, is_slow: bool) -> bool {
        self.0.is_slow.swap(is_slow, Ordering::Relaxed)
    }

    pub(crate) fn is_over(&self) -> bool {
        self.0.is_over.load(Ordering::Relaxed)
    }

    /// Notes that a script has the functions that write into a table without asking it.
    pub(crate) fn note_tables(&self) {
        self.0.has_tables.store(true, Ordering::Relaxed);
    }

    /// Whether it had them; from here on it has not.
    pub(crate) fn take_tables(&self) -> bool {
        self.0.has_tables.swap(false, Ordering::Relaxed)
    }

    /// Whether the next call of a command answers an error instead of raising it. Tells how it was.
    pub(crate) fn catch_next(&self, catches: bool) -> bool {
        self.0.catches_next.swap(catches, Ordering::Relaxed)
    }
}

/// See the module.
pub(crate) struct Interpreter {
    pub(crate) lua: Lua,
    pub(crate) held: Held,
    /// What scripts see as their globals.
    pub(crate) environment: Table,
    /// Lua's own `load`, which takes a text from a function.
    pub(crate) load: Function,
    /// The table `redis`, which scripts cannot change.
    pub(crate) redis: Table,
    /// Calls a script, after its KEYS and ARGV are set.
    pub(crate) run: Function,
    /// Removes what a script left behind.
    pub(crate) clean: Function,
    /// Whether its last run was a first attempt; none before it has run.
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
