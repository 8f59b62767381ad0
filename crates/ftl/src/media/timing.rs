//! When each program, read and erase happens on the dies of a drive.
//!
//! Nothing is simulated step by step: each resource knows until when it is taken, and an operation that needs several starts
//! when the last of them is free. Requests come in the order of time.
//!
//! 1. A command takes its turn at the controller.
//! 2. A write waits until the cache has room for its IUs, and is acknowledged: the cache survives a power cut.
//! 3. IUs are gathered into one program of a die, which is transferred over the channel and programmed. Then they leave the
//!    cache.
//! 4. A read of the host goes before programs: it interrupts one that runs. Reads for the drive itself wait for their turn,
//!    and take the time of their die; the program that they are for does not wait, as the collector reads ahead.
//! 5. An erase takes the share of an erase that a scaled-down superblock is of a real one.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::Profile;
use crate::{Cause, Flash, Shape};

const SECOND_NS: u128 = 1_000_000_000;

#[derive(Clone, Copy, Debug, Default)]
struct Die {
    /// Until when programs, erases and background reads take it.
    busy_until: u64,
    /// Until when reads of the host take it.
    read_until: u64,
    /// Which row is in its registers, for the drive's own reads.
    row: Option<u64>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Channel {
    programs_until: u64,
    reads_until: u64,
}

/// IUs that are being gathered for one program of a die.
#[derive(Clone, Copy, Debug)]
struct Gathered {
    program: u32,
    /// IUs of the host among them, which take room in the cache.
    host_ius: u32,
}

/// Flash that takes the time of a drive's profile.
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
    controller_until: u64,
    dies: Vec<Die>,
    channels: Vec<Channel>,
    gathered: Vec<Gathered>,
    cached_ius: u64,
    /// IUs that leave the cache, and when.
    leaving: BinaryHeap<Reverse<(u64, u32)>>,
}

impl Timing {
    /// The flash of a drive. It takes no time before it is turned on.
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
            controller_until: 0,
            dies: vec![Die::default(); profile.dies as usize],
            channels: vec![Channel::default(); profile.channels as usize],
            gathered: Vec::new(),
            cached_ius: 0,
            leaving: BinaryHeap::new(),
        }
    }

    /// From here on everything takes its time.
    pub fn turn_on(&mut self) {
        self.is_on = true;
        self.gathered.clear();
    }

    /// A write comes, and is about to be done to the drive; when it is acknowledged.
    pub fn accept_write(&mut self, at: u64, bytes: u64) -> u64 {
        self.start_command(at);
        let ius = bytes.div_ceil(u64::from(self.iu_bytes));
        let room = (self.profile.cache_bytes / u64::from(self.iu_bytes)).max(ius);
        while self.cached_ius + ius > room {
            let Some(Reverse((left, ius))) = self.leaving.pop() else { break };
            self.cached_ius -= u64::from(ius);
            self.now = self.now.max(left);
        }
        self.now
    }

    /// A read or a TRIM comes, and is about to be done to the drive.
    pub fn start_command(&mut self, at: u64) {
        self.command_until = self.command_until.max(at) + self.profile.command_ns;
        self.now = self.command_until;
        self.read_done = 0;
    }

    /// When everything is there that was read since the last command started.
    pub fn finish_read(&self) -> u64 {
        self.now.max(self.read_done)
    }

    fn die(&self, place: u32) -> usize {
        (place / self.ius_per_program) as usize % self.dies.len()
    }

    /// The controller moves bytes to or from flash; when it starts.
    fn through_controller(&mut self, bytes: u64) -> u64 {
        let start = self.controller_until.max(self.now);
        if let Some(bytes_per_s) = self.profile.flash_bytes_per_s {
            self.controller_until = start + transfer_ns(bytes, bytes_per_s);
        }
        start
    }

    /// A full program of a die; when it is done.
    fn program_die(&mut self, program: u32) -> u64 {
        let bytes = u64::from(self.ius_per_program) * u64::from(self.iu_bytes);
        let start = self.through_controller(bytes);
        let at = program as usize % self.dies.len();
        let channel = at % self.channels.len();
        let channel = &mut self.channels[channel];
        let moved = transfer_ns(bytes, self.profile.medium.bus_bytes_per_s);
        channel.programs_until = channel.programs_until.max(self.now) + moved;
        let there = channel.programs_until.max(start + moved);
        let die = &mut self.dies[at];
        die.row = None;
        die.busy_until = die.busy_until.max(die.read_until).max(there) + self.program_ns;
        die.busy_until
    }

    /// A read for the host, which goes before programs.
    fn read_now(&mut self, place: u32, bytes: u32) {
        let start = self.through_controller(u64::from(bytes));
        let at = self.die(place);
        let (medium, count) = (&self.profile.medium, self.channels.len());
        let die = &mut self.dies[at];
        let is_first = die.read_until <= start;
        let mut start = start.max(die.read_until);
        if die.busy_until > start {
            let suspend = if is_first { medium.suspend_ns } else { 0 };
            start += suspend;
            die.busy_until += suspend + medium.read_ns;
        }
        die.read_until = start + medium.read_ns;
        let channel = &mut self.channels[at % count];
        let moved = transfer_ns(u64::from(bytes), medium.bus_bytes_per_s);
        channel.reads_until = channel.reads_until.max(die.read_until) + moved;
        channel.programs_until += moved;
        self.read_done = self.read_done.max(channel.reads_until);
    }

    /// A read for the drive itself, which waits for its turn.
    fn read_later(&mut self, place: u32) {
        let bytes = u64::from(self.iu_bytes);
        let start = self.through_controller(bytes);
        let at = self.die(place);
        let (medium, count) = (&self.profile.medium, self.channels.len());
        let row = u64::from(place) * bytes / medium.row_bytes();
        let die = &mut self.dies[at];
        let is_there = die.row.replace(row) == Some(row);
        if !is_there {
            die.busy_until = die.busy_until.max(die.read_until).max(start) + medium.read_ns;
        }
        let moved = transfer_ns(bytes, medium.bus_bytes_per_s);
        let channel = &mut self.channels[at % count];
        channel.programs_until = channel.programs_until.max(self.now) + moved;
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

/// A time, for so many bytes of those that it is for.
fn scale(ns: u64, bytes: u64, of_bytes: u64) -> u64 {
    (u128::from(ns) * u128::from(bytes) / u128::from(of_bytes)) as u64
}
