//! From what was read at the pointers of a piece of the index to what is current: the second half of a scan, with values and
//! without.

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

/// What a scan reads of a record.
pub(super) trait Scanned: Sized + Send {
    fn key(&self) -> &[u8];

    fn version(&self) -> u64;

    fn expires_at_ms(&self) -> Option<u64>;

    /// What is current of a key, where another record of it was met.
    fn look_up(
        reader: &Reader,
        key: &[u8],
        hash: &KeyHash,
    ) -> impl Future<Output = Result<Option<Self>>> + Send;
}

/// What was read at a pointer whose key was not known, and where it was looked for.
pub(super) type Met<T> = (Place, Result<std::result::Result<T, Damaged>>);

/// What a piece of the index leads to.
pub(super) struct Sifted<T> {
    /// One of each key, in the order of keys.
    pub(super) current: Vec<T>,
    /// Records that cannot be read.
    pub(super) damaged: Vec<Error>,
    /// Places that say nothing yet. While there are any, the same piece of the index is to be looked at once more: either a
    /// segment was freed meanwhile, and the next look does not find the pointer; or it is damage.
    pub(super) again: Vec<Place>,
}

/// A look at a piece of the index.
pub(super) struct Look<'a> {
    pub(super) keyspace: Keyspace,
    /// The newest segment before the index was looked at, or else a segment could be taken for the one that a pointer leads to
    /// which was opened in that one's slot since: whatever lay there before has moved, and would be missed.
    pub(super) opened_through: u64,
    /// The places that earlier looks left over: of all of them, as what one look meets another may not.
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
    /// Sifts what was met, and what `displaced` leads to: records that were displaced without looking. Those are mostly dead
    /// versions of what was met, so only their beginnings are read, and no more than a row of them is held.
    ///
    /// # Errors
    /// Those that are of no record.
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
                Some(Ok(record)) => self.current(look.keyspace, place, record).await,
                Some(Err(error)) => Err(error),
                None => {
                    sifted.again.push(place);
                    continue;
                }
            };
            sifted.take(current)?;
        }
        self.sift_displaced(look, displaced, &mut sifted).await?;
        // A key may have been met twice while it moved.
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
                    Some(Ok(Beginning { entry, .. })) => {
                        self.current_of::<T>(look.keyspace, &entry.key).await
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

    /// The beginning of what is at a pointer.
    async fn begin_any(&self, pointer: Pointer) -> Met<Beginning> {
        let place = self.catalog.unchecked_place(pointer);
        (place, self.catalog.beginning(&place).await)
    }

    /// What was read at a place, if that says something.
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

    /// What is current of the key of a record that was met at a place, and may be shown.
    async fn current<T: Scanned>(&self, keyspace: Keyspace, place: Place, record: T) -> Result<Option<T>> {
        let hash = self.catalog.hash(keyspace, record.key());
        match self.catalog.index.is_current(&hash, place.pointer) {
            true => self.shown(&hash, record).await,
            false => self.current_of(keyspace, record.key()).await,
        }
    }

    /// What is current of a key, and may be shown.
    async fn current_of<T: Scanned>(&self, keyspace: Keyspace, key: &[u8]) -> Result<Option<T>> {
        let hash = self.catalog.hash(keyspace, key);
        let Some(record) = T::look_up(self, key, &hash).await? else { return Ok(None) };
        self.shown(&hash, record).await
    }

    async fn shown<T: Scanned>(&self, hash: &KeyHash, record: T) -> Result<Option<T>> {
        let (version, expires_at_ms) = (record.version(), record.expires_at_ms());
        let may_show = self.writer.may_show(record.key(), hash, version, expires_at_ms).await?;
        Ok(may_show.then_some(record))
    }
}
