//! A device in memory, for tests and simulation: it tracks the bytes that a power failure would lose, simulates
//! latencies, and injects planned faults.
//!
//! An operation is *submitted* (checked, shown to the observer and the fault plan), takes its time, and is then
//! *applied* and answered in one step. Reads see applied changes. A flush covers the changes that were applied when it
//! was submitted, and nothing later. A power failure may keep any part of the changes in flight or in the cache.
//!
//! Memory is bounded: content by the size of the device, the cache by a limit, and operations in flight by their
//! submitters.

mod cache;
mod fault;
mod image;
mod kill;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use self::cache::{Change, Media};
use self::fault::split_mix;
pub use self::fault::{Discarded, Fault, Latency, MemoryOptions, Operation};
use self::image::Image;
use crate::counters::Counters;
use crate::file::check;
use crate::{
    Buffer, Device, DeviceCounters, DeviceError, Geometry, OperationKind, Pending, Source, WriteMode,
};

type FaultPlan = Box<dyn FnMut(&Operation) -> Fault + Send>;
type Observer = Box<dyn FnMut(&Operation) + Send>;

/// A handle to a device in memory; clones refer to the same device.
#[derive(Clone)]
pub struct MemoryDevice {
    inner: Arc<Inner>,
}

struct Inner {
    options: MemoryOptions,
    path: Arc<str>,
    counters: Counters,
    state: Mutex<Contents>,
    /// Outside the state, so that fault plans and observers may access the device.
    faults: Mutex<Option<FaultPlan>>,
    observer: Mutex<Option<Observer>>,
}

struct Contents {
    bytes: u64,
    /// The content that reads see.
    live: Image,
    /// The content that survives a power failure, and the changes that may survive it.
    media: Media,
    /// Writes and discards that were submitted but not yet applied, by operation index.
    in_flight: BTreeMap<u64, (u64, Arc<Payload>)>,
    submitted: u64,
    applied: u64,
    vanished: bool,
    random: u64,
}

/// The payload of a write or a discard.
enum Payload {
    Write(Source),
    Discard(u64),
}

impl Payload {
    fn change(&self) -> Change {
        match self {
            Payload::Write(source) => Change::Write(source.as_slice().to_vec()),
            Payload::Discard(bytes) => Change::Clear(*bytes),
        }
    }
}

/// An operation between submission and answer.
struct Submitted {
    operation: Operation,
    fault: Fault,
    /// Number of changes applied before its submission.
    applied_before: u64,
}

impl MemoryDevice {
    /// Returns a device of `bytes` zero bytes, with 512-byte blocks and a volatile write cache.
    pub fn new(bytes: u64) -> MemoryDevice {
        MemoryDevice::with(MemoryOptions::new(bytes))
    }

    /// Returns a device of zero bytes.
    pub fn with(options: MemoryOptions) -> MemoryDevice {
        MemoryDevice::from_image(options, Image::default())
    }

    /// Returns a device with the durable content `bytes`. Its size is that of the geometry, or that of `bytes` if
    /// larger.
    pub fn from_bytes(mut options: MemoryOptions, bytes: &[u8]) -> MemoryDevice {
        options.geometry.bytes = options.geometry.bytes.max(bytes.len() as u64);
        MemoryDevice::from_image(options, Image::from_bytes(bytes))
    }

    fn from_image(options: MemoryOptions, image: Image) -> MemoryDevice {
        let block_bytes = options.geometry.block_bytes;
        assert!(block_bytes.is_power_of_two() && block_bytes >= 512, "blocks of {block_bytes} bytes");
        let bytes = options.geometry.bytes;
        assert!(bytes.is_multiple_of(block_bytes.into()), "{bytes} bytes in blocks of {block_bytes}");
        let state = Contents {
            bytes,
            live: image.clone(),
            media: Media::new(image),
            in_flight: BTreeMap::new(),
            submitted: 0,
            applied: 0,
            vanished: false,
            random: options.seed,
        };
        let inner = Inner {
            path: options.path.as_str().into(),
            options,
            counters: Counters::default(),
            state: Mutex::new(state),
            faults: Mutex::new(None),
            observer: Mutex::new(None),
        };
        MemoryDevice { inner: Arc::new(inner) }
    }

    /// Sets the fault plan, which is called for each operation when it is submitted.
    pub fn set_faults(&self, plan: Box<dyn FnMut(&Operation) -> Fault + Send>) {
        *self.inner.faults.lock() = Some(plan);
    }

    /// Removes the fault plan. A device that vanished stays away.
    pub fn clear_faults(&self) {
        *self.inner.faults.lock() = None;
    }

