//! Limits of a running script: its time, its client's memory, SCRIPT KILL, and the stop of the server.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

/// Reason for ending a script.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Stop {
    /// It ran too long.
    Time = 1,
    /// It exceeded its memory.
    Memory = 2,
    /// SCRIPT KILL.
    Killed = 3,
    /// It selected a database from which its keys were not read.
    Elsewhere = 4,
    /// The server is stopping.
    Shutdown = 5,
}

/// Steps of work between two checks of the clock.
const STEPS: u32 = 1 << 14;

/// Values of `Reins::fate`. It changes once, so writer and killer agree on the result.
const UNDECIDED: u8 = 0;
const WROTE: u8 = 1;
const KILLED: u8 = 2;

/// Limits and state of a running script, shared by its runner, its interpreter, and the connection that kills it.
#[derive(Debug, Default)]
pub(crate) struct Reins {
    until: Mutex<Option<Instant>>,
    stop: AtomicU8,
    /// Number of scripts begun with these reins.
    begun: AtomicU64,
    /// [`UNDECIDED`], [`WROTE`] or [`KILLED`]: whichever of the first write and SCRIPT KILL came first.
    fate: AtomicU8,
    /// True when the server is stopping, which also ends a script that has written: its writes are discarded.
    closes: AtomicBool,
    /// True if a failed allocation ends the script instead of raising an error that it may catch.
    ends_without_memory: AtomicBool,
    /// Steps done outside of the script's instructions since the last check of the clock.
    steps: AtomicU32,
    /// Maximum length of one string built outside the interpreter's memory, in bytes.
    string_bytes_max: AtomicUsize,
    /// State of the random number generator.
    pub(crate) random: AtomicU64,
    /// Protocol version of the replies that the script receives.
    pub(crate) protocol: AtomicU8,
}

impl Reins {
    /// Begins a run that may last until `until`.
    pub(crate) fn begin(&self, until: Instant, string_bytes_max: usize, ends_without_memory: bool) {
        *self.until.lock().unwrap_or_else(PoisonError::into_inner) = Some(until);
        self.stop.store(0, Ordering::Relaxed);
        self.begun.fetch_add(1, Ordering::Relaxed);
        self.string_bytes_max.store(string_bytes_max, Ordering::Relaxed);
        self.ends_without_memory.store(ends_without_memory, Ordering::Relaxed);
    }

    pub(crate) fn has_begun(&self) -> bool {
        self.runs() > 0
    }

    /// Returns the number of scripts begun, which identifies the current run.
    pub(crate) fn runs(&self) -> u64 {
        self.begun.load(Ordering::Relaxed)
    }

    /// Fails if the script must end. Once it must end, it can never continue.
    pub(crate) fn check(&self) -> Result<(), Stop> {
        self.check_at(Instant::now())
    }

    /// As [`check`](Self::check), for a caller that knows the time.
    pub(crate) fn check_at(&self, now: Instant) -> Result<(), Stop> {
        self.check_asked()?;
        let until = *self.until.lock().unwrap_or_else(PoisonError::into_inner);
        if until.is_some_and(|until| now >= until) {
            return Err(self.stop(Stop::Time));
        }
        Ok(())
    }

    /// Adds `steps` of work, each about as long as reading a byte, and checks the limits every [`STEPS`]. Steps accumulate over
    /// function calls, so that many short calls are checked too.
    pub(crate) fn work(&self, steps: usize) -> Result<(), Stop> {
        let done = u64::from(self.steps.load(Ordering::Relaxed)) + steps as u64;
        if done < u64::from(STEPS) {
            self.steps.store(done as u32, Ordering::Relaxed);
            return Ok(());
        }
        self.steps.store(0, Ordering::Relaxed);
        self.check()
    }

    /// As [`check`](Self::check) without the time limit: fails if the script was ended, killed, or the server stops.
    pub(crate) fn check_asked(&self) -> Result<(), Stop> {
        if let Some(stop) = self.stopped() {
            return Err(stop);
        }
        if self.closes.load(Ordering::SeqCst) {
            return Err(self.stop(Stop::Shutdown));
        }
        match self.fate.load(Ordering::Acquire) {
            KILLED => Err(self.stop(Stop::Killed)),
            _ => Ok(()),
        }
    }

    /// Decides the script's fate if it is undecided. Returns true if it is `fate` now.
    fn decide(&self, fate: u8) -> bool {
        let first = self.fate.compare_exchange(UNDECIDED, fate, Ordering::AcqRel, Ordering::Acquire);
        first.is_ok() || first == Err(fate)
    }

    /// Ends the script.
    pub(crate) fn stop(&self, why: Stop) -> Stop {
        self.stop.store(why as u8, Ordering::Relaxed);
        why
    }

    /// Returns the reason if the script was ended.
    pub(crate) fn stopped(&self) -> Option<Stop> {
        match self.stop.load(Ordering::Relaxed) {
            1 => Some(Stop::Time),
            2 => Some(Stop::Memory),
            3 => Some(Stop::Killed),
            4 => Some(Stop::Elsewhere),
            5 => Some(Stop::Shutdown),
            _ => None,
        }
    }

    /// Handles a failed allocation.
    pub(crate) fn lacks_memory(&self) -> Result<(), Stop> {
        match self.ends_without_memory.load(Ordering::Relaxed) {
            true => Err(self.stop(Stop::Memory)),
            false => Ok(()),
        }
    }

    pub(crate) fn string_bytes_max(&self) -> usize {
        self.string_bytes_max.load(Ordering::Relaxed)
    }

    /// Marks the script as writing, after which it cannot be killed. Fails if it was killed before.
    pub(crate) fn write(&self) -> Result<(), Stop> {
        if self.decide(WROTE) { Ok(()) } else { Err(self.stop(Stop::Killed)) }
    }

    /// Ends the script at its next check, even if it has written.
    pub(crate) fn close(&self) {
        self.closes.store(true, Ordering::SeqCst);
    }

    /// Asks the script to end. Returns true unless it has written.
    pub(crate) fn kill(&self) -> bool {
        self.decide(KILLED)
    }

    /// Returns the next random number of `lrand48`, below 2³¹.
    pub(crate) fn next_random(&self) -> u32 {
        let next = self.random.load(Ordering::Relaxed).wrapping_mul(0x5_DEEC_E66D).wrapping_add(0xB)
            & 0xFFFF_FFFF_FFFF;
        self.random.store(next, Ordering::Relaxed);
        (next >> 17) as u32
    }

    /// Seeds the random number generator.
    pub(crate) fn seed(&self, seed: u32) {
        self.random.store(u64::from(seed) << 16 | 0x330E, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn second_kill_does_not_revoke_the_first() {
        let reins = Reins::default();
        assert!(reins.kill());
        assert_eq!(reins.write(), Err(Stop::Killed));
        assert!(reins.kill(), "it is killed already");
        assert_eq!(reins.write(), Err(Stop::Killed));
    }

    #[test]
    fn script_that_has_written_is_not_killed() {
        let reins = Reins::default();
        assert_eq!(reins.write(), Ok(()));
        assert!(!reins.kill());
        assert_eq!((reins.check_asked(), reins.write()), (Ok(()), Ok(())));
    }
}
