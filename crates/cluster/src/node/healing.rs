//! Heals damaged records of this node from the other copies. See `docs/decisions/0054-repair-from-peers.md`.
//!
//! 1. A read, a verification or the scrub reports the key of a damaged record. Without the key, `searching` finds it.
//! 2. The node asks the leader of the key's group to write the same value again, through the log. A leader that has the damage hands
//!    over first: another node has a copy that is sound.
//! 3. The put is applied here like any other: it replaces the damaged record and reads nothing of it. It cannot replace a newer value,
//!    because the leader reads and writes in one step.

use std::ops::Bound::{Excluded, Unbounded};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;
use esker_engine::{Batch, DamageWatch, Entry, Error, ErrorKind, Store, WriteOptions};
use esker_seeded_bugs::{Bug, planted};
use futures_util::future::{join_all, select};

use super::core::Node;
use crate::peers::{PeerRequest, PeerResponse};
use crate::slots::META_GROUP;

/// Number of keys that are healed together.
const TOGETHER: usize = 8;
/// Pause after them: at most 400 keys per second, and no more bytes than a copy has.
const PAUSE: Duration = Duration::from_millis(20);
/// Pause after keys of which one could not be healed.
const AGAIN: Duration = Duration::from_secs(5);

/// Passes damage to a node without holding it.
pub(super) struct Damages(pub(super) Weak<Node>);

impl DamageWatch for Damages {
    fn found(&self, group: u8, key: Option<&[u8]>) {
        let Some(node) = self.0.upgrade().filter(|_| !planted(Bug::DamageNotReported)) else { return };
        let healing = &node.healing;
        match key.filter(|_| node.replica(group).is_some()) {
            Some(key) => drop(healing.add(group, key)),
            None => {
                healing.unknown.fetch_add(1, Ordering::Relaxed);
                if node.replica(group).is_some() {
                    healing.want_search(group);
                }
            }
        }
    }
}

/// Heals one record after the other, some at a time, until the node stops.
pub(super) async fn run(node: Arc<Node>) {
    let mut last = None;
    while !node.has_stopped.load(Ordering::Relaxed) {
        let mut next: Vec<(u8, Bytes)> = {
            let waiting = node.healing.waiting.lock();
            // Keys that could not be healed wait for the others.
            let after = last.take().map(|last| waiting.range((Excluded(last), Unbounded)));
            let rest: Vec<_> = after.into_iter().flatten().take(TOGETHER).cloned().collect();
            if rest.is_empty() { waiting.iter().take(TOGETHER).cloned().collect() } else { rest }
        };
        next.truncate(node.fitting(&next));
        let Some(end) = next.last().cloned() else {
            select(Box::pin(node.healing.added.notified()), node.runtime().sleep(AGAIN)).await;
            continue;
        };
        let bytes: Vec<usize> = next.iter().map(|(group, key)| node.bytes_of(*group, key)).collect();
        let healed = join_all(next.iter().map(|(group, key)| node.heal(*group, key))).await;
        let sent = bytes.iter().zip(&healed).filter(|(_, healed)| healed.is_ok()).map(|(bytes, _)| *bytes);
        let mut pause = PAUSE.max(node.pause_after(sent.sum()));
        for ((group, key), healed) in next.into_iter().zip(healed) {
            match healed {
                Ok(()) => {
                    node.healing.waiting.lock().remove(&(group, key));
                    node.healing.healed.fetch_add(1, Ordering::Relaxed);
                }
                Err(why) => {
                    tracing::warn!(group, %why, "a damaged record cannot be healed from another copy yet");
                    node.healing.failed.fetch_add(1, Ordering::Relaxed);
                    (last, pause) = (Some(end.clone()), AGAIN);
                }
            }
        }
        node.runtime().sleep(pause).await;
    }
}

/// Returns true if an update failed because a record cannot be read here.
fn is_of_damage(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Corrupt | ErrorKind::Io)
}

impl Node {
    /// Returns the number of keys that are healed together, at least one if there is one: their values are no longer than a part of a
    /// copy, so that copies get their turns.
    fn fitting(&self, keys: &[(u8, Bytes)]) -> usize {
        let (most, mut bytes) = (self.settings.group.part_bytes, 0_usize);
        let fits = |(group, key): &&(u8, Bytes)| {
            bytes = bytes.saturating_add(self.bytes_of(*group, key));
            bytes <= most
        };
        keys.iter().take_while(fits).count().max(1)
    }

