//! Records of one segment, all versions of one key, and all keys of a store, from the log alone.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::sync::Mutex;

use esker_log::{Damage, Entry, KeyHash, Kind, RecordView, SegmentClass, Tier};
use serde::Serialize;

use crate::current::{At, Left, keys_left, mark_current, read_marked};
use crate::error::{InspectError, Result};
use crate::key::Key;
use crate::marks::Marks;
use crate::names::key_of;
use crate::newest_versions::Rule;
use crate::slots::Segment;
use crate::store::StoreView;
use crate::versions::{UNITS, Version, Versions, place_of};
use crate::watch::Watcher;

/// Limit of look-ups of a key that a running server keeps moving.
const LOOKS: u32 = 8;

/// The standing of a record: current, or the reason why it is not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Standing {
    /// The store returns this record for its key.
    Current,
    /// The newest record of its key, and expired.
    Expired,
    /// The newest record of its key, and a tombstone.
    Deleted,
    /// Superseded by a version with a higher sequence number.
    Superseded,
    /// A copy of the same version lies in an older segment, which is the current one.
    Copy,
    /// Its database was cleared after it was written.
    Cleared,
}

impl Standing {
    /// Returns an explanation in words.
    pub fn why(self) -> &'static str {
        match self {
            Standing::Current => "current: it has the highest sequence number of its key",
            Standing::Expired => "newest of its key, and its time to live has run out",
            Standing::Deleted => "newest of its key: the key is deleted",
            Standing::Superseded => "superseded by a higher sequence number",
            Standing::Copy => "copy of the same version: the one in the older segment counts",
            Standing::Cleared => "cleared: all keys of its database were removed after it",
        }
    }
}

/// A record at its location.
#[derive(Clone, Debug, Serialize)]
pub struct RecordRow {
    /// `fast` or `capacity`.
    pub tier: &'static str,
    /// Slot of the tier.
    pub slot: u32,
    /// Number of the segment.
    pub segment: u64,
    /// Class of the segment.
    #[serde(serialize_with = "crate::class::name")]
    pub class: SegmentClass,
    /// Byte offset in the segment.
    pub offset: u32,
    /// Length in bytes without padding; with padding if the record is damaged.
    pub bytes: u32,
    /// Its key.
    pub key: Key,
    /// True if the record is a tombstone.
    pub tombstone: bool,
    /// Sequence number, which orders all versions.
    pub sequence: u64,
    /// Length of the uncompressed value in bytes.
    pub value_bytes: Option<u64>,
    /// Length of the stored value in bytes.
    pub stored_value_bytes: Option<u64>,
    /// The compression, if any: `lz4` or `zstd`.
    pub compression: Option<&'static str>,
    /// Expiry, in milliseconds since the Unix epoch.
    pub expires_at_ms: Option<u64>,
    /// Its standing.
    pub standing: Standing,
    /// Its damage, if any.
    pub damage: Option<String>,
}

/// The requested records.
#[derive(Clone, Debug, Serialize)]
pub struct Records {
    /// The records with their locations.
    pub records: Vec<RecordRow>,
    /// True if keys that cannot be named are lost, so that a newest record here may not be the newest
    /// version.
    pub in_doubt: bool,
}

/// A key with its value, from the log.
#[derive(Clone, Debug)]
pub struct Item {
    /// The number of its database.
    pub database: u8,
    /// The key.
    pub key: Vec<u8>,
    /// Its value.
    pub value: Vec<u8>,
    /// Its sequence number.
    pub sequence: u64,
    /// Expiry, in milliseconds since the Unix epoch.
    pub expires_at_ms: Option<u64>,
}

impl StoreView {
    /// Returns every record of a segment.
    ///
    /// # Errors
    /// If the store has no segment with this number.
    pub fn records(&self, number: u64, now_ms: u64, watcher: &dyn Watcher) -> Result<Records> {
        let segment = self.find_segment(number)?;
        let mut entries = Vec::new();
        if !self.entries(&segment, |entry| entries.push(entry)) {
            entries = self.rescan(&segment).entries;
        }
        let mut hashes: Vec<_> = entries.iter().map(|entry| entry.key_hash).collect();
        hashes.sort_unstable();
        hashes.dedup();
        let keep = |hash: &KeyHash| hashes.binary_search(hash).is_ok();
        Ok(self.rows(watcher, now_ms, keep, |at| (at.tier, at.slot) == (segment.tier, segment.slot)))
    }

    /// Returns every version of a key of a database, the newest first.
    ///
    /// # Errors
    /// If the database does not exist.
    pub fn trace(&self, database: u8, key: &[u8], now_ms: u64, watcher: &dyn Watcher) -> Result<Records> {
        let hash = self.hash(database, key)?;
        let mut found = self.rows(watcher, now_ms, |of| *of == hash, |_| true);
        found.records.sort_by_key(|row| (Reverse(row.sequence), row.segment));
        // A record whose key cannot be read belongs to this key, because its digest matches.
        found.records.iter_mut().for_each(|row| row.key = Key::named(database, key));
        Ok(found)
    }

