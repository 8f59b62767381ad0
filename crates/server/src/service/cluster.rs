//! The cluster of a replicated store, as the front ends use it: the slots led here, and the confirmation of reads.
//!
//! A value that was read is current if this node led the group at a moment after the read. So the check comes after the read:
//! once for the answers of several commands, by the lease or else by a majority (decision 0051).

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use esker_cluster::slots::{Groups, slot_of};
use esker_cluster::view::{ClusterView, LeaderWatch, ReadMark};
use esker_engine::ClusterError;
use esker_seeded_bugs::{Bug, planted};
use futures_util::future::try_join_all;

use super::retries::Retries;
use super::tracking::Tracking;
use super::watchers::Watchers;

/// Number of groups of a node: one for each keyspace of the store.
const GROUPS: usize = 16;

/// Number of the keyspace under which watches of database 0 are registered.
pub(crate) const SPREAD_KEYSPACE: u8 = 0;

/// The cluster of the store.
pub(crate) struct Cluster {
    pub(crate) view: Arc<dyn ClusterView>,
    groups: Groups,
    changes: Arc<LeaderChanges>,
}

/// Number of changes of leadership of each group, as far as this node led it before or after, and of all groups.
#[derive(Default)]
struct LeaderChanges {
    of_group: [AtomicU64; GROUPS],
    of_all: AtomicU64,
}

/// States of replicas before a read, by number of the group.
pub(crate) type Marks = [Option<ReadMark>; GROUPS];

/// A set of groups.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct GroupSet(u16);

impl GroupSet {
    pub(crate) fn insert(&mut self, group: u8) {
        self.0 |= 1 << group;
    }

    pub(crate) fn contains(self, group: u8) -> bool {
        self.0 & 1 << group != 0
    }

    pub(crate) fn is_empty(self) -> bool {
        self.0 == 0
    }

    fn iter(self) -> impl Iterator<Item = u8> {
        (0..GROUPS as u8).filter(move |group| self.contains(*group))
    }
}

impl FromIterator<u8> for GroupSet {
    fn from_iter<I: IntoIterator<Item = u8>>(groups: I) -> GroupSet {
        let mut set = GroupSet::default();
        groups.into_iter().for_each(|group| set.insert(group));
        set
    }
}

/// Returns an error about a slot of a group as one about another slot of the group.
pub(crate) fn at_slot(error: &ClusterError, slot: u16) -> ClusterError {
    match error {
        ClusterError::Elsewhere { to, .. } => ClusterError::Elsewhere { slot, to: to.clone() },
        ClusterError::NoLeader { why, .. } => ClusterError::NoLeader { slot, why: why.clone() },
        ClusterError::NotReady { .. } => ClusterError::NotReady { slot },
        other => other.clone(),
    }
}

impl Cluster {
    /// Registers for changes of leadership.
    pub(crate) fn new(
        view: Arc<dyn ClusterView>,
        tracking: Arc<Tracking>,
        watchers: Arc<Watchers>,
        retries: Arc<Retries>,
    ) -> Arc<Cluster> {
        let changes = Arc::<LeaderChanges>::default();
        view.watch_leaders(Arc::new(Receivers { changes: changes.clone(), tracking, watchers, retries }));
        Arc::new(Cluster { groups: view.groups(), view, changes })
    }

