//! One replica of a replicated group: a keyspace of the store, kept equal on several nodes. See
//! `docs/decisions/0051-groups.md`.
//!
//! 1. [`Group::propose`] queues a write (`queue`). The proposer packs waiting writes into an entry of the group's log
//!    (`proposer`, `entry`).
//! 2. Once the entry is durable on a majority, each replica applies it with [`Apply`], in order (`machine`). The leader
//!    answers then.
//! 3. `upkeep` notes up to where applied entries are durable without the log, and purges the log up to there.
//! 4. A follower that needs purged entries gets the whole keyspace (`sending`, `installing`).
//! 5. A replica whose node left the group gives its space back (`retiring`).
//! 6. A client copies the group for a backup (`copying`).
//! 7. The keys are listed for a node whose copy is damaged (`listing`).
//! 8. Reads are answered under a lease (`serving`), or after a confirmation by a majority (`confirming`). Reads that may be stale
//!    are answered by any replica that is recent (`following`).

mod confirmations;
mod confirming;
mod copying;
mod entry;
mod following;
mod installing;
mod leading;
mod listing;
mod machine;
mod pace;
mod parts;
mod proposer;
mod queue;
mod requests;
mod retiring;
mod sending;
mod serving;
mod state;
mod status;
mod upkeep;

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::time::Duration;

use esker_engine::{Error, Proposal};
use esker_seeded_bugs::{Bug, planted};
use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use tokio::sync::Notify;

pub use self::confirmations::Asked;
pub use self::entry::{Step, decode_entry, encode_entry};
pub use self::pace::CopyPace;
pub use self::parts::{Apply, GroupParts, GroupSettings, Readiness};
pub use self::status::{GroupCounters, GroupStatus};
pub use crate::raft::error::{GroupError, NotReady};
pub use crate::raft::member::Role;

use self::confirmations::Confirmations;
use self::machine::KeyspaceMachine;
use self::queue::Queue;
use self::sending::GroupTransport;
use self::serving::Serving;
use self::state::{Confirming, Incoming, Kept, RunningCopy};
use self::status::{Counters, count};
use crate::levels::FIRST_LEVEL;
use crate::raft::instance::{Instance, is_installing};
use crate::raft::log_store::GroupStore;
use crate::raft::network::RaftRequest;

/// The member of the group.
enum Slot {
    Running(Arc<Instance>),
    /// The keyspace is not whole.
    Installing,
    /// For this reason.
    Stopped(String),
}

/// A replica of a group on this node. Its tasks run until [`stop`](Self::stop).
pub struct Group {
    parts: GroupParts,
    store: GroupStore,
    machine: Arc<KeyspaceMachine>,
    counters: Arc<Counters>,
    queue: Arc<Queue>,
    serving: Serving,
    slot: Mutex<Slot>,
    incoming: tokio::sync::Mutex<Option<Incoming>>,
    confirming: Mutex<Confirming>,
    confirmations: Mutex<Confirmations>,
    /// Number of members started here.
    members: AtomicU64,
    /// Snapshots being sent, with the index from which on their receivers need the log.
    sending: Mutex<BTreeMap<u64, u64>>,
    /// Copies for backups in progress, by number.
    copies: Mutex<BTreeMap<u64, RunningCopy>>,
    /// Bytes of the log of all groups that entries can take.
    log_bytes: u64,
    /// Number of transfers begun here.
    transfers: AtomicU64,
    /// Time before which no snapshot is accepted, because the store had no room.
    install_not_before: Mutex<Duration>,
    watches: Mutex<Vec<Arc<dyn Readiness>>>,
    /// Time in nanoseconds until which this replica votes for no one.
    votes_from: AtomicU64,
    kept: Mutex<Kept>,
    /// Number of requests that may have added to the log. Changed under the lock of `slot`, or that of `incoming`.
    additions: AtomicU64,
    upkeep: Notify,
    /// Level of the entries that this node proposes.
    level: AtomicU8,
}

