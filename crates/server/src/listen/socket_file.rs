//! The file of a unix socket: created, taken over from a dead server, and removed at the end.
//!
//! 1. Lock the directory. Servers that start at the same time wait for the lock, because until step 4 the socket looks like that
//!    of a dead server.
//! 2. Inspect the path. A socket without a listener is removed. A socket with a listener, or any other file, is an error.
//! 3. Bind the socket and set its mode. No client can connect before the mode is set.
//! 4. Listen, and release the lock.
//!
//! The file is removed before its listener is closed, because after that another server may have put its own file there.

use std::fs::{File, Permissions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use tokio::net::UnixSocket;

use crate::base::config;
use crate::base::socket::Listener;
use crate::{Error, Result};

/// Maximum wait for another server that creates a socket in the same directory.
const LOCK_WAIT: Duration = Duration::from_secs(2);
const LOCK_LOOK: Duration = Duration::from_millis(5);

/// The socket file of this server, removed on drop.
#[derive(Debug)]
pub(super) struct SocketFile {
    path: PathBuf,
    /// Device and inode of the file, because another file may have taken its place.
    identity: (u64, u64),
}

impl SocketFile {
    /// Listens on a unix socket.
    pub(super) fn listen(socket: &config::UnixSocket, backlog: u32) -> Result<(SocketFile, Listener)> {
        let path = &socket.path;
        let wrong = |what: String| Error::UnixSocket { path: path.clone(), what };
        let of_kernel = |error: io::Error| wrong(error.to_string());
        // 1.
        let _lock = lock_parent(path).map_err(of_kernel)?;
        // 2.
        remove_dead(path).map_err(of_kernel)?;
        // 3.
        let bound = UnixSocket::new_stream().map_err(of_kernel)?;
        bound.bind(path).map_err(of_kernel)?;
        let file = SocketFile { path: path.clone(), identity: identity(path).map_err(of_kernel)? };
        std::fs::set_permissions(path, Permissions::from_mode(socket.mode)).map_err(of_kernel)?;
        // 4.
        let listener = bound.listen(backlog).map_err(of_kernel)?;
        Ok((file, Listener::Local(listener, Arc::from(path.as_path()))))
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if identity(&self.path).is_ok_and(|now| now == self.identity)
            && let Err(error) = std::fs::remove_file(&self.path)
        {
            tracing::warn!(%error, path = %self.path.display(), "cannot remove the unix socket");
        }
    }
}

fn identity(path: &Path) -> io::Result<(u64, u64)> {
    std::fs::symlink_metadata(path).map(|metadata| (metadata.dev(), metadata.ino()))
}

/// Locks the parent directory of a path until the result is dropped.
fn lock_parent(path: &Path) -> io::Result<File> {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    let directory = File::open(parent.unwrap_or(Path::new(".")))
        .map_err(|error| io::Error::new(error.kind(), format!("its directory cannot be opened: {error}")))?;
    let until = Instant::now() + LOCK_WAIT;
    loop {
        match flock(&directory, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(directory),
            Err(Errno::WOULDBLOCK) if Instant::now() > until => {
                return Err(io::Error::other("another process has its directory locked"));
            }
            Err(Errno::WOULDBLOCK) => std::thread::sleep(LOCK_LOOK),
            Err(error) => return Err(error.into()),
        }
    }
}

/// Removes the socket of a dead server. Other files are never removed.
fn remove_dead(path: &Path) -> io::Result<()> {
    let found = match std::fs::symlink_metadata(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        found => found?,
    };
    if !found.file_type().is_socket() {
        return Err(io::Error::other("there is something else at this path, and it is no socket"));
    }
    match UnixStream::connect(path) {
        Err(error) if error.kind() == ErrorKind::ConnectionRefused => std::fs::remove_file(path),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        Err(error) if error.kind() == ErrorKind::WouldBlock => Err(in_use()),
        Err(error) => Err(io::Error::new(
            error.kind(),
            format!("there is a socket, and whether a server listens on it cannot be told: {error}"),
        )),
        Ok(_) => Err(in_use()),
    }
}

fn in_use() -> io::Error {
    io::Error::new(ErrorKind::AddrInUse, "another server listens on it")
}
