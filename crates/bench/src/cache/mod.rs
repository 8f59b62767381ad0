//! `esker-bench cache`: an evicting store used as a look-aside cache: a requested key that is absent is put.
//!
//! Measures the hit ratio beside that of an exact LRU of the same bytes for the same requests, device bytes for each byte put, and the
//! latency of gets before the store is full and after.

mod arguments;
mod lru;
mod measure;

pub(crate) use arguments::Arguments;

use crate::instruments::failure::{Failure, Result};

/// Measures, and prints the figures.
pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    if let Some(theta) = arguments.theta.iter().find(|theta| !(**theta > 0.0 && **theta <= 5.0)) {
        return Err(Failure::usage(format!("--theta is {theta}; it has to be more than 0, at most 5")));
    }
    if arguments.records < 1000 || arguments.keys() > 1 << 31 {
        return Err(Failure::usage(
            "--records has to be 1000 or more, and --keys times --records at most 2^31",
        ));
    }
    measure::run(arguments)
}
