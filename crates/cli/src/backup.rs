//! `esker backup` and `esker restore`.

use std::fmt::Write;
use std::ops::Range;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};
use esker_backup::{Error, Summary, Target, Unread};
use serde_json::{Value, json};

use crate::client::{Client, Login};
use crate::inspect::show::{at_ms, bytes, things};
use crate::inspect::watch::Bar;
use crate::made::Made;
use crate::serve::check_directory;
use crate::terminal::{Failure, say};
use crate::transfer::{PATIENCE, Places};

/// Interval at which a server is asked whether its backup has ended.
const ASK_EVERY: Duration = Duration::from_millis(200);

/// Takes backups of a store, lists, verifies and prunes them.
#[derive(Args)]
#[command(after_help = "\
Examples:
  esker backup take /backup --dir ./esker-data      a store that no process has open
  esker backup take --from 6379                     a server, into the directory of its setting backup-dir
  esker backup list /backup
  esker backup verify /backup --id 7
  esker backup prune /backup --keep 14

Exit codes: 0 done; 1 something failed, or a backup is damaged or not whole, since the
device of the store did not give all; 2 the call is wrong.")]
pub(crate) struct Arguments {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Takes a backup of the store at this moment; segments of earlier backups are not copied again.
    Take(Box<Take>),
    /// Lists the backups of a directory.
    #[command(after_help = "Examples:\n  esker backup list /backup\n  esker backup list /backup --json")]
    List(Directory),
    /// Reads a backup and compares it with its checksums. Renames files whose checksums do not match to NAME.damaged, so that
    /// the next backup copies these segments again.
    #[command(after_help = "Examples:\n  esker backup verify /backup\n  esker backup verify /backup --id 7")]
    Verify(Chosen),
    /// Removes all backups but the newest.
    #[command(after_help = "Examples:\n  esker backup prune /backup --keep 14")]
    Prune {
        #[command(flatten)]
        directory: Directory,
        /// Number of backups to keep.
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
    #[arg(long, value_name = "BYTES", value_parser = esker_command::parse, conflicts_with = "from")]
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

/// Makes a store of a backup. It is another store from then on, with an identity of its own. A restore that was interrupted is
/// begun again by the same call.
#[derive(Args)]
#[command(after_help = "\
Examples:
  esker restore /backup --dir ./restored
  esker restore /backup --id 7 --fast /dev/nvme0n1 --capacity /dev/nvme1n1

Exit codes: 0 done; 1 something failed, or the backup is damaged, or it was restored and is
not whole, since the device of the first store did not give all; 2 the call is wrong.")]
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
        "unread": summary.unread.iter().map(json_of_unread).collect::<Value>(),
    })
}

fn json_of_unread(unread: &Unread) -> Value {
    let Range { start, end } = unread.bytes;
    json!({ "tier": unread.tier.name(), "segment": unread.segment, "from": start, "to": end })
}

/// Prints the result of a backup operation. Returns a failure if the backup is damaged.
fn done(done: Result<Summary, Error>, as_json: bool, text: impl Fn(&str) -> String) -> Result<(), Failure> {
    let (summary, not_whole) = match done {
        Err(Error::Unread(summary)) => {
            let not_whole = Failure::Failed(Error::Unread(summary.clone()).to_string());
            (*summary, Err(not_whole))
        }
        done => (done.map_err(failure)?, Ok(())),
    };
    tell(as_json, &json_of(&summary), &text(&text_of(&summary)))?;
    not_whole
}

fn text_of(summary: &Summary) -> String {
    let Summary { id, taken_at_ms, keys, segments, bytes: of_segments, unread, .. } = summary;
    let (keys, segments) = (things(*keys, "key"), things(*segments as u64, "segment"));
    let not_whole = if unread.is_empty() { "" } else { ", NOT WHOLE" };
    format!("backup {id} of {}: {keys}, {segments}, {}{not_whole}", at_ms(*taken_at_ms), bytes(*of_segments))
}

fn take(arguments: &Take) -> Result<(), Failure> {
    let directory = arguments.directory.as_ref().expect("the parser wants one");
    let store = arguments.places.open(false, None)?;
    let mut shown = Progress::new("copying");
    let taken = esker_backup::backup(store.store(), directory, arguments.limit.unwrap_or(0), |copied| {
        shown.show(copied.bytes, copied.of_bytes);
    });
    shown.clear();
    let closed = store.close().map_err(|error| Failure::Failed(error.to_string()));
    let report = match taken {
        Err(Error::Unread(summary)) => {
            return done(Err(Error::Unread(summary)), arguments.json, |text| format!("{text}\n"));
        }
        taken => taken.map_err(failure)?,
    };
    closed?;
    let mut value = json_of(&report.summary);
    value["copied_bytes"] = report.copied_bytes.into();
    value["copied_segments"] = report.copied_segments.into();
    value["took_ms"] = (report.took.as_millis() as u64).into();
    let copied = bytes(report.copied_bytes);
    let text =
        format!("{}; copied {copied} in {:.1} s\n", text_of(&report.summary), report.took.as_secs_f64());
    tell(arguments.json, &value, &text)
}

