//! What ends a script that runs: its time, its client's memory, SCRIPT KILL, or the stop of the server.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

/// Why a script was ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Stop {
    /// It ran too long.
    Time = 1,
    /// It took too much memory.
    Memory = 2,
    /// By SCRIPT KILL.
    Killed = 3,
    /// It chose a database that its keys were not read from.
    Elsewhere = 4,
    /// The server stops.
    Shutdown = 5,
}

/// Steps between two looks at the clock.
const STEPS: u32 = 1 << 14;

/// Shared by who runs a script, its interpreter, and who kills it.
#[derive(Debug, Default)]
pub(crate) struct Reins {
    until: Mutex<Option<Instant>>,
    stop: AtomicU8,
    /// How many scripts began with them.
    begun: AtomicU64,
    wrote: AtomicBool,
    kill: AtomicBool,
    /// Whether the server stops, which ends a script that wrote too: nothing of it is kept.
    closes: AtomicBool,
    /// Whether memory that is not had ends the script, instead of being an error that it may catch.
    ends_without_memory: AtomicBool,
    /// What was done since the last look at the clock, of work that a script makes outside of its instructions.
    steps: AtomicU32,
    /// Bytes of one string that is made beside the interpreter's memory.
    string_bytes_max: AtomicUsize,
    /// Where the random numbers are.
    pub(crate) random: AtomicU64,
    /// Version of the protocol in which commands answer it.
    pub(crate) protocol: AtomicU8,
}

impl Reins {
    /// Begins a run that ends then.
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

    /// How many scripts began with them: the one at hand is none of those before it.
    pub(crate) fn runs(&self) -> u64 {
        self.begun.load(Ordering::Relaxed)
    }

    /// Whether the script may go on. Once it may not, it never may again.
    pub(crate) fn check(&self) -> Result<(), Stop> {
        self.check_at(Instant::now())
    }

    /// The same for a caller that knows the time.
    pub(crate) fn check_at(&self, now: Instant) -> Result<(), Stop> {
        self.check_asked()?;
        let until = *self.until.lock().unwrap_or_else(PoisonError::into_inner);
        if until.is_some_and(|until| now >= until) {
            return Err(self.stop(Stop::Time));
        }
        Ok(())
    }

    /// So many steps more were done, each about as long as a look at a byte. Whether the script may go on is asked now and then:
    /// steps count on from one call of a function to the next, since the clock is looked at for very many of them only.
    pub(crate) fn work(&self, steps: usize) -> Result<(), Stop> {
        let done = u64::from(self.steps.load(Ordering::Relaxed)) + steps as u64;
        if done < u64::from(STEPS) {
            self.steps.store(done as u32, Ordering::Relaxed);
            return Ok(());
        }
        self.steps.store(0, Ordering::Relaxed);
        self.check()
    }

    /// The same but for its time: whether it was ended, or somebody asked for that.
    pub(crate) fn check_asked(&self) -> Result<(), Stop> {
        if let Some(stop) = self.stopped() {
            return Err(stop);
        }
        if self.closes.load(Ordering::SeqCst) {
            return Err(self.stop(Stop::Shutdown));
        }
        match self.kill.load(Ordering::SeqCst) && !self.wrote.load(Ordering::SeqCst) {
            true => Err(self.stop(Stop::Killed)),
            false => Ok(()),
        }
    }

    /// Ends the script.
    pub(crate) fn stop(&self, why: Stop) -> Stop {
        self.stop.store(why as u8, Ordering::Relaxed);
        why
    }

    /// Why it was ended, if it was.
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

    /// There was no memory.
    pub(crate) fn lacks_memory(&self) -> Result<(), Stop> {
        match self.ends_without_memory.load(Ordering::Relaxed) {
            true => Err(self.stop(Stop::Memory)),
            false => Ok(()),
        }
    }

    pub(crate) fn string_bytes_max(&self) -> usize {
        self.string_bytes_max.load(Ordering::Relaxed)
    }

    /// The script is about to write, from which on nobody kills it; unless somebody has.
    pub(crate) fn write(&self) -> Result<(), Stop> {
        self.wrote.store(true, Ordering::SeqCst);
        match self.kill.load(Ordering::SeqCst) {
            true => Err(self.stop(Stop::Killed)),
            false => Ok(()),
        }
    }

    /// Ends the script at its next look at the reins, whether it wrote or not.
    pub(crate) fn close(&self) {
        self.closes.store(true, Ordering::SeqCst);
    }

    /// Asks the script to end; whether it will.
    pub(crate) fn kill(&self) -> bool {
        self.kill.store(true, Ordering::SeqCst);
        let wrote = self.wrote.load(Ordering::SeqCst);
        if wrote {
            self.kill.store(false, Ordering::SeqCst);
        }
        !wrote
    }

    /// The next random number: that of `lrand48`, below 2³¹.
    pub(crate) fn next_random(&self) -> u32 {
        let next = self.random.load(Ordering::Relaxed).wrapping_mul(0x5_DEEC_E66D).wrapping_add(0xB)
            & 0xFFFF_FFFF_FFFF;
        self.random.store(next, Ordering::Relaxed);
        (next >> 17) as u32
    }

    /// Begins the random numbers anew.
    pub(crate) fn seed(&self, seed: u32) {
        self.random.store(u64::from(seed) << 16 | 0x330E, Ordering::Relaxed);
    }
}
