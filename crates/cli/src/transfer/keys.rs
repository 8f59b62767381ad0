//! The keys of a server and their states: Esker, Redis, Valkey, Kvrocks, or another server of their protocol.

use std::collections::BTreeMap;

use esker_engine::Bytes;

use crate::client::{Answer, Client};
use crate::terminal::Failure;
use crate::time::now_ms;

/// Number of keys that one SCAN requests.
const STEP_KEYS: &[u8] = b"1000";

/// Number of keys that one transaction reads: initially, and at most. It grows while values are short.
const READ_KEYS: usize = 32;
const READ_KEYS_MAX: usize = 1000;
const READ_BYTES: usize = 1 << 20;

/// A database number that no server has. A server that selects it ignores SELECT.
const NO_DATABASE: &[u8] = b"2147483647";

/// Beginning of the answer to a transaction that is refused as a whole.
const REFUSED_ANSWER: &str = "EXECABORT";

/// Number of times that a key outside a transaction is read while its expiry changes.
const READS_ALONE: usize = 3;

/// Esker's answer if a record that a transaction reads is damaged.
const DAMAGED_ANSWER: &str = "EXECABORT Transaction discarded because of: ERR damaged data";

/// The state of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// A string, and its expiry in milliseconds since the Unix epoch.
    String(Bytes, Option<u64>),
    /// The key does not exist, or has expired.
    Absent,
    /// The key has another type.
    Other,
    /// The server cannot read the record.
    Damaged,
}

/// A connection that reads keys.
pub(super) struct Keys {
    client: Client,
    /// The selected database, and the databases that are known to exist or not to.
    database: u8,
    exists: BTreeMap<u8, bool>,
    /// False if the server has no PEXPIRETIME (Redis before 7.0): then PTTL gives the expiry, late by the time of an answer.
    has_expiry_times: bool,
    /// Number of keys in the next transaction.
    width: usize,
}

impl Keys {
    pub(super) fn new(mut client: Client) -> Result<Keys, Failure> {
        client.send(&[b"PEXPIRETIME", b"0"])?;
        let is_unknown = |error: &str| error.to_ascii_lowercase().contains("unknown command");
        let has_expiry_times = !matches!(client.receive()?, Answer::Error(error) if is_unknown(&error));
        let exists = BTreeMap::from([(0, true)]);
        Ok(Keys { client, database: 0, exists, has_expiry_times, width: READ_KEYS })
    }

    /// Returns true if expiries are exact to the millisecond.
    pub(super) fn has_expiry_times(&self) -> bool {
        self.has_expiry_times
    }

    /// Sends a command that reads no key. Returns the answer, which may be an error of the server.
    pub(super) fn try_ask(&mut self, words: &[&[u8]]) -> Result<Answer, Failure> {
        self.client.send(words)?;
        Ok(self.client.receive()?)
    }

    /// Returns the value of a field in a section of INFO.
    pub(super) fn info(&mut self, section: &str, field: &str) -> Result<Option<String>, Failure> {
        let text = self.client.ask_text(&[b"INFO", section.as_bytes()])?;
        let text = String::from_utf8_lossy(&text);
        let found = text.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
        Ok(found.map(|value| value.trim().to_owned()))
    }

    /// Returns the databases that have keys, with their numbers of keys.
    pub(super) fn databases(&mut self) -> Result<Vec<(u8, u64)>, Failure> {
        match self.client.ask(&[b"INFO", b"keyspace"])? {
            Answer::Text(text) => keys_of_databases(&String::from_utf8_lossy(&text)),
            _ => Ok(Vec::new()),
        }
    }

    /// Returns true if the server has no keys. Database 0 is read, because Kvrocks counts its keys only on demand.
    pub(super) fn is_empty(&mut self) -> Result<bool, Failure> {
        if self.databases()?.iter().any(|(database, keys)| *database > 0 && *keys > 0) {
            return Ok(false);
        }
        let mut cursor = b"0".to_vec();
        loop {
            let (next, names) = self.scan(0, &cursor)?;
            if !names.is_empty() || next == b"0" {
                return Ok(names.is_empty());
            }
            cursor = next;
        }
    }