/// Makes a server take a backup, and waits until it ends.
fn take_from(address: &str, arguments: &Take) -> Result<(), Failure> {
    let mut client = arguments.login.connect(address, PATIENCE)?;
    client.ask(&[b"BGSAVE"])?;
    loop {
        std::thread::sleep(ASK_EVERY);
        let told = persistence(&mut client)?;
        let field = |name: &str| told.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        if field("rdb_bgsave_in_progress") != Some("0") {
            continue;
        }
        if field("rdb_last_bgsave_status") != Some("ok") {
            let what = "the server failed to take a complete backup; its log has the reason";
            return Err(Failure::Failed(what.to_owned()));
        }
        let took_s: u64 = field("rdb_last_bgsave_time_sec").and_then(|text| text.parse().ok()).unwrap_or(0);
        let text = format!("the server took a backup in {took_s} s\n");
        return tell(arguments.json, &json!({ "took_s": took_s }), &text);
    }
}

fn persistence(client: &mut Client) -> Result<String, Failure> {
    let text = client.ask_text(&[b"INFO", b"persistence"])?;
    Ok(String::from_utf8_lossy(&text).replace('\r', ""))
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
    let is_whole = if verified.is_ok() { "whole" } else { "the data that it contains is intact" };
    done(verified, chosen.directory.json, |text| format!("{text}: {is_whole}\n"))
}

pub(crate) fn restore(arguments: &Restore) -> Result<(), Failure> {
    let (fast, capacity) = arguments.places.paths()?;
    let target = Target { fast, capacity, overwrite: arguments.overwrite };
    let mut shown = Progress::new("restoring");
    let chosen = &arguments.chosen;
    let directory = &chosen.directory.directory;
    if let Some(dir) = arguments.places.directory() {
        check_directory(dir)?;
    }
    let files = [&target.fast, &target.capacity].into_iter().flatten();
    let made = Made::before(arguments.places.directory().into_iter().chain(files.map(PathBuf::as_path)));
    let restored = esker_backup::restore(directory, chosen.id, &target, |done, all| shown.show(done, all));
    shown.clear();
    let given = made.give();
    // The result of the restore is printed even if changing the owner failed.
    let told = done(restored, chosen.directory.json, |text| format!("restored {text}\n"));
    match (told, given) {
        (Err(Failure::Failed(told)), Err(Failure::Failed(given))) => {
            Err(Failure::Failed(format!("{told}; and {given}")))
        }
        (told, given) => told.and(given),
    }
}

/// A progress bar of operations that count bytes.
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

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::Arc;

    use clap::FromArgMatches;
    use esker_engine::device::{Fault, MemoryDevice, OperationKind};
    use esker_engine::{Blocking, Compression, Device, Durability, Options};

    use super::*;

    fn failed(outcome: Result<(), Failure>) -> String {
        match outcome {
            Err(Failure::Failed(text)) => text,
            Err(Failure::Usage(text)) => panic!("{text}"),
            Ok(()) => panic!("nobody is told that it is not whole"),
        }
    }

    #[test]
    fn incomplete_backup_is_an_error() {
        let directory = tempfile::tempdir().expect("a directory");
        let at = directory.path();
        let device = MemoryDevice::new(33 << 20);
        let given = Arc::new(device.clone()) as Arc<dyn Device>;
        let options = Options::devices(None, Some(given)).segment_bytes(1 << 20).scrub_bytes_per_s(0);
        // The smallest unit avoids padding, so that nothing is collected while the store is filled.
        let options = options.indirection_unit_bytes(4096).durability(Durability::None);
        let options = options.compression(Compression::Off);
        let store = Blocking::open(options.memory_bytes(64 << 20)).expect("it opens");
        for number in 0..64u32 {
            store.put(number.to_le_bytes().as_slice(), vec![7; 20_000]).expect("there is room");
        }
        store.flush().expect("it is flushed");
        let pages = device.snapshot();
        let is_of_value = |page: &[u8]| page.iter().all(|byte| *byte == 7);
        let lost = 4096 * pages.chunks(4096).position(is_of_value).expect("there are values") as u64;
        device.set_faults(Box::new(move |operation| {
            let meets = operation.offset <= lost && lost < operation.offset + operation.bytes;
            if operation.kind == OperationKind::Read && meets { Fault::Error(5) } else { Fault::None }
        }));
        let taken = esker_backup::backup(store.store(), &at.join("copies"), 0, |_| {});
        assert!(matches!(taken, Err(Error::Unread(_))), "{taken:?}");

        let named = |path: &str| Directory { directory: at.join(path), json: false };
        let chosen = || Chosen { directory: named("copies"), id: None };
        let said = failed(run(&Arguments { verb: Verb::Verify(chosen()) }));
        assert!(said.contains("is incomplete") && said.contains("of segment"), "{said}");
        let (copies, made) = (at.join("copies"), at.join("made"));
        let words = [Path::new("restore"), &copies, Path::new("--dir"), &made];
        let given = Restore::augment_args(clap::Command::new("restore")).get_matches_from(words);
        let said = failed(restore(&Restore::from_arg_matches(&given).expect("it is a call")));
        assert!(said.contains("is incomplete") && said.contains("of segment"), "{said}");
        assert!(at.join("made/data.esker").exists());
        assert!(run(&Arguments { verb: Verb::List(named("copies")) }).is_ok());
        let listed = esker_backup::list(&at.join("copies")).expect("it is listed");
        assert!(text_of(&listed[0]).ends_with("NOT WHOLE"));
        assert_eq!(json_of(&listed[0])["unread"].as_array().map(Vec::len), Some(listed[0].unread.len()));
    }
}
