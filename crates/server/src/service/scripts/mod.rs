//! Scripts: those that are known, the interpreters that run them, and those that run for long right now.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use tokio::sync::{Semaphore, SemaphorePermit};

use self::cache::Cache;
use self::control::Reins;
use self::interpreter::Interpreter;

pub(crate) mod cache;
pub(crate) mod control;
pub(crate) mod interpreter;

/// What an interpreter keeps at most between two scripts.
pub(crate) const IDLE_BYTES: usize = 512 << 10;

/// See the module.
pub(crate) struct Scripts {
    cache: Mutex<Cache>,
    idle: Mutex<Vec<Interpreter>>,
    idle_max: usize,
    /// Scripts that run for long.
    long: Mutex<Vec<Arc<Reins>>>,
    /// Where the random numbers of scripts are: each goes on where one before it was.
    pub(crate) random: AtomicU64,
    /// How many of those there may be.
    turns: OnceLock<Semaphore>,
    /// Whether the server stops, so that no script runs for long any more.
    closes: AtomicBool,
}

/// Why nothing was killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NotKilled {
    /// No script runs.
    Idle,
    /// All that run have written.
    Wrote,
}

/// A script that runs for long is known as such until this is dropped.
pub(crate) struct Running<'s> {
    scripts: &'s Scripts,
    reins: Arc<Reins>,
    _turn: SemaphorePermit<'s>,
}

impl Scripts {
    /// What scripts that are known and interpreters that are idle may take together.
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

    /// An interpreter that is idle.
    pub(crate) fn take_idle(&self) -> Option<Interpreter> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop()
    }

    /// Keeps an interpreter for the next script, unless enough are kept.
    pub(crate) fn give_back(&self, interpreter: Interpreter) {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        if idle.len() < self.idle_max {
            idle.push(interpreter);
        }
    }

    /// Waits until there may be one more script that runs for long. Half of the threads that serve clients may have one.
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

    /// Ends those that run for long and have not written.
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

    /// Ends all long scripts, also one that starts later. Their writes are dropped.
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
