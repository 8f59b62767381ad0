//! The confirmation of reads in a cluster: after a group of commands has run, and before its answers can be sent.
//!
//! A group that answered from reads is confirmed by the lease of its keys' groups, or else by their majorities. If that
//! fails, its answers are replaced by errors. A command that only reads may be sent again, to another node if that one leads. One
//! that may write answers that its outcome is unknown, since it may have written.
//!
//! On the address for replicas the check is another one: each replica that was read must have been recent enough. If one was not, or
//! if a command failed here, all commands of the group are sent to the leaders of their keys.

use esker_cluster::slots::slot_of;
use esker_engine::ClusterError;
use esker_seeded_bugs::{Bug, planted};

use super::batch::Batch;
use super::pause;
use crate::resp::commands::slots;
use crate::resp::session::Session;
use crate::resp::verb::{Run, Verb};
use crate::resp::wire::error_text;
use crate::resp::wire::reply::Replies;
use crate::service::Service;
use crate::service::cluster::{Cluster, GroupSet, Marks, at_slot};

/// A group of commands that is about to run.
pub(super) struct Check<'s> {
    cluster: &'s Cluster,
    verb: &'static Verb,
    /// The index of the first command, and the number of its keys that are already answered.
    first: usize,
    answered: usize,
    /// The slot of the first command's keys. EXEC names them only before it runs.
    slot: Option<u16>,
    /// True if the first command may write.
    writes: bool,
    /// The groups led here before the commands run, if the first command may answer about all their keys.
    of_all: GroupSet,
    /// The beginning of the answers.
    mark: usize,
    /// Number of changes of leadership before the commands run.
    leader_changes: u64,
    /// On the address for replicas: their states, and the number of errors before the commands run.
    replicas: Option<(Marks, u64)>,
}

/// Returns true for a command, or a transaction with one, that may answer about all keys which the node leads: a script sets
/// `asks_about_all` if it does.
fn may_answer_about_all(verb: &Verb, session: &mut Session) -> bool {
    session.asks_about_all = false;
    match verb.run {
        Run::Exec => {
            let verbs = || session.transaction.iter().flat_map(|transaction| transaction.commands());
            let is_certain = verbs().any(|(verb, _)| verb.is_about_all());
            let may = is_certain || verbs().any(|(verb, _)| matches!(verb.run, Run::Script(_)));
            session.asks_about_all = is_certain;
            may
        }
        Run::Script(_) => true,
        _ => {
            session.asks_about_all = verb.is_about_all();
            session.asks_about_all
        }
    }
}

