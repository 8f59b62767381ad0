//! Reads and writes records of a server: Esker, or any Redis from 7.0 on.

use std::collections::{BTreeMap, VecDeque};

use esker_engine::Bytes;

use super::local::DAMAGED;
use super::record::{
    Destination, EMPTY_KEY, Found, KEY_TOO_LONG, LeftOut, Record, SERVER_TOO_LONG, Sink, Source, no_database,
};
use crate::client::{Answer, Client};
use crate::terminal::Failure;

/// Limits of commands and bytes in flight.
const COMMANDS_MAX: usize = 512;
const COMMANDS_BYTES: usize = 1 << 20;

/// Number of keys that one SCAN requests.
const STEP_KEYS: &[u8] = b"1000";

/// Number of keys that one transaction reads: initially, and at most. It grows while values are short.
const READ_KEYS: usize = 32;
const READ_KEYS_MAX: usize = 1000;
const READ_BYTES: usize = 1 << 20;

/// Esker's answer if a record that a transaction reads is damaged.
const DAMAGED_ANSWER: &str = "EXECABORT Transaction discarded because of: ERR damaged data";

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
        self.client.send(&[b"SELECT", database.to_string().as_bytes()])?;
        if is_there.is_some() {
            self.sent.push_back(Sent::Select);
            self.database = database;
            return Ok(true);
        }
        self.settle(left_out)?;
        let is_there = match self.client.receive()? {
            Answer::Error(error) if error.contains("out of range") => false,
            Answer::Error(error) => return Err(self.failed(&format!("database {database}"), &error)),
            _ => true,
        };
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
        if !self.select(database, left_out)? {
            return Ok(());
        }
        self.client.send(&[b"DEL", key])?;
        self.sent_bytes += key.len();
        self.sent.push_back(Sent::Delete(key.clone()));
        self.settle_if_many(left_out)
    }
}

/// Reads keys with SCAN, and the value and expiry of a key in one transaction, so that they belong
/// together.
pub(super) struct RemoteSource {
    client: Client,
    /// The database being read, and the remaining databases, the next one last.
    database: u8,
    databases: Vec<u8>,
    /// The cursor; `None` before the first step.
    cursor: Option<Vec<u8>>,
    keys: VecDeque<Vec<u8>>,
    /// Number of keys in the next transaction.
    width: usize,
    records: VecDeque<Record>,
    passed: u64,
    total: u64,
}

impl RemoteSource {
    pub(super) fn new(mut client: Client) -> Result<RemoteSource, Failure> {
        let (mut databases, mut total) = (Vec::new(), 0);
        if let Answer::Text(text) = client.ask(&[b"INFO", b"keyspace"])? {
            for (number, keys) in keys_of_databases(&String::from_utf8_lossy(&text))? {
                databases.push(number);
                total += keys;
            }
        }
        databases.retain(|number| *number > 0);
        databases.reverse();
        Ok(RemoteSource {
            client,
            database: 0,
            databases,
            cursor: None,
            keys: VecDeque::new(),
            width: READ_KEYS,
            records: VecDeque::new(),
            passed: 0,
            total,
        })
    }

    /// Reads the next keys of the iteration. Returns false after the last.
    fn step(&mut self) -> Result<bool, Failure> {
        let cursor = match self.cursor.take() {
            None => b"0".to_vec(),
            Some(cursor) if cursor == b"0" => {
                let Some(next) = self.databases.pop() else {
                    self.cursor = Some(cursor);
                    return Ok(false);
                };
                if let Answer::Error(error) = self.client.ask(&[b"SELECT", next.to_string().as_bytes()])? {
                    return Err(self.client.refused(&error).into());
                }
                self.database = next;
                cursor
            }
            Some(cursor) => cursor,
        };
        let answer = self.client.ask(&[b"SCAN", &cursor, b"COUNT", STEP_KEYS])?;
        let Answer::Parts(parts) = answer else { return Err(self.client.unexpected("SCAN").into()) };
        let Ok([Answer::Text(next), Answer::Parts(keys)]) = <[Answer; 2]>::try_from(parts) else {
            return Err(self.client.unexpected("SCAN").into());
        };
        self.cursor = Some(next);
        self.keys.extend(keys.into_iter().filter_map(|key| match key {
            Answer::Text(key) => Some(key),
            _ => None,
        }));
        Ok(true)
    }

