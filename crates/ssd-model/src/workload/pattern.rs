//! Offsets of a job's requests in sequence, from a seed.

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use rand_distr::{Distribution, Zipf};

use super::blocks::Blocks;
use super::job::{Job, Pattern};
use crate::Shape;
use crate::request::Kind;

/// Distribution of the requests.
#[derive(Debug)]
enum Places {
    /// Per writer, the start of its part of the span and its progress; `each` is the length of a part.
    Sequential {
        starts: Vec<u64>,
        done: Vec<u64>,
        each: u64,
    },
    Random,
    /// The place of rank `r` is `r × stride`, modulo the number of places, so that frequently written places are spread
    /// out.
    Zipf {
        ranks: Zipf<f64>,
        stride: u64,
    },
}

/// The requests of a job in sequence.
#[derive(Debug)]
pub struct Stream {
    random: SmallRng,
    places: Places,
    /// Number of places.
    count: u64,
    align: u64,
    blocks: Blocks,
    shift: u64,
    reads: f64,
    trims: f64,
}

impl Stream {
    /// Returns the requests of a job that was [checked](Job::check) for a drive of this shape.
    pub fn new(job: &Job, shape: &Shape, seed: u64) -> Stream {
        let align = job.align();
        let room = |bytes: u64| (bytes - job.block.longest()) / align + 1;
        let span = job.span_bytes(shape);
        let count = room(span);
        let places = match job.pattern {
            Pattern::Random => Places::Random,
            Pattern::Zipf(exponent) => Places::Zipf {
                ranks: Zipf::new(count as f64, exponent).expect("the job was checked"),
                stride: stride(count),
            },
            Pattern::Sequential => {
                // Blocks follow each other without a gap; a separate alignment only moves the start of a part.
                let each = span / u64::from(job.writers) / align * align;
                let starts = (0..u64::from(job.writers)).map(|writer| writer * each).collect();
                Places::Sequential { starts, done: vec![0; job.writers as usize], each }
            }
        };
        let random = SmallRng::seed_from_u64(seed);
        let blocks = job.block.clone();
        Stream { random, places, count, align, blocks, shift: job.shift, reads: job.reads, trims: job.trims }
    }

    /// Returns the next request of a writer: its kind, its offset and its length.
    pub fn next(&mut self, writer: usize) -> (Kind, u64, u64) {
        let kind = self.kind();
        let block = self.blocks.draw(&mut self.random);
        let at = match &mut self.places {
            Places::Random => self.random.random_range(0..self.count) * self.align,
            Places::Zipf { ranks, stride } => {
                let rank = (ranks.sample(&mut self.random) as u64 - 1).min(self.count - 1);
                (u128::from(rank) * u128::from(*stride) % u128::from(self.count)) as u64 * self.align
            }
            Places::Sequential { starts, done, each } => {
                let at = starts[writer] + done[writer];
                done[writer] += block;
                if done[writer] + self.blocks.longest() > *each {
                    done[writer] = 0;
                }
                at
            }
        };
        (kind, self.shift + at, block)
    }

    fn kind(&mut self) -> Kind {
        if self.reads + self.trims == 0.0 {
            return Kind::Write;
        }
        let drawn: f64 = self.random.random();
        if drawn < self.reads {
            Kind::Read
        } else if drawn < self.reads + self.trims {
            Kind::Trim
        } else {
            Kind::Write
        }
    }
}

/// Returns a number coprime to `count`, near its golden section.
fn stride(count: u64) -> u64 {
    let mut stride = ((count as f64 * 0.618) as u64).max(1);
    while common_divisor(stride, count) != 1 {
        stride += 1;
    }
    stride
}

fn common_divisor(one: u64, other: u64) -> u64 {
    if other == 0 { one } else { common_divisor(other, one % other) }
}
