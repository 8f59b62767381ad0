//! `esker-bench cache`: a store that evicts what nobody asks for, used as a cache: a key that is asked for and is not there is
//! put.
//!
//! * The store (`measure`): hit ratio, beside that of an exact LRU of the same bytes for the same requests; bytes sent to the
//!   device for each byte put; and how long gets take, before the store is full and after.
//! * `--simulate` (`simulate`): published rules and the store's own, of records alone: hit ratio, and copies for each put. It
//!   is what the rule was chosen by: `docs/decisions/0028-cache-mode.md`.

mod arguments;
mod clocks;
mod lru;
mod measure;
mod rule;
mod simulate;

pub(crate) use arguments::Arguments;

use crate::instruments::failure::{Failure, Result};

/// Measures, and prints what was measured.
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
