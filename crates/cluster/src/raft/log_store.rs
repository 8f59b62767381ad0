//! The log of a group, for openraft: entries, vote, committed and purged ids in the store's [`GroupLog`].

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::io;
use std::ops::{Bound, RangeBounds};
use std::time::Duration;

use bytes::Bytes;
use esker_engine::{Error, GroupLog};
use esker_seeded_bugs::{Bug, planted};
use openraft::storage::{IOFlushed, LogState, RaftLogStorage};
use openraft::type_config::TypeConfigExt;
use openraft::{EntryPayload, Membership, OptionalSend, RaftLogReader};

use super::codec::{
    Base, damaged, decode_base, decode_entry, decode_log_id, decode_proof, decode_vote, encode_base,
    encode_entry, encode_log_id, encode_vote,
};
use super::network::RaftRequest;
use super::types::{Change, Entry, LeaderId, LogId, StoredMembership, TypeConfig, Vote};

/// Number of the state that holds the vote.
const VOTE: u8 = 0;
/// Number of the state that holds the last committed id.
const COMMITTED: u8 = 1;
/// Number of the state that holds the base: the floor, or the note that a snapshot is being installed.
const BASE: u8 = 2;
/// Number of a state without content, after which everything before it is durable.
const BARRIER: u8 = 3;

/// Number of the state that holds the id of the membership without this node.
const EXCLUSION: u8 = 4;

/// Attempts to append to a full log, and the pause between two.
const FULL_TRIES: usize = 100;
const FULL_PAUSE: Duration = Duration::from_millis(50);

/// The log of one group. Clones share it.
#[derive(Clone)]
pub struct GroupStore {
    log: GroupLog,
    group: u8,
}

fn failed(error: Error) -> io::Error {
    io::Error::other(error)
}

impl GroupStore {
    /// Returns the log of a group in the store's log.
    pub fn new(log: GroupLog, group: u8) -> GroupStore {
        GroupStore { log, group }
    }

    /// Returns the content of the keyspace before the log is applied to it.
    pub(super) fn base(&self) -> io::Result<Base> {
        self.log.state(self.group, BASE).map_or(Ok(Base::Empty), |bytes| decode_base(&bytes))
    }

    /// Notes a floor. It is durable before any later purge.
    pub(super) async fn note_floor(&self, id: LogId, membership: StoredMembership) -> io::Result<()> {
        let bytes = encode_base(&Base::Floor(id, membership));
        self.log.note_state(self.group, BASE, &bytes).await.map_err(failed)
    }

    /// Notes that the keyspace holds a part of a snapshot, durably, and then voids the log: the replica has nothing of the
    /// group until the snapshot is complete. Its vote stays.
    pub(crate) async fn begin_install(&self) -> io::Result<()> {
        let bytes = encode_base(&Base::Installing);
        let written = self.log.set_state(self.group, BASE, &bytes).await.map_err(failed)?;
        written.durable().await.map_err(failed)?;
        self.log.note_state(self.group, COMMITTED, &[]).await.map_err(failed)?;
        self.log.forget(self.group).await.map_err(failed)?.durable().await.map_err(failed)
    }

    /// Ends the installation of a snapshot that is durable in the keyspace: the log begins behind it.
    pub(crate) async fn end_install(&self, request: &RaftRequest) -> io::Result<()> {
        let RaftRequest::Snapshot(vote, snapshot) = request else { return Err(damaged("a snapshot")) };
        let (vote, meta) = (*vote, snapshot.meta.clone());
        let id = meta.last_log_id.ok_or_else(|| damaged("a snapshot"))?;
        let held = self.log.state(self.group, VOTE).map(|bytes| decode_vote(&bytes)).transpose()?;
        if held.is_none_or(|held| held < vote) {
            self.log.note_state(self.group, VOTE, &encode_vote(&vote)).await.map_err(failed)?;
        }
        let purged = self.log.purge(self.group, id.index, &encode_log_id(&id)).await;
        drop(purged.map_err(failed)?);
        self.log.note_state(self.group, COMMITTED, &encode_log_id(&id)).await.map_err(failed)?;
        let bytes = encode_base(&Base::Floor(id, meta.last_membership));
        let written = self.log.set_state(self.group, BASE, &bytes).await.map_err(failed)?;
        written.durable().await.map_err(failed)
    }

    /// Ends an installation whose keyspace was emptied, durably: everything will come from the log, or from another
    /// snapshot.
    pub(crate) async fn void_install(&self) -> io::Result<()> {
        self.log.note_state(self.group, COMMITTED, &[]).await.map_err(failed)?;
        drop(self.log.forget(self.group).await.map_err(failed)?);
        let written = self.log.set_state(self.group, BASE, &[]).await.map_err(failed)?;
        written.durable().await.map_err(failed)
    }

