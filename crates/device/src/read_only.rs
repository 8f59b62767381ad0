//! Lock-free read-only access, for inspecting a store that another process may have open. The bytes may change between
//! reads.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use crate::{Buffer, DeviceError, DeviceKind, lock, probe};

/// Required alignment in bytes of direct reads, in addition to the block size.
const ALIGNMENT: u64 = 4096;

/// Bytes per system call. Longer reads are slower: the kernel pins all their pages before the device sees the first,
/// and splits the read anyway.
const AT_ONCE: usize = 1 << 20;

/// Bytes that can be read at any offset, concurrently.
pub trait ReadAt: Send + Sync + 'static {
    /// Returns the name for messages.
    fn path(&self) -> String;

    /// Returns the length in bytes.
    fn bytes(&self) -> u64;

    /// Fills the whole buffer from `offset`. Offset and length are multiples of 4096. Bytes beyond the end read as
    /// zeros.
    ///
    /// # Errors
    /// A read error of the device.
    fn read_at(&self, offset: u64, buffer: &mut Buffer) -> io::Result<()>;
}

/// A file or block device opened read-only and without a lock.
#[derive(Debug)]
pub struct ReadOnlyFile {
    file: File,
    path: String,
    bytes: u64,
    kind: DeviceKind,
}

impl ReadOnlyFile {
    /// Opens a path. Reads bypass the page cache if possible, so that they return the bytes on the medium.
    ///
    /// # Errors
    /// If the path cannot be opened, or is neither a regular file nor a block device.
    pub fn open(path: &Path) -> Result<ReadOnlyFile, DeviceError> {
        let name: Arc<str> = path.display().to_string().into();
        let failed = |source| DeviceError::open(&name, source);
        // Opening a pipe would block.
        let metadata = fs::metadata(path).map_err(failed)?;
        let Some(kind) = probe::kind_of(&metadata) else {
            let what = if metadata.is_dir() { "a directory" } else { "a special file" };
            let what = format!("{what}; a regular file or a block device is required");
            return Err(DeviceError::invalid(&name, what));
        };
        let file = File::open(path).map_err(failed)?;
        let bytes = size_of(&file).map_err(failed)?;
        let opened = ReadOnlyFile { file, path: name.to_string(), bytes, kind };
        if probe::set_direct(&opened.file).is_ok() {
            let mut page = Buffer::zeroed(ALIGNMENT as usize);
            let refused = opened.file.read_at(&mut page, 0);
            if refused.is_err_and(|error| error.raw_os_error() == Some(libc::EINVAL)) {
                probe::clear_direct(&opened.file).map_err(failed)?;
            }
        }
        Ok(opened)
    }

    /// True if another process has it open as a store.
    pub fn is_locked(&self) -> bool {
        lock::is_locked(&self.file)
    }

    /// Returns the file type: regular file or block device.
    pub fn kind(&self) -> DeviceKind {
        self.kind
    }
}

fn size_of(mut file: &File) -> io::Result<u64> {
    use std::io::Seek;
    file.seek(io::SeekFrom::End(0))
}

impl ReadAt for ReadOnlyFile {
    fn path(&self) -> String {
        self.path.clone()
    }

    fn bytes(&self) -> u64 {
        self.bytes
    }

    fn read_at(&self, offset: u64, buffer: &mut Buffer) -> io::Result<()> {
        check(offset, buffer);
        let mut done = 0;
        while done < buffer.len() {
            let end = buffer.len().min(done + AT_ONCE);
            match self.file.read_at(&mut buffer[done..end], offset + done as u64) {
                // The end of a file is not aligned, so neither is the last read.
                Ok(0) => break,
                Ok(bytes) if bytes.is_multiple_of(512) => done += bytes,
                Ok(bytes) => {
                    done += bytes;
                    break;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        buffer[done..].fill(0);
        Ok(())
    }
}

/// Bytes in memory, for tests.
impl ReadAt for Vec<u8> {
    fn path(&self) -> String {
        "memory".to_owned()
    }

    fn bytes(&self) -> u64 {
        self.len() as u64
    }

    fn read_at(&self, offset: u64, buffer: &mut Buffer) -> io::Result<()> {
        check(offset, buffer);
        let from = usize::try_from(offset).unwrap_or(usize::MAX).min(self.len());
        let there = buffer.len().min(self.len() - from);
        buffer[..there].copy_from_slice(&self[from..from + there]);
        buffer[there..].fill(0);
        Ok(())
    }
}

fn check(offset: u64, buffer: &Buffer) {
    let aligned = offset.is_multiple_of(ALIGNMENT) && (buffer.len() as u64).is_multiple_of(ALIGNMENT);
    assert!(aligned, "{} bytes at {offset} are not whole pages", buffer.len());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn read_behind_end_of_file_returns_zeros() {
        let directory = tempfile::tempdir().expect("a directory for the test");
        let path = directory.path().join("short");
        let bytes: Vec<u8> = (0..5000u32).map(|at| at as u8 | 1).collect();
        fs::write(&path, &bytes).expect("the file can be written");
        let file = ReadOnlyFile::open(&path).expect("the file is there");
        let sources: [&dyn ReadAt; 2] = [&file, &bytes];
        for source in sources {
            let mut buffer = Buffer::zeroed(8192);
            buffer.fill(9);
            source.read_at(0, &mut buffer).expect("it can be read");
            assert_eq!((source.bytes(), &buffer[..5000]), (5000, &bytes[..]));
            assert!(buffer[5000..].iter().all(|byte| *byte == 0));
            source.read_at(1 << 20, &mut buffer).expect("nothing is there");
            assert!(buffer.iter().all(|byte| *byte == 0));
        }
        assert!(ReadOnlyFile::open(directory.path()).is_err());
        assert!(ReadOnlyFile::open(Path::new("/dev/zero")).is_err());
    }
}
