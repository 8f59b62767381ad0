//! One test suite that every backend passes: io_uring and threads on a file, both buffered and direct, io_uring and
//! threads on a raw block device (a loop device, if the test may create one), and memory.

use std::future::poll_fn;
use std::path::Path;
use std::process::Command;
use std::sync::{Arc, mpsc};
use std::task::Poll;
use std::time::Duration;

use esker_device::{
    Backend, Buffer, Device, DeviceCounters, DeviceError, DeviceKind, Direct, MemoryDevice, OpenOptions,
    PlacementHandle, SegmentBuffer, Source, WriteMode, block_on, open,
};
use futures_util::future::{join, join_all};

const MIB: u64 = 1 << 20;

type Made = (Arc<dyn Device>, Vec<String>);

fn file_options(path: &Path, backend: Backend, direct: Direct) -> OpenOptions {
    OpenOptions::new(path).create(true).backend(backend).direct(direct)
}

fn pattern(seed: u64, buffer: &mut [u8]) {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    for chunk in buffer.chunks_mut(8) {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        chunk.copy_from_slice(&state.to_le_bytes()[..chunk.len()]);
    }
}

fn read(device: &dyn Device, offset: u64, bytes: usize) -> Buffer {
    let (buffer, outcome) = device.read(offset, device.buffer(bytes)).wait();
    outcome.unwrap();
    buffer
}

fn filled(device: &dyn Device, seed: u64, bytes: usize) -> Buffer {
    let mut buffer = device.buffer(bytes);
    pattern(seed, &mut buffer);
    buffer
}

/// The suite, on a device of at least 8 MiB.
fn conforms(device: &Arc<dyn Device>) {
    reads_back_what_was_written(&**device);
    refuses_bad_ranges(&**device);
    runs_many_at_once(&**device);
    long_ones_go_on_beside_short_reads(&**device);
    survives_dropped_answers(device);
    writes_from_a_segment_buffer(&**device);
    discards(&**device);
    attends_to_tasks(device);
    assert_eq!(device.counters().in_flight, 0);
}

fn reads_back_what_was_written(device: &dyn Device) {
    let geometry = device.geometry();
    let block = geometry.block_bytes as usize;
    let before = device.counters();
    // Registered slots, heap buffers, one block, and more than any slot.
    for (index, bytes) in
        [block, 4096, 12288, 65536, 65536 + block.max(4096), 256 << 10, 2 << 20].into_iter().enumerate()
    {
        for mode in [WriteMode::Plain, WriteMode::Durable] {
            for heap in [false, true] {
                let seed = index as u64 * 4 + u64::from(heap);
                let offset = 65536 + index as u64 * block as u64;
                let mut written = if heap { Buffer::zeroed(bytes) } else { device.buffer(bytes) };
                pattern(seed, &mut written);
                let copy = written.to_vec();
                device.write(offset, Source::Owned(written), mode).wait().unwrap();
                assert!(*read(device, offset, bytes) == *copy, "{bytes} bytes, {mode:?}, heap: {heap}");
            }
        }
    }
    device.flush().wait().unwrap();
    let (buffer, outcome) = device.read(0, Buffer::zeroed(0)).wait();
    outcome.unwrap();
    assert!(buffer.is_empty());
    let after = device.counters();
    assert_eq!(after.writes - before.writes, 28);
    assert_eq!(after.flushes - before.flushes, 1);
    assert_eq!(after.write_bytes - before.write_bytes, after.read_bytes - before.read_bytes);
}

fn refuses_bad_ranges(device: &dyn Device) {
    let geometry = device.geometry();
    let block = geometry.block_bytes as u64;
    // A waiter may be woken before the ring's thread counts its next turn.
    let counters = || DeviceCounters { submit_calls: 0, ..device.counters() };
    let before = counters();
    let (_, outcome) = device.read(1, Buffer::zeroed(block as usize)).wait();
    assert!(matches!(outcome, Err(DeviceError::Unaligned { offset: 1, .. })), "{outcome:?}");
    let outcome = device.write(0, Buffer::zeroed(block as usize - 1).into(), WriteMode::Plain).wait();
    assert!(matches!(outcome, Err(DeviceError::Unaligned { .. })), "{outcome:?}");
    let (_, outcome) = device.read(geometry.bytes, Buffer::zeroed(block as usize)).wait();
    assert!(matches!(outcome, Err(DeviceError::OutOfRange { .. })), "{outcome:?}");
    let outcome = device
        .write(u64::MAX / block * block, Buffer::zeroed(block as usize).into(), WriteMode::Plain)
        .wait();
    assert!(matches!(outcome, Err(DeviceError::OutOfRange { .. })), "{outcome:?}");
    assert!(device.discard(block / 2, block).wait().is_err());
    assert!(device.allocate(0, geometry.bytes + block).wait().is_err());
    assert_eq!(counters(), before, "what is refused is not counted");
}

