//! Looks into a store from outside: `inspect`, `segments`, `records`, `get`, `put`, `del`, `scan`,
//! `trace`, `check` and `repair`.
//!
//! Data goes to stdout, as text or with `--json` as JSON; progress and log go to stderr. The exit code is
//! 0 if all is well, 1 if the store is damaged or something failed, and 2 if the call is wrong.

mod access;
mod check;
mod exit;
pub(crate) mod memory;
mod overview;
mod place;
mod records;
mod segments;
pub(crate) mod show;
pub(crate) mod watch;

use std::process::ExitCode;

use clap::Subcommand;

use self::exit::Outcome;
pub(crate) use self::place::database;
use crate::terminal::{fail, start_log};

#[derive(Subcommand)]
pub(crate) enum Verb {
    /// Shows the properties and the fill level of a store; `esker inspect layout` shows the layout of its bytes.
    Inspect(overview::Arguments),
    /// Shows every segment of a store, as a table, a map or a picture.
    Segments(segments::Arguments),
    /// Shows every record of one segment.
    Records(records::OfSegment),
    /// Shows the location of every version of a key, and which one is current, with the reason.
    Trace(records::OfKey),
    /// Prints the value of a key. Beside a server, records that only the server's memory holds are missing.
    Get(access::Get),
    /// Puts a key into a store that no server has open.
    Put(access::Put),
    /// Deletes keys from a store that no server has open.
    Del(access::Del),
    /// Prints the keys of a store with their values.
    Scan(access::Scan),
    /// Verifies everything in a store, and names the damage, the keys that are concerned and the remedy.
    Check(check::Check),
    /// Makes a new store of the healthy records of a damaged one.
    Repair(check::Repair),
}

pub(crate) fn run(verb: Verb) -> ExitCode {
    start_log(&std::env::var("ESKER_LOG").unwrap_or_else(|_| "error".to_owned()), false);
    let done = match verb {
        Verb::Inspect(arguments) => overview::run(&arguments),
        Verb::Segments(arguments) => segments::run(&arguments),
        Verb::Records(arguments) => records::of_segment(&arguments),
        Verb::Trace(arguments) => records::of_key(&arguments),
        Verb::Get(arguments) => access::get(&arguments),
        Verb::Put(arguments) => access::put(&arguments),
        Verb::Del(arguments) => access::del(&arguments),
        Verb::Scan(arguments) => access::scan(&arguments),
        Verb::Check(arguments) => check::check(&arguments),
        Verb::Repair(arguments) => check::repair(&arguments),
    };
    match done {
        Ok(Outcome::Well) => ExitCode::SUCCESS,
        Ok(Outcome::NotWell) => ExitCode::from(1),
        Err(failure) => fail(failure),
    }
}
