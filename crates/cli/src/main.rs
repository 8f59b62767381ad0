//! The `esker` command.
//!
//! Results go to stdout, logs to stderr. Whatever keeps a verb from running is one line on stderr: exit code 2 if the
//! call or its surroundings are wrong (options, addresses, paths), 1 if something failed on the way.
#![allow(clippy::disallowed_methods, reason = "a command lives in real time; only the engine is replayed")]

mod notify;
mod serve;
mod settings;
mod time;
mod user;

use std::io::{self, IsTerminal, Write, stderr, stdout};
use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{Parser, Subcommand};
use tracing_subscriber::EnvFilter;

/// A key-value store for a little fast flash in front of a lot of coarse-IU QLC flash.
#[derive(Parser)]
#[command(name = "esker", version, disable_help_subcommand = true)]
struct Arguments {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Serves a store over the protocol of Redis until SIGTERM or SIGINT.
    Serve(serve::Arguments),
    /// Makes and changes the file of users: add, passwd, remove, list.
    User(user::Arguments),
    /// Measures a store; see `esker bench --help`.
    #[command(disable_help_flag = true, hide = cfg!(not(feature = "bench")))]
    Bench {
        /// What `esker-bench` takes.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<std::ffi::OsString>,
    },
}

/// Why a verb did not do its work.
pub(crate) enum Failure {
    /// The call or its surroundings are wrong; nothing was changed.
    Usage(String),
    /// Something failed.
    Failed(String),
}

fn main() -> ExitCode {
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) if matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) => {
            let _ = error.print();
            return ExitCode::SUCCESS;
        }
        Err(error) => return fail(Failure::Usage(one_line(&error))),
    };
    let done = match arguments.verb {
        Verb::Serve(arguments) => serve::run(&arguments),
        Verb::User(arguments) => user::run(arguments),
        #[cfg(feature = "bench")]
        Verb::Bench { arguments } => {
            start_log(&std::env::var("ESKER_LOG").unwrap_or_else(|_| "info".to_owned()));
            return esker_bench::run("esker bench", arguments);
        }
        #[cfg(not(feature = "bench"))]
        Verb::Bench { .. } => Err(Failure::Usage(
            "this esker was built without measurements; use the program esker-bench, or build esker with --features bench"
                .to_owned(),
        )),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => fail(failure),
    }
}

/// Writes a verb's result to stdout. Who reads it may have seen enough and have closed it, which is no failure.
pub(crate) fn say(text: &str) -> Result<(), Failure> {
    let mut stdout = stdout();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(Failure::Failed(format!("cannot write to stdout: {error}")))
        }
        _ => Ok(()),
    }
}

fn fail(failure: Failure) -> ExitCode {
    let (code, text) = match failure {
        Failure::Usage(text) => (2, text),
        Failure::Failed(text) => (1, text),
    };
    // Nobody may be there to read it either.
    let _ = writeln!(stderr(), "esker: {}", text.replace('\n', " "));
    ExitCode::from(code)
}

/// The parser's message without its usage and hints, which are what `--help` is for.
fn one_line(error: &clap::Error) -> String {
    let text = error.to_string();
    let message = text.split("\n\n").next().unwrap_or(&text);
    let words: Vec<_> = message.trim_start_matches("error: ").split_whitespace().collect();
    match error.kind() {
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => "which verb? (see esker --help)".to_owned(),
        // Nothing of what follows it is shown.
        ErrorKind::UnknownArgument if text.contains("'--password") => {
            "every user of a machine can read its command lines; give a password in the file or as ESKER_PASSWORD".to_owned()
        }
        _ => format!("{} (see esker serve --help)", words.join(" ")),
    }
}

/// A filter such as `info` or `warn,esker_server=debug`; `None` if the text is none.
pub(crate) fn log_filter(text: &str) -> Option<EnvFilter> {
    EnvFilter::try_new(text).ok()
}

fn start_log(filter: &str) {
    let filter = log_filter(filter).unwrap_or_else(|| EnvFilter::new("info"));
    let colours = stderr().is_terminal();
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(stderr).with_ansi(colours).init();
}
