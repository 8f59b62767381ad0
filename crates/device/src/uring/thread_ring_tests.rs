use std::collections::HashSet;
use std::future::poll_fn;
use std::io::Write;
use std::pin::Pin;
use std::sync::atomic::AtomicUsize;
use std::thread::ThreadId;
use std::time::Duration;

use futures_util::future::{join, join_all};
use parking_lot::Mutex;

use super::super::operation::Request;
use super::*;
use crate::file::DeviceFile;
use crate::{Backend, Buffer, Device, OpenOptions, Runtime, Threads, WriteMode};

const BLOCK: usize = 4096;
const BLOCKS: usize = 512;

/// A device on which each block begins with its number.
fn device(directory: &tempfile::TempDir) -> Option<Arc<dyn Device>> {
    if super::super::try_uring().is_err() {
        eprintln!("SKIPPED: it needs io_uring");
        return None;
    }
    let options = OpenOptions::new(directory.path().join("device")).backend(Backend::Uring).create(true);
    let (device, _) = crate::open(options).unwrap();
    device.resize((BLOCK * BLOCKS) as u64).wait().unwrap();
    let mut all = Buffer::zeroed(BLOCK * BLOCKS);
    for block in 0..BLOCKS {
        all[block * BLOCK..][..8].copy_from_slice(&block.to_le_bytes());
    }
    device.write(0, all.into(), WriteMode::Plain).wait().unwrap();
    Some(device)
}

async fn read(device: &dyn Device, block: usize) {
    let (buffer, outcome) = device.read((block * BLOCK) as u64, Buffer::zeroed(BLOCK)).await;
    outcome.unwrap();
    assert_eq!(buffer[..8], block.to_le_bytes());
}

/// Submits enough reads for the thread's ring to be created.
async fn begin(device: &dyn Device) {
    for block in 0..=READS_BEFORE as usize {
        read(device, block).await;
    }
}

/// Records the threads that woke it.
struct Noting {
    waker: Waker,
    threads: Arc<Mutex<HashSet<ThreadId>>>,
}

impl Wake for Noting {
    fn wake(self: Arc<Self>) {
        self.threads.lock().insert(std::thread::current().id());
        self.waker.wake_by_ref();
    }
}

#[test]
fn reads_pass_to_no_other_thread() {
    let directory = tempfile::tempdir().unwrap();
    let Some(device) = device(&directory) else { return };
    let threads: Arc<Mutex<HashSet<ThreadId>>> = Arc::default();
    block_on(async {
        begin(&*device).await;
        for block in 0..100 {
            let mut reading = pin!(read(&*device, block));
            poll_fn(|context| {
                let noting = Noting { waker: context.waker().clone(), threads: threads.clone() };
                reading.as_mut().poll(&mut Context::from_waker(&Arc::new(noting).into()))
            })
            .await;
        }
    });
    assert_eq!(*threads.lock(), HashSet::from([std::thread::current().id()]));
}

/// Otherwise the device would be idle while the thread processes results.
#[test]
fn reads_beside_others_are_submitted_at_once() {
    let directory = tempfile::tempdir().unwrap();
    let Some(device) = device(&directory) else { return };
    let calls = || device.counters().submit_calls;
    block_on(async {
        begin(&*device).await;
        let before = calls();
        let mut reads = pin!(join_all((0..8).map(|block| read(&*device, block))));
        assert!(poll_fn(|context| Poll::Ready(reads.as_mut().poll(context))).await.is_pending());
        assert_eq!(calls() - before, 7, "the first goes with the second");
        reads.await;
        let before = calls();
        read(&*device, 0).await;
        assert_eq!(calls() - before, 1, "one alone goes with the wait");
    });
}

#[test]
fn more_than_the_ring_holds() {
    let directory = tempfile::tempdir().unwrap();
    let Some(device) = device(&directory) else { return };
    block_on(async {
        begin(&*device).await;
        for _ in 0..20 {
            join_all((0..BLOCKS).map(|block| read(&*device, block))).await;
        }
    });
    assert_eq!(device.counters().in_flight, 0);
}

