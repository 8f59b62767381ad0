//! A device of the engine that is a modelled drive: every write and discard goes to the drive's translation layer, and
//! everything takes the drive's time on the clock of the simulation.
//!
//! What is written can be read from the moment it is submitted. There are no power cuts here, so nothing is told apart that
//! only a power cut would show; the drive's cache survives one, so a flush has nothing to wait for.

use std::sync::Arc;
use std::time::Duration;

use esker_device::{
    Buffer, Device, DeviceCounters, DeviceError, DeviceKind, Geometry, OperationKind, Pending, Runtime,
    Source, WriteMode, WriteStream,
};
use esker_ftl::{Counters, Drive, Handle, Latencies, Profile, Recorder, Shape, Timing};
use esker_sim::SimRuntime;
use parking_lot::Mutex;

use crate::content::Content;
use crate::error::Error;

/// Offsets and lengths are multiples of this.
const BLOCK_BYTES: u32 = 512;

/// A handle to a modelled drive; clones are handles to the same drive.
#[derive(Clone)]
pub(crate) struct ModelDevice {
    inner: Arc<Inner>,
}

struct Inner {
    name: String,
    geometry: Geometry,
    runtime: SimRuntime,
    state: Mutex<State>,
}

struct State {
    drive: Drive<Timing>,
    /// What it did before it was ours.
    before: Counters,
    content: Content,
    counters: DeviceCounters,
    reads: Recorder,
    writes: Recorder,
}

/// What a drive did, from some moment on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seen {
    /// Of its translation layer.
    pub(crate) drive: Counters,
    /// How long reads took.
    pub(crate) reads: Latencies,
    /// How long writes took.
    pub(crate) writes: Latencies,
}

impl ModelDevice {
    /// A drive of a profile that holds old data everywhere, as one that has been in use does. With `streams`, it tells so many
    /// write streams apart.
    pub(crate) fn used(
        runtime: &SimRuntime,
        profile: &Profile,
        shape: &Shape,
        streams: u8,
        seed: u64,
    ) -> Result<ModelDevice, Error> {
        let shape = Shape { handles: u16::from(streams) + 1, ..shape.clone() };
        let mut drive = Drive::on(&shape, Timing::new(profile, &shape))?;
        esker_ftl::precondition(&mut drive, seed)?;
        drive.flash_mut().turn_on();
        let geometry = Geometry {
            indirection_unit_bytes: Some(shape.iu_bytes),
            write_cache: false,
            discard_bytes: shape.iu_bytes,
            write_streams: streams,
            kind: DeviceKind::Block,
            backend: "model",
            block_bytes: BLOCK_BYTES,
            ..Geometry::memory(shape.namespace_bytes)
        };
        let state = State {
            before: drive.counters(),
            drive,
            content: Content::new(shape.namespace_bytes),
            counters: DeviceCounters::default(),
            reads: Recorder::new(),
            writes: Recorder::new(),
        };
        let name = format!("the modelled {}", profile.name);
        let inner = Inner { name, geometry, runtime: runtime.clone(), state: Mutex::new(state) };
        Ok(ModelDevice { inner: Arc::new(inner) })
    }

    /// What it has done. Latencies are those since [`forget_latencies`](Self::forget_latencies).
    pub(crate) fn seen(&self) -> Seen {
        let state = self.inner.state.lock();
        Seen {
            drive: state.drive.counters() - state.before,
            reads: state.reads.latencies(),
            writes: state.writes.latencies(),
        }
    }

    /// From here on latencies are recorded anew.
    pub(crate) fn forget_latencies(&self) {
        let mut state = self.inner.state.lock();
        (state.reads, state.writes) = (Recorder::new(), Recorder::new());
    }

    fn now(&self) -> u64 {
        self.inner.runtime.now().as_nanos() as u64
    }

    fn error(&self, op: OperationKind, offset: u64, bytes: u64, error: esker_ftl::Error) -> DeviceError {
        let source = Arc::new(std::io::Error::other(error));
        DeviceError::Io { op, offset, bytes, path: self.inner.name.as_str().into(), source }
    }

