//! The io_uring backend: one reactor thread per device owns a ring, and other threads hand it requests. Short reads of
//! a thread that waits for them in [`block_on`](crate::block_on()) go to a ring of that thread instead: see [`own`].
//!
//! ```text
//! caller ── request ──► queue ──► reactor: SQEs, one submit_and_wait per loop ──► kernel
//!    ▲                              │
//!    └────── waker, in batches ◄────┘ completions
//! ```
//!
//! The reactor sleeps in the kernel whenever the queue is empty (or the ring is full). A caller that finds it asleep
//! rings a [`Bell`]: an eventfd that the ring polls. While the reactor is awake, handing it a request costs no system
//! call, and all requests queued meanwhile are submitted with one. The reactor does not spin before it sleeps: on two
//! virtual processors, a spin of 20 µs while operations were in flight gained at most 7 % of random reads, and took the
//! processor from the threads that use the data.
//!
//! Foreground operations do not queue behind megabytes of frames and relocation: see [`scheduler`].
//!
//! A task that mostly awaits one device's completions ([`Device::spawn_on_io_thread`]) runs on the reactor's thread,
//! because a hand-over to another thread and back costs as much as a short write.

mod operation;
mod reactor;
mod ring;
mod scheduler;
mod table;
mod thread_ring;
mod transient_errors;

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::sync::mpsc;
use std::thread::JoinHandle;

use async_task::Runnable;
use crossbeam_queue::SegQueue;
use rustix::event::{EventfdFlags, eventfd};
use rustix::fd::OwnedFd;

use self::operation::{Operation, Request};
use self::reactor::Reactor;
use self::ring::Ring;
pub use self::ring::try_uring;
use self::scheduler::Shorts;
pub(crate) use self::thread_ring::{block_on, outside_block_on};
use crate::buffer::Pool;
use crate::file::DeviceFile;
use crate::runtime_threads::{catching, start_thread};
use crate::split_writes::pieces;
use crate::threads::WorkPool;
use crate::{
    Buffer, Device, DeviceCounters, DeviceError, Geometry, OperationKind, Pending, PlacementHandle, Source,
    Task, WriteMode,
};

pub(crate) struct UringDevice {
    shared: Arc<Shared>,
    /// Slots of registered memory, if the kernel accepted the registration.
    pool: Option<Arc<Pool>>,
    reactor: Option<JoinHandle<()>>,
    /// Threads for calls that always block: discard, allocate and resize.
    helper: WorkPool,
}

/// State shared by callers and the reactor. The submitters bound the queued requests, and own the buffers until then.
pub(crate) struct Shared {
    pub(crate) file: Arc<DeviceFile>,
    queue: SegQueue<Operation>,
    shorts: Arc<Shorts>,
    /// Woken tasks of the reactor's thread.
    ready: SegQueue<Runnable>,
    bell: Bell,
    stopping: AtomicBool,
}

impl Shared {
    fn new(file: &Arc<DeviceFile>) -> io::Result<Shared> {
        Ok(Shared {
            file: file.clone(),
            queue: SegQueue::new(),
            shorts: Arc::new(Shorts::new()),
            ready: SegQueue::new(),
            bell: Bell::new()?,
            stopping: AtomicBool::new(false),
        })
    }
}

/// Wakes a thread that sleeps in its ring.
struct Bell {
    event: OwnedFd,
    asleep: AtomicBool,
}

