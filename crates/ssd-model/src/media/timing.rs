//! Timing of programs, reads and erases on the dies of a drive.
//!
//! There is no step-by-step simulation: each resource stores the time until which it is busy, and an operation that
//! needs several starts when the last of them is free. Requests arrive in the order of time.
//!
//! 1. A command waits for the controller.
//! 2. A write waits until the cache has room for its IUs, and is then acknowledged: the cache survives a power failure.
//! 3. IUs are gathered into one program of a die, which is transferred over the channel and programmed. Then they leave
//!    the cache.
//! 4. A host read precedes programs: it suspends a running one. The drive's own reads wait for their turn and occupy
//!    their die; the program that needs them does not wait, because the collector reads ahead.
//! 5. An erase takes time in proportion to the size of the scaled-down superblock.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::Profile;
use crate::{Cause, Flash, Shape};

const SECOND_NS: u128 = 1_000_000_000;

#[derive(Clone, Copy, Debug, Default)]
struct Die {
    /// Time until which programs, erases and background reads occupy it.
    busy_until: u64,
    /// Time until which host reads occupy it.
    read_until: u64,
    /// Row in its registers, for the drive's own reads.
    row: Option<u64>,
}

/// A resource that transfers bytes: a channel, or the controller. Host reads overtake programs and the drive's own
/// reads.
#[derive(Clone, Copy, Debug, Default)]
struct Lanes {
    background_until: u64,
    reads_until: u64,
}

impl Lanes {
    /// Transfers a program or the drive's own read, in order. Returns the completion time.
    fn pass_in_turn(&mut self, at: u64, takes: u64) -> u64 {
        self.background_until = self.background_until.max(at) + takes;
        self.background_until
    }

    /// Transfers a host read ahead of the others. Returns the completion time.
    fn pass_first(&mut self, at: u64, takes: u64) -> u64 {
        self.reads_until = self.reads_until.max(at) + takes;
        self.background_until += takes;
        self.reads_until
    }
}

/// IUs being gathered for one program of a die.
#[derive(Clone, Copy, Debug)]
struct Gathered {
    program: u32,
    /// Host IUs among them, which occupy the cache.
    host_ius: u32,
}

/// Flash with the timing of a drive profile.
#[derive(Debug)]
pub struct Timing {
    profile: Profile,
    iu_bytes: u32,
    ius_per_program: u32,
    program_ns: u64,
    erase_ns: u64,
    is_on: bool,
    now: u64,
    read_done: u64,
    command_until: u64,
    /// Time at which the last write entered the cache; the next one enters no earlier.
    accepted_at: u64,
    controller: Lanes,
    dies: Vec<Die>,
    channels: Vec<Lanes>,
    gathered: Vec<Gathered>,
    cached_ius: u64,
    /// IUs that will leave the cache, and their departure times.
    leaving: BinaryHeap<Reverse<(u64, u32)>>,
}

impl Timing {
    /// Returns the flash of a drive. It takes no time until it is turned on.
    pub fn new(profile: &Profile, shape: &Shape) -> Timing {
        let medium = &profile.medium;
        let ius_per_program = (medium.program_bytes() / u64::from(shape.iu_bytes)).max(1);
        let program_bytes = ius_per_program * u64::from(shape.iu_bytes);
        let superblock_erase = u64::from(profile.dies) * medium.erase_bytes;
        Timing {
            profile: *profile,
            iu_bytes: shape.iu_bytes,
            ius_per_program: ius_per_program as u32,
            program_ns: scale(medium.program_ns, program_bytes, medium.program_bytes()),
            erase_ns: scale(medium.erase_ns, shape.superblock_bytes, superblock_erase),
            is_on: false,
            now: 0,
            read_done: 0,
            command_until: 0,
            accepted_at: 0,
            controller: Lanes::default(),
            dies: vec![Die::default(); profile.dies as usize],
            channels: vec![Lanes::default(); profile.channels as usize],
            gathered: Vec::new(),
            cached_ius: 0,
            leaving: BinaryHeap::new(),
        }
    }

