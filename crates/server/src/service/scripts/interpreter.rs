//! An interpreter of Lua that runs one script after the other.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use mlua::{Function, Lua, Table};

use super::cache::Sha;
use super::reins::Reins;

/// Scripts that an interpreter keeps compiled.
const COMPILED_MAX: usize = 64;

/// The reins of the run at hand, as functions of the interpreter reach them.
#[derive(Clone, Default)]
pub(crate) struct Held(Arc<Shared>);

#[derive(Default)]
struct Shared {
    reins: Mutex<Arc<Reins>>,
    is_over: AtomicBool,
    catches_next: AtomicBool,
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

    pub(crate) fn is_over(&self) -> bool {
        self.0.is_over.load(Ordering::Relaxed)
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
    /// The tables of globals behind it, and of `redis`, which scripts cannot change.
    pub(crate) globals: Table,
    pub(crate) redis: Table,
    /// Calls a script.
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
        [environment, globals, redis]: [Table; 3],
        [run, clean]: [Function; 2],
    ) -> Interpreter {
        Interpreter {
            lua,
            held,
            environment,
            globals,
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
