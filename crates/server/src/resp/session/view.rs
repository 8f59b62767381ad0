//! The entries that a command works on, and its changes to them.
//!
//! Every command on keys is a function of a view. It runs identically alone, in a pipeline and in a transaction:
//! later commands on the same view read the writes of earlier ones, and the final state is one batch for the store.

use std::collections::{BTreeMap, HashMap};
use std::time::{SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use esker_engine::{Batch, Entry, KeyEntry, Store};

use crate::service::events::{Event, KeyspaceEvents};
use crate::service::{LAST_MS, Service};

/// Number of keys above which they are found by a map instead of a linear search.
const LISTED_KEYS_MAX: usize = 8;

/// A key's value and expiry, as the running command finds them.
#[derive(Clone, Debug)]
pub(crate) struct Held {
    /// Empty if the command does not need it: commands of that kind are answered from lengths alone.
    pub(crate) value: Bytes,
    pub(crate) value_bytes: u64,
    /// In milliseconds since the Unix epoch, at most [`LAST_MS`], so that arithmetic on it does not overflow.
    pub(crate) expires_at_ms: Option<u64>,
}

impl Held {
    fn new(value: Bytes, expires_at_ms: Option<u64>) -> Held {
        let value_bytes = value.len() as u64;
        Held { value, value_bytes, expires_at_ms: expires_at_ms.map(|at| at.min(LAST_MS)) }
    }
}

impl From<Entry> for Held {
    fn from(Entry { value, expires_at_ms, .. }: Entry) -> Held {
        Held::new(value, expires_at_ms)
    }
}

impl From<KeyEntry> for Held {
    fn from(KeyEntry { value_bytes, expires_at_ms, .. }: KeyEntry) -> Held {
        Held { value_bytes, ..Held::new(Bytes::new(), expires_at_ms) }
    }
}

/// The number of a database, and a key in it.
pub(crate) type Place = (u8, Bytes);

struct Slot {
    database: u8,
    key: Bytes,
    held: Option<Held>,
    /// True if the store has the key.
    stored: bool,
    written: bool,
    /// True if a command put the key while it was absent.
    created: bool,
    /// The value of `Saved::count` when the slot was last written.
    written_after: u32,
}

/// The state of a view at its last [`View::save`], as far as it was written since.
#[derive(Default)]
struct Saved {
    /// Number of calls of [`View::save`].
    count: u32,
    /// Of each slot written since: its index, and its `held`, `written` and `created` before.
    slots: Vec<(usize, Option<Held>, bool, bool)>,
    grown: [i64; Store::DATABASES as usize],
    made_bytes: usize,
}

impl Slot {
    fn made_bytes(&self) -> usize {
        self.held.as_ref().filter(|_| self.written).map_or(0, |held| held.value.len())
    }
}

/// The entries of the keys of some commands; see the module.
pub(crate) struct View {
    /// The time for all commands on this view, in milliseconds since the Unix epoch.
    pub(crate) now_ms: u64,
    /// Limit of the bytes of a value that a client may make.
    pub(crate) value_bytes_max: usize,
    /// The database of commands that name none.
    pub(crate) database: u8,
    /// The number of databases.
    databases: u8,
    slots: Vec<Slot>,
    /// For each database with keys in the view, the slot of each key. Empty for a few keys.
    places: BTreeMap<u8, HashMap<Bytes, usize>>,
    /// For each database, keys created less keys deleted.
    grown: [i64; Store::DATABASES as usize],
    /// Bytes of written values that still exist.
    made_bytes: usize,
    saved: Saved,
    /// The classes of keyspace events to record.
    wanted: KeyspaceEvents,
    /// Recorded keyspace events.
    events: Vec<Event>,
}

impl View {
    /// Creates a view of the entries of keys, in the order of the keys; a key may occur twice. Commands that name no
    /// database use `database`.
    pub(crate) fn new(
        service: &Service,
        value_bytes_max: usize,
        database: u8,
        entries: impl ExactSizeIterator<Item = (Place, Option<impl Into<Held>>)>,
    ) -> View {
        let (databases, wanted) = (service.databases().len() as u8, service.events.wanted());
        View::at(service.store.now_ms(), value_bytes_max, database, (databases, wanted), entries)
    }

    /// Creates a view of absent keys, for a check of a command's arguments without a store.
    pub(in crate::resp) fn of_absent(
        value_bytes_max: usize,
        database: u8,
        keys: impl ExactSizeIterator<Item = Place>,
    ) -> View {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let absent = keys.map(|place| (place, None::<Held>));
        let (databases, wanted) = (Store::DATABASES, KeyspaceEvents::default());
        View::at(now.as_millis() as u64, value_bytes_max, database, (databases, wanted), absent)
    }

    /// As [`new`](Self::new), at a time, with the number of databases and the classes of keyspace events to record.
    fn at(
        now_ms: u64,
        value_bytes_max: usize,
        database: u8,
        (databases, wanted): (u8, KeyspaceEvents),
        entries: impl ExactSizeIterator<Item = (Place, Option<impl Into<Held>>)>,
    ) -> View {
        let (mut slots, mut places) = (Vec::with_capacity(entries.len()), BTreeMap::new());
        let count = entries.len();
        let mapped = count > LISTED_KEYS_MAX;
        for ((database, key), entry) in entries {
            if mapped {
                // Most views have keys of one database only.
                let of_database: &mut HashMap<_, _> =
                    places.entry(database).or_insert_with(|| HashMap::with_capacity(count));
                of_database.entry(key.clone()).or_insert(slots.len());
            }
            // The entry may have expired between the look-up and `now_ms`.
            let held = entry.map(Into::into);
            let held = held.filter(|held: &Held| held.expires_at_ms.is_none_or(|at| now_ms < at));
            let stored = held.is_some();
            let (written, created) = (false, false);
            slots.push(Slot { database, key, held, stored, written, created, written_after: 0 });
        }
        View {
            now_ms,
            value_bytes_max,
            database,
            databases,
            slots,
            places,
            grown: Default::default(),
            made_bytes: 0,
            saved: Saved::default(),
            wanted,
            events: Vec::new(),
        }
    }

    /// Records a keyspace event, if its class is wanted.
    pub(crate) fn tell(&mut self, class: KeyspaceEvents, name: &'static str, key: &[u8]) {
        self.tell_in(self.database, class, name, key);
    }

    /// Like [`tell`](Self::tell), in a database.
    pub(crate) fn tell_in(&mut self, database: u8, class: KeyspaceEvents, name: &'static str, key: &[u8]) {
        if self.wanted.has(class) {
            let key = self.slots[self.place(database, key)].key.clone();
            self.events.push(Event { database, class, name, key });
        }
    }

    /// Returns the events recorded since the last call.
    pub(crate) fn take_events(&mut self) -> Vec<Event> {
        std::mem::take(&mut self.events)
    }

    /// Returns the database with a number given by a client, or `None` if it is out of range.
    pub(crate) fn database_of(&self, number: i64) -> Option<u8> {
        u8::try_from(number).ok().filter(|number| *number < self.databases)
    }

    fn find(&self, database: u8, key: &[u8]) -> Option<usize> {
        match self.places.is_empty() {
            true => self.slots.iter().position(|slot| slot.key == key && slot.database == database),
            false => self.places.get(&database)?.get(key).copied(),
        }
    }

    fn place(&self, database: u8, key: &[u8]) -> usize {
        let found = self.find(database, key);
        found.expect("the descriptor of a command names every key that a command works on")
    }

    /// Returns true if the view has the entry of a key.
    pub(crate) fn has(&self, database: u8, key: &[u8]) -> bool {
        self.find(database, key).is_some()
    }

    /// Returns the bytes of a key's value, 0 for an absent key, or `None` if the view does not have its entry.
    pub(crate) fn value_bytes(&self, database: u8, key: &[u8]) -> Option<usize> {
        let slot = &self.slots[self.find(database, key)?];
        Some(slot.held.as_ref().map_or(0, |held| held.value.len()))
    }

    pub(crate) fn get(&self, key: &[u8]) -> Option<&Held> {
        self.get_in(self.database, key)
    }

    pub(crate) fn get_in(&self, database: u8, key: &[u8]) -> Option<&Held> {
        self.slots[self.place(database, key)].held.as_ref()
    }

    /// Like [`get`](Self::get), for a command that answers the value. Records a `keymiss` event for an absent key.
    pub(crate) fn look_up(&mut self, key: &[u8]) -> Option<&Held> {
        if self.wanted.has(KeyspaceEvents::MISS) && self.get(key).is_none() {
            self.tell(KeyspaceEvents::MISS, "keymiss", key);
        }
        self.get(key)
    }

    /// Writes a value. One that has already expired deletes the key.
    pub(crate) fn put(&mut self, key: &[u8], value: Bytes, expires_at_ms: Option<u64>) {
        self.put_in(self.database, key, value, expires_at_ms);
    }

    /// Like [`put`](Self::put), in a database.
    pub(crate) fn put_in(&mut self, database: u8, key: &[u8], value: Bytes, expires_at_ms: Option<u64>) {
        let place = self.place(database, key);
        let alive = expires_at_ms.is_none_or(|at| self.now_ms < at);
        if self.slots[place].held.is_none() {
            self.tell_in(database, KeyspaceEvents::NEW, "new", key);
        }
        self.keep_saved(place);
        let slot = &mut self.slots[place];
        self.made_bytes -= slot.made_bytes();
        self.grown[usize::from(database)] += i64::from(alive) - i64::from(slot.held.is_some());
        slot.created |= slot.held.is_none();
        slot.held = alive.then(|| Held::new(value, expires_at_ms));
        slot.written = true;
        self.made_bytes += slot.made_bytes();
    }

    /// Deletes a key. Returns true if it existed.
    pub(crate) fn delete(&mut self, key: &[u8]) -> bool {
        self.delete_in(self.database, key)
    }

    /// Like [`delete`](Self::delete), in a database.
    pub(crate) fn delete_in(&mut self, database: u8, key: &[u8]) -> bool {
        let place = self.place(database, key);
        self.keep_saved(place);
        let slot = &mut self.slots[place];
        self.made_bytes -= slot.made_bytes();
        slot.written = true;
        let was = slot.held.take().is_some();
        self.grown[usize::from(database)] -= i64::from(was);
        was
    }

    /// Begins a section of writes that [`undo`](Self::undo) can revert; earlier writes stay.
    pub(crate) fn save(&mut self) {
        self.saved.count += 1;
        self.saved.slots.clear();
        (self.saved.grown, self.saved.made_bytes) = (self.grown, self.made_bytes);
    }

    /// Reverts all writes since the last [`save`](Self::save), and drops all recorded events.
    pub(crate) fn undo(&mut self) {
        for (place, held, written, created) in self.saved.slots.drain(..) {
            let slot = &mut self.slots[place];
            (slot.held, slot.written, slot.created) = (held, written, created);
        }
        (self.grown, self.made_bytes) = (self.saved.grown, self.saved.made_bytes);
        self.events.clear();
    }

    /// Saves the state of a slot before its first write since [`save`](Self::save).
    fn keep_saved(&mut self, place: usize) {
        let slot = &mut self.slots[place];
        if slot.written_after < self.saved.count {
            slot.written_after = self.saved.count;
            self.saved.slots.push((place, slot.held.clone(), slot.written, slot.created));
        }
    }

    /// Returns, for each database, the net number of keys added by the writes on this view.
    pub(crate) fn grown(&self) -> [i64; Store::DATABASES as usize] {
        self.grown
    }

    /// Returns the bytes of written values that still exist.
    pub(crate) fn made_bytes(&self) -> usize {
        self.made_bytes
    }

    /// Returns true if the batch changes the store.
    pub(crate) fn writes(&self) -> bool {
        self.slots.iter().any(|slot| slot.written && (slot.held.is_some() || slot.stored))
    }

    /// Returns the batch for the store to write.
    pub(crate) fn into_batch(self) -> Batch {
        let mut batch = Batch::new();
        for slot in self.slots.into_iter().filter(|slot| slot.written) {
            batch.in_database(slot.database);
            let _ = match slot.held {
                Some(Held { value, expires_at_ms: Some(at), .. }) => batch.put_expiring(slot.key, value, at),
                Some(Held { value, .. }) => batch.put(slot.key, value),
                None if slot.stored => batch.delete(slot.key),
                // The key was created and deleted: its watches and observers are notified, and nothing is written.
                None if slot.created => batch.put(slot.key.clone(), Bytes::new()).delete(slot.key),
                None => continue,
            };
        }
        batch
    }
}
