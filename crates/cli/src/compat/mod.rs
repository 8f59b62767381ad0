//! `esker compat`: tells which commands, options and scripts of a Redis user Esker serves.
//!
//! - `monitor`, `stats`, `files`, `source`: read the four kinds of input.
//! - `script`: finds the commands that a script names.
//! - `report`: counts, and prints as text or JSON.
//! - `advice`: what to use instead.
//!
//! Whether a command is served is decided by `esker_server::served`, which asks the server's own table.

mod advice;
mod files;
mod monitor;
mod report;
mod script;
mod source;
mod stats;
#[cfg(test)]
mod tests;

use std::fs::File;
use std::io::{BufRead, BufReader, Read, stdin};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, ValueEnum};

use self::report::Report;
use crate::client::{Answer, Login};
use crate::terminal::{Failure, fail, say};
use crate::transfer::is_standard;

/// Default time limit for accepting a connection and for every answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// Bytes of the beginning of an input by which its kind is recognized.
const HEAD_BYTES: u64 = 4096;

/// Tells which commands, options and scripts Esker serves, which it does not, and what to use instead.
///
/// Nothing is sent to Esker: the verb has the server's own table of commands, its parsers of options, and its compiler of
/// scripts. Keys and values of the input are never printed.
#[derive(Args)]
#[command(after_help = "\
Examples:
  timeout 60 redis-cli MONITOR | esker compat -       what clients send in a minute
  redis-cli INFO commandstats | esker compat -        which commands they sent since the start
  esker compat --from 10.0.0.5:6379                   the same, asked over the network
  esker compat appendonlydir                          the writes of an append-only file, and types in an RDB file
  esker compat --as source src --ignore debug --json  a source tree, in CI

Exit code 0 if all is served; 1 if something is not; 2 if the input is wrong.")]
pub(crate) struct Arguments {
    /// Files or directories; - is stdin.
    #[arg(value_name = "PATH", required_unless_present = "from")]
    paths: Vec<PathBuf>,
    /// Kind of the input [default: recognized by its beginning].
    #[arg(long = "as", value_name = "KIND")]
    kind: Option<Kind>,
    /// Address of a running Redis or Valkey whose INFO commandstats is read: HOST:PORT, or a port of this machine.
    #[arg(long, value_name = "ADDR", conflicts_with = "paths", conflicts_with = "kind")]
    from: Option<String>,
    #[command(flatten)]
    login: Login,
    /// Command that may be unserved, such as debug or config|rewrite. May be given several times.
    #[arg(long, value_name = "COMMAND")]
    ignore: Vec<String>,
    /// Print the result as JSON.
    #[arg(long)]
    json: bool,
}

/// A kind of input.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Kind {
    /// Output of MONITOR.
    Monitor,
    /// Output of INFO commandstats, or of all of INFO.
    Stats,
    /// An append-only file, its directory, its manifest, or an RDB file.
    Aof,
    /// A file or directory of source code, also of Lua scripts.
    Source,
}

/// Runs the verb. Returns its exit code.
pub(crate) fn run(arguments: &Arguments) -> ExitCode {
    match report(arguments) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        // 1 means that a command is not served, so no failure may have it.
        Err(Failure::Failed(why) | Failure::Usage(why)) => fail(Failure::Usage(why)),
    }
}

/// Reads all inputs and prints the report. Returns true if all is served.
fn report(arguments: &Arguments) -> Result<bool, Failure> {
    let mut report = Report::new(&arguments.ignore)?;
    if let Some(address) = &arguments.from {
        let text = stats_of(address, &arguments.login)?;
        stats::read(&mut BufReader::new(&text[..]), address, &mut report)?;
    }
    for path in &arguments.paths {
        read(path, arguments.kind, &mut report)?;
    }
    say(&if arguments.json { report.json() } else { report.text() })?;
    Ok(report.all_served())
}

fn stats_of(address: &str, login: &Login) -> Result<Vec<u8>, Failure> {
    let mut client = login.server(address, PATIENCE)?.connect()?;
    match client.ask(&[b"INFO", b"commandstats"])? {
        Answer::Text(text) => Ok(text),
        _ => Err(client.unexpected("INFO commandstats").into()),
    }
}