    /// Returns the records of the keys that pass `keep`, from the segments that pass `wanted`.
    fn rows(
        &self,
        watcher: &dyn Watcher,
        now_ms: u64,
        keep: impl Fn(&KeyHash) -> bool + Sync,
        wanted: impl Fn(&Segment) -> bool,
    ) -> Records {
        let (segments, versions) = self.versions_of(watcher, &keep);
        let rule = Rule::new(self, &segments);
        let standings = Mutex::new(BTreeMap::new());
        versions.for_each_key(
            || (),
            |(), versions| {
                let current = rule.current(versions).copied();
                let mut standings = standings.lock().expect("no code panics while holding the lock");
                for version in versions {
                    standings.insert(version.place(), standing(version, current));
                }
            },
        );
        let standings = standings.into_inner().expect("no code panics while holding the lock");
        let mut rows = Vec::new();
        for segment in segments.iter().filter(|segment| wanted(segment)) {
            let mut entries = Vec::new();
            self.entries(segment, |entry| entries.extend(keep(&entry.key_hash).then_some(entry)));
            let tier = self.tiers[segment.tier].name();
            for entry in entries {
                let place = place_of(tier, segment.slot, entry.offset);
                let standing = standings.get(&place).copied().unwrap_or(Standing::Superseded);
                rows.push(self.row(segment, tier, &entry, standing, now_ms));
            }
        }
        Records { records: rows, in_doubt: self.is_in_doubt(&segments) }
    }

    fn row(
        &self,
        segment: &Segment,
        tier: Tier,
        entry: &Entry,
        standing: Standing,
        now_ms: u64,
    ) -> RecordRow {
        let read = self.tiers[segment.tier].read(segment.slot, entry.offset, entry.bytes);
        let bytes: &[u8] = read.as_deref().unwrap_or(&[]);
        let parsed = RecordView::parse(bytes, &self.secret.identity(segment.number, entry.offset));
        let verified = parsed.and_then(|record| {
            record.verify_value(&self.secret)?;
            self.verify_compression(&record)
        });
        let key = match parsed {
            Ok(record) => self.key_of(&record),
            Err(_) => key_of(entry, bytes, &self.secret, &self.databases, self.tiers[segment.tier].shape),
        };
        let expired = self.is_expired(entry.expires_at_ms, entry.sequence, now_ms);
        RecordRow {
            tier: tier.name(),
            slot: segment.slot,
            segment: segment.number,
            class: SegmentClass::of(segment.stream),
            offset: entry.offset,
            bytes: parsed.map_or(entry.bytes, |record| record.bytes() as u32),
            key,
            tombstone: entry.kind == Kind::Tombstone,
            sequence: entry.sequence,
            value_bytes: parsed.ok().map(|record| record.raw_bytes()),
            stored_value_bytes: parsed.ok().map(|record| record.value.len() as u64),
            compression: parsed.ok().and_then(|record| record.compressed).map(|how| how.codec.name()),
            expires_at_ms: entry.expires_at_ms,
            standing: if standing == Standing::Current && expired { Standing::Expired } else { standing },
            damage: read
                .as_ref()
                .err()
                .map(ToString::to_string)
                .or(verified.err().map(|damage| damage.to_string())),
        }
    }

    /// Returns the value of a key, from the newest record that can be found; `None` if the key does not
    /// exist.
    ///
    /// # Errors
    /// If that record is damaged, if a newer one may have been lost, or if the database does not exist.
    pub fn get(&self, database: u8, key: &[u8], now_ms: u64, watcher: &dyn Watcher) -> Result<Option<Item>> {
        let hash = self.hash(database, key)?;
        let mut found = None;
        self.scan_kept(
            now_ms,
            watcher,
            |of| *of == hash,
            false,
            |item| {
                found = Some(item?);
                Ok(ControlFlow::Break(()))
            },
        )?;
        Ok(found)
    }

    /// Passes every key of a database, or of all, with its value to `see`, in the order of the records'
    /// locations, until `see` returns `Break`. A record that cannot be read is passed as an error.
    ///
    /// # Errors
    /// Errors of `see`; if the newest values cannot be determined; or if the database does not exist.
    pub fn scan(
        &self,
        database: Option<u8>,
        now_ms: u64,
        watcher: &dyn Watcher,
        see: impl FnMut(Result<Item>) -> Result<ControlFlow<()>>,
    ) -> Result<()> {
        let keyspace = database.map(|database| self.keyspace(database)).transpose()?;
        let keep = |hash: &KeyHash| keyspace.is_none_or(|keyspace| hash.keyspace() == keyspace);
        self.scan_kept(now_ms, watcher, keep, true, see)
    }

