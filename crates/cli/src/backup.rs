//! `esker backup` and `esker restore`.

use std::fmt::Write;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};
use esker_backup::{Error, Summary, Target};
use serde_json::{Value, json};

use crate::client::{Answer, Client, Login};
use crate::inspect::show::{at_ms, bytes, things};
use crate::inspect::watch::Bar;
use crate::terminal::{Failure, say};
use crate::transfer::{PATIENCE, Places};

/// How often a server is asked whether its backup has ended.
const ASK_EVERY: Duration = Duration::from_millis(200);

/// Takes backups of a store, lists, verifies and prunes them.
#[derive(Args)]
#[command(after_help = "\
Examples:
  esker backup take /backup --dir ./esker-data      a store that nobody has open
  esker backup take --from 6379                     a server, into the directory of its setting backup-dir
  esker backup list /backup
  esker backup verify /backup --id 7
  esker backup prune /backup --keep 14

Exit codes: 0 done; 1 something failed, or a backup is damaged; 2 the call is wrong.")]
pub(crate) struct Arguments {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Takes a backup of what the store holds at this moment; segments that an earlier backup has are not copied again.
    Take(Box<Take>),
    /// Lists the backups of a directory.
    #[command(after_help = "Examples:\n  esker backup list /backup\n  esker backup list /backup --json")]
    List(Directory),
    /// Reads a backup and compares it with its checksums.
    #[command(after_help = "Examples:\n  esker backup verify /backup\n  esker backup verify /backup --id 7")]
    Verify(Chosen),
    /// Removes all backups but the newest.
    #[command(after_help = "Examples:\n  esker backup prune /backup --keep 14")]
    Prune {
        #[command(flatten)]
        directory: Directory,
        /// How many are kept.
        #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..))]
        keep: u32,
    },
}

#[derive(Args)]
#[command(after_help = "\
Examples:
  esker backup take /backup --dir ./esker-data --limit 50m
  esker backup take --from 6379
  esker backup take --from db1:6380 --tls --ca ca.pem --user backup --password-file secret")]
