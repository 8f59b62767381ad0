//! The end of a replica whose node is no member of the group any more: its keys are deleted, and its log is voided.
//!
//! 1. The node asks the leader for the members. The leader confirms its leadership after the question, and answers only if no
//!    change is in progress: so the membership in the answer is committed, and no later one was proposed before it.
//! 2. If the node is none of the members, it stops its member of the group, unless a request with entries came since the
//!    question: then the node may have been added again, and have acknowledged entries.
//! 3. The id of the membership is noted, durably, before anything is deleted. From then on the replica votes for no candidate
//!    whose log ends before it: a candidate that has not heard of the change counts this vote, and the log that would have
//!    refused that candidate is void.
//! 4. The keyspace is deleted and the log voided, as for a snapshot that does not arrive. A crash in between is completed by
//!    the next start. A leader that adds the node again finds an empty replica.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use esker_seeded_bugs::{Bug, planted};

use super::status::count;
use super::{Group, Slot};
use crate::raft::error::GroupError;
use crate::raft::network::RaftRequest;

impl Group {
    /// Returns true if the replica holds entries or keys, or a part of a snapshot.
    pub fn holds(&self) -> bool {
        matches!(*self.slot.lock(), Slot::Installing) || self.store.has_content()
    }

    /// Returns the number of keys of the group that the node holds.
    pub fn keys(&self) -> u64 {
        self.parts.keys.len()
    }

    /// Returns the bytes of keys and values sent in snapshots since the start.
    pub fn copied_bytes(&self) -> u64 {
        self.counters.snapshot_bytes.load(Ordering::Relaxed)
    }

    /// Returns the members of a group that this node leads, and the id of the entry with the membership.
    ///
    /// # Errors
    /// `NotReady` or `NoMajority`; `Refused` while a change is in progress.
    pub async fn members(self: &Arc<Group>) -> Result<(Vec<u64>, Bytes), GroupError> {
        self.confirm().await?;
        let members = self.member()?.settled_members();
        members.ok_or_else(|| GroupError::Refused("a change of the members is in progress".into()))
    }

    /// Returns the number of requests so far that may have added to the log.
    pub fn additions(&self) -> u64 {
        self.additions.load(Ordering::Relaxed)
    }

    /// Gives the space of the replica back. `additions`: their number before the members were asked for; `id`: that of the
    /// membership without this node.
    ///
    /// # Errors
    /// If entries came since, a snapshot is being received, or the replica has stopped.
    pub async fn retire(self: &Arc<Group>, additions: u64, id: &[u8]) -> Result<(), String> {
        let mut incoming = self.incoming.lock().await;
        let instance = {
            let mut slot = self.slot.lock();
            if self.additions() != additions {
                return Err("entries came since the members were asked for".into());
            }
            let instance = match &*slot {
                Slot::Running(instance) => instance.clone(),
                Slot::Installing => return Err("a snapshot is being received".into()),
                Slot::Stopped(why) => return Err(why.clone()),
            };
            *slot = Slot::Installing;
            instance
        };
        self.no_longer_serves();
        instance.stop().await;
        self.machine.own.lock().clear();
        *incoming = None;
        if !planted(Bug::RetiredReplicaVotes) {
            self.store.note_exclusion(id).await.map_err(|error| self.fail(error))?;
        }
        self.store.begin_install().await.map_err(|error| self.fail(error))?;
        self.void_keyspace().await.map_err(|error| self.fail(error))?;
        self.start_member().await.map_err(|error| self.fail(error))?;
        count(&self.counters.retirements, 1);
        Ok(())
    }

    /// Refuses to vote for a candidate that has not heard that this node has left the group.
    pub(super) fn check_heard_of_exclusion(&self, request: &RaftRequest) -> Result<(), String> {
        let noted = self.store.exclusion().map_err(|error| error.to_string())?;
        match noted {
            Some(id) if request.is_of_candidate_before(&id) => {
                Err("the log of the candidate lacks the change by which this node left the group".into())
            }
            _ => Ok(()),
        }
    }
}
