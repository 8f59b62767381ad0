//! Segments that are kept though nothing leads to them any more: somebody has still to read them as they are.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use crate::segments::space::Space;

/// How often whoever waits for a segment looks whether it is still kept.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// The segments that are kept, by number.
#[derive(Default)]
pub(crate) struct KeptSegments {
    /// Held by whoever has segments kept.
    pub(crate) only_one: Arc<tokio::sync::Mutex<()>>,
    state: Mutex<Kept>,
}

#[derive(Default)]
struct Kept {
    segments: BTreeSet<u64>,
    /// One that is to be freed as soon as it may.
    waited_for: Option<u64>,
}

impl KeptSegments {
    /// Keeps segments.
    pub(crate) fn keep(&self, segments: impl IntoIterator<Item = u64>) {
        self.state.lock().segments.extend(segments);
    }

    /// A segment may be freed.
    pub(crate) fn let_go(&self, segment: u64) {
        self.state.lock().segments.remove(&segment);
    }

    /// All may be freed.
    pub(crate) fn let_all_go(&self) {
        self.state.lock().segments.clear();
    }

    /// The segment that somebody waits for, if it is still kept.
    pub(crate) fn waited_for(&self) -> Option<u64> {
        let state = self.state.lock();
        state.waited_for.filter(|segment| state.segments.contains(segment))
    }

    fn wait_for(&self, segment: u64) -> bool {
        let mut state = self.state.lock();
        state.waited_for = Some(segment);
        state.segments.contains(&segment)
    }
}

impl Space {
    /// Waits until a segment may be freed; false if the store ends before.
    pub(crate) async fn is_let_go(&self, segment: u64) -> bool {
        while self.kept.wait_for(segment) {
            if self.health.check_writable().is_err() {
                return false;
            }
            self.runtime.sleep(LOOK_EVERY).await;
        }
        true
    }
}
