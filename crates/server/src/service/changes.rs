//! Distribution of the store's changes to subscribers of keyspace events, clients with cached keys, and watches over gRPC.

use std::sync::{Arc, Mutex, PoisonError};

use esker_engine::{Change, Observation, Observer, Store};
use tokio::task::yield_now;

use super::cluster::{Cluster, SPREAD_KEYSPACE};
use super::events::Events;
use super::tracking::Tracking;
use super::watchers::Watchers;

/// The receivers of changes.
struct Told {
    store: Store,
    events: Arc<Events>,
    tracking: Arc<Tracking>,
    watchers: Arc<Watchers>,
    cluster: Option<Arc<Cluster>>,
}

impl Told {
    /// Reports a change of database 0 of a cluster, whose keyspace is its group. Changes of groups that other nodes lead are
    /// reported there.
    fn changed_in_group(&self, change: &Change<'_>, cluster: &Cluster) {
        if cluster.leads(change.key) {
            self.events.changed(change, || 0);
            self.tracking.changed(change, || 0);
            self.watchers.changed(change, SPREAD_KEYSPACE);
        }
    }
}

impl Observer for Told {
    fn changed(&self, change: &Change<'_>) {
        if let Some(cluster) = &self.cluster {
            return self.changed_in_group(change, cluster);
        }
        let database = || self.store.database_of_keyspace(change.keyspace).unwrap_or(change.keyspace);
        self.events.changed(change, database);
        self.tracking.changed(change, database);
        self.watchers.changed(change, change.keyspace);
    }

    fn cleared(&self, keyspace: Option<u8>) {
        self.tracking.cleared();
        match &self.cluster {
            // One group was cleared, and watches are of keys of all groups.
            Some(_) => self.watchers.miss_all(&[SPREAD_KEYSPACE]),
            None => self.watchers.cleared(keyspace),
        }
    }

    /// The tracking table holds key names without a database, and in two databases the names now refer to other keys. Watches
    /// are of a database, which now has other keys, whose changes were not reported.
    fn swapped(&self, keyspaces: [u8; 2]) {
        self.tracking.cleared();
        self.watchers.miss_all(&keyspaces);
    }

    fn missed(&self, keyspace: u8) {
        self.swapped([keyspace; 2]);
    }
}

/// Observation of the store, which exists only while there are receivers.
pub(crate) struct Changes {
    told: Arc<Told>,
    observation: Mutex<Option<Observation>>,
}

impl Changes {
    pub(crate) fn new(
        store: &Store,
        events: Arc<Events>,
        tracking: Arc<Tracking>,
        watchers: Arc<Watchers>,
        cluster: Option<Arc<Cluster>>,
    ) -> Changes {
        let told = Arc::new(Told { store: store.clone(), events, tracking, watchers, cluster });
        Changes { told, observation: Mutex::new(None) }
    }

    /// Starts or stops observing the store, depending on whether any client needs its changes. To be called after that may have
    /// changed.
    pub(crate) fn observe_as_needed(&self) {
        let told = &self.told;
        let mut observation = self.observation.lock().unwrap_or_else(PoisonError::into_inner);
        let is_needed =
            told.tracking.clients() > 0 || told.watchers.count() > 0 || told.events.need_the_store();
        match is_needed {
            true if observation.is_some() => {}
            true => *observation = Some(told.store.observe(told.clone())),
            false => *observation = None,
        }
    }

    /// Returns true if the store is observed.
    #[cfg(test)]
    pub(crate) fn are_observed(&self) -> bool {
        self.observation.lock().unwrap_or_else(PoisonError::into_inner).is_some()
    }

    /// Sends invalidations of keys under prefixes as changes arrive, and stops observing the store after the last receiver.
    pub(crate) async fn run(&self) {
        loop {
            tokio::select! {
                () = self.told.tracking.waits() => {}
                () = self.told.watchers.ended() => {}
            }
            while self.told.tracking.broadcast() {
                yield_now().await;
            }
            self.observe_as_needed();
        }
    }
}
