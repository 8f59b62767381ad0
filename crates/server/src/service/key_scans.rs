//! SCANs in progress that read in the order of the log. Such a scan has a state, which is kept here between its steps under the
//! cursor of its next step. A scan in the order of the index has none: its cursor is the position.
//!
//! A cursor whose state was dropped begins a scan in the order of the index. It returns every key that exists throughout, as Redis
//! promises, and keys that were returned before again, as Redis allows.

use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use esker_engine::{EntryStream, KeyEntry};
use tokio::time::sleep;

/// Bit of the cursors of scans in log order. Cursors in the order of the index have lower bits only, and clients that store
/// cursors as floating-point numbers lose none up to bit 52.
const LOG_ORDER: u64 = 1 << 48;
/// Number of scans that are kept.
const SCANS_MAX: usize = 16;
/// Time without a step after which a scan is dropped: until then, each write notes its keys for the scan.
const KEPT_FOR: Duration = Duration::from_secs(60);
/// Time without a step after which a scan is dropped if another one needs its memory.
const NEEDED_AFTER: Duration = Duration::from_secs(5);

/// Drops scans without a recent step, until dropped itself.
pub(crate) async fn run(scans: Arc<KeyScans>) {
    loop {
        sleep(KEPT_FOR / 4).await;
        scans.drop_idle(KEPT_FOR);
    }
}

/// A scan between two steps.
pub(crate) struct KeyScan {
    database: u8,
    stream: EntryStream<KeyEntry>,
}

struct Kept {
    cursor: u64,
    since: Instant,
    scan: KeyScan,
}

/// The scans that are kept, in the order of their last steps.
#[derive(Default)]
pub(crate) struct KeyScans(Mutex<State>);

#[derive(Default)]
struct State {
    kept: Vec<Kept>,
    last: u64,
}

/// Returns true if a cursor is that of a scan in log order.
pub(crate) fn is_in_log_order(cursor: u64) -> bool {
    cursor & !(LOG_ORDER - 1) == LOG_ORDER
}

impl KeyScan {
    pub(crate) fn new(database: u8, stream: EntryStream<KeyEntry>) -> KeyScan {
        KeyScan { database, stream }
    }

    pub(crate) fn stream(&mut self) -> &mut EntryStream<KeyEntry> {
        &mut self.stream
    }
}

impl KeyScans {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the scan with a cursor. `None` if its state was dropped, or the step with that cursor was answered before.
    pub(crate) fn take(&self, cursor: u64, database: u8) -> Option<KeyScan> {
        let mut state = self.state();
        let kept = &mut state.kept;
        let at = kept.iter().position(|kept| kept.cursor == cursor && kept.scan.database == database)?;
        Some(kept.remove(at).scan)
    }

    /// Keeps a scan for its next step. Returns the cursor of that step.
    pub(crate) fn keep(&self, scan: KeyScan) -> u64 {
        let mut state = self.state();
        // Unpredictable, so that a cursor of an earlier process is hardly one of this process.
        let random = RandomState::new().hash_one(state.last);
        state.last += 1;
        let cursor = LOG_ORDER | random & (LOG_ORDER - 1);
        state.kept.push(Kept { cursor, since: Instant::now(), scan });
        let oldest = (state.kept.len() > SCANS_MAX).then(|| state.kept.remove(0));
        drop((state, oldest));
        cursor
    }

    /// Drops scans without a recent step, because another scan needs their memory.
    pub(crate) fn make_room(&self) {
        self.drop_idle(NEEDED_AFTER);
    }

    fn drop_idle(&self, after: Duration) {
        let idle: Vec<Kept> =
            self.state().kept.extract_if(.., |kept| kept.since.elapsed() >= after).collect();
        drop(idle);
    }
}
