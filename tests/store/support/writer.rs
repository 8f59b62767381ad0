//! Writes that are recorded in histories, before they are issued and when they complete.

use std::sync::Arc;

use esker::{Batch, Durability, ErrorKind, Store, WriteOptions};
use parking_lot::Mutex;

use crate::support::history::{Histories, Key};
use crate::support::value;

/// The only writer of its keys.
#[derive(Clone)]
pub(crate) struct Writer {
    pub(crate) store: Store,
    pub(crate) histories: Arc<Mutex<Histories>>,
}

impl Writer {
    /// Records the result of a write. A write refused because the store is full had no effect, and is no
    /// error; after any other error it may have happened or not.
    fn told<T>(&self, keys: &[Key], options: WriteOptions, how: esker::Result<T>) -> esker::Result<()> {
        let mut histories = self.histories.lock();
        let durable = options.durability == Some(Durability::Sync);
        match how {
            Ok(_) => keys.iter().for_each(|key| histories.acknowledge(key, durable)),
            Err(error) if error.kind() == ErrorKind::Full => {
                keys.iter().for_each(|key| histories.refuse(key))
            }
            Err(error) => return Err(error),
        }
        Ok(())
    }

    pub(crate) async fn put(&self, key: Key, bytes: u64, options: WriteOptions) -> esker::Result<()> {
        let stamp = {
            let mut histories = self.histories.lock();
            let stamp = histories.next_stamp();
            histories.issue(&key, Some(stamp), options.expires_at_ms);
            stamp
        };
        let how = self.store.put_with(key.clone(), value(&key, stamp, bytes as usize), options).await;
        self.told(&[key], options, how)
    }

    pub(crate) async fn delete(&self, key: Key, options: WriteOptions) -> esker::Result<()> {
        let options = WriteOptions { expires_at_ms: None, ..options };
        self.histories.lock().issue(&key, None, None);
        let how = self.store.delete_with(key.clone(), options).await;
        self.told(&[key], options, how)
    }

    /// Writes or deletes all keys in one batch.
    pub(crate) async fn batch(
        &self,
        keys: Vec<Key>,
        bytes: u64,
        deletes: bool,
        options: WriteOptions,
    ) -> esker::Result<()> {
        let options = WriteOptions { expires_at_ms: None, ..options };
        let mut batch = Batch::new();
        {
            let mut histories = self.histories.lock();
            let stamp = histories.next_stamp();
            for key in &keys {
                histories.issue(key, (!deletes).then_some(stamp), None);
                match deletes {
                    true => batch.delete(key.clone()),
                    false => batch.put(key.clone(), value(key, stamp, bytes as usize)),
                };
            }
        }
        let how = self.store.write_with(batch, options).await;
        self.told(&keys, options, how)
    }

    /// Flushes: makes all previously acknowledged writes durable.
    pub(crate) async fn flush(&self) -> esker::Result<()> {
        // Writes acknowledged during the flush are not covered by it.
        let acknowledged = self.histories.lock().acknowledged();
        self.store.flush().await?;
        self.histories.lock().make_durable(&acknowledged);
        Ok(())
    }
}