    /// Shows each operation that passes the checks to `observer` when it is submitted.
    pub fn set_observer(&self, observer: Box<dyn FnMut(&Operation) + Send>) {
        *self.inner.observer.lock() = Some(observer);
    }

    /// Returns the device as found after a power failure now: the durable bytes plus, of each change in the cache or in
    /// flight, nothing, all, or any subset of its 512-byte sectors, as `random` decides. This device is not affected.
    /// The new one has the same options and neither fault plan nor observer.
    pub fn crash(&self, random: &mut dyn FnMut() -> u64) -> MemoryDevice {
        let state = self.inner.state.lock();
        let interrupted: Vec<(u64, Change)> =
            state.in_flight.values().map(|(offset, payload)| (*offset, payload.change())).collect();
        let image = state.media.after_power_cut(&interrupted, random);
        let mut options = self.inner.options.clone();
        options.geometry.bytes = state.bytes;
        options.seed = options.seed.wrapping_add(1);
        drop(state);
        MemoryDevice::from_image(options, image)
    }

    /// Returns the content that reads see now.
    pub fn snapshot(&self) -> Vec<u8> {
        let state = self.inner.state.lock();
        state.live.to_bytes(state.bytes)
    }

    /// Returns the content that is certain to survive a power failure now.
    pub fn durable_snapshot(&self) -> Vec<u8> {
        let state = self.inner.state.lock();
        state.media.durable().to_bytes(state.bytes)
    }

    /// Flips the bits of `xor` in the byte at `offset`, both in the visible and in the durable content: rot.
    pub fn corrupt(&self, offset: u64, xor: u8) {
        let mut state = self.inner.state.lock();
        assert!(offset < state.bytes, "byte {offset} of a device of {} bytes", state.bytes);
        let mut byte = [0];
        state.live.read(offset, &mut byte);
        state.live.write(offset, &[byte[0] ^ xor]);
        state.media.durable().read(offset, &mut byte);
        state.media.durably(offset, &Change::Write(vec![byte[0] ^ xor]));
    }

    /// Removes the device: from now on all operations fail.
    pub fn vanish(&self) {
        self.inner.state.lock().vanished = true;
    }

    /// Checks an operation and draws its fault.
    fn submit(
        &self,
        kind: OperationKind,
        offset: u64,
        bytes: u64,
        mode: WriteMode,
    ) -> Result<Submitted, DeviceError> {
        let inner = &self.inner;
        let mut state = inner.state.lock();
        if kind != OperationKind::Resize {
            check(kind, offset, bytes, inner.options.geometry.block_bytes, state.bytes, &inner.path)?;
        }
        let operation = Operation { kind, offset, bytes, mode, index: state.submitted };
        state.submitted += 1;
        let applied_before = state.applied;
        drop(state);
        match kind {
            OperationKind::Read => inner.counters.read(bytes as usize),
            OperationKind::Write => inner.counters.write(bytes as usize),
            OperationKind::Discard => inner.counters.discard(bytes),
            OperationKind::Flush => inner.counters.flush(),
            OperationKind::Resize | OperationKind::Allocate | OperationKind::Open => inner.counters.resize(),
        }
        inner.counters.submit_call();
        if let Some(observer) = &mut *inner.observer.lock() {
            observer(&operation);
        }
        let fault = inner.faults.lock().as_mut().map_or(Fault::None, |plan| plan(&operation));
        Ok(Submitted { operation, fault, applied_before })
    }

    /// Runs `apply` now, or when the operation's time has passed.
    fn answer<T: Send + 'static>(
        &self,
        submitted: Submitted,
        apply: impl FnOnce(&Inner, &Submitted) -> T + Send + 'static,
    ) -> Pending<T> {
        let inner = self.inner.clone();
        let Some(latency) = &inner.options.latency else {
            assert!(
                !matches!(submitted.fault, Fault::Late(_)),
                "`Fault::Late` needs `MemoryOptions::latency`"
            );
            let answer = apply(&inner, &submitted);
            inner.counters.completed();
            return Pending::ready(answer);
        };
        let late = if let Fault::Late(late) = submitted.fault { late } else { Duration::ZERO };
        let sleep = latency.runtime.sleep(latency.draw(submitted.operation.kind) + late);
        let runtime = latency.runtime.clone();
        Pending::spawn(&*runtime, "memory device", async move {
            sleep.await;
            let answer = apply(&inner, &submitted);
            inner.counters.completed();
            answer
        })
    }

    fn change(&self, submitted: Submitted, payload: Payload) -> Pending<Result<(), DeviceError>> {
        let payload = Arc::new(payload);
        let Operation { index, offset, .. } = submitted.operation;
        self.inner.state.lock().in_flight.insert(index, (offset, payload.clone()));
        self.answer(submitted, move |inner, submitted| {
            let mut state = inner.state.lock();
            // The kill already decided about this operation.
            if state.in_flight.remove(&index).is_none() {
                return Ok(());
            }
            inner.apply_change(&mut state, submitted, &payload)
        })
    }
}

