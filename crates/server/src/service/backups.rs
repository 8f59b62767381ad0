//! Backups requested by clients, one at a time.
//!
//! A backup runs on its own thread, which is never joined: a write to its target may never return, and the server must stop
//! nevertheless. Files of an unfinished backup are removed by the next prune.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use esker_backup::backup;
use esker_engine::Store;

/// Target directory of backups, and the state of the last ones.
pub(crate) struct Backups {
    directory: Option<PathBuf>,
    state: Mutex<BackupState>,
}

/// State of backups.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct BackupState {
    /// Start of the running backup.
    pub(crate) running_since: Option<Instant>,
    /// True if the running backup was cancelled and has not ended yet.
    pub(crate) cancelled: bool,
    /// End of the last successful backup, in milliseconds since the Unix epoch. After a start, the time of the newest backup in
    /// the directory.
    pub(crate) saved_at_ms: Option<u64>,
    /// True if the last backup failed.
    pub(crate) failed: bool,
    /// Duration of the last backup in seconds.
    pub(crate) took_s: Option<u64>,
    /// Number of failed backups since the start.
    pub(crate) failures: u64,
}

/// Reason for not starting a backup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    /// No directory is configured.
    NoDirectory,
    /// Another backup is running.
    Running,
    /// A cancelled backup has not ended yet.
    Cancelled,
    /// The system cannot start a thread.
    NoThread,
}

impl Backups {
    pub(crate) fn new(directory: Option<PathBuf>) -> Arc<Backups> {
        let backups = Arc::new(Backups { directory, state: Mutex::default() });
        let this = backups.clone();
        if let Some(directory) = this.directory.clone() {
            // There may be many manifests, so a separate thread reads them.
            let read = std::thread::Builder::new().name("esker-backups".to_owned());
            let _ = read.spawn(move || this.note_newest(newest(&directory)));
        }
        backups
    }

    /// Returns the state of backups, if a directory is configured.
    pub(crate) fn known(&self) -> Option<BackupState> {
        self.directory.as_ref().map(|_| self.state())
    }

    /// Records the newest backup of the directory, unless a newer one was taken meanwhile.
    fn note_newest(&self, taken_at_ms: Option<u64>) {
        self.change(|state| state.saved_at_ms = state.saved_at_ms.max(taken_at_ms));
    }

    pub(crate) fn state(&self) -> BackupState {
        *self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, change: impl FnOnce(&mut BackupState)) {
        change(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// Starts a backup on its own thread.
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
            // `cancel` has no effect before the checkpoint exists, so the request is repeated here.
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
                tracing::error!(%error, "cannot start a thread for the backup");
                self.change(|state| state.running_since = None);
                Err(Refused::NoThread)
            }
        }
    }

    /// Cancels the running backup. The segments that it keeps are released at once; the backup ends as failed when its pending
    /// write returns. Returns false if no backup is running.
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

/// Returns the time of the newest complete backup in a directory, in milliseconds since the Unix epoch; `None` without one, or if
/// the directory is unreadable, which the next backup reports.
fn newest(directory: &Path) -> Option<u64> {
    let all = esker_backup::list(directory).ok()?;
    all.iter().filter(|backup| backup.unread.is_empty()).map(|backup| backup.taken_at_ms).max()
}

/// Takes a backup and logs the outcome. Returns false if it failed.
fn take(store: &Store, directory: &Path, mut look: impl FnMut()) -> bool {
    match backup(store, directory, 0, |_| look()) {
        Ok(report) => {
            let (backup, keys, copied_bytes) = (report.summary.id, report.summary.keys, report.copied_bytes);
            tracing::info!(backup, keys, copied_bytes, took = ?report.took, "backup complete");
            true
        }
        // The backup may be the best possible one, but it does not count as successful.
        Err(error @ esker_backup::Error::Unread(_)) => {
            tracing::error!(%error, directory = %directory.display(), "backup incomplete");
            false
        }
        Err(error) => {
            tracing::error!(%error, directory = %directory.display(), "backup failed");
            false
        }
    }
}
