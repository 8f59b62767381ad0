//! A ring that fits this kernel: flags, opcodes and registrations are tried, best first.
#![expect(unsafe_code, reason = "the kernel is handed the address of the slab and of every transfer")]

use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::Arc;

use io_uring::{IoUring, Probe, cqueue, opcode, squeue, types};

use super::operation::Operation;
use super::transient_errors::is_passing;
use crate::buffer::Pool;
use crate::file::{DeviceFile, RETRIES_MAX};

/// The pool's slab is the only registered buffer.
pub(super) const SLAB_INDEX: u16 = 0;

pub(super) struct Ring {
    ring: IoUring,
    /// Not registered: a registered file stays open until the ring is torn down, some 30 ms after its process was
    /// killed, and until then no other process can lock it. An operation in flight keeps it open and locked too.
    file: Arc<DeviceFile>,
    /// Kept while it is registered.
    pool: Option<Arc<Pool>>,
}

impl Ring {
    /// Returns a ring for `depth` operations in flight on `file`. Also returns warnings for the operator.
    pub(super) fn new(
        file: Arc<DeviceFile>,
        depth: u32,
        registered_bytes: usize,
    ) -> io::Result<(Ring, Vec<String>)> {
        // Room for every operation and the bell, so that a push never fails.
        let entries = (depth + 1).next_power_of_two();
        let ring = build(entries)?;
        let mut probe = Probe::new();
        ring.submitter().register_probe(&mut probe)?;
        let needed = [
            opcode::Read::CODE,
            opcode::Write::CODE,
            opcode::ReadFixed::CODE,
            opcode::WriteFixed::CODE,
            opcode::Fsync::CODE,
            opcode::PollAdd::CODE,
        ];
        if let Some(missing) = needed.iter().find(|code| !probe.is_supported(**code)) {
            return Err(io::Error::new(
                io::ErrorKind::Unsupported,
                format!("this kernel lacks io_uring opcode {missing}"),
            ));
        }
        if !ring.params().is_feature_nodrop() {
            return Err(io::Error::new(
                io::ErrorKind::Unsupported,
                "this kernel's io_uring drops completions",
            ));
        }
        let mut warnings = Vec::new();
        let pool = register_slab(&ring, registered_bytes).unwrap_or_else(|error| {
            warnings.push(format!(
                "{registered_bytes} bytes of memory could not be registered with the kernel ({error}); \
                 I/O goes on with ordinary memory, at some cost (is RLIMIT_MEMLOCK too low?)"
            ));
            None
        });
        Ok((Ring { ring, file, pool }, warnings))
    }

    pub(super) fn pool(&self) -> Option<Arc<Pool>> {
        self.pool.clone()
    }

    /// Queues the remainder of an operation, limited to `most_bytes` bytes, under `number`.
    ///
    /// # Safety
    ///
    /// The operation is kept until a completion with its number has been seen, or for ever.
    pub(super) unsafe fn push(&mut self, operation: &mut Operation, most_bytes: usize, number: u64) {
        let entry = operation.entry(self.file.as_raw_fd(), most_bytes).user_data(number);
        // SAFETY: the entry points into memory that the operation owns, which by the contract exists for as long as the
        // kernel may use it; the file is open while the ring exists, and the kernel keeps it for reads and writes in
        // flight.
        unsafe { self.push_entry(&entry) };
    }

    /// Requests a completion with `number` whenever `bell` becomes readable (`every`), or once.
    pub(super) fn push_poll(&mut self, bell: RawFd, every: bool, number: u64) {
        let entry =
            opcode::PollAdd::new(types::Fd(bell), libc::POLLIN as u32).multi(every).build().user_data(number);
        // SAFETY: a poll refers to no memory. The descriptor is that of the reactor's own bell; were it closed, the
        // poll would fail and nothing more.
        unsafe { self.push_entry(&entry) };
    }

    /// # Safety
    ///
    /// The memory that the entry points to is valid until its completion has been seen.
    unsafe fn push_entry(&mut self, entry: &squeue::Entry) {
        // SAFETY: by the contract.
        let pushed = unsafe { self.ring.submission().push(entry) };
        pushed.expect("the submission queue has room for every operation in flight and the bell");
    }