/// While a read is in flight the thread sleeps in the kernel, and wake-ups by other threads must reach it.
#[test]
fn others_wake_the_thread() {
    let directory = tempfile::tempdir().unwrap();
    let Some(device) = device(&directory) else { return };
    let runtime = Threads::new(2).unwrap();
    // A read of a pipe takes until another thread writes to it.
    let (end, mut other_end) = std::io::pipe().unwrap();
    let volume = crate::probe::Volume::default();
    let pipe = std::fs::File::from(std::os::fd::OwnedFd::from(end));
    let pipe = DeviceFile::new(pipe, "a pipe".into(), crate::Geometry::memory(1 << 20), volume);
    let shared = Arc::new(Shared::new(&Arc::new(pipe)).unwrap());
    block_on(async {
        begin(&*device).await;
        for turn in 0..1000 {
            let (slow, completion) = crate::Pending::new();
            let request = Request::Read { buffer: Buffer::zeroed(BLOCK), behind: false, completion };
            shared.file.counters.read(BLOCK);
            assert!(submit(&shared, Operation::new(request, 0, None)).is_ok());
            let (told, completion) = crate::Pending::new();
            let sleep = runtime.sleep(Duration::from_millis(u64::from(turn % 100 == 0)));
            let tell = async move {
                sleep.await;
                completion.finish(turn);
            };
            runtime.spawn("a test", Box::pin(tell));
            assert_eq!(told.await, turn);
            other_end.write_all(&[1; BLOCK]).unwrap();
            slow.await.1.unwrap();
        }
    });
}

/// The thread polls its ring even while the future always has more work.
#[test]
fn a_future_that_wakes_itself_keeps_no_read_waiting() {
    let directory = tempfile::tempdir().unwrap();
    let Some(device) = device(&directory) else { return };
    block_on(async {
        begin(&*device).await;
        for block in 0..10 {
            let is_read = Cell::new(false);
            let reading = async {
                read(&*device, block).await;
                is_read.set(true);
            };
            let busy = async {
                // About a minute.
                for _ in 0..60_000_000 {
                    if is_read.get() {
                        return;
                    }
                    futures_lite::future::yield_now().await;
                }
                panic!("the read does not end");
            };
            join(reading, busy).await;
        }
    });
}

/// As a set of futures does. With a turn of the ring for each self-wake, each read would take two system calls.
#[test]
fn a_future_that_wakes_itself_once_costs_no_turn() {
    let directory = tempfile::tempdir().unwrap();
    let Some(device) = device(&directory) else { return };
    let unsubmitted = || OWN.with(|own| own.ring.borrow_mut().as_mut().unwrap().ring.submission().len());
    block_on(async {
        begin(&*device).await;
        let reading = begun(&*device);
        let mut seen = Vec::new();
        poll_fn(|context| {
            seen.push(unsubmitted());
            if seen.len() < 3 {
                context.waker().wake_by_ref();
                return Poll::Pending;
            }
            Poll::Ready(())
        })
        .await;
        assert_eq!(seen, [1, 1, 0], "the second time it is submitted");
        reading.await.1.unwrap();
    });
}

/// A thread that leaves `block_on` leaves no operation on its ring, because no thread would reap it.
#[test]
fn operation_in_flight_completes_before_thread_leaves_ring() {
    let directory = tempfile::tempdir().unwrap();
    let Some(device) = device(&directory) else { return };
    for _ in 0..50 {
        let pending = block_on(async {
            begin(&*device).await;
            let mut pending: Vec<_> =
                (0..20).map(|block| device.read((block * BLOCK) as u64, Buffer::zeroed(BLOCK))).collect();
            poll_fn(|context| {
                for pending in &mut pending {
                    let _ = Pin::new(pending).poll(context);
                }
                Poll::Ready(())
            })
            .await;
            pending.pop()
        });
        assert_eq!(device.counters().in_flight, 0);
        let (buffer, outcome) =
            std::thread::scope(|scope| scope.spawn(|| pending.unwrap().wait()).join().unwrap());
        outcome.unwrap();
        assert_eq!(buffer[..8], 19usize.to_le_bytes());
    }
    drop(device);
    // The file is closed, and so its lock is free.
    let again = OpenOptions::new(directory.path().join("device")).backend(Backend::Uring);
    crate::open(again).unwrap();
}

#[test]
fn a_future_that_panics_leaves_nothing_in_flight() {
    let directory = tempfile::tempdir().unwrap();
    let Some(device) = device(&directory) else { return };
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        block_on(async {
            begin(&*device).await;
            let _pending = device.read(0, Buffer::zeroed(BLOCK));
            panic!("as it is meant to");
        })
    }));
    assert!(panicked.is_err());
    assert_eq!(device.counters().in_flight, 0);
    block_on(read(&*device, 7));
}

