//! Time limits of a client: for the login, for sending a command, for taking its answers, and for idling between
//! commands.
//!
//! Resetting a timer for every command would cost as much as a command. So the watch ticks at half the shortest time
//! limit, and checks the times noted since the last tick.

use std::pin::Pin;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::{Instant, Sleep, sleep};

use super::wire::transport::Transport;
use crate::Limits;
use crate::base::pace::Pace;
use crate::budget::Budget;
use crate::service::Dropped;

/// Shortest period of the ticks.
const PERIOD_MIN: Duration = Duration::from_millis(20);

/// Period of the ticks if there is no time limit.
const PERIOD_MAX: Duration = Duration::from_secs(3600);

pub(super) struct Watch {
    timer: Pin<Box<Sleep>>,
    period: Duration,
    /// Time by which the client must have logged in.
    login_by: Option<Instant>,
    command_wait: Option<Duration>,
    reply_wait: Option<Duration>,
    idle_wait: Option<Duration>,
    /// The progress of a command that has not yet arrived completely.
    partial: Option<Pace>,
    /// The progress of answers that were unsent at the last tick, and the value of `Transport::sent` at that tick.
    answers: Option<(Pace, u64)>,
    /// The first tick since which nothing was read.
    silent_since: Option<Instant>,
}

impl Watch {
    pub(super) fn new(limits: &Limits, must_log_in: bool) -> Watch {
        let mut watch = Watch {
            timer: Box::pin(sleep(PERIOD_MAX)),
            period: PERIOD_MAX,
            login_by: None,
            command_wait: limits.command_wait,
            reply_wait: limits.reply_wait,
            idle_wait: limits.idle_wait,
            partial: None,
            answers: None,
            silent_since: None,
        };
        watch.logged_in(limits, !must_log_in);
        watch
    }

    /// Returns the time by which the client must have logged in.
    pub(super) fn login_by(&self) -> Option<Instant> {
        self.login_by
    }

    /// Adapts the limits to a client that logged in or out.
    pub(super) fn logged_in(&mut self, limits: &Limits, is: bool) {
        let login_wait = if is { None } else { limits.login_wait };
        self.login_by = login_wait.map(|wait| Instant::now() + wait);
        let waits = [login_wait, self.command_wait, self.reply_wait, self.idle_wait];
        let shortest = waits.into_iter().flatten().min().unwrap_or(PERIOD_MAX);
        self.period = (shortest / 2).clamp(PERIOD_MIN, PERIOD_MAX);
        self.timer.as_mut().reset(Instant::now() + self.period);
    }

    /// Notes that input was parsed. `partial`: an incomplete command is left; it begins with this input (`begins`) or
    /// began earlier.
    pub(super) fn parsed(&mut self, begins: bool, partial: bool) {
        if !partial {
            self.partial = None;
        } else if begins || self.partial.is_none() {
            self.partial = Some(Pace::start());
        }
    }

    pub(super) fn read(&mut self, bytes: usize) {
        self.silent_since = None;
        if let Some(partial) = &mut self.partial {
            partial.progress(bytes);
        }
    }

    /// Restarts the idle time of a client that waits for messages, which may be silent.
    pub(super) fn listens(&mut self) {
        self.silent_since = None;
    }

    /// Completes when the next [`check`](Self::check) is due.
    pub(super) async fn tick(&mut self) {
        self.timer.as_mut().await;
    }

    /// Returns an error with the missed limit if the client is too slow. `waits`: nothing is read from the client
    /// until it takes answers.
    pub(super) fn check<S>(
        &mut self,
        transport: &Transport<S>,
        waits: bool,
        budget: &Budget,
    ) -> Result<(), Dropped>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let now = Instant::now();
        self.timer.as_mut().reset(now + self.period);
        if self.login_by.is_some_and(|by| by <= now) {
            return Err(Dropped::Login);
        }
        let is_late =
            |pace: &Pace, wait: Option<Duration>| wait.is_some_and(|wait| pace.deadline(wait) <= now);
        // While the server reads nothing, the client is not to blame for an incomplete command.
        if !waits && self.partial.as_ref().is_some_and(|partial| is_late(partial, self.command_wait)) {
            return Err(Dropped::SlowCommand);
        }
        match &mut self.answers {
            _ if transport.replies.unsent_bytes() == 0 => self.answers = None,
            None => self.answers = Some((Pace::start(), transport.sent)),
            Some((pace, sent)) => {
                pace.taken((transport.sent - *sent) as usize, now);
                *sent = transport.sent;
                if (waits || budget.is_tight()) && is_late(pace, self.reply_wait) {
                    return Err(Dropped::SlowReader);
                }
            }
        }
        let silent = *self.silent_since.get_or_insert(now);
        let idle = self.partial.is_none() && self.answers.is_none() && !waits;
        if idle && self.idle_wait.is_some_and(|wait| silent + wait <= now) {
            return Err(Dropped::Idle);
        }
        Ok(())
    }
}
