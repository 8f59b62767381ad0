//! Checks the invariants that hold at every moment of a cluster, while clients work and machines fail.
//!
//! * Floor ≤ applied ≤ last entry, and nothing above the floor is purged.
//! * Log matching: entries with one index and one leader are the same, in every log.
//! * State machine safety: the entry applied at an index is the same on every node.
//! * Leader completeness: a leader has all entries that were committed before it was elected.
//! * Nodes that have applied up to the same index hold the same keys and values, so nothing uncommitted is visible.
//!
//! Openraft checks its own invariants after every step in builds with debug assertions.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use esker_cluster::view::{ClusterView, GroupInfo};
use esker_device::Runtime;
use esker_engine::GroupLog;
use esker_simulated::SimRuntime;
use parking_lot::Mutex;

use crate::machines::{Nodes, Running};

/// Number of the state of a group's log that holds the vote.
pub(crate) const VOTE: u8 = 0;
/// Number of the state that holds the base, and its value while a snapshot is being installed.
const BASE: u8 = 2;
const INSTALLING: &[u8] = &[2];
/// Time between two checks.
const INTERVAL: Duration = Duration::from_millis(100);

/// Term and node of a leader, in the order in which leaders follow each other.
type Leader = (u64, u64);

/// The entries, leaders and contents of a group that were seen so far.
#[derive(Default)]
struct Seen {
    /// Hash of each entry, by index and leader.
    entries: BTreeMap<(u64, Leader), u64>,
    /// Leader and hash of the entry that was applied at an index.
    applied: BTreeMap<u64, (Leader, u64)>,
    /// Highest index that was applied on a node which knew of no later leader.
    committed: BTreeMap<Leader, u64>,
    /// Hash of the content after an index was applied, and the node that had it.
    contents: BTreeMap<u64, (u64, u64)>,
    /// Highest index of any log.
    last: u64,
}

/// The progress of a replica that was seen since its node was started.
#[derive(Default)]
struct Replica {
    /// Entries up to this index were checked after they had been applied.
    checked: u64,
    /// The content may be ahead of the applied index up to here: a crash does not undo applied entries.
    ahead: u64,
}

/// Watches all nodes.
pub(crate) struct Watcher {
    world: SimRuntime,
    nodes: Nodes,
    groups: Mutex<BTreeMap<u8, Seen>>,
    /// By the start of the node and the group.
    replicas: Mutex<BTreeMap<(u64, u8), Replica>>,
    ends: AtomicBool,
}

fn header(entry: &[u8]) -> (Leader, u64) {
    let number = |at: usize| entry[at..at + 8].try_into().map(u64::from_le_bytes).expect("eight bytes");
    ((number(0), number(8)), number(16))
}

fn hash(of: impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    of.hash(&mut hasher);
    hasher.finish()
}

fn leader_of_vote(vote: &Bytes) -> Leader {
    let number = |at: usize| vote[at..at + 8].try_into().map(u64::from_le_bytes).expect("eight bytes");
    (number(0), number(8))
}

impl Watcher {
    pub(crate) fn new(world: &SimRuntime, nodes: &Nodes) -> Arc<Watcher> {
        Arc::new(Watcher {
            world: world.clone(),
            nodes: nodes.clone(),
            groups: Mutex::default(),
            replicas: Mutex::default(),
            ends: AtomicBool::new(false),
        })
    }

    /// Checks now and then, until the end.
    pub(crate) fn start(self: &Arc<Watcher>) {
        let watcher = self.clone();
        let watch = async move {
            while !watcher.ends.load(Ordering::Relaxed) {
                watcher.check().await;
                watcher.world.sleep(INTERVAL).await;
            }
        };
        self.world.spawn("watcher", Box::pin(watch));
    }

    pub(crate) fn end(&self) {
        self.ends.store(true, Ordering::Relaxed);
    }

    fn running(&self) -> Vec<Running> {
        self.nodes.lock().values().cloned().collect()
    }

    /// Checks logs and indexes of all nodes.
    pub(crate) async fn check(&self) {
        for running in self.running() {
            let Some(log) = running.store.group_log() else { continue };
            let groups = running.node.topology().groups.len();
            for at in 0..groups {
                // Read anew for each group: the log of the one before was waited for.
                let topology = running.node.topology();
                self.check_replica(&running, &log, &topology.groups[at]).await;
            }
        }
    }

