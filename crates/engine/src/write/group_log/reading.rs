//! Reading records of the log, from memory or from the device.

use std::ops::Range;

use bytes::Bytes;
use esker_log::RecordView;

use super::contents::LogPlace;
use super::key::LogKey;
use super::lane::LogLane;

use crate::base::error::{Error, Result};

impl LogLane {
    /// Returns the entries of a group in a range of indexes, as far as it holds them.
    pub(super) async fn entries(&self, group: u8, range: Range<u64>) -> Result<Vec<Bytes>> {
        let places = self.state.lock().contents.entries(group, range);
        let mut entries = Vec::with_capacity(places.len());
        for (index, place) in places {
            entries.extend(self.fetch(LogKey::Entry { group, index }, place).await?);
        }
        Ok(entries)
    }

    /// Returns the value of a record. `None` if it is no longer current, wherever it was copied to or replaced meanwhile:
    /// its segment may have been freed.
    pub(super) async fn fetch(&self, key: LogKey, mut place: LogPlace) -> Result<Option<Bytes>> {
        loop {
            let damage = match self.read_at(key, place).await {
                Ok(value) => return Ok(Some(value)),
                Err(error) => error,
            };
            match self.state.lock().contents.place(key) {
                None => return Ok(None),
                Some(now) if now == place => return Err(damage),
                Some(now) => place = now,
            }
        }
    }

    async fn read_at(&self, key: LogKey, place: LogPlace) -> Result<Bytes> {
        let LogPlace { segment, slot, offset, bytes } = place;
        let identity = self.space.secret.identity(segment, offset);
        let damaged = |what: String| Error::Corrupt { key: None, segment, offset: offset.into(), what };
        let value_of = |record: RecordView<'_>| match LogKey::decode(record.key) == Some(key) {
            true => Ok(Bytes::copy_from_slice(record.value)),
            false => Err(damaged(format!("the log has another record there than {key:?}"))),
        };
        if let Some(buffered) = self.space.buffered.find(self.shape.tier, slot, segment) {
            let record = RecordView::in_memory(buffered.record(offset), &identity);
            return value_of(record.map_err(|damage| damaged(format!("a record of the log: {damage}")))?);
        }
        let (buffer, at) = self.space.tier(self.shape.tier).read(slot, offset, bytes.into()).await?;
        let record = RecordView::parse(&buffer[at..], &identity)
            .and_then(|record| record.verify_value(&self.space.secret).map(|()| record));
        value_of(record.map_err(|damage| damaged(format!("a record of the log: {damage}")))?)
    }
}
