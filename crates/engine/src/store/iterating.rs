//! Iteration over all entries or keys, as a stream or as a blocking iterator. About 1 MiB is returned at a time.

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
use crate::read::has_prefix;
use crate::read::log_scan::{LogItem, LogPage, LogScan};
use crate::read::scan::Cursor;
use crate::store::blocking::Blocking;
use crate::store::handle::Store;

/// Entries that are read at a time; fewer if they exceed `PIECE_BYTES` together.
const PIECE_ENTRIES: usize = 256;
const PIECE_BYTES: usize = 1 << 20;

/// Order in which an iteration reads.
enum Order<T> {
    /// To be decided by the first read.
    Undecided,
    /// In the order of the index, from a cursor on.
    Index(Cursor),
    /// In the order of the log.
    Log(Box<LogScan<T>>),
    Ended,
}

/// Items that were read at a time, and the order in which the next are read.
struct Piece<T> {
    items: Vec<Result<T>>,
    next: Order<T>,
    began_again: bool,
}

type Reading<T> = Pin<Box<dyn Future<Output = Result<Piece<T>>> + Send>>;

/// Reads one page in the order of the index.
type ReadPage<T> = fn(Store, Cursor) -> Pin<Box<dyn Future<Output = Result<IndexPage<T>>> + Send>>;

/// Items of a page, and the cursor of the next.
type IndexPage<T> = (Vec<Result<T>>, Option<Cursor>);

/// Stream of the entries or keys of a store, in no order. Made by [`Store::stream`] and [`Store::stream_keys`].
///
/// * A key that exists from beginning to end is returned, with a value that was current at some moment in between. A key
///   that never existed in between is not returned.
/// * A key that is written meanwhile may be returned again, with another version. No version of a key is returned twice,
///   unless [`began_again`](Self::began_again) returns true.
/// * If two databases are swapped meanwhile, keys of both may be missing.
/// * The order is that of the index, or that of the log if reading all of it is expected to take less time.
/// * An unreadable record yields an error item, and the iteration continues. It ends after an error of the store itself:
///   the store was closed, or its device failed.
pub struct EntryStream<T = Entry> {
    store: Store,
    read: fn(Store, Order<T>, Bytes) -> Reading<T>,
    key: fn(&T) -> &Bytes,
    prefix: Bytes,
    /// Items already read.
    piece: std::vec::IntoIter<Result<T>>,
    order: Order<T>,
    began_again: bool,
    reading: Option<Reading<T>>,
}

/// No field is structurally pinned.
impl<T> Unpin for EntryStream<T> {}

impl<T> EntryStream<T> {
    /// Restricts the stream to keys with this prefix, and errors. Neither index nor log has an order of keys, so all keys
    /// are read nevertheless.
    pub fn prefix(mut self, prefix: impl ToBytes) -> EntryStream<T> {
        self.prefix = prefix.into_bytes();
        self
    }

    /// Returns true if the iteration began again from the start, so that keys may be returned twice. It does if more keys
    /// were written during an iteration in log order than fit in its memory: a sixteenth of the memory for index and cache,
    /// at most 64 MiB, at 40 bytes a key.
    pub fn began_again(&self) -> bool {
        self.began_again
    }

    /// Returns the next item; `None` at the end.
    pub async fn next(&mut self) -> Option<Result<T>> {
        poll_fn(|context| Pin::new(&mut *self).poll_next(context)).await
    }

    /// Takes the next item of the current page that matches the prefix, or is an error.
    fn take(&mut self) -> Option<Result<T>> {
        let (key, prefix) = (self.key, &self.prefix);
        self.piece.find(|item| item.as_ref().map_or(true, |item| has_prefix(key(item), prefix)))
    }
}