impl Group {
    /// Starts the replica with the log and the keyspace that it has, if any. Without a log it waits for a leader that
    /// adds it, or for [`found`](Self::found).
    ///
    /// # Errors
    /// `Io` or `Corrupt` if the log cannot be read; `Invalid` if the settings contradict each other.
    pub async fn start(parts: GroupParts) -> esker_engine::Result<Arc<Group>> {
        let counters = Arc::new(Counters::default());
        let machine = Arc::new(KeyspaceMachine {
            group: parts.number,
            applier: parts.applier.clone(),
            own: Mutex::default(),
            counters: counters.clone(),
        });
        let group = Arc::new(Group {
            store: GroupStore::new(parts.log.clone(), parts.number),
            machine,
            counters,
            queue: Arc::default(),
            serving: Serving::new(parts.settings.replica.election.1),
            slot: Mutex::new(Slot::Installing),
            incoming: tokio::sync::Mutex::default(),
            confirming: Mutex::default(),
            confirmations: Mutex::default(),
            members: AtomicU64::new(0),
            sending: Mutex::default(),
            log_bytes: parts.log.usage().1,
            transfers: AtomicU64::new(1),
            install_not_before: Mutex::default(),
            watches: Mutex::default(),
            votes_from: AtomicU64::new(0),
            kept: Mutex::new(Kept::new(parts.runtime.now(), parts.log.usage().1)),
            additions: AtomicU64::new(0),
            upkeep: Notify::new(),
            copies: Mutex::default(),
            level: AtomicU8::new(FIRST_LEVEL),
            parts,
        });
        group.open().await.map_err(engine_error)?;
        let runtime = group.parts.runtime.clone();
        runtime.spawn("proposer", Box::pin(group.clone().send_proposals()));
        runtime.spawn("group upkeep", Box::pin(group.clone().keep_up()));
        Ok(group)
    }

    async fn open(self: &Arc<Group>) -> io::Result<()> {
        if is_installing(&self.store)? {
            self.void_keyspace().await?;
        }
        self.start_member().await
    }

    /// Starts the member on its log and a whole keyspace. The promises that a node made before its last start are not known, so
    /// it neither votes nor stands for election for as long as a promise may last.
    async fn start_member(self: &Arc<Group>) -> io::Result<()> {
        let (parts, transport) = (&self.parts, GroupTransport(Arc::downgrade(self)));
        let (machine, runtime) = (self.machine.clone(), parts.runtime.clone());
        let (settings, store) = (&parts.settings.replica, self.store.clone());
        let transport = Arc::new(transport);
        let number = self.members.fetch_add(1, Ordering::Relaxed);
        let ids = (parts.node, number);
        let instance = Instance::start(ids, settings, store, machine, transport, runtime).await?;
        let instance = Arc::new(instance);
        let is_free = instance.brief().is_alone || planted(Bug::VoteWithoutGuard);
        let promised = if is_free { Duration::ZERO } else { settings.election.1 };
        self.votes_from.store((self.now() + promised).as_nanos() as u64, Ordering::Release);
        if !self.replace_slot(Slot::Running(instance.clone())) {
            instance.stop().await;
            return Err(io::Error::other("the node is ending"));
        }
        let (runtime, member) = (parts.runtime.clone(), instance.clone());
        let stand = async move {
            runtime.sleep(promised).await;
            member.allow_elections();
        };
        parts.runtime.spawn("elections", Box::pin(stand));
        parts.runtime.spawn("group state", Box::pin(self.clone().watch_member(instance)));
        Ok(())
    }

    /// Follows the state of a member until it stops.
    async fn watch_member(self: Arc<Group>, instance: Arc<Instance>) {
        let is_current = |group: &Group| match &*group.slot.lock() {
            Slot::Running(current) => Arc::ptr_eq(current, &instance),
            _ => false,
        };
        instance
            .wait(|instance| {
                if !is_current(&self) {
                    return Some(());
                }
                let brief = instance.brief();
                if self.serving.changes_term(&brief) {
                    // Watches learn of the end of a term before reads of the next one can be confirmed.
                    self.no_longer_serves();
                }
                if self.serving.update(&brief) {
                    self.readiness_changed();
                }
                (brief.role == Role::Stopped).then_some(())
            })
            .await;
        if is_current(&self) {
            let why = instance.observe().stopped.unwrap_or_else(|| "the replica has stopped".into());
            self.fail(why);
        }
    }

