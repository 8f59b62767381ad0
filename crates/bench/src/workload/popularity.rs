//! Popularity of keys.

use std::fmt;

use rand::Rng;
use rand::SeedableRng;
use rand::rngs::SmallRng;
use rand::seq::SliceRandom;
use rand_distr::{Distribution, Zipf};

/// A distribution of popularity.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Shape {
    /// All keys are equally popular.
    Uniform,
    /// The k-th most popular key has the weight `1 / k^theta`.
    Zipf(f64),
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Shape::Uniform => f.write_str("uniform"),
            Shape::Zipf(theta) => write!(f, "Zipf {theta}"),
        }
    }
}

/// Draws key numbers. Zipf is exact (by rejection-inversion, Hörmann and Derflinger 1996), and the ranks
/// of the keys are a random permutation, so that popularity is independent of the order in which keys
/// were first written.
pub(crate) struct Popularity {
    random: SmallRng,
    keys: u64,
    zipf: Option<(Zipf<f64>, Vec<u32>)>,
}

impl Popularity {
    /// A generator over the keys `0..keys`, which are fewer than 2^32 for Zipf.
    pub(crate) fn new(shape: Shape, keys: u64, seed: u64) -> Popularity {
        let keys = keys.max(1);
        let mut random = SmallRng::seed_from_u64(seed);
        let zipf = match shape {
            Shape::Uniform => None,
            Shape::Zipf(theta) => {
                let mut of_rank: Vec<u32> =
                    (0..u32::try_from(keys).expect("fewer than 2^32 keys have ranks")).collect();
                of_rank.shuffle(&mut random);
                Some((Zipf::new(keys as f64, theta).expect("keys and theta are positive"), of_rank))
            }
        };
        Popularity { random, keys, zipf }
    }

    /// Draws the next key number.
    pub(crate) fn draw(&mut self) -> u64 {
        match &self.zipf {
            None => self.random.random_range(0..self.keys),
            Some((zipf, of_rank)) => {
                let rank = zipf.sample(&mut self.random) as usize;
                u64::from(of_rank[rank.clamp(1, of_rank.len()) - 1])
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DRAWS: u64 = 400_000;

    /// Returns the chi-square statistic over the keys with at least 20 expected draws, with the rest in one
    /// bin; and the number of bins.
    fn chi_square(shape: Shape, keys: u64) -> (f64, usize) {
        let mut popularity = Popularity::new(shape, keys, 42);
        let rank_of: Vec<usize> = match &popularity.zipf {
            None => (0..keys as usize).collect(),
            Some((_, of_rank)) => {
                let mut rank_of = vec![0; keys as usize];
                of_rank.iter().enumerate().for_each(|(rank, key)| rank_of[*key as usize] = rank);
                rank_of
            }
        };
        let mut seen = vec![0u64; keys as usize];
        for _ in 0..DRAWS {
            seen[rank_of[popularity.draw() as usize]] += 1;
        }
        let theta = if let Shape::Zipf(theta) = shape { theta } else { 0.0 };
        let weight = |rank: usize| ((rank + 1) as f64).powf(-theta);
        let total: f64 = (0..keys as usize).map(weight).sum();
        let (mut statistic, mut bins, mut rest) = (0.0, 1, (0.0, 0.0));
        for (rank, seen) in seen.iter().enumerate() {
            let expected = DRAWS as f64 * weight(rank) / total;
            if expected >= 20.0 {
                statistic += (*seen as f64 - expected).powi(2) / expected;
                bins += 1;
            } else {
                rest = (rest.0 + expected, rest.1 + *seen as f64);
            }
        }
        if rest.0 > 0.0 {
            statistic += (rest.1 - rest.0).powi(2) / rest.0;
        }
        (statistic, bins)
    }

    #[test]
    fn frequencies_follow_zipf() {
        for shape in [Shape::Uniform, Shape::Zipf(0.8), Shape::Zipf(0.99), Shape::Zipf(1.0), Shape::Zipf(1.2)]
        {
            let (statistic, bins) = chi_square(shape, 5000);
            // Five standard deviations of the statistic: a correct generator fails for one seed in a
            // million, and this one has a fixed seed.
            let limit = bins as f64 + 5.0 * (2.0 * bins as f64).sqrt();
            assert!(bins > 100 && statistic < limit, "{shape}: {statistic} of {limit} in {bins} bins");
        }
    }

    #[test]
    fn popularity_is_independent_of_key_order() {
        let popularity = Popularity::new(Shape::Zipf(0.99), 10_000, 1);
        let (_, of_rank) = popularity.zipf.expect("Zipf has ranks");
        let mean = of_rank[..1000].iter().map(|key| f64::from(*key)).sum::<f64>() / 1000.0;
        assert!((mean - 5000.0).abs() < 500.0, "the popular keys' mean number is {mean}");
    }

    #[test]
    fn same_seed_draws_same_keys() {
        let draw = |seed| {
            let mut popularity = Popularity::new(Shape::Zipf(1.2), 1000, seed);
            (0..100).map(|_| popularity.draw()).collect::<Vec<_>>()
        };
        assert_eq!(draw(5), draw(5));
        assert_ne!(draw(5), draw(6));
    }
}