struct Take {
    /// The directory of backups, which is made if it is not there.
    #[arg(value_name = "DIRECTORY", required_unless_present = "from", conflicts_with = "from")]
    directory: Option<PathBuf>,
    /// The address of a server that takes it, into the directory of its setting backup-dir: HOST:PORT, or a port of this
    /// machine.
    #[arg(long, value_name = "ADDR", conflicts_with_all = ["dir", "fast", "capacity"])]
    from: Option<String>,
    #[command(flatten)]
    login: Login,
    #[command(flatten)]
    places: Places,
    /// Bytes a second that are read at most, such as 50m.
    #[arg(long, value_name = "BYTES", value_parser = esker_size::parse, conflicts_with = "from")]
    limit: Option<u64>,
    /// Print the result as JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Args)]
struct Directory {
    /// The directory of backups.
    #[arg(value_name = "DIRECTORY")]
    directory: PathBuf,
    /// Print the result as JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Args)]
struct Chosen {
    #[command(flatten)]
    directory: Directory,
    /// The number of the backup; the newest if it is not given.
    #[arg(long, value_name = "NUMBER")]
    id: Option<u64>,
}

/// Makes a store of a backup. It is another store from then on, with an identity of its own.
#[derive(Args)]
#[command(after_help = "\
Examples:
  esker restore /backup --dir ./restored
  esker restore /backup --id 7 --fast /dev/nvme0n1 --capacity /dev/nvme1n1

Exit codes: 0 done; 1 something failed, or the backup is damaged; 2 the call is wrong.")]
pub(crate) struct Restore {
    #[command(flatten)]
    chosen: Chosen,
    #[command(flatten)]
    places: Places,
    /// Overwrite what the target holds, which is gone even if the backup turns out to be damaged: verify it before.
    #[arg(long)]
    overwrite: bool,
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    match &arguments.verb {
        Verb::Take(arguments) => match &arguments.from {
            Some(address) => take_from(address, arguments),
            None => take(arguments),
        },
        Verb::List(Directory { directory, json }) => {
            list(&esker_backup::list(directory).map_err(failure)?, *json)
        }
        Verb::Verify(chosen) => verify(chosen),
        Verb::Prune { directory: Directory { directory, json }, keep } => {
            let (backups, gone) = esker_backup::prune(directory, *keep as usize).map_err(failure)?;
            let text = format!("removed {} and {}\n", things(backups as u64, "backup"), bytes(gone));
            tell(*json, &json!({ "removed_backups": backups, "removed_bytes": gone }), &text)
        }
    }
}

fn failure(error: Error) -> Failure {
    match error {
        Error::Invalid(_) | Error::Device(_) => Failure::Usage(error.to_string()),
        _ => Failure::Failed(error.to_string()),
    }
}

fn tell(as_json: bool, value: &Value, text: &str) -> Result<(), Failure> {
    if as_json { say(&format!("{value}\n")) } else { say(text) }
}

fn json_of(summary: &Summary) -> Value {
    json!({
        "id": summary.id,
        "taken_at_ms": summary.taken_at_ms,
        "keys": summary.keys,
        "segments": summary.segments,
        "bytes": summary.bytes,
    })
}

fn text_of(summary: &Summary) -> String {
    let Summary { id, taken_at_ms, keys, segments, bytes: of_segments, .. } = summary;
    let (keys, segments) = (things(*keys, "key"), things(*segments as u64, "segment"));
    format!("backup {id} of {}: {keys}, {segments}, {}", at_ms(*taken_at_ms), bytes(*of_segments))
}

fn take(arguments: &Take) -> Result<(), Failure> {
    let directory = arguments.directory.as_ref().expect("the parser wants one");
    let store = arguments.places.open(false, None)?;
    let mut shown = Progress::new("copying");
    let taken = esker_backup::backup(store.store(), directory, arguments.limit.unwrap_or(0), |copied| {
        shown.show(copied.bytes, copied.of_bytes);
    });
    shown.clear();
    let report = taken.map_err(failure)?;
    store.close().map_err(|error| Failure::Failed(error.to_string()))?;
    let mut value = json_of(&report.summary);
    value["copied_bytes"] = report.copied_bytes.into();
    value["copied_segments"] = report.copied_segments.into();
    value["took_ms"] = (report.took.as_millis() as u64).into();
    let copied = bytes(report.copied_bytes);
    let text =
        format!("{}; copied {copied} in {:.1} s\n", text_of(&report.summary), report.took.as_secs_f64());
    tell(arguments.json, &value, &text)
}

/// Has a server take a backup, and waits for its end.
fn take_from(address: &str, arguments: &Take) -> Result<(), Failure> {
    let mut client = arguments.login.server(address, PATIENCE)?.connect()?;
    client.ask(&[b"BGSAVE"])?;
    loop {
        std::thread::sleep(ASK_EVERY);
        let told = persistence(&mut client)?;
        let field = |name: &str| told.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        if field("rdb_bgsave_in_progress") != Some("0") {
            continue;
        }
        if field("rdb_last_bgsave_status") != Some("ok") {
            return Err(Failure::Failed("the server could not take the backup; its log says why".to_owned()));
        }
        let took_s: u64 = field("rdb_last_bgsave_time_sec").and_then(|text| text.parse().ok()).unwrap_or(0);
        let text = format!("the server took a backup in {took_s} s\n");
        return tell(arguments.json, &json!({ "took_s": took_s }), &text);
    }
}

fn persistence(client: &mut Client) -> Result<String, Failure> {
    match client.ask(&[b"INFO", b"persistence"])? {
        Answer::Text(text) => Ok(String::from_utf8_lossy(&text).replace('\r', "")),
        _ => Err(client.unexpected("INFO").into()),
    }
}

fn list(backups: &[Summary], as_json: bool) -> Result<(), Failure> {
    let mut text = String::new();
    for backup in backups {
        let _ = writeln!(text, "{}", text_of(backup));
    }
    tell(as_json, &backups.iter().map(json_of).collect(), &text)
}

fn verify(chosen: &Chosen) -> Result<(), Failure> {
    let mut shown = Progress::new("verifying");
    let directory = &chosen.directory.directory;
    let verified = esker_backup::verify(directory, chosen.id, |done, all| shown.show(done, all));
    shown.clear();
    let summary = verified.map_err(failure)?;
    tell(chosen.directory.json, &json_of(&summary), &format!("{}: whole\n", text_of(&summary)))
}

pub(crate) fn restore(arguments: &Restore) -> Result<(), Failure> {
    let (fast, capacity) = arguments.places.paths()?;
    let target = Target { fast, capacity, overwrite: arguments.overwrite };
    let mut shown = Progress::new("restoring");
    let chosen = &arguments.chosen;
    let directory = &chosen.directory.directory;
    let restored = esker_backup::restore(directory, chosen.id, &target, |done, all| shown.show(done, all));
    shown.clear();
    let summary = restored.map_err(failure)?;
    tell(chosen.directory.json, &json_of(&summary), &format!("restored {}\n", text_of(&summary)))
}

/// The bar of what counts in bytes.
struct Progress {
    what: &'static str,
    bar: Bar,
    shown: Option<u64>,
}

impl Progress {
    fn new(what: &'static str) -> Progress {
        Progress { what, bar: Bar::new(), shown: None }
    }

    fn show(&mut self, done: u64, all: u64) {
        use esker_inspect::Watcher;
        if self.shown.is_none() {
            self.bar.begin(self.what, all);
        }
        self.bar.advance(done.saturating_sub(self.shown.unwrap_or(0)));
        self.shown = Some(done);
    }

    fn clear(&self) {
        self.bar.clear();
    }
}
