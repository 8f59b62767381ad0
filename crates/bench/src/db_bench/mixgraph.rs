//! The model of keys and values of db_bench's `mixgraph` (Cao et al., FAST 2020): hot key ranges, hot keys in them, and
//! value sizes by a generalised Pareto distribution.

use std::time::Duration;

use rand::rngs::SmallRng;
use rand::{Rng, RngCore, SeedableRng};

use super::command_line::flags::Parsed;

/// The parameters of the model.
#[derive(Clone, Debug)]
pub(crate) struct Model {
    num: u64,
    key_dist: (f64, f64),
    ranges: Option<Ranges>,
    value: (f64, f64, f64),
    value_max: u64,
    /// Cumulative shares of gets and of puts; the rest are seeks.
    get_below: f64,
    put_below: f64,
    sine: Option<(f64, f64, f64, f64)>,
    /// Time for which one rate of the sine is kept.
    sine_step: Duration,
}

#[derive(Clone, Debug)]
struct Ranges {
    keys: u64,
    /// First access of each range, and the number of the range.
    starts: Vec<(u64, u64)>,
    accesses: u64,
}

/// The kind of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mixed {
    Get,
    Put(usize),
    Seek,
}

impl Model {
    /// The model described by the flags, over `num` keys.
    pub(crate) fn of(flags: &Parsed, num: u64, seed: u64) -> Model {
        let f = |name, default| flags.float(name, default);
        let range = [
            f("keyrange_dist_a", 0.0),
            f("keyrange_dist_b", 0.0),
            f("keyrange_dist_c", 0.0),
            f("keyrange_dist_d", 0.0),
        ];
        let ranges = range
            .iter()
            .any(|p| *p != 0.0)
            .then(|| Ranges::new(num, flags.count("keyrange_num", 1), range, seed));
        let (get, put, seek) = (f("mix_get_ratio", 1.0), f("mix_put_ratio", 0.0), f("mix_seek_ratio", 0.0));
        let all = (get + put + seek).max(f64::MIN_POSITIVE);
        Model {
            num,
            key_dist: (f("key_dist_a", 0.0), f("key_dist_b", 0.0)),
            ranges,
            value: (f("value_theta", 0.0), f("value_k", 0.2615), f("value_sigma", 25.45)),
            value_max: flags.count("mix_max_value_size", 1024),
            get_below: get / all,
            put_below: (get + put) / all,
            sine: flags
                .boolean("sine_mix_rate", false)
                .then(|| (f("sine_a", 1.0), f("sine_b", 1.0), f("sine_c", 0.0), f("sine_d", 1.0))),
            sine_step: Duration::from_millis(flags.count("sine_mix_rate_interval_milliseconds", 10_000)),
        }
    }

    /// Draws the next operation.
    pub(crate) fn draw(&self, random: &mut SmallRng) -> (u64, Mixed) {
        let drawn = random.random_range(0..self.num);
        let uniform = drawn as f64 / self.num as f64;
        let number = match &self.ranges {
            Some(ranges) => ranges.number(drawn, self.key_dist),
            None if self.key_dist.0 == 0.0 || self.key_dist.1 == 0.0 => drawn,
            // As in db_bench: `uniform` has only `num` values, so many of the less popular keys are never
            // drawn.
            None => power(uniform, self.key_dist) as u64,
        };
        let which: f64 = random.random();
        let operation = if which < self.get_below {
            Mixed::Get
        } else if which < self.put_below {
            Mixed::Put(self.value_bytes(random.random::<f64>()))
        } else {
            Mixed::Seek
        };
        (number % self.num, operation)
    }

    fn value_bytes(&self, uniform: f64) -> usize {
        let (theta, k, sigma) = self.value;
        let uniform = uniform.max(f64::MIN_POSITIVE);
        let bytes = if k == 0.0 {
            theta - sigma * uniform.ln()
        } else {
            theta + sigma * (uniform.powf(-k) - 1.0) / k
        };
        if bytes < 1.0 { 10 } else { (bytes as u64 % self.value_max.max(1)).max(1) as usize }
    }

    /// Returns the rate in operations per second at a time since the start, if the rate follows a sine.
    pub(crate) fn rate(&self, seconds: f64) -> Option<f64> {
        self.sine.map(|(a, b, c, d)| (a * (b * seconds + c).sin() + d).max(1.0))
    }

    /// Returns the time for which a rate is kept.
    pub(crate) fn rate_is_kept(&self) -> Duration {
        self.sine_step
    }
}

/// The inverse of the cumulative power law `a x^b`.
fn power(uniform: f64, (a, b): (f64, f64)) -> f64 {
    (uniform / a).powf(1.0 / b)
}

