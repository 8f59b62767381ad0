//! The state machine of a group whose state is a keyspace of the store, for openraft.
//!
//! Entries are applied without waiting for a flush. Applied entries are durable up to the *floor*, which is noted in the
//! group's log after a flush; a replica that restarts applies its log from there.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use esker_seeded_bugs::{Bug, planted};
use futures_util::{Stream, TryStreamExt};
use openraft::storage::{EntryResponder, RaftStateMachine, Snapshot, SnapshotMeta};
use openraft::{EntryPayload, OptionalSend, RaftSnapshotBuilder};
use parking_lot::Mutex;

use super::codec::Base;
use super::log_store::GroupStore;
use super::member::{Committed, Machine};
use super::types::{LeaderId, LogId, Outcome, StoredMembership, TypeConfig};

type Meta = SnapshotMeta<LeaderId, u64, ()>;
type Shot = Snapshot<LeaderId, u64, (), Bytes>;

/// A position in the log, with the membership there.
#[derive(Clone, Default)]
struct Position {
    id: Option<LogId>,
    membership: StoredMembership,
}

struct Shared {
    machine: Arc<dyn Machine>,
    store: GroupStore,
    applied: Mutex<Position>,
    floor: Mutex<Position>,
    /// Bytes of entries applied since the start of this replica.
    applied_bytes: AtomicU64,
    /// Held while an entry is applied, which lasts while it waits for room.
    applying: tokio::sync::Mutex<()>,
    /// Held while a floor is noted. True once the keyspace belongs to a snapshot.
    closed: tokio::sync::Mutex<bool>,
}

/// The state machine. Clones share it.
#[derive(Clone)]
pub(crate) struct Keyspace(Arc<Shared>);

/// The figures of a keyspace at one moment.
#[derive(Clone, Copy)]
pub(crate) struct Applied {
    pub(crate) index: u64,
    pub(crate) floor: u64,
    pub(crate) bytes: u64,
}

impl Keyspace {
    /// Returns the keyspace at the floor that its log notes.
    ///
    /// # Errors
    /// If the note is damaged, or a snapshot was being installed.
    pub(super) fn open(machine: Arc<dyn Machine>, store: GroupStore) -> io::Result<Keyspace> {
        let floor = match store.base()? {
            Base::Empty => Position::default(),
            Base::Floor(id, membership) => Position { id: Some(id), membership },
            Base::Installing => return Err(io::Error::other("a snapshot of the group is not complete")),
        };
        let applied = Mutex::new(floor.clone());
        let (applied_bytes, closed) = (AtomicU64::new(0), tokio::sync::Mutex::new(false));
        let (floor, applying) = (Mutex::new(floor), tokio::sync::Mutex::new(()));
        Ok(Keyspace(Arc::new(Shared { machine, store, applied, floor, applied_bytes, applying, closed })))
    }

    /// Ends applying and noting floors, and waits for the entry being applied.
    pub(super) async fn close(&self) {
        *self.0.closed.lock().await = true;
        drop(self.0.applying.lock().await);
    }

    pub(super) fn figures(&self) -> Applied {
        let index = |position: &Mutex<Position>| position.lock().id.map_or(0, |id| id.index);
        let bytes = self.0.applied_bytes.load(Ordering::Relaxed);
        Applied { index: index(&self.0.applied), floor: index(&self.0.floor), bytes }
    }

    /// Advances the floor: flushes, and then notes the last entry that was applied before the flush.
    pub(super) async fn advance_floor(&self) -> io::Result<()> {
        let reached = self.0.applied.lock().clone();
        let Some(id) = reached.id else { return Ok(()) };
        if self.0.floor.lock().id == Some(id) {
            return Ok(());
        }
        if planted(Bug::PurgeAboveFloor) {
            // The log is purged up to here, but an opening does not begin here.
            *self.0.floor.lock() = reached;
            return Ok(());
        }
        if !planted(Bug::FloorBeforeFlush) {
            self.0.machine.flush().await?;
        }
        let closed = self.0.closed.lock().await;
        if !*closed {
            self.0.store.note_floor(id, reached.membership.clone()).await?;
            *self.0.floor.lock() = reached;
        }
        Ok(())
    }

    async fn apply_one(
        &self,
        id: LogId,
        payload: EntryPayload<super::types::Change, u64, ()>,
    ) -> io::Result<Outcome> {
        let outcome = match payload {
            EntryPayload::Blank => Bytes::new(),
            EntryPayload::Normal(change) => {
                self.0.applied_bytes.fetch_add(change.0.len() as u64, Ordering::Relaxed);
                self.0.machine.apply(Committed { index: id.index, bytes: change.0 }).await?
            }
            EntryPayload::Membership(membership) => {
                let membership = StoredMembership::new(Some(id), membership);
                // At once, because a floor has the membership of its position.
                *self.0.applied.lock() = Position { id: Some(id), membership };
                return Ok(Outcome(Bytes::new()));
            }
        };
        self.0.applied.lock().id = Some(id);
        Ok(Outcome(outcome))
    }

    fn meta(position: &Mutex<Position>) -> Shot {
        let Position { id, membership } = position.lock().clone();
        Shot { meta: Meta { last_log_id: id, last_membership: membership }, snapshot: Bytes::new() }
    }
}

/// openraft purges up to the last snapshot that was built, so that one is the floor.
impl RaftSnapshotBuilder<TypeConfig> for Keyspace {
    type SnapshotData = Bytes;

    async fn build_snapshot(&mut self) -> io::Result<Shot> {
        Ok(Keyspace::meta(&self.0.floor))
    }
}

impl RaftStateMachine<TypeConfig> for Keyspace {
    type SnapshotData = Bytes;
    type SnapshotBuilder = Keyspace;

    async fn applied_state(&mut self) -> io::Result<(Option<LogId>, StoredMembership)> {
        let applied = self.0.applied.lock().clone();
        Ok((applied.id, applied.membership))
    }

    async fn apply<S>(&mut self, mut entries: S) -> io::Result<()>
    where
        S: Stream<Item = io::Result<EntryResponder<TypeConfig>>> + Unpin + OptionalSend,
    {
        while let Some((entry, responder)) = entries.try_next().await? {
            let applying = self.0.applying.lock().await;
            if *self.0.closed.lock().await {
                return Err(io::Error::other("the keyspace belongs to a snapshot that is being installed"));
            }
            let outcome = self.apply_one(entry.log_id, entry.payload).await?;
            drop(applying);
            if let Some(responder) = responder {
                responder.send(outcome);
            }
        }
        Ok(())
    }

    async fn get_snapshot_builder(&mut self) -> Keyspace {
        self.clone()
    }

    /// Never called: a snapshot is installed before a replica is started on it.
    async fn install_snapshot(&mut self, _: &Meta, _: Bytes) -> io::Result<()> {
        Err(io::Error::new(
            io::ErrorKind::Unsupported,
            "a snapshot is installed while the replica is stopped",
        ))
    }

    /// Returns the id of the last applied entry. The keys are read when the snapshot is sent.
    async fn get_current_snapshot(&mut self) -> io::Result<Option<Shot>> {
        let shot = Keyspace::meta(&self.0.applied);
        Ok(shot.meta.last_log_id.is_some().then_some(shot))
    }
}