    fn readiness_changed(&self) {
        let term = self.serving.ready_term().ok();
        count(&self.counters.terms_served, u64::from(term.is_some()));
        let refused = self.queue.refuse_others(term, self.serving.leader());
        count(&self.counters.refused, refused);
        self.queue.pause(false);
        let watches = self.watches.lock().clone();
        watches.iter().for_each(|watch| watch.changed(self.number(), term));
    }

    /// Notes that this node serves the group no longer.
    fn no_longer_serves(&self) {
        if self.serving.is_gone() {
            self.readiness_changed();
        }
    }

    /// Sets the member, unless the replica has stopped meanwhile: returns false then.
    fn replace_slot(&self, slot: Slot) -> bool {
        let mut current = self.slot.lock();
        if matches!(*current, Slot::Stopped(_)) && !planted(Bug::MemberStartedAfterStop) {
            return false;
        }
        *current = slot;
        true
    }

    /// Stops the replica for good, because the store takes no more writes.
    pub fn give_up(&self, error: &esker_engine::Error) {
        self.fail(error);
    }

    /// Notes that the replica cannot go on, and returns the reason.
    fn fail(&self, why: impl std::fmt::Display) -> String {
        let why = why.to_string();
        let before = {
            let mut slot = self.slot.lock();
            if let Slot::Stopped(first) = &*slot {
                return first.clone();
            }
            std::mem::replace(&mut *slot, Slot::Stopped(why.clone()))
        };
        tracing::error!(group = self.number(), %why, "a replica has stopped");
        if let Slot::Running(instance) = before {
            self.parts.runtime.spawn("end of a replica", Box::pin(async move { instance.stop().await }));
        }
        self.no_longer_serves();
        why
    }

    fn now(&self) -> Duration {
        self.parts.runtime.now()
    }

    /// Returns the member.
    fn running(&self) -> Result<Arc<Instance>, String> {
        match &*self.slot.lock() {
            Slot::Running(instance) => Ok(instance.clone()),
            Slot::Installing => Err("the node is receiving the keys of the group".into()),
            Slot::Stopped(why) => Err(why.clone()),
        }
    }

    /// Returns the member for a request, and counts the request if it may add to the log: a retirement sees the count and
    /// does not begin, or comes first and has stopped the member.
    fn running_for(&self, request: &RaftRequest) -> Result<Arc<Instance>, String> {
        let slot = self.slot.lock();
        if let (Slot::Running(instance), true) = (&*slot, request.is_append()) {
            self.additions.fetch_add(1, Ordering::Relaxed);
            return Ok(instance.clone());
        }
        drop(slot);
        self.running()
    }

    fn is_installing(&self) -> bool {
        matches!(*self.slot.lock(), Slot::Installing)
    }

    fn member(&self) -> Result<Arc<Instance>, GroupError> {
        self.running().map_err(GroupError::Refused)
    }

    /// Returns the number of the group.
    pub fn number(&self) -> u8 {
        self.parts.number
    }

    /// Sets the level of the entries that this node proposes from now on.
    pub fn set_level(&self, level: u8) {
        self.level.store(level, Ordering::Relaxed);
    }

    /// Founds the group with this node as its only voter. Called once in the life of a group, on one node.
    ///
    /// # Errors
    /// If the replica has a log already.
    pub async fn found(&self) -> Result<(), GroupError> {
        self.member()?.found().await
    }

    /// Stops the replica. Proposals that wait are refused, and those on their way end as uncertain. The log and the keyspace
    /// stay.
    pub async fn stop(&self) {
        // Under one lock: a member that is started meanwhile is either this one, or refused.
        let before = std::mem::replace(&mut *self.slot.lock(), Slot::Stopped("the node is ending".into()));
        self.queue.stop();
        self.upkeep.notify_one();
        self.no_longer_serves();
        if let Slot::Running(instance) = before {
            instance.stop().await;
        }
    }