/// Asserts that `work` on a device ends, in `block_on` on a thread that has a ring.
fn ends_within_block_on<W: Future<Output = ()>>(work: impl FnOnce(Arc<dyn Device>) -> W + Send + 'static) {
    let directory = tempfile::tempdir().unwrap();
    let Some(device) = device(&directory) else { return };
    let (done, is_done) = std::sync::mpsc::channel();
    let thread = crate::runtime_threads::start_thread("a test".into(), move || {
        block_on(async {
            begin(&*device).await;
            work(device).await;
        });
        done.send(()).ok();
    });
    is_done.recv_timeout(Duration::from_secs(20)).expect("it ends");
    thread.unwrap().join().unwrap();
}

fn begun(device: &dyn Device) -> crate::Pending<(Buffer, Result<(), crate::DeviceError>)> {
    device.read(0, Buffer::zeroed(BLOCK))
}

#[test]
fn a_read_that_is_waited_for_within_block_on_ends() {
    ends_within_block_on(|device| async move {
        let before = begun(&*device);
        begun(&*device).wait().1.unwrap();
        before.wait().1.unwrap();
    });
}

#[test]
fn one_within_another_waits_for_what_the_other_began() {
    ends_within_block_on(|device| async move {
        let (first, second, third) = (begun(&*device), begun(&*device), begun(&*device));
        block_on(first).1.unwrap();
        block_on(async { block_on(second) }).1.unwrap();
        third.await.1.unwrap();
    });
}

/// A completion during the inner wait may be the one that the outer future waits for.
#[test]
fn one_within_another_wakes_the_other() {
    ends_within_block_on(|device| async move {
        for _ in 0..100 {
            let mut outer = begun(&*device);
            assert!(poll_fn(|context| Poll::Ready(Pin::new(&mut outer).poll(context))).await.is_pending());
            let nested = async {
                // On another thread, so that the ring is reaped for the outer future only.
                let (told, completion) = crate::Pending::new();
                let tell = async move {
                    futures_lite::future::yield_now().await;
                    completion.finish(());
                };
                block_on(join(told, tell));
                for _ in 0..3 {
                    block_on(read(&*device, 3));
                }
            };
            join(outer, nested).await.0.1.unwrap();
        }
    });
}

#[test]
fn code_outside_waits_as_it_likes() {
    ends_within_block_on(|device| async move {
        let before = begun(&*device);
        let outcome = super::outside_block_on(|| futures_lite::future::block_on(begun(&*device)).1);
        outcome.unwrap();
        // A nested `block_on` of this crate leaves no unreaped operation behind.
        let pending = super::outside_block_on(|| {
            let mut pending = Vec::new();
            block_on(async { pending.extend((0..3).map(|_| begun(&*device))) });
            pending.into_iter().for_each(|pending| futures_lite::future::block_on(pending).1.unwrap());
            begun(&*device)
        });
        join(before, pending).await.0.1.unwrap();
        assert!(OWN.with(|own| own.is_waiting.get() && own.depth.get() == 1));
    });
}

#[test]
fn one_within_another() {
    let directory = tempfile::tempdir().unwrap();
    let Some(device) = device(&directory) else { return };
    let inner = AtomicUsize::new(0);
    block_on(async {
        begin(&*device).await;
        for block in 0..100 {
            let outer = read(&*device, block);
            let nested = async {
                block_on(join_all((0..10).map(|block| read(&*device, block))));
                inner.fetch_add(1, Ordering::Relaxed);
            };
            join(outer, nested).await;
        }
        read(&*device, 5).await;
    });
    assert_eq!(inner.into_inner(), 100);
}

#[test]
fn many_threads_at_once() {
    let directory = tempfile::tempdir().unwrap();
    let Some(device) = device(&directory) else { return };
    std::thread::scope(|scope| {
        for thread in 0..8 {
            let device = &device;
            scope.spawn(move || {
                block_on(async {
                    for turn in 0..100 {
                        let blocks = (0..8).map(|n| (thread * 61 + turn * 13 + n) % BLOCKS);
                        join_all(blocks.map(|block| read(&**device, block))).await;
                    }
                });
            });
        }
    });
    assert_eq!(device.counters().in_flight, 0);
}
