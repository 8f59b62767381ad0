//! The receiving end of a snapshot.
//!
//! 1. Part 0 stops the member of the group. The note that the keyspace is incomplete is durable before anything is deleted:
//!    a replica that finds the note at its start holds no entries, and gets another snapshot.
//! 2. Each part is applied as it comes, in order. Parts that come twice are answered, and not applied again.
//! 3. The request that ends the snapshot flushes, notes the floor, and starts the member again.
//!
//! A transfer that stops in the middle, whose leader was deposed, or for which the store has no room, is abandoned: the keyspace is
//! emptied, and the member starts with nothing.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use esker_engine::StoredChange;
use esker_seeded_bugs::{Bug, planted};
use futures_util::future::{Either, select};

use super::state::Incoming;
use super::status::count;
use super::{Group, Slot};
use crate::peers::PeerResponse;
use crate::raft::codec::leader_of_proof;
use crate::raft::network::{RaftRequest, RaftResponse};

/// The refusal of a snapshot by a replica that has everything that it holds.
pub(super) const NOTHING_MISSING: &str = "the snapshot has nothing that is missing here";
/// Time without a transfer after one for which there was no room, in multiples of the patience.
const REST: u32 = 6;

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
        let known =
            incoming.as_mut().filter(|known| (known.transfer, &known.proof) == (part.transfer, &part.proof));
        match known {
            Some(known) if known.next.is_none_or(|next| part.part < next) => return Ok(()),
            Some(known) if known.next == Some(part.part) => (),
            None if part.part == 0 => {
                let current = incoming.as_ref().map(|known| (known.transfer, &known.proof));
                self.check_order((part.transfer, &part.proof), current)?;
                self.begin_install(&part.proof).await?;
                let (transfer, proof, last_part) = (part.transfer, part.proof.clone(), self.now());
                *incoming = Some(Incoming { transfer, proof, next: Some(0), is_installed: false, last_part });
            }
            _ => return Err(format!("part {} of a snapshot does not follow those that arrived", part.part)),
        }
        if let Some(known) = incoming.as_mut() {
            known.last_part = self.now();
        }
        if !self.load(part.changes).await? {
            *incoming = None;
            return self.give_up_install().await;
        }
        if let Some(known) = incoming.as_mut() {
            known.next = (!part.is_last).then_some(part.part + 1);
            known.last_part = self.now();
        }
        Ok(())
    }

    /// Refuses the first part of a transfer that comes after a later one has begun: one that a later leader, or the same one,
    /// began later.
    fn check_order(&self, new: (u64, &Bytes), current: Option<(u64, &Bytes)>) -> Result<(), String> {
        let order = |(transfer, proof): (u64, &Bytes)| {
            leader_of_proof(proof).map(|leader| (leader, transfer)).map_err(|error| error.to_string())
        };
        let (new, current) = (order(new)?, current.map(order).transpose()?);
        let is_installing = matches!(*self.slot.lock(), Slot::Installing);
        if is_installing && current.is_some_and(|current| new <= current) && !planted(Bug::LatePartTaken) {
            return Err("a later transfer of the keys has begun".into());
        }
        Ok(())
    }

    /// Stops the member and empties the keyspace, unless the snapshot is of a deposed leader or has nothing that is missing
    /// here.
    async fn begin_install(self: &Arc<Group>, proof: &[u8]) -> Result<(), String> {
        let running = match &*self.slot.lock() {
            Slot::Running(instance) => Some(instance.clone()),
            Slot::Installing => None,
            Slot::Stopped(why) => return Err(why.clone()),
        };
        if self.now() < *self.install_not_before.lock() {
            return Err("the store of the node had no room for the keys of the group a moment ago".into());
        }
        if let Some(instance) = running {
            instance.check_leader(proof).await?;
            self.check_lacks(proof).await?;
            if !self.replace_slot(Slot::Installing) {
                return Err("the node is ending".into());
            }
            self.no_longer_serves();
            instance.stop().await;
            self.machine.own.lock().clear();
            // Entries may have come, and been acknowledged, until the member stopped.
            if let Err(why) = self.check_lacks(proof).await {
                self.start_member().await.map_err(|error| self.fail(error))?;
                return Err(why);
            }
        }
        self.store.begin_install().await.map_err(|error| self.fail(error))?;
        self.parts.applier.clear(self.number()).await.map_err(|error| self.fail(error))
    }

    /// Refuses a snapshot that has nothing which is missing here: see [`GroupStore::holds`](crate::GroupStore).
    async fn check_lacks(&self, proof: &[u8]) -> Result<(), String> {
        match self.store.holds(proof).await {
            Ok(false) => Ok(()),
            Ok(true) => Err(NOTHING_MISSING.into()),
            Err(error) => Err(error.to_string()),
        }
    }

    /// Loads keys into the keyspace. Returns false if the store had no room for them in time.
    async fn load(&self, changes: Vec<StoredChange>) -> Result<bool, String> {
        let proposals = changes.into_iter().map(|change| vec![change]).collect();
        let (applied, late) = {
            let settings = &self.parts.settings;
            (self.parts.applier.apply(self.number(), proposals), self.parts.runtime.sleep(settings.patience))
        };
        match select(applied, late).await {
            Either::Left((applied, _)) => applied.map(|_| true).map_err(|error| self.fail(error)),
            Either::Right(_) => Ok(planted(Bug::FullInstallWaits)),
        }
    }

    /// Abandons a transfer for which the store has no room. The member votes and takes entries again, and no transfer is accepted
    /// for a while.
    async fn give_up_install(self: &Arc<Group>) -> Result<(), String> {
        let why = "the store of the node has no room for the keys of the group";
        tracing::warn!(group = self.number(), "{why}; the transfer is abandoned");
        *self.install_not_before.lock() = self.now() + self.parts.settings.patience * REST;
        self.void_keyspace().await.map_err(|error| self.fail(error))?;
        self.start_member().await.map_err(|error| self.fail(error))?;
        Err(why.into())
    }

    /// Ends a snapshot. All its parts have arrived.
    pub(super) async fn finish_install(
        self: &Arc<Group>,
        request: RaftRequest,
        proof: Bytes,
    ) -> Result<RaftResponse, String> {
        let mut incoming = self.incoming.lock().await;
        let known = incoming.as_mut().filter(|known| known.proof == proof && known.next.is_none());
        let Some(known) = known else {
            self.check_complete(&proof).await?;
            return request.snapshot_answer().ok_or_else(|| "it is no snapshot".into());
        };
        if !known.is_installed {
            self.parts.applier.flush().await.map_err(|error| self.fail(error))?;
            self.store.end_install(&request).await.map_err(|error| self.fail(error))?;
            self.start_member().await.map_err(|error| self.fail(error))?;
            known.is_installed = true;
            count(&self.counters.snapshots_received, 1);
        }
        request.snapshot_answer().ok_or_else(|| "it is no snapshot".into())
    }

    /// Checks that a running member has everything of a snapshot, durably, so that the leader may continue behind it.
    async fn check_complete(&self, proof: &[u8]) -> Result<(), String> {
        let instance = self.running()?;
        instance.check_leader(proof).await?;
        if self.check_lacks(proof).await.is_ok() {
            return Err("the parts of the snapshot did not arrive".into());
        }
        self.store.settle().await.map_err(|error| error.to_string())
    }

    /// Ends a transfer of which nothing was heard for a while.
    pub(super) async fn abandon_late_install(self: &Arc<Group>) -> Result<(), String> {
        let late = self.now().saturating_sub(self.parts.settings.patience);
        self.abandon_install(|known| known.last_part <= late).await
    }

    /// Ends a transfer of an earlier leader than this one, which sends no more parts. The later leader sends a snapshot only after the
    /// member has answered that it lacks entries.
    pub(super) async fn abandon_superseded_install(
        self: &Arc<Group>,
        leader: (u64, u64),
    ) -> Result<(), String> {
        let is_earlier = |known: &Incoming| leader_of_proof(&known.proof).is_ok_and(|of| of < leader);
        self.abandon_install(is_earlier).await
    }

    async fn abandon_install(
        self: &Arc<Group>,
        is_over: impl Fn(&Incoming) -> bool + Send,
    ) -> Result<(), String> {
        // A transfer of which a part is being loaded is not over.
        let Ok(mut incoming) = self.incoming.try_lock() else { return Ok(()) };
        let Some(known) = &*incoming else { return Ok(()) };
        if known.is_installed || !is_over(known) || !matches!(*self.slot.lock(), Slot::Installing) {
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
