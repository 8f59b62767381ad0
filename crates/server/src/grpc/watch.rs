//! Watches: streams of the changes that become visible after their begin.
//!
//! See `service::watchers` for the queue of a watch and its limit. Values are read when a change is sent, in memory taken then. A
//! value that was overwritten meanwhile is left out, because the later change follows.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use esker_engine::Cause;
use futures_util::StreamExt;
use futures_util::stream::{self, BoxStream};
use tokio::time::{Instant, sleep_until};
use tonic::Status;

use super::call::{Call, Esker};
use super::client::WatchPlace;
use super::convert::check_prefix;
use super::error::{closed, invalid, missed, of_store, stopping, too_many_watches};
use super::pb;
use super::pb::change::Kind;
use super::pb::watch_response::{Changes, Message, Progress, Started};
use super::rights::{Rights, WatchRights};
use crate::base::shutdown::Stop;
use crate::budget::Piece;
use crate::service::Service;
use crate::service::watchers::{Missed, Seen, Wanted, Watching};

/// Maximum number of names in one watch.
const NAMES_MAX: usize = 64;

const QUEUE_BYTES: usize = 1 << 20;
const QUEUE_BYTES_MIN: usize = 64 << 10;
const QUEUE_BYTES_MAX: usize = 16 << 20;

const PROGRESS: Duration = Duration::from_secs(30);
const PROGRESS_MS_MIN: u64 = 100;
const PROGRESS_MS_MAX: u64 = 600_000;

/// Bytes of changes per message, and bytes that a change counts beyond its key and its value.
const STEP_BYTES: usize = 32 << 10;
const CHANGE_BYTES: usize = 128;

/// Length from which keys take their own memory, as values do. In bytes.
const LONG_BYTES: usize = 1 << 10;

/// Memory of a watch beyond its queue and its names, in bytes.
const WATCH_BYTES: usize = 24 << 10;

/// Memory of a name beyond its bytes, in bytes.
const NAME_BYTES: usize = 512;

/// A stream of changes.
struct Watch {
    service: Arc<Service>,
    call: Call,
    stop: Stop,
    /// Notified when users have changed.
    users: tokio::sync::watch::Receiver<()>,
    watching: Watching,
    rights: WatchRights,
    with_values: bool,
    progress: Duration,
    /// Number of changes sent.
    told: u64,
    /// Memory of the queue, and the connection's registration of the watch.
    _queue: Piece,
    _place: WatchPlace,
}

/// State of the stream.
enum Turn {
    Begins(Watch),
    GoesOn(Watch),
    Ended,
}

/// Fails if a watch has too many names.
pub(super) fn check_count(names: usize) -> Result<(), Status> {
    match names {
        0..=NAMES_MAX => Ok(()),
        _ => Err(invalid(format!("{names} prefixes and keys; a watch has up to {NAMES_MAX}"))),
    }
}

pub(super) async fn watch(
    esker: &Esker,
    call: Call,
    request: pb::WatchRequest,
) -> Result<BoxStream<'static, Result<pb::WatchResponse, Status>>, Status> {
    request.check(&call)?;
    let rights = WatchRights::of(&request);
    let pb::WatchRequest { prefixes, keys, with_values, queue_bytes, progress_ms } = request;
    check_count(prefixes.len() + keys.len())?;
    prefixes.iter().try_for_each(check_prefix)?;
    let queue_bytes = match queue_bytes as usize {
        0 => QUEUE_BYTES,
        bytes @ QUEUE_BYTES_MIN..=QUEUE_BYTES_MAX => bytes,
        bytes => {
            let text = format!("queue_bytes is {bytes}; it is {QUEUE_BYTES_MIN} to {QUEUE_BYTES_MAX}");
            return Err(invalid(text));
        }
    };
    let progress = match u64::from(progress_ms) {
        0 => PROGRESS,
        ms @ PROGRESS_MS_MIN..=PROGRESS_MS_MAX => Duration::from_millis(ms),
        ms => {
            let text = format!("progress_ms is {ms}; it is {PROGRESS_MS_MIN} to {PROGRESS_MS_MAX}");
            return Err(invalid(text));
        }
    };
    let Some(place) = call.client.watch() else {
        return Err(too_many_watches("this connection has as many watches as one may; open another"));
    };
    let named: usize = prefixes.iter().chain(&keys).map(|name| NAME_BYTES + 2 * name.len()).sum();
    let queue = call.client.take(queue_bytes + WATCH_BYTES + named).await?;
    let (user, users) = (call.user.clone(), esker.service.users.reloads());
    let may_see = Box::new(move |key: &[u8]| user.may_read(key));
    // Copied, because the memory of the message is released once the watch has begun.
    let copied = |names: Vec<Bytes>| names.iter().map(|name| Bytes::copy_from_slice(name)).collect();
    let (prefixes, keys) = (copied(prefixes), copied(keys));
    let keyspace = call.store.keyspace_number();
    let wanted = Wanted { keyspace, prefixes, keys, queue_bytes, may_see };
    let (service, origin) = (esker.service.clone(), call.client.peer.origin());
    let watching = service.watchers.watch(origin, wanted).ok_or_else(|| {
        too_many_watches("there are as many watches as there may be, or as this address may have")
    })?;
    // After the watch is registered, so that every change visible from here on is queued.
    service.observe_as_needed();
    // A swap may have been reported before the watch began.
    if call.store.keyspace_number() != keyspace {
        return Err(missed());
    }
    let stop = esker.stop.clone();
    let (told, _queue, _place) = (0, queue, place);
    let watch =
        Watch { service, call, stop, users, watching, rights, with_values, progress, told, _queue, _place };
    let messages = stream::unfold(Turn::Begins(watch), |turn| async move {
        let mut watch = match turn {
            Turn::Begins(watch) => return Some((message(Message::Started(Started {})), Turn::GoesOn(watch))),
            Turn::GoesOn(watch) => watch,
            Turn::Ended => return None,
        };
        match watch.next().await {
            Ok(said) => Some((message(said), Turn::GoesOn(watch))),
            Err(status) => Some((Err(status), Turn::Ended)),
        }
    });
    Ok(messages.boxed())
}

