//! The `esker` command.
//!
//! Results go to stdout, logs to stderr. An error that keeps a verb from running is one line on stderr.
//! The exit code is 2 if the call or its environment is wrong (options, addresses, paths), and 1 if
//! something failed on the way or the inspected store is damaged.
#![allow(clippy::disallowed_methods, reason = "a command lives in real time; only the engine is replayed")]
// These macros panic if stdout or stderr cannot be written; use the functions of `terminal`.
#![cfg_attr(not(test), deny(clippy::print_stdout, clippy::print_stderr))]

mod backup;
mod bench;
mod calc;
mod call;
mod client;
mod cluster;
mod compat;
mod device;
mod inspect;
mod made;
mod new_file;
mod notify;
mod pages;
mod ping;
mod secret;
mod serve;
mod settings;
mod support;
mod terminal;
mod time;
mod top;
mod transfer;
mod user;

use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{CommandFactory, Parser, Subcommand};

use crate::terminal::{Failure, fail};

/// A key-value store for a little fast flash in front of a lot of coarse-IU QLC flash.
#[derive(Parser)]
#[command(
    name = "esker",
    version,
    disable_help_subcommand = true,
    after_help = "\
Examples:
  esker serve                  a server on 127.0.0.1:6379, with its data in ./esker-data
  esker top                    its activity, live
  esker calc --keys 100m --key-size 16 --value-size 4k
  esker serve --help           settings and examples; every verb has some

Exit code 0; 1 if something failed; 2 if the call or its surroundings are wrong."
)]
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
    Import(Box<transfer::Import>),
    /// Writes the keys of a server or a store to a file.
    Export(transfer::Export),
    /// Takes backups of a store, lists, verifies and prunes them.
    Backup(backup::Arguments),
    /// Restores a store from a backup.
    Restore(backup::Restore),
    #[command(flatten)]
    Look(inspect::Verb),
    /// Shows properties and write amplification of drives.
    Device(device::Arguments),
    /// Shows and changes a cluster: status, nodes, groups, transfer, remove.
    Cluster(cluster::Arguments),
    /// Tells which commands of a Redis user Esker serves, and what to use instead of others.
    Compat(Box<compat::Arguments>),
    /// Shows the activity of a server, live.
    Top(top::Arguments),
    /// Asks a server for a sign of life.
    Ping(ping::Arguments),
    /// Collects settings, metrics, layout and log in one archive for a bug report, without keys, values and secrets.
    Support(Box<support::Arguments>),
    /// Estimates the needs of a store: memory, space, write amplification, the life of a drive.
    Calc(calc::Arguments),
    /// Prints shell completions.
    Completions(pages::Completions),
    /// Writes manual pages, one for each verb.
    Man(pages::Man),
    /// Measures this machine and the drive of a directory in a minute, or runs a benchmark; see `esker bench --help`.
    #[command(disable_help_flag = true)]
    Bench(bench::Arguments),
}

/// Runs the command with the arguments of the process.
pub fn main() -> ExitCode {
    // Writing beyond a file-size limit returns EFBIG, which is reported with the file's name. The signal
    // would end the process instead.
    ignore_file_size_signal();
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
        Verb::Backup(arguments) => backup::run(&arguments),
        Verb::Restore(arguments) => backup::restore(&arguments),
        Verb::Look(verb) => return inspect::run(verb),
        Verb::Device(arguments) => device::run(&arguments),
        Verb::Cluster(arguments) => cluster::run(&arguments),
        Verb::Compat(arguments) => return compat::run(&arguments),
        Verb::Top(arguments) => top::run(arguments),
        Verb::Ping(arguments) => ping::run(&arguments),
        Verb::Support(arguments) => support::run(&arguments),
        Verb::Calc(arguments) => calc::run(&arguments),
        Verb::Completions(arguments) => pages::completions(&arguments, Arguments::command()),
        Verb::Man(arguments) => pages::man(&arguments, Arguments::command()),
        Verb::Bench(arguments) => return bench::run(arguments),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => fail(failure),
    }
}

/// Ignores SIGXFSZ, so that a write beyond the limit of a file's size fails with EFBIG.
#[allow(unsafe_code, reason = "ignoring a signal is a call that no crate here wraps")]
fn ignore_file_size_signal() {
    // SAFETY: SIG_IGN installs no handler, so that no code of this process runs in the context of the signal.
    unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
}

/// Checks a file of settings and their combination. For fuzzing.
///
/// # Errors
/// The defect, in words.
#[doc(hidden)]
pub fn check_settings(path: &std::path::Path) -> Result<(), String> {
    let mut settings = settings::Settings::defaults();
    settings.read_file(path)?;
    settings.outcome().map(drop)
}

#[cfg(test)]
mod tests {
    use clap::Command;

    use super::*;

    /// Returns the verbs whose help has no examples or whose clap definitions contradict each other.
    fn without_examples(command: &Command, path: &str) -> Vec<String> {
        let path = format!("{path} {}", command.get_name());
        // A verb that passes `--help` on shows the help of another program.
        let has = command.is_disable_help_flag_set()
            || command.get_after_help().is_some_and(|help| help.to_string().contains("Examples:\n  "));
        let verbs = command.get_subcommands().filter(|verb| !verb.is_hide_set());
        let below = verbs.flat_map(|verb| without_examples(verb, &path));
        (!has).then(|| path.clone()).into_iter().chain(below).collect()
    }

    #[test]
    fn every_help_has_examples() {
        let mut command = Arguments::command();
        command.build();
        command.clone().debug_assert();
        assert_eq!(without_examples(&command, ""), Vec::<String>::new());
    }
}