impl Bell {
    fn new() -> io::Result<Bell> {
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Bell { event, asleep: AtomicBool::new(false) })
    }

    /// Called after a request was queued.
    fn ring(&self) {
        // With the fence in `fall_asleep`: either the reactor sees the request, or this thread sees that the reactor is
        // asleep.
        fence(Ordering::SeqCst);
        if self.asleep.load(Ordering::Relaxed) && self.asleep.swap(false, Ordering::Relaxed) {
            // Fails only if the counter is full, in which case the bell has been rung already.
            rustix::io::write(&self.event, &1u64.to_ne_bytes()).ok();
        }
    }

    /// Called by the reactor before its last check of the queues.
    fn fall_asleep(&self) {
        self.asleep.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    fn wake_up(&self) {
        self.asleep.store(false, Ordering::Relaxed);
    }

    /// Blocks until the bell rings, for a reactor whose ring has failed.
    fn wait(&self) {
        let mut polled = [rustix::event::PollFd::new(&self.event, rustix::event::PollFlags::IN)];
        rustix::event::poll(&mut polled, None).ok();
        self.silence();
    }

    /// Resets the bell, for a kernel that reports its level instead of each ring.
    fn silence(&self) {
        rustix::io::read(&self.event, &mut [0u8; 8]).ok();
    }
}

/// Aborts the process on a panic, because unwinding would free memory that the kernel still uses.
struct AbortOnUnwind;

impl Drop for AbortOnUnwind {
    fn drop(&mut self) {
        if std::thread::panicking() {
            std::process::abort();
        }
    }
}

impl UringDevice {
    /// Starts a reactor for `file`, with at most `depth` operations in flight. Also returns warnings for the operator.
    pub(crate) fn start(
        file: &Arc<DeviceFile>,
        depth: u32,
        registered_bytes: usize,
    ) -> io::Result<(UringDevice, Vec<String>)> {
        let helper = WorkPool::new(2)?;
        let shared = Arc::new(Shared::new(file)?);
        // A single-issuer ring belongs to the thread that creates it.
        let (report, outcome) = mpsc::sync_channel(1);
        let thread = start_thread("esker-uring".into(), {
            let shared = shared.clone();
            move || match Ring::new(shared.file.clone(), depth, registered_bytes) {
                Ok((ring, warnings)) => {
                    report.send(Ok((ring.pool(), warnings))).ok();
                    drop(report);
                    Reactor::new(shared, ring, depth).run();
                }
                Err(error) => {
                    drop(shared);
                    report.send(Err(error)).ok();
                }
            }
        })?;
        let (pool, warnings) = match outcome.recv() {
            Ok(Ok(made)) => made,
            Ok(Err(error)) => {
                thread.join().ok();
                return Err(error);
            }
            Err(_) => return Err(io::Error::other("the reactor thread ended before it had a ring")),
        };
        Ok((UringDevice { shared, pool, reactor: Some(thread), helper }, warnings))
    }

    fn submit(&self, request: Request, offset: u64) {
        self.queue(request, offset);
        self.shared.bell.ring();
    }

    fn queue(&self, request: Request, offset: u64) {
        self.shared.queue.push(Operation::new(request, offset, self.pool.as_ref()));
    }

    fn submit_read(
        &self,
        offset: u64,
        buffer: Buffer,
        behind: bool,
    ) -> Pending<(Buffer, Result<(), DeviceError>)> {
        if let Err(error) = self.file().check(OperationKind::Read, offset, buffer.len() as u64) {
            return Pending::ready((buffer, Err(error)));
        }
        self.file().counters.read(buffer.len());
        let (pending, completion) = Pending::new();
        let operation =
            Operation::new(Request::Read { buffer, behind, completion }, offset, self.pool.as_ref());
        if let Err(operation) = thread_ring::submit(&self.shared, operation) {
            self.shared.queue.push(operation);
            self.shared.bell.ring();
        }
        pending
    }

    fn file(&self) -> &Arc<DeviceFile> {
        &self.shared.file
    }
}

impl Device for UringDevice {
    fn geometry(&self) -> Geometry {
        Geometry { backend: "io_uring", ..self.file().geometry() }
    }

    fn path(&self) -> String {
        self.file().path.to_string()
    }

    fn buffer(&self, bytes: usize) -> Buffer {
        self.pool.as_ref().and_then(|pool| pool.take(bytes)).unwrap_or_else(|| Buffer::zeroed(bytes))
    }

    fn read(&self, offset: u64, buffer: Buffer) -> Pending<(Buffer, Result<(), DeviceError>)> {
        self.submit_read(offset, buffer, false)
    }

