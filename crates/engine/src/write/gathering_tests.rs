//! Writers that return as soon as they are acknowledged, one processor that serves them in turn, and a device: simulated in
//! virtual time, with fixed and with chosen strategies.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::*;

/// Load of a simulation. Times in microseconds.
#[derive(Clone, Copy, Debug)]
struct Load {
    writers: usize,
    /// Processor time between an acknowledgement and the next write of that writer.
    serve_us: u64,
    /// Additional delay.
    away_us: u64,
    flush_us: u64,
    /// True if two flushes are executed one after the other.
    one_by_one: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// An acknowledgement has reached its writer, which requests the processor.
    Asks,
    /// Its write is appended.
    Appended,
    /// The oldest frame is durable.
    Durable,
    /// The committer's wait for writers ends.
    Look,
}

struct Simulation {
    load: Load,
    gathering: Gathering,
    fixed: Option<Way>,
    now_us: u64,
    events: BinaryHeap<Reverse<(u64, u64, Event)>>,
    count: u64,
    processor_free_us: u64,
    device_free_us: u64,
    /// Arrival of the first waiting writer, and number of waiting writers.
    first_us: u64,
    waiting: usize,
    /// First arrival, closing time, writers.
    in_flight: std::collections::VecDeque<(u64, u64, usize)>,
    done: u64,
}

impl Simulation {
    fn new(load: Load, fixed: Option<Way>) -> Simulation {
        let mut simulation = Simulation {
            load,
            gathering: Gathering::default(),
            fixed,
            now_us: 0,
            events: BinaryHeap::new(),
            count: 0,
            processor_free_us: 0,
            device_free_us: 0,
            first_us: 0,
            waiting: 0,
            in_flight: Default::default(),
            done: 0,
        };
        for writer in 0..load.writers {
            simulation.at(writer as u64 * 7, Event::Asks);
        }
        simulation
    }

    fn at(&mut self, at_us: u64, event: Event) {
        self.count += 1;
        self.events.push(Reverse((at_us, self.count, event)));
    }

    /// Returns the writes per second between two times.
    fn rate(&mut self, from_us: u64, to_us: u64) -> f64 {
        let mut begun = None;
        while let Some(Reverse((at_us, _, event))) =
            self.events.peek().copied().filter(|next| next.0.0 < to_us)
        {
            self.events.pop();
            if at_us >= from_us && begun.is_none() {
                begun = Some(self.done);
            }
            self.now_us = at_us;
            self.step(event);
        }
        (self.done - begun.unwrap_or(0)) as f64 * 1e6 / (to_us - from_us) as f64
    }

    fn step(&mut self, event: Event) {
        match event {
            Event::Asks => {
                self.processor_free_us = self.processor_free_us.max(self.now_us) + self.load.serve_us;
                self.at(self.processor_free_us, Event::Appended);
            }
            Event::Appended => {
                if self.waiting == 0 {
                    self.first_us = self.now_us;
                }
                self.waiting += 1;
            }
            Event::Durable => {
                let (first, closed, writers) = self.in_flight.pop_front().expect("one is in flight");
                self.done += writers as u64;
                let us = Duration::from_micros;
                let beside: usize = self.in_flight.iter().map(|(_, _, writers)| writers).sum();
                let waiting = self.waiting + beside;
                let now = us(self.now_us);
                self.gathering.finished(Finished {
                    first: us(first),
                    closed: us(closed),
                    now,
                    writers,
                    waiting,
                });
                if let Some(way) = self.fixed {
                    self.gathering.way = way;
                }
                for _ in 0..writers {
                    self.at(self.now_us + self.load.away_us, Event::Asks);
                }
            }
            Event::Look => {}
        }
        self.close();
    }

