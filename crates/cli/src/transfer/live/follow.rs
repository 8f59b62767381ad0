//! Applies a replication stream to the target until the end is requested, and reconnects when the link is lost.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::thread::sleep;
use std::time::{Duration, Instant};

use esker_engine::{Bytes, Store};

use super::changes::{Change, meaning};
use super::compare::{Action, pass};
use super::ends::{Ends, no_offset};
use super::link::{Event, Link, Position};
use super::resume::{Place, Resume};
use crate::client::{Answer, Server};
use crate::terminal::{Failure, note};
use crate::time::now_ms;
use crate::transfer::keys::State;
use crate::transfer::record::{Record, Sink, no_database};

/// Time for which the loop waits for an event.
const TURN: Duration = Duration::from_millis(50);

/// Number of keys to read from the source, and age of the oldest, at which they are read.
const STALE_KEYS: usize = 1000;
const WRITE_EVERY: Duration = Duration::from_millis(100);

/// Interval between two questions for the offset of the source.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Number of connections in succession that may fail before the transfer ends, the number of snapshots that may break off, and the
/// pause before the next attempt.
const RETRIES: u32 = 30;
const SNAPSHOTS: u32 = 3;
const RETRY_AFTER: Duration = Duration::from_secs(1);

pub(super) struct Follower<'e> {
    ends: &'e mut Ends,
    resume: Resume,
    link: Link,
    server: Arc<Server>,
    /// The state that the target has; `None` before the end of the first snapshot.
    position: Option<Position>,
    /// Position of the snapshot that is being copied.
    snapshot: Option<Position>,
    /// Number of strings that the snapshot gave, and of the keys that the source had when it began.
    strings: u64,
    source_keys: u64,
    /// Offset of the end of the last command that was taken.
    taken: u64,
    /// Database of the next command.
    database: u64,
    /// Keys whose states have to be read from the source.
    stale: BTreeSet<(u8, Bytes)>,
    last_write: Instant,
    /// True if the target had keys when the snapshot began: the source may have deleted some of them.
    has_older_keys: bool,
    retries: u32,
    /// Number of snapshots that began since one was copied to its end.
    snapshots: u32,
    pub(super) commands: u64,
}

