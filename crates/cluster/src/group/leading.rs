//! Requests to the leader of a group.

use std::collections::BTreeSet;
use std::sync::Arc;

use futures_util::future::{BoxFuture, Either, select};

use super::{Group, Instance, Queue};
use crate::raft::error::GroupError;

/// Number of election timeouts within which another node leads, if it can.
const ELECTIONS: u32 = 6;

/// Proposals wait until it is dropped, also if a transfer is not waited for to its end.
struct Paused<'g>(&'g Queue);

impl<'g> Paused<'g> {
    fn new(queue: &'g Queue) -> Paused<'g> {
        queue.pause(true);
        Paused(queue)
    }
}

impl Drop for Paused<'_> {
    fn drop(&mut self) {
        self.0.pause(false);
    }
}

impl Group {
    /// Adds a node that receives the log and does not vote. Returns once the change is committed.
    ///
    /// # Errors
    /// `NotReady`, or `Refused` with the reason, such as another change in progress.
    pub async fn add_learner(&self, node: u64) -> Result<(), GroupError> {
        self.member()?.add_learner(node).await
    }

    /// Makes these nodes the voters. New ones should be learners that have caught up. Nodes that no longer vote are removed.
    /// Returns once the change is committed.
    ///
    /// # Errors
    /// As [`add_learner`](Self::add_learner).
    pub async fn change_voters(&self, voters: BTreeSet<u64>) -> Result<(), GroupError> {
        self.member()?.change_voters(voters).await
    }

    /// Removes a learner. Returns once the change is committed.
    ///
    /// # Errors
    /// As [`add_learner`](Self::add_learner).
    pub async fn remove_learner(&self, node: u64) -> Result<(), GroupError> {
        self.member()?.remove_learner(node).await
    }

    /// Hands the leadership to a node. Proposals wait meanwhile, and are refused once another node leads. The lease ends
    /// before the node is asked, for the rest of the term. Returns once another node leads.
    ///
    /// # Errors
    /// `NotReady`; `Refused` if the node is no voter or lags behind, or if no other node leads after a few elections.
    pub async fn transfer(&self, node: u64) -> Result<(), GroupError> {
        let term = self.ready_term().map_err(GroupError::NotReady)?;
        let instance = self.member()?;
        if node == self.parts.node {
            return Ok(());
        }
        if !instance.observe().voters.contains(&node) {
            return Err(GroupError::Refused(format!("node {node} does not vote in group {}", self.number())));
        }
        let _paused = Paused::new(&self.queue);
        let caught_up = self.until(&instance, |instance| {
            let observed = instance.observe();
            let matched = observed.matched.iter().find(|(other, _)| *other == node);
            let has_all = matched.is_some_and(|(_, index)| *index == observed.last_index);
            (has_all && !self.queue.has_entries_on_their_way()).then_some(())
        });
        if caught_up.await.is_none() {
            return Err(GroupError::Refused(format!("node {node} does not catch up with the log")));
        }
        self.serving.give_up(term);
        instance.ask_to_lead(node).await;
        let elected = self.until(&instance, |instance| {
            let brief = instance.brief();
            (brief.leader.is_some_and(|leader| leader != self.parts.node) && brief.term >= term)
                .then_some(brief.leader)
        });
        match elected.await {
            Some(Some(leader)) if leader == node => Ok(()),
            Some(Some(leader)) => Err(GroupError::Refused(format!("node {leader} was elected instead"))),
            _ => Err(GroupError::Refused(format!("node {node} does not lead after several elections"))),
        }
    }

    /// Waits for a state of the member; `None` if it does not come within a few elections.
    async fn until<T>(&self, instance: &Instance, look: impl FnMut(&Instance) -> Option<T>) -> Option<T> {
        let wait = self.parts.settings.replica.election.1 * ELECTIONS;
        match select(Box::pin(instance.wait(look)), self.parts.runtime.sleep(wait)).await {
            Either::Left((found, _)) => found,
            Either::Right(_) => None,
        }
    }

    /// Returns the number of other voters on which everything that was answered here before the call is durable. Waits
    /// until there are `wanted`, at most all, or until this node no longer leads.
    pub fn replicated(self: &Arc<Group>, wanted: usize) -> BoxFuture<'static, usize> {
        let group = self.clone();
        Box::pin(async move {
            let Ok(instance) = group.running() else { return 0 };
            let index = instance.observe().last_index;
            let mut count = 0;
            let counted = instance.wait(|instance| {
                let observed = instance.observe();
                let others = observed.voters.iter().filter(|voter| **voter != group.parts.node).count();
                let has_all = |(node, at): &&(u64, u64)| *at >= index && observed.voters.contains(node);
                count = observed.matched.iter().filter(has_all).count();
                (count >= wanted.min(others) || !observed.brief.is_ready).then_some(())
            });
            let _stopped = counted.await;
            count
        })
    }
}
