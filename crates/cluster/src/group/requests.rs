//! Requests of other nodes.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use futures_util::future::BoxFuture;
use tokio::sync::oneshot;

use super::Group;
use super::installing::Part;
use crate::peers::{PeerRequest, PeerResponse};
use crate::raft::network::{RaftRequest, RaftResponse};

impl Group {
    /// Handles a request of another node: `Raft`, `SnapshotPart` or `Transfer` of this group. Others are refused.
    pub fn handle(self: &Arc<Group>, _from: u64, request: PeerRequest) -> BoxFuture<'static, PeerResponse> {
        let group = self.clone();
        Box::pin(async move {
            match request {
                PeerRequest::Raft { group: number, request } if number == group.number() => {
                    match group.handle_raft(request).await {
                        Ok(response) => PeerResponse::Raft(response),
                        Err(why) => PeerResponse::Refused(why),
                    }
                }
                PeerRequest::SnapshotPart { group: number, transfer, part, vote, changes, is_last }
                    if number == group.number() =>
                {
                    let part = Part { transfer, part, proof: vote, changes, is_last };
                    let receiver = group.clone();
                    let received = group.detached(async move { receiver.receive_part(part).await }).await;
                    received.unwrap_or_else(PeerResponse::Refused)
                }
                PeerRequest::Transfer { group: number, node } if number == group.number() => {
                    match group.transfer(node).await {
                        Ok(()) => PeerResponse::Done,
                        Err(why) => PeerResponse::Refused(why.to_string()),
                    }
                }
                _ => PeerResponse::Refused(format!(
                    "this is no request to a replica of group {}",
                    group.number()
                )),
            }
        })
    }

    /// Runs work to its end, also if the connection that asked for it is closed.
    async fn detached<T: Send + 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
    ) -> Result<T, String> {
        let (done, ended) = oneshot::channel();
        let task = async move {
            // Without a receiver no one waits for the answer.
            let _ = done.send(work.await);
        };
        self.parts.runtime.spawn("snapshot part", Box::pin(task));
        ended.await.map_err(|_| "the node is ending".into())
    }

    async fn handle_raft(self: &Arc<Group>, mut request: RaftRequest) -> Result<RaftResponse, String> {
        if let Some((proof, _)) = request.snapshot_proof() {
            let receiver = self.clone();
            return self.detached(async move { receiver.finish_install(request, proof).await }).await?;
        }
        if let Some(leader) = request.appending_leader().filter(|_| self.is_installing()) {
            let receiver = self.clone();
            self.detached(async move { receiver.abandon_superseded_install(leader).await }).await??;
        }
        let instance = self.running_for(&request)?;
        if request.asks_for_vote() {
            self.check_heard_of_exclusion(&request)?;
            self.check_may_vote(&mut request)?;
        }
        let cut = request.shorten(self.entry_bytes_max());
        let _room = match request.entries() {
            (0, _) => None,
            (entries, bytes) => match self.announce_received(entries, bytes) {
                None => {
                    self.upkeep.notify_one();
                    return Err("the log of the node is nearly full".into());
                }
                announced => announced,
            },
        };
        Ok(instance.handle(request).await?.of_part(cut))
    }

    /// Refuses to vote while a promise to a leader may bind that this node gave before its start.
    fn check_may_vote(&self, request: &mut RaftRequest) -> Result<(), String> {
        let gave_up = self.ready_term().is_ok_and(|term| self.serving.has_given_up(term));
        if gave_up {
            return Ok(());
        }
        request.respect_lease();
        if (self.now().as_nanos() as u64) < self.votes_from.load(Ordering::Acquire) {
            return Err("the node has just started, and may have promised its vote to a leader".into());
        }
        Ok(())
    }
}