impl<T> Stream for EntryStream<T> {
    type Item = Result<T>;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<T>>> {
        let stream = self.get_mut();
        if let Some(item) = stream.take() {
            return Poll::Ready(Some(item));
        }
        let reading = match &mut stream.reading {
            Some(reading) => reading,
            None if matches!(stream.order, Order::Ended) => return Poll::Ready(None),
            none => {
                // Until the read is complete, and for good if it fails, there is no next one.
                let order = std::mem::replace(&mut stream.order, Order::Ended);
                none.insert((stream.read)(stream.store.clone(), order, stream.prefix.clone()))
            }
        };
        let piece = ready!(reading.as_mut().poll(context));
        stream.reading = None;
        match piece {
            Ok(Piece { items, next, began_again }) => {
                (stream.piece, stream.order) = (items.into_iter(), next);
                stream.began_again |= began_again;
            }
            Err(error) => return Poll::Ready(Some(Err(error))),
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
        let order = match &self.order {
            Order::Undecided => "undecided",
            Order::Index(_) => "index",
            Order::Log(_) => "log",
            Order::Ended => "ended",
        };
        let EntryStream { prefix, .. } = self;
        f.debug_struct("EntryStream").field("prefix", prefix).field("order", &order).finish_non_exhaustive()
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
        self.iterate(|store, order, prefix| Box::pin(read_piece(store, order, prefix, read_entries)))
    }

    /// As [`stream`](Self::stream), without reading the values. Damage in a value is not found.
    pub fn stream_keys(&self) -> EntryStream<KeyEntry> {
        self.iterate(|store, order, prefix| Box::pin(read_piece(store, order, prefix, read_keys)))
    }

    /// Returns true if [`stream_keys`](Self::stream_keys) would now read in the order of the log, because that is expected
    /// to take less time than one random read for each key that is not in memory.
    pub fn log_order_pays(&self) -> bool {
        self.reader.log_order_pays(self.database, false)
    }

    fn iterate<T: LogItem>(&self, read: fn(Store, Order<T>, Bytes) -> Reading<T>) -> EntryStream<T> {
        EntryStream {
            store: self.clone(),
            read,
            key: T::key,
            prefix: Bytes::new(),
            piece: Vec::new().into_iter(),
            order: Order::Undecided,
            began_again: false,
            reading: None,
        }
    }

    #[doc(hidden)]
    pub fn stream_in_log_order(&self) -> EntryStream {
        EntryStream { order: Order::Log(Box::new(self.log_scan(Bytes::new()))), ..self.stream() }
    }

    #[doc(hidden)]
    pub fn stream_keys_in_log_order(&self) -> EntryStream<KeyEntry> {
        EntryStream { order: Order::Log(Box::new(self.log_scan(Bytes::new()))), ..self.stream_keys() }
    }

    fn log_scan<T: LogItem>(&self, prefix: Bytes) -> LogScan<T> {
        self.reader.log_scan(self.database, prefix)
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

/// Reads the next items in an order.
async fn read_piece<T: LogItem>(
    store: Store,
    order: Order<T>,
    prefix: Bytes,
    read: ReadPage<T>,
) -> Result<Piece<T>> {
    let mut scan = match order {
        Order::Undecided if store.reader.log_order_pays(store.database, T::WITH_VALUES) => {
            Box::new(store.log_scan(prefix))
        }
        Order::Log(scan) => scan,
        Order::Index(cursor) => return read_index(store, cursor, read).await,
        Order::Undecided => return read_index(store, Cursor::START, read).await,
        Order::Ended => return Ok(Piece { items: Vec::new(), next: Order::Ended, began_again: false }),
    };
    let page = scan.page().await?;
    let began_again = matches!(page, LogPage::Overtaken);
    let (items, next) = match page {
        LogPage::Items(items) => (items, Order::Log(scan)),
        LogPage::Overtaken => (Vec::new(), Order::Index(Cursor::START)),
        LogPage::End => (Vec::new(), Order::Ended),
    };
    Ok(Piece { items, next, began_again })
}

async fn read_index<T>(store: Store, cursor: Cursor, read: ReadPage<T>) -> Result<Piece<T>> {
    let (items, next) = read(store, cursor).await?;
    Ok(Piece { items, next: next.map_or(Order::Ended, Order::Index), began_again: false })
}

fn read_entries(
    store: Store,
    cursor: Cursor,
) -> Pin<Box<dyn Future<Output = Result<IndexPage<Entry>>> + Send>> {
    Box::pin(async move {
        let mut limit = PIECE_ENTRIES;
        while limit > 1 && store.scan_bytes_hint(cursor, limit) > PIECE_BYTES {
            limit /= 2;
        }
        let page = store.scan(cursor, limit).await?;
        let entries = page.entries.into_iter().map(Ok);
        Ok((entries.chain(page.damaged.into_iter().map(Err)).collect(), page.next))
    })
}

fn read_keys(
    store: Store,
    cursor: Cursor,
) -> Pin<Box<dyn Future<Output = Result<IndexPage<KeyEntry>>> + Send>> {
    Box::pin(async move {
        let page = store.scan_keys(cursor, PIECE_ENTRIES, PIECE_BYTES).await?;
        let keys = page.keys.into_iter().map(Ok);
        Ok((keys.chain(page.damaged.into_iter().map(Err)).collect(), page.next))
    })
}