    /// Submits everything that was pushed and waits for a completion.
    pub(super) fn submit_and_wait(&self) -> io::Result<usize> {
        self.ring.submit_and_wait(1)
    }

    /// Moves all available completions to `batch`.
    pub(super) fn reap(&mut self, batch: &mut Vec<cqueue::Entry>) {
        let mut completions = self.ring.completion();
        batch.extend(&mut completions);
        assert_eq!(completions.overflow(), 0, "the completion queue has room for every operation in flight");
    }
}

/// Checks that io_uring works: containers and administrators disable it.
///
/// # Errors
/// The kernel's error.
pub fn try_uring() -> io::Result<()> {
    build(2).map(drop)
}

/// Returns a ring that has completed an operation. Some seccomp profiles allow creating a ring but not using it.
pub(super) fn build(entries: u32) -> io::Result<IoUring> {
    let mut ring = set_up(entries)?;
    prove(&mut ring)?;
    Ok(ring)
}

/// Makes the kernel complete a no-op.
fn prove(ring: &mut IoUring) -> io::Result<()> {
    // SAFETY: it refers to no memory.
    let pushed = unsafe { ring.submission().push(&opcode::Nop::new().build()) };
    pushed.map_err(io::Error::other)?;
    for _ in 0..RETRIES_MAX {
        match ring.submit_and_wait(1) {
            Err(error) if !is_passing(&error) => return Err(error),
            // An interrupted call may have submitted it.
            _ => {}
        }
        if let Some(completion) = ring.completion().next() {
            return match completion.result() {
                0 => Ok(()),
                result => Err(io::Error::from_raw_os_error(result.wrapping_neg())),
            };
        }
    }
    Err(io::Error::other("io_uring completes nothing"))
}

/// Creates a ring with the best flags that the kernel supports.
fn set_up(entries: u32) -> io::Result<IoUring> {
    let completions = entries * 4;
    // Best first: completions run only when this thread asks for them, without interrupts; else at its next system
    // call; else at any time.
    let best = IoUring::builder()
        .setup_cqsize(completions)
        .setup_submit_all()
        .setup_single_issuer()
        .setup_defer_taskrun()
        .build(entries);
    best.or_else(|_| {
        IoUring::builder().setup_cqsize(completions).setup_submit_all().setup_coop_taskrun().build(entries)
    })
    .or_else(|_| IoUring::builder().setup_cqsize(completions).build(entries))
}

