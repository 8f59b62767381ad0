//! Confirmations of the leadership by a majority. Readers that wait share a round, which begins after their calls.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use tokio::sync::oneshot;

use super::Group;
use super::status::count;
use crate::raft::error::{GroupError, NotReady};

impl Group {
    /// Confirms with a majority that this node leads the group at a moment after the call. Calls that wait share a round.
    ///
    /// # Errors
    /// `NotReady` or `NoMajority`.
    pub fn confirm(self: &Arc<Group>) -> BoxFuture<'static, Result<(), GroupError>> {
        let (answer, answered) = oneshot::channel();
        let begins = {
            let mut confirming = self.confirming.lock();
            confirming.waiting.push(answer);
            !std::mem::replace(&mut confirming.is_running, true)
        };
        if begins {
            self.parts.runtime.spawn("confirmation", Box::pin(self.clone().run_rounds()));
        }
        Box::pin(async move {
            answered.await.unwrap_or_else(|_| Err(GroupError::NoMajority("the node is ending".into())))
        })
    }

    async fn run_rounds(self: Arc<Group>) {
        loop {
            let waiting = {
                let mut confirming = self.confirming.lock();
                confirming.is_running = !confirming.waiting.is_empty();
                std::mem::take(&mut confirming.waiting)
            };
            if waiting.is_empty() {
                return;
            }
            let confirmed = self.confirm_once().await;
            count(&self.counters.confirmations, 1);
            for answer in waiting {
                let _ = answer.send(confirmed.clone());
            }
        }
    }

    async fn confirm_once(&self) -> Result<(), GroupError> {
        let term = self.ready_term().map_err(GroupError::NotReady)?;
        self.member()?.confirm().await?;
        // A term that began meanwhile would confirm nothing about values read before.
        match self.ready_term() {
            Ok(now) if now == term => Ok(()),
            Ok(_) => Err(GroupError::NotReady(NotReady { leader: self.serving.leader() })),
            Err(why) => Err(GroupError::NotReady(why)),
        }
    }
}