    /// Reads keys; one by one if the server lacks the memory for all of them together, or if one of their
    /// records is damaged.
    fn read(&mut self, keys: &[Vec<u8>], left_out: &mut LeftOut) -> Result<(), Failure> {
        self.client.send(&[b"MULTI"])?;
        for key in keys {
            self.client.send(&[b"GET", key])?;
            self.client.send(&[b"PEXPIRETIME", key])?;
        }
        self.client.send(&[b"EXEC"])?;
        let mut refused = None;
        for _ in 0..=2 * keys.len() {
            if let Answer::Error(error) = self.client.receive()? {
                refused.get_or_insert(error);
            }
        }
        match self.client.receive()? {
            Answer::Parts(answers) if answers.len() == 2 * keys.len() => {
                let mut answers = answers.into_iter();
                for key in keys {
                    let pair = (answers.next(), answers.next());
                    self.found(key, pair, left_out)?;
                }
                Ok(())
            }
            Answer::Error(error) if keys.len() == 1 && error.starts_with(DAMAGED_ANSWER) => {
                self.passed += 1;
                left_out.add(DAMAGED);
                Ok(())
            }
            // The error while commands were queued is more specific.
            Answer::Error(error) if keys.len() == 1 || refused.is_some() => {
                Err(self.client.refused(&refused.unwrap_or(error)).into())
            }
            Answer::Error(_) => {
                keys.iter().try_for_each(|key| self.read(std::slice::from_ref(key), left_out))
            }
            _ => Err(self.client.unexpected("EXEC").into()),
        }
    }

    fn found(
        &mut self,
        key: &[u8],
        pair: (Option<Answer>, Option<Answer>),
        left_out: &mut LeftOut,
    ) -> Result<(), Failure> {
        self.passed += 1;
        match pair {
            (Some(Answer::Text(value)), Some(Answer::Integer(at))) => {
                let expires_at_ms = u64::try_from(at).ok();
                let key = Bytes::copy_from_slice(key);
                let (database, value) = (self.database, value.into());
                self.records.push_back(Record { database, key, value, expires_at_ms });
            }
            // Deleted or expired since SCAN returned it.
            (Some(Answer::Nothing), _) => {}
            (Some(Answer::Error(error)), _) if error.starts_with("WRONGTYPE") => left_out.add("no string"),
            (Some(Answer::Error(error)), _) | (_, Some(Answer::Error(error))) => {
                return Err(self.client.refused(&error).into());
            }
            _ => return Err(self.client.unexpected("GET").into()),
        }
        Ok(())
    }
}

/// Returns the databases that have keys, with their numbers of keys, from INFO.
fn keys_of_databases(info: &str) -> Result<Vec<(u8, u64)>, Failure> {
    let as_number = |(number, keys): (u64, u64)| match u8::try_from(number) {
        Ok(number) => Ok((number, keys)),
        Err(_) => Err(Failure::Failed(format!(
            "database {number} of the server has {keys} keys, but only databases 0 to 255 can be exported: nothing was exported"
        ))),
    };
    info.lines().filter_map(keys_of_database).map(as_number).collect()
}

/// Parses a line of INFO: `db3:keys=2,expires=1,avg_ttl=0`.
fn keys_of_database(line: &str) -> Option<(u64, u64)> {
    let (number, rest) = line.strip_prefix("db")?.split_once(":keys=")?;
    let keys = rest.split(',').next()?;
    Some((number.parse().ok()?, keys.parse().ok()?))
}

impl Source for RemoteSource {
    fn next(&mut self, left_out: &mut LeftOut) -> Result<Option<Record>, Failure> {
        loop {
            if let Some(record) = self.records.pop_front() {
                return Ok(Some(record));
            }
            if self.keys.is_empty() && !self.step()? {
                return Ok(None);
            }
            let keys: Vec<_> = self.keys.drain(..self.keys.len().min(self.width)).collect();
            if !keys.is_empty() {
                self.read(&keys, left_out)?;
                let bytes: usize = self.records.iter().map(|record| record.value.len()).sum();
                self.width = match bytes {
                    ..=READ_BYTES => (2 * self.width).min(READ_KEYS_MAX),
                    _ => (self.width / 2).max(1),
                };
            }
        }
    }

    fn progress(&self) -> (u64, Option<u64>) {
        (self.passed, Some(self.total.max(self.passed)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn databases_are_exported_or_refused() {
        let info = "# Keyspace\r\ndb0:keys=2,expires=1,avg_ttl=0\r\ndb255:keys=7,expires=0,avg_ttl=0\r\n";
        assert_eq!(keys_of_databases(info).ok(), Some(vec![(0, 2), (255, 7)]));
        let Err(Failure::Failed(why)) = keys_of_databases(&format!("{info}db256:keys=9,expires=0\r\n"))
        else {
            panic!("database 256 is passed over");
        };
        assert!(why.contains("database 256 of the server has 9 keys"), "{why}");
    }
}
