//! The command line: which measurement is meant.

use std::ffi::OsString;
use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{Parser, Subcommand};

use crate::failure::{Failure, Result};
use crate::{endurance, writeamp};

/// Measurements of the Esker store.
#[derive(Parser)]
#[command(name = "esker-bench", version, disable_help_subcommand = true)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Write amplification in steady state, beside the closed form and a simulation's table.
    Writeamp(writeamp::Arguments),
    /// A store that is nearly full, under mixed load for a long time, with checks at the end.
    Endurance(endurance::Arguments),
}

/// Runs the measurement that the arguments (without the program's name) ask for. `program` is what to call it in messages.
pub fn run(program: &str, arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let arguments: Vec<OsString> = arguments.into_iter().collect();
    let failure = match dispatch(program, &arguments) {
        Ok(code) => return code,
        Err(failure) => failure,
    };
    let (code, text) = match failure {
        Failure::Usage(text) => (2, text),
        Failure::Failed(text) => (1, text),
    };
    eprintln!("{program}: {text}");
    ExitCode::from(code)
}

fn dispatch(program: &str, arguments: &[OsString]) -> Result<ExitCode> {
    let words = [OsString::from(program)].into_iter().chain(arguments.iter().cloned());
    match Arguments::try_parse_from(words) {
        Ok(arguments) => match arguments.command {
            Command::Writeamp(arguments) => writeamp::run(&arguments),
            Command::Endurance(arguments) => endurance::run(&arguments),
        }
        .map(|()| ExitCode::SUCCESS),
        Err(error) if matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) => {
            let _ = error.print();
            Ok(ExitCode::SUCCESS)
        }
        Err(error) => Err(Failure::usage(error.to_string().trim_start_matches("error: ").trim_end())),
    }
}