    /// Returns the term in which this node leads the group and has applied every earlier entry. Reads atomics only.
    ///
    /// # Errors
    /// `NotReady` with the leader that is known.
    pub fn ready_term(&self) -> Result<u64, NotReady> {
        self.serving.ready_term()
    }

    /// Replicates a write, and returns its version once it is durable on a majority and applied here. It is queued by the
    /// call: the outcome does not depend on whether the future is polled or dropped. The queue has no limit of its own:
    /// writers wait for their outcomes, and the reservations of proposals bound it.
    ///
    /// # Errors
    /// `NotReady` if it is certainly not done, otherwise `Uncertain`.
    pub fn propose(&self, proposal: Proposal) -> BoxFuture<'static, Result<u64, GroupError>> {
        let Proposal { term, changes, held, .. } = proposal;
        self.push(term, Step::Changes(changes), held)
    }

    /// Replicates the deletion of all keys. `held` is dropped when it is applied here, or void.
    ///
    /// # Errors
    /// As [`propose`](Self::propose).
    pub fn clear(&self, held: Box<dyn Send>) -> BoxFuture<'static, Result<(), GroupError>> {
        let pushed = match self.ready_term() {
            Ok(term) => self.push(term, Step::Clear, held),
            Err(why) => Box::pin(std::future::ready(Err(GroupError::NotReady(why)))),
        };
        Box::pin(async move { pushed.await.map(drop) })
    }

    /// Returns true if no other node can lead the group at this moment. A value that was read before the call was current.
    pub fn has_lease(&self) -> bool {
        let decided = self.serving.has_lease(self.now());
        // The only voter leads until it votes for another one, which it does only after its membership has changed.
        decided.unwrap_or_else(|| {
            let brief = self.running().map(|instance| instance.brief());
            brief.is_ok_and(|brief| brief.is_ready && brief.is_alone)
        })
    }

    /// Returns true if this node serves the group, and a majority has answered it within the last seconds. A leader that is cut off
    /// stays ready, because it cannot know whether another one leads.
    pub fn is_followed(&self) -> bool {
        self.serving.is_followed(self.now())
    }

    /// Returns the state at this moment.
    pub fn status(&self) -> GroupStatus {
        let counters = self.counters.read(self.queue.bytes());
        let (role, stopped, instance) = match &*self.slot.lock() {
            Slot::Running(instance) => (None, None, Some(instance.clone())),
            Slot::Installing => (Some(Role::Installing), None, None),
            Slot::Stopped(why) => (Some(Role::Stopped), Some(why.clone()), None),
        };
        let observed = instance.as_ref().map(|instance| (instance.observe(), instance.applied()));
        let Some((observed, applied)) = observed else {
            return GroupStatus {
                role: role.unwrap_or(Role::Stopped),
                term: 0,
                leader: None,
                voters: Vec::new(),
                learners: Vec::new(),
                membership_is_settled: false,
                last_index: 0,
                applied: 0,
                floor: 0,
                purged: 0,
                matched: Vec::new(),
                counters,
                stopped,
            };
        };
        GroupStatus {
            role: observed.brief.role,
            term: observed.brief.term,
            leader: observed.brief.leader,
            voters: observed.voters,
            learners: observed.learners,
            membership_is_settled: observed.is_settled,
            last_index: observed.last_index,
            applied: applied.index,
            floor: applied.floor,
            purged: observed.purged,
            matched: observed.matched,
            counters,
            stopped: observed.stopped,
        }
    }

    /// Registers a receiver of changes of readiness, for the life of the replica. It is called once with the current state.
    pub fn watch(&self, watch: Arc<dyn Readiness>) {
        self.watches.lock().push(watch.clone());
        watch.changed(self.number(), self.serving.ready_term().ok());
    }
}

fn engine_error(error: io::Error) -> Error {
    error.downcast::<Error>().unwrap_or_else(|error| Error::Invalid { what: error.to_string() })
}