fn runs_many_at_once(device: &dyn Device) {
    // More than the ring holds.
    const COUNT: u64 = 600;
    let writes = (0..COUNT).map(|index| {
        let mode = if index % 7 == 0 { WriteMode::Durable } else { WriteMode::Plain };
        device.write(index * 8192, filled(device, index, 8192).into(), mode)
    });
    for outcome in block_on(join_all(writes.collect::<Vec<_>>())) {
        outcome.unwrap();
    }
    let reads = (0..COUNT).rev().map(|index| device.read(index * 8192, device.buffer(8192)));
    for (index, (buffer, outcome)) in (0..COUNT).rev().zip(block_on(join_all(reads.collect::<Vec<_>>()))) {
        outcome.unwrap();
        assert!(*buffer == *filled(device, index, 8192), "block {index}");
    }
}

/// With io_uring, long operations are then submitted in pieces, and take turns.
fn long_ones_go_on_beside_short_reads(device: &dyn Device) {
    const LONG: usize = (1 << 20) + 12288;
    let place = |index: u64| (1 + 2 * index) * MIB;
    let shorts = async || {
        for _ in 0..100 {
            device.read(0, device.buffer(4096)).await.1.unwrap();
        }
    };
    block_on(async {
        // One is in flight when the long ones arrive.
        let first = device.read(0, device.buffer(4096));
        let writes =
            (0..3).map(|at| device.write(place(at), filled(device, at, LONG).into(), WriteMode::Plain));
        let writes = join_all(writes.collect::<Vec<_>>());
        for outcome in join(writes, shorts()).await.0 {
            outcome.unwrap();
        }
        first.await.1.unwrap();
        let reads = (0..3).map(|at| device.read_background(place(at), Buffer::zeroed(LONG)));
        let reads = join_all(reads.collect::<Vec<_>>());
        for (at, (buffer, outcome)) in join(reads, shorts()).await.0.into_iter().enumerate() {
            outcome.unwrap();
            assert!(*buffer == *filled(device, at as u64, LONG), "{at}");
        }
    });
}

fn survives_dropped_answers(device: &Arc<dyn Device>) {
    std::thread::scope(|scope| {
        for lane in 0..4u64 {
            scope.spawn(move || {
                for round in 0..50 {
                    let offset = lane * MIB + round * 4096;
                    drop(device.read(offset, device.buffer(4096)));
                    drop(device.write(offset, filled(&**device, round, 4096).into(), WriteMode::Plain));
                    // The slots of dropped operations must not be reused while the kernel still uses them.
                    let buffer = filled(&**device, lane + 1000, 4096);
                    std::thread::yield_now();
                    assert!(*buffer == *filled(&**device, lane + 1000, 4096));
                }
            });
        }
    });
    while device.counters().in_flight > 0 {
        std::thread::yield_now();
    }
    assert!(*read(&**device, MIB + 49 * 4096, 4096) == *filled(&**device, 49, 4096));
}

