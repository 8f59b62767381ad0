//! Writes a backup into a cluster, as a client of Redis Cluster.
//!
//! A batch has each key once, and is answered as a whole before the next one: so the last change of a key in the file is its last
//! write, and a write that is repeated after an error changes nothing.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use esker_cluster::slots::slot_of;
use esker_engine::{Bytes, StoredChange};
use esker_log::Decompressor;

use super::super::at::{At, PATIENCE};
use super::super::state::State;
use super::file::Reader;
use super::verifying::verify;
use crate::client::{Answer, Client};
use crate::terminal::Failure;
use crate::time::now_ms;

/// Pause before refused writes are repeated, and the time after which the restore gives up.
const PAUSE: Duration = Duration::from_millis(100);
const GIVE_UP: Duration = Duration::from_secs(120);
/// Longest value in bytes that is decompressed.
const VALUE_BYTES_MAX: u32 = 512 << 20;

/// A value, and the time of its expiry in milliseconds.
type Value = (Vec<u8>, Option<u64>);

/// A cluster as a client sees it.
struct Target<'a> {
    at: &'a At,
    clients: BTreeMap<String, Client>,
    /// Leaders, by the first slot of their groups.
    leaders: BTreeMap<u16, String>,
}

/// Restores a verified backup. Returns counts for the user.
pub(super) fn restore(at: &At, directory: &Path, groups: &[u8]) -> Result<String, Failure> {
    let manifest = verify(directory)?;
    if let Some(unknown) = groups.iter().find(|group| manifest.groups.iter().all(|of| of.group != **group)) {
        return Err(Failure::Usage(format!(
            "the backup has no group {unknown}; it has 1 to {}",
            manifest.groups.len()
        )));
    }
    let mut target = Target { at, clients: BTreeMap::new(), leaders: BTreeMap::new() };
    let wanted: Vec<_> =
        manifest.groups.iter().filter(|of| groups.is_empty() || groups.contains(&of.group)).collect();
    let keys = target.count_keys()?;
    if keys > 0 && groups.is_empty() {
        return Err(Failure::Failed(format!(
            "the cluster has {keys} keys; a backup is restored into an empty one: start a new cluster, or FLUSHALL on each node"
        )));
    }
    let mut writes = 0;
    for of in &wanted {
        let mut reader = Reader::open(directory, manifest.backup, of)?;
        while let Some(part) = reader.next()? {
            let mut batch = BTreeMap::new();
            for change in part {
                let (key, value) =
                    decoded(change).ok_or_else(|| reader.damaged("a value does not decompress"))?;
                batch.insert(key, value);
            }
            writes += batch.len();
            target.write(batch)?;
        }
    }
    let keys = target.count_keys()?;
    Ok(format!("{} groups: {writes} writes, {keys} keys in the cluster", wanted.len()))
}

/// Returns a key, and its value unless it is deleted or has expired.
fn decoded(change: StoredChange) -> Option<(Bytes, Option<Value>)> {
    let Some(value) = change.value else { return Some((change.key, None)) };
    let bytes = match value.compressed {
        None => value.bytes.to_vec(),
        Some(how) if how.raw_bytes > VALUE_BYTES_MAX => return None,
        Some(how) => {
            let wanted = 0..how.raw_bytes as usize;
            let mut decompressor = Decompressor::new(how, value.bytes.len(), wanted, Vec::new());
            decompressor.add(&value.bytes).ok()?;
            decompressor.finish().ok()?
        }
    };
    let has_expired = value.expires_at_ms.is_some_and(|at| at <= now_ms());
    Some((change.key, (!has_expired).then_some((bytes, value.expires_at_ms))))
}

/// The write of a key: SET with the time of its expiry, or DEL.
fn send(client: &mut Client, key: &[u8], value: Option<&Value>) -> Result<(), Failure> {
    match value {
        None => client.send(&[b"DEL", key])?,
        Some((bytes, None)) => client.send(&[b"SET", key, bytes])?,
        Some((bytes, Some(at))) => client.send(&[b"SET", key, bytes, b"PXAT", at.to_string().as_bytes()])?,
    }
    Ok(())
}

