//! A file that gets its name only when it is complete, and never replaces another file.
//!
//! 1. The file is made without a name (O_TMPFILE). A killed process leaves nothing behind.
//! 2. [`NewFile::keep`] makes the bytes durable and then gives the file its name (linkat), unless another
//!    file has taken it meanwhile.
//!
//! If the file system does not support unnamed files, the file has the name `NAME.partial` until then,
//! and is locked. The next call for the same name removes the partial file of a killed process.

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, FlockOperation, RenameFlags, flock, linkat, renameat_with};
use rustix::io::Errno;

use crate::terminal::Failure;

/// A file being written.
#[derive(Debug)]
pub(crate) struct NewFile {
    file: File,
    path: PathBuf,
    /// The temporary name, if the file needs one.
    partial: Option<PathBuf>,
}

impl NewFile {
    /// Makes a file that only this user may read.
    ///
    /// # Errors
    /// `Usage` if the name is taken or the directory accepts no file.
    pub(crate) fn create(path: &Path) -> Result<NewFile, Failure> {
        // A dangling link counts as a file.
        if path.symlink_metadata().is_ok() {
            return Err(taken(path, Failure::Usage));
        }
        let mut options = OpenOptions::new();
        options.write(true).read(true).mode(0o600);
        let unnamed = options.clone().custom_flags(libc::O_TMPFILE).open(directory_of(path));
        let made = match unnamed {
            Ok(file) => return Ok(NewFile { file, path: path.to_owned(), partial: None }),
            // An older kernel ignores the flag and sees an attempt to write to a directory.
            Err(error)
                if matches!(error.raw_os_error(), Some(libc::EOPNOTSUPP | libc::EISDIR | libc::EINVAL)) =>
            {
                NewFile::named(path, &mut options)
            }
            Err(error) => Err(error),
        };
        made.map_err(|error| Failure::Usage(format!("cannot write {}: {error}", path.display())))
    }

    /// As `create`, with the temporary name `NAME.partial`.
    fn named(path: &Path, options: &mut OpenOptions) -> io::Result<NewFile> {
        let mut partial = path.as_os_str().to_owned();
        partial.push(".partial");
        let partial = PathBuf::from(partial);
        let make = || options.clone().create_new(true).open(&partial);
        let file = match make() {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                // Links are never followed, neither here nor by create_new.
                let left = OpenOptions::new()
                    .write(true)
                    .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK)
                    .open(&partial)?;
                lock(&left, &partial)?;
                std::fs::remove_file(&partial)?;
                make()?
            }
            made => made?,
        };
        lock(&file, &partial)?;
        Ok(NewFile { file, path: path.to_owned(), partial: Some(partial) })
    }

    /// Returns a handle for writing.
    ///
    /// # Errors
    /// If the process has no file descriptor left.
    pub(crate) fn writer(&self) -> Result<File, Failure> {
        self.file.try_clone().map_err(|error| self.failed(&error))
    }

    /// Makes the bytes durable and gives the file its name.
    ///
    /// # Errors
    /// If that fails, or another file has taken the name. The new file is removed then.
    pub(crate) fn keep(self) -> Result<(), Failure> {
        self.file.sync_all().map_err(|error| self.failed(&error))?;
        let named = match &self.partial {
            Some(partial) => match renameat_with(CWD, partial, CWD, &self.path, RenameFlags::NOREPLACE) {
                // The file system does not support the flag. The name was free a moment ago.
                Err(Errno::INVAL) => std::fs::rename(partial, &self.path),
                named => named.map_err(io::Error::from),
            },
            None => {
                let open = format!("/proc/self/fd/{}", self.file.as_raw_fd());
                linkat(CWD, open, CWD, &self.path, AtFlags::SYMLINK_FOLLOW).map_err(io::Error::from)
            }
        };
        named.map_err(|error| match error.kind() {
            ErrorKind::AlreadyExists => taken(&self.path, Failure::Failed),
            _ => self.failed(&error),
        })?;
        let directory = directory_of(&self.path);
        File::open(directory).and_then(|directory| directory.sync_all()).map_err(|error| {
            let path = self.path.display();
            Failure::Failed(format!("{path} is written, but may not outlive a power cut: {error}"))
        })
    }

    fn failed(&self, error: &io::Error) -> Failure {
        Failure::Failed(format!("cannot write {}: {error}", self.path.display()))
    }
}

impl Drop for NewFile {
    fn drop(&mut self) {
        if let Some(partial) = &self.partial {
            // Absent if the file was kept.
            let _ = std::fs::remove_file(partial);
        }
    }
}

fn taken(path: &Path, failure: fn(String) -> Failure) -> Failure {
    failure(format!("{} already exists; give another name, or remove it", path.display()))
}

fn directory_of(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

fn lock(file: &File, path: &Path) -> io::Result<()> {
    flock(file, FlockOperation::NonBlockingLockExclusive).map_err(|error| match error {
        Errno::WOULDBLOCK => io::Error::other(format!("another process is writing {}", path.display())),
        error => error.into(),
    })
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn names(directory: &Path) -> Vec<String> {
        let entries = std::fs::read_dir(directory).expect("a directory").flatten();
        let mut names: Vec<String> =
            entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }

    /// As `create`, on a file system without unnamed files.
    fn create_named(path: &Path) -> io::Result<NewFile> {
        let mut options = OpenOptions::new();
        NewFile::named(path, options.write(true).read(true).mode(0o600))
    }

    /// A function that makes a file, and the names that remain if the process is killed.
    type Way = (fn(&Path) -> NewFile, &'static [&'static str]);

    /// With unnamed files, and without.
    fn ways() -> [Way; 2] {
        [
            (|path| NewFile::create(path).expect("it is made"), &[]),
            (|path| create_named(path).expect("it is made"), &["file.partial"]),
        ]
    }

    #[test]
    fn file_gets_its_name_only_when_kept() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("file");
        for (make, before) in ways() {
            let file = make(&path);
            assert_eq!(names(directory.path()), before);
            file.writer().expect("a handle").write_all(b"text").expect("it is written");
            file.keep().expect("it is kept");
            assert_eq!(names(directory.path()), ["file"]);
            assert_eq!(std::fs::read(&path).ok().as_deref(), Some(&b"text"[..]));
            assert_eq!(path.metadata().expect("it is there").permissions().mode() & 0o777, 0o600);
            assert!(
                matches!(NewFile::create(&path), Err(Failure::Usage(what)) if what.contains("already exists"))
            );
            std::fs::remove_file(&path).expect("it is there");
            drop(make(&path));
            assert_eq!(names(directory.path()), [""; 0]);
        }
    }

    #[test]
    fn file_created_meanwhile_stays() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("file");
        for (make, _) in ways() {
            let file = make(&path);
            std::fs::write(&path, "other").expect("it is written");
            assert!(matches!(file.keep(), Err(Failure::Failed(what)) if what.contains("already exists")));
            assert_eq!(names(directory.path()), ["file"]);
            assert_eq!(std::fs::read(&path).ok().as_deref(), Some(&b"other"[..]));
            std::fs::remove_file(&path).expect("it is there");
        }
    }

    #[test]
    fn partial_file_is_replaced_unless_in_use() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("file");
        std::fs::write(directory.path().join("file.partial"), "left").expect("it is written");
        let first = create_named(&path).expect("nobody writes it");
        let error = create_named(&path).expect_err("the first one writes it").to_string();
        assert!(error.contains("another process is writing"), "{error}");
        drop(first);
        create_named(&path).expect("nobody writes it").keep().expect("it is kept");
    }
}
