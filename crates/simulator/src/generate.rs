//! Derives plans from seeds.

use esker_simulated::Random;

use crate::config::{Tiers, when_full};
use crate::plan::{
    Device, DeviceFault, End, FaultKind, Interruption, Level, Life, Media, Op, OpKind, Opening, Plan,
    ScanKind, SlotKeys,
};

/// Upper bound in milliseconds of each delay if every I/O is late: a scrub keeps reading while hundreds of writes wait
/// in sequence.
const LATE_FOR_EVER_MS: u64 = 2000;

/// Constraints on a plan to be drawn.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// Tiers; any if `None`.
    pub tiers: Option<Tiers>,
    /// Presence of a staging file; either if `None`.
    pub staging: Option<bool>,
    /// Behaviour of the devices; any if `None`.
    pub media: Option<Media>,
    /// Approximate number of operations of all clients in all lives.
    pub operations: u64,
    /// True if the tier where records stay has three devices of different sizes.
    pub three_devices: bool,
}

impl Default for Shape {
    fn default() -> Shape {
        Shape { tiers: None, staging: None, media: None, operations: 100, three_devices: false }
    }
}

impl Plan {
    /// Returns the plan of a seed.
    pub fn draw(seed: u64, shape: Shape) -> Plan {
        let mut random = Random::new(seed);
        let tiers = [Tiers::Capacity, Tiers::Both, Tiers::Fast][random.below(3) as usize];
        let tiers = shape.tiers.unwrap_or(tiers);
        let staging = random.one_in(5);
        let staging = shape.staging.unwrap_or(staging);
        let media = match random.below(10) {
            0..6 => Media::Sound,
            6..8 => Media::Failing,
            _ => Media::Lying,
        };
        let media = shape.media.unwrap_or(media);
        let config_seed = random.bits();
        let mut traits = Traits::draw(&mut random, staging, media);
        // Only some of them, so that there are also stores with many records per segment.
        let small = when_full(seed).evicts() && (seed / 8).is_multiple_of(2);
        if small {
            traits.value_bytes = LONGEST_VALUES;
        }
        let slots = (0..4 + random.below(60)).map(|_| SlotKeys {
            parts: if traits.batches && random.one_in(4) { 2 + random.below(5) } else { 1 },
            long: random.one_in(12),
            elsewhere: false,
        });
        let mut slots: Vec<_> = slots.collect();
        // Derived instead of drawn, so that existing seeds keep the rest of their plan.
        for (number, slot) in slots.iter_mut().enumerate().skip(1) {
            slot.elsewhere = config_seed >> (number % 61) & 1 == 1;
        }
        let counters = random.below(3);
        let lives = 1 + random.below(4);
        let operations = shape.operations / 2 + random.below(shape.operations + 1);
        let mut draw = Draw { random, traits, slots: slots.len() as u64, counters, media };
        let mut lives: Vec<Life> = (0..lives).map(|_| draw.life((operations / lives).max(1))).collect();
        // Derived instead of drawn, so that existing seeds keep the rest of their plan.
        let mut random = Random::new(seed ^ IDLE);
        lives.iter_mut().for_each(|life| leave_alone(life, &mut random));
        let three_devices = shape.three_devices;
        Plan { seed, tiers, staging, config_seed, small, three_devices, media, slots, counters, lives }
    }
}

/// Half the maximum length in bytes of a plan's values.
const LONGEST_VALUES: u64 = 25_000;

/// Difference between the plan's seed and the seed of idle times.
const IDLE: u64 = 0x1D1E << 40;

/// Lets some lives continue idle after their clients are done. In half of these the cut waits until the idle time is
/// over.
fn leave_alone(life: &mut Life, random: &mut Random) {
    if !random.one_in(4) {
        return;
    }
    let most_ms = [50, 700, 2600][random.below(3) as usize];
    life.idle_ms = 1 + random.below(most_ms);
    if random.one_in(2) {
        life.cut = NEVER;
    }
}

