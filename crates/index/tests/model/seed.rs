//! Seeds of random tests: one printed line replays a failure.

use rand::SeedableRng;
use rand::rngs::SmallRng;

/// Prints the line that replays the test, if the test panics.
pub(crate) struct Seed {
    test: &'static str,
    seed: u64,
}

impl Seed {
    /// Returns the seeds to run: the one in the environment if set, otherwise `seeds`.
    pub(crate) fn all(test: &'static str, seeds: std::ops::Range<u64>) -> impl Iterator<Item = Seed> {
        let wanted = std::env::var("ESKER_SEED").ok().map(|seed| seed.parse().expect("a number"));
        let seeds = match wanted {
            Some(seed) => seed..seed + 1,
            None => seeds,
        };
        seeds.map(move |seed| Seed { test, seed })
    }

    pub(crate) fn rng(&self) -> SmallRng {
        self.rng_of(0)
    }

    /// Returns a separate generator for each thread.
    pub(crate) fn rng_of(&self, thread: u64) -> SmallRng {
        SmallRng::seed_from_u64(self.seed ^ thread << 32)
    }
}

impl Drop for Seed {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let Seed { test, seed } = self;
            eprintln!("replay with: ESKER_SEED={seed} cargo test -p esker-index --test model {test}");
        }
    }
}
