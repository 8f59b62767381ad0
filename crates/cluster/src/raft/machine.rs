//! The state machine of a group, for openraft.

use std::io;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::{Stream, TryStreamExt};
use openraft::storage::{EntryResponder, RaftStateMachine, Snapshot, SnapshotMeta};
use openraft::{EntryPayload, OptionalSend, RaftSnapshotBuilder};
use parking_lot::Mutex;

use super::types::{LeaderId, LogId, Outcome, StoredMembership, TypeConfig};

type Meta = SnapshotMeta<LeaderId, u64, ()>;
type Shot = Snapshot<LeaderId, u64, (), Bytes>;

/// State that a group replicates. Replicas that applied the same entries are equal.
pub trait GroupMachine: Send + Sync + 'static {
    /// Applies the change of an entry, and returns the result for its writer.
    ///
    /// # Errors
    /// If the machine cannot go on. The replica stops then.
    fn apply(&mut self, index: u64, change: &[u8]) -> io::Result<Bytes>;

    /// Returns the whole state.
    fn snapshot(&self) -> Bytes;

    /// Replaces the whole state.
    ///
    /// # Errors
    /// If the bytes are no state.
    fn restore(&mut self, snapshot: &[u8]) -> io::Result<()>;
}

struct Shared<M> {
    machine: M,
    applied: Option<LogId>,
    membership: StoredMembership,
    current: Option<Shot>,
}

/// A machine with the position up to which it has applied the log. Clones share it. Its state is in memory: a replica that
/// restarts applies its log again.
pub struct MachineShell<M> {
    shared: Arc<Mutex<Shared<M>>>,
}

impl<M> Clone for MachineShell<M> {
    fn clone(&self) -> MachineShell<M> {
        MachineShell { shared: self.shared.clone() }
    }
}

impl<M: GroupMachine> MachineShell<M> {
    /// Returns the shell of a machine that has applied nothing.
    pub fn new(machine: M) -> MachineShell<M> {
        let shared =
            Shared { machine, applied: None, membership: StoredMembership::default(), current: None };
        MachineShell { shared: Arc::new(Mutex::new(shared)) }
    }

    /// Reads the machine, together with the index of the last applied entry.
    pub fn read<T>(&self, look: impl FnOnce(&M, Option<u64>) -> T) -> T {
        let shared = self.shared.lock();
        look(&shared.machine, shared.applied.as_ref().map(|id| id.index))
    }
}

impl<M: GroupMachine> RaftSnapshotBuilder<TypeConfig> for MachineShell<M> {
    type SnapshotData = Bytes;

    async fn build_snapshot(&mut self) -> io::Result<Shot> {
        let mut shared = self.shared.lock();
        let meta = Meta { last_log_id: shared.applied, last_membership: shared.membership.clone() };
        let shot = Shot { meta, snapshot: shared.machine.snapshot() };
        shared.current = Some(shot.clone());
        Ok(shot)
    }
}

impl<M: GroupMachine> RaftStateMachine<TypeConfig> for MachineShell<M> {
    type SnapshotData = Bytes;
    type SnapshotBuilder = MachineShell<M>;

    async fn applied_state(&mut self) -> io::Result<(Option<LogId>, StoredMembership)> {
        let shared = self.shared.lock();
        Ok((shared.applied, shared.membership.clone()))
    }

    async fn apply<S>(&mut self, mut entries: S) -> io::Result<()>
    where
        S: Stream<Item = io::Result<EntryResponder<TypeConfig>>> + Unpin + OptionalSend,
    {
        while let Some((entry, responder)) = entries.try_next().await? {
            let outcome = {
                let mut shared = self.shared.lock();
                let outcome = match entry.payload {
                    EntryPayload::Blank => Bytes::new(),
                    EntryPayload::Normal(change) => shared.machine.apply(entry.log_id.index, &change.0)?,
                    EntryPayload::Membership(membership) => {
                        shared.membership = StoredMembership::new(Some(entry.log_id), membership);
                        Bytes::new()
                    }
                };
                shared.applied = Some(entry.log_id);
                outcome
            };
            if let Some(responder) = responder {
                responder.send(Outcome(outcome));
            }
        }
        Ok(())
    }

    async fn get_snapshot_builder(&mut self) -> MachineShell<M> {
        self.clone()
    }

    async fn install_snapshot(&mut self, meta: &Meta, snapshot: Bytes) -> io::Result<()> {
        let mut shared = self.shared.lock();
        shared.machine.restore(&snapshot)?;
        shared.applied = meta.last_log_id;
        shared.membership = meta.last_membership.clone();
        shared.current = Some(Shot { meta: meta.clone(), snapshot });
        Ok(())
    }

    async fn get_current_snapshot(&mut self) -> io::Result<Option<Shot>> {
        Ok(self.shared.lock().current.clone())
    }
}
