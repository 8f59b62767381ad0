//! Keeps the replicas of a node recent while clients read from them: asks each leader for its position, several times within the
//! staleness that is allowed. Idle without such clients.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::future::{BoxFuture, Either, join_all, select};

use super::core::Node;
use crate::group::Asked;
use crate::peers::{PeerRequest, PeerResponse, ReadIndex};
use crate::view::{KeptRecent, ReadMark};

/// Questions to a leader within the staleness that is allowed.
const QUESTIONS: u32 = 5;
/// Longest time between two questions.
const INTERVAL_MAX: Duration = Duration::from_secs(1);

/// A client that reads from replicas.
struct Client(Arc<Node>);

impl Drop for Client {
    fn drop(&mut self) {
        self.0.following.clients.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Asks the leaders from time to time until the node stops.
pub(super) async fn run(node: Arc<Node>) {
    let interval = (node.settings.staleness / QUESTIONS).min(INTERVAL_MAX);
    while !node.has_stopped.load(Ordering::Relaxed) {
        let pause = match node.following.clients() {
            0 => INTERVAL_MAX,
            _ => {
                node.ask_leaders();
                interval
            }
        };
        select(Box::pin(node.following.begun.notified()), node.runtime().sleep(pause)).await;
    }
}

impl Node {
    /// Asks each leader of a group that is held here, unless it has not answered the last question.
    fn ask_leaders(&self) {
        let mut questions: BTreeMap<u64, BTreeMap<u8, Asked>> = BTreeMap::new();
        for group in self.groups.numbers() {
            let Some(replica) = self.replica(group).filter(|replica| replica.holds()) else { continue };
            if let (Some(leader), Some(asked)) = (self.leader(group), replica.question()) {
                questions.entry(leader).or_default().insert(group, asked);
            }
        }
        for (leader, asked) in questions {
            if self.following.asked.lock().insert(leader) {
                let node = self.shared();
                let task = async move {
                    node.ask_leader(leader, asked).await;
                    node.following.asked.lock().remove(&leader);
                    node.following.answered.notify_waiters();
                };
                self.runtime().spawn("read indexes", Box::pin(task));
            }
        }
    }

    async fn ask_leader(&self, leader: u64, asked: BTreeMap<u8, Asked>) {
        self.following.questions.fetch_add(1, Ordering::Relaxed);
        let groups = asked.keys().fold(0, |groups, group| groups | 1 << group);
        let answer: BoxFuture<'_, BTreeMap<u8, ReadIndex>> = match leader == self.identity.node {
            true => Box::pin(self.read_indexes(groups)),
            false => {
                let answer = self.peers.call(leader, PeerRequest::ReadIndexes(groups));
                Box::pin(async move {
                    match answer.await {
                        Ok(PeerResponse::ReadIndexes(found)) => found,
                        _ => BTreeMap::new(),
                    }
                })
            }
        };
        // A later answer would be too old.
        let found = match select(answer, self.runtime().sleep(self.settings.staleness)).await {
            Either::Left((found, _)) => found,
            Either::Right(_) => return,
        };
        for (group, found) in found {
            if let (Some(asked), Some(replica)) = (asked.get(&group), self.replica(group)) {
                replica.confirmed(*asked, found);
            }
        }
    }

    /// Returns the positions of those of these groups that this node leads for certain.
    pub(super) async fn read_indexes(&self, groups: u16) -> BTreeMap<u8, ReadIndex> {
        let asked = self.replicas.values().filter(|replica| groups >> replica.number() & 1 == 1);
        let found =
            asked.map(|replica| async move { Some((replica.number(), replica.read_index().await.ok()?)) });
        join_all(found).await.into_iter().flatten().collect()
    }

    /// Returns true if each replica here that holds its group is recent.
    fn is_all_recent(&self) -> bool {
        let held =
            self.groups.numbers().filter_map(|group| self.replica(group)).filter(|replica| replica.holds());
        let is_recent = |mark: &ReadMark, replica: &Arc<crate::group::Group>| {
            replica.is_recent(mark, self.settings.staleness)
        };
        held.into_iter().all(|replica| replica.mark().is_some_and(|mark| is_recent(&mark, replica)))
    }

    /// See [`ClusterView::keep_recent`](crate::view::ClusterView::keep_recent).
    pub(super) fn keep_replicas_recent(&self) -> BoxFuture<'static, KeptRecent> {
        let node = self.shared();
        node.following.clients.fetch_add(1, Ordering::Relaxed);
        let client = Client(node);
        Box::pin(async move {
            let node = &client.0;
            let mut late = node.runtime().sleep(node.settings.staleness);
            node.following.begun.notify_one();
            loop {
                let answered = Box::pin(node.following.answered.notified());
                if node.is_all_recent() {
                    break;
                }
                match select(answered, late).await {
                    Either::Left((_, rest)) => late = rest,
                    Either::Right(_) => break,
                }
            }
            Box::new(client) as KeptRecent
        })
    }

    /// Returns true if values read after a mark are recent enough, and counts the answer.
    pub(super) fn is_replica_recent(&self, group: u8, mark: &ReadMark) -> bool {
        let is_recent =
            self.replica(group).is_some_and(|replica| replica.is_recent(mark, self.settings.staleness));
        let count = if is_recent { &self.following.reads } else { &self.following.stale };
        count.fetch_add(1, Ordering::Relaxed);
        is_recent
    }
}