impl Inner {
    fn error(&self, operation: &Operation, errno: i32) -> DeviceError {
        let source = io::Error::from_raw_os_error(errno);
        DeviceError::from_io(operation.kind, &self.path, operation.offset, operation.bytes, source)
    }

    /// Applies the faults that are the same for every kind of operation.
    fn admit(&self, state: &mut Contents, submitted: &Submitted) -> Result<(), DeviceError> {
        state.vanished |= submitted.fault == Fault::Vanish;
        if state.vanished {
            return Err(self.error(&submitted.operation, libc::ENODEV));
        }
        match submitted.fault {
            Fault::Error(errno) | Fault::TornThenError(errno) => Err(self.error(&submitted.operation, errno)),
            _ => Ok(()),
        }
    }

    fn apply_change(
        &self,
        state: &mut Contents,
        submitted: &Submitted,
        payload: &Payload,
    ) -> Result<(), DeviceError> {
        let Operation { kind, bytes, mode, .. } = submitted.operation;
        let mut offset = submitted.operation.offset;
        if offset + bytes > state.bytes {
            // The device shrank while the operation was in flight.
            return Err(self.error(&submitted.operation, libc::EIO));
        }
        let admitted = self.admit(state, submitted);
        if let (Fault::TornThenError(_), OperationKind::Write) = (submitted.fault, kind) {
            self.apply_torn(state, offset, &payload.change());
        }
        admitted?;
        if submitted.fault == Fault::Lost {
            return Ok(());
        }
        if let (Fault::Misdirected(by), OperationKind::Write) = (submitted.fault, kind) {
            offset = misdirected(offset, by, bytes, state.bytes, self.options.geometry.block_bytes);
        }
        let change = match (payload, self.options.discarded) {
            (Payload::Discard(_), Discarded::Stale) => return Ok(()),
            (Payload::Discard(_), _) if !self.options.geometry.discard => return Ok(()),
            (Payload::Discard(bytes), Discarded::Noise) => Change::Write(noise(&mut state.random, *bytes)),
            _ => payload.change(),
        };
        match &change {
            Change::Write(bytes) => state.live.write(offset, bytes),
            Change::Clear(bytes) => state.live.clear(offset, *bytes),
        }
        state.applied += 1;
        if mode == WriteMode::Durable || !self.options.geometry.write_cache {
            state.media.durably(offset, &change);
        } else {
            state.media.cached(state.applied, offset, change);
        }
        Ok(())
    }

    /// Applies some sectors of a failed write: to the cache, where a power failure may tear them again.
    fn apply_torn(&self, state: &mut Contents, offset: u64, change: &Change) {
        let mut random = state.random;
        cache::tear(offset, change, &mut state.live, &mut || split_mix(&mut random));
        state.random = random;
        let Change::Write(bytes) = change else { return };
        let mut torn = vec![0; bytes.len()];
        state.live.read(offset, &mut torn);
        state.applied += 1;
        state.media.cached(state.applied, offset, Change::Write(torn));
    }
}

fn misdirected(offset: u64, by: u64, bytes: u64, device_bytes: u64, block_bytes: u32) -> u64 {
    let positions = (device_bytes - bytes) / u64::from(block_bytes) + 1;
    (offset / u64::from(block_bytes) + by / u64::from(block_bytes)) % positions * u64::from(block_bytes)
}

fn noise(random: &mut u64, bytes: u64) -> Vec<u8> {
    // At least one byte of each block is not zero, so that noise is never mistaken for zeros.
    let mut noise = vec![0; bytes as usize];
    noise.chunks_mut(8).for_each(|chunk| {
        let word = (split_mix(random) | 1).to_le_bytes();
        chunk.copy_from_slice(&word[..chunk.len()]);
    });
    noise
}

impl Device for MemoryDevice {
    fn geometry(&self) -> Geometry {
        let mut geometry = self.inner.options.geometry.clone();
        geometry.bytes = self.inner.state.lock().bytes;
        geometry
    }

    fn path(&self) -> String {
        self.inner.path.to_string()
    }

