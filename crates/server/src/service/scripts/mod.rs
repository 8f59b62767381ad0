//! Scripts: the script cache, idle interpreters, and the long scripts that are running.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use tokio::sync::{Semaphore, SemaphorePermit};

use self::cache::Cache;
use self::control::Reins;
use self::interpreter::Interpreter;

pub(crate) mod cache;
pub(crate) mod control;
pub(crate) mod interpreter;

/// Maximum memory that an interpreter keeps between two scripts, in bytes.
pub(crate) const IDLE_BYTES: usize = 512 << 10;

/// See the module.
pub(crate) struct Scripts {
    cache: Mutex<Cache>,
    idle: Mutex<Vec<Interpreter>>,
    idle_max: usize,
    /// Running long scripts.
    long: Mutex<Vec<Arc<Reins>>>,
    /// State of the scripts' random number generator; each script continues from its predecessor.
    pub(crate) random: AtomicU64,
    /// Permits for long scripts.
    turns: OnceLock<Semaphore>,
    /// True when the server is stopping: no further script runs for long.
    closes: AtomicBool,
}

/// Reason why SCRIPT KILL ended no script.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NotKilled {
    /// No script is running.
    Idle,
    /// All running scripts have written.
    Wrote,
}

/// Registration of a long script, removed on drop.
pub(crate) struct Running<'s> {
    scripts: &'s Scripts,
    reins: Arc<Reins>,
    _turn: SemaphorePermit<'s>,
}

impl Scripts {
    /// Creates the state for cached scripts and idle interpreters of at most `bytes` together.
    pub(crate) fn new(bytes: usize) -> Scripts {
        Scripts {
            cache: Mutex::new(Cache::new(bytes / 2)),
            idle: Mutex::default(),
            idle_max: (bytes / 2 / IDLE_BYTES).max(1),
            long: Mutex::default(),
            random: AtomicU64::new(0x330E),
            turns: OnceLock::new(),
            closes: AtomicBool::new(false),
        }
    }

    pub(crate) fn cache(&self) -> MutexGuard<'_, Cache> {
        self.cache.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns an idle interpreter.
    pub(crate) fn take_idle(&self) -> Option<Interpreter> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop()
    }

    /// Keeps an interpreter for the next script, unless enough are idle.
    pub(crate) fn give_back(&self, interpreter: Interpreter) {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        if idle.len() < self.idle_max {
            idle.push(interpreter);
        }
    }

    /// Waits for a permit to run a long script. There are half as many permits as serving threads, but at least two.
    pub(crate) async fn long_turn(&self) -> Running<'_> {
        let turns = self.turns.get_or_init(|| {
            let workers = tokio::runtime::Handle::current().metrics().num_workers();
            Semaphore::new((workers / 2).max(2))
        });
        let turn = turns.acquire().await.expect("the semaphore is never closed");
        let reins = Arc::new(Reins::default());
        let mut running = self.running();
        running.push(reins.clone());
        if self.closes.load(Ordering::SeqCst) {
            reins.close();
        }
        drop(running);
        Running { scripts: self, reins, _turn: turn }
    }

    /// Ends the long scripts that have not written.
    pub(crate) fn kill(&self) -> Result<(), NotKilled> {
        let running = self.running();
        let begun = running.iter().filter(|reins| reins.has_begun());
        let killed = begun.clone().filter(|reins| reins.kill()).count();
        match (begun.count(), killed) {
            (0, _) => Err(NotKilled::Idle),
            (_, 0) => Err(NotKilled::Wrote),
            _ => Ok(()),
        }
    }

    /// Ends all long scripts, including those that start later. Their writes are discarded.
    pub(crate) fn close(&self) {
        let running = self.running();
        self.closes.store(true, Ordering::SeqCst);
        running.iter().for_each(|reins| reins.close());
    }

    fn running(&self) -> MutexGuard<'_, Vec<Arc<Reins>>> {
        self.long.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Running<'_> {
    pub(crate) fn reins(&self) -> &Arc<Reins> {
        &self.reins
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.scripts.running().retain(|reins| !Arc::ptr_eq(reins, &self.reins));
    }
}
