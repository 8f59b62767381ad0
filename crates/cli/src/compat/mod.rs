//! `esker compat`: lists the served and the unserved commands, options and scripts of a Redis user.
//!
//! - `monitor`, `stats`, `files`, `source`: read the four kinds of input.
//! - `script`: finds the commands that a script names.
//! - `report`: counts, and prints as text or JSON.
//! - `advice`: replacements for commands, options and scripts that are not served.
//!
//! `esker_server::served` decides which commands are served: it uses the server's own table.

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
use crate::client::Login;
use crate::terminal::{Failure, fail, say};
use crate::transfer::{has_manifest, is_standard};

/// Default time limit for accepting a connection and for every answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// Limit of the bytes at the beginning of an input by which its kind is recognized.
const HEAD_BYTES: u64 = 4096;

/// Lists the served commands, and the unserved commands, options and scripts, each with a replacement.
///
/// Nothing is sent to Esker: the verb has the server's own table of commands, its parsers of options, and its compiler of
/// scripts. Names of commands are printed, also unknown ones, and places in the input; arguments (keys, values, options) and
/// texts of scripts are not.
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
    Ok(login.connect(address, PATIENCE)?.ask_text(&[b"INFO", b"commandstats"])?)
}

fn read(path: &Path, kind: Option<Kind>, report: &mut Report) -> Result<(), Failure> {
    let name = path.display().to_string();
    let cannot = |error: std::io::Error| Failure::Usage(format!("cannot read {name}: {error}"));
    if is_standard(path) {
        return match read_text(Box::new(stdin().lock()), "stdin", kind, report)? {
            None => Ok(()),
            Some(_) => Err(Failure::Usage(
                "append-only files, RDB files and source code are not read from stdin; give the path"
                    .to_owned(),
            )),
        };
    }
    let is_directory = std::fs::metadata(path).map_err(cannot)?.is_dir();
    let kind = match kind {
        Some(Kind::Monitor | Kind::Stats) if is_directory => {
            return Err(Failure::Usage(format!(
                "{name} is a directory: give a file for --as monitor or stats"
            )));
        }
        None if is_directory && has_manifest(path) => Some(Kind::Aof),
        None if is_directory || source::is_code(path) => Some(Kind::Source),
        kind => kind,
    };
    let kind = match kind {
        Some(kind @ (Kind::Aof | Kind::Source)) => Some(kind),
        kind => read_text(Box::new(BufReader::new(File::open(path).map_err(cannot)?)), &name, kind, report)?,
    };
    match kind {
        None => Ok(()),
        Some(Kind::Source) => source::read(path, report),
        Some(_) => files::read(path, report),
    }
}

/// Reads MONITOR output or statistics from a reader. Returns another kind, which has not been read.
fn read_text(
    mut reader: Box<dyn BufRead>,
    name: &str,
    kind: Option<Kind>,
    report: &mut Report,
) -> Result<Option<Kind>, Failure> {
    let head = match kind {
        Some(_) => Vec::new(),
        None => {
            head_of(&mut *reader).map_err(|error| Failure::Usage(format!("cannot read {name}: {error}")))?
        }
    };
    let kind = kind.or_else(|| recognized(&head));
    let mut whole = head.chain(reader);
    match kind {
        Some(Kind::Monitor) => monitor::read(&mut whole, name, report).map(|()| None),
        Some(Kind::Stats) => stats::read(&mut whole, name, report).map(|()| None),
        Some(other) => Ok(Some(other)),
        None => Err(Failure::Usage(format!(
            "{name} is neither output of MONITOR or INFO, nor an append-only or RDB file, nor a file of code: give --as \
             monitor, stats, aof or source"
        ))),
    }
}

/// Reads the lines up to the first one that shows the kind of the input. A program that writes to a pipe may have
/// written no more yet than the answer to MONITOR.
fn head_of(reader: &mut dyn BufRead) -> std::io::Result<Vec<u8>> {
    let mut head = Vec::new();
    loop {
        let begin = head.len();
        let read = Read::take(&mut *reader, HEAD_BYTES).read_until(b'\n', &mut head)?;
        let line = head[begin..].trim_ascii();
        if read == 0 || !(line.is_empty() || monitor::is_confirmation(line)) || head.len() as u64 > HEAD_BYTES
        {
            return Ok(head);
        }
    }
}

/// Recognizes an input by its first lines.
fn recognized(head: &[u8]) -> Option<Kind> {
    let line = head.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii);
    let line = { line }.find(|line| !line.is_empty() && !monitor::is_confirmation(line))?;
    let begins = |words: &[&[u8]]| words.iter().any(|word| line.starts_with(word));
    let is_command =
        line.strip_prefix(b"*").is_some_and(|count| count.first().is_some_and(u8::is_ascii_digit));
    match line {
        _ if is_command || begins(&[b"REDIS", b"VALKEY", b"#TS:"]) => Some(Kind::Aof),
        _ if begins(&[b"cmdstat_", b"# Server", b"# Commandstats"]) => Some(Kind::Stats),
        line if monitor::begins(line) => Some(Kind::Monitor),
        _ => None,
    }
}