    fn read_background(&self, offset: u64, buffer: Buffer) -> Pending<(Buffer, Result<(), DeviceError>)> {
        self.submit_read(offset, buffer, true)
    }

    fn write(&self, offset: u64, source: Source, mode: WriteMode) -> Pending<Result<(), DeviceError>> {
        self.write_placed(offset, source, mode, PlacementHandle::default())
    }

    fn write_placed(
        &self,
        offset: u64,
        source: Source,
        mode: WriteMode,
        handle: PlacementHandle,
    ) -> Pending<Result<(), DeviceError>> {
        // Panics here, in the caller, if the range is not published.
        let bytes = source.as_slice().len();
        if let Err(error) = self.file().check(OperationKind::Write, offset, bytes as u64) {
            return Pending::ready(Err(error));
        }
        self.file().counters.write(bytes);
        let (pending, completion) = Pending::new();
        let dsync = self.file().needs_dsync(mode);
        // The kernel refuses a handle that the device does not have.
        let is_there = handle.0 <= self.file().geometry().placement_handles;
        let handle = if is_there { handle } else { PlacementHandle::default() };
        for piece in pieces(self.file(), source, offset, completion) {
            let at = piece.offset();
            self.queue(Request::Write { piece, dsync, handle }, at);
        }
        self.shared.bell.ring();
        pending
    }

    fn flush(&self) -> Pending<Result<(), DeviceError>> {
        self.file().counters.flush();
        let (pending, completion) = Pending::new();
        self.submit(Request::Flush { completion }, 0);
        pending
    }

    fn discard(&self, offset: u64, bytes: u64) -> Pending<Result<(), DeviceError>> {
        if let Err(error) = self.file().check(OperationKind::Discard, offset, bytes) {
            return Pending::ready(Err(error));
        }
        self.file().counters.discard(bytes);
        self.helper.submit(self.file(), move |file| file.discard(offset, bytes))
    }

    fn allocate(&self, offset: u64, bytes: u64) -> Pending<Result<(), DeviceError>> {
        if let Err(error) = self.file().check(OperationKind::Allocate, offset, bytes) {
            return Pending::ready(Err(error));
        }
        self.file().counters.resize();
        self.helper.submit(self.file(), move |file| file.allocate(offset, bytes))
    }

    fn room_bytes(&self) -> Option<u64> {
        self.file().room_bytes()
    }

    fn resize(&self, bytes: u64) -> Pending<Result<(), DeviceError>> {
        self.file().counters.resize();
        self.helper.submit(self.file(), move |file| file.resize(bytes))
    }

    fn extend(&self, bytes: u64) -> Pending<Result<(), DeviceError>> {
        self.file().counters.resize();
        self.helper.submit(self.file(), move |file| file.extend(bytes))
    }

    fn set_write_unit(&self, bytes: u32) {
        self.file().set_unit_bytes(bytes);
    }

    fn counters(&self) -> DeviceCounters {
        self.file().counters.snapshot()
    }

    fn spawn_on_io_thread(&self, name: &'static str, task: Task) -> Option<Task> {
        // A weak reference, because `shared` keeps the tasks.
        let shared = Arc::downgrade(&self.shared);
        let schedule = move |runnable| {
            if let Some(shared) = shared.upgrade() {
                shared.ready.push(runnable);
                shared.bell.ring();
            }
        };
        let (runnable, handle) = async_task::spawn(catching(name, task), schedule);
        handle.detach();
        runnable.schedule();
        None
    }
}

impl Drop for UringDevice {
    fn drop(&mut self) {
        // No further request can be queued. The reactor completes those queued and in flight, and ends.
        self.shared.stopping.store(true, Ordering::Release);
        self.shared.bell.ring();
        if let Some(thread) = self.reactor.take() {
            // A device may be dropped by code that its completion wakes or frees, on the reactor.
            if thread.thread().id() != std::thread::current().id() {
                thread.join().ok();
            }
        }
    }
}