    /// An answer that is there at a time of the drive.
    fn answer_at<T: Send + 'static>(&self, now: u64, done: u64, answer: T) -> Pending<T> {
        self.inner.state.lock().counters.in_flight += 1;
        let inner = self.inner.clone();
        let sleep = inner.runtime.sleep(Duration::from_nanos(done - now));
        let runtime = inner.runtime.clone();
        Pending::spawn(&runtime, "modelled drive", async move {
            sleep.await;
            inner.state.lock().counters.in_flight -= 1;
            answer
        })
    }
}

impl Device for ModelDevice {
    fn geometry(&self) -> Geometry {
        self.inner.geometry.clone()
    }

    fn path(&self) -> String {
        self.inner.name.clone()
    }

    fn buffer(&self, bytes: usize) -> Buffer {
        Buffer::zeroed(bytes)
    }

    fn read(&self, offset: u64, mut buffer: Buffer) -> Pending<(Buffer, Result<(), DeviceError>)> {
        let (now, bytes) = (self.now(), buffer.len() as u64);
        let mut state = self.inner.state.lock();
        state.drive.flash_mut().start_command(now);
        if let Err(error) = state.drive.read(offset, bytes) {
            return Pending::ready((buffer, Err(self.error(OperationKind::Read, offset, bytes, error))));
        }
        let done = state.drive.flash().finish_read();
        state.content.read(offset, &mut buffer);
        state.reads.add(done - now);
        state.counters.reads += 1;
        state.counters.read_bytes += bytes;
        drop(state);
        self.answer_at(now, done, (buffer, Ok(())))
    }

    fn write(&self, offset: u64, source: Source, mode: WriteMode) -> Pending<Result<(), DeviceError>> {
        self.write_to_stream(offset, source, mode, WriteStream::default())
    }

    fn write_to_stream(
        &self,
        offset: u64,
        source: Source,
        _: WriteMode,
        stream: WriteStream,
    ) -> Pending<Result<(), DeviceError>> {
        let (now, bytes) = (self.now(), source.len() as u64);
        let mut state = self.inner.state.lock();
        let done = state.drive.flash_mut().accept_write(now, bytes);
        if let Err(error) = state.drive.write(offset, bytes, Handle(stream.0.into())) {
            return Pending::ready(Err(self.error(OperationKind::Write, offset, bytes, error)));
        }
        state.content.write(offset, source.as_slice());
        state.writes.add(done - now);
        state.counters.writes += 1;
        state.counters.write_bytes += bytes;
        drop(state);
        self.answer_at(now, done, Ok(()))
    }

    fn flush(&self) -> Pending<Result<(), DeviceError>> {
        let now = self.now();
        let mut state = self.inner.state.lock();
        state.drive.flash_mut().start_command(now);
        let done = state.drive.flash().finish_read();
        state.counters.flushes += 1;
        drop(state);
        self.answer_at(now, done, Ok(()))
    }

    fn discard(&self, offset: u64, bytes: u64) -> Pending<Result<(), DeviceError>> {
        let now = self.now();
        let mut state = self.inner.state.lock();
        state.drive.flash_mut().start_command(now);
        if let Err(error) = state.drive.trim(offset, bytes) {
            return Pending::ready(Err(self.error(OperationKind::Discard, offset, bytes, error)));
        }
        let done = state.drive.flash().finish_read();
        state.content.clear(offset, bytes);
        state.counters.discards += 1;
        state.counters.discard_bytes += bytes;
        drop(state);
        self.answer_at(now, done, Ok(()))
    }

    fn resize(&self, bytes: u64) -> Pending<Result<(), DeviceError>> {
        let error =
            esker_ftl::Error::OutOfRange { offset: 0, bytes, namespace_bytes: self.inner.geometry.bytes };
        Pending::ready(Err(self.error(OperationKind::Resize, 0, bytes, error)))
    }

    fn counters(&self) -> DeviceCounters {
        self.inner.state.lock().counters
    }
}
