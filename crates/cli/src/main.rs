//! The `esker` command.
//!
//! Results go to stdout, logs to stderr. Whatever keeps a verb from running is one line on stderr: exit code 2 if the
//! call or its surroundings are wrong (options, addresses, paths), 1 if something failed on the way, or a store that was
//! looked at is not well.
#![allow(clippy::disallowed_methods, reason = "a command lives in real time; only the engine is replayed")]

mod call;
mod ftl;
mod inspect;
mod notify;
mod serve;
mod settings;
mod terminal;
mod time;
mod transfer;
mod user;

use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{Parser, Subcommand};

#[cfg(feature = "bench")]
use crate::terminal::start_log;
use crate::terminal::{Failure, fail};

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
    /// Writes keys from a file, also of Redis, to a server or a store.
    Import(transfer::Import),
    /// Writes the keys of a server or a store to a file.
    Export(transfer::Export),
    #[command(flatten)]
    Look(inspect::Verb),
    /// Models an SSD with a coarse indirection unit: what workloads and traces cost its flash.
    Ftl(ftl::Arguments),
    /// Measures a store; see `esker bench --help`.
    #[command(disable_help_flag = true, hide = cfg!(not(feature = "bench")))]
    Bench {
        /// What `esker-bench` takes.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<std::ffi::OsString>,
    },
}

fn main() -> ExitCode {
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) if matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) => {
            let _ = error.print();
            return ExitCode::SUCCESS;
        }
        Err(error) => {
            let call: Vec<_> =
                std::env::args_os().skip(1).map(|word| word.to_string_lossy().into_owned()).collect();
            return fail(Failure::Usage(call::one_line(&error, &call)));
        }
    };
    let done = match arguments.verb {
        Verb::Serve(arguments) => serve::run(&arguments),
        Verb::User(arguments) => user::run(arguments),
        Verb::Import(arguments) => transfer::import(&arguments),
        Verb::Export(arguments) => transfer::export(&arguments),
        Verb::Look(verb) => return inspect::run(verb),
        Verb::Ftl(arguments) => ftl::run(arguments),
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