    /// Selects a database. Returns false if the server does not have it.
    fn select(&mut self, database: u8) -> Result<bool, Failure> {
        if self.database == database {
            return Ok(true);
        }
        let exists = match self.exists.get(&database) {
            Some(true) => {
                self.client.ask(&[b"SELECT", database.to_string().as_bytes()])?;
                true
            }
            Some(false) => false,
            None => try_select(&mut self.client, database)?,
        };
        self.exists.insert(database, exists);
        if exists {
            self.database = database;
        }
        Ok(exists)
    }

    /// Reads some keys from a cursor on; `b"0"` is the start of an iteration. Returns the next cursor, which is `b"0"` after the
    /// last keys. A database that the server does not have has no keys.
    pub(super) fn scan(&mut self, database: u8, cursor: &[u8]) -> Result<(Vec<u8>, Vec<Bytes>), Failure> {
        if !self.select(database)? {
            return Ok((b"0".to_vec(), Vec::new()));
        }
        let Answer::Parts(parts) = self.client.ask(&[b"SCAN", cursor, b"COUNT", STEP_KEYS])? else {
            return Err(self.client.unexpected("SCAN").into());
        };
        let Ok([Answer::Text(next), Answer::Parts(keys)]) = <[Answer; 2]>::try_from(parts) else {
            return Err(self.client.unexpected("SCAN").into());
        };
        let keys = keys.into_iter().filter_map(|key| match key {
            Answer::Text(key) => Some(key.into()),
            _ => None,
        });
        Ok((next, keys.collect()))
    }

    /// Returns the number of keys that [`read`](Self::read) should get, so that their values take a few megabytes.
    pub(super) fn width(&self) -> usize {
        self.width
    }

    /// Reads the states of keys of a database, in their order. Value and expiry of a key belong together.
    pub(super) fn read(&mut self, database: u8, keys: &[Bytes]) -> Result<Vec<State>, Failure> {
        if !self.select(database)? {
            return Ok(vec![State::Absent; keys.len()]);
        }
        let mut states = Vec::with_capacity(keys.len());
        self.read_into(keys, &mut states)?;
        let bytes_of = |state: &State| if let State::String(value, _) = state { value.len() } else { 0 };
        let bytes: usize = states.iter().map(bytes_of).sum();
        if bytes > READ_BYTES {
            self.width = (self.width / 2).max(1);
        } else if keys.len() >= self.width {
            self.width = (2 * self.width).min(READ_KEYS_MAX);
        }
        Ok(states)
    }

