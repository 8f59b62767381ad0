//! Notifications to systemd (`sd_notify`): units of `Type=notify` and `Type=notify-reload` wait for them. Without
//! `NOTIFY_SOCKET` nothing is sent.

use std::future::pending;

use sd_notify::NotifyState;
use tokio::time::interval;

/// Sends keep-alive messages at half the interval of the unit's watchdog, without end. A process whose serving threads are all
/// blocked does not send them, and systemd starts it again.
pub(crate) async fn stay_alive() {
    let Some(most) = sd_notify::watchdog_enabled().filter(|most| !most.is_zero()) else {
        return pending().await;
    };
    let mut turn = interval(most / 2);
    loop {
        turn.tick().await;
        send(&[NotifyState::Watchdog]);
    }
}

/// Sends the text that `systemctl status` shows.
pub(crate) fn status(text: &str) {
    send(&[NotifyState::Status(&one_line(text))]);
}

/// The server accepts clients; a reload that was begun has ended.
pub(crate) fn ready(status: &str) {
    send(&[NotifyState::Ready, NotifyState::Status(&one_line(status))]);
}

/// The server reads its settings and files again.
pub(crate) fn reloading() {
    let status = NotifyState::Status("reading settings, users and certificates again");
    match NotifyState::monotonic_usec_now() {
        Ok(now) => send(&[NotifyState::Reloading, now, status]),
        Err(error) => tracing::debug!(%error, "cannot read the monotonic clock"),
    }
}

/// The server is ending.
pub(crate) fn stopping() {
    send(&[NotifyState::Stopping, NotifyState::Status("finishing commands in flight")]);
}

fn send(state: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(state) {
        tracing::debug!(%error, "cannot notify systemd");
    }
}

/// A line end would begin another assignment.
fn one_line(text: &str) -> String {
    text.replace(['\n', '\r'], " ")
}