    /// Notes the id of a committed membership without this node, as bytes of the log. Durable on return. A later one replaces
    /// an earlier one.
    pub(crate) async fn note_exclusion(&self, id: &[u8]) -> io::Result<()> {
        let id = decode_log_id(id)?;
        let noted = self.exclusion()?.map(|noted| decode_log_id(&noted)).transpose()?;
        let bytes = encode_log_id(&noted.map_or(id, |noted| noted.max(id)));
        let written = self.log.set_state(self.group, EXCLUSION, &bytes).await.map_err(failed)?;
        written.durable().await.map_err(failed)
    }

    /// Returns the id of the last membership without this node that was noted, as bytes of the log.
    pub(crate) fn exclusion(&self) -> io::Result<Option<Bytes>> {
        let noted = self.log.state(self.group, EXCLUSION);
        noted.map(|bytes| decode_log_id(&bytes).map(|_| bytes)).transpose()
    }

    /// Returns true if the replica has the entry up to which a snapshot goes: in its log, or in its keyspace.
    ///
    /// The entry is committed, so a replica that has it has all before it. A replica without it may be voided: some majority has the entry
    /// without this replica, and so it has every committed entry that this one acknowledged. With it, the replica may be the one
    /// that makes a later entry's majority, whatever it knows to be committed.
    pub(crate) async fn holds(&self, proof: &[u8]) -> io::Result<bool> {
        let (_, id) = decode_proof(proof)?;
        if planted(Bug::HeldEntriesVoided) {
            return Ok(false);
        }
        let purged = self.log.purged(self.group).map(|(_, note)| decode_log_id(&note)).transpose()?;
        if purged.is_some_and(|purged| purged >= id) {
            return Ok(true);
        }
        let held = self.entries(id.index, id.index + 1).await?;
        Ok(held.first().is_some_and(|entry| entry.log_id == id))
    }

    /// Waits until everything that was appended before the call is durable.
    pub(crate) async fn settle(&self) -> io::Result<()> {
        let written = self.log.set_state(self.group, BARRIER, &[]).await.map_err(failed)?;
        written.durable().await.map_err(failed)
    }

    /// Returns true if the replica holds entries, or a keyspace up to a floor.
    pub(crate) fn has_content(&self) -> bool {
        let base = self.base().unwrap_or(Base::Empty);
        match base {
            Base::Installing => false,
            Base::Floor(..) => true,
            Base::Empty => !self.log.range(self.group).is_empty(),
        }
    }

    /// Appends an entry that makes a node the only voter of the group, and then a change, if one is given. Durable on return.
    /// Only for a replica that does not run, of a cluster that is lost.
    ///
    /// # Errors
    /// If the log cannot be read or written.
    pub(crate) async fn make_sole_voter(&self, node: u64, change: Option<Bytes>) -> io::Result<()> {
        let last = self.clone().get_log_state().await?.last_log_id;
        let vote = self.clone().read_vote().await?;
        // The log of a group that begins has the number 0, and the term of the last vote: a later one would be refused.
        let (leader, first) = match last {
            Some(last) => (last.leader_id, last.index + 1),
            None => (vote.map_or(LeaderId { term: 0, node_id: node }, |vote| vote.leader_id), 0),
        };
        let id = |after: u64| LogId::new(leader, first + after);
        let membership = Membership::new_with_defaults(vec![BTreeSet::from([node])], []);
        let mut entries = vec![Entry { log_id: id(0), payload: EntryPayload::Membership(membership) }];
        entries.extend(
            change.map(|change| Entry { log_id: id(1), payload: EntryPayload::Normal(Change(change)) }),
        );
        match self.append_row(&entries).await? {
            Some(written) => written.durable().await.map_err(failed),
            None => Ok(()),
        }
    }

    /// Returns the changes of all entries in the log. Only for a replica that does not run.
    ///
    /// # Errors
    /// If the log cannot be read.
    pub(crate) async fn changes(&self) -> io::Result<Vec<Bytes>> {
        let range = self.log.range(self.group);
        let entries = self.entries(range.start, range.end).await?;
        let change = |entry: Entry| match entry.payload {
            EntryPayload::Normal(Change(change)) => Some(change),
            EntryPayload::Blank | EntryPayload::Membership(_) => None,
        };
        Ok(entries.into_iter().filter_map(change).collect())
    }

    /// Returns the changes of the entries above an index, in their order, and the index of the last entry that was read: `through`, or
    /// an earlier one once `bytes_max` bytes are reached. `None` if some of the entries are purged.
    pub(crate) async fn changes_after(
        &self,
        after: u64,
        through: u64,
        bytes_max: usize,
    ) -> io::Result<Option<(u64, Vec<Bytes>)>> {
        let (mut index, mut bytes, mut changes) = (after, 0, Vec::new());
        while index < through && bytes < bytes_max {
            let Some(entry) = self.entries(index + 1, index + 2).await?.pop() else { return Ok(None) };
            index += 1;
            if let EntryPayload::Normal(Change(change)) = entry.payload {
                bytes += change.len();
                changes.push(change);
            }
        }
        Ok(Some((index, changes)))
    }

    async fn entries(&self, first: u64, end: u64) -> io::Result<Vec<Entry>> {
        let bytes = self.log.read(self.group, first..end).await.map_err(failed)?;
        bytes.iter().map(decode_entry).collect()
    }

