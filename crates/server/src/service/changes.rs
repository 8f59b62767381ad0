//! Distribution of the store's changes to subscribers of keyspace events and to clients with cached keys.

use std::sync::{Arc, Mutex, PoisonError};

use esker_engine::{Change, Observation, Observer, Store};
use tokio::task::yield_now;

use super::events::Events;
use super::tracking::Tracking;

/// The receivers of changes.
struct Told {
    store: Store,
    events: Arc<Events>,
    tracking: Arc<Tracking>,
}

impl Observer for Told {
    fn changed(&self, change: &Change<'_>) {
        let database = || self.store.database_of_keyspace(change.keyspace).unwrap_or(change.keyspace);
        self.events.changed(change, database);
        self.tracking.changed(change, database);
    }

    fn cleared(&self, _keyspace: Option<u8>) {
        self.tracking.cleared();
    }

    /// The tracking table holds key names without a database, and in two databases the names now refer to other keys.
    fn swapped(&self, _keyspaces: [u8; 2]) {
        self.tracking.cleared();
    }

    fn missed(&self, _keyspace: u8) {
        self.tracking.cleared();
    }
}

/// Observation of the store, which exists only while there are receivers.
pub(crate) struct Changes {
    told: Arc<Told>,
    observation: Mutex<Option<Observation>>,
}

impl Changes {
    pub(crate) fn new(store: &Store, events: Arc<Events>, tracking: Arc<Tracking>) -> Changes {
        let told = Arc::new(Told { store: store.clone(), events, tracking });
        Changes { told, observation: Mutex::new(None) }
    }

    /// Starts or stops observing the store, depending on whether any client needs its changes. To be called after that may have
    /// changed.
    pub(crate) fn observe_as_needed(&self) {
        let told = &self.told;
        let mut observation = self.observation.lock().unwrap_or_else(PoisonError::into_inner);
        let is_needed = told.tracking.clients() > 0 || told.events.need_the_store();
        match is_needed {
            true if observation.is_some() => {}
            true => *observation = Some(told.store.observe(told.clone())),
            false => *observation = None,
        }
    }

    /// Sends invalidations of keys under prefixes as changes arrive.
    pub(crate) async fn run(&self) {
        loop {
            self.told.tracking.waits().await;
            while self.told.tracking.broadcast() {
                yield_now().await;
            }
            self.observe_as_needed();
        }
    }
}