    /// Reads keys in one transaction; one by one if the server lacks the memory for all of them together, or if one of their
    /// records is damaged; without a transaction if it lacks the memory for one of them.
    fn read_into(&mut self, keys: &[Bytes], states: &mut Vec<State>) -> Result<(), Failure> {
        let expiry: &[u8] = if self.has_expiry_times { b"PEXPIRETIME" } else { b"PTTL" };
        self.client.send(&[b"MULTI"])?;
        for key in keys {
            self.client.send(&[b"GET", key])?;
            self.client.send(&[expiry, key])?;
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
                while let (Some(value), Some(expiry)) = (answers.next(), answers.next()) {
                    states.push(self.state(value, &expiry)?);
                }
                Ok(())
            }
            Answer::Error(error) if keys.len() == 1 && error.starts_with(DAMAGED_ANSWER) => {
                states.push(State::Damaged);
                Ok(())
            }
            Answer::Error(error)
                if keys.len() == 1 && refused.is_none() && error.starts_with(REFUSED_ANSWER) =>
            {
                states.push(self.read_alone(&keys[0], expiry)?);
                Ok(())
            }
            // The error while commands were queued is more specific.
            Answer::Error(error) if keys.len() == 1 || refused.is_some() => {
                Err(self.client.refused(&refused.unwrap_or(error)).into())
            }
            Answer::Error(_) => {
                keys.iter().try_for_each(|key| self.read_into(std::slice::from_ref(key), states))
            }
            _ => Err(self.client.unexpected("EXEC").into()),
        }
    }

    /// Reads a key without a transaction, again if its expiry changes meanwhile.
    fn read_alone(&mut self, key: &[u8], expiry: &[u8]) -> Result<State, Failure> {
        let mut reads = 1;
        loop {
            for words in [[expiry, key], [b"GET", key], [expiry, key]] {
                self.client.send(&words)?;
            }
            let (before, value, after) =
                (self.client.receive()?, self.client.receive()?, self.client.receive()?);
            if before == after || reads == READS_ALONE {
                return self.state(value, &after);
            }
            reads += 1;
        }
    }

    fn state(&self, value: Answer, expiry: &Answer) -> Result<State, Failure> {
        match (value, expiry) {
            (Answer::Text(value), Answer::Integer(time)) => {
                let base = if self.has_expiry_times { 0 } else { now_ms() };
                let expires_at_ms = u64::try_from(*time).ok().map(|time| base + time);
                Ok(State::String(value.into(), expires_at_ms))
            }
            // Deleted or expired since SCAN returned it.
            (Answer::Nothing, _) => Ok(State::Absent),
            (Answer::Error(error), _) if is_wrong_type(&error) => Ok(State::Other),
            (Answer::Error(error), _) => Err(self.client.refused(&error).into()),
            (_, Answer::Error(error)) => Err(self.client.refused(error).into()),
            _ => Err(self.client.unexpected("GET").into()),
        }
    }

    /// Returns the names of the types of keys; `none` for an absent key.
    pub(super) fn types(&mut self, database: u8, keys: &[Bytes]) -> Result<Vec<String>, Failure> {
        if !self.select(database)? {
            return Ok(vec!["none".to_owned(); keys.len()]);
        }
        for key in keys {
            self.client.send(&[b"TYPE", key])?;
        }
        let mut types = Vec::with_capacity(keys.len());
        let mut refused = None;
        // All answers are received before an error ends the call.
        for _ in keys {
            match self.client.receive()? {
                Answer::Text(name) => types.push(String::from_utf8_lossy(&name).into_owned()),
                Answer::Error(error) => drop(refused.get_or_insert(error)),
                _ => return Err(self.client.unexpected("TYPE").into()),
            }
        }
        refused.map_or(Ok(types), |error| Err(self.client.refused(&error).into()))
    }
}

/// Selects a database other than 0. Returns false if the server does not have it. Kvrocks accepts every number and selects nothing:
/// it has one set of keys, in which equal keys of two databases would replace each other.
pub(super) fn try_select(client: &mut Client, database: u8) -> Result<bool, Failure> {
    client.send(&[b"SELECT", NO_DATABASE])?;
    client.send(&[b"SELECT", database.to_string().as_bytes()])?;
    let is_ignored = !matches!(client.receive()?, Answer::Error(_));
    match client.receive()? {
        Answer::Error(error) if error.contains("out of range") => Ok(false),
        Answer::Error(error) => Err(client.refused(&error).into()),
        _ => Ok(!is_ignored),
    }
}

/// Returns true for the answer to GET of a key of another type. Kvrocks puts `ERR Invalid argument: ` before its code.
fn is_wrong_type(error: &str) -> bool {
    error.starts_with("WRONGTYPE") || error.contains(": WRONGTYPE ")
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrong_type_is_known_with_a_prefix() {
        let text = "WRONGTYPE Operation against a key holding the wrong kind of value";
        assert!(is_wrong_type(text) && is_wrong_type(&format!("ERR Invalid argument: {text}")));
        assert!(!is_wrong_type("ERR value is not an integer or out of range"));
    }

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