    /// Appends entries with consecutive indexes. While the log of all groups is full it waits a while, because others may purge
    /// theirs; an error would stop the replica.
    async fn append_row(&self, entries: &[Entry]) -> io::Result<Option<esker_engine::LogWritten>> {
        let Some(first) = entries.first() else { return Ok(None) };
        let index = first.log_id.index;
        if let Some((at, odd)) = (index..).zip(entries).find(|(index, entry)| entry.log_id.index != *index) {
            let what = format!("entry {} follows entry {}: a hole in the log", odd.log_id.index, at - 1);
            return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
        }
        let bytes: Vec<_> = entries.iter().map(encode_entry).collect();
        let mut done = 0;
        for _ in 0..FULL_TRIES {
            match self.log.append(self.group, index + done as u64, &bytes[done..]).await {
                Err(Error::Full { .. }) => {
                    // Some may have been appended.
                    done = (self.log.range(self.group).end.max(index) - index) as usize;
                    TypeConfig::sleep(FULL_PAUSE).await;
                }
                written => return written.map(Some).map_err(failed),
            }
        }
        self.log.append(self.group, index + done as u64, &bytes[done..]).await.map(Some).map_err(failed)
    }
}

impl RaftLogReader<TypeConfig> for GroupStore {
    async fn try_get_log_entries<RB>(&mut self, range: RB) -> io::Result<Vec<Entry>>
    where
        RB: RangeBounds<u64> + Clone + Debug + OptionalSend,
    {
        let first = match range.start_bound() {
            Bound::Included(&first) => first,
            Bound::Excluded(&before) => before.saturating_add(1),
            Bound::Unbounded => 0,
        };
        let end = match range.end_bound() {
            Bound::Included(&last) => last.saturating_add(1),
            Bound::Excluded(&end) => end,
            Bound::Unbounded => u64::MAX,
        };
        self.entries(first, end).await
    }

    async fn read_vote(&mut self) -> io::Result<Option<Vote>> {
        self.log.state(self.group, VOTE).map(|bytes| decode_vote(&bytes)).transpose()
    }
}

impl RaftLogStorage<TypeConfig> for GroupStore {
    type LogReader = GroupStore;

    async fn get_log_state(&mut self) -> io::Result<LogState<TypeConfig>> {
        let purged = self.log.purged(self.group).map(|(_, note)| decode_log_id(&note)).transpose()?;
        let range = self.log.range(self.group);
        let last = match range.is_empty() {
            true => None,
            false => self.entries(range.end - 1, range.end).await?.pop().map(|entry| entry.log_id),
        };
        Ok(LogState { last_purged_log_id: purged, last_log_id: last.or(purged) })
    }

    async fn get_log_reader(&mut self) -> GroupStore {
        self.clone()
    }

    /// Durable on return, because a forgotten vote could be given twice.
    async fn save_vote(&mut self, vote: &Vote) -> io::Result<()> {
        let written = self.log.set_state(self.group, VOTE, &encode_vote(vote)).await.map_err(failed)?;
        if planted(Bug::VoteAfterReply) {
            return Ok(());
        }
        written.durable().await.map_err(failed)
    }

    /// Durable with the next change that needs to be: an older id costs applying entries again, after the leader named its
    /// own.
    async fn save_committed(&mut self, committed: Option<LogId>) -> io::Result<()> {
        let Some(committed) = committed else { return Ok(()) };
        self.log.note_state(self.group, COMMITTED, &encode_log_id(&committed)).await.map_err(failed)
    }

    async fn read_committed(&mut self) -> io::Result<Option<LogId>> {
        let committed = self.log.state(self.group, COMMITTED).filter(|bytes| !bytes.is_empty());
        committed.map(|bytes| decode_log_id(&bytes)).transpose()
    }

    /// Readable on return. The callback comes when the entries are durable.
    async fn append<I>(&mut self, entries: I, callback: IOFlushed<TypeConfig>) -> io::Result<()>
    where
        I: IntoIterator<Item = Entry> + OptionalSend,
        I::IntoIter: OptionalSend,
    {
        let entries: Vec<_> = entries.into_iter().collect();
        match self.append_row(&entries).await? {
            None => callback.io_completed(Ok(())),
            Some(written) => {
                let _detached = TypeConfig::spawn(async move {
                    callback.io_completed(written.durable().await.map_err(failed));
                });
            }
        }
        Ok(())
    }

    /// Durable on return, because void entries that reappear would contradict their replacements.
    async fn truncate_after(&mut self, last: Option<LogId>) -> io::Result<()> {
        let from = last.map_or(0, |last| last.index + 1);
        let written = self.log.truncate(self.group, from).await.map_err(failed)?;
        if planted(Bug::TruncationNotDurable) {
            return Ok(());
        }
        written.durable().await.map_err(failed)
    }

    /// Durable with a later change: purged entries that reappear are purged again.
    async fn purge(&mut self, through: LogId) -> io::Result<()> {
        let _written =
            self.log.purge(self.group, through.index, &encode_log_id(&through)).await.map_err(failed)?;
        Ok(())
    }
}
