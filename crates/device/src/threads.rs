//! The fallback backend: blocking calls on a few threads. Works on every system with positional reads and writes.
//!
//! Threads are started on demand, up to a limit, and sleep while idle. They share the file with the operations that
//! they run, so it is closed, and its lock released, after the last operation.

use std::collections::VecDeque;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread::JoinHandle;

use parking_lot::{Condvar, Mutex};

use crate::file::DeviceFile;
use crate::runtime_threads::start_thread;
use crate::split_writes::pieces;
use crate::wake::wake;
use crate::{
    Buffer, Device, DeviceCounters, DeviceError, Geometry, OperationKind, Pending, Source, WriteMode,
};

pub(crate) struct ThreadDevice {
    file: Arc<DeviceFile>,
    pool: WorkPool,
}

impl ThreadDevice {
    pub(crate) fn new(file: Arc<DeviceFile>, threads_max: usize) -> Result<ThreadDevice, DeviceError> {
        let pool = WorkPool::new(threads_max).map_err(|source| DeviceError::open(&file.path, source))?;
        Ok(ThreadDevice { file, pool })
    }

    fn submit<T: Send + 'static>(&self, work: impl FnOnce(&DeviceFile) -> T + Send + 'static) -> Pending<T> {
        self.file.counters.submit_call();
        self.pool.submit(&self.file, work)
    }
}

impl Device for ThreadDevice {
    fn geometry(&self) -> Geometry {
        // The system calls take no placement handle.
        Geometry { placement_handles: 0, ..self.file.geometry() }
    }

    fn path(&self) -> String {
        self.file.path.to_string()
    }

    fn buffer(&self, bytes: usize) -> Buffer {
        Buffer::zeroed(bytes)
    }

    fn read(&self, offset: u64, mut buffer: Buffer) -> Pending<(Buffer, Result<(), DeviceError>)> {
        if let Err(error) = self.file.check(OperationKind::Read, offset, buffer.len() as u64) {
            return Pending::ready((buffer, Err(error)));
        }
        self.file.counters.read(buffer.len());
        self.submit(move |file| {
            let outcome = file.read(offset, &mut buffer);
            (buffer, outcome)
        })
    }

    fn write(&self, offset: u64, source: Source, mode: WriteMode) -> Pending<Result<(), DeviceError>> {
        if let Err(error) = self.file.check(OperationKind::Write, offset, source.len() as u64) {
            return Pending::ready(Err(error));
        }
        // Panics here, in the caller, if the range is not published.
        source.as_slice();
        self.file.counters.write(source.len());
        let (pending, completion) = Pending::new();
        let dsync = self.file.needs_dsync(mode);
        for piece in pieces(&self.file, source, offset, completion) {
            self.file.counters.submit_call();
            self.pool.run(Box::new(move || {
                let outcome = piece.write(dsync);
                if let Some(waker) = piece.end(outcome) {
                    wake(waker);
                }
            }));
        }
        pending
    }

    fn flush(&self) -> Pending<Result<(), DeviceError>> {
        self.file.counters.flush();
        self.submit(DeviceFile::flush)
    }

    fn discard(&self, offset: u64, bytes: u64) -> Pending<Result<(), DeviceError>> {
        if let Err(error) = self.file.check(OperationKind::Discard, offset, bytes) {
            return Pending::ready(Err(error));
        }
        self.file.counters.discard(bytes);
        self.submit(move |file| file.discard(offset, bytes))
    }

    fn allocate(&self, offset: u64, bytes: u64) -> Pending<Result<(), DeviceError>> {
        if let Err(error) = self.file.check(OperationKind::Allocate, offset, bytes) {
            return Pending::ready(Err(error));
        }
        self.file.counters.resize();
        self.submit(move |file| file.allocate(offset, bytes))
    }

    fn room_bytes(&self) -> Option<u64> {
        self.file.room_bytes()
    }

    fn resize(&self, bytes: u64) -> Pending<Result<(), DeviceError>> {
        self.file.counters.resize();
        self.submit(move |file| file.resize(bytes))
    }

    fn extend(&self, bytes: u64) -> Pending<Result<(), DeviceError>> {
        self.file.counters.resize();
        self.submit(move |file| file.extend(bytes))
    }

    fn set_write_unit(&self, bytes: u32) {
        self.file.set_unit_bytes(bytes);
    }

    fn counters(&self) -> DeviceCounters {
        self.file.counters.snapshot()
    }
}

type Job = Box<dyn FnOnce() + Send>;