    fn scan_kept(
        &self,
        now_ms: u64,
        watcher: &dyn Watcher,
        keep: impl Fn(&KeyHash) -> bool + Sync,
        keeps_all: bool,
        mut see: impl FnMut(Result<Item>) -> Result<ControlFlow<()>>,
    ) -> Result<()> {
        let mut left = self.scan_once(now_ms, watcher, keep, keeps_all, &mut see)?;
        let mut looks = 1;
        while !left.is_empty() && looks < LOOKS {
            looks += 1;
            let keep = |hash: &KeyHash| left.contains(hash);
            left = self.again()?.scan_once(now_ms, watcher, keep, false, &mut see)?;
        }
        if !left.is_empty() {
            let what = format!(
                "{} keys moved during every attempt to read them; read them from the server instead",
                left.len()
            );
            // The error is the last item, so the returned control flow has no effect.
            let _ = see(Err(InspectError::Damaged(what)))?;
        }
        Ok(())
    }

    /// Passes the current items to `see`. Returns the keys whose segments left their slots between
    /// reading the summaries and reading the records.
    ///
    /// If the versions of all keys fit the memory, or beside a server, the records of a range of keys are
    /// read while its versions are in memory, because they name the keys of a segment that has left. Else
    /// the current records of all ranges are marked first, so that every segment is read once.
    fn scan_once(
        &self,
        now_ms: u64,
        watcher: &dyn Watcher,
        keep: impl Fn(&KeyHash) -> bool + Sync,
        keeps_all: bool,
        see: &mut impl FnMut(Result<Item>) -> Result<ControlFlow<()>>,
    ) -> Result<BTreeSet<KeyHash>> {
        let (mut left, mut is_enough) = (BTreeSet::new(), false);
        let mut marks = None;
        let mut pass = Scan { now_ms, watcher, is_enough: &mut is_enough, see };
        let take = |view: &StoreView, segments: &[Segment], versions: &Versions| {
            if view.is_in_doubt(segments) {
                let what = "keys that cannot be named are lost, so any value may be stale; see esker check";
                return Err(InspectError::Damaged(what.to_owned()));
            }
            let rule = Rule::new(view, segments);
            if !view.is_in_use() && versions.range() != UNITS {
                let marks = marks.get_or_insert_with(|| Marks::of(view, segments));
                mark_current(&rule, versions, marks, |_| true);
                return Ok(ControlFlow::Continue(()));
            }
            let marks = Marks::of(view, segments);
            mark_current(&rule, versions, &marks, |_| true);
            let slots = pass.read(view, segments, &marks)?;
            left.extend(keys_left(&rule, versions, &slots));
            Ok(if *pass.is_enough { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
        };
        let segments = self.each_pass(watcher, keeps_all, keep, take)?;
        if let Some(marks) = marks
            && let Some(((tier, slot), offset)) = pass.read(self, &segments, &marks)?.first_key_value()
            && !is_enough
        {
            let (tier, slot) = (tier.name(), slot);
            let what = format!("slot {slot} of the {tier} tier changed at {offset} while it was read");
            return Err(InspectError::Damaged(what));
        }
        Ok(if is_enough { BTreeSet::new() } else { left })
    }
}

/// A scan that passes items to its caller.
struct Scan<'a, S> {
    now_ms: u64,
    watcher: &'a dyn Watcher,
    /// True once the caller wants no more items.
    is_enough: &'a mut bool,
    see: &'a mut S,
}

impl<S: FnMut(Result<Item>) -> Result<ControlFlow<()>>> Scan<'_, S> {
    /// Passes the marked records that have not expired. Returns the slots that their segments left.
    fn read(&mut self, view: &StoreView, segments: &[Segment], marks: &Marks) -> Result<Left> {
        read_marked(view, segments, marks, self.watcher, |At { segment, location, record }| {
            let item = match record {
                Ok(record) if view.is_expired(record.expires_at_ms, record.sequence, self.now_ms) => {
                    return Ok(ControlFlow::Continue(()));
                }
                record => record.and_then(|record| view.item(&record)),
            };
            let seen = (self.see)(item.map_err(|damage| {
                let offset = location.offset;
                let damaged = || {
                    let what = format!("segment {segment}, offset {offset}: {damage}; see esker check");
                    InspectError::Damaged(what)
                };
                InspectError::of_codec(damage, segment, offset).unwrap_or_else(damaged)
            }))?;
            *self.is_enough = seen.is_break();
            Ok(seen)
        })
    }
}

impl StoreView {
    fn item(&self, record: &RecordView<'_>) -> std::result::Result<Item, Damage> {
        Ok(Item {
            database: self.databases.database(record.keyspace),
            key: record.key.to_vec(),
            value: self.raw_value(record)?.into_owned(),
            sequence: record.sequence,
            expires_at_ms: record.expires_at_ms,
        })
    }
}

fn standing(version: &Version, current: Option<Version>) -> Standing {
    match current {
        None => Standing::Cleared,
        Some(current) if current.place() == version.place() => {
            if version.is_tombstone() {
                Standing::Deleted
            } else {
                Standing::Current
            }
        }
        Some(current) if current.sequence == version.sequence => Standing::Copy,
        Some(_) => Standing::Superseded,
    }
}
