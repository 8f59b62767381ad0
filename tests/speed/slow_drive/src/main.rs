//! A drive with slow flushes, for measurements: a directory with one file in memory, `disk`, whose sync
//! takes the time given on the command line. A loop device on it is a block device with such flushes.
//!
//! Usage: `slow-drive DIRECTORY MILLISECONDS [GIGABYTES]`, as root. It ends when the directory is
//! unmounted.

use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::mpsc::{Sender, channel};
use std::time::{Duration, SystemTime};

use fuser::{
    Config, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo, LockOwner,
    OpenFlags, ReplyAttr, ReplyData, ReplyEmpty, ReplyEntry, ReplyOpen, ReplyWrite, Request, WriteFlags,
};

/// Time for which the kernel may cache the file's attributes, which never change.
const FOR_EVER: Duration = Duration::from_secs(3600);
const DISK: INodeNo = INodeNo(2);

struct SlowDrive {
    memory: File,
    bytes: u64,
    /// Pending syncs, answered one after the other.
    syncs: Sender<ReplyEmpty>,
}

impl SlowDrive {
    fn new(bytes: u64, flush: Duration) -> std::io::Result<SlowDrive> {
        // A file in shared memory without a name.
        let path = format!("/dev/shm/slow-drive-{}", std::process::id());
        let memory = File::options().read(true).write(true).create_new(true).open(&path)?;
        std::fs::remove_file(&path)?;
        memory.set_len(bytes)?;
        let (syncs, asked) = channel::<ReplyEmpty>();
        std::thread::spawn(move || {
            for reply in asked {
                std::thread::sleep(flush);
                reply.ok();
            }
        });
        Ok(SlowDrive { memory, bytes, syncs })
    }

    fn attributes(&self, inode: INodeNo) -> FileAttr {
        let is_disk = inode == DISK;
        FileAttr {
            ino: inode,
            size: if is_disk { self.bytes } else { 0 },
            blocks: self.bytes / 512,
            atime: SystemTime::UNIX_EPOCH,
            mtime: SystemTime::UNIX_EPOCH,
            ctime: SystemTime::UNIX_EPOCH,
            crtime: SystemTime::UNIX_EPOCH,
            kind: if is_disk { FileType::RegularFile } else { FileType::Directory },
            perm: if is_disk { 0o600 } else { 0o700 },
            nlink: 1,
            uid: 0,
            gid: 0,
            rdev: 0,
            blksize: 4096,
            flags: 0,
        }
    }
}

impl Filesystem for SlowDrive {
    fn lookup(&self, _: &Request, _: INodeNo, name: &OsStr, reply: ReplyEntry) {
        if name == "disk" {
            reply.entry(&FOR_EVER, &self.attributes(DISK), Generation(0));
        } else {
            reply.error(Errno::ENOENT);
        }
    }

    fn getattr(&self, _: &Request, inode: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        reply.attr(&FOR_EVER, &self.attributes(inode));
    }

    fn open(&self, _: &Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        reply.opened(FileHandle(0), FopenFlags::FOPEN_DIRECT_IO | FopenFlags::FOPEN_PARALLEL_DIRECT_WRITES);
    }

    fn read(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        offset: u64,
        bytes: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let mut buffer = vec![0; bytes as usize];
        match self.memory.read_at(&mut buffer, offset) {
            Ok(read) => reply.data(&buffer[..read]),
            Err(error) => reply.error(error.into()),
        }
    }

    fn write(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        offset: u64,
        data: &[u8],
        _: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        match self.memory.write_all_at(data, offset) {
            Ok(()) => reply.written(data.len() as u32),
            Err(error) => reply.error(error.into()),
        }
    }

    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        reply.ok();
    }

    fn fsync(&self, _: &Request, _: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        self.syncs.send(reply).expect("the thread that answers never ends");
    }
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |at: usize| arguments.get(at).map(|text| text.parse::<f64>());
    let (Some(directory), Some(Ok(milliseconds)), Ok(gigabytes)) =
        (arguments.first(), number(1), number(2).unwrap_or(Ok(4.0)))
    else {
        eprintln!("usage: slow-drive DIRECTORY MILLISECONDS [GIGABYTES]");
        std::process::exit(2);
    };
    let drive = SlowDrive::new(
        (gigabytes * f64::from(1 << 30)) as u64,
        Duration::from_secs_f64(milliseconds / 1000.0),
    );
    let mounted = drive.and_then(|drive| fuser::mount(drive, directory, &Config::default()));
    if let Err(error) = mounted {
        eprintln!("slow-drive: {directory}: {error}");
        std::process::exit(1);
    }
}
