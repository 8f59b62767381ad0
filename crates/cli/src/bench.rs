//! `esker bench`: measures this machine and its drive, or runs a benchmark of `esker-bench`.

use std::ffi::OsString;
use std::process::ExitCode;

use crate::terminal::start_log;

/// Arguments of `esker-bench`.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Arguments of `esker-bench`.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<OsString>,
}

/// Runs the measurement. Returns its exit code.
pub(crate) fn run(arguments: Arguments) -> ExitCode {
    start_log(&std::env::var("ESKER_LOG").unwrap_or_else(|_| "info".to_owned()), false);
    esker_bench::run("esker bench", arguments.arguments)
}
