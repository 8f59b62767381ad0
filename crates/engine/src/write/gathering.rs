//! How many writers share a durable frame, and how many such frames are in flight, as it is measured. See
//! `docs/decisions/0030-gathering.md`.
//!
//! Whoever was answered comes back with the next write. There are two ways to go about it, and which is better depends on the
//! device, on the number of writers and on how fast they come back:
//!
//! * *overlapped*: whatever has come is written at once, beside the frame before. Writers part in two groups; while one is
//!   written, the other is served.
//! * *together*: one frame at a time, and it waits for those who were just answered, so that one flush serves all of them.
//!
//! The way in use is measured in windows of frames by how long a write waits on average. Now and then the other way is tried
//! for two windows, the less often the more often it was worse. Where frames have one writer, nobody is waited for.

use std::time::Duration;

use esker_seeded_bugs::{Bug, planted};

/// Frames of a window.
const WINDOW_FRAMES: u32 = 16;
/// Windows from a change of ways, or of the load, to the next try of the other.
const FIRST_TRY: u32 = 8;
/// The same after many tries that were in vain.
const LAST_TRY: u32 = 256;
/// The other way is taken if a write waits for less than this part of what it waited for before.
const CLEARLY_LESS: f64 = 0.97;
/// What counts as another load: so many times the writers, or the wait of each.
const OTHER_LOAD: f64 = 1.5;
/// Weight of the newest measurement in a mean.
const NEWEST: f64 = 0.25;

/// How frames follow each other.
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

/// A frame that is durable, as it is told to [`Gathering::finished`].
#[derive(Clone, Copy, Debug)]
pub(super) struct Finished {
    /// When the first of its writers came.
    pub(super) first: Duration,
    /// When it was closed.
    pub(super) closed: Duration,
    pub(super) now: Duration,
    /// How many wrote it.
    pub(super) writers: usize,
    /// How many wait for the next one, or have written one that is still in flight.
    pub(super) waiting: usize,
}

/// What happened in a window.
#[derive(Clone, Copy, Debug, Default)]
struct Window {
    frames: u32,
    /// How many wrote its frames.
    writers: u64,
    /// How many wrote each or waited when it was finished, added up.
    at_once: u64,
    /// How long all of them waited together, in seconds.
    waited_s: f64,
}

/// What is done with the windows that come.
#[derive(Clone, Copy, Debug)]
enum Plan {
    /// The way in use is measured, for so many windows more.
    Keep(u32),
    /// So many windows more show what the other way is worth; the first of them begins with frames of the way before.
    Try(u32),
}

/// See the module.
#[derive(Debug)]
pub(super) struct Gathering {
    way: Way,
    plan: Plan,
    /// Windows to the next try, after one that was in vain.
    patience: u32,
    window: Window,
    /// How long a write waits in the way that is kept, in seconds, and how many write at once: 0 while that is not known.
    wait_s: f64,
    at_once: f64,
    /// How long a frame takes from when it is closed, in seconds.
    frame_s: f64,
    /// How many are waited for, and until when.
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
    /// How many frames that somebody waits for may be in flight.
    pub(super) fn frames_max(&self) -> usize {
        match self.way {
            Way::Overlapped => 2,
            Way::Together => 1,
        }
    }

    /// How many writers a frame waits for, and until when; none if it is written as soon as there is one.
    pub(super) fn expects(&self, now: Duration) -> Option<(usize, Duration)> {
        let waits = self.way == Way::Together && self.expected > 1;
        let waits = waits && (now < self.wait_until || planted(Bug::LateWritersWaitedFor));
        waits.then_some((self.expected, self.wait_until))
    }

    /// A frame that somebody waited for is durable, and they are answered.
    pub(super) fn finished(&mut self, frame: Finished) {
        let took_s = frame.now.saturating_sub(frame.closed).as_secs_f64();
        self.frame_s += if self.frame_s == 0.0 { took_s } else { (took_s - self.frame_s) * NEWEST };
        self.expected = frame.writers + frame.waiting;
        // Nobody waits for longer than a frame takes: that is what whoever comes too late loses.
        self.wait_until = frame.now + Duration::from_secs_f64(self.frame_s);
        // They came at about the same rate.
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
            // Both ways are the same.
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

    /// Goes on in the other way.
    fn turn(&mut self, plan: Plan) -> Plan {
        self.way = self.way.other();
        plan
    }
}

/// Whether a figure says that the load, or the device, is another than before; so it is where nothing was known before.
fn is_other(now: f64, before: f64) -> bool {
    now > before * OTHER_LOAD || now * OTHER_LOAD < before
}

#[cfg(test)]
#[path = "gathering_tests.rs"]
mod tests;
