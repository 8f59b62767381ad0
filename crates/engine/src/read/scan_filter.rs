//! Second phase of a scan, with or without values: filters the records read for one page of the index down to the
//! current version of each key.

use std::collections::BTreeSet;
use std::future::Future;

use bytes::Bytes;
use esker_index::{KeyHash, Keyspace, Pointer};
use futures_util::future::join_all;

use crate::base::error::{Error, Result};
use crate::catalog::place::Place;
use crate::catalog::record_heads::Beginning;
use crate::catalog::records::Damaged;
use crate::catalog::verify::ROW;
use crate::read::Reader;

/// The part of a record that a scan reads.
pub(super) trait Scanned: Sized + Send {
    fn key(&self) -> &[u8];

    fn version(&self) -> u64;

    fn expires_at_ms(&self) -> Option<u64>;

    /// Looks up the current version of a key of which another record was found.
    fn look_up(
        reader: &Reader,
        key: &[u8],
        hash: &KeyHash,
    ) -> impl Future<Output = Result<Option<Self>>> + Send;
}

/// The result of reading a pointer whose key was not known, with the place that was read.
pub(super) type Met<T> = (Place, Result<std::result::Result<T, Damaged>>);

/// The current records of one index page.
pub(super) struct Sifted<T> {
    /// One record per key, in the order of keys.
    pub(super) current: Vec<T>,
    /// Unreadable records.
    pub(super) damaged: Vec<Error>,
    /// Places that are undecided. While there are any, the same index page is read again: if a segment was freed
    /// meanwhile, the next read does not find the pointer; otherwise it is damage.
    pub(super) again: Vec<Place>,
}

/// One read of an index page.
pub(super) struct Look<'a> {
    pub(super) keyspace: Keyspace,
    /// True for the direct view of a group, which has all records, expired or not.
    pub(super) is_direct: bool,
    /// The newest segment before the index was read. A record in a later segment is not accepted, because that segment
    /// may have been opened since in the slot of the segment that the pointer leads to, whose records have moved and
    /// would be missed.
    pub(super) opened_through: u64,
    /// Undecided places of all earlier reads, because a later read may not find all of them.
    pub(super) suspects: &'a [Place],
}

impl<T: Scanned> Sifted<T> {
    fn take(&mut self, sifted: Result<Option<T>>) -> Result<()> {
        match sifted {
            Ok(record) => self.current.extend(record),
            Err(error) if error.is_of_reading() => self.damaged.push(error),
            Err(error) => return Err(error),
        }
        Ok(())
    }
}

impl Reader {
    /// Filters the records in `met`, and the records displaced by unverified overwrites, to which `displaced` leads.
    /// Most of the latter are dead versions of keys in `met`, so only their heads are read, and at most one row of them
    /// is held.
    ///
    /// # Errors
    /// Errors that do not concern a single record.
    pub(super) async fn sift<T: Scanned>(
        &self,
        look: &Look<'_>,
        met: Vec<Met<T>>,
        displaced: &[Pointer],
    ) -> Result<Sifted<T>> {
        let mut sifted =
            Sifted { current: Vec::with_capacity(met.len()), damaged: Vec::new(), again: Vec::new() };
        for (place, record) in met {
            let current = match self.settle(look, &place, record).await {
                Some(Ok(record)) => self.current(look, place, record).await,
                Some(Err(error)) => Err(error),
                None => {
                    sifted.again.push(place);
                    continue;
                }
            };
            sifted.take(current)?;
        }
        self.sift_displaced(look, displaced, &mut sifted).await?;
        // A key may have been read twice while it moved.
        sifted.current.sort_unstable_by(|a, b| (a.key(), b.version()).cmp(&(b.key(), a.version())));
        sifted.current.dedup_by(|later, first| later.key() == first.key());
        Ok(sifted)
    }

    async fn sift_displaced<T: Scanned>(
        &self,
        look: &Look<'_>,
        displaced: &[Pointer],
        sifted: &mut Sifted<T>,
    ) -> Result<()> {
        if displaced.is_empty() {
            return Ok(());
        }
        let mut known: BTreeSet<Bytes> =
            sifted.current.iter().map(|record| Bytes::copy_from_slice(record.key())).collect();
        for row in displaced.chunks(ROW) {
            for (place, read) in join_all(row.iter().map(|pointer| self.begin_any(*pointer))).await {
                let current = match self.settle(look, &place, read).await {
                    Some(Ok(beginning)) if !known.insert(beginning.entry.key.clone()) => Ok(None),
                    Some(Ok(Beginning { entry, .. })) => self.current_of::<T>(look, &entry.key).await,
                    // The overwrites of the record are verified now: the index leads to it no longer, unless it is current.
                    Some(Err(_)) if self.catalog.verify_unreadable(look.keyspace, &place).await => {
                        sifted.again.push(place);
                        continue;
                    }
                    Some(Err(error)) => Err(error),
                    None => {
                        sifted.again.push(place);
                        continue;
                    }
                };
                sifted.take(current)?;
            }
        }
        Ok(())
    }

    /// Reads the head of the record at a pointer.
    async fn begin_any(&self, pointer: Pointer) -> Met<Beginning> {
        let place = self.catalog.unchecked_place(pointer);
        (place, self.catalog.beginning(&place).await)
    }

    /// Judges a read at a place; `None` if it is undecided.
    async fn settle<R>(
        &self,
        look: &Look<'_>,
        place: &Place,
        read: Result<std::result::Result<R, Damaged>>,
    ) -> Option<Result<R>> {
        match read {
            Ok(Ok(_)) if place.segment > look.opened_through => None,
            Ok(Err(_)) if !look.suspects.contains(place) => None,
            Ok(Ok(record)) => Some(Ok(record)),
            Ok(Err(damaged)) => {
                let key = self.catalog.key_of(place, &damaged).await;
                Some(Err(damaged.into_error(key.as_deref())))
            }
            Err(error) => Some(Err(error)),
        }
    }

    /// Returns the current version of the key of a record found at a place, if it may be shown.
    async fn current<T: Scanned>(&self, look: &Look<'_>, place: Place, record: T) -> Result<Option<T>> {
        let hash = self.catalog.hash(look.keyspace, record.key());
        match self.catalog.index.is_current(&hash, place.pointer) {
            true => self.shown(look, &hash, record).await,
            false => self.current_of(look, record.key()).await,
        }
    }

    /// Returns the current version of a key, if it may be shown.
    async fn current_of<T: Scanned>(&self, look: &Look<'_>, key: &[u8]) -> Result<Option<T>> {
        let hash = self.catalog.hash(look.keyspace, key);
        let Some(record) = T::look_up(self, key, &hash).await? else { return Ok(None) };
        self.shown(look, &hash, record).await
    }

    async fn shown<T: Scanned>(&self, look: &Look<'_>, hash: &KeyHash, record: T) -> Result<Option<T>> {
        if look.is_direct {
            return Ok(Some(record));
        }
        let (version, expires_at_ms) = (record.version(), record.expires_at_ms());
        match self.writer.may_show(record.key(), hash, version, expires_at_ms).await {
            // It has expired by the clock, and this node cannot delete it. A scan promises nothing about such a key.
            Err(Error::Cluster(_)) => Ok(None),
            may_show => Ok(may_show?.then_some(record)),
        }
    }
}
