//! Streaming calls: scans, uploads, downloads.

use std::sync::Arc;

use bytes::Bytes;
use esker_engine::{Cursor, Entry, Error};
use futures_util::StreamExt;
use futures_util::stream::{self, BoxStream};
use tonic::{Status, Streaming};

use super::call::Call;
use super::chunks::Chunks;
use super::cluster::{Effect, is_on_version};
use super::convert::{self, check_prefix, write_options};
use super::error::{conflict, invalid, no_versions, of_store, too_large};
use super::once::{identity, once};
use super::pb;
use super::rights::Rights;
use crate::budget::Piece;
use crate::service::Service;

/// Maximum entries of one scan step, and its maximum bytes if it has more than one entry.
const STEP_ENTRIES_MAX: u64 = 500;
const STEP_BYTES: usize = 256 << 10;

/// Memory of an entry beyond its key and its value, in bytes.
const ENTRY_BYTES: usize = 256;

const CHUNK_BYTES: usize = 256 << 10;
const CHUNK_BYTES_MAX: usize = 1 << 20;

/// First byte of a cursor, which identifies its format.
const CURSOR_KIND: u8 = 1;

fn cursor_of(bytes: &[u8]) -> Result<Cursor, Status> {
    let wrong = || invalid("the cursor is none that a scan answered");
    match bytes.split_first() {
        None => Ok(Cursor::START),
        Some((&CURSOR_KIND, number)) => {
            let number = number.try_into().map_err(|_| wrong())?;
            Ok(Cursor::from_u64(u64::from_be_bytes(number)))
        }
        Some(_) => Err(wrong()),
    }
}

/// Encodes a cursor for clients; empty at the end.
fn bytes_of(cursor: Option<Cursor>) -> Bytes {
    let number = cursor.map(|cursor| cursor.to_u64().to_be_bytes());
    number.map_or(Bytes::new(), |number| [&[CURSOR_KIND], &number[..]].concat().into())
}

/// State of a scan.
struct Scan {
    service: Arc<Service>,
    call: Call,
    request: pb::ScanRequest,
    /// Memory of the prefix.
    _prefix: Piece,
    cursor: Option<Cursor>,
    /// Number of entries still to be examined.
    left: u64,
    /// A damaged record found in the step.
    damaged: Option<Error>,
}

/// Entries, the number of entries examined for them, and the next cursor.
type Looked = (Vec<pb::Entry>, usize, Option<Cursor>);

pub(super) async fn scan(
    service: Arc<Service>,
    call: Call,
    mut request: pb::ScanRequest,
) -> Result<BoxStream<'static, Result<pb::ScanResponse, Status>>, Status> {
    request.check(&call)?;
    check_prefix(&request.prefix)?;
    let prefix = call.client.take(request.prefix.len()).await?;
    // Copied, because the memory of the message is released once the scan has begun.
    request.prefix = Bytes::copy_from_slice(&request.prefix);
    let scan = Scan {
        _prefix: prefix,
        cursor: Some(cursor_of(&std::mem::take(&mut request.cursor))?),
        left: if request.limit == 0 { u64::MAX } else { request.limit },
        service,
        call,
        request,
        damaged: None,
    };
    let pages = stream::unfold(scan, |mut scan| async move {
        let answers = scan.step().await?;
        Some((stream::iter(answers), scan))
    });
    Ok(pages.flatten().boxed())
}

impl Scan {
    /// Returns the messages of one step; `None` at the end.
    async fn step(&mut self) -> Option<Vec<Result<pb::ScanResponse, Status>>> {
        let cursor = self.cursor.take().filter(|_| self.left > 0)?;
        // The memory of the previous step goes with its messages.
        self.call.held.renew();
        match self.page(cursor).await {
            Ok(answers) => {
                let mut answers: Vec<_> = answers.into_iter().map(Ok).collect();
                if let Some(error) = self.damaged.take() {
                    // Ends the stream. The cursor of the message before leads past the damaged record.
                    answers.push(Err(of_store(&error)));
                    self.cursor = None;
                }
                Some(answers)
            }
            Err(status) => Some(vec![Err(status)]),
        }
    }