    /// Returns an upper bound of the bytes of a value.
    fn bytes_of(&self, group: u8, key: &Bytes) -> usize {
        self.keys_of(group).map_or(0, |store| store.read_bytes_hint(key))
    }

    /// Returns the time after which healed values of this length and copies of groups keep to one rate.
    fn pause_after(&self, bytes: usize) -> Duration {
        if planted(Bug::HealedWithoutPace) {
            return Duration::ZERO;
        }
        let (pace, now) = (&self.settings.group.pace, self.runtime().now());
        pace.reserve(bytes, now) + pace.lasts(bytes)
    }

    /// Heals a record: returns once a majority has its value again, which comes here by the log.
    async fn heal(&self, group: u8, key: &Bytes) -> Result<(), String> {
        if self.leader(group) == Some(self.identity.node) {
            // The value may be in memory still.
            match self.rewrite(group, key.clone()).await {
                Ok(()) => return Ok(()),
                Err(error) if is_of_damage(&error) && !planted(Bug::DamagedLeaderStays) => {
                    self.hand_over_damaged(group).await?;
                }
                Err(error) => return Err(error.to_string()),
            }
        }
        let leader = self.leader(group).filter(|leader| *leader != self.identity.node);
        let leader = leader.ok_or("the group has no other leader")?;
        match self.call(leader, PeerRequest::Rewrite { group, key: key.clone() }).await? {
            PeerResponse::Done => Ok(()),
            PeerResponse::Refused(why) => Err(why),
            other => Err(format!("the leader answered with {other:?}")),
        }
    }

    /// Hands the leadership to the voter that has the most of the log and answers.
    pub(super) async fn hand_over_damaged(&self, group: u8) -> Result<(), String> {
        let _one_at_a_time = self.healing.handing_over.lock().await;
        let replica = self.replica(group).ok_or("there is no such group")?;
        if replica.ready_term().is_err() {
            return Ok(());
        }
        let status = replica.status();
        let voters =
            status.matched.iter().filter(|(node, _)| status.voters.contains(node) && self.is_up(*node));
        // Two nodes with damage would hand it to each other for ever.
        let is_sound = |node: u64| self.known_damage(node).groups >> group & 1 == 0;
        let best = voters.max_by_key(|(node, index)| (is_sound(*node), *index));
        let best = best.ok_or("no other node with a copy answers")?;
        self.move_lead(group, best.0).await
    }

    /// Answers another node, whose copy of a key is damaged.
    pub(super) async fn rewrite_here(&self, group: u8, key: Bytes) -> PeerResponse {
        if group != META_GROUP && self.groups.of_key(&key) != group {
            return PeerResponse::Refused(format!("the key is none of group {group}"));
        }
        match self.rewrite(group, key).await {
            Ok(()) => PeerResponse::Done,
            Err(error) => PeerResponse::Refused(error.to_string()),
        }
    }

    /// Returns the direct view of a group.
    pub(super) fn keys_of(&self, group: u8) -> esker_engine::Result<Store> {
        self.meta.database(group)
    }

    /// Writes the value of a key again, if this node leads its group.
    async fn rewrite(&self, group: u8, key: Bytes) -> esker_engine::Result<()> {
        self.check_group(group, self.first_slot(group)).map_err(Error::Cluster)?;
        let rewrite = |found: &[Option<Entry>]| {
            let mut batch = Batch::new();
            if let Some(Entry { value, expires_at_ms, .. }) = found.first().and_then(Option::as_ref) {
                let _ = match expires_at_ms {
                    Some(at) => batch.put_expiring(key.clone(), value.clone(), *at),
                    None => batch.put(key.clone(), value.clone()),
                };
            }
            (batch, ())
        };
        // Database 0 has no keys of the meta group.
        let store = if group == META_GROUP { self.keys_of(group)? } else { self.meta.database(0)? };
        store.update(std::slice::from_ref(&key), WriteOptions::default(), rewrite).await
    }
}
