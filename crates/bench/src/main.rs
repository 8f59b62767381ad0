//! The program `esker-bench`; see the library.

use std::process::ExitCode;

fn main() -> ExitCode {
    esker_bench::run("esker-bench", std::env::args_os().skip(1))
}
