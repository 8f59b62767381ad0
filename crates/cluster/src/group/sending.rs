//! The way from a replica to the others of its group. A snapshot travels as the keys of the keyspace, in parts.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;
use esker_engine::{Entry, StoredChange, StoredValue};
use esker_seeded_bugs::{Bug, planted};

use super::installing::NOTHING_MISSING;
use super::status::count;
use super::{Group, Role};
use crate::peers::{PeerRequest, PeerResponse};
use crate::raft::network::{RaftRequest, RaftResponse, Transport, TransportFuture};

/// Number of times a part is sent, and the time between.
const TRIES: u32 = 6;
const PAUSE: Duration = Duration::from_millis(100);

/// The way of one replica.
pub(super) struct GroupTransport(pub(super) Weak<Group>);

impl Transport for GroupTransport {
    fn call(&self, node: u64, request: RaftRequest) -> TransportFuture {
        let group = self.0.clone();
        Box::pin(async move {
            let group = group.upgrade().ok_or("the replica has ended")?;
            if let Some(snapshot) = request.snapshot_proof() {
                match group.send_keys(node, snapshot).await {
                    // It says so to the request, too, and the leader continues behind the snapshot.
                    Err(why) if why == NOTHING_MISSING => (),
                    sent => sent?,
                }
            }
            group.ask(node, request).await
        })
    }
}

fn change_of(entry: Entry) -> StoredChange {
    let value = StoredValue { bytes: entry.value, compressed: None, expires_at_ms: entry.expires_at_ms };
    StoredChange { key: entry.key, value: Some(value), origin: 0 }
}

/// A transfer of the keyspace to a node.
struct Transfer {
    node: u64,
    number: u64,
    proof: Bytes,
    part: u32,
}

/// Ends the hold of a transfer on the log.
struct Held<'a>(&'a Group, u64);

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.0.sending.lock().remove(&self.1);
    }
}

impl Group {
    async fn ask(self: &Arc<Group>, node: u64, request: RaftRequest) -> Result<RaftResponse, String> {
        let request = PeerRequest::Raft { group: self.number(), request };
        match self.parts.peers.call(node, request).await? {
            PeerResponse::Raft(response) => Ok(response),
            PeerResponse::Refused(why) => Err(why),
            _ => Err("it answered another kind of request".into()),
        }
    }

    /// Sends all keys to a node, while writes go on. The log from `index` on makes the copy exact.
    async fn send_keys(self: &Arc<Group>, node: u64, (proof, index): (Bytes, u64)) -> Result<(), String> {
        let number = self.transfers.fetch_add(1, Ordering::Relaxed);
        self.sending.lock().insert(number, index);
        let _held = Held(self, number);
        if self.status().voters.contains(&node)
            && !planted(Bug::SnapshotOfDamageSent)
            && let Err(why) = self.check_keys().await
        {
            self.parts.runtime.sleep(self.parts.settings.patience).await;
            return Err(format!("no snapshot is sent, because a record cannot be read here: {why}"));
        }
        self.running()?.allow_reversion(node).await;
        let mut transfer = Transfer { node, number, proof, part: 0 };
        let mut keys = self.parts.keys.stream();
        let (mut changes, mut bytes) = (Vec::new(), 0);
        while let Some(entry) = keys.next().await {
            let change = change_of(entry.map_err(|error| error.to_string())?);
            let more = change.key.len() + change.value.as_ref().map_or(0, |value| value.bytes.len());
            if bytes + more > self.parts.settings.part_bytes && !changes.is_empty() {
                self.send_part(&mut transfer, std::mem::take(&mut changes), bytes, false).await?;
                bytes = 0;
            }
            bytes += more;
            changes.push(change);
        }
        self.send_part(&mut transfer, changes, bytes, true).await?;
        count(&self.counters.snapshots_sent, 1);
        Ok(())
    }

    /// Reads all keys. A voter is emptied by the first part of a snapshot, and may have the only sound copy of a record that is
    /// damaged here.
    async fn check_keys(&self) -> Result<(), String> {
        let mut keys = self.parts.keys.stream();
        while let Some(entry) = keys.next().await {
            entry.map_err(|error| error.to_string())?;
        }
        Ok(())
    }

    async fn send_part(
        self: &Arc<Group>,
        transfer: &mut Transfer,
        changes: Vec<StoredChange>,
        bytes: usize,
        is_last: bool,
    ) -> Result<(), String> {
        let Transfer { node, number, ref proof, part } = *transfer;
        let request = PeerRequest::SnapshotPart {
            group: self.number(),
            transfer: number,
            part,
            vote: proof.clone(),
            changes,
            is_last,
        };
        let wait = self.parts.settings.pace.reserve(bytes, self.now());
        if !wait.is_zero() {
            self.parts.runtime.sleep(wait).await;
        }
        let mut failed = String::new();
        for _ in 0..TRIES {
            // A leader that was deposed, or stopped, sends nothing more. A new one may not be ready before this node has its first
            // entry, behind the snapshot.
            if self.running()?.brief().role != Role::Leader {
                return Err("the node no longer leads the group".into());
            }
            match self.parts.peers.call(node, request.clone()).await {
                Ok(PeerResponse::Done) => {
                    transfer.part += 1;
                    count(&self.counters.snapshot_bytes, bytes as u64);
                    return Ok(());
                }
                Ok(PeerResponse::Refused(why)) => return Err(why),
                Ok(_) => return Err("it answered another kind of request".into()),
                Err(why) => failed = why,
            }
            self.parts.runtime.sleep(PAUSE).await;
        }
        Err(format!("part {part} of a snapshot did not arrive: {failed}"))
    }
}
