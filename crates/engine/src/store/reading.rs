//! Reading, as users of the store see it.

use std::ops::{Bound, RangeBounds};
use std::sync::Arc;

use bytes::Bytes;
use esker_seeded_bugs::{Bug, planted};
use futures_util::future::join_all;

use crate::base::error::Result;
use crate::catalog::cache::{Cached, Entry};
use crate::catalog::observers::{Observation, Observer};
use crate::catalog::record_heads::KeyEntry;
use crate::catalog::watches::KeyWatch;
use crate::read::keys::KeyPage;
use crate::read::peek::{Peek, Usage, View};
use crate::read::scan::{Cursor, Page};
use crate::store::handle::Store;

impl Store {
    /// The value of a key; `None` if it is not there.
    ///
    /// # Errors
    /// `Corrupt` if its record is damaged, `Io` if the device fails, `Closed` after [`close`](Self::close).
    pub async fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Bytes>> {
        Ok(self.reader.get(self.database, key.as_ref()).await?.map(Cached::into_value))
    }

    /// The value of a key with its version and expiry.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    pub async fn get_entry(&self, key: impl AsRef<[u8]>) -> Result<Option<Entry>> {
        Ok(self.reader.get(self.database, key.as_ref()).await?.map(Cached::into_entry))
    }

    /// What is known of a key without its value, which is not read. Damage in the value is not found then.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    pub async fn get_key(&self, key: impl AsRef<[u8]>) -> Result<Option<KeyEntry>> {
        self.reader.get_key(self.database, key.as_ref()).await
    }

    /// The values of several keys, in their order; device reads are made together.
    pub async fn get_many<K: AsRef<[u8]>>(&self, keys: &[K]) -> Vec<Result<Option<Bytes>>> {
        join_all(keys.iter().map(|key| self.get(key.as_ref()))).await
    }

    /// Whether a key is there. The value is not read, so damage in it is not found. Counts as a use of the key, as
    /// [`get`](Self::get) does.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    pub async fn contains(&self, key: impl AsRef<[u8]>) -> Result<bool> {
        self.reader.contains(self.database, key.as_ref()).await
    }

    /// A part of a key's value, cut to what there is of it: beyond the end of the value it is empty. `None` if the key is not
    /// there.
    ///
    /// What is returned was verified. The whole value is read for that if it is not in memory, with little memory, so
    /// one call for a large part costs less than many for small ones.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    pub async fn get_range(
        &self,
        key: impl AsRef<[u8]>,
        range: impl RangeBounds<u64>,
    ) -> Result<Option<Bytes>> {
        let start = match range.start_bound() {
            Bound::Included(start) => *start,
            Bound::Excluded(before) => before.saturating_add(u64::from(!planted(Bug::RangeOffByOne))),
            Bound::Unbounded => 0,
        };
        let end = match range.end_bound() {
            Bound::Included(last) => last.saturating_add(1),
            Bound::Excluded(end) => *end,
            Bound::Unbounded => u64::MAX,
        };
        self.reader.get_range(self.database, key.as_ref(), start, end).await
    }

    /// Shows the value of a key to `see` if it is in memory, without a copy and without waiting. Memory is not used again
    /// while `see` looks at it, so it should be quick, and must not call the store.
    ///
    /// # Errors
    /// `Closed` after [`close`](Self::close).
    pub fn peek<T>(&self, key: impl AsRef<[u8]>, see: impl FnOnce(View<'_>) -> T) -> Result<Peek<T>> {
        self.reader.peek(self.database, key.as_ref(), see)
    }

    /// Shows the values of several keys to `see`, one after the other, `None` for a key that is not there, until it takes
    /// more than a look at memory or `see` does not want one and says `false`. Returns how many it took. What holds for
    /// the `see` of [`peek`](Self::peek) holds here.
    ///
    /// # Errors
    /// `Closed` after [`close`](Self::close).
    pub fn peek_many<'k>(
        &self,
        keys: impl IntoIterator<Item = &'k [u8]>,
        see: impl FnMut(Option<View<'_>>) -> bool,
    ) -> Result<usize> {
        self.reader.peek_many(self.database, keys, see)
    }

    /// A piece of the iteration over all keys of the database, of about `limit` entries. A key that is there from the beginning of the
    /// iteration to its end is returned at least once.
    ///
    /// A record that cannot be read does not end the iteration: it is told of in [`Page::damaged`].
    ///
    /// ```
    /// # extern crate esker_engine as esker;
    /// use esker::{Cursor, Options, Store};
    ///
    /// # esker::device::block_on(async {
    /// # let place = tempfile::tempdir().expect("a directory");
    /// # let directory = place.path().join("esker-data");
    /// let store = Store::open(Options::directory(&directory)).await?;
    /// store.put("key", "value").await?;
    ///
    /// let (mut cursor, mut entries) = (Some(Cursor::START), Vec::new());
    /// while let Some(at) = cursor {
    ///     let page = store.scan(at, 100).await?;
    ///     entries.extend(page.entries);
    ///     // As `to_u64`, it can be kept, and the iteration goes on from it in another process.
    ///     cursor = page.next;
    /// }
    /// assert_eq!(entries[0].key, "key");
    /// # store.close().await
    /// # })?;
    /// # Ok::<(), esker::Error>(())
    /// ```
    ///
    /// # Errors
    /// `Closed` after a close, `Io` if the device is gone.
    pub async fn scan(&self, cursor: Cursor, limit: usize) -> Result<Page> {
        self.reader.scan(self.database, cursor, limit).await
    }

    /// An upper bound of the bytes that such a piece takes, without any I/O: as
    /// [`read_bytes_hint`](Self::read_bytes_hint), of all entries that it would read now.
    pub fn scan_bytes_hint(&self, cursor: Cursor, limit: usize) -> usize {
        self.reader.scan_bytes_hint(self.database, cursor, limit)
    }

    /// As [`scan`](Self::scan), without the values, which are not read: of about `limit` keys, and of fewer if those have
    /// more than `bytes` together, unless it is a single one.
    ///
    /// # Errors
    /// As [`scan`](Self::scan). Damage in a value is not met, since it is not read.
    pub async fn scan_keys(&self, cursor: Cursor, limit: usize, bytes: usize) -> Result<KeyPage> {
        self.reader.scan_keys(self.database, cursor, limit, bytes).await
    }

    /// An upper bound of the bytes of the keys of such a piece, without any I/O, as if `bytes` were no limit.
    pub fn scan_keys_bytes_hint(&self, cursor: Cursor, limit: usize) -> usize {
        self.reader.scan_keys_bytes_hint(self.database, cursor, limit)
    }

    /// An upper bound of the bytes that a read of this key takes, without any I/O: the record's size class. It can be off
    /// for a key whose slot another key has, and is outdated as soon as the key is written.
    pub fn read_bytes_hint(&self, key: impl AsRef<[u8]>) -> usize {
        self.reader.bytes_hint(self.database, key.as_ref())
    }

    /// How a key was used of late, without any I/O and without counting as a use; `None` if it is not there, as far as the
    /// index tells. A store that refuses when it is full keeps no account: there every key counts as just used.
    pub fn usage(&self, key: impl AsRef<[u8]>) -> Option<Usage> {
        self.reader.usage(self.database, key.as_ref())
    }

    /// Watches a key from now on, without any I/O: whether a value was put for it since. For whoever looks at a key twice and
    /// has to know whether it changed: a version tells of a key that is there, this of one that is absent both times.
    ///
    /// Watch first and look at the key then. It takes about 100 bytes, and has every put look for it, until it is dropped.
    pub fn watch(&self, key: impl AsRef<[u8]>) -> KeyWatch {
        self.reader.watch(self.database, key.as_ref())
    }

    /// Tells an observer of every change of every key from now on, until what is returned is dropped. It is told when the
    /// change is visible, before whoever made it is answered; of one change at a time, in the order in which they became visible;
    /// and of an expired key once, when it is taken out. A key that expired and was written over before that is told as put.
    ///
    /// Observe first and read then: every change that the read does not see is told.
    ///
    /// While somebody observes, the keys of what expires are read, 16 at a time. A key that cannot be read is not told of.
    ///
    /// ```
    /// # extern crate esker_engine as esker;
    /// use std::sync::{Arc, Mutex};
    ///
    /// use esker::{Change, Observer, Options, Store};
    ///
    /// #[derive(Default)]
    /// struct Changes(Mutex<Vec<String>>);
    ///
    /// impl Observer for Changes {
    ///     fn changed(&self, change: &Change<'_>) {
    ///         let change = format!("{:?} {}", change.cause, change.key.escape_ascii());
    ///         self.0.lock().expect("nobody panics").push(change);
    ///     }
    ///
    ///     fn cleared(&self, _keyspace: Option<u8>) {
    ///         self.0.lock().expect("nobody panics").push("cleared".to_owned());
    ///     }
    /// }
    ///
    /// # esker::device::block_on(async {
    /// # let place = tempfile::tempdir().expect("a directory");
    /// # let directory = place.path().join("esker-data");
    /// let store = Store::open(Options::directory(&directory)).await?;
    /// let changes = Arc::new(Changes::default());
    /// let observation = store.observe(changes.clone());
    /// store.put("key", "value").await?;
    /// store.delete("key").await?;
    /// drop(observation);
    /// store.put("key", "nobody is told").await?;
    /// assert_eq!(*changes.0.lock().expect("nobody panics"), ["Put key", "Deleted key"]);
    /// # store.close().await
    /// # })?;
    /// # Ok::<(), esker::Error>(())
    /// ```
    pub fn observe(&self, observer: Arc<dyn Observer>) -> Observation {
        Observation::new(self.catalog.observers.observe(observer))
    }
}
