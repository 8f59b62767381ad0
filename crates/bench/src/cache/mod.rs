//! `esker-bench cache`: an evicting store used as a cache. A requested key that is absent is put.
//!
//! * The store (`measure`): hit ratio, compared with an exact LRU of the same bytes for the same
//!   requests; device bytes per byte put; and latencies of gets before and after the store is full.
//! * `--simulate` (`simulate`): hit ratio and copies per put of published rules and of the store's own,
//!   simulated with records alone. The store's rule was chosen by these results:
//!   `docs/decisions/0028-cache-mode.md`.

mod arguments;
mod clocks;
mod lru;
mod measure;
mod rule;
mod simulate;

pub(crate) use arguments::Arguments;

use crate::instruments::failure::{Failure, Result};

/// Measures, and prints the results.
pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    if let Some(theta) = arguments.theta.iter().find(|theta| !(**theta > 0.0 && **theta <= 5.0)) {
        return Err(Failure::usage(format!("--theta is {theta}; it has to be more than 0, at most 5")));
    }
    if arguments.records < 1000 || arguments.keys() > 1 << 31 {
        return Err(Failure::usage(
            "--records has to be 1000 or more, and --keys times --records at most 2^31",
        ));
    }
    if arguments.simulate { simulate::run(arguments) } else { measure::run(arguments) }
}
