//! Reads and writes records of a server: Esker, or any Redis from 7.0 on.

use std::collections::{BTreeMap, VecDeque};

use esker_engine::Bytes;

use super::keys::{Keys, State, try_select};
use super::local::DAMAGED;
use super::record::{
    Destination, EMPTY_KEY, Found, KEY_TOO_LONG, LeftOut, Record, SERVER_TOO_LONG, Sink, Source, no_database,
};
use crate::client::{Answer, Client};
use crate::terminal::Failure;

/// Limits of commands and bytes in flight.
const COMMANDS_MAX: usize = 512;
const COMMANDS_BYTES: usize = 1 << 20;

/// A command in flight.
enum Sent {
    Select,
    Put(Bytes),
    Delete(Bytes),
}

/// Writes with SET, pipelined.
pub(super) struct RemoteSink {
    client: Client,
    sent: VecDeque<Sent>,
    sent_bytes: usize,
    /// The selected database, and which databases exist as far as known.
    database: u8,
    is_there: BTreeMap<u8, bool>,
    written: u64,
}

impl RemoteSink {
    pub(super) fn new(client: Client) -> RemoteSink {
        RemoteSink {
            client,
            sent: VecDeque::new(),
            sent_bytes: 0,
            database: 0,
            is_there: BTreeMap::from([(0, true)]),
            written: 0,
        }
    }

    fn settle(&mut self, left_out: &mut LeftOut) -> Result<(), Failure> {
        self.sent_bytes = 0;
        while let Some(sent) = self.sent.pop_front() {
            let answer = self.client.receive()?;
            match (answer, sent) {
                (Answer::Error(error), Sent::Select) => {
                    return Err(self.failed("a database of the file", &error));
                }
                (Answer::Error(error), Sent::Put(key) | Sent::Delete(key)) => {
                    let Some(why) = never_taken(&key, &error) else {
                        return Err(self.failed(&format!("key \"{}\"", key.escape_ascii()), &error));
                    };
                    left_out.miss(why);
                }
                (_, Sent::Put(_)) => self.written += 1,
                (_, Sent::Select | Sent::Delete(_)) => {}
            }
        }
        Ok(())
    }

    /// Returns false if the server does not have a database.
    pub(super) fn has_database(&mut self, database: u8, left_out: &mut LeftOut) -> Result<bool, Failure> {
        self.select(database, left_out)
    }

    /// Deletes a key if it exists. The command may be sent later.
    pub(super) fn remove(
        &mut self,
        database: u8,
        key: &Bytes,
        left_out: &mut LeftOut,
    ) -> Result<(), Failure> {
        if !self.select(database, left_out)? {
            return Ok(());
        }
        self.client.send(&[b"DEL", key])?;
        self.sent_bytes += key.len();
        self.sent.push_back(Sent::Delete(key.clone()));
        self.settle_if_many(left_out)
    }

    /// Executes a command that changes many keys of a database, after all commands in flight.
    pub(super) fn execute(
        &mut self,
        database: u8,
        words: &[&[u8]],
        left_out: &mut LeftOut,
    ) -> Result<(), Failure> {
        if self.select(database, left_out)? {
            self.settle(left_out)?;
            self.client.ask(words)?;
        }
        Ok(())
    }

    /// Waits for answers if too many commands or bytes are in flight.
    fn settle_if_many(&mut self, left_out: &mut LeftOut) -> Result<(), Failure> {
        match self.sent.len() >= COMMANDS_MAX || self.sent_bytes >= COMMANDS_BYTES {
            true => self.settle(left_out),
            false => Ok(()),
        }
    }

    fn failed(&self, what: &str, error: &str) -> Failure {
        let (Failure::Usage(text) | Failure::Failed(text)) = self.client.refused(error).into();
        Failure::Failed(format!("{what}: {text}"))
    }

    /// Selects the database of the following commands. Returns false if the server does not have it. The
    /// answer to the first SELECT of each database is awaited, because commands after a refused SELECT
    /// would change another database.
    fn select(&mut self, database: u8, left_out: &mut LeftOut) -> Result<bool, Failure> {
        if self.database == database {
            return Ok(true);
        }
        let is_there = self.is_there.get(&database).copied();
        if is_there == Some(false) {
            return Ok(false);
        }
        if is_there.is_some() {
            self.client.send(&[b"SELECT", database.to_string().as_bytes()])?;
            self.sent.push_back(Sent::Select);
            self.database = database;
            return Ok(true);
        }
        self.settle(left_out)?;
        let is_there = try_select(&mut self.client, database)?;
        self.is_there.insert(database, is_there);
        if is_there {
            self.database = database;
        }
        Ok(is_there)
    }
}

/// Returns the reason why the server will never accept a key, if the error says so.
fn never_taken(key: &[u8], error: &str) -> Option<&'static str> {
    match error {
        _ if error.contains("a key has 1 to") => Some(if key.is_empty() { EMPTY_KEY } else { KEY_TOO_LONG }),
        _ if error.contains("(argument-limit)") || error.contains("segment size") => Some(SERVER_TOO_LONG),
        _ => None,
    }
}