    /// Returns the slot of keys, or `None` without keys.
    ///
    /// # Errors
    /// [`ClusterError::SeveralGroups`] if the keys are in several slots, of one group or of several.
    pub(crate) fn slot_of<'k>(
        &self,
        mut keys: impl Iterator<Item = &'k [u8]>,
    ) -> Result<Option<u16>, ClusterError> {
        let Some(slot) = keys.next().map(slot_of) else { return Ok(None) };
        match keys.all(|key| slot_of(key) == slot) {
            true => Ok(Some(slot)),
            false => Err(ClusterError::SeveralGroups),
        }
    }

    /// Checks that keys are in one slot, which this node leads. Returns the slot.
    ///
    /// # Errors
    /// As [`slot_of`](Self::slot_of) and [`ClusterView::check_leads`].
    pub(crate) fn check<'k>(
        &self,
        keys: impl Iterator<Item = &'k [u8]>,
    ) -> Result<Option<u16>, ClusterError> {
        let slot = self.slot_of(keys)?;
        slot.map_or(Ok(()), |slot| self.view.check_leads(slot))?;
        Ok(slot)
    }

    /// Returns the error that sends a client to the leader of a slot, which may be this node.
    pub(crate) fn place_of(&self, slot: u16) -> ClusterError {
        let here = || {
            let topology = self.view.topology();
            let me = topology.nodes.iter().find(|node| node.id == topology.me);
            me.map_or(ClusterError::NotReady { slot }, |me| ClusterError::Elsewhere {
                slot,
                to: me.resp.clone(),
            })
        };
        self.view.check_leads(slot).err().unwrap_or_else(here)
    }

    /// Returns true if this node has a whole copy of the group of a slot.
    pub(crate) fn holds(&self, slot: u16) -> bool {
        self.view.mark(self.groups.of_slot(slot)).is_some()
    }

    /// Returns the states of this node's replicas of these groups, by number of the group.
    pub(crate) fn marks(&self, groups: GroupSet) -> Marks {
        let mut marks = Marks::default();
        groups.iter().for_each(|group| marks[usize::from(group)] = self.view.mark(group));
        marks
    }

    /// Checks that values which were read from replicas after these marks are recent enough.
    ///
    /// # Errors
    /// A group for which that does not hold, and the error that sends a client to its leader.
    pub(crate) fn check_recent(&self, groups: GroupSet, marks: &Marks) -> Result<(), (u8, ClusterError)> {
        let is_recent =
            |group: u8| marks[usize::from(group)].is_some_and(|mark| self.view.is_recent(group, &mark));
        match groups.iter().find(|group| !is_recent(*group)) {
            Some(group) => Err((group, self.place_of(self.groups.slots(group).start))),
            None => Ok(()),
        }
    }

    /// Returns all groups of keys.
    pub(crate) fn all(&self) -> GroupSet {
        self.groups.numbers().collect()
    }

    /// Returns the group of a key.
    pub(crate) fn group_of(&self, key: &[u8]) -> u8 {
        self.groups.of_key(key)
    }

    /// Returns the group of a slot.
    pub(crate) fn group_of_slot(&self, slot: u16) -> u8 {
        self.groups.of_slot(slot)
    }

    /// Returns true if this node leads the group of a key, and is ready.
    pub(crate) fn leads(&self, key: &[u8]) -> bool {
        self.view.check_leads(slot_of(key)).is_ok()
    }

    /// Returns the numbers of the groups that this node leads.
    pub(crate) fn led(&self) -> impl Iterator<Item = u8> {
        let leads = |group: &u8| self.view.check_leads(self.groups.slots(*group).start).is_ok();
        self.groups.numbers().filter(leads)
    }

    /// Returns the number of changes of leadership of a key's group so far.
    pub(crate) fn leader_changes(&self, key: &[u8]) -> u64 {
        self.changes.of_group[usize::from(self.group_of(key))].load(Ordering::Acquire)
    }

    /// Returns the number of changes of leadership of all groups so far.
    pub(crate) fn all_leader_changes(&self) -> u64 {
        self.changes.of_all.load(Ordering::Acquire)
    }

    /// Confirms that values read from these groups before the call were current. `changes`: the number of changes of leadership
    /// before the reads. After another one, this node may lead again, and have read before it knew of a leader in between.
    ///
    /// # Errors
    /// A group that could not be confirmed, and the error of [`ClusterView::confirm`], or `NotReady` after a change.
    pub(crate) async fn confirm(&self, groups: GroupSet, changes: u64) -> Result<(), (u8, ClusterError)> {
        self.confirm_now(groups).await?;
        let has_changed = self.all_leader_changes() != changes && !planted(Bug::LeaderBetweenIgnored);
        match groups.iter().next().filter(|_| has_changed) {
            Some(group) => Err((group, ClusterError::NotReady { slot: self.groups.slots(group).start })),
            None => Ok(()),
        }
    }

    async fn confirm_now(&self, groups: GroupSet) -> Result<(), (u8, ClusterError)> {
        let without_lease = groups.iter().filter(|group| !self.view.has_lease(*group));
        let confirm = |group| {
            let confirmed = self.view.confirm(group);
            async move { confirmed.await.map_err(|error| (group, error)) }
        };
        let confirmations: Vec<_> = without_lease.map(confirm).collect();
        if confirmations.is_empty() {
            return Ok(());
        }
        try_join_all(confirmations).await.map(drop)
    }

    /// Returns the address for gRPC clients of the leader of a slot, if it is known.
    pub(crate) fn grpc_of(&self, slot: u16) -> Option<String> {
        let topology = self.view.topology();
        let of_slot = topology.groups.iter().find(|group| group.slots.contains(&slot));
        let leader = of_slot.and_then(|group| group.leader)?;
        topology.nodes.iter().find(|node| node.id == leader)?.grpc.clone()
    }
}

/// Receivers of changes of leadership.
struct Receivers {
    changes: Arc<LeaderChanges>,
    tracking: Arc<Tracking>,
    watchers: Arc<Watchers>,
    retries: Arc<Retries>,
}

impl LeaderWatch for Receivers {
    /// The changes of the group were or will be reported by another node. So all watches of its keys fire, clients forget
    /// all keys, and watches over gRPC end. Requests with an id may have been executed there, too.
    fn leads(&self, group: u8, leads: bool) {
        if leads {
            self.retries.others_may_have_answered(Instant::now());
        }
        if let Some(changes) = self.changes.of_group.get(usize::from(group)) {
            changes.fetch_add(1, Ordering::Release);
        }
        self.changes.of_all.fetch_add(1, Ordering::Release);
        self.tracking.cleared();
        self.watchers.miss_all(&[SPREAD_KEYSPACE]);
    }
}