    async fn check_replica(&self, running: &Running, log: &GroupLog, info: &GroupInfo) {
        let (group, applied, range) = (info.number, info.applied, log.range(info.number));
        let base = log.state(group, BASE);
        if base.as_deref() == Some(INSTALLING) || applied == 0 {
            return;
        }
        let vote = log.state(group, VOTE);
        let purged = log.purged(group).map_or(0, |(index, _)| index);
        self.check_indexes(info, purged);
        let from = {
            let mut replicas = self.replicas.lock();
            let replica = replicas.entry((running.start, group)).or_default();
            if replica.checked == 0 {
                replica.ahead = self.groups.lock().entry(group).or_default().last.max(range.end);
            }
            let from = range.start.max(replica.checked + 1);
            replica.checked = applied;
            from
        };
        // A node that is being stopped cannot be read.
        let Ok(entries) = log.read(group, from..range.end).await else { return };
        let mut groups = self.groups.lock();
        let seen = groups.entry(group).or_default();
        seen.last = seen.last.max(range.end.saturating_sub(1));
        for entry in &entries {
            self.check_entry(seen, group, running.node.number(), applied, entry);
        }
        let Some(vote) = vote.as_ref().map(leader_of_vote) else { return };
        let committed = seen.committed.entry(vote).or_default();
        *committed = applied.max(*committed);
        let leads = info.leader == Some(running.node.number()) && vote.1 == running.node.number();
        let before = seen.committed.range(..vote).map(|(_, index)| *index).max().unwrap_or(0);
        assert!(
            !leads || range.end.max(purged + 1) > before,
            "seed {}: group {group}: leader {vote:?} has entries up to {}, and {before} was committed before",
            self.world.seed(),
            range.end
        );
    }

    fn check_indexes(&self, info: &GroupInfo, purged: u64) {
        let is_sound = info.floor <= info.applied && info.applied <= info.last_index && purged <= info.floor;
        assert!(
            is_sound,
            "seed {}: it does not hold that purged {purged} <= floor <= applied <= last: {info:?}",
            self.world.seed()
        );
    }

    fn check_entry(&self, seen: &mut Seen, group: u8, node: u64, applied: u64, entry: &Bytes) {
        let ((leader, index), hash) = (header(entry), hash(&entry[..]));
        let known = *seen.entries.entry((index, leader)).or_insert(hash);
        let seed = self.world.seed();
        assert_eq!(
            known, hash,
            "seed {seed}: group {group}: entry {index} of {leader:?} differs on {node:x}"
        );
        if index <= applied {
            let known = *seen.applied.entry(index).or_insert((leader, hash));
            assert_eq!(
                known,
                (leader, hash),
                "seed {seed}: group {group}: node {node:x} applied another entry {index}"
            );
        }
    }

    /// Checks that replicas with the same applied index have the same content, now and earlier.
    pub(crate) async fn check_contents(&self) {
        for running in self.running() {
            for group in running.node.topology().groups.iter().map(|group| group.number) {
                self.check_content(&running, group).await;
            }
        }
    }

    async fn check_content(&self, running: &Running, group: u8) {
        let applied = || {
            let topology = running.node.topology();
            topology.groups.iter().find(|info| info.number == group).map_or(0, |info| info.applied)
        };
        let before = applied();
        let key = (running.start, group);
        let is_exact = self.replicas.lock().get(&key).is_some_and(|replica| before >= replica.ahead);
        let Ok(store) = running.store.database(group) else { return };
        if before == 0 || !is_exact {
            return;
        }
        let (mut entries, mut stream) = (Vec::new(), store.stream());
        while let Some(entry) = stream.next().await {
            let Ok(entry) = entry else { return };
            entries.push((entry.key.to_vec(), entry.value.to_vec()));
        }
        entries.sort();
        if applied() != before {
            return;
        }
        let (hash, node) = (hash(&entries), running.node.number());
        let mut groups = self.groups.lock();
        let contents = &mut groups.entry(group).or_default().contents;
        let (known, other) = *contents.entry(before).or_insert((hash, node));
        assert_eq!(
            known,
            hash,
            "seed {}: group {group}: nodes {node:x} and {other:x} differ after entry {before}",
            self.world.seed()
        );
    }
}
