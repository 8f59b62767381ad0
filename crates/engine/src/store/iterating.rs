//! Iteration over all entries or keys, as a stream or as a blocking iterator. About 1 MiB is read at a time.

use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use esker_device::block_on;
use futures_util::Stream;

use crate::base::error::Result;
use crate::base::to_bytes::ToBytes;
use crate::catalog::cache::Entry;
use crate::catalog::record_heads::KeyEntry;
use crate::read::scan::Cursor;
use crate::store::blocking::Blocking;
use crate::store::handle::Store;

/// Entries that are read at a time; fewer if they exceed `PIECE_BYTES` together.
const PIECE_ENTRIES: usize = 256;
const PIECE_BYTES: usize = 1 << 20;

/// An item of an iteration.
trait Item: Sized {
    fn key(&self) -> &Bytes;
}

impl Item for Entry {
    fn key(&self) -> &Bytes {
        &self.key
    }
}

impl Item for KeyEntry {
    fn key(&self) -> &Bytes {
        &self.key
    }
}

/// One page of an iteration.
struct Piece<T> {
    items: Vec<Result<T>>,
    next: Option<Cursor>,
}

type Reading<T> = Pin<Box<dyn Future<Output = Result<Piece<T>>> + Send>>;

/// Stream of the entries or keys of a store, in no order. Made by [`Store::stream`] and [`Store::stream_keys`].
///
/// A key that exists from beginning to end is returned at least once; a key that is written meanwhile may be returned
/// again. An unreadable record yields an error item, and the iteration continues. It ends after an error of the store
/// itself: the store was closed, or its device failed.
pub struct EntryStream<T = Entry> {
    store: Store,
    read: fn(Store, Cursor) -> Reading<T>,
    key: fn(&T) -> &Bytes,
    prefix: Bytes,
    /// Items already read, and the cursor of the next page.
    piece: std::vec::IntoIter<Result<T>>,
    next: Option<Cursor>,
    reading: Option<Reading<T>>,
}

/// No field is structurally pinned.
impl<T> Unpin for EntryStream<T> {}

impl<T> EntryStream<T> {
    /// Restricts the stream to keys with this prefix, and errors. The index has no order, so all keys are read
    /// nevertheless.
    pub fn prefix(mut self, prefix: impl ToBytes) -> EntryStream<T> {
        self.prefix = prefix.into_bytes();
        self
    }

    /// Returns the next item; `None` at the end.
    pub async fn next(&mut self) -> Option<Result<T>> {
        poll_fn(|context| Pin::new(&mut *self).poll_next(context)).await
    }

    /// Takes the next item of the current page that matches the prefix, or is an error.
    fn take(&mut self) -> Option<Result<T>> {
        let (key, prefix) = (self.key, &self.prefix);
        self.piece.find(|item| item.as_ref().map_or(true, |item| key(item).starts_with(prefix)))
    }
}

impl<T> Stream for EntryStream<T> {
    type Item = Result<T>;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<T>>> {
        let stream = self.get_mut();
        if let Some(item) = stream.take() {
            return Poll::Ready(Some(item));
        }
        let Some(cursor) = stream.next else { return Poll::Ready(None) };
        let reading = stream.reading.get_or_insert_with(|| (stream.read)(stream.store.clone(), cursor));
        let piece = ready!(reading.as_mut().poll(context));
        stream.reading = None;
        match piece {
            Ok(Piece { items, next }) => (stream.piece, stream.next) = (items.into_iter(), next),
            Err(error) => {
                stream.next = None;
                return Poll::Ready(Some(Err(error)));
            }
        }
        if let Some(item) = stream.take() {
            return Poll::Ready(Some(item));
        }
        // Yields to other tasks before the next page is searched.
        context.waker().wake_by_ref();
        Poll::Pending
    }
}

impl<T> fmt::Debug for EntryStream<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let EntryStream { prefix, next, .. } = self;
        f.debug_struct("EntryStream").field("prefix", prefix).field("next", next).finish_non_exhaustive()
    }
}

/// Blocking iterator over the entries or keys of a store. Made by [`Blocking::iter`] and [`Blocking::keys`]; same
/// guarantees as [`EntryStream`].
#[derive(Debug)]
pub struct Iter<T = Entry>(EntryStream<T>);

impl<T> Iter<T> {
    /// See [`EntryStream::prefix`].
    pub fn prefix(self, prefix: impl ToBytes) -> Iter<T> {
        Iter(self.0.prefix(prefix))
    }
}

impl<T> Iterator for Iter<T> {
    type Item = Result<T>;

    fn next(&mut self) -> Option<Result<T>> {
        block_on(self.0.next())
    }
}

impl Store {
    /// Returns all entries, in no order, as a [`Stream`] of the crate `futures-core`; [`EntryStream::next`] needs no
    /// other crate.
    pub fn stream(&self) -> EntryStream {
        self.iterate(|store, cursor| Box::pin(async move { read_entries(&store, cursor).await }))
    }

    /// As [`stream`](Self::stream), without reading the values. Damage in a value is not found.
    pub fn stream_keys(&self) -> EntryStream<KeyEntry> {
        self.iterate(|store, cursor| Box::pin(async move { read_keys(&store, cursor).await }))
    }

    fn iterate<T: Item>(&self, read: fn(Store, Cursor) -> Reading<T>) -> EntryStream<T> {
        EntryStream {
            store: self.clone(),
            read,
            key: T::key,
            prefix: Bytes::new(),
            piece: Vec::new().into_iter(),
            next: Some(Cursor::START),
            reading: None,
        }
    }
}

impl Blocking {
    /// Returns all entries, in no order. See [`Store::stream`].
    pub fn iter(&self) -> Iter {
        Iter(self.store().stream())
    }

    /// As [`iter`](Self::iter), without the values. See [`Store::stream_keys`].
    pub fn keys(&self) -> Iter<KeyEntry> {
        Iter(self.store().stream_keys())
    }
}

async fn read_entries(store: &Store, cursor: Cursor) -> Result<Piece<Entry>> {
    let mut limit = PIECE_ENTRIES;
    while limit > 1 && store.scan_bytes_hint(cursor, limit) > PIECE_BYTES {
        limit /= 2;
    }
    let page = store.scan(cursor, limit).await?;
    let entries = page.entries.into_iter().map(Ok);
    Ok(Piece { items: entries.chain(page.damaged.into_iter().map(Err)).collect(), next: page.next })
}

async fn read_keys(store: &Store, cursor: Cursor) -> Result<Piece<KeyEntry>> {
    let page = store.scan_keys(cursor, PIECE_ENTRIES, PIECE_BYTES).await?;
    let keys = page.keys.into_iter().map(Ok);
    Ok(Piece { items: keys.chain(page.damaged.into_iter().map(Err)).collect(), next: page.next })
}