impl Ranges {
    fn new(num: u64, count: u64, [a, b, c, d]: [f64; 4], seed: u64) -> Ranges {
        let count = count.clamp(1, num);
        let mut least = 0.0;
        let mut accesses: Vec<u64> = Vec::new();
        // From the least popular range on: it gets one access, and the others get accesses in proportion
        // to their popularity.
        for range in (1..=count).rev() {
            let share = a * (b * range as f64).exp() + c * (d * range as f64).exp();
            let share = if share < 1e-16 { 0.0 } else { share };
            if least == 0.0 && share > 0.0 {
                least = (1.0 / share).floor() + 1.0;
            }
            accesses.push((least * share).floor() as u64);
        }
        // The positions of the hot ranges in the key space are random.
        let mut order: Vec<usize> = (0..accesses.len()).collect();
        let mut random = SmallRng::seed_from_u64(seed);
        for at in (1..order.len()).rev() {
            order.swap(at, random.random_range(0..=at));
        }
        let (mut starts, mut all) = (Vec::new(), 0);
        for (range, from) in order.into_iter().enumerate() {
            if accesses[from] > 0 {
                starts.push((all, range as u64));
                all += accesses[from];
            }
        }
        Ranges { keys: num / count, starts, accesses: all.max(1) }
    }

    fn number(&self, drawn: u64, (a, b): (f64, f64)) -> u64 {
        let access = drawn % self.accesses;
        let at = self.starts.partition_point(|(start, _)| *start <= access);
        let range = at.checked_sub(1).map_or(0, |at| self.starts[at].1);
        let within = if a == 0.0 || b == 0.0 {
            drawn % self.keys
        } else {
            let uniform = (drawn % self.keys) as f64 / self.keys as f64;
            // The positions of hot keys in their range are random.
            SmallRng::seed_from_u64(power(uniform, (a, b)).ceil() as u64).next_u64() % self.keys
        };
        range * self.keys + within
    }
}

#[cfg(test)]
mod tests {
    use super::super::flags::parse;
    use super::*;

    fn model(line: &str, num: u64) -> Model {
        let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        Model::of(&parse(&words).expect("flags"), num, 1)
    }

    #[test]
    fn shares_and_sizes_match_request() {
        let model = model("--mix_get_ratio=0.85 --mix_put_ratio=0.14 --mix_seek_ratio=0.01", 50_000);
        let mut random = SmallRng::seed_from_u64(3);
        let mut counts = [0.0; 3];
        let (mut sizes, draws) = (Vec::new(), 100_000);
        for _ in 0..draws {
            let (number, operation) = model.draw(&mut random);
            assert!(number < 50_000);
            match operation {
                Mixed::Get => counts[0] += 1.0,
                Mixed::Put(bytes) => {
                    counts[1] += 1.0;
                    sizes.push(bytes);
                }
                Mixed::Seek => counts[2] += 1.0,
            }
        }
        for (count, share) in counts.iter().zip([0.85, 0.14, 0.01]) {
            assert!((count / f64::from(draws) - share).abs() < 0.01, "{counts:?}");
        }
        // The mean of a generalised Pareto distribution is sigma / (1 - k).
        let mean = sizes.iter().sum::<usize>() as f64 / sizes.len() as f64;
        assert!((mean - 25.45 / (1.0 - 0.2615)).abs() < 2.5, "{mean}");
    }

    /// The property that `esker-compare` states about its skewed overwrites.
    #[test]
    fn power_law_reaches_a_quarter_of_keys() {
        let (num, exponent) = (200_000, 0.08f64);
        let line = format!("--key_dist_a={} --key_dist_b={exponent}", (num as f64).powf(-exponent));
        let model = model(&line, num);
        let mut times = vec![0u32; num as usize];
        for drawn in 0..num {
            times[power(drawn as f64 / num as f64, model.key_dist) as usize] += 1;
        }
        times.sort_unstable_by(|one, other| other.cmp(one));
        let share = |keys: usize| f64::from(times[..keys].iter().sum::<u32>()) / num as f64;
        let reached = times.iter().filter(|times| **times > 0).count() as f64 / num as f64;
        for (found, told) in
            [(reached, 0.26), (share(num as usize / 100), 0.69), (share(num as usize / 5), 0.94)]
        {
            assert!((found - told).abs() < 0.01, "{found} {told}");
        }
    }

    #[test]
    fn hot_ranges_get_most_accesses() {
        let all_random = "-keyrange_dist_a=14.18 -keyrange_dist_b=-2.917 -keyrange_dist_c=0.0164 \
                          -keyrange_dist_d=-0.08082 -keyrange_num=30";
        let model = model(all_random, 30_000);
        let mut random = SmallRng::seed_from_u64(5);
        let mut seen = [0u32; 30];
        for _ in 0..100_000 {
            seen[(model.draw(&mut random).0 / 1000) as usize] += 1;
        }
        seen.sort_unstable();
        assert!(seen[29] > 50_000 && seen[0] > 0, "{seen:?}");
    }

    #[test]
    fn sine_changes_rate() {
        let model = model("--sine_mix_rate --sine_a=1000 --sine_b=1 --sine_d=4500", 10);
        assert_eq!(model.rate(0.0), Some(4500.0));
        assert!(model.rate(std::f64::consts::FRAC_PI_2).is_some_and(|rate| (rate - 5500.0).abs() < 1e-6));
        assert_eq!(super::super::mixgraph::tests::model("", 10).rate(1.0), None);
    }
}