/// Completes after `times` polls, and wakes itself until then.
async fn wake_oneself(times: u32) {
    let mut left = times;
    poll_fn(|context| {
        left = left.saturating_sub(1);
        context.waker().wake_by_ref();
        if left == 0 { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
}

fn attends_to_tasks(device: &Arc<dyn Device>) {
    let has_thread = device.spawn_on_io_thread("nothing", Box::pin(async {})).is_none();
    assert_eq!(has_thread, device.geometry().backend == "io_uring");
    let (said, heard) = mpsc::channel();
    let (waits, waiting) = mpsc::channel();
    let (busy, reader) = (device.clone(), said.clone());
    // Woken by another thread, by completions, and by itself, both with and without operations in flight.
    let task = Box::pin(async move {
        let mut is_woken = false;
        poll_fn(|context| {
            if std::mem::replace(&mut is_woken, true) {
                return Poll::Ready(());
            }
            waits.send(context.waker().clone()).unwrap();
            Poll::Pending
        })
        .await;
        wake_oneself(1000).await;
        let here = std::thread::current();
        for round in 0..20 {
            let written = busy.write(0, filled(&*busy, round, 4096).into(), WriteMode::Durable).await;
            written.unwrap();
            let reading = busy.read(0, busy.buffer(4096));
            let (_, (buffer, outcome)) = join(wake_oneself(100), reading).await;
            outcome.unwrap();
            assert!(*buffer == *filled(&*busy, round, 4096));
            assert_eq!(std::thread::current().id(), here.id());
        }
        drop(busy);
        reader.send(here.name().map(str::to_owned)).unwrap();
    });
    let left = device.spawn_on_io_thread("test", task);
    std::thread::scope(|scope| {
        scope.spawn(move || waiting.recv().unwrap().wake());
        left.into_iter().for_each(block_on);
    });
    let name = heard.recv_timeout(Duration::from_secs(60)).expect("the task ends");
    assert!(!has_thread || name.as_deref() == Some("esker-uring"), "{name:?}");
    if has_thread {
        // A panic affects only its task, and a task that never ends does not prevent the device from being dropped.
        assert!(device.spawn_on_io_thread("panics", Box::pin(async { panic!("on purpose") })).is_none());
        assert!(device.spawn_on_io_thread("stays", Box::pin(std::future::pending())).is_none());
        let after = Box::pin(async move { said.send(None).unwrap() });
        assert!(device.spawn_on_io_thread("after", after).is_none());
        heard.recv_timeout(Duration::from_secs(60)).expect("the thread goes on");
    }
}

fn writes_from_a_segment_buffer(device: &dyn Device) {
    let mut appender = SegmentBuffer::anonymous(1 << 20).unwrap();
    let mut written = Vec::new();
    for frame in 0..20u8 {
        appender.reserve_header(64);
        appender.append(&[&[frame; 5000], &[frame ^ 0xFF; 100]]);
        let range = appender.close(&[frame | 0x80; 64], 4096);
        written.extend_from_slice(appender.buffer().slice(range.clone()));
        let source = Source::Shared { buffer: appender.buffer(), range: range.clone() };
        // The next frame is appended while this one is being written.
        let pending = device.write(range.start as u64, source, WriteMode::Durable);
        appender.append(&[]);
        pending.wait().unwrap();
    }
    assert!(*read(device, 0, written.len()) == *written);
    appender.recycle().expect("a completed write has let go of the buffer");
}

fn discards(device: &dyn Device) {
    device.write(2 * MIB, filled(device, 1, 65536).into(), WriteMode::Plain).wait().unwrap();
    device.write(2 * MIB + 65536, filled(device, 2, 65536).into(), WriteMode::Plain).wait().unwrap();
    device.discard(2 * MIB, 65536).wait().unwrap();
    assert!(
        *read(device, 2 * MIB + 65536, 65536) == *filled(device, 2, 65536),
        "only the range is discarded"
    );
    if device.geometry().kind == DeviceKind::File && device.geometry().discard {
        assert!(read(device, 2 * MIB, 65536).iter().all(|byte| *byte == 0));
    }
    let before = read(device, 2 * MIB, 131_072).to_vec();
    device.allocate(2 * MIB, 131_072).wait().unwrap();
    assert!(*read(device, 2 * MIB, 131_072) == *before, "what is there stays");
    device.write(2 * MIB, filled(device, 3, 65536).into(), WriteMode::Plain).wait().unwrap();
    assert!(*read(device, 2 * MIB, 65536) == *filled(device, 3, 65536));
}

fn resizes(device: &dyn Device) {
    let bytes = device.geometry().bytes;
    device.write(bytes - 4096, filled(device, 5, 4096).into(), WriteMode::Durable).wait().unwrap();
    device.resize(bytes + 4 * MIB).wait().unwrap();
    assert_eq!(device.geometry().bytes, bytes + 4 * MIB);
    assert!(*read(device, bytes - 4096, 4096) == *filled(device, 5, 4096));
    assert!(read(device, bytes, 4 << 20).iter().all(|byte| *byte == 0));
    device.extend(bytes).wait().unwrap();
    assert_eq!(device.geometry().bytes, bytes + 4 * MIB, "it is never made shorter");
    device.extend(bytes + 8 * MIB).wait().unwrap();
    assert_eq!(device.geometry().bytes, bytes + 8 * MIB);
    assert!(read(device, bytes, 8 << 20).iter().all(|byte| *byte == 0));
    device.resize(bytes).wait().unwrap();
    assert!(matches!(device.read(bytes, Buffer::zeroed(4096)).wait().1, Err(DeviceError::OutOfRange { .. })));
    assert!(matches!(device.resize(bytes + 1).wait(), Err(DeviceError::Invalid { .. })));
}

fn file_suite(backend: Backend, direct: Direct) {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = directory.path().join("device");
    assert!(open(OpenOptions::new(&path)).is_err(), "a missing file is created only when asked");
    let (device, warnings): Made = open(file_options(&path, backend, direct)).unwrap();
    assert_eq!(warnings, [""; 0]);
    assert_eq!(device.geometry().bytes, 0);
    assert_eq!(device.geometry().direct, direct == Direct::Require);
    device.resize(8 * MIB).wait().unwrap();
    conforms(&device);
    resizes(&*device);

    let error = open(file_options(&path, backend, direct)).unwrap_err();
    assert!(
        matches!(&error, DeviceError::Locked { .. }) && error.to_string().contains("this process"),
        "{error}"
    );
    device.write(0, filled(&*device, 9, 4096).into(), WriteMode::Plain).wait().unwrap();
    // Written but never awaited: it completes before the device is gone.
    drop(device.write(4096, filled(&*device, 10, 4096).into(), WriteMode::Plain));
    drop(device);
    for _ in 0..20 {
        let (device, _) =
            open(file_options(&path, backend, direct)).expect("the lock is free once the device is dropped");
        assert!(*read(&*device, 4096, 4096) == *filled(&*device, 10, 4096));
    }
}

#[test]
fn uring_on_a_file() {
    match probe_uring() {
        Ok(()) => {
            file_suite(Backend::Uring, Direct::Require);
            file_suite(Backend::Uring, Direct::Never);
        }
        Err(error) => eprintln!("SKIPPED: io_uring does not work here: {error}"),
    }
}

fn probe_uring() -> Result<(), DeviceError> {
    let file = tempfile::NamedTempFile::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    open(OpenOptions::new(file.path()).backend(Backend::Uring).direct(Direct::Never)).map(|_| ())
}

#[test]
fn threads_on_a_file() {
    file_suite(Backend::Threads, Direct::Require);
    file_suite(Backend::Threads, Direct::Never);
}

#[test]
fn a_small_ring_without_registered_memory() {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let mut options = file_options(&directory.path().join("device"), Backend::Auto, Direct::Auto);
    options.depth = 1;
    options.registered_bytes = 0;
    let (device, _) = open(options).unwrap();
    device.resize(8 * MIB).wait().unwrap();
    conforms(&device);
}

#[test]
fn memory_that_cannot_be_registered_is_a_warning() {
    if probe_uring().is_err() {
        eprintln!("SKIPPED: io_uring does not work here");
        return;
    }
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let mut options = file_options(&directory.path().join("device"), Backend::Uring, Direct::Auto);
    // The kernel registers no more than 1 GiB in one buffer.
    options.registered_bytes = 2 << 30;
    let (device, warnings) = open(options).unwrap();
    assert!(warnings.len() == 1 && warnings[0].contains("could not be registered"), "{warnings:?}");
    device.resize(8 * MIB).wait().unwrap();
    conforms(&device);
}

#[test]
fn memory() {
    let device = MemoryDevice::new(8 * MIB);
    let device: Arc<dyn Device> = Arc::new(device);
    conforms(&device);
    resizes(&*device);
}

#[test]
fn an_idle_device_uses_no_processor_time() {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    for backend in [Backend::Auto, Backend::Threads] {
        let (device, _) =
            open(file_options(&directory.path().join("device"), backend, Direct::Auto)).unwrap();
        device.resize(MIB).wait().unwrap();
        read(&*device, 0, 4096);
        #[expect(clippy::disallowed_methods, reason = "lets real time pass for real threads")]
        let sleep = || std::thread::sleep(std::time::Duration::from_millis(100));
        sleep();
        let before = device.counters();
        sleep();
        assert_eq!(device.counters(), before, "no system call while nothing is asked for");
    }
}

#[test]
fn paths_that_cannot_work_are_named() {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let error = open(OpenOptions::new(directory.path()).create(true)).unwrap_err();
    assert!(
        matches!(&error, DeviceError::Invalid { .. }) && error.to_string().contains("directory"),
        "{error}"
    );
    let missing = directory.path().join("missing/device");
    let error = open(OpenOptions::new(&missing).create(true)).unwrap_err();
    assert!(error.to_string().contains("missing/device"), "{error}");
    let error = open(OpenOptions::new("/dev/null")).unwrap_err();
    assert!(matches!(error, DeviceError::Invalid { .. }), "{error}");
}

#[test]
fn a_full_file_system_shows_when_the_file_grows() {
    let Some(mounted) = Mounted::tmpfs(2 * MIB) else {
        eprintln!("SKIPPED: a small tmpfs cannot be mounted here");
        return;
    };
    for backend in [Backend::Auto, Backend::Threads] {
        let options = file_options(&mounted.directory.path().join("device"), backend, Direct::Auto);
        let (device, _) = open(options).unwrap();
        device.resize(MIB).wait().unwrap();
        let error = device.resize(8 * MIB).wait().unwrap_err();
        assert!(matches!(error, DeviceError::Full { .. }), "{error}");
        assert_eq!(device.geometry().bytes, MIB);
        device.write(MIB - 4096, filled(&*device, 1, 4096).into(), WriteMode::Durable).wait().unwrap();
        assert!(
            *read(&*device, MIB - 4096, 4096) == *filled(&*device, 1, 4096),
            "what was stored is still there"
        );
    }
}

struct Mounted {
    directory: tempfile::TempDir,
}

impl Mounted {
    fn tmpfs(bytes: u64) -> Option<Mounted> {
        let directory = tempfile::tempdir().ok()?;
        let size = format!("size={bytes}");
        let mount =
            Command::new("mount").args(["-t", "tmpfs", "-o", &size, "none"]).arg(directory.path()).output();
        mount.ok().filter(|output| output.status.success())?;
        Some(Mounted { directory })
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        Command::new("umount").arg(self.directory.path()).status().ok();
    }
}

struct Loop {
    device: String,
    _file: tempfile::NamedTempFile,
}

impl Loop {
    fn new(bytes: u64) -> Option<Loop> {
        let file = tempfile::NamedTempFile::new_in(env!("CARGO_TARGET_TMPDIR")).ok()?;
        file.as_file().set_len(bytes).ok()?;
        let output = Command::new("losetup").args(["--find", "--show"]).arg(file.path()).output().ok()?;
        let device = String::from_utf8(output.stdout).ok()?.trim().to_owned();
        (output.status.success() && !device.is_empty()).then_some(Loop { device, _file: file })
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        Command::new("losetup").args(["--detach", &self.device]).status().ok();
    }
}

#[test]
fn raw_block_device() {
    let Some(disk) = Loop::new(16 * MIB) else {
        eprintln!("SKIPPED: losetup cannot make a block device here");
        return;
    };
    for backend in [Backend::Auto, Backend::Threads] {
        let options = || OpenOptions::new(&disk.device).backend(backend).direct(Direct::Require);
        let (device, warnings) = open(options()).unwrap();
        assert_eq!(warnings, [""; 0]);
        let geometry = device.geometry();
        assert_eq!((geometry.bytes, geometry.kind, geometry.direct), (16 * MIB, DeviceKind::Block, true));
        conforms(&device);
        // A handle that the device does not have is ignored.
        let block = Source::Owned(Buffer::zeroed(4096));
        assert_eq!(geometry.placement_handles, 0);
        device
            .write_placed(0, block, WriteMode::Durable, PlacementHandle(200))
            .wait()
            .expect("it is written");
        assert!(matches!(device.resize(32 * MIB).wait(), Err(DeviceError::Invalid { .. })));
        let error = open(options()).unwrap_err();
        assert!(matches!(error, DeviceError::Locked { .. }), "{error}");
        drop(device);
        for _ in 0..20 {
            open(options()).expect("a block device is free once it is dropped");
        }
    }
}