fn message(message: Message) -> Result<pb::WatchResponse, Status> {
    Ok(pb::WatchResponse { message: Some(message) })
}

impl Watch {
    /// Fetches the user again if the users have changed. Ends the watch with `MISSED` if the user may read other keys than
    /// before, because changes of some were left out, and with `NO_RIGHT` if the user may not run a command that the watch stands
    /// for.
    fn follow_user(&mut self) -> Result<(), Status> {
        let before = self.call.user.clone();
        self.call.follow_user(&self.service)?;
        if Arc::ptr_eq(&self.call.user, &before) {
            return Ok(());
        }
        if !self.call.user.reads_as(&before, self.call.database) {
            return Err(missed());
        }
        self.rights.check(&self.call)
    }

    /// Returns the next message, or the error that ends the watch.
    async fn next(&mut self) -> Result<Message, Status> {
        let quiet_until = Instant::now() + self.progress;
        loop {
            // The memory of the previous message goes with it.
            self.call.held.renew();
            self.follow_user()?;
            let changes = self.changes().await?;
            if !changes.is_empty() {
                self.told += changes.len() as u64;
                return Ok(Message::Changes(Changes { changes }));
            }
            if self.call.store.is_closed() {
                return Err(closed());
            }
            tokio::select! {
                () = self.watching.arrived() => {}
                () = self.stop.announced() => return Err(stopping()),
                // The server outlives its watches.
                _ = self.users.changed() => {}
                () = sleep_until(quiet_until) => {
                    // A user without rights must not receive even this.
                    self.follow_user()?;
                    return Ok(Message::Progress(Progress { changes: self.told }));
                }
            }
        }
    }

    /// Returns the changes for one message; empty if none are pending.
    async fn changes(&mut self) -> Result<Vec<pb::Change>, Status> {
        let (mut changes, mut bytes) = (Vec::new(), 0);
        while bytes < STEP_BYTES {
            let seen = match self.watching.take() {
                Ok(Some(seen)) => seen,
                // Changes before the missed one are sent first.
                Err(Missed) if changes.is_empty() => return Err(missed()),
                Ok(None) | Err(Missed) => break,
            };
            self.follow_user()?;
            if seen.cause.is_some() && !self.call.user.may_read(&seen.key) {
                continue;
            }
            if changes.is_empty() {
                self.call.take(2 * STEP_BYTES).await?;
            }
            if seen.key.len() >= LONG_BYTES {
                self.call.take(2 * seen.key.len()).await?;
            }
            let value = self.value_of(&seen).await?;
            bytes += CHANGE_BYTES + seen.key.len() + value.as_ref().map_or(0, Bytes::len);
            self.call.held.works_on(bytes);
            let Seen { cause, key, version, expires_at_ms } = seen;
            changes.push(pb::Change { kind: kind_of(cause).into(), key, version, expires_at_ms, value });
        }
        Ok(changes)
    }

    /// Returns the value of a put, if it is requested and still current.
    async fn value_of(&self, seen: &Seen) -> Result<Option<Bytes>, Status> {
        if !self.with_values || seen.cause != Some(Cause::Put) {
            return Ok(None);
        }
        let bytes = self.call.store.read_bytes_hint(&seen.key);
        if bytes > 2 * self.service.config.limits.bulk_bytes_max {
            return Ok(None);
        }
        self.call.take(2 * bytes).await?;
        let entry = self.call.store.get_entry(&seen.key).await.map_err(|error| of_store(&error))?;
        let fits = |bytes: usize| bytes <= self.service.config.limits.bulk_bytes_max;
        let entry = entry.filter(|entry| entry.version == seen.version && fits(entry.value.len()));
        Ok(entry.map(|entry| entry.value))
    }
}

fn kind_of(cause: Option<Cause>) -> Kind {
    match cause {
        None => Kind::Clear,
        Some(Cause::Put) => Kind::Put,
        Some(Cause::Deleted) => Kind::Delete,
        Some(Cause::Expired) => Kind::Expire,
        Some(Cause::Evicted) => Kind::Evict,
        Some(_) => Kind::Unspecified,
    }
}