    /// Returns the entries of one step with their values, the number examined, and the next cursor.
    async fn entries(&mut self, cursor: Cursor, most: usize) -> Result<Looked, Status> {
        let (count, bytes) = self.service.step(&self.call.store, cursor, most, STEP_BYTES);
        // Every entry exists twice for a moment: as read, and in the message.
        self.call.take(2 * bytes + count * ENTRY_BYTES).await?;
        let page = self.call.store.scan(cursor, count).await.map_err(|error| of_store(&error))?;
        self.damaged = page.damaged.into_iter().next();
        let value_bytes_max = self.service.config.limits.bulk_bytes_max;
        let shown = |entry: Entry| {
            let fits = entry.value.len() <= value_bytes_max;
            convert::entry(entry, fits)
        };
        Ok((page.entries.into_iter().map(shown).collect(), count, page.next))
    }

    /// As [`entries`](Self::entries), without reading values.
    async fn keys(&mut self, cursor: Cursor, most: usize) -> Result<Looked, Status> {
        let bytes = self.service.step_of_keys(&self.call.store, cursor, most, STEP_BYTES);
        self.call.take(2 * bytes + most * ENTRY_BYTES).await?;
        let page = self.call.store.scan_keys(cursor, most, STEP_BYTES).await;
        let page = page.map_err(|error| of_store(&error))?;
        self.damaged = page.damaged.into_iter().next();
        let looked_at = page.keys.len().max(1);
        Ok((page.keys.into_iter().map(convert::key_entry).collect(), looked_at, page.next))
    }

    async fn page(&mut self, cursor: Cursor) -> Result<Vec<pb::ScanResponse>, Status> {
        self.call.follow_user(&self.service)?;
        self.request.check(&self.call)?;
        let most = self.left.min(STEP_ENTRIES_MAX) as usize;
        let cluster = self.call.cluster.clone().map(|cluster| (cluster.begin_page(), cluster));
        let (entries, looked_at, following) = match self.request.keys_only {
            true => self.keys(cursor, most).await?,
            false => self.entries(cursor, most).await?,
        };
        if let Some((groups, cluster)) = &cluster {
            cluster.confirm_page(*groups).await?;
        }
        self.left = self.left.saturating_sub(looked_at as u64);
        self.cursor = following;
        // Messages before the end of the step carry its start cursor, so a client that resumes there receives the step again.
        let begin =
            || pb::ScanResponse { next_cursor: bytes_of(Some(cursor)), ..pb::ScanResponse::default() };
        let (mut answers, mut answer, mut bytes) = (Vec::new(), begin(), 0);
        for entry in entries {
            if !entry.key.starts_with(&self.request.prefix) || !self.call.user.may_read(&entry.key) {
                continue;
            }
            if cluster.as_ref().is_some_and(|(groups, cluster)| !cluster.is_scanned(*groups, &entry.key)) {
                continue;
            }
            let more = entry.key.len() + entry.value.len() + 64;
            if bytes > 0 && bytes + more > 2 * STEP_BYTES {
                answers.push(std::mem::replace(&mut answer, begin()));
                bytes = 0;
            }
            bytes += more;
            answer.entries.push(entry);
        }
        answer.next_cursor = bytes_of(following);
        answer.done = following.is_none();
        answers.push(answer);
        Ok(answers)
    }
}

