//! Chooses how many writers share a durable frame, and how many such frames are in flight, by measurement. See
//! `docs/decisions/0030-gathering.md`.
//!
//! Clients that were just acknowledged usually write again at once. There are two strategies for this, and which is better
//! depends on the device, on the number of writers and on how fast they return:
//!
//! * *overlapped*: all waiting writes are written at once, concurrently with the previous frame. Writers form two groups; while
//!   one is being written, the other is served.
//! * *together*: one frame at a time, which waits for the writers that were just acknowledged, so that one flush serves them
//!   all.
//!
//! The current strategy is measured in windows of frames by the average wait of a write. From time to time the other strategy
//! is tried for two windows; the more often it was worse, the less often it is tried. If frames have one writer, no frame
//! waits.

use std::time::Duration;

use esker_seeded_bugs::{Bug, planted};

/// Number of frames per window.
const WINDOW_FRAMES: u32 = 16;
/// Number of windows from a change of strategy, or of the load, to the next trial of the other strategy.
const FIRST_TRY: u32 = 8;
/// Number of windows between trials after many failed ones.
const LAST_TRY: u32 = 256;
/// Share of the previous wait below which a write must wait for the other strategy to be adopted.
const CLEARLY_LESS: f64 = 0.97;
/// Factor by which the number of writers, or the wait of each, must change to count as another load.
const OTHER_LOAD: f64 = 1.5;
/// Weight of the newest measurement in a mean.
const NEWEST: f64 = 0.25;

/// Strategy for consecutive frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    Overlapped,
    Together,
}

impl Way {
    fn other(self) -> Way {
        match self {
            Way::Overlapped => Way::Together,
            Way::Together => Way::Overlapped,
        }
    }
}

/// A frame that is durable, as input to [`Gathering::finished`].
#[derive(Clone, Copy, Debug)]
pub(super) struct Finished {
    /// Time when the first of its writers arrived.
    pub(super) first: Duration,
    /// Time when it was closed.
    pub(super) closed: Duration,
    pub(super) now: Duration,
    /// Number of its writers.
    pub(super) writers: usize,
    /// Number of writers waiting for the next frame, or for one still in flight.
    pub(super) waiting: usize,
}

/// Measurements of a window.
#[derive(Clone, Copy, Debug, Default)]
struct Window {
    frames: u32,
    /// Number of writers of its frames.
    writers: u64,
    /// Sum over its frames: writers of the frame, and writers waiting when it was finished.
    at_once: u64,
    /// Total wait of all writers in seconds.
    waited_s: f64,
}

/// Use of the coming windows.
#[derive(Clone, Copy, Debug)]
enum Plan {
    /// Measures the current strategy, for this many more windows.
    Keep(u32),
    /// Tries the other strategy for this many more windows, the first of which begins with frames of the previous strategy.
    Try(u32),
}

/// Choice of the strategy; see the module.
#[derive(Debug)]
pub(super) struct Gathering {
    way: Way,
    plan: Plan,
    /// Number of windows until the next trial, after a failed one.
    patience: u32,
    window: Window,
    /// Mean wait of a write in seconds, and mean number of simultaneous writers, under the current strategy; 0 while unknown.
    wait_s: f64,
    at_once: f64,
    /// Mean time from closing a frame to its completion, in seconds.
    frame_s: f64,
    /// Number of writers to wait for, and latest time to wait.
    expected: usize,
    wait_until: Duration,
}

impl Default for Gathering {
    fn default() -> Gathering {
        Gathering {
            way: Way::Overlapped,
            plan: Plan::Keep(FIRST_TRY),
            patience: FIRST_TRY,
            window: Window::default(),
            wait_s: 0.0,
            at_once: 0.0,
            frame_s: 0.0,
            expected: 0,
            wait_until: Duration::ZERO,
        }
    }
}

impl Gathering {
    /// Returns the maximum number of frames with waiters in flight.
    pub(super) fn frames_max(&self) -> usize {
        match self.way {
            Way::Overlapped => 2,
            Way::Together => 1,
        }
    }

    /// Returns the number of writers that a frame waits for, and until when; `None` if it is written as soon as it has one.
    pub(super) fn expects(&self, now: Duration) -> Option<(usize, Duration)> {
        let waits = self.way == Way::Together && self.expected > 1;
        let waits = waits && (now < self.wait_until || planted(Bug::LateWritersWaitedFor));
        waits.then_some((self.expected, self.wait_until))
    }

    /// Adds a frame that is durable, whose writers are being acknowledged.
    pub(super) fn finished(&mut self, frame: Finished) {
        let took_s = frame.now.saturating_sub(frame.closed).as_secs_f64();
        self.frame_s += if self.frame_s == 0.0 { took_s } else { (took_s - self.frame_s) * NEWEST };
        self.expected = frame.writers + frame.waiting;
        // The next frame waits no longer than a frame takes, because that is the cost of a writer that comes too late.
        self.wait_until = frame.now + Duration::from_secs_f64(self.frame_s);
        // Assumes that the writers arrived at a constant rate.
        let gathered_s = frame.closed.saturating_sub(frame.first).as_secs_f64();
        self.window.frames += 1;
        self.window.writers += frame.writers as u64;
        self.window.at_once += self.expected as u64;
        self.window.waited_s += frame.writers as f64 * (gathered_s / 2.0 + took_s);
        if self.window.frames == WINDOW_FRAMES {
            let window = std::mem::take(&mut self.window);
            self.judge(window);
        }
    }

    fn judge(&mut self, window: Window) {
        let at_once = window.at_once as f64 / f64::from(window.frames);
        let wait_s = window.waited_s / (window.writers as f64).max(1.0);
        if at_once < 1.5 {
            // Both strategies are the same.
            *self = Gathering { frame_s: self.frame_s, ..Gathering::default() };
            return;
        }
        match self.plan {
            Plan::Keep(windows) => {
                if is_other(at_once, self.at_once) || is_other(wait_s, self.wait_s) {
                    self.patience = FIRST_TRY;
                    (self.wait_s, self.at_once) = (wait_s, at_once);
                } else {
                    self.wait_s += (wait_s - self.wait_s) * NEWEST;
                    self.at_once += (at_once - self.at_once) * NEWEST;
                }
                self.plan = match windows.min(self.patience) {
                    0 | 1 => self.turn(Plan::Try(2)),
                    windows => Plan::Keep(windows - 1),
                };
            }
            Plan::Try(2..) => self.plan = Plan::Try(1),
            Plan::Try(_) if wait_s < self.wait_s * CLEARLY_LESS => {
                self.patience = FIRST_TRY;
                (self.wait_s, self.at_once) = (wait_s, at_once);
                self.plan = Plan::Keep(self.patience);
            }
            Plan::Try(_) => {
                self.patience = (self.patience * 2).min(LAST_TRY);
                self.plan = self.turn(Plan::Keep(self.patience));
            }
        }
    }

    /// Switches to the other strategy.
    fn turn(&mut self, plan: Plan) -> Plan {
        self.way = self.way.other();
        plan
    }
}

/// Returns true if the load or the device has changed according to this value, or if there was no value before.
fn is_other(now: f64, before: f64) -> bool {
    now > before * OTHER_LOAD || now * OTHER_LOAD < before
}

#[cfg(test)]
#[path = "gathering_tests.rs"]
mod tests;
