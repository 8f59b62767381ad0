//! Applies committed commands in *runs*: rows of commands whose deletes are looked up together, and which are appended
//! together.
//!
//! 1. The records that the deletes of a run replace are looked up. So no earlier command of the run writes such a key.
//! 2. Commands are appended to the main lane, where they are visible at once.
//! 3. Single large values are appended to the lane of large values, where they are visible once they are written. So no other
//!    command of the run writes such a key.
//!
//! Keys are compared by their stored hashes, by which the index distinguishes them.

use std::ops::Range;

use esker_log::Kind;
use esker_seeded_bugs::{Bug, planted};
use futures_util::future::join_all;
use hashbrown::HashSet;

use crate::base::durability::Durability;
use crate::base::error::Result;
use crate::base::fixed_hash::FixedState;
use crate::catalog::appended::Replaced;
use crate::write::Writer;
use crate::write::apply::Applier;
use crate::write::lane::Append;
use crate::write::prepared::Prepared;

/// Maximum number of commands per acquisition of the lane's lock.
const COMMANDS_AT_ONCE: usize = 256;
/// Maximum number of simultaneous look-ups.
const LOOK_UPS_AT_ONCE: usize = 64;

/// A committed command.
type Command = Vec<Prepared>;

impl Writer {
    /// Applies committed commands of one keyspace, to which nothing else writes. Returns their versions.
    pub(super) async fn apply(&self, mut commands: Vec<Command>, applier: &Applier) -> Result<Vec<u64>> {
        let bytes = commands.iter().flatten().map(|record| record.padded_bytes(self.lane.shape)).sum();
        let records = commands.iter().map(Vec::len).sum();
        self.admission.wait(&self.space, &self.catalog.index, records, bytes).await;
        let mut versions = vec![0; commands.len()];
        let mut from = 0;
        while from < commands.len() {
            let run = from..from + self.run_length(&commands[from..]);
            self.look_up_deleted(&mut commands[run.clone()]).await?;
            self.append_run(&commands, run.clone(), &mut versions, applier).await?;
            commands[run.clone()].iter().flatten().for_each(|record| record.count(&self.space.counters));
            from = run.end;
        }
        Ok(versions)
    }

    /// Returns the number of commands of the run with which `commands` begin.
    fn run_length(&self, commands: &[Command]) -> usize {
        let has_deletes = commands.iter().flatten().any(|record| record.kind == Kind::Tombstone);
        if !has_deletes && self.large.is_none() {
            return commands.len();
        }
        let (mut written, mut large): (HashSet<u64, FixedState>, HashSet<u64, FixedState>) =
            Default::default();
        for (at, command) in commands.iter().enumerate() {
            let is_large = self.is_large(command);
            let ends = command.iter().any(|record| {
                let key = self.catalog.index.stored_hash(&record.hash);
                let is_ordered = is_large || record.kind == Kind::Tombstone;
                large.contains(&key) || is_ordered && written.contains(&key)
            });
            if ends {
                return at;
            }
            let keys = command.iter().map(|record| self.catalog.index.stored_hash(&record.hash));
            if is_large { &mut large } else { &mut written }.extend(keys);
        }
        commands.len()
    }

    /// Returns true if a command is a single large value, which has a lane of its own.
    fn is_large(&self, command: &Command) -> bool {
        matches!(&command[..], [only] if only.kind == Kind::Put && self.large_lane_of(only).is_some())
    }

    /// Notes with the deletes of some commands the records that they replace. Drops deletes of absent keys.
    async fn look_up_deleted(&self, commands: &mut [Command]) -> Result<()> {
        let mut deletes: Vec<&mut Prepared> =
            commands.iter_mut().flatten().filter(|record| record.kind == Kind::Tombstone).collect();
        if deletes.is_empty() {
            return Ok(());
        }
        let mut absent: HashSet<_, FixedState> = HashSet::default();
        for row in deletes.chunks_mut(LOOK_UPS_AT_ONCE) {
            let found = join_all(row.iter().map(|record| self.find_committed(record))).await;
            for (record, found) in row.iter_mut().zip(found) {
                match found? {
                    Some(replaced) => record.replaces = replaced,
                    None => drop(absent.insert((record.hash.slot, record.hash.check))),
                }
            }
        }
        if !absent.is_empty() {
            let is_needed = |record: &Prepared| {
                record.kind == Kind::Put || !absent.contains(&(record.hash.slot, record.hash.check))
            };
            commands.iter_mut().for_each(|command| command.retain(is_needed));
        }
        Ok(())
    }

