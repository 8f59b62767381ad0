//! The time that a client takes: to log in, to send a command, to take its answers, between commands.
//!
//! A timer that is set anew for every command would cost as much as a command. So the watch ticks, at half the shortest
//! time that counts, and looks at what was noted since.

use std::pin::Pin;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::{Instant, Sleep, sleep};

use super::wire::transport::Transport;
use crate::Limits;
use crate::base::pace::Pace;
use crate::budget::Budget;
use crate::service::Dropped;

/// Ticks come no faster than this.
const PERIOD_MIN: Duration = Duration::from_millis(20);

/// Where nothing counts, the watch looks up now and then all the same.
const PERIOD_MAX: Duration = Duration::from_secs(3600);

pub(super) struct Watch {
    timer: Pin<Box<Sleep>>,
    period: Duration,
    /// When the client must have logged in.
    login_by: Option<Instant>,
    command_wait: Option<Duration>,
    reply_wait: Option<Duration>,
    idle_wait: Option<Duration>,
    /// A command that did not arrive in full yet.
    partial: Option<Pace>,
    /// Answers that were not taken at the last tick, and how much was sent by then.
    answers: Option<(Pace, u64)>,
    /// Nothing was read since this tick.
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

    /// The time until which the client must have logged in.
    pub(super) fn login_by(&self) -> Option<Instant> {
        self.login_by
    }

    /// The client logged in, or out again.
    pub(super) fn logged_in(&mut self, limits: &Limits, is: bool) {
        let login_wait = if is { None } else { limits.login_wait };
        self.login_by = login_wait.map(|wait| Instant::now() + wait);
        let waits = [login_wait, self.command_wait, self.reply_wait, self.idle_wait];
        let shortest = waits.into_iter().flatten().min().unwrap_or(PERIOD_MAX);
        self.period = (shortest / 2).clamp(PERIOD_MIN, PERIOD_MAX);
        self.timer.as_mut().reset(Instant::now() + self.period);
    }

    /// Input was taken up, and a part of a command is left or not, which begins now or went on.
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

    /// Who waits for messages may be silent.
    pub(super) fn listens(&mut self) {
        self.silent_since = None;
    }

    /// Completes when it is time for a [`check`](Self::check).
    pub(super) async fn tick(&mut self) {
        self.timer.as_mut().await;
    }

    /// Whether the client is in time with everything; if not, with what. `waits` says that nothing is read from it
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
        // While the server reads nothing, that no more of a command came is not the client's doing.
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
