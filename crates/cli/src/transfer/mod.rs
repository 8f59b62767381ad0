//! `esker import` and `esker export`: keys from and to files, a server, or a store that no process has
//! open; and from one running server to another (`live`).
//!
//! A transfer has a source and a sink of records: files (`json_lines`, `table`, `stream`), a server
//! (`remote`), or a store (`local`). Expired records are left out. Files of Redis (`rdb`, `aof`) contain
//! commands too, which need a target whose keys can be read back.

mod aof;
mod file;
mod input;
mod json_lines;
mod keys;
mod live;
mod local;
mod progress;
mod rdb;
mod record;
mod remote;
mod stream;
mod table;
mod view;

use std::path::PathBuf;
use std::time::Duration;

use clap::Parser;

use self::aof::{Files, Options};
pub(crate) use self::aof::{Surveyed, has_manifest, survey};
use self::file::Format;
pub(crate) use self::input::is_standard;
use self::live::Live;
use self::local::LocalSink;
pub(crate) use self::local::Places;
use self::progress::Shown;
use self::record::{Destination, LeftOut, Sink, Source};
use self::remote::{RemoteSink, RemoteSource};
use crate::client::Login;
use crate::terminal::{Failure, note, say};
use crate::time::now_ms;

/// Default time limit of a server for accepting a connection and for every read and write.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// Writes keys from a file to a server, or to a store that no process has open, each to the database that the file names; or
/// copies a running server to another. Existing keys are replaced.
#[derive(Parser)]
#[command(after_help = "\
Examples:
  esker import --rdb dump.rdb --to 6379            strings of a Redis, with their times to live
  esker import --rdb appendonlydir --to 6379       the same of its append-only file
  esker import keys.jsonl --dir ./esker-data       into a store that no server has open
  esker import - --format csv --to 10.0.0.7:6379 < keys.csv
  esker import keys.jsonl --to db1:6380 --tls --ca ca.pem --user loader --password-file secret
  esker import --from redis1:6379 --to 7379 --follow     a running Redis, until Ctrl-C; then the servers are compared
  esker import --from 7379 --to redis2:6379              and back to a running Redis

Exit code 0 if all was imported, whatever was left out because it is no string, has expired or was not asked for; 1 if
something failed on the way, the file ends within a command, or the target cannot hold it (too long, an empty key, a database
that is not there): what was imported stays; 2 if the call is wrong. With --from it is 1 if keys differ in the end.")]
pub(crate) struct Import {
    /// Input file; - for stdin.
    #[arg(value_name = "FILE", required_unless_present_any = ["rdb", "from"], conflicts_with = "rdb")]
    file: Option<PathBuf>,
    /// An RDB file or append-only file of Redis or Valkey, or the directory or manifest of one: its strings. Other types are
    /// counted.
    #[arg(long, value_name = "FILE")]
    rdb: Option<PathBuf>,
    /// Only this database of the RDB or append-only file; all if it is not given. Keys keep the number of theirs.
    #[arg(long, value_name = "N", requires = "rdb")]
    database: Option<u64>,
    /// Accept that the last command of an append-only file is cut, as a crash of redis-server may leave it.
    #[arg(long, requires = "rdb")]
    allow_truncated: bool,
    /// Format of the file [default: by the ending of its name].
    #[arg(long, value_enum, value_name = "FORMAT")]
    format: Option<Format>,
    /// The server's address: HOST:PORT, or a port of this machine.
    #[arg(long, value_name = "ADDR", conflicts_with_all = ["dir", "fast", "capacity"])]
    to: Option<String>,
    #[command(flatten)]
    login: Login,
    #[command(flatten)]
    live: Live,
    #[command(flatten)]
    places: Places,
    /// Memory for the store; 10 bytes a key beside 512m are enough [default: 512m, or the need of the existing keys].
    #[arg(long, value_name = "SIZE", value_parser = esker_command::parse, conflicts_with = "to")]
    memory: Option<u64>,
    /// Print the result as JSON.
    #[arg(long)]
    json: bool,
}

/// Writes all keys of all databases of a server, or of a store that no process has open, to a file.
///
/// The keys of a server are read while others write: each value is of some moment of the export. Any Redis from 7.0 on can be
/// the server.
#[derive(Parser)]
#[command(after_help = "\
Examples:
  esker export keys.jsonl --from 6379
  esker export - --format resp --dir ./esker-data | redis-cli --pipe
  esker export keys.csv --format csv --encoding hex --from 10.0.0.7:6379 --user backup
  esker import --from 6379 --to redis1:6379        to a running Redis, without a file

Exit code 0 if all was exported; 1 if records are damaged: then the file has all
others; or if something failed on the way: then there is no file; 2 if the call
is wrong. A damaged record of which a server cannot tell the key ends the export
from it: stop it and export its store with --dir.")]
pub(crate) struct Export {
    /// Output file, which must not exist; - for stdout.
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Format of the file [default: by the ending of its name].
    #[arg(long, value_enum, value_name = "FORMAT")]
    format: Option<Format>,
    /// Representation of bytes in CSV.
    #[arg(long, value_enum, value_name = "ENCODING", default_value_t = table::Encoding::Base64)]
    encoding: table::Encoding,
    /// The server's address: HOST:PORT, or a port of this machine.
    #[arg(long, value_name = "ADDR", conflicts_with_all = ["dir", "fast", "capacity"])]
    from: Option<String>,
    #[command(flatten)]
    login: Login,
    #[command(flatten)]
    places: Places,
    /// Print the result as JSON, on stderr.
    #[arg(long)]
    json: bool,
}

