use super::super::UringDevice;
use super::*;
use crate::file::DeviceFile;
use crate::runtime_threads::start_thread;
use crate::threads::WorkPool;
use crate::{Buffer, Device};

const BLOCK: usize = 4096;

/// A device whose ring has failed.
fn failed() -> UringDevice {
    let file = tempfile::tempfile().unwrap();
    let volume = crate::probe::Volume::default();
    let file = DeviceFile::new(file, "a file".into(), crate::Geometry::memory(1 << 20), volume);
    let shared = Arc::new(Shared::new(&Arc::new(file)).unwrap());
    let reactor = {
        let shared = shared.clone();
        move || {
            let (ring, _) = Ring::new(&*shared.file, 4, 0).unwrap();
            Reactor::new(shared, ring, 4).fail(&io::Error::from_raw_os_error(libc::ENXIO));
        }
    };
    let reactor = Some(start_thread("a reactor".into(), reactor).unwrap());
    UringDevice { shared, pool: None, reactor, helper: WorkPool::new(1).unwrap() }
}

/// Whatever the reactor is at when the device is dropped, it answers what was queued before. Many times, as which of the two is
/// first is not decided here.
#[test]
fn a_device_that_failed_answers_until_it_is_dropped() {
    if super::super::try_uring().is_err() {
        eprintln!("SKIPPED: it needs io_uring");
        return;
    }
    for turn in 0..1000 {
        let device = failed();
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
