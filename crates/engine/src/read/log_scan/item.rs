//! The items of a scan in log order: entries, or keys without their values.

use bytes::Bytes;
use esker_log::{Damage, Location, RecordView, WalkedRecord};

use crate::base::error::Result;
use crate::catalog::Catalog;
use crate::catalog::cache::{Cached, Entry};
use crate::catalog::place::Place;
use crate::catalog::record_heads::KeyEntry;
use crate::catalog::records::Damaged;

/// An item of a scan.
pub(crate) trait LogItem: Sized + Send + 'static {
    /// True if values are read.
    const WITH_VALUES: bool;

    fn key(&self) -> &Bytes;

    fn version(&self) -> u64;

    fn expires_at_ms(&self) -> Option<u64>;

    /// Returns the item of a record that was walked. `bytes`: its length on the medium, padding included.
    ///
    /// # Errors
    /// The damage of the value.
    fn of_walked(
        catalog: &Catalog,
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
        record: &WalkedRecord<'_>,
        location: Location,
        bytes: u32,
    ) -> std::result::Result<Entry, Damage> {
        let WalkedRecord::Whole(record) = record else { return Err(Damage::Length) };
        record.verify_value(&catalog.space.secret)?;
        let key_and_value = match record.compressed {
            Some(_) => catalog.decompressed(record, location)?,
            None => Bytes::copy_from_slice(record.key_and_value),
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
        record: &WalkedRecord<'_>,
        _: Location,
        _: u32,
    ) -> std::result::Result<KeyEntry, Damage> {
        let (key, value_bytes, version, expires_at_ms) = match record {
            WalkedRecord::Head(head) => (head.key, head.raw_bytes(), head.sequence, head.expires_at_ms),
            WalkedRecord::Whole(record) => whole(record),
        };
        Ok(KeyEntry { key: Bytes::copy_from_slice(key), value_bytes, version, expires_at_ms })
    }

    async fn read_at(catalog: &Catalog, place: &Place) -> Result<std::result::Result<KeyEntry, Damaged>> {
        Ok(catalog.beginning(place).await?.map(|beginning| beginning.entry))
    }
}

fn whole<'a>(record: &RecordView<'a>) -> (&'a [u8], u64, u64, Option<u64>) {
    (record.key, record.raw_bytes(), record.sequence, record.expires_at_ms)
}
