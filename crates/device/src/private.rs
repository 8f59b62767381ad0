//! Files and directories that a store creates beside and below its devices: accessible to its user only, and with
//! directory entries that survive a power failure.

use std::fs::{self, DirBuilder, File};
use std::io;
use std::ops::Deref;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;

use crate::{DeviceError, lock};

/// Creates a directory for this user only, unless it exists. Makes its entry durable in both cases, because the process
/// that created it may have died before it did so.
pub fn make_directory(path: &Path) -> io::Result<()> {
    match DirBuilder::new().mode(0o700).create(path) {
        Ok(()) => sync_parent(path),
        Err(_) if path.is_dir() => sync_parent_if_readable(path),
        Err(error) => Err(error),
    }
}

/// Creates a file for this user only; fails if the path exists. Does not follow a symbolic link.
pub(crate) fn make_file(path: &Path) -> io::Result<File> {
    let file = fs::OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(path)?;
    // The entry is durable before any data in the file counts as durable.
    sync_parent(path)?;
    Ok(file)
}

/// Syncs the parent directory of `path`.
fn sync_parent(path: &Path) -> io::Result<()> {
    let parent = parent_of(path);
    #[cfg(test)]
    tests::SYNCED.with_borrow_mut(|synced| synced.push(parent.to_owned()));
    File::open(parent)?.sync_all()
}

/// As [`sync_parent`], for a directory that another user may have created without read permission for this one.
pub(crate) fn sync_parent_if_readable(path: &Path) -> io::Result<()> {
    match sync_parent(path) {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Ok(()),
        outcome => outcome,
    }
}

fn parent_of(path: &Path) -> &Path {
    // `name/` and `.` have no parent that the path alone would show; they map to `.` too.
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

/// A file that only this user may access, locked by one opener until it is dropped or [unlocked](Self::unlock).
#[derive(Debug)]
pub struct PrivateFile(File);

impl PrivateFile {
    /// Opens or creates a file. Safe in world-writable directories: files that another user may have created, and
    /// symbolic links, are refused.
    pub fn open(path: &Path) -> Result<PrivateFile, DeviceError> {
        let name: Arc<str> = path.display().to_string().into();
        let failed = |source| DeviceError::open(&name, source);
        let file = match open_no_link(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => match make_file(path) {
                // Another process created the file first.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => open_no_link(path),
                made => made,
            },
            opened => opened,
        };
        let file = file.map_err(|error| match error.raw_os_error() {
            Some(libc::ELOOP) => DeviceError::invalid(&name, "a symbolic link, which is not followed here"),
            _ => failed(error),
        })?;
        let metadata = file.metadata().map_err(failed)?;
        if !metadata.is_file() {
            return Err(DeviceError::invalid(&name, "not a regular file"));
        }
        refuse_foreign_owner(path, &metadata).map_err(|what| DeviceError::invalid(&name, what))?;
        lock::retry(&metadata, || lock::try_lock(&file).map(|taken| taken.then_some(())).transpose())
            .map_err(|holder| DeviceError::Locked { path: name.clone(), holder })?
            .map_err(failed)?;
        Ok(PrivateFile(file))
    }

    /// Allocates the blocks of a range, so that writing to it cannot run out of space. Keeps their content.
    pub fn allocate(&self, offset: u64, bytes: u64) -> io::Result<()> {
        crate::file::allocate(&self.0, offset, bytes)
    }

    /// Releases the lock, although this handle and mappings of the file may be kept for longer.
    pub fn unlock(&self) {
        lock::unlock(&self.0);
    }
}

impl Deref for PrivateFile {
    type Target = File;

    fn deref(&self) -> &File {
        &self.0
    }
}

impl Drop for PrivateFile {
    fn drop(&mut self) {
        // A mapping keeps the open file, and with it the lock.
        self.unlock();
    }
}

fn open_no_link(path: &Path) -> io::Result<File> {
    // Opening a pipe would block otherwise.
    let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK;
    fs::OpenOptions::new().read(true).write(true).custom_flags(flags).open(path)
}

/// The owner must be this user, or the owner of the directory: no other user could have prevented the file from being
/// replaced.
fn refuse_foreign_owner(path: &Path, metadata: &fs::Metadata) -> Result<(), String> {
    let (owner, user) = (metadata.uid(), rustix::process::geteuid().as_raw());
    let of_directory = fs::metadata(parent_of(path)).ok().map(|directory| directory.uid());
    if owner == user || Some(owner) == of_directory {
        return Ok(());
    }
    Err(format!("it is owned by user {owner}; the owner must be user {user} or the owner of its directory"))
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::os::unix::fs::PermissionsExt;
    use std::path::PathBuf;

    use super::*;
    use crate::{Direct, OpenOptions};

    thread_local! {
        /// Directories that this thread synced.
        pub(super) static SYNCED: RefCell<Vec<PathBuf>> = const { RefCell::new(Vec::new()) };
    }

    fn synced(during: impl FnOnce()) -> Vec<PathBuf> {
        SYNCED.take();
        during();
        SYNCED.take()
    }

    #[test]
    fn created_path_has_its_directory_entry_synced() {
        let dir = tempfile::tempdir().expect("a directory");
        let store = dir.path().join("store");
        assert_eq!(synced(|| make_directory(&store).expect("it is made")), [dir.path()]);
        let open = |path: &Path| {
            crate::open(OpenOptions::new(path).create(true).direct(Direct::Never)).expect("it opens")
        };
        let data = store.join("data");
        assert_eq!(synced(|| drop(open(&data))), [store.as_path()]);
        let staging = store.join("staging");
        assert_eq!(synced(|| drop(PrivateFile::open(&staging).expect("it is made"))), [store.as_path()]);
        // The process that created these may have been killed before they were durable.
        assert_eq!(synced(|| make_directory(&store).expect("it is there")), [dir.path()]);
        assert_eq!(synced(|| drop(open(&data))), [store.as_path()]);
        let (device, _) = open(&data);
        device.resize(4096).wait().expect("it grows");
        drop(device);
        assert!(synced(|| drop(open(&data))).is_empty(), "it is in use, so its name was durable");
        assert_eq!(parent_of(Path::new("name")), Path::new("."));
    }

    #[test]
    fn a_directory_that_cannot_be_made_is_an_error() {
        let dir = tempfile::tempdir().expect("a directory");
        std::fs::write(dir.path().join("file"), "").expect("a file");
        let error = make_directory(&dir.path().join("file")).expect_err("a file is there");
        assert_eq!(error.kind(), io::ErrorKind::AlreadyExists);
        let error = make_directory(&dir.path().join("a/b")).expect_err("no parent");
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn a_private_file_has_one_opener_and_no_other_readers() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("file");
        let first = PrivateFile::open(&path).expect("it is made");
        assert_eq!(first.metadata().expect("it is there").permissions().mode() & 0o777, 0o600);
        let appender = crate::SegmentBuffer::mapped(&first, 0, 4096).expect("it is mapped");
        let error = PrivateFile::open(&path).expect_err("it is open");
        assert!(matches!(error, DeviceError::Locked { .. }), "{error}");
        first.unlock();
        let second = PrivateFile::open(&path).expect("it is free");
        drop(first);
        PrivateFile::open(&path).expect_err("the second opener's lock is its own");
        drop(second);
        PrivateFile::open(&path).expect("it is free, though it is mapped");
        drop(appender);
        assert!(matches!(
            PrivateFile::open(dir.path()),
            Err(DeviceError::Io { .. } | DeviceError::Invalid { .. })
        ));
    }
}