/// The input of an import.
enum From {
    Records(Box<dyn Source>),
    Redis(Files),
}

pub(crate) fn import(arguments: &Import) -> Result<(), Failure> {
    if let (Some(from), Some(to)) = (&arguments.live.from, &arguments.to) {
        return live::run(&arguments.live, from, to, &arguments.login, arguments.json);
    }
    let from = match (&arguments.rdb, &arguments.file) {
        (Some(path), _) => {
            let options = Options { database: arguments.database, allow_cut: arguments.allow_truncated };
            From::Redis(Files::open(path, options)?)
        }
        (None, file) => {
            let file = file.as_deref().expect("the parser wants one");
            From::Records(file::open(file, arguments.format)?)
        }
    };
    let mut target: Box<dyn Destination> = match &arguments.to {
        Some(address) => Box::new(RemoteSink::new(arguments.login.connect(address, PATIENCE)?)),
        None => Box::new(LocalSink::open(&arguments.places, arguments.memory)?),
    };
    let mut commands = 0;
    let (moved, left_out) = match from {
        From::Records(mut source) => transfer(&mut *source, &mut *target)?,
        From::Redis(files) => moving(&mut *target, |target, left_out, shown| {
            commands = files.import(target, now_ms(), left_out, shown)?;
            Ok(())
        })?,
    };
    say(&result("imported", moved, commands, &left_out, arguments.json))?;
    match left_out.missed {
        0 => Ok(()),
        missed => {
            Err(Failure::Failed(format!("keys that the target cannot hold and were left out: {missed}")))
        }
    }
}

pub(crate) fn export(arguments: &Export) -> Result<(), Failure> {
    let (mut sink, new_file) = file::create(&arguments.file, arguments.format, arguments.encoding)?;
    let mut source: Box<dyn Source> = match &arguments.from {
        Some(address) => Box::new(RemoteSource::new(arguments.login.connect(address, PATIENCE)?)?),
        None => local::source(&arguments.places)?,
    };
    let (moved, left_out) = transfer(&mut *source, &mut *sink)?;
    if let Some(file) = new_file {
        file.keep()?;
    }
    // On stderr, because stdout may hold the exported data.
    note(&result("exported", moved, 0, &left_out, arguments.json));
    if let Some(damaged) = left_out.of.get(local::DAMAGED) {
        return Err(Failure::Failed(format!("{damaged} records are damaged and were left out")));
    }
    Ok(())
}

/// Moves all records of a source. Returns the number of records written, and the counts of those left
/// out.
fn transfer(source: &mut dyn Source, sink: &mut dyn Sink) -> Result<(u64, LeftOut), Failure> {
    let now_ms = now_ms();
    moving(sink, |sink, left_out, shown| {
        loop {
            let record = match source.next(left_out) {
                Ok(Some(record)) => record,
                // Records before an early end of the file are written all the same.
                ended => return sink.finish(left_out).and(ended.map(drop)),
            };
            if record.expires_at_ms.is_some_and(|at| at <= now_ms) {
                left_out.add("expired");
                continue;
            }
            sink.put(record, left_out)?;
            shown.look(source.progress(), sink.written());
        }
    })
}

/// Runs a transfer with a progress bar. A failure states the number of records written before it.
fn moving<S: Sink + ?Sized>(
    sink: &mut S,
    transfer: impl FnOnce(&mut S, &mut LeftOut, &mut Shown) -> Result<(), Failure>,
) -> Result<(u64, LeftOut), Failure> {
    let (mut left_out, mut shown) = (LeftOut::default(), Shown::new());
    let moved = transfer(sink, &mut left_out, &mut shown);
    shown.end();
    let written = sink.written();
    match moved {
        Ok(()) => Ok((written, left_out)),
        Err(Failure::Failed(why)) if written > 0 => {
            Err(Failure::Failed(format!("{why}; keys written before that: {written}")))
        }
        Err(failure) => Err(failure),
    }
}

/// Formats the result in words or as JSON. `commands`: number of commands read from an append-only file.
fn result(done: &str, moved: u64, commands: u64, left_out: &LeftOut, json: bool) -> String {
    if json {
        let mut value = serde_json::json!({ done: moved, "left_out": left_out.of });
        if commands > 0 {
            value["commands"] = commands.into();
        }
        return format!("{value}\n");
    }
    let parts: Vec<_> = left_out.of.iter().map(|(what, count)| format!("{what} ({count})")).collect();
    let left_out = if parts.is_empty() { String::new() } else { format!("; left out: {}", parts.join(", ")) };
    let plural = |count: u64, what: &str| format!("{count} {what}{}", if count == 1 { "" } else { "s" });
    let read = if commands > 0 { format!(", {} read", plural(commands, "command")) } else { String::new() };
    format!("{done} {}{read}{left_out}\n", plural(moved, "key"))
}

#[cfg(test)]
mod tests;
