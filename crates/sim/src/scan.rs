//! Reading everything, while others write.

use std::collections::BTreeMap;

use bytes::Bytes;
use esker_engine::{Cursor, Entry, Error, Store};

use crate::client::Client;
use crate::model::Slot;
use crate::plan::ScanKind;

/// What was found under each key; of a scan of keys, only that they are there.
type Seen = BTreeMap<Bytes, Option<Entry>>;

impl Client {
    pub(crate) async fn scan(&self, kind: ScanKind, limit: usize) {
        for elsewhere in [false, true] {
            let (before, database) = {
                let model = self.model.lock();
                (model.slots.clone(), model.database(elsewhere))
            };
            let store = self.store.database(database).expect("there is one");
            let seen = match kind {
                ScanKind::Entries => pages(&store, limit).await,
                ScanKind::Keys => key_pages(&store, limit).await,
                ScanKind::Stream => stream(&store).await,
            };
            match seen {
                Ok(seen) => self.check_scan(&before, elsewhere, seen),
                Err(error) => self.tolerate("a scan", &error),
            }
        }
    }

    /// A key that nobody wrote meanwhile is there or not, as it was before; nothing is there that nobody wrote.
    fn check_scan(&self, before: &[Slot], elsewhere: bool, mut seen: Seen) {
        let evicted = self.store.stats().activity.records_evicted;
        let mut model = self.model.lock();
        model.told_of_evictions(evicted);
        let latest_ms = model.clock(self.store.now_ms());
        let of_database = before.iter().enumerate().filter(|(_, slot)| slot.elsewhere == elsewhere);
        for (number, slot) in of_database {
            let is_quiet = model.slots[number].history.len() == slot.history.len();
            let quiet = slot.known().filter(|_| is_quiet && !model.is_lied_to());
            for key in &slot.keys {
                let entry = seen.remove(key);
                if let Some(Some(entry)) = &entry {
                    let found = model.check_entry(number, key, Some(entry));
                    let mut states = model.slots[number].history.iter();
                    let known = states.any(|state| state.stamp == found.map(|(stamp, _)| stamp));
                    assert!(
                        known || model.is_lied_to(),
                        "a scan found {found:?} under {key:?}, which is too old"
                    );
                }
                let Some(state) = quiet else { continue };
                let expired = state.expires_at_ms.is_some_and(|at| at <= latest_ms);
                let may_be_dropped = entry.is_none() && model.may_have_dropped(&[state]);
                if !expired && !may_be_dropped {
                    assert_eq!(
                        entry.is_some(),
                        state.stamp.is_some(),
                        "{key:?} of slot {number} did not change, and the scan is wrong about it"
                    );
                }
            }
        }
        seen.retain(|key, _| elsewhere || !key.starts_with(b"counter"));
        assert!(seen.is_empty(), "a scan found keys that nobody wrote: {:?}", seen.keys());
    }
}

async fn pages(store: &Store, limit: usize) -> Result<Seen, Error> {
    let (mut seen, mut cursor) = (Seen::new(), Some(Cursor::START));
    while let Some(at) = cursor {
        let page = store.scan(at, limit).await?;
        page.damaged.first().map_or(Ok(()), |error| Err(error.clone()))?;
        seen.extend(page.entries.into_iter().map(|entry| (entry.key.clone(), Some(entry))));
        cursor = page.next;
    }
    Ok(seen)
}

async fn key_pages(store: &Store, limit: usize) -> Result<Seen, Error> {
    let (mut seen, mut cursor) = (Seen::new(), Some(Cursor::START));
    while let Some(at) = cursor {
        let page = store.scan_keys(at, limit, 2000).await?;
        page.damaged.first().map_or(Ok(()), |error| Err(error.clone()))?;
        seen.extend(page.keys.into_iter().map(|entry| (entry.key, None)));
        cursor = page.next;
    }
    Ok(seen)
}

async fn stream(store: &Store) -> Result<Seen, Error> {
    let (mut seen, mut stream) = (Seen::new(), store.stream());
    while let Some(entry) = stream.next().await {
        let entry = entry?;
        seen.insert(entry.key.clone(), Some(entry));
    }
    Ok(seen)
}
