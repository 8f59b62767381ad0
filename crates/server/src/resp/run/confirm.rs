//! The confirmation of reads in a cluster: after a group of commands has run, and before its answers can be sent.
//!
//! A group that answered from reads is confirmed by the lease of its keys' groups, or else by their majorities. If that
//! fails, its answers are replaced by errors. A command that only reads may be sent again to another node. One that may write
//! answers that its outcome is unknown, since the group may have written as well.

use esker_engine::ClusterError;

use super::{Batch, pause};
use crate::resp::commands::slots;
use crate::resp::session::Session;
use crate::resp::verb::Verb;
use crate::resp::verb::facts::Fast;
use crate::resp::wire::error_text;
use crate::resp::wire::reply::Replies;
use crate::service::Service;
use crate::service::cluster::{Cluster, GroupSet};

/// A group of commands that is about to run.
pub(super) struct Check<'s> {
    cluster: &'s Cluster,
    verb: &'static Verb,
    /// The index of the first command, and the number of its keys that are already answered.
    first: usize,
    answered: usize,
    /// The group of the first command's keys. EXEC names them only before it runs.
    group: Option<u8>,
    /// True if the first command may write.
    writes: bool,
    /// The beginning of the answers.
    mark: usize,
}

impl<'s> Check<'s> {
    pub(super) fn begin(
        cluster: &'s Cluster,
        verb: &'static Verb,
        batch: &Batch<'_>,
        session: &mut Session,
        service: &Service,
        replies: &Replies,
    ) -> Check<'s> {
        session.is_settled = false;
        Check {
            cluster,
            verb,
            first: batch.next,
            answered: batch.answered,
            group: slots::group_of(verb, batch.command(batch.next), session, service),
            writes: pause::writes(verb, session),
            mark: replies.mark(),
        }
    }

    /// Confirms the reads of the commands that have run.
    pub(super) async fn end(
        self,
        batch: &mut Batch<'_>,
        session: &mut Session,
        service: &Service,
        replies: &mut Replies,
    ) {
        let has_answered = batch.next > self.first || batch.answered > self.answered;
        let Some(group) = self.group.filter(|_| has_answered && !session.is_settled) else { return };
        let mut groups = GroupSet::default();
        groups.insert(group);
        let last = batch.next + usize::from(batch.answered > 0);
        for index in self.first + 1..last {
            let command = batch.command(index);
            let verb = session.commands.find(command);
            let group = verb.and_then(|verb| slots::group_of(verb, command, session, service));
            group.into_iter().for_each(|group| groups.insert(group));
        }
        if let Err(why) = self.cluster.confirm(groups).await {
            self.replace(&why, batch, session, service, replies);
        }
    }

    /// Replaces the answers of the group by errors.
    fn replace(
        self,
        why: &ClusterError,
        batch: &mut Batch<'_>,
        session: &mut Session,
        service: &Service,
        replies: &mut Replies,
    ) {
        replies.cut(self.mark);
        replies.take_errors();
        let text = |writes: bool| match writes {
            true => error_text::uncertain(why),
            false => error_text::of_cluster(why),
        };
        let mut index = self.first;
        if self.answered > 0 {
            // The beginning of this MGET may have been sent. Its other values become errors.
            let is_done = batch.next > self.first;
            let end = if is_done { batch.command(index).len() - 1 } else { batch.answered };
            (self.answered..end).for_each(|_| replies.error(&text(false)));
            batch.failed = !is_done;
            index += 1;
        }
        if batch.answered > 0 && batch.next >= index {
            // The last command answered in part, and nothing of it was sent.
            session.tally.ended(self.verb.counted_row, 1);
            (batch.next, batch.answered, batch.failed) = (batch.next + 1, 0, false);
        }
        while index < batch.next {
            let verb = session.commands.find(batch.command(index));
            let writes = if index == self.first { self.writes } else { verb.is_some_and(Verb::may_write) };
            replies.error(&text(writes));
            index += 1;
        }
        debug_assert!(batch.answered == 0 || self.verb.fast == Fast::Mget || self.verb.fast == Fast::Get);
        let failed = replies.take_errors();
        service.counters.calls.failed(self.verb.counted_row, failed);
    }
}
