//! From what was read at the pointers of a piece of the index to what is current: the second half of a scan, with values and
//! without.

use std::future::Future;

use esker_index::{KeyHash, Keyspace};

use crate::base::error::{Error, Result};
use crate::catalog::place::Place;
use crate::catalog::records::Damaged;
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

impl Reader {
    /// Sifts what was met in a keyspace. `opened_through`: the newest segment before the index was looked at, or else a segment could be taken
    /// for the one that a pointer leads to which was opened in that one's slot since: whatever lay there before has moved, and
    /// would be missed. `suspects`: the places that earlier looks left over: of all of them, as what one
    /// look meets another may not.
    ///
    /// # Errors
    /// Those that are of no record.
    pub(super) async fn sift<T: Scanned>(
        &self,
        keyspace: Keyspace,
        met: Vec<Met<T>>,
        opened_through: u64,
        suspects: &[Place],
    ) -> Result<Sifted<T>> {
        let mut current = Vec::with_capacity(met.len());
        let (mut damaged, mut again) = (Vec::new(), Vec::new());
        for (place, record) in met {
            let sifted = match record {
                Ok(Ok(_)) if place.segment > opened_through => {
                    again.push(place);
                    continue;
                }
                Ok(Err(_)) if !suspects.contains(&place) => {
                    again.push(place);
                    continue;
                }
                Ok(Ok(record)) => self.current(keyspace, place, record).await,
                Ok(Err(damaged)) => {
                    let key = self.catalog.key_of(&place, &damaged).await;
                    Err(damaged.into_error(key.as_deref()))
                }
                Err(error) => Err(error),
            };
            match sifted {
                Ok(record) => current.extend(record),
                Err(error) if error.is_of_reading() => damaged.push(error),
                Err(error) => return Err(error),
            }
        }
        // A key may have been met at its place and behind an unverified overwrite.
        current.sort_unstable_by(|a, b| (a.key(), b.version()).cmp(&(b.key(), a.version())));
        current.dedup_by(|later, first| later.key() == first.key());
        Ok(Sifted { current, damaged, again })
    }

    /// What is current of the key of a record that was met at a place, and may be shown. Pointers of records that were displaced
    /// without looking are among those of the index: the key there may be hidden.
    async fn current<T: Scanned>(&self, keyspace: Keyspace, place: Place, record: T) -> Result<Option<T>> {
        let hash = self.catalog.hash(keyspace, record.key());
        let record = match self.catalog.index.is_current(&hash, place.pointer) {
            true => Some(record),
            false => T::look_up(self, record.key(), &hash).await?,
        };
        let Some(record) = record else { return Ok(None) };
        let may_show =
            self.writer.may_show(record.key(), &hash, record.version(), record.expires_at_ms()).await;
        Ok(may_show.then_some(record))
    }
}