    fn buffer(&self, bytes: usize) -> Buffer {
        Buffer::zeroed(bytes)
    }

    fn read(&self, offset: u64, mut buffer: Buffer) -> Pending<(Buffer, Result<(), DeviceError>)> {
        let bytes = buffer.len() as u64;
        let submitted = match self.submit(OperationKind::Read, offset, bytes, WriteMode::Plain) {
            Ok(submitted) => submitted,
            Err(error) => return Pending::ready((buffer, Err(error))),
        };
        self.answer(submitted, move |inner, submitted| {
            let mut state = inner.state.lock();
            if let Err(error) = inner.admit(&mut state, submitted) {
                return (buffer, Err(error));
            }
            if offset + bytes > state.bytes {
                return (buffer, Err(inner.error(&submitted.operation, libc::EIO)));
            }
            match submitted.fault {
                Fault::Lost => buffer.fill(0),
                Fault::Misdirected(by) => {
                    let block_bytes = inner.options.geometry.block_bytes;
                    state.live.read(misdirected(offset, by, bytes, state.bytes, block_bytes), &mut buffer);
                }
                _ => state.live.read(offset, &mut buffer),
            }
            (buffer, Ok(()))
        })
    }

    fn write(&self, offset: u64, source: Source, mode: WriteMode) -> Pending<Result<(), DeviceError>> {
        // Panics here, in the caller, if the range is not published.
        let bytes = source.as_slice().len() as u64;
        match self.submit(OperationKind::Write, offset, bytes, mode) {
            Ok(submitted) => self.change(submitted, Payload::Write(source)),
            Err(error) => Pending::ready(Err(error)),
        }
    }

    fn flush(&self) -> Pending<Result<(), DeviceError>> {
        let submitted = match self.submit(OperationKind::Flush, 0, 0, WriteMode::Plain) {
            Ok(submitted) => submitted,
            Err(error) => return Pending::ready(Err(error)),
        };
        self.answer(submitted, |inner, submitted| {
            let mut state = inner.state.lock();
            let before = submitted.applied_before + 1;
            match inner.admit(&mut state, submitted) {
                Ok(()) if submitted.fault == Fault::Lost => Ok(()),
                Ok(()) => {
                    state.media.flush(before);
                    Ok(())
                }
                Err(error) => {
                    state.media.abandon(before);
                    Err(error)
                }
            }
        })
    }

    fn discard(&self, offset: u64, bytes: u64) -> Pending<Result<(), DeviceError>> {
        match self.submit(OperationKind::Discard, offset, bytes, WriteMode::Plain) {
            Ok(submitted) => self.change(submitted, Payload::Discard(bytes)),
            Err(error) => Pending::ready(Err(error)),
        }
    }

    fn allocate(&self, offset: u64, bytes: u64) -> Pending<Result<(), DeviceError>> {
        match self.submit(OperationKind::Allocate, offset, bytes, WriteMode::Plain) {
            Ok(submitted) => {
                self.answer(submitted, |inner, submitted| inner.admit(&mut inner.state.lock(), submitted))
            }
            Err(error) => Pending::ready(Err(error)),
        }
    }

    fn resize(&self, bytes: u64) -> Pending<Result<(), DeviceError>> {
        let block_bytes = u64::from(self.inner.options.geometry.block_bytes);
        if !bytes.is_multiple_of(block_bytes) {
            let what = format!("a size of {bytes} bytes is not a multiple of blocks of {block_bytes} bytes");
            return Pending::ready(Err(DeviceError::invalid(&self.inner.path, what)));
        }
        let submitted = match self.submit(OperationKind::Resize, 0, bytes, WriteMode::Plain) {
            Ok(submitted) => submitted,
            Err(error) => return Pending::ready(Err(error)),
        };
        self.answer(submitted, move |inner, submitted| {
            let mut state = inner.state.lock();
            inner.admit(&mut state, submitted)?;
            if bytes > inner.options.bytes_max {
                return Err(inner.error(&submitted.operation, libc::ENOSPC));
            }
            let before = state.bytes;
            if bytes < before {
                state.live.clear(bytes, before - bytes);
                state.media.durably(bytes, &Change::Clear(before - bytes));
            }
            state.bytes = bytes;
            Ok(())
        })
    }

    fn counters(&self) -> DeviceCounters {
        self.inner.counters.snapshot()
    }
}

impl std::fmt::Debug for MemoryDevice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MemoryDevice")
            .field("path", &self.inner.path)
            .field("geometry", &self.geometry())
            .finish()
    }
}