/// Later than the end of any life.
const NEVER: Interruption = Interruption::At(1 << 40);

/// Characteristics of a plan's clients.
struct Traits {
    clients: u64,
    batches: bool,
    expiry: bool,
    large_values: bool,
    clears: bool,
    clock_jumps: bool,
    levels: Vec<Level>,
    value_bytes: u64,
}

impl Traits {
    fn draw(random: &mut Random, staging: bool, media: Media) -> Traits {
        let periodic = Level::Periodic(1 + random.below(20));
        let weak = if staging { Level::Process } else { Level::None };
        let levels = match random.below(6) {
            0 => vec![Level::Sync],
            1 => vec![Level::None],
            2 => vec![periodic],
            3 => vec![weak],
            _ => vec![Level::Sync, Level::None, periodic, weak],
        };
        let expiry = random.one_in(4);
        Traits {
            clients: 1 + random.below(8),
            batches: !random.one_in(4),
            expiry,
            large_values: random.one_in(2),
            clears: random.one_in(3),
            clock_jumps: expiry && media == Media::Sound && random.one_in(2),
            levels,
            value_bytes: [60, 300, 1500, 5000, 12000, LONGEST_VALUES][random.below(6) as usize],
        }
    }
}

struct Draw {
    random: Random,
    traits: Traits,
    slots: u64,
    counters: u64,
    media: Media,
}

impl Draw {
    fn life(&mut self, operations: u64) -> Life {
        let end = match self.random.below(10) {
            0..5 => End::PowerCut,
            5..7 => End::Kill,
            _ => End::Close,
        };
        let clients = self.traits.clients;
        let clients =
            (0..clients).map(|client| (0..(operations / clients).max(1)).map(|_| self.op(client)).collect());
        let clients = clients.collect();
        // In addition to the clients' operations there is background work.
        let cut = match self.random.below(3) {
            0 => Interruption::Io(self.random.below(4 * operations)),
            _ if self.random.one_in(8) => Interruption::At(self.random.below(2_000_000)),
            _ => Interruption::At(self.random.below(400 * operations)),
        };
        let faults = match self.media {
            Media::Sound if self.random.one_in(10) => vec![self.fault(true)],
            Media::Sound => Vec::new(),
            _ => (0..self.random.below(3)).map(|_| self.fault(false)).collect(),
        };
        let rot = if self.media == Media::Lying { self.random.below(4) } else { 0 };
        let openings = if self.random.one_in(3) { 1 + self.random.below(3) } else { 0 };
        let jump_ms = [-3_600_000, -50, 20, 3_600_000][self.random.below(4) as usize];
        Life {
            more_segments: if self.random.one_in(8) { 1 + self.random.below(6) } else { 0 },
            clock_jump_ms: if self.traits.clock_jumps && self.random.one_in(2) { jump_ms } else { 0 },
            faults,
            clients,
            idle_ms: 0,
            end,
            cut,
            rot: (0..rot).map(|_| (self.device(), self.random.below(1_000_000))).collect(),
            openings: (0..openings).map(|_| self.opening()).collect(),
            again: self
                .random
                .one_in(6)
                .then(|| [End::Close, End::PowerCut, End::Kill][self.random.below(3) as usize]),
        }
    }

    fn opening(&mut self) -> Opening {
        let cut = match self.random.one_in(3) {
            true => Interruption::Io(self.random.below(120)),
            false => Interruption::At(self.random.below(6000)),
        };
        let fault = (self.media != Media::Sound && self.random.one_in(2)).then(|| self.fault(false));
        Opening { cut, kill: self.random.one_in(4), fault }
    }

    fn device(&mut self) -> Device {
        if self.random.one_in(2) { Device::Fast } else { Device::Capacity }
    }