/// Threads that run blocking calls. Dropping the pool waits for the calls that were submitted.
pub(crate) struct WorkPool {
    shared: Arc<JobQueue>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    threads_max: usize,
}

#[derive(Default)]
struct JobQueue {
    state: Mutex<Jobs>,
    changed: Condvar,
}

#[derive(Default)]
struct Jobs {
    jobs: VecDeque<Job>,
    idle: usize,
    closed: bool,
}

impl WorkPool {
    pub(crate) fn new(threads_max: usize) -> io::Result<WorkPool> {
        let pool =
            WorkPool { shared: Arc::default(), threads: Mutex::default(), threads_max: threads_max.max(1) };
        // One thread is started at once, because without any thread no operation would ever complete.
        pool.start(&mut pool.threads.lock())?;
        Ok(pool)
    }

    fn start(&self, threads: &mut Vec<JoinHandle<()>>) -> io::Result<()> {
        let shared = self.shared.clone();
        threads.push(start_thread("esker-io".into(), move || shared.run())?);
        Ok(())
    }

    /// Runs `work` on one of the threads. The file's counters count it as completed when it ends.
    pub(crate) fn submit<T: Send + 'static>(
        &self,
        file: &Arc<DeviceFile>,
        work: impl FnOnce(&DeviceFile) -> T + Send + 'static,
    ) -> Pending<T> {
        let (pending, completion) = Pending::new();
        let file = file.clone();
        self.run(Box::new(move || {
            let outcome = work(&file);
            file.counters.completed();
            // The file is released before the result is delivered, because otherwise a caller that drops the device on
            // the result would find it still locked.
            drop(file);
            completion.finish(outcome);
        }));
        pending
    }

    fn run(&self, job: Job) {
        let mut state = self.shared.state.lock();
        state.jobs.push_back(job);
        let all_busy = state.jobs.len() > state.idle;
        drop(state);
        self.shared.changed.notify_one();
        if all_busy {
            let mut threads = self.threads.lock();
            if threads.len() < self.threads_max {
                // If no further thread can be started, the running ones will take the job.
                self.start(&mut threads).ok();
            }
        }
    }
}

impl Drop for WorkPool {
    fn drop(&mut self) {
        self.shared.state.lock().closed = true;
        self.shared.changed.notify_all();
        for thread in self.threads.get_mut().drain(..) {
            // A device may be dropped by code that its completion wakes or frees, on one of these threads.
            if thread.thread().id() != std::thread::current().id() {
                thread.join().ok();
            }
        }
    }
}

impl JobQueue {
    fn run(&self) {
        let mut state = self.state.lock();
        loop {
            if let Some(job) = state.jobs.pop_front() {
                parking_lot::MutexGuard::unlocked(&mut state, || run(job));
                continue;
            }
            if state.closed {
                return;
            }
            state.idle += 1;
            self.changed.wait(&mut state);
            state.idle -= 1;
        }
    }
}

/// A panicking job must not end the thread: dead threads are not replaced, and without any thread no operation would
/// complete.
fn run(job: Job) {
    if catch_unwind(AssertUnwindSafe(job)).is_err() {
        tracing::error!("a blocking operation of a device panicked");
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::pin::pin;
    use std::sync::mpsc;
    use std::task::{Context, Wake};
    use std::time::Duration;

    use super::*;
    use crate::probe::Volume;

    struct Panics;

    impl Wake for Panics {
        fn wake(self: Arc<Self>) {
            panic!("as it is meant to");
        }
    }

    #[test]
    fn wakers_that_panic_end_no_thread() {
        let file = tempfile::tempfile().unwrap();
        let file = DeviceFile::new(file, "a file".into(), Geometry::memory(1 << 20), Volume::default());
        let (file, pool) = (Arc::new(file), WorkPool::new(2).unwrap());
        for _ in 0..5 {
            let ((began, begins), (go, waits)) = (mpsc::channel(), mpsc::channel());
            file.counters.flush();
            let work = move |_: &DeviceFile| began.send(()).is_ok() && waits.recv().is_ok();
            let mut pending = pin!(pool.submit(&file, work));
            assert_eq!(begins.recv_timeout(Duration::from_secs(10)), Ok(()), "a thread is left for it");
            let waker = Arc::new(Panics).into();
            assert!(pending.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
            go.send(()).unwrap();
        }
        file.counters.flush();
        assert_eq!(pool.submit(&file, |_| 7).wait(), 7);
    }
}
