//! The program `esker-bench`; see the library for what it does.

use std::process::ExitCode;

fn main() -> ExitCode {
    esker_bench::run("esker-bench", std::env::args_os().skip(1))
}
