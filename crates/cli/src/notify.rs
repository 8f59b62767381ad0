//! What the manager of services is told (sd_notify): datagrams to the socket that `NOTIFY_SOCKET` names, if there is one.
//! Units of `Type=notify` and `Type=notify-reload` wait for them; for others they do nothing.

use std::ffi::OsString;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

use rustix::time::{ClockId, clock_gettime};

/// Tells the manager of services what the process does.
#[derive(Debug)]
pub(crate) struct Notify(Option<(UnixDatagram, SocketAddr)>);

impl Notify {
    /// To the socket that the environment names.
    pub(crate) fn from_environment() -> Notify {
        Notify::to(std::env::var_os("NOTIFY_SOCKET"))
    }

    fn to(socket: Option<OsString>) -> Notify {
        let address = socket.filter(|socket| !socket.is_empty()).and_then(|socket| {
            match socket.as_bytes().strip_prefix(b"@") {
                Some(name) => SocketAddr::from_abstract_name(name).ok(),
                None => SocketAddr::from_pathname(&socket).ok(),
            }
        });
        Notify(address.and_then(|address| Some((UnixDatagram::unbound().ok()?, address))))
    }

    /// What the process does, in words.
    pub(crate) fn status(&self, text: &str) {
        self.send(&format!("STATUS={}", one_line(text)));
    }

    /// It serves, and has ended a reload if one was begun.
    pub(crate) fn ready(&self, status: &str) {
        self.send(&format!("READY=1\nSTATUS={}", one_line(status)));
    }

    /// It reads its files again.
    pub(crate) fn reloading(&self) {
        let now = clock_gettime(ClockId::Monotonic);
        let us = now.tv_sec as u64 * 1_000_000 + now.tv_nsec as u64 / 1000;
        self.send(&format!("RELOADING=1\nMONOTONIC_USEC={us}\nSTATUS=reading users and certificates again"));
    }

    /// It ends.
    pub(crate) fn stopping(&self) {
        self.send("STOPPING=1\nSTATUS=finishing commands in flight");
    }

    fn send(&self, text: &str) {
        if let Some((socket, address)) = &self.0
            && let Err(error) = socket.send_to_addr(text.as_bytes(), address)
        {
            tracing::debug!(%error, "cannot tell the manager of services");
        }
    }
}

/// A line end would begin another assignment.
fn one_line(text: &str) -> String {
    text.replace(['\n', '\r'], " ")
}
