//! Calls in a cluster: their keys are checked before they run, and their reads are confirmed afterwards.

use std::sync::{Arc, Mutex, PoisonError};

use esker_cluster::slots::slot_of;
use esker_engine::{ClusterError, Error};
use tonic::{Code, Status};

use super::error::{of_cluster, of_store};
use super::pb;
use crate::service::cluster::{Cluster, GroupSet, at_slot};

/// The writes of a call whose answer is no error.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Effect {
    /// The call only reads.
    None,
    /// It wrote, or read that it had nothing to write.
    Possible,
    /// It wrote, so that the answer needs no confirmation.
    Certain,
}

/// The keys that a call has named.
#[derive(Default)]
struct Named {
    groups: GroupSet,
    slot: Option<u16>,
    are_in_several: bool,
}

/// The groups led here when a page of a scan began.
#[derive(Clone, Copy)]
pub(super) struct ScanGroups {
    led: GroupSet,
    /// Number of changes of leadership at that time.
    leader_changes: u64,
}

/// A call of a node of a cluster.
#[derive(Clone)]
pub(super) struct InCluster {
    cluster: Arc<Cluster>,
    named: Arc<Mutex<Named>>,
    /// Number of changes of leadership before the call.
    leader_changes: u64,
}

impl InCluster {
    pub(super) fn new(cluster: Arc<Cluster>) -> InCluster {
        InCluster { leader_changes: cluster.all_leader_changes(), cluster, named: Arc::default() }
    }

    /// Notes a key of the call. Fails unless this node leads its slot.
    pub(super) fn name(&self, key: &[u8]) -> Result<(), Status> {
        let slot = slot_of(key);
        self.cluster.view.check_leads(slot).map_err(|error| self.refusal(&error))?;
        let mut named = self.named.lock().unwrap_or_else(PoisonError::into_inner);
        named.groups.insert(self.cluster.group_of_slot(slot));
        named.are_in_several |= *named.slot.get_or_insert(slot) != slot;
        Ok(())
    }

    /// Returns the groups whose keys a page of a scan that begins now may return.
    pub(super) fn begin_page(&self) -> ScanGroups {
        ScanGroups { led: self.cluster.led().collect(), leader_changes: self.cluster.all_leader_changes() }
    }

    /// Returns true if a page of a scan returns a key.
    pub(super) fn is_scanned(&self, groups: ScanGroups, key: &[u8]) -> bool {
        groups.led.contains(self.cluster.group_of(key))
    }

    /// Confirms that a page of a scan was current. Fails if the node no longer leads one of its groups.
    pub(super) async fn confirm_page(&self, groups: ScanGroups) -> Result<(), Status> {
        let confirmed = self.cluster.confirm(groups.led, groups.leader_changes).await;
        confirmed.map_err(|(_, why)| self.refusal(&why))
    }

    fn refusal(&self, error: &ClusterError) -> Status {
        let address = match error {
            ClusterError::Elsewhere { slot, .. } => self.cluster.grpc_of(*slot),
            _ => None,
        };
        of_cluster(error, address)
    }

    /// Fails unless all keys of the call are in one slot: it is atomic, and groups have logs of their own.
    pub(super) fn check_one_slot(&self) -> Result<(), Status> {
        let named = self.named.lock().unwrap_or_else(PoisonError::into_inner);
        match named.are_in_several {
            false => Ok(()),
            true => Err(of_store(&Error::Cluster(ClusterError::SeveralGroups))),
        }
    }

    /// Returns the answer of a call once its reads are confirmed, or else an error.
    pub(super) async fn confirmed<A>(&self, effect: Effect, answer: Result<A, Status>) -> Result<A, Status> {
        let has_read = match &answer {
            Ok(_) => effect != Effect::Certain,
            // Conditions that did not hold, and sums out of range: nothing was written.
            Err(status) => matches!(status.code(), Code::FailedPrecondition | Code::OutOfRange),
        };
        if !has_read {
            return answer;
        }
        let (groups, slot) = {
            let named = self.named.lock().unwrap_or_else(PoisonError::into_inner);
            (named.groups, named.slot)
        };
        let Err((group, why)) = self.cluster.confirm(groups, self.leader_changes).await else {
            return answer;
        };
        if answer.is_ok() && effect == Effect::Possible {
            return Err(of_cluster(&ClusterError::Uncertain { why: why.to_string() }, None));
        }
        let slot = slot.filter(|slot| self.cluster.group_of_slot(*slot) == group);
        Err(self.refusal(&slot.map_or(why.clone(), |slot| at_slot(&why, slot))))
    }
}

/// Returns true if a condition compares a version.
pub(super) fn is_on_version(condition: Option<&pb::Condition>) -> bool {
    matches!(condition.and_then(|condition| condition.is.as_ref()), Some(pb::condition::Is::Version(_)))
}
