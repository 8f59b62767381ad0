use super::super::UringDevice;
use super::super::operation::Request;
use super::*;
use crate::file::DeviceFile;
use crate::runtime_threads::start_thread;
use crate::threads::WorkPool;
use crate::{Buffer, Device, Pending, PlacementHandle};

const BLOCK: usize = 4096;

/// A device whose ring has failed, with `request` in flight.
fn failed(file: std::fs::File, request: impl FnOnce(&Arc<DeviceFile>) -> Option<Request>) -> UringDevice {
    let volume = crate::probe::Volume::default();
    let file = DeviceFile::new(file, "a file".into(), crate::Geometry::memory(1 << 20), volume);
    let shared = Arc::new(Shared::new(&Arc::new(file)).unwrap());
    let request = request(&shared.file);
    let reactor = {
        let shared = shared.clone();
        move || {
            let (ring, _) = Ring::new(shared.file.clone(), 4, 0).unwrap();
            let mut reactor = Reactor::new(shared, ring, 4);
            if let Some(request) = request {
                let number = reactor.in_flight.reserve().unwrap();
                reactor.push(Operation::new(request, 0, None), number);
            }
            reactor.fail(&io::Error::from_raw_os_error(libc::ENXIO));
        }
    };
    let reactor = Some(start_thread("a reactor".into(), reactor).unwrap());
    UringDevice { shared, pool: None, reactor, helper: WorkPool::new(1).unwrap() }
}

/// Whatever the reactor is doing when the device is dropped, it answers the requests queued before. Repeated many
/// times, because the test does not control which of the two comes first.
#[test]
fn a_device_that_failed_answers_until_it_is_dropped() {
    if super::super::try_uring().is_err() {
        eprintln!("SKIPPED: it needs io_uring");
        return;
    }
    for turn in 0..1000 {
        let device = failed(tempfile::tempfile().unwrap(), |_| None);
        let mut answers = Vec::new();
        for _ in 0..turn % 4 {
            answers.push(device.read(0, Buffer::zeroed(BLOCK)));
            std::thread::yield_now();
        }
        let flush = device.flush();
        drop(device);
        for answer in answers {
            let (buffer, outcome) = answer.wait();
            assert_eq!(buffer.len(), BLOCK);
            outcome.unwrap_err();
        }
        flush.wait().unwrap_err();
    }
}

/// The kernel may write to the file as long as the process lives, so no other opener may lock it during that time.
/// Abandoned reads do not affect other openers.
#[test]
fn a_write_that_is_abandoned_keeps_the_file_locked() {
    if super::super::try_uring().is_err() {
        eprintln!("SKIPPED: it needs io_uring");
        return;
    }
    for (is_write, stays_locked) in [(true, true), (false, false)] {
        let path = tempfile::NamedTempFile::new().unwrap().into_temp_path();
        let open = || std::fs::File::options().read(true).write(true).open(&path).unwrap();
        let file = open();
        assert!(crate::lock::try_lock(&file).unwrap());
        let (written, write_ends) = Pending::new();
        let (read, read_ends) = Pending::new();
        let device = failed(file, |file| {
            if !is_write {
                file.counters.read(BLOCK);
                return Some(Request::Read {
                    buffer: Buffer::zeroed(BLOCK),
                    behind: false,
                    completion: read_ends,
                });
            }
            file.counters.write(BLOCK);
            let mut pieces = crate::split_writes::pieces(file, Buffer::zeroed(BLOCK).into(), 0, write_ends);
            let piece = pieces.next().unwrap();
            Some(Request::Write { piece, dsync: false, handle: PlacementHandle(0) })
        });
        if is_write {
            written.wait().unwrap_err();
        } else {
            read.wait().1.unwrap_err();
        }
        drop(device);
        assert_eq!(crate::lock::try_lock(&open()).unwrap(), !stays_locked, "a write: {is_write}");
    }
}
