//! Parts that the programs `esker`, `esker-bench`, `esker-compare` and `esker-ssd` share: sizes on a command line, results on
//! stdout, and exit codes.

mod output;
mod size;

pub use output::{Failure, fail, note, said, say, say_bytes};
pub use size::{parse, parse_capacity};
