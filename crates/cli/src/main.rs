//! The `esker` command; see the library of this package.

use std::process::ExitCode;

fn main() -> ExitCode {
    esker_cli::main()
}