    /// Returns the record that a committed delete removes; `None` if the key is absent. The group cannot go on without the
    /// delete, so a record that cannot be read is removed unread: see [`Index::remove_unread`](esker_index::Index).
    async fn find_committed(&self, delete: &Prepared) -> Result<Option<Option<Replaced>>> {
        match self.find_for_delete(&delete.key, &delete.hash).await {
            Ok(found) => Ok(found.map(Some)),
            Err(error) if error.is_of_reading() => {
                tracing::warn!(%error, "a committed delete meets a record that cannot be read");
                Ok(Some(self.catalog.find_unread(&delete.hash).await))
            }
            Err(error) => Err(error),
        }
    }

    async fn append_run(
        &self,
        commands: &[Command],
        run: Range<usize>,
        versions: &mut [u64],
        applier: &Applier,
    ) -> Result<()> {
        let is_needed = |at: &usize| !commands[*at].is_empty();
        let (large, main): (Vec<usize>, Vec<usize>) =
            run.filter(is_needed).partition(|at| self.is_large(&commands[*at]));
        self.append_to_main(commands, &main, versions, applier).await?;
        self.append_large(commands, &large, versions, applier).await
    }

    async fn append_to_main(
        &self,
        commands: &[Command],
        places: &[usize],
        versions: &mut [u64],
        applier: &Applier,
    ) -> Result<()> {
        let (mut left, mut answers, mut unpublished) = (places, Vec::new(), None);
        while let Some(first) = left.first() {
            if self.is_refused(&commands[*first]) {
                let full = self.space.full_error(self.used_bytes());
                applier.wait_until_less_full(self, full).await?;
                continue;
            }
            let row = &left[..left.len().min(COMMANDS_AT_ONCE)];
            self.catalog.touch_displaced(row.iter().flat_map(|at| &commands[*at]).map(|record| record.hash));
            if planted(Bug::CommandAppliedInHalves) && commands[*first].len() > 1 {
                for record in &commands[*first] {
                    let half = std::iter::once(std::slice::from_ref(record));
                    self.lane.append_committed(half, &mut answers)?;
                    self.space.runtime.sleep(std::time::Duration::from_millis(1)).await;
                }
                answers.truncate(1);
            } else {
                self.lane.append_committed(row.iter().map(|at| &commands[*at][..]), &mut answers)?;
            }
            for answer in answers.drain(..) {
                match answer {
                    Append::Done(version) => {
                        versions[left[0]] = version;
                        left = &left[1..];
                    }
                    Append::Wait(version, published) => {
                        versions[left[0]] = version;
                        left = &left[1..];
                        unpublished = Some(published);
                    }
                    Append::Blocked(room) => applier.wait_for_room(self, room).await?,
                    Append::Reserved => {}
                }
            }
        }
        applier.found_room();
        match unpublished {
            Some(published) => published.wait().await,
            None => Ok(()),
        }
    }

    /// Returns true if a command must wait because the store is full. The last slots are lent to deletes.
    fn is_refused(&self, command: &Command) -> bool {
        let only_deletes = command.iter().all(|record| record.kind == Kind::Tombstone);
        !only_deletes && self.space.full.load(std::sync::atomic::Ordering::Acquire)
    }

    async fn append_large(
        &self,
        commands: &[Command],
        places: &[usize],
        versions: &mut [u64],
        applier: &Applier,
    ) -> Result<()> {
        let mut published = Vec::with_capacity(places.len());
        for &at in places {
            let Some(lane) = self.large_lane_of(&commands[at][0]) else { continue };
            let mut put = commands[at][0].clone();
            loop {
                if self.is_refused(&commands[at]) {
                    let full = self.space.full_error(self.used_bytes());
                    applier.wait_until_less_full(self, full).await?;
                    continue;
                }
                let mut numbered = self.lane.reserve_none();
                put.sequence = Some(numbered.draw(&self.space.sequence));
                let put = std::slice::from_ref(&put);
                match lane.append(put, Durability::None, &mut Some(numbered))? {
                    Append::Done(version) => versions[at] = version,
                    Append::Wait(version, written) => {
                        versions[at] = version;
                        published.push(written);
                    }
                    Append::Blocked(room) => {
                        applier.wait_for_room(self, room).await?;
                        continue;
                    }
                    Append::Reserved => continue,
                }
                break;
            }
            applier.found_room();
        }
        for written in published {
            written.wait().await?;
        }
        Ok(())
    }
}
