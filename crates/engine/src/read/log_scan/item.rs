//! The items of a scan in log order: entries, or keys without their values.

use bytes::{Bytes, BytesMut};
use esker_log::{Damage, Location, RecordView, WalkedRecord};

use crate::base::error::Result;
use crate::catalog::Catalog;
use crate::catalog::cache::{Cached, Entry};
use crate::catalog::place::Place;
use crate::catalog::record_heads::KeyEntry;
use crate::catalog::records::Damaged;

/// Length in bytes of an allocation that the keys and values of several items share. An item that is kept keeps the allocation.
const SHARED_BYTES: usize = 1 << 10;

/// Copies keys and values of items. Short ones share allocations, because an allocation costs as much as the rest of a short item.
#[derive(Default)]
pub(crate) struct Copies(BytesMut);

impl Copies {
    /// Returns a copy of `bytes`.
    pub(super) fn copy(&mut self, bytes: &[u8]) -> Bytes {
        if bytes.len() > SHARED_BYTES / 4 {
            return Bytes::copy_from_slice(bytes);
        }
        if self.0.capacity() < bytes.len() {
            self.0 = BytesMut::with_capacity(SHARED_BYTES);
        }
        self.0.extend_from_slice(bytes);
        self.0.split().freeze()
    }
}

/// An item of a scan.
pub(crate) trait LogItem: Sized + Send + 'static {
    /// True if values are read.
    const WITH_VALUES: bool;

    fn key(&self) -> &Bytes;

    fn version(&self) -> u64;

    fn expires_at_ms(&self) -> Option<u64>;

    /// Returns the item of a record that was walked, copied by `copies`. `bytes`: its length on the medium, padding included.
    ///
    /// # Errors
    /// The damage of the value.
    fn of_walked(
        catalog: &Catalog,
        copies: &mut Copies,
        record: &WalkedRecord<'_>,
        location: Location,
        bytes: u32,
    ) -> std::result::Result<Self, Damage>;

    /// Reads the item at a place.
    fn read_at(
        catalog: &Catalog,
        place: &Place,
    ) -> impl Future<Output = Result<std::result::Result<Self, Damaged>>> + Send;
}

impl LogItem for Entry {
    const WITH_VALUES: bool = true;

    fn key(&self) -> &Bytes {
        &self.key
    }

    fn version(&self) -> u64 {
        self.version
    }

    fn expires_at_ms(&self) -> Option<u64> {
        self.expires_at_ms
    }

    fn of_walked(
        catalog: &Catalog,
        copies: &mut Copies,
        record: &WalkedRecord<'_>,
        location: Location,
        bytes: u32,
    ) -> std::result::Result<Entry, Damage> {
        let WalkedRecord::Whole(record) = record else { return Err(Damage::Length) };
        record.verify_value(&catalog.space.secret)?;
        let key_and_value = match record.compressed {
            Some(_) => catalog.decompressed(record, location)?,
            None => copies.copy(record.key_and_value),
        };
        Ok(Cached::new(record, key_and_value, bytes).into_entry())
    }

    async fn read_at(catalog: &Catalog, place: &Place) -> Result<std::result::Result<Entry, Damaged>> {
        Ok(catalog.read_record(place).await?.map(Cached::into_entry))
    }
}

impl LogItem for KeyEntry {
    const WITH_VALUES: bool = false;

    fn key(&self) -> &Bytes {
        &self.key
    }

    fn version(&self) -> u64 {
        self.version
    }

    fn expires_at_ms(&self) -> Option<u64> {
        self.expires_at_ms
    }

    fn of_walked(
        _: &Catalog,
        copies: &mut Copies,
        record: &WalkedRecord<'_>,
        _: Location,
        _: u32,
    ) -> std::result::Result<KeyEntry, Damage> {
        let (key, value_bytes, version, expires_at_ms) = match record {
            WalkedRecord::Head(head) => (head.key, head.raw_bytes(), head.sequence, head.expires_at_ms),
            WalkedRecord::Whole(record) => whole(record),
        };
        Ok(KeyEntry { key: copies.copy(key), value_bytes, version, expires_at_ms })
    }

    async fn read_at(catalog: &Catalog, place: &Place) -> Result<std::result::Result<KeyEntry, Damaged>> {
        Ok(catalog.beginning(place).await?.map(|beginning| beginning.entry))
    }
}

fn whole<'a>(record: &RecordView<'a>) -> (&'a [u8], u64, u64, Option<u64>) {
    (record.key, record.raw_bytes(), record.sequence, record.expires_at_ms)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_copies_share_allocations_and_keep_their_content() {
        let mut copies = Copies::default();
        let text: Vec<u8> = (0..=255).collect();
        let short: Vec<Bytes> = (0..100).map(|number| copies.copy(&text[number..number + 81])).collect();
        let long = copies.copy(&[text.clone(), text.clone()].concat());
        for (number, copy) in short.iter().enumerate() {
            assert_eq!(copy[..], text[number..number + 81]);
        }
        assert_eq!(long[..], [text.clone(), text].concat());
        let follows = |pair: &&[Bytes]| pair[0].as_ptr().addr() + 81 == pair[1].as_ptr().addr();
        let shared = short.windows(2).filter(follows).count();
        // Twelve in an allocation.
        assert_eq!(shared, 99 - 100 / (SHARED_BYTES / 81));
        drop(short);
        assert_eq!(long.len(), 512);
    }
}