    /// From now on, operations take time.
    pub fn turn_on(&mut self) {
        self.is_on = true;
        self.gathered.clear();
    }

    /// Accepts a write that the drive is about to execute. Returns its acknowledgement time.
    pub fn accept_write(&mut self, at: u64, bytes: u64) -> u64 {
        self.start_command(at);
        let ius = bytes.div_ceil(u64::from(self.iu_bytes));
        let room = (self.profile.cache_bytes / u64::from(self.iu_bytes)).max(ius);
        while self.cached_ius + ius > room {
            let Some(Reverse((left, ius))) = self.leaving.pop() else { break };
            self.cached_ius -= u64::from(ius);
            self.accepted_at = self.accepted_at.max(left);
        }
        self.accepted_at = self.accepted_at.max(self.now);
        self.now = self.accepted_at;
        self.now
    }

    /// Starts a read or a TRIM that the drive is about to execute.
    pub fn start_command(&mut self, at: u64) {
        self.command_until = self.command_until.max(at) + self.profile.command_ns;
        self.now = self.command_until;
        self.read_done = 0;
    }

    /// Returns the completion time of all reads since the last command started.
    pub fn finish_read(&self) -> u64 {
        self.now.max(self.read_done)
    }

    fn die(&self, place: u32) -> usize {
        (place / self.ius_per_program) as usize % self.dies.len()
    }

    /// Returns the controller time for a transfer.
    fn controller_ns(&self, bytes: u64) -> u64 {
        self.profile.flash_bytes_per_s.map_or(0, |bytes_per_s| transfer_ns(bytes, bytes_per_s))
    }

    /// Schedules a full program of a die. Returns its completion time.
    fn program_die(&mut self, program: u32) -> u64 {
        let bytes = u64::from(self.ius_per_program) * u64::from(self.iu_bytes);
        let sent = self.controller.pass_in_turn(self.now, self.controller_ns(bytes));
        let at = program as usize % self.dies.len();
        let channel = at % self.channels.len();
        let moved = transfer_ns(bytes, self.profile.medium.bus_bytes_per_s);
        let there = self.channels[channel].pass_in_turn(self.now, moved).max(sent);
        let die = &mut self.dies[at];
        die.row = None;
        die.busy_until = die.busy_until.max(die.read_until).max(there) + self.program_ns;
        die.busy_until
    }

    /// Schedules a host read, ahead of programs.
    fn read_now(&mut self, place: u32, bytes: u32) {
        let (at, medium) = (self.die(place), &self.profile.medium);
        let die = &mut self.dies[at];
        let is_first = die.read_until <= self.now;
        let mut start = self.now.max(die.read_until);
        if die.busy_until > start {
            let suspend = if is_first { medium.suspend_ns } else { 0 };
            start += suspend;
            die.busy_until += suspend + medium.read_ns;
        }
        die.read_until = start + medium.read_ns;
        let read = die.read_until;
        // The transfer is booked from now, so that a read whose die is free does not wait for one whose die is busy.
        let moved = transfer_ns(u64::from(bytes), medium.bus_bytes_per_s);
        let channel = at % self.channels.len();
        let through_channel = self.channels[channel].pass_first(self.now, moved);
        let through_controller = self.controller.pass_first(self.now, self.controller_ns(u64::from(bytes)));
        self.read_done = self.read_done.max(read + moved).max(through_channel).max(through_controller);
    }

    /// Schedules one of the drive's own reads, in order.
    fn read_later(&mut self, place: u32) {
        let bytes = u64::from(self.iu_bytes);
        self.controller.pass_in_turn(self.now, self.controller_ns(bytes));
        let (at, medium) = (self.die(place), &self.profile.medium);
        let row = u64::from(place) * bytes / medium.row_bytes();
        let die = &mut self.dies[at];
        if die.row.replace(row) != Some(row) {
            die.busy_until = die.busy_until.max(die.read_until).max(self.now) + medium.read_ns;
        }
        let channel = at % self.channels.len();
        self.channels[channel].pass_in_turn(self.now, transfer_ns(bytes, medium.bus_bytes_per_s));
    }
}

