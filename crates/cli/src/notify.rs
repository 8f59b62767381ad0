//! Notifies the service manager (sd_notify): sends datagrams to the socket named by `NOTIFY_SOCKET`, if
//! it is set. Units of `Type=notify` and `Type=notify-reload` wait for them; other units ignore them.

use std::ffi::OsString;
use std::future::pending;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use tokio::time::interval;

/// Notifies the service manager of the state of the process.
#[derive(Debug)]
pub(crate) struct Notify {
    socket: Option<(UnixDatagram, SocketAddr)>,
    /// Watchdog timeout: the longest allowed time between two notifications.
    watchdog: Option<Duration>,
}

impl Notify {
    /// Uses the socket named by the environment.
    pub(crate) fn from_environment() -> Notify {
        let number = |name| std::env::var(name).ok()?.parse::<u64>().ok();
        // Both variables are inherited. `WATCHDOG_PID` names the process that `WATCHDOG_USEC` is for.
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

    /// Sends watchdog notifications at half the timeout, if there is one. A process whose client threads
    /// are all stuck cannot send them, so the service manager restarts it.
    pub(crate) async fn stay_alive(&self) {
        let Some(most) = self.watchdog else { return pending().await };
        let mut turn = interval(most / 2);
        loop {
            turn.tick().await;
            self.send("WATCHDOG=1");
        }
    }

    /// Sends the state of the process in words.
    pub(crate) fn status(&self, text: &str) {
        self.send(&format!("STATUS={}", one_line(text)));
    }

    /// Notifies that the process serves clients, and that a reload, if any, has ended.
    pub(crate) fn ready(&self, status: &str) {
        self.send(&format!("READY=1\nSTATUS={}", one_line(status)));
    }

    /// Notifies that the process reloads its settings and files.
    pub(crate) fn reloading(&self) {
        let now = clock_gettime(ClockId::Monotonic);
        let us = now.tv_sec as u64 * 1_000_000 + now.tv_nsec as u64 / 1000;
        self.send(&format!(
            "RELOADING=1\nMONOTONIC_USEC={us}\nSTATUS=reading settings, users and certificates again"
        ));
    }

    /// Notifies that the process is stopping.
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

/// Replaces line ends, because they would begin another assignment.
fn one_line(text: &str) -> String {
    text.replace(['\n', '\r'], " ")
}