impl Target<'_> {
    fn state(&self) -> Result<State, Failure> {
        self.at.state()
    }

    fn client(&mut self, address: &str) -> Result<&mut Client, Failure> {
        if !self.clients.contains_key(address) {
            let client = self.at.login.connect(address, PATIENCE)?;
            self.clients.insert(address.to_owned(), client);
        }
        Ok(self.clients.get_mut(address).expect("it is there"))
    }

    /// Returns the number of keys of all nodes.
    fn count_keys(&mut self) -> Result<u64, Failure> {
        let mut keys = 0;
        for node in self.state()?.nodes {
            let client = self.client(&node.resp)?;
            match client.ask(&[b"DBSIZE"])? {
                Answer::Integer(count) => keys += u64::try_from(count).unwrap_or(0),
                _ => return Err(client.unexpected("DBSIZE").into()),
            }
        }
        Ok(keys)
    }

    /// Asks for the leaders again.
    fn look_up(&mut self) -> Result<(), Failure> {
        let state = self.state()?;
        self.leaders.clear();
        for group in &state.groups {
            let leader = state.nodes.iter().find(|node| group.leader.as_ref() == Some(&node.id));
            if let Some(([first, _], leader)) = group.slots.zip(leader) {
                self.leaders.insert(first, leader.resp.clone());
            }
        }
        Ok(())
    }

    /// Returns the leader of a key. Without one that is known, any other node names it.
    fn leader(&self, key: &[u8]) -> Option<String> {
        let known = self.leaders.range(..=slot_of(key)).next_back();
        known.map(|(_, address)| address.clone())
    }

    /// Writes a batch; returns when all of it was acknowledged.
    fn write(&mut self, mut batch: BTreeMap<Bytes, Option<Value>>) -> Result<(), Failure> {
        let until = Instant::now() + GIVE_UP;
        let mut why = String::new();
        loop {
            let mut sent: BTreeMap<String, Vec<Bytes>> = BTreeMap::new();
            for key in batch.keys() {
                let leader = self.leader(key).unwrap_or_default();
                sent.entry(leader).or_default().push(key.clone());
            }
            for (address, keys) in sent.iter().filter(|(address, _)| !address.is_empty()) {
                match self.write_to(address, keys, &mut batch) {
                    Ok(refused) => why = refused.unwrap_or(why),
                    Err(Failure::Failed(lost)) => {
                        self.clients.remove(address);
                        why = lost;
                    }
                    Err(Failure::Usage(refused)) => return Err(Failure::Failed(refused)),
                }
            }
            if batch.is_empty() {
                return Ok(());
            }
            if Instant::now() > until {
                return Err(Failure::Failed(format!(
                    "{} writes were not acknowledged within {GIVE_UP:?}; the cluster is incomplete: empty it, and begin again: \
                     {why}",
                    batch.len()
                )));
            }
            if !why.is_empty() {
                std::thread::sleep(PAUSE);
            }
            match self.look_up() {
                Ok(()) => {}
                Err(Failure::Failed(lost)) => why = lost,
                Err(usage) => return Err(usage),
            }
        }
    }

    /// Writes keys to a node, and removes the acknowledged ones from the batch. Returns the last refusal after which a write may be
    /// repeated.
    fn write_to(
        &mut self,
        address: &str,
        keys: &[Bytes],
        batch: &mut BTreeMap<Bytes, Option<Value>>,
    ) -> Result<Option<String>, Failure> {
        let client = self.client(address)?;
        for key in keys {
            send(client, key, batch.get(key).and_then(Option::as_ref))?;
        }
        let mut refused = None;
        for key in keys {
            match client.receive()? {
                Answer::Error(text) if REPEATED.iter().any(|word| text.starts_with(word)) => {
                    refused = Some(text)
                }
                Answer::Error(text) => {
                    let key = key.escape_ascii();
                    return Err(Failure::Usage(format!("{address} refused the key \"{key}\": {text}")));
                }
                _ => drop(batch.remove(key)),
            }
        }
        Ok(refused)
    }
}

/// Errors after which a write is repeated: it was not done, or doing it again changes nothing.
const REPEATED: [&str; 4] = ["MOVED", "CLUSTERDOWN", "TRYAGAIN", "UNCERTAIN"];