    fn close(&mut self) {
        while self.waiting > 0 && self.in_flight.len() < self.gathering.frames_max() {
            if let Some((expected, until)) = self.gathering.expects(Duration::from_micros(self.now_us))
                && self.waiting < expected
            {
                self.at(until.as_micros() as u64 + 1, Event::Look);
                return;
            }
            let begins =
                if self.load.one_by_one { self.device_free_us.max(self.now_us) } else { self.now_us };
            self.device_free_us = begins + self.load.flush_us;
            self.at(self.device_free_us, Event::Durable);
            self.in_flight.push_back((self.first_us, self.now_us, self.waiting));
            self.waiting = 0;
        }
    }
}

fn rate(load: Load, fixed: Option<Way>) -> f64 {
    Simulation::new(load, fixed).rate(4_000_000, 10_000_000)
}

fn loads() -> impl Iterator<Item = Load> {
    let flushes = [120, 2_000, 10_000];
    flushes.into_iter().flat_map(|flush_us| {
        [1, 2, 8, 50, 500].into_iter().flat_map(move |writers| {
            [(15, 0), (3, 30)].into_iter().flat_map(move |(serve_us, away_us)| {
                [true, false].map(|one_by_one| Load { writers, serve_us, away_us, flush_us, one_by_one })
            })
        })
    })
}

#[test]
fn the_better_way_is_found_on_every_device() {
    let mut better = [0; 2];
    for load in loads() {
        let fixed = [Way::Overlapped, Way::Together].map(|way| rate(load, Some(way)));
        let chosen = rate(load, None);
        let best = f64::max(fixed[0], fixed[1]);
        assert!(chosen >= 0.95 * best, "{load:?}: {chosen:.0} a second, fixed {fixed:.0?}");
        if fixed[0] > 1.1 * fixed[1] {
            better[0] += 1;
        }
        if fixed[1] > 1.1 * fixed[0] {
            better[1] += 1;
        }
    }
    assert!(better[0] > 1 && better[1] > 1, "each strategy is the better one for some load: {better:?}");
}

#[test]
fn one_writer_waits_for_nobody() {
    let load = Load { writers: 1, serve_us: 10, away_us: 50, flush_us: 500, one_by_one: true };
    let chosen = rate(load, None);
    assert!((chosen - 1e6 / 560.0).abs() < 1.0, "{chosen}");
}

/// Writers that do not return are not waited for again.
#[test]
fn writers_that_leave_are_forgotten() {
    let mut gathering = Gathering { way: Way::Together, ..Gathering::default() };
    let ms = Duration::from_millis;
    let frame = |now, writers, waiting| Finished {
        first: ms(now - 3),
        closed: ms(now - 2),
        now: ms(now),
        writers,
        waiting,
    };
    gathering.finished(frame(10, 5, 1));
    assert_eq!(gathering.expects(ms(11)), Some((6, ms(12))));
    assert_eq!(gathering.expects(ms(12)), None, "no frame waits longer than a frame takes");
    gathering.finished(frame(20, 2, 0));
    assert_eq!(gathering.expects(ms(21)).map(|(writers, _)| writers), Some(2));
    gathering.finished(frame(30, 1, 0));
    assert_eq!(gathering.expects(ms(31)), None, "a single writer is not waited for");
}

/// After a change of the load or of the device, the other strategy is found soon.
#[test]
fn a_device_that_becomes_slow_is_noticed() {
    let fast = Load { writers: 50, serve_us: 15, away_us: 0, flush_us: 120, one_by_one: true };
    let slow = Load { flush_us: 10_000, ..fast };
    let mut simulation = Simulation::new(fast, None);
    let before = simulation.rate(4_000_000, 10_000_000);
    let overlapped = rate(fast, Some(Way::Overlapped));
    assert!(before > 0.95 * overlapped, "{before:.0} of {overlapped:.0}");
    simulation.load = slow;
    let after = simulation.rate(14_000_000, 20_000_000);
    let together = rate(slow, Some(Way::Together));
    assert!(after > 0.95 * together, "{after:.0} of {together:.0}");
}
