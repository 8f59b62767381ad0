//! Rolling upgrades: the level of the protocol that the cluster uses, and its rise once every node has a program with the next one.
//! See [`levels`](crate::levels).
//!
//! 1. Nodes are restarted with the new program, one by one. It uses the level that the meta group has stored.
//! 2. An administrator finalizes. The leader of the meta group asks every node, and stores the highest level of its program if all
//!    have it.
//! 3. Each node that applies this first refuses connections of lower levels, and then proposes entries of the new one. So no program
//!    that lacks the level gets such an entry from it. A program that gets one from a node that has not applied the change yet stops
//!    the replica instead of applying the entry.

use esker_seeded_bugs::{Bug, planted};
use futures_util::future::join_all;

use super::core::Node;
use crate::levels::{Levels, Program};
use crate::meta::table::{LEVEL_KEY, level_bytes};
use crate::peers::{PeerRequest, PeerResponse};

impl Node {
    /// Uses a level from now on, for connections first and then for entries. Stops the replicas if this program does not have it.
    pub(super) fn use_level(&self, level: u8) {
        let supported = Levels::supported();
        if level > supported.highest {
            tracing::error!(
                "the cluster uses level {level} of the protocol between nodes now, and this program has {supported}: its replicas \
                 stop; start a later program"
            );
            let node = self.shared();
            self.runtime().spawn("end of an earlier program", Box::pin(async move { node.stop().await }));
            return;
        }
        self.peers.set_level(level);
        self.replicas.values().for_each(|replica| replica.set_level(level));
    }

    /// Asks a node for its program.
    pub(super) async fn program_of(&self, node: u64) -> Result<Program, String> {
        match self.call(node, PeerRequest::Program).await? {
            PeerResponse::Program(program) => Ok(program),
            // It does not know the question.
            PeerResponse::Refused(_) => Ok(Program::first()),
            other => Err(format!("it answered {other:?}")),
        }
    }

    /// Checks that the programs of all nodes have the highest level of this one.
    ///
    /// # Errors
    /// A text that names the nodes without it.
    pub(super) async fn check_programs(&self) -> Result<(), String> {
        let level = Levels::supported().highest;
        let others = self.all_known().into_iter().filter(|(node, _)| *node != self.identity.node);
        let asked = others.map(|(node, record)| async move {
            let address = record.peers;
            match self.program_of(node).await {
                Ok(program) if program.levels.contains(level) => None,
                Ok(program) => Some(format!("node {node:016x} at {address} has {}", program.levels)),
                Err(why) => Some(format!("node {node:016x} at {address} does not say: {why}")),
            }
        });
        let behind: Vec<_> = join_all(asked).await.into_iter().flatten().collect();
        match behind.is_empty() || planted(Bug::FinalizedWithoutAsking) {
            true => Ok(()),
            false => Err(format!(
                "level {level} needs a program that has it on every node, and {}; restart these nodes with the new program, or \
                 remove them (esker cluster remove), and finalize again",
                behind.join("; ")
            )),
        }
    }

    /// Stores the highest level of this program, if this node leads the meta group and all nodes have it.
    pub(super) async fn finalize_here(&self) -> PeerResponse {
        if let Some(elsewhere) = self.meta_elsewhere() {
            return elsewhere;
        }
        // No node is added meanwhile.
        let _alone = self.changing.lock().await;
        if let Err(error) = self.refresh().await {
            return self.not_written(error);
        }
        let level = Levels::supported().highest;
        if self.table.load().level() >= level {
            return PeerResponse::Done;
        }
        if let Err(why) = self.check_programs().await {
            return PeerResponse::Refused(why);
        }
        if let Err(error) = self.meta.put(LEVEL_KEY, level_bytes(level)).await {
            return self.not_written(error);
        }
        tracing::info!("the cluster uses level {level} of the protocol between nodes now");
        match self.refresh().await {
            Ok(()) => PeerResponse::Done,
            Err(error) => self.not_written(error),
        }
    }
}
