//! Reads: the public calls of `Store`.

use std::ops::{Bound, RangeBounds};
use std::sync::Arc;

use bytes::Bytes;
use esker_seeded_bugs::{Bug, planted};
use futures_util::future::join_all;

use crate::base::error::Result;
use crate::catalog::cache::{Cached, Entry};
use crate::catalog::feed::{KeyWatch, Observation, Observer};
use crate::catalog::record_heads::KeyEntry;
use crate::read::keys::KeyPage;
use crate::read::peek::{Peek, Usage, View};
use crate::read::probe::Probe;
use crate::read::scan::{Cursor, Page};
use crate::store::handle::Store;

impl Store {
    /// Returns the value of a key; `None` if the key is absent.
    ///
    /// # Errors
    /// `Corrupt` if its record is damaged, `Io` if the device fails, `Closed` after [`close`](Self::close).
    pub async fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Bytes>> {
        Ok(self.reader.get(self.database, key.as_ref()).await?.map(Cached::into_value))
    }

    /// Returns the value of a key with its version and expiry.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    pub async fn get_entry(&self, key: impl AsRef<[u8]>) -> Result<Option<Entry>> {
        Ok(self.reader.get(self.database, key.as_ref()).await?.map(Cached::into_entry))
    }

    /// Returns the metadata of a key. The value is not read, so damage in it is not found.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    pub async fn get_key(&self, key: impl AsRef<[u8]>) -> Result<Option<KeyEntry>> {
        self.reader.get_key(self.database, key.as_ref()).await
    }

    /// Returns the values of several keys, in the order of `keys`. Their device reads run concurrently.
    pub async fn get_many<K: AsRef<[u8]>>(&self, keys: &[K]) -> Vec<Result<Option<Bytes>>> {
        join_all(keys.iter().map(|key| self.get(key.as_ref()))).await
    }

    /// Returns true if the key exists. The value is not read, so damage in it is not found. Counts as a use of the key,
    /// as [`get`](Self::get) does.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    pub async fn contains(&self, key: impl AsRef<[u8]>) -> Result<bool> {
        self.reader.contains(self.database, key.as_ref()).await
    }

    /// Returns the part of a key's value that lies in `range`, empty if `range` is beyond the end of the value. `None`
    /// if the key is absent.
    ///
    /// The part is verified before it is returned. For that, a value that is not in memory is read in full, piece by
    /// piece and with little memory: one call for a large part costs less than many calls for small parts.
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

    /// Passes the value of a key to `see` if it is in memory, without a copy and without waiting. The memory is not
    /// reused while `see` runs, so `see` should be quick, and must not call the store.
    ///
    /// # Errors
    /// `Closed` after [`close`](Self::close).
    pub fn peek<T>(&self, key: impl AsRef<[u8]>, see: impl FnOnce(View<'_>) -> T) -> Result<Peek<T>> {
        self.reader.peek(self.database, key.as_ref(), see)
    }

    /// Passes the values of several keys to `see`, one after the other, and `None` for an absent key. Stops at the
    /// first key that needs more than memory, or that `see` rejects by returning false. Returns the number of keys that
    /// `see` accepted. `see` has the same restrictions as in [`peek`](Self::peek).
    ///
    /// # Errors
    /// `Closed` after [`close`](Self::close).
    pub fn peek_many<'k>(
        &self,
        keys: impl IntoIterator<Item = &'k [u8]>,
        see: impl FnMut(Option<View<'_>>) -> bool,
    ) -> Result<usize> {
        self.reader.peek_many(self.database, keys, see, |_| {})
    }

    /// As [`peek_many`](Self::peek_many). Also returns probes of the next keys, the first of which was not accepted, for
    /// [`get_probed`](Self::get_probed): of as many keys as were already probed.
    ///
    /// # Errors
    /// As [`peek_many`](Self::peek_many).
    #[doc(hidden)]
    pub fn peek_many_or_probe<'k>(
        &self,
        keys: impl IntoIterator<Item = &'k [u8]>,
        see: impl FnMut(Option<View<'_>>) -> bool,
    ) -> Result<(usize, Vec<Probe<'k>>)> {
        let mut left = Vec::new();
        let accepted = self.reader.peek_many(self.database, keys, see, |probe| left.push(probe))?;
        Ok((accepted, left))
    }

    /// Hashes a key and searches the index for it, for [`get_probed`](Self::get_probed).
    #[doc(hidden)]
    pub fn probe<'k>(&self, key: &'k [u8]) -> Probe<'k> {
        self.reader.probe(self.database, key)
    }

    /// As [`read_bytes_hint`](Self::read_bytes_hint), at the time of the probe.
    #[doc(hidden)]
    pub fn probed_bytes_hint(&self, probe: &Probe<'_>) -> usize {
        self.reader.probed_bytes_hint(probe)
    }

    /// As [`get_many`](Self::get_many), for keys that were probed in this store, in any database. The values are the
    /// current ones, however old the probes are. The index is searched again only for keys that were absent, or whose
    /// record was replaced or moved since.
    #[doc(hidden)]
    pub async fn get_probed(&self, probes: &[Probe<'_>]) -> Vec<Result<Option<Bytes>>> {
        let get = async |probe: &Probe<'_>| Ok(self.reader.get_probed(*probe).await?.map(Cached::into_value));
        join_all(probes.iter().map(get)).await
    }

    /// Returns one page of the iteration over all keys of the database, of about `limit` entries. A key that exists
    /// from the beginning of the iteration to its end is returned at least once.
    ///
    /// An unreadable record does not end the iteration: it is reported in [`Page::damaged`].
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
    ///     // Stored as `to_u64`, it lets another process continue the iteration.
    ///     cursor = page.next;
    /// }
    /// assert_eq!(entries[0].key, "key");
    /// # store.close().await
    /// # })?;
    /// # Ok::<(), esker::Error>(())
    /// ```
    ///
    /// # Errors
    /// `Closed` after a close, `Io` if the device failed as a whole.
    pub async fn scan(&self, cursor: Cursor, limit: usize) -> Result<Page> {
        self.reader.scan(self.database, cursor, limit).await
    }

    /// Returns a position of an iteration for a random number: evenly distributed if that is.
    #[doc(hidden)]
    pub fn random_cursor(&self, random: u64) -> Cursor {
        self.reader.random_cursor(self.database, random)
    }

    /// Returns an upper bound of the bytes of such a page, without any I/O: as
    /// [`read_bytes_hint`](Self::read_bytes_hint), for all entries that it would read now.
    pub fn scan_bytes_hint(&self, cursor: Cursor, limit: usize) -> usize {
        self.reader.scan_bytes_hint(self.database, cursor, limit)
    }

    /// As [`scan`](Self::scan), without reading the values. Returns about `limit` keys, or fewer if those exceed
    /// `bytes` together, but at least one.
    ///
    /// # Errors
    /// As [`scan`](Self::scan). Damage in a value is not found, because values are not read.
    pub async fn scan_keys(&self, cursor: Cursor, limit: usize, bytes: usize) -> Result<KeyPage> {
        self.reader.scan_keys(self.database, cursor, limit, bytes).await
    }

    /// Returns an upper bound of the bytes of the keys of such a page, without any I/O and ignoring `bytes`.
    pub fn scan_keys_bytes_hint(&self, cursor: Cursor, limit: usize) -> usize {
        self.reader.scan_keys_bytes_hint(self.database, cursor, limit)
    }

    /// Returns an upper bound of the memory that a read of this key takes, in bytes, without any I/O: from the record's
    /// size class and the decompression ratios seen in that class. It may be wrong for a key whose index slot belongs
    /// to another key, and is outdated as soon as the key is written.
    pub fn read_bytes_hint(&self, key: impl AsRef<[u8]>) -> usize {
        self.reader.bytes_hint(self.database, key.as_ref())
    }

    /// Returns the recent use of a key, without any I/O and without counting as a use; `None` if the index has no such
    /// key. A store that refuses puts when full does not track use: there every key counts as just used.
    pub fn usage(&self, key: impl AsRef<[u8]>) -> Option<Usage> {
        self.reader.usage(self.database, key.as_ref())
    }

    /// Watches a key from now on, without any I/O: the watch reports whether the key was written since. It is for
    /// clients that read a key twice to detect a change. Comparing versions detects a change of a key that exists; the
    /// watch also detects that a key that is absent at both reads was put and deleted in between.
    ///
    /// Start the watch before the first read of the key. Until it is dropped, a watch takes about 100 bytes, and every
    /// write checks for it.
    pub fn watch(&self, key: impl AsRef<[u8]>) -> KeyWatch {
        self.reader.watch(self.database, key.as_ref())
    }

    /// Notifies an observer of every change of every key from now on, until the returned observation is dropped. The
    /// notification comes when the change is visible, and before its writer is acknowledged. Changes are reported one
    /// at a time, in the order in which they became visible. An expired key is reported once, when it is removed from
    /// the index; if it is overwritten before that, only the put is reported.
    ///
    /// Start to observe before reading: every change that the read does not see is reported.
    ///
    /// While an observer exists, the store reads the keys of expired records to report them, 16 at a time. A key that
    /// cannot be read is not reported.
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
    ///         self.0.lock().expect("no code panics while holding the lock").push(change);
    ///     }
    ///
    ///     fn cleared(&self, _keyspace: Option<u8>) {
    ///         self.0.lock().expect("no code panics while holding the lock").push("cleared".to_owned());
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
    /// assert_eq!(*changes.0.lock().expect("no code panics while holding the lock"), ["Put key", "Deleted key"]);
    /// # store.close().await
    /// # })?;
    /// # Ok::<(), esker::Error>(())
    /// ```
    pub fn observe(&self, observer: Arc<dyn Observer>) -> Observation {
        Observation::new(self.catalog.feed.observe(observer))
    }
}