    fn fault(&mut self, late: bool) -> DeviceFault {
        let of = match self.random.below(10) {
            0..4 => OpKind::Write,
            4..7 => OpKind::Read,
            7..9 => OpKind::Flush,
            _ => OpKind::Other,
        };
        let what = match (self.media, self.random.below(8)) {
            _ if late => FaultKind::Late(1 + self.random.below(30_000)),
            (Media::Lying, 0..=3) => FaultKind::Lost,
            (Media::Lying, _) => FaultKind::Misdirected(self.random.below(1 << 21)),
            (_, 0..=2) => FaultKind::Fails,
            (_, 3 | 4) => FaultKind::Torn,
            (_, 5) if matches!(of, OpKind::Write | OpKind::Other) => FaultKind::NoSpace,
            (_, 5) => FaultKind::Fails,
            (_, 6) => FaultKind::Vanishes,
            _ => FaultKind::Late(1 + self.random.below(30_000)),
        };
        let after = self.random.below(if of == OpKind::Write { 60 } else { 25 });
        let (device, for_ever) = (self.device(), self.random.one_in(4));
        let what = match what {
            FaultKind::Late(ms) if for_ever => FaultKind::Late(1 + ms % LATE_FOR_EVER_MS),
            what => what,
        };
        DeviceFault { device, of, after, for_ever, what }
    }

    fn op(&mut self, client: u64) -> Op {
        let level = self.traits.levels[self.random.below(self.traits.levels.len() as u64) as usize];
        let slot = self.random.below(self.slots);
        let Some(own) = self.own_slot(client) else { return Op::Get { slot } };
        match self.random.below(200) {
            0..90 => self.put(own, level),
            90..98 => {
                let slots = (0..1 + self.random.below(5))
                    .filter_map(|_| Some((self.own_slot(client)?, self.random.one_in(2))));
                Op::Several { slots: slots.collect(), level }
            }
            98..114 => Op::Delete { slot: own, level },
            114..122 => {
                Op::Update { slot: own, bytes: self.random.below(2 * self.traits.value_bytes), level }
            }
            122..126 if self.traits.expiry => Op::Expire {
                slot: own,
                in_ms: (!self.random.one_in(4)).then(|| 1 + self.random.below(40)),
                level,
            },
            126..156 => Op::Get { slot },
            156..162 => Op::GetRange { slot, from: self.random.below(1001), bytes: self.random.below(5000) },
            162..170 => Op::GetMany {
                slots: (0..1 + self.random.below(6)).map(|_| self.random.below(self.slots)).collect(),
            },
            170 => {
                let kind = ScanKind::ALL[self.random.below(ScanKind::ALL.len() as u64) as usize];
                Op::Scan(kind, 1 + self.random.below(40))
            }
            171..177 => Op::Flush,
            177 => Op::Compact,
            178 => Op::Verify,
            179..191 if self.counters > 0 => {
                Op::Count { counter: self.random.below(self.counters), bytes: self.random.below(200) }
            }
            191 if self.traits.clears => match slot % 4 {
                0 => Op::Clear,
                1 => Op::Swap,
                which => Op::ClearOne { elsewhere: which == 2 },
            },
            _ => Op::Sleep(self.random.below(2000)),
        }
    }

    /// Returns a slot of which the client is the only writer.
    fn own_slot(&mut self, client: u64) -> Option<u64> {
        let clients = self.traits.clients;
        let mine = (self.slots + clients - 1 - client) / clients;
        (mine > 0).then(|| {
            // Some slots are written much more often than others.
            let pick = self.random.below(mine).min(self.random.below(mine));
            pick * clients + client
        })
    }

    fn put(&mut self, slot: u64, level: Level) -> Op {
        let bytes = match self.random.below(20) {
            0 | 1 if self.traits.large_values => self.random.below(40_000),
            2 => [512, 4096, 8192][self.random.below(3) as usize] + self.random.below(17) - 8,
            _ => self.random.below(2 * self.traits.value_bytes),
        };
        let expires_in_ms = (self.traits.expiry && self.random.one_in(4)).then(|| 1 + self.random.below(40));
        Op::Put { slot, bytes, level, expires_in_ms, condition: self.random.one_in(12) }
    }
}