impl Flash for Timing {
    fn program(&mut self, place: u32, cause: Cause) {
        if !self.is_on {
            return;
        }
        let (program, last) = (place / self.ius_per_program, place % self.ius_per_program + 1);
        let found = self.gathered.iter().position(|gathered| gathered.program == program);
        let at = found.unwrap_or_else(|| {
            self.gathered.push(Gathered { program, host_ius: 0 });
            self.gathered.len() - 1
        });
        let gathered = &mut self.gathered[at];
        if cause != Cause::Collect {
            gathered.host_ius += 1;
            self.cached_ius += 1;
        }
        if last == self.ius_per_program {
            let full = self.gathered.swap_remove(at);
            let done = self.program_die(full.program);
            self.leaving.push(Reverse((done, full.host_ius)));
        }
    }

    fn read(&mut self, place: u32, bytes: u32, cause: Cause) {
        if !self.is_on {
            return;
        }
        match cause {
            Cause::Host => self.read_now(place, bytes),
            Cause::Modify | Cause::Collect => self.read_later(place),
        }
    }

    fn erase(&mut self, _: u32) {
        if self.is_on {
            for die in &mut self.dies {
                die.busy_until = die.busy_until.max(self.now) + self.erase_ns;
                die.row = None;
            }
        }
    }
}

fn transfer_ns(bytes: u64, bytes_per_s: u64) -> u64 {
    (u128::from(bytes) * SECOND_NS / u128::from(bytes_per_s)) as u64
}

/// Scales a duration for `of_bytes` bytes to `bytes` bytes.
fn scale(ns: u64, bytes: u64, of_bytes: u64) -> u64 {
    (u128::from(ns) * u128::from(bytes) / u128::from(of_bytes)) as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Medium, PROFILES};

    fn timing(at: usize) -> Timing {
        let profile = &PROFILES[at];
        let mut timing = Timing::new(profile, &profile.shape(1.0));
        timing.turn_on();
        timing
    }

    fn read(timing: &mut Timing, at: u64, place: u32) -> u64 {
        timing.start_command(at);
        timing.read(place, 4096, Cause::Host);
        timing.finish_read() - at
    }

    #[test]
    fn lone_read_takes_command_flash_and_transfer_time() {
        let mut timing = timing(1);
        let way = transfer_ns(4096, 533_000_000);
        assert_eq!(read(&mut timing, 0, 0), 714 + 58_000 + way);
        // The same die is busy, another one is not.
        assert_eq!(read(&mut timing, 714, 1), 58_000 + 58_000 + way);
        assert_eq!(read(&mut timing, 2 * 714, 24), 714 + 58_000 + way);
    }

    #[test]
    fn read_precedes_and_delays_program() {
        let (mut alone, mut disturbed) = (timing(1), timing(1));
        for timing in [&mut alone, &mut disturbed] {
            timing.accept_write(0, 24 * 4096);
            (0..24).for_each(|place| timing.program(place, Cause::Host));
        }
        let waited = read(&mut disturbed, 500_000, 0);
        assert!(waited < 2 * 58_000, "{waited} ns, of a program of {} ns", Medium::TLC.program_ns);
        assert_eq!(disturbed.dies[0].busy_until - alone.dies[0].busy_until, 58_000 + 5_000);
    }

    #[test]
    fn writes_wait_for_cache_room_in_order() {
        let mut timing = timing(0);
        let mut accepted = Vec::new();
        for place in 0..2000 {
            accepted.push(timing.accept_write(0, 64 << 10));
            timing.program(place, Cause::Host);
        }
        assert!(accepted.is_sorted() && accepted[100] < 1_000_000, "the cache takes the first at once");
        // From then on writes are accepted at the controller's pace.
        let bytes_per_s = 1000.0 * 65_536.0 / ((accepted[1999] - accepted[999]) as f64 / 1e9);
        assert!((bytes_per_s / 3_192_000_000.0 - 1.0).abs() < 0.05, "{bytes_per_s}");
    }
}