impl<'e> Follower<'e> {
    pub(super) fn new(
        ends: &'e mut Ends,
        server: Arc<Server>,
        resume: Resume,
        has_older_keys: bool,
    ) -> Follower<'e> {
        let place = resume.place();
        let (position, database) = place.map(|place| (place.position, place.database)).unzip();
        Follower {
            link: Link::start(server.clone(), position.clone()),
            ends,
            resume,
            server,
            taken: position.as_ref().map_or(0, |position: &Position| position.offset),
            position,
            snapshot: None,
            strings: 0,
            source_keys: 0,
            database: database.unwrap_or(0),
            stale: BTreeSet::new(),
            last_write: Instant::now(),
            has_older_keys,
            retries: 0,
            snapshots: 0,
            commands: 0,
        }
    }

    /// Returns true if the source accepted this process as a replica.
    pub(super) fn has_begun(&self) -> bool {
        self.snapshot.is_some() || self.position.is_some()
    }

    /// Follows until the target has the state that the source had when the end was requested: at once, or by a signal if
    /// `until_signal`.
    pub(super) fn run(&mut self, until_signal: bool) -> Result<(), Failure> {
        let (mut goal, mut last_look) = (None, Instant::now());
        loop {
            let event = self.link.next(TURN);
            let is_idle = event.is_none();
            event.map_or(Ok(()), |event| self.take(event))?;
            if is_idle || self.stale.len() >= STALE_KEYS || self.last_write.elapsed() >= WRITE_EVERY {
                self.write()?;
            }
            let Some(position) = &self.position else { continue };
            let offset = position.offset;
            if goal.is_none() && (!until_signal || self.ends.stop.is_requested()) {
                goal = Some(self.source_offset()?);
            }
            if goal.is_some_and(|goal| offset >= goal) {
                return self.resume.save(self.place());
            }
            if last_look.elapsed() >= LOOK_EVERY {
                last_look = Instant::now();
                let lag = self.source_offset()?.saturating_sub(offset);
                let (commands, keys) = (self.commands, self.ends.sink.written());
                self.ends
                    .shown
                    .text(&format!("following: lag {lag} bytes; {commands} commands, {keys} keys written"));
            }
        }
    }

    fn source_offset(&mut self) -> Result<u64, Failure> {
        let text = self.ends.source.info("replication", "master_repl_offset")?;
        text.and_then(|text| text.parse().ok()).ok_or_else(no_offset)
    }

    fn place(&self) -> Option<Place> {
        let position = self.position.clone()?;
        Some(Place { position, database: self.database })
    }

    fn take(&mut self, event: Event) -> Result<(), Failure> {
        match event {
            Event::Snapshot(position) => {
                // A second snapshot: the last one broke off, or the source no longer has the changes since the last position.
                self.has_older_keys |= self.has_begun();
                (self.position, self.snapshot, self.database) = (None, Some(position), 0);
                self.stale.clear();
                (self.strings, self.snapshots) = (0, self.snapshots + 1);
                self.source_keys = self.ends.source.databases()?.iter().map(|(_, keys)| keys).sum();
                Ok(())
            }
            Event::Record(record, progress) => self.record(record, progress),
            Event::SnapshotEnd(left_out) => {
                self.ends.left_out.merge(left_out);
                self.ends.sink.finish(&mut self.ends.left_out)?;
                self.position = self.snapshot.take();
                (self.retries, self.snapshots) = (0, 0);
                self.taken = self.position.as_ref().map_or(0, |position| position.offset);
                if self.has_older_keys && self.ends.is_owned {
                    pass(self.ends, Action::DeleteExtra)?;
                }
                self.resume.save(self.place())
            }
            Event::Continued(id) => {
                self.retries = 0;
                if let Some(position) = &mut self.position {
                    position.id = id;
                }
                Ok(())
            }
            Event::Command { words, end } => {
                self.apply(&words)?;
                self.taken = end;
                Ok(())
            }
            Event::Ended(failure) => self.reconnect(failure),
        }
    }

    fn record(&mut self, record: Record, progress: (u64, Option<u64>)) -> Result<(), Failure> {
        self.ends.throttle.spend(1);
        self.strings += 1;
        // The length of a snapshot that the source makes while it sends it is not known.
        let by_keys = (self.strings, Some(self.source_keys.max(self.strings)));
        let progress = if progress.1.is_some() { progress } else { by_keys };
        if record.expires_at_ms.is_some_and(|at| at <= now_ms()) {
            self.ends.left_out.add("expired");
        } else {
            self.ends.sink.put(record, &mut self.ends.left_out)?;
        }
        self.ends.shown.look(progress, self.ends.sink.written());
        Ok(())
    }

    fn reconnect(&mut self, failure: Failure) -> Result<(), Failure> {
        let (Failure::Failed(why) | Failure::Usage(why)) = failure;
        self.retries += 1;
        if !self.has_begun() {
            return Err(Failure::Failed(why));
        }
        if self.snapshots >= SNAPSHOTS {
            return Err(Failure::Failed(format!(
                "{why}; the snapshot was not copied to its end: run the import again (a source that drops a slow replica: raise \
                 client-output-buffer-limit for replicas there, or use --by scan)"
            )));
        }
        if self.retries > RETRIES {
            return Err(Failure::Failed(format!("{why}; given up after {RETRIES} attempts to connect")));
        }
        self.write()?;
        note(&format!("{why}; connecting again\n"));
        sleep(RETRY_AFTER);
        self.link = Link::start(self.server.clone(), self.position.clone());
        Ok(())
    }

    fn apply(&mut self, words: &[Bytes]) -> Result<(), Failure> {
        let change = meaning(words);
        if !matches!(change, Change::Nothing | Change::Select(_)) {
            self.commands += 1;
        }
        match change {
            Change::Nothing => {}
            Change::Select(number) => self.database = number,
            Change::Put(records) => {
                let Some(database) = self.known(self.database) else { return Ok(()) };
                for (key, value, expires_at_ms) in records {
                    self.put(database, key, State::String(value, expires_at_ms))?;
                }
            }
            Change::Delete(keys) => {
                let Some(database) = self.known(self.database) else { return Ok(()) };
                for key in keys {
                    self.put(database, key, State::Absent)?;
                }
            }
            Change::Read(keys) => {
                for (database, key) in keys {
                    if let Some(database) = self.known(database.unwrap_or(self.database)) {
                        self.stale.insert((database, key));
                    }
                }
            }
            Change::Flush { all } => {
                let word: &[u8] = if all { b"FLUSHALL" } else { b"FLUSHDB" };
                self.execute(&[word])?;
            }
            Change::Swap(one, other) => {
                self.execute(&[b"SWAPDB", one.to_string().as_bytes(), other.to_string().as_bytes()])?;
            }
            Change::Other(family) => self.ends.left_out.add(format!("command of {family}")),
            Change::Unknown => self.ask_for_keys(words)?,
        }
        Ok(())
    }

    /// Returns a database if the target can have it, and counts the change as missed otherwise.
    fn known(&mut self, database: u64) -> Option<u8> {
        let known = u8::try_from(database).ok().filter(|number| *number < Store::DATABASES);
        if known.is_none() {
            self.ends.left_out.miss(no_database(database));
        }
        known
    }

    /// Gives a key of the target a state of the source.
    fn put(&mut self, database: u8, key: Bytes, state: State) -> Result<(), Failure> {
        let Ends { sink, left_out, .. } = &mut *self.ends;
        match state {
            State::String(value, expires_at_ms) if expires_at_ms.is_none_or(|at| at > now_ms()) => {
                sink.put(Record { database, key, value, expires_at_ms }, left_out)
            }
            State::Damaged => {
                left_out.miss(crate::transfer::local::DAMAGED);
                Ok(())
            }
            State::String(..) | State::Absent | State::Other => sink.remove(database, &key, left_out),
        }
    }

    /// Executes a command of whole databases on the target.
    fn execute(&mut self, words: &[&[u8]]) -> Result<(), Failure> {
        if !self.ends.is_owned {
            let name = String::from_utf8_lossy(words[0]);
            return Err(Failure::Failed(format!(
                "the source executed {name}, but the target had keys of its own, which it would delete too: nothing was deleted; \
                 import into an empty server, or with --delete-extra"
            )));
        }
        let Some(database) = self.known(self.database) else { return Ok(()) };
        self.ends.sink.execute(database, words, &mut self.ends.left_out)
    }

    /// Asks the source for the keys of a command that is not known here.
    fn ask_for_keys(&mut self, words: &[Bytes]) -> Result<(), Failure> {
        let Some(database) = self.known(self.database) else { return Ok(()) };
        let question: Vec<&[u8]> =
            [&b"COMMAND"[..], b"GETKEYS"].into_iter().chain(words.iter().map(|word| &word[..])).collect();
        match self.ends.source.try_ask(&question)? {
            Answer::Parts(keys) => {
                for key in keys {
                    if let Answer::Text(key) = key {
                        self.stale.insert((database, key.into()));
                    }
                }
            }
            _ => {
                let name = words[0].escape_ascii().to_string().to_ascii_uppercase();
                self.ends.left_out.add(format!("command {name:.40}, whose keys the source does not name"));
            }
        }
        Ok(())
    }

    /// Writes all that was taken to the target, and acknowledges it.
    fn write(&mut self) -> Result<(), Failure> {
        let mut stale: Vec<(u8, Bytes)> = std::mem::take(&mut self.stale).into_iter().collect();
        while let Some((database, _)) = stale.first() {
            let database = *database;
            let width =
                stale.iter().take_while(|(of, _)| *of == database).count().min(self.ends.source.width());
            let names: Vec<Bytes> = stale.drain(..width).map(|(_, name)| name).collect();
            let states = self.ends.source.read(database, &names)?;
            for (name, state) in names.into_iter().zip(states) {
                self.put(database, name, state)?;
            }
        }
        self.ends.sink.finish(&mut self.ends.left_out)?;
        // After the write: a slow one must not make the next one smaller.
        self.last_write = Instant::now();
        let Some(position) = &mut self.position else { return Ok(()) };
        position.offset = self.taken;
        self.link.acknowledge(self.taken);
        self.resume.save_sometimes(self.place())
    }
}