impl Sink for RemoteSink {
    fn put(&mut self, record: Record, left_out: &mut LeftOut) -> Result<(), Failure> {
        if !self.select(record.database, left_out)? {
            left_out.miss(no_database(record.database.into()));
            return Ok(());
        }
        let at = record.expires_at_ms.map(|at| at.to_string());
        match &at {
            Some(at) => self.client.send(&[b"SET", &record.key, &record.value, b"PXAT", at.as_bytes()])?,
            None => self.client.send(&[b"SET", &record.key, &record.value])?,
        }
        self.sent_bytes += record.key.len() + record.value.len();
        self.sent.push_back(Sent::Put(record.key));
        self.settle_if_many(left_out)
    }

    fn finish(&mut self, left_out: &mut LeftOut) -> Result<(), Failure> {
        self.settle(left_out)
    }

    fn written(&self) -> u64 {
        self.written
    }
}

impl Destination for RemoteSink {
    fn read(&mut self, database: u8, key: &Bytes, left_out: &mut LeftOut) -> Result<Option<Found>, Failure> {
        if !self.select(database, left_out)? {
            return Ok(None);
        }
        self.settle(left_out)?;
        self.client.send(&[b"GET", key])?;
        self.client.send(&[b"PEXPIRETIME", key])?;
        match (self.client.receive()?, self.client.receive()?) {
            (Answer::Text(value), Answer::Integer(at)) => Ok(Some((value.into(), u64::try_from(at).ok()))),
            (Answer::Nothing, _) => Ok(None),
            (Answer::Error(error), _) | (_, Answer::Error(error)) => {
                Err(self.failed(&format!("key \"{}\"", key.escape_ascii()), &error))
            }
            _ => Err(self.client.unexpected("GET").into()),
        }
    }

    fn delete(&mut self, database: u8, key: &Bytes, left_out: &mut LeftOut) -> Result<(), Failure> {
        self.remove(database, key, left_out)
    }
}

/// Reads all keys of a server with SCAN.
pub(super) struct RemoteSource {
    keys: Keys,
    /// The database being read, and the remaining databases, the next one last.
    database: u8,
    databases: Vec<u8>,
    /// The cursor; `None` before the first step.
    cursor: Option<Vec<u8>>,
    names: VecDeque<Bytes>,
    records: VecDeque<Record>,
    passed: u64,
    total: u64,
}

impl RemoteSource {
    pub(super) fn new(client: Client) -> Result<RemoteSource, Failure> {
        let mut keys = Keys::new(client)?;
        let all = keys.databases()?;
        let total = all.iter().map(|(_, keys)| keys).sum();
        let mut databases: Vec<u8> = all.into_iter().map(|(number, _)| number).collect();
        databases.retain(|number| *number > 0);
        databases.reverse();
        let (names, records) = (VecDeque::new(), VecDeque::new());
        Ok(RemoteSource { keys, database: 0, databases, cursor: None, names, records, passed: 0, total })
    }

    /// Reads the next names of the iteration. Returns false after the last.
    fn step(&mut self) -> Result<bool, Failure> {
        let cursor = match self.cursor.take() {
            None => b"0".to_vec(),
            Some(cursor) if cursor == b"0" => {
                let Some(next) = self.databases.pop() else {
                    self.cursor = Some(cursor);
                    return Ok(false);
                };
                self.database = next;
                cursor
            }
            Some(cursor) => cursor,
        };
        let (next, names) = self.keys.scan(self.database, &cursor)?;
        self.cursor = Some(next);
        self.names.extend(names);
        Ok(true)
    }

    fn read(&mut self, names: Vec<Bytes>, left_out: &mut LeftOut) -> Result<(), Failure> {
        let (database, mut others) = (self.database, Vec::new());
        let states = self.keys.read(database, &names)?;
        for (key, state) in names.into_iter().zip(states) {
            self.passed += 1;
            match state {
                State::String(value, expires_at_ms) => {
                    self.records.push_back(Record { database, key, value, expires_at_ms });
                }
                State::Absent => {}
                State::Other => others.push(key),
                State::Damaged => left_out.add(DAMAGED),
            }
        }
        self.keys.types(database, &others)?.into_iter().for_each(|name| left_out.add(name));
        Ok(())
    }
}

impl Source for RemoteSource {
    fn next(&mut self, left_out: &mut LeftOut) -> Result<Option<Record>, Failure> {
        loop {
            if let Some(record) = self.records.pop_front() {
                return Ok(Some(record));
            }
            if self.names.is_empty() && !self.step()? {
                return Ok(None);
            }
            let names: Vec<_> = self.names.drain(..self.names.len().min(self.keys.width())).collect();
            if !names.is_empty() {
                self.read(names, left_out)?;
            }
        }
    }

    fn progress(&self) -> (u64, Option<u64>) {
        (self.passed, Some(self.total.max(self.passed)))
    }
}
