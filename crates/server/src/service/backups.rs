//! Backups that clients ask for, one at a time.
//!
//! A backup runs on a thread of its own, which nothing waits for: a write to its target may never return, and the server must
//! stop all the same. What such a backup left is removed by the next prune.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use esker_backup::backup;
use esker_engine::Store;

/// Where backups go, and how the last ones went.
pub(crate) struct Backups {
    directory: Option<PathBuf>,
    state: Mutex<State>,
}

/// What is known of them.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct State {
    /// Since when one is being taken.
    pub(crate) running_since: Option<Instant>,
    /// That one was cancelled, and has not ended yet.
    pub(crate) cancelled: bool,
    /// When the last one that succeeded had ended, in milliseconds since the Unix epoch. After a start, when the newest of the
    /// directory was taken.
    pub(crate) saved_at_ms: Option<u64>,
    /// Whether the last one failed.
    pub(crate) failed: bool,
    /// How many seconds the last one took.
    pub(crate) took_s: Option<u64>,
    /// How many failed since the start.
    pub(crate) failures: u64,
}

/// Why none is begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    /// Nobody said where it should go.
    NoDirectory,
    /// One is being taken.
    Running,
    /// One was cancelled and has not ended yet.
    Cancelled,
    /// The system gives no thread.
    NoThread,
}

impl Backups {
    pub(crate) fn new(directory: Option<PathBuf>) -> Arc<Backups> {
        let backups = Arc::new(Backups { directory, state: Mutex::default() });
        let this = backups.clone();
        if let Some(directory) = this.directory.clone() {
            // There may be many manifests, so they are read on a thread of their own.
            let read = std::thread::Builder::new().name("esker-backups".to_owned());
            let _ = read.spawn(move || this.note_newest(newest(&directory)));
        }
        backups
    }

    /// What is known of backups, if they have a place to go.
    pub(crate) fn known(&self) -> Option<State> {
        self.directory.as_ref().map(|_| self.state())
    }

    /// Takes note of the newest backup of the directory, unless a newer one was taken meanwhile.
    fn note_newest(&self, taken_at_ms: Option<u64>) {
        self.change(|state| state.saved_at_ms = state.saved_at_ms.max(taken_at_ms));
    }

    pub(crate) fn state(&self) -> State {
        *self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// Begins to take a backup, on a thread of its own.
    pub(crate) fn begin(self: &Arc<Backups>, store: &Store) -> Result<(), Refused> {
        let directory = self.directory.clone().ok_or(Refused::NoDirectory)?;
        let began = Instant::now();
        let mut is_first = false;
        self.change(|state| {
            is_first = state.running_since.is_none();
            state.running_since.get_or_insert(began);
        });
        if !is_first {
            return Err(if self.state().cancelled { Refused::Cancelled } else { Refused::Running });
        }
        let (this, store) = (self.clone(), store.clone());
        let work = move || {
            // Before there is a checkpoint, there is none to cancel.
            let look = || {
                if this.state().cancelled {
                    store.cancel_checkpoint("BGSAVE CANCEL was called");
                }
            };
            let succeeded = take(&store, &directory, look);
            let now_ms = store.now_ms();
            this.change(|state| {
                state.running_since = None;
                state.cancelled = false;
                state.failed = !succeeded;
                state.failures += u64::from(!succeeded);
                state.took_s = Some(began.elapsed().as_secs());
                if succeeded {
                    state.saved_at_ms = Some(now_ms);
                }
            });
        };
        match std::thread::Builder::new().name("backup".into()).spawn(work) {
            Ok(_) => Ok(()),
            Err(error) => {
                tracing::error!(%error, "no thread for a backup");
                self.change(|state| state.running_since = None);
                Err(Refused::NoThread)
            }
        }
    }

    /// Cancels the backup that is being taken: the segments that it keeps are released at once, and it ends as failed when the
    /// write that it waits for has returned. Returns false if none is being taken.
    pub(crate) fn cancel(&self, store: &Store) -> bool {
        let mut is_running = false;
        self.change(|state| {
            is_running = state.running_since.is_some();
            (state.cancelled, state.failed) = (is_running, state.failed || is_running);
        });
        is_running && {
            store.cancel_checkpoint("BGSAVE CANCEL was called");
            true
        }
    }
}

/// When the newest backup of a directory was taken that is whole, in milliseconds since the Unix epoch; `None` if there is none,
/// or if the directory cannot be read, which the next backup will say.
fn newest(directory: &Path) -> Option<u64> {
    let all = esker_backup::list(directory).ok()?;
    all.iter().filter(|backup| backup.unread.is_empty()).map(|backup| backup.taken_at_ms).max()
}

/// Takes a backup, and says how it went; false if it failed.
fn take(store: &Store, directory: &Path, mut look: impl FnMut()) -> bool {
    match backup(store, directory, 0, |_| look()) {
        Ok(report) => {
            let (backup, keys, copied_bytes) = (report.summary.id, report.summary.keys, report.copied_bytes);
            tracing::info!(backup, keys, copied_bytes, took = ?report.took, "a backup was taken");
            true
        }
        // It may be the best that can be had, but counts as none.
        Err(error @ esker_backup::Error::Unread(_)) => {
            tracing::error!(%error, directory = %directory.display(), "a backup was taken that is not whole");
            false
        }
        Err(error) => {
            tracing::error!(%error, directory = %directory.display(), "no backup was taken");
            false
        }
    }
}
