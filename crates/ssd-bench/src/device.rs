//! An engine device backed by a modelled drive: every write and discard goes to the drive's translation layer, and
//! operations take the drive's time on the simulation's clock.
//!
//! Written data is readable from the moment of submission. There are no power failures here, so states that only a
//! power failure would reveal are not modelled; the drive's cache survives one, so a flush has nothing to wait for.

use std::sync::Arc;
use std::time::Duration;

use esker_device::{
    Buffer, Device, DeviceCounters, DeviceError, DeviceKind, Geometry, OperationKind, Pending,
    PlacementHandle, Runtime, Source, WriteMode,
};
use esker_simulated::SimRuntime;
use esker_ssd_model::{Counters, Drive, Handle, Latencies, Profile, Recorder, Shape, Timing};
use parking_lot::Mutex;

use crate::content::Content;
use crate::error::Error;

/// Alignment of offsets and lengths in bytes.
const BLOCK_BYTES: u32 = 512;

/// A handle to a modelled drive; clones refer to the same drive.
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
    /// Counters at the time of the device's creation, after preconditioning.
    before: Counters,
    content: Content,
    counters: DeviceCounters,
    reads: Recorder,
    writes: Recorder,
}

/// Statistics of a drive.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seen {
    /// Counters of its translation layer.
    pub(crate) drive: Counters,
    /// Latencies of reads.
    pub(crate) reads: Latencies,
    /// Latencies of writes.
    pub(crate) writes: Latencies,
}

impl ModelDevice {
    /// Returns a preconditioned drive of a profile, full of old data, with `handles` placement handles.
    pub(crate) fn used(
        runtime: &SimRuntime,
        profile: &Profile,
        shape: &Shape,
        handles: u8,
        seed: u64,
    ) -> Result<ModelDevice, Error> {
        let shape = Shape { handles: u16::from(handles) + 1, ..shape.clone() };
        let mut drive = Drive::on(&shape, Timing::new(profile, &shape))?;
        esker_ssd_model::precondition(&mut drive, seed)?;
        drive.flash_mut().turn_on();
        let geometry = Geometry {
            indirection_unit_bytes: Some(shape.iu_bytes),
            write_cache: false,
            discard_bytes: shape.iu_bytes,
            placement_handles: handles,
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

    /// Returns the statistics. Latencies are those since [`forget_latencies`](Self::forget_latencies).
    pub(crate) fn seen(&self) -> Seen {
        let state = self.inner.state.lock();
        Seen {
            drive: state.drive.counters() - state.before,
            reads: state.reads.latencies(),
            writes: state.writes.latencies(),
        }
    }

    /// Resets the latencies.
    pub(crate) fn forget_latencies(&self) {
        let mut state = self.inner.state.lock();
        (state.reads, state.writes) = (Recorder::new(), Recorder::new());
    }

    fn now(&self) -> u64 {
        self.inner.runtime.now().as_nanos() as u64
    }

    fn error(
        &self,
        op: OperationKind,
        offset: u64,
        bytes: u64,
        error: esker_ssd_model::Error,
    ) -> DeviceError {
        let source = Arc::new(std::io::Error::other(error));
        DeviceError::Io { op, offset, bytes, path: self.inner.name.as_str().into(), source }
    }

    /// Returns an answer that becomes available at time `done` of the drive.
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
        self.write_placed(offset, source, mode, PlacementHandle::default())
    }

    fn write_placed(
        &self,
        offset: u64,
        source: Source,
        _: WriteMode,
        handle: PlacementHandle,
    ) -> Pending<Result<(), DeviceError>> {
        let (now, bytes) = (self.now(), source.len() as u64);
        let mut state = self.inner.state.lock();
        let done = state.drive.flash_mut().accept_write(now, bytes);
        if let Err(error) = state.drive.write(offset, bytes, Handle(handle.0.into())) {
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
        let error = esker_ssd_model::Error::OutOfRange {
            offset: 0,
            bytes,
            namespace_bytes: self.inner.geometry.bytes,
        };
        Pending::ready(Err(self.error(OperationKind::Resize, 0, bytes, error)))
    }

    fn counters(&self) -> DeviceCounters {
        self.inner.state.lock().counters
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn device(handles: u8) -> (SimRuntime, ModelDevice) {
        let runtime = SimRuntime::new(1);
        let profile = Profile::named("d5-p5316").expect("there is such a drive");
        let shape = Shape::over_provisioned(64 << 10, 64 << 20, 0.2);
        let device = ModelDevice::used(&runtime, profile, &shape, handles, 1).expect("it can be");
        (runtime, device)
    }

    #[test]
    fn bench_device_write_is_read_back_and_takes_drive_time() {
        let (runtime, device) = device(0);
        let mut block = Buffer::zeroed(4096);
        block[100] = 7;
        runtime.run(device.write(8192, Source::Owned(block), WriteMode::Durable)).expect("it is written");
        let wrote_at = runtime.now();
        assert!(
            wrote_at > Duration::ZERO && wrote_at < Duration::from_micros(50),
            "{wrote_at:?}: its cache took it"
        );
        let (found, read) = runtime.run(device.read(8192, Buffer::zeroed(4096)));
        read.expect("it is read");
        assert_eq!((found[99], found[100]), (0, 7));
        // The previous read hit the drive's cache; reads from flash take longer.
        let before = runtime.now();
        runtime.run(device.read(1 << 20, Buffer::zeroed(4096))).1.expect("it is read");
        assert!(runtime.now() - before > Duration::from_micros(80), "{:?}", runtime.now() - before);
        let seen = device.seen();
        assert_eq!((seen.drive.host_writes, seen.drive.host_bytes, seen.drive.partial_writes), (1, 4096, 1));
        assert_eq!((seen.reads.count, seen.writes.count, device.counters().in_flight), (2, 1, 0));
        runtime.run(device.discard(0, 64 << 10)).expect("it is discarded");
        let (found, _) = runtime.run(device.read(8192, Buffer::zeroed(4096)));
        assert!(found.iter().all(|byte| *byte == 0));
    }

    #[test]
    fn drive_refusal_is_reported_as_device_error() {
        let (runtime, device) = device(2);
        assert_eq!(device.geometry().placement_handles, 2);
        let write = |offset, handle| {
            let block = Source::Owned(Buffer::zeroed(64 << 10));
            runtime.run(device.write_placed(offset, block, WriteMode::Plain, PlacementHandle(handle)))
        };
        write(0, 2).expect("there is such a handle");
        for error in [write(0, 3), write(64 << 20, 0)] {
            assert!(matches!(error, Err(DeviceError::Io { .. })), "{error:?}");
        }
        assert!(runtime.run(device.resize(1 << 30)).is_err());
    }
}