pub(super) async fn upload(
    service: &Arc<Service>,
    mut call: Call,
    mut parts: Streaming<pb::UploadRequest>,
) -> Result<pb::PutResponse, Status> {
    let first = parts.message().await?.and_then(|first| first.part);
    let Some(pb::upload_request::Part::Head(mut head)) = first else {
        return Err(invalid("the first message of an upload is its head"));
    };
    head.check(&call)?;
    if call.cluster.is_some() && is_on_version(head.condition.as_ref()) {
        return Err(no_versions());
    }
    let options = write_options(&call.store, head.expiry, head.condition, head.options.clone())?;
    let limit = call.store.max_value_bytes(head.key.len());
    let too_long = |bytes| too_large(format!("the value has {bytes} bytes; this store takes up to {limit}"));
    if let Some(bytes) = head.value_bytes.filter(|&bytes| bytes > limit) {
        return Err(too_long(bytes));
    }
    let (mut chunks, mut bytes) = (Chunks::default(), 0);
    while let Some(message) = parts.message().await? {
        let Some(pb::upload_request::Part::Chunk(chunk)) = message.part else {
            return Err(invalid("after its head an upload has chunks and nothing else"));
        };
        bytes += chunk.len() as u64;
        if bytes > limit {
            return Err(too_long(bytes));
        }
        chunks.push(chunk);
    }
    if let Some(said) = head.value_bytes.filter(|&said| said != bytes) {
        return Err(invalid(format!("the value was to have {said} bytes, and {bytes} came")));
    }
    // The upload may have taken long.
    call.follow_user(service)?;
    head.check(&call)?;
    call.take(service.compressed_bytes(bytes as usize)).await?;
    let value = chunks.join();
    let identity = identity(&call, "Upload", &mut head, |head| head.options.as_mut(), &value).await?;
    let store = call.store.clone();
    let held = call.held.clone();
    let put = async move {
        let _held = held;
        let version = store.put_with(head.key, value, options).await.map_err(|error| of_store(&error))?;
        Ok(pb::PutResponse { version, previous: None })
    };
    let answer = once(service, &call, identity, put).await;
    match &call.cluster {
        Some(cluster) => cluster.confirmed(Effect::Certain, answer).await,
        None => answer,
    }
}

pub(super) async fn download(
    service: &Service,
    call: &Call,
    request: pb::DownloadRequest,
) -> Result<BoxStream<'static, Result<pb::DownloadResponse, Status>>, Status> {
    request.check(call)?;
    if call.cluster.is_some() && request.version != 0 {
        return Err(no_versions());
    }
    let chunk_bytes = match request.chunk_bytes as usize {
        0 => CHUNK_BYTES,
        bytes @ 1..=CHUNK_BYTES_MAX => bytes,
        bytes => return Err(invalid(format!("chunk_bytes is {bytes}; it is up to {CHUNK_BYTES_MAX}"))),
    };
    call.take(call.store.read_bytes_hint(&request.key) + 3 * chunk_bytes).await?;
    let entry = call.store.get_entry(&request.key).await.map_err(|error| of_store(&error));
    let entry = match &call.cluster {
        Some(cluster) => cluster.confirmed(Effect::None, entry).await?,
        None => entry?,
    };
    let hits = u64::from(entry.is_some());
    service.counters.lookups.count(call.database, hits, 1 - hits);
    let Some(entry) = entry else { return Ok(stream::empty().boxed()) };
    if request.version != 0 && request.version != entry.version {
        let text = format!("the key has version {} instead of {}", entry.version, request.version);
        return Err(conflict(text, entry.version));
    }
    let bytes = entry.value.len();
    let Some(start) = usize::try_from(request.offset).ok().filter(|&start| start <= bytes) else {
        return Err(invalid(format!("the offset is {}; the value has {bytes} bytes", request.offset)));
    };
    let value = entry.value.slice(start..);
    let part = |part| Ok(pb::DownloadResponse { part: Some(part) });
    let head = part(pb::download_response::Part::Head(convert::entry(entry, false)));
    let chunks = stream::iter((0..value.len()).step_by(chunk_bytes)).map(move |at| {
        let chunk = value.slice(at..value.len().min(at + chunk_bytes));
        part(pb::download_response::Part::Chunk(chunk))
    });
    Ok(stream::iter([head]).chain(chunks).boxed())
}
