//! The receiving end of a snapshot.
//!
//! 1. Part 0 stops the member of the group. The note that the keyspace is incomplete is durable before anything is deleted:
//!    a replica that finds the note at its start holds no entries, and gets another snapshot.
//! 2. Each part is applied as it comes, in order. Parts that come twice are answered, and not applied again.
//! 3. The request that ends the snapshot flushes, notes the floor, and starts the member again.
//!
//! A transfer that stops in the middle is abandoned: the keyspace is emptied, and the member starts with nothing.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use esker_engine::StoredChange;

use super::state::Incoming;
use super::status::count;
use super::{Group, Slot};
use crate::peers::PeerResponse;
use crate::raft::network::{RaftRequest, RaftResponse};

/// A part of a snapshot.
pub(super) struct Part {
    pub(super) transfer: u64,
    pub(super) part: u32,
    pub(super) proof: Bytes,
    pub(super) changes: Vec<StoredChange>,
    pub(super) is_last: bool,
}

impl Group {
    /// Handles a part.
    pub(super) async fn receive_part(self: &Arc<Group>, part: Part) -> PeerResponse {
        match self.take_part(part).await {
            Ok(()) => PeerResponse::Done,
            Err(why) => PeerResponse::Refused(why),
        }
    }

    async fn take_part(self: &Arc<Group>, part: Part) -> Result<(), String> {
        let mut incoming = self.incoming.lock().await;
        self.additions.fetch_add(1, Ordering::Relaxed);
        let known = incoming.as_mut().filter(|known| known.transfer == part.transfer);
        match known {
            Some(known) if known.next.is_none_or(|next| part.part < next) => return Ok(()),
            Some(known) if known.next == Some(part.part) => {
                known.last_part = self.now();
                self.load(part.changes).await?;
                known.next = (!part.is_last).then_some(part.part + 1);
                return Ok(());
            }
            None if part.part == 0 => (),
            _ => return Err(format!("part {} of a snapshot does not follow those that arrived", part.part)),
        }
        self.begin_install(&part.proof).await?;
        let (transfer, proof, last_part) = (part.transfer, part.proof, self.now());
        let known =
            incoming.insert(Incoming { transfer, proof, next: Some(0), is_installed: false, last_part });
        self.load(part.changes).await?;
        known.next = (!part.is_last).then_some(1);
        known.last_part = self.now();
        Ok(())
    }

    /// Stops the member and empties the keyspace, unless the snapshot is late or of a deposed leader.
    async fn begin_install(self: &Arc<Group>, proof: &[u8]) -> Result<(), String> {
        let running = match &*self.slot.lock() {
            Slot::Running(instance) => Some(instance.clone()),
            Slot::Installing => None,
            Slot::Stopped(why) => return Err(why.clone()),
        };
        if let Some(instance) = running {
            if !instance.needs(proof).await? {
                return Err("the snapshot has nothing that is missing here".into());
            }
            *self.slot.lock() = Slot::Installing;
            self.no_longer_serves();
            instance.stop().await;
            self.machine.own.lock().clear();
        }
        self.store.begin_install().await.map_err(|error| self.fail(error))?;
        self.parts.applier.clear(self.number()).await.map_err(|error| self.fail(error))
    }

    async fn load(&self, changes: Vec<StoredChange>) -> Result<(), String> {
        let proposals = changes.into_iter().map(|change| vec![change]).collect();
        self.parts.applier.apply(self.number(), proposals).await.map(drop).map_err(|error| self.fail(error))
    }

    /// Ends a snapshot. All its parts have arrived.
    pub(super) async fn finish_install(
        self: &Arc<Group>,
        request: RaftRequest,
        proof: Bytes,
    ) -> Result<RaftResponse, String> {
        let mut incoming = self.incoming.lock().await;
        let known = incoming.as_mut().filter(|known| known.proof == proof && known.next.is_none());
        let Some(known) = known else { return Err("the parts of the snapshot did not arrive".into()) };
        if !known.is_installed {
            self.parts.applier.flush().await.map_err(|error| self.fail(error))?;
            self.store.end_install(&request).await.map_err(|error| self.fail(error))?;
            self.start_member().await.map_err(|error| self.fail(error))?;
            known.is_installed = true;
            count(&self.counters.snapshots_received, 1);
        }
        request.snapshot_answer().ok_or_else(|| "it is no snapshot".into())
    }

    /// Ends a transfer of which nothing was heard for a while.
    pub(super) async fn abandon_install(self: &Arc<Group>) -> Result<(), String> {
        // A part that is being loaded is not late.
        let Ok(mut incoming) = self.incoming.try_lock() else { return Ok(()) };
        let late = self.now().saturating_sub(self.parts.settings.patience);
        let Some(known) = &*incoming else { return Ok(()) };
        if known.is_installed || known.last_part > late || !matches!(*self.slot.lock(), Slot::Installing) {
            return Ok(());
        }
        *incoming = None;
        self.void_keyspace().await.map_err(|error| self.fail(error))?;
        self.start_member().await.map_err(|error| self.fail(error))
    }

    /// Empties a keyspace that holds a part of a snapshot, and ends the note.
    pub(super) async fn void_keyspace(&self) -> std::io::Result<()> {
        self.parts.applier.clear(self.number()).await.map_err(std::io::Error::other)?;
        self.store.void_install().await
    }
}