impl<'s> Check<'s> {
    pub(super) fn begin(
        cluster: &'s Cluster,
        verb: &'static Verb,
        batch: &Batch<'_>,
        session: &mut Session,
        replies: &Replies,
    ) -> Check<'s> {
        session.is_settled = false;
        let slot = slots::key_of(verb, batch.command(batch.next), session).map(slot_of);
        let replicas = session.replica.as_ref().and(slot).map(|slot| {
            let is_last = batch.next + 1 == batch.commands.len();
            let of_slot = || [cluster.group_of_slot(slot)].into_iter().collect();
            let groups = if is_last { of_slot() } else { cluster.all() };
            (cluster.marks(groups), replies.errors_ever())
        });
        Check {
            cluster,
            verb,
            first: batch.next,
            answered: batch.answered,
            slot,
            replicas,
            writes: pause::writes(verb, session),
            of_all: if may_answer_about_all(verb, session) {
                cluster.led().collect()
            } else {
                GroupSet::default()
            },
            mark: replies.mark(),
            leader_changes: cluster.all_leader_changes(),
        }
    }

    /// Returns the slot of a command of the group.
    fn slot(&self, index: usize, batch: &Batch<'_>, session: &Session) -> Option<u16> {
        if index == self.first {
            return self.slot;
        }
        let command = batch.command(index);
        slots::key_of(session.commands.find(command)?, command, session).map(slot_of)
    }

    /// Confirms the reads of the commands that have run. Returns true if the cluster had to confirm any.
    pub(super) async fn end(
        self,
        batch: &mut Batch<'_>,
        session: &mut Session,
        service: &Service,
        replies: &mut Replies,
    ) -> bool {
        let has_answered = batch.next > self.first || batch.answered > self.answered;
        let mut groups = if session.asks_about_all { self.of_all } else { GroupSet::default() };
        let nothing_read = self.slot.is_none() && groups.is_empty();
        if nothing_read || !has_answered || session.is_settled || planted(Bug::ReadsNotConfirmed) {
            return false;
        }
        for index in self.first..batch.next + usize::from(batch.answered > 0) {
            let slot = self.slot(index, batch, session);
            slot.into_iter().for_each(|slot| groups.insert(self.cluster.group_of_slot(slot)));
        }
        let checked = match &self.replicas {
            None => self.cluster.confirm(groups, self.leader_changes).await,
            Some((marks, errors)) => self.check_replicas(groups, marks, *errors != replies.errors_ever()),
        };
        if let Err((group, why)) = checked {
            self.replace(group, &why, batch, session, replies);
            let failed = replies.take_errors();
            service.counters.calls.failed(self.verb.counted_row, failed);
        }
        true
    }

    /// Checks that replicas were recent when they were read. A failure here, such as a key that has expired by the clock of this node
    /// alone, is none of the leader.
    fn check_replicas(
        &self,
        groups: GroupSet,
        marks: &Marks,
        has_failed: bool,
    ) -> Result<(), (u8, ClusterError)> {
        self.cluster.check_recent(groups, marks)?;
        match self.slot.filter(|_| has_failed) {
            Some(slot) => Err((self.cluster.group_of_slot(slot), self.cluster.place_of(slot))),
            None => Ok(()),
        }
    }

    /// Replaces the answers by errors, because reads of `group` could not be confirmed.
    fn replace(
        &self,
        group: u8,
        why: &ClusterError,
        batch: &mut Batch<'_>,
        session: &mut Session,
        replies: &mut Replies,
    ) {
        replies.cut(self.mark);
        replies.take_errors();
        let mut index = self.first;
        if self.answered > 0 {
            // The beginning of this MGET may have been sent. Its other values become errors.
            let is_done = batch.next > self.first;
            let end = if is_done { batch.command(index).len() - 1 } else { batch.answered };
            let text = self.error(index, group, why, batch, session);
            (self.answered..end).for_each(|_| replies.error(&text));
            batch.failed = !is_done;
            index += 1;
        }
        if batch.answered > 0 && batch.next >= index {
            // Nothing was sent of the last MGET, which is answered in part.
            let verb = session.commands.find(batch.command(batch.next));
            verb.into_iter().for_each(|verb| session.tally.ended(verb.counted_row, 1));
            (batch.next, batch.answered, batch.failed) = (batch.next + 1, 0, false);
        }
        for index in index..batch.next {
            replies.error(&self.error(index, group, why, batch, session));
        }
    }

    /// Returns the error reply of a command.
    fn error(
        &self,
        index: usize,
        group: u8,
        why: &ClusterError,
        batch: &Batch<'_>,
        session: &Session,
    ) -> String {
        let may_write = || session.commands.find(batch.command(index)).is_some_and(Verb::may_write);
        if if index == self.first { self.writes } else { may_write() } {
            return error_text::uncertain(why);
        }
        match self.slot(index, batch, session) {
            Some(slot) if self.cluster.group_of_slot(slot) == group => {
                error_text::of_cluster(&at_slot(why, slot))
            }
            // Several clients follow MOVED and pass TRYAGAIN to the application, so this node names itself.
            Some(slot) => error_text::of_cluster(&self.cluster.place_of(slot)),
            None if index == self.first && !self.of_all.is_empty() => {
                format!("TRYAGAIN the keys that this node leads could not be confirmed: {why}")
            }
            None => format!("TRYAGAIN a read before it in the pipeline could not be confirmed: {why}"),
        }
    }
}
