//! Compacting when asked to. Nobody has to: garbage is collected by itself, as far as the reserve asks for it.

use std::sync::Arc;

use parking_lot::Mutex;

use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::gate::Gate;

/// Whether somebody waits for the store to be compact.
#[derive(Default)]
pub(crate) struct Compaction {
    asked: Mutex<Option<Arc<Gate>>>,
}

impl Engine {
    /// Relocates whatever gives something back.
    pub(crate) async fn compact(&self) -> Result<()> {
        self.check_writable()?;
        self.flush().await?;
        let gate = self.compaction.asked.lock().get_or_insert_with(Gate::new).clone();
        if let Err(error) = self.check_writable() {
            // Whoever would open it may have looked before it was there.
            self.compacted(Err(error));
        }
        self.reclaim.notify_one();
        gate.wait().await
    }

    /// Whether somebody asked for it.
    pub(crate) fn is_compacting(&self) -> bool {
        self.compaction.asked.lock().is_some()
    }

    /// There is nothing left to collect, or nobody to do it.
    pub(crate) fn compacted(&self, how: Result<()>) {
        if let Some(gate) = self.compaction.asked.lock().take() {
            gate.open(how);
        }
    }

    /// The reclaimer ends.
    pub(crate) fn compaction_ended(&self) {
        self.compacted(Err(Error::Closed { reason: "it was closed while it was compacted".into() }));
    }
}
