//! What the manager of services is told (sd_notify): datagrams to the socket that `NOTIFY_SOCKET` names, if there is one.
//! Units of `Type=notify` and `Type=notify-reload` wait for them; for others they do nothing.

use std::ffi::OsString;
use std::future::pending;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use tokio::time::interval;

/// Tells the manager of services what the process does.
#[derive(Debug)]
pub(crate) struct Notify {
    socket: Option<(UnixDatagram, SocketAddr)>,
    /// Longer than this it is not to be silent.
    watchdog: Option<Duration>,
}

impl Notify {
    /// To the socket that the environment names.
    pub(crate) fn from_environment() -> Notify {
        let number = |name| std::env::var(name).ok()?.parse::<u64>().ok();
        // Both are inherited; the second says whom the first is about.
        let is_about_others = number("WATCHDOG_PID").is_some_and(|pid| pid != u64::from(std::process::id()));
        let watchdog = number("WATCHDOG_USEC").filter(|&us| us > 0 && !is_about_others);
        Notify::to(std::env::var_os("NOTIFY_SOCKET"), watchdog.map(Duration::from_micros))
    }

    fn to(socket: Option<OsString>, watchdog: Option<Duration>) -> Notify {
        let address = socket.filter(|socket| !socket.is_empty()).and_then(|socket| {
            match socket.as_bytes().strip_prefix(b"@") {
                Some(name) => SocketAddr::from_abstract_name(name).ok(),
                None => SocketAddr::from_pathname(&socket).ok(),
            }
        });
        let socket = address.and_then(|address| Some((UnixDatagram::unbound().ok()?, address)));
        Notify { socket, watchdog }
    }

    /// Says again and again that the process is alive, where somebody wants to know. A process whose threads for clients are
    /// all stuck does not get to say it, and is started again.
    pub(crate) async fn stay_alive(&self) {
        let Some(most) = self.watchdog else { return pending().await };
        let mut turn = interval(most / 2);
        loop {
            turn.tick().await;
            self.send("WATCHDOG=1");
        }
    }

    /// What the process does, in words.
    pub(crate) fn status(&self, text: &str) {
        self.send(&format!("STATUS={}", one_line(text)));
    }

    /// It serves, and has ended a reload if one was begun.
    pub(crate) fn ready(&self, status: &str) {
        self.send(&format!("READY=1\nSTATUS={}", one_line(status)));
    }

    /// It reads its settings and files again.
    pub(crate) fn reloading(&self) {
        let now = clock_gettime(ClockId::Monotonic);
        let us = now.tv_sec as u64 * 1_000_000 + now.tv_nsec as u64 / 1000;
        self.send(&format!(
            "RELOADING=1\nMONOTONIC_USEC={us}\nSTATUS=reading settings, users and certificates again"
        ));
    }

    /// It ends.
    pub(crate) fn stopping(&self) {
        self.send("STOPPING=1\nSTATUS=finishing commands in flight");
    }

    fn send(&self, text: &str) {
        if let Some((socket, address)) = &self.socket
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