fn register_slab(ring: &IoUring, bytes: usize) -> io::Result<Option<Arc<Pool>>> {
    if bytes == 0 {
        return Ok(None);
    }
    let pool = Pool::new(bytes)?;
    let (start, len) = pool.slab();
    let slab = libc::iovec { iov_base: start.cast(), iov_len: len };
    // SAFETY: the slab is mapped for as long as the pool exists. The kernel pins its pages, so even a transfer that
    // outlived the mapping would not reach reused memory. No transfer outlives it, because an operation owns its
    // buffer, and the buffer its pool.
    unsafe { ring.submitter().register_buffers(&[slab])? };
    Ok(Some(pool))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::OpenOptionsExt;
    use std::path::Path;
    use std::process::Command;

    use super::super::operation::Request;
    use super::*;
    use crate::{Buffer, Geometry, Pending, PlacementHandle, Source};

    struct Loop {
        device: String,
        _file: tempfile::NamedTempFile,
    }

    impl Loop {
        fn new() -> Option<Loop> {
            let file = tempfile::NamedTempFile::new().ok()?;
            file.as_file().set_len(1 << 20).ok()?;
            let output = Command::new("losetup").args(["--find", "--show"]).arg(file.path()).output().ok()?;
            let device = String::from_utf8(output.stdout).ok()?.trim().to_owned();
            (output.status.success() && !device.is_empty()).then_some(Loop { device, _file: file })
        }

        /// True if the kernel supports placement handles (its name: write streams), and the device has none.
        fn has_no_handles(&self) -> bool {
            let name = Path::new(&self.device).file_name().map(|name| name.to_string_lossy().into_owned());
            let path = format!("/sys/block/{}/queue/max_write_streams", name.unwrap_or_default());
            std::fs::read_to_string(path).is_ok_and(|text| text.trim() == "0")
        }
    }

    impl Drop for Loop {
        fn drop(&mut self) {
            Command::new("losetup").args(["--detach", &self.device]).status().ok();
        }
    }

    /// Writes a block with a placement handle. Returns the kernel's result.
    fn written(device: &str, handle: u8) -> i32 {
        let mut options = std::fs::OpenOptions::new();
        let file = options.read(true).write(true).custom_flags(libc::O_DIRECT).open(device);
        let file = file.expect("it is there");
        let volume = crate::probe::Volume::default();
        let file = Arc::new(DeviceFile::new(file, device.into(), Geometry::memory(1 << 20), volume));
        let (mut ring, _) = Ring::new(file.clone(), 4, 0).expect("there is a ring");
        let source = Source::Owned(Buffer::zeroed(4096));
        file.counters.write(4096);
        let mut pieces = crate::split_writes::pieces(&file, source, 0, Pending::new().1);
        let piece = pieces.next().expect("it has one");
        let request = Request::Write { piece, dsync: false, handle: PlacementHandle(handle) };
        let mut operation = Operation::new(request, 0, None);
        // SAFETY: the operation lives until its completion was seen, a few lines below.
        unsafe { ring.push(&mut operation, 4096, 1) };
        ring.submit_and_wait().expect("it is submitted");
        let mut seen = Vec::new();
        ring.reap(&mut seen);
        drop(operation.complete(Ok(()), &file));
        seen[0].result()
    }

    /// Forbids this thread, and threads that it starts, to use a ring. As some container profiles do, it allows
    /// creating one.
    fn forbid_to_enter_rings() -> io::Result<()> {
        let step = |code, k, jt| libc::sock_filter { code: code as u16, jt, jf: 0, k };
        let give = |what| step(libc::BPF_RET | libc::BPF_K, what, 0);
        // The system call number is the first word of the filter's input.
        let steps = [
            step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0),
            libc::sock_filter {
                jf: 1,
                ..step(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, libc::SYS_io_uring_enter as u32, 0)
            },
            give(libc::SECCOMP_RET_ERRNO | libc::EPERM as u32),
            give(libc::SECCOMP_RET_ALLOW),
        ];
        let program = libc::sock_fprog { len: steps.len() as u16, filter: steps.as_ptr().cast_mut() };
        // SAFETY: both calls take numbers, and the address of a program that lives until they return.
        let outcome = unsafe {
            libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
                | libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program)
        };
        if outcome == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    #[test]
    fn a_ring_that_may_be_made_and_not_used_is_found_out() {
        if try_uring().is_err() {
            eprintln!("SKIPPED: it needs io_uring");
            return;
        }
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("device");
        let without = || {
            if let Err(error) = forbid_to_enter_rings() {
                eprintln!("SKIPPED: no seccomp: {error}");
                return;
            }
            assert_eq!(try_uring().map_err(|error| error.raw_os_error()), Err(Some(libc::EPERM)));
            let options = crate::OpenOptions::new(&path).create(true);
            let (device, warnings) = crate::open(options.clone()).expect("threads do");
            assert_eq!(device.geometry().backend, "threads");
            assert!(
                warnings.iter().any(|warning| warning.contains("io_uring does not work")),
                "{warnings:?}"
            );
            drop(device);
            crate::open(options.backend(crate::Backend::Uring)).map(drop).expect_err("it is required");
        };
        std::thread::scope(|scope| scope.spawn(without).join().expect("it holds"));
    }

    #[test]
    fn the_kernel_sees_the_handle_of_a_write() {
        let Some(disk) = Loop::new().filter(Loop::has_no_handles) else {
            eprintln!("SKIPPED: it needs a loop device and Linux 6.16");
            return;
        };
        assert_eq!(written(&disk.device, 0), 4096);
        assert_eq!(
            written(&disk.device, 1),
            -libc::EINVAL,
            "the device has no handle 1, and the kernel says so"
        );
    }
}