fn read(path: &Path, kind: Option<Kind>, report: &mut Report) -> Result<(), Failure> {
    let name = path.display().to_string();
    let cannot = |error: std::io::Error| Failure::Usage(format!("cannot read {name}: {error}"));
    if is_standard(path) {
        return read_text(Box::new(stdin().lock()), "stdin", kind, report);
    }
    let known = std::fs::metadata(path).map_err(cannot)?;
    match kind {
        Some(Kind::Aof) => return files::read(path, report),
        Some(Kind::Source) => return source::read(path, report),
        Some(_) if known.is_dir() => {
            return Err(Failure::Usage(format!(
                "{name} is a directory: give a file for --as monitor or stats"
            )));
        }
        None if known.is_dir() && files::is_directory_of_redis(path) => return files::read(path, report),
        None if known.is_dir() => return source::read(path, report),
        _ => {}
    }
    let file = File::open(path).map_err(cannot)?;
    if kind.is_none() {
        let mut head = Vec::new();
        (&file).take(HEAD_BYTES).read_to_end(&mut head).map_err(cannot)?;
        match recognized(&head) {
            Some(Kind::Aof) => return files::read(path, report),
            Some(Kind::Source) => return source::read(path, report),
            None => return Err(unrecognized(&name)),
            known => return read_text(Box::new(reopened(path, file)?), &name, known, report),
        }
    }
    read_text(Box::new(BufReader::new(file)), &name, kind, report)
}

/// Returns a file from its beginning.
fn reopened(path: &Path, mut file: File) -> Result<BufReader<File>, Failure> {
    std::io::Seek::rewind(&mut file).map_err(|error| {
        Failure::Usage(format!("cannot read {} twice: {error}; give --as", path.display()))
    })?;
    Ok(BufReader::new(file))
}

/// Reads MONITOR output or statistics from a reader.
fn read_text(
    mut reader: Box<dyn BufRead>,
    name: &str,
    kind: Option<Kind>,
    report: &mut Report,
) -> Result<(), Failure> {
    let head = reader.fill_buf().map_err(|error| Failure::Usage(format!("cannot read {name}: {error}")))?;
    match kind.or_else(|| recognized(head)) {
        Some(Kind::Monitor) => monitor::read(&mut reader, name, report),
        Some(Kind::Stats) => stats::read(&mut reader, name, report),
        Some(Kind::Aof | Kind::Source) => Err(Failure::Usage(format!(
            "{name}: append-only files, RDB files and source code are read from a path; give the path"
        ))),
        None => Err(unrecognized(name)),
    }
}

fn unrecognized(name: &str) -> Failure {
    Failure::Usage(format!(
        "{name} is neither output of MONITOR or INFO, nor an append-only or RDB file: give --as monitor, stats, aof or source"
    ))
}

/// Recognizes an input by its beginning.
fn recognized(head: &[u8]) -> Option<Kind> {
    if head.starts_with(b"REDIS") || head.starts_with(b"VALKEY") || head.starts_with(b"#TS:") {
        return Some(Kind::Aof);
    }
    if head.first() == Some(&b'*') && head.get(1).is_some_and(u8::is_ascii_digit) {
        return Some(Kind::Aof);
    }
    let lines = || head.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii);
    if lines().any(|line| line.starts_with(b"cmdstat_")) || head.starts_with(b"# Server") {
        return Some(Kind::Stats);
    }
    let first = lines().find(|line| !line.is_empty() && !monitor::is_confirmation(line));
    match first {
        Some(line) if monitor::begins(line) => Some(Kind::Monitor),
        Some(_) if !head.contains(&0) && names_redis(head) => Some(Kind::Source),
        _ => None,
    }
}

/// Returns true for text that mentions Redis or a call of a script.
fn names_redis(head: &[u8]) -> bool {
    let lower = head.to_ascii_lowercase();
    [&b"redis"[..], b"valkey"].iter().any(|word| lower.windows(word.len()).any(|part| part == *word))
}
