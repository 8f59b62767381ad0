//! Scans concurrent with writes.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use esker_engine::{Cursor, Entry, EntryStream, Error, KeyEntry, Store};

use crate::client::Client;
use crate::model::Reading;
use crate::plan::ScanKind;

/// All entries found under each key; for a scan of keys, only version and expiry.
type Seen = BTreeMap<Bytes, Vec<Met>>;

enum Met {
    Entry(Entry),
    Key { version: u64, expires_at_ms: Option<u64> },
}

impl Client {
    pub(crate) async fn scan(&self, kind: ScanKind, limit: usize) {
        for elsewhere in [false, true] {
            let (before, database) = self.begin_scan(elsewhere);
            let store = self.store.database(database).expect("there is one");
            let seen = match kind {
                ScanKind::Entries => pages(&store, limit).await,
                ScanKind::Keys => key_pages(&store, limit).await,
                ScanKind::Stream => self.stream(store.stream(), of_entry).await,
                ScanKind::LogEntries => self.stream(store.stream_in_log_order(), of_entry).await,
                ScanKind::LogKeys => self.stream(store.stream_keys_in_log_order(), of_key).await,
            };
            match seen {
                Ok(seen) => self.check_scan(&before, elsewhere, seen),
                Err(error) => self.tolerate("a scan", &error),
            }
        }
    }

    /// Begins a read of every slot of a database.
    fn begin_scan(&self, elsewhere: bool) -> (Vec<Reading>, u8) {
        let (model, now_ms) = (self.model.lock(), self.store.now_ms());
        let slots = (0..model.slots.len()).filter(|slot| model.slots[*slot].elsewhere == elsewhere);
        (slots.map(|slot| model.begin_read(slot, now_ms)).collect(), model.database(elsewhere))
    }

    /// Checks that a scan finds under each key an entry that a read of the same duration could have found. A key that
    /// existed all the time is found, and no key is found that was never written.
    fn check_scan(&self, before: &[Reading], elsewhere: bool, mut seen: Seen) {
        for reading in before {
            let keys = self.model.lock().slots[reading.slot].keys.clone();
            for (number, key) in keys.iter().enumerate() {
                let met = seen.remove(key).unwrap_or_default();
                if met.is_empty() {
                    self.end_read(reading, number, None);
                }
                for met in met {
                    match met {
                        Met::Entry(entry) => self.end_read(reading, number, Some(&entry)),
                        Met::Key { version, expires_at_ms } => {
                            let now_ms = self.store.now_ms();
                            self.model.lock().end_look(reading, number, version, expires_at_ms, now_ms);
                        }
                    }
                }
            }
        }
        seen.retain(|key, _| elsewhere || !key.starts_with(b"counter"));
        assert!(seen.is_empty(), "a scan found keys that nobody wrote: {:?}", seen.keys());
    }

    /// Reads a stream to its end, and checks that it returns no version of a key twice, unless it says that it may.
    async fn stream<T>(&self, mut stream: EntryStream<T>, of: fn(T) -> (Bytes, Met)) -> Result<Seen, Error> {
        let mut seen = Seen::new();
        while let Some(item) = stream.next().await {
            let (key, met) = of(item?);
            seen.entry(key).or_default().push(met);
        }
        if !stream.began_again() && !self.model.lock().is_lied_to() {
            seen.iter().for_each(|(key, met)| check_once(key, met));
        }
        Ok(seen)
    }
}

async fn pages(store: &Store, limit: usize) -> Result<Seen, Error> {
    let (mut seen, mut cursor) = (Seen::new(), Some(Cursor::START));
    while let Some(at) = cursor {
        let page = store.scan(at, limit).await?;
        page.damaged.first().map_or(Ok(()), |error| Err(error.clone()))?;
        for entry in page.entries {
            let (key, met) = of_entry(entry);
            seen.entry(key).or_default().push(met);
        }
        cursor = page.next;
    }
    Ok(seen)
}

async fn key_pages(store: &Store, limit: usize) -> Result<Seen, Error> {
    let (mut seen, mut cursor) = (Seen::new(), Some(Cursor::START));
    while let Some(at) = cursor {
        let page = store.scan_keys(at, limit, 2000).await?;
        page.damaged.first().map_or(Ok(()), |error| Err(error.clone()))?;
        for (key, met) in page.keys.into_iter().map(of_key) {
            seen.entry(key).or_default().push(met);
        }
        cursor = page.next;
    }
    Ok(seen)
}

fn of_entry(entry: Entry) -> (Bytes, Met) {
    (entry.key.clone(), Met::Entry(entry))
}

fn of_key(KeyEntry { key, version, expires_at_ms, .. }: KeyEntry) -> (Bytes, Met) {
    (key, Met::Key { version, expires_at_ms })
}

/// Checks that an iteration found each version of a key once.
fn check_once(key: &Bytes, met: &[Met]) {
    let version = |met: &Met| match met {
        Met::Entry(entry) => entry.version,
        Met::Key { version, .. } => *version,
    };
    let versions: BTreeSet<u64> = met.iter().map(version).collect();
    assert_eq!(versions.len(), met.len(), "a scan found a version of {key:?} twice");
}
