//! Applies the committed entries of replicated groups. See `docs/decisions/0051-groups.md`.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

use esker_log::{Keyspace, Kind};
use hashbrown::HashMap;
use parking_lot::Mutex;

use crate::base::completion::Waiter;
use crate::base::error::{Error, Result};
use crate::base::fixed_hash::FixedState;
use crate::base::replicated::{StoredChange, StoredValue};
use crate::write::Writer;
use crate::write::databases::write_superblocks;
use crate::write::prepared::Prepared;

/// Delay before a command that found the store full is tried again.
const ROOM_AGAIN: Duration = Duration::from_millis(10);

/// Applies committed commands to a replicated store; clones share it. It does not keep the store open.
#[derive(Clone)]
pub struct Applier {
    writer: Weak<Writer>,
    state: Arc<State>,
}

#[derive(Default)]
struct State {
    /// One for each keyspace, held while commands are applied to it or while it is cleared.
    turns: [tokio::sync::Mutex<()>; Keyspace::COUNT],
    /// The error of the room that a command waits for.
    lacks_room: Mutex<Option<Error>>,
}

impl std::fmt::Debug for Applier {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Applier").field("lacks_room", &*self.state.lacks_room.lock()).finish_non_exhaustive()
    }
}

impl Applier {
    pub(crate) fn new(writer: &Arc<Writer>) -> Applier {
        Applier { writer: Arc::downgrade(writer), state: Arc::default() }
    }

    /// Applies committed commands of a group, in order. Each command becomes visible as a whole, and all are visible when
    /// this returns. They are not durable then: see [`flush`](Self::flush). Reservations of keys are passed by, because they
    /// belong to proposals that wait for these commands. While the store is full, it waits: see
    /// [`lacks_room`](Self::lacks_room).
    ///
    /// Returns for each command the version of its last change on this node; 0 if it changed nothing. Changes of one command
    /// have consecutive versions.
    ///
    /// # Errors
    /// `Closed` if the store is closed or stopped after a failed write. `Invalid` if the group does not exist, or if a
    /// command does not fit in a segment of this store. A part of the commands may have been applied then; applying them
    /// again is harmless.
    pub async fn apply(&self, group: u8, commands: Vec<Vec<StoredChange>>) -> Result<Vec<u64>> {
        let (writer, keyspace) = (self.writer()?, keyspace_of(group)?);
        let commands = commands.into_iter().map(|command| writer.prepare_command(keyspace, command));
        let commands = commands.collect::<Result<Vec<_>>>()?;
        let _turn = self.turn(keyspace).await;
        writer.apply(commands, self).await
    }

    /// Deletes all keys of a group on this node, durably. Other groups may be applied meanwhile.
    ///
    /// # Errors
    /// As [`apply`](Self::apply). The store stops if a superblock cannot be written.
    pub async fn clear(&self, group: u8) -> Result<()> {
        let (writer, keyspace) = (self.writer()?, keyspace_of(group)?);
        writer.space.health.check_writable()?;
        let _turn = self.turn(keyspace).await;
        // Nothing is written to the keyspace now, and each applied record is published.
        writer.flush().await?;
        let through = writer.space.sequence.load(Ordering::Acquire);
        write_superblocks(&writer.space, |superblock| superblock.cleared.clear(keyspace, through)).await?;
        writer.catalog.clear_one(keyspace, through);
        writer.space.is_no_longer_full();
        writer.space.reclaim.notify_one();
        Ok(())
    }

    /// Makes all commands durable that were applied before the call.
    ///
    /// # Errors
    /// `Closed` if the store is closed or stopped after a failed write.
    pub async fn flush(&self) -> Result<()> {
        self.writer()?.flush().await
    }

    /// Returns the reason while a command waits for room on this node; `None` if none waits. Entries behind it are not
    /// applied until keys of other groups are deleted, or until the store is enlarged.
    pub fn lacks_room(&self) -> Option<Error> {
        self.state.lacks_room.lock().clone()
    }

    fn writer(&self) -> Result<Arc<Writer>> {
        self.writer.upgrade().ok_or_else(|| Error::Closed { reason: "it was closed".into() })
    }

    async fn turn(&self, keyspace: Keyspace) -> tokio::sync::MutexGuard<'_, ()> {
        self.state.turns[usize::from(keyspace.number())].lock().await
    }

    /// Waits a moment because the store is full.
    pub(super) async fn wait_until_less_full(&self, writer: &Writer, error: Error) -> Result<()> {
        writer.space.health.check_writable()?;
        let is_new = self.state.lacks_room.lock().replace(error.clone()).is_none();
        if is_new {
            tracing::warn!(%error, "a committed write waits for room");
        }
        writer.space.reclaim.notify_one();
        writer.space.runtime.sleep(ROOM_AGAIN).await;
        Ok(())
    }

    /// Waits for room of a lane, which the completion event announces.
    pub(super) async fn wait_for_room(&self, writer: &Writer, room: Waiter) -> Result<()> {
        if writer.space.full.load(Ordering::Acquire) {
            return self.wait_until_less_full(writer, writer.space.full_error(writer.used_bytes())).await;
        }
        match room.wait().await {
            Err(error @ (Error::Full { .. } | Error::FileSystemFull { .. } | Error::Io(_))) => {
                self.wait_until_less_full(writer, error).await
            }
            other => other,
        }
    }

    /// Notes that a command found room.
    pub(super) fn found_room(&self) {
        *self.state.lacks_room.lock() = None;
    }
}

fn keyspace_of(group: u8) -> Result<Keyspace> {
    let keyspace = Keyspace::new(group).filter(|keyspace| *keyspace != Keyspace::FIRST);
    let last = Keyspace::COUNT - 1;
    keyspace.ok_or_else(|| Error::invalid(format!("there is no group {group}; groups are 1 to {last}")))
}

impl Writer {
    /// Prepares the changes of a command. Only the last change of a key is kept.
    fn prepare_command(&self, keyspace: Keyspace, command: Vec<StoredChange>) -> Result<Vec<Prepared>> {
        let records = command.into_iter().map(|change| self.prepare_stored(keyspace, change));
        let mut records = records.collect::<Result<Vec<_>>>()?;
        if records.len() > 1 {
            let mut last: HashMap<_, usize, FixedState> = HashMap::default();
            let name = |record: &Prepared| (record.hash.slot, record.hash.check);
            for (at, record) in records.iter().enumerate() {
                last.insert(name(record), at);
            }
            let mut at = 0;
            records.retain(|record| {
                at += 1;
                last[&name(record)] == at - 1
            });
            self.check_batch_bytes(&records)?;
        }
        Ok(records)
    }

    fn prepare_stored(&self, keyspace: Keyspace, change: StoredChange) -> Result<Prepared> {
        let StoredChange { key, value, origin } = change;
        let kind = if value.is_some() { Kind::Put } else { Kind::Tombstone };
        let StoredValue { bytes, compressed, expires_at_ms } = value.unwrap_or(StoredValue {
            bytes: bytes::Bytes::new(),
            compressed: None,
            expires_at_ms: None,
        });
        let mut record = self.checked(kind, None, key, bytes, expires_at_ms)?;
        record.hash = self.catalog.hash(keyspace, &record.key);
        record.value_check = self.space.secret.value_check(&record.value);
        (record.compressed, record.origin) = (compressed, origin);
        Ok(record)
    }
}
