//! `esker import --from`: copies the strings of a running server to another one, while both serve, and follows the changes.
//!
//! - `link`: the replication stream of a Redis or Valkey. `changes`: the meaning of its commands. `follow`: applies them.
//! - `compare`: a pass over the keys of both servers, which repairs or counts differences.
//! - `ends`: both servers. `resume`: the file of `--state`. `stop`: signals, and the limit of keys per second.
//!
//! A server that does not replicate to this process is copied by passes: each gives the target the states of the source.

mod changes;
mod compare;
mod ends;
mod follow;
mod link;
mod resume;
mod stop;

use std::path::PathBuf;
use std::sync::Arc;
use std::thread::sleep;
use std::time::Duration;

use clap::{Args, ValueEnum};

use self::compare::{Action, Differences, pass};
use self::ends::Ends;
use self::follow::Follower;
use self::resume::Resume;
use self::stop::{Stop, Throttle};
use super::PATIENCE;
use super::keys::Keys;
use super::progress::Shown;
use super::record::{LeftOut, Sink};
use super::remote::RemoteSink;
use crate::client::{FromLogin, Login, Server};
use crate::terminal::{Failure, note, say};

/// Pause between two passes.
const PASS_EVERY: Duration = Duration::from_secs(1);

/// The way to read a running server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum By {
    /// As a replica if the server is a Redis or Valkey that allows it, and by SCAN otherwise.
    #[default]
    Auto,
    /// As a replica (PSYNC): a snapshot, then the changes.
    Stream,
    /// With SCAN, GET and the expiry of every key: passes until no key differs.
    Scan,
}

#[derive(Args)]
#[command(next_help_heading = "From a running server")]
pub(super) struct Live {
    /// A running Redis, Valkey, Kvrocks or Esker to copy from: HOST:PORT, or a port of this machine.
    #[arg(long, value_name = "ADDR", requires = "to", conflicts_with_all = ["rdb", "file"])]
    pub(super) from: Option<String>,
    /// How to read it.
    #[arg(long, value_enum, value_name = "WAY", default_value_t = By::Auto, requires = "from")]
    by: By,
    /// Follow the changes until SIGINT or SIGTERM, then catch up, verify and end.
    #[arg(long, requires = "from")]
    follow: bool,
    /// Delete the keys that only the target has.
    #[arg(long, requires = "from")]
    delete_extra: bool,
    /// Do not compare the servers at the end.
    #[arg(long, requires = "from", conflicts_with = "only_verify")]
    no_verify: bool,
    /// Compare the servers, and copy nothing.
    #[arg(long, requires = "from", conflicts_with_all = ["follow", "delete_extra", "state"])]
    only_verify: bool,
    /// File that keeps the place in the changes and the origin of the target's keys, so that another call continues there.
    #[arg(long, value_name = "FILE", requires = "from")]
    state: Option<PathBuf>,
    /// Read at most this number of keys a second.
    #[arg(long, value_name = "N", requires = "from", value_parser = clap::value_parser!(u64).range(1..))]
    keys_per_second: Option<u64>,
    #[command(flatten)]
    login: FromLogin,
}

/// Copies from one server to the other.
pub(super) fn run(live: &Live, from: &str, to: &str, login: &Login, json: bool) -> Result<(), Failure> {
    let source = Arc::new(live.login.login(login).server(from, PATIENCE)?);
    let target = login.server(to, PATIENCE)?;
    let mut resume = Resume::open(live.state.clone(), source.address(), target.address())?;
    let mut ends = Ends {
        source: Keys::new(source.connect()?)?,
        target: Keys::new(target.connect()?)?,
        sink: RemoteSink::new(target.connect()?),
        left_out: LeftOut::default(),
        is_owned: false,
        throttle: Throttle::new(live.keys_per_second),
        shown: Shown::new(),
        stop: Stop::on_signals()?,
    };
    check_servers(&mut ends)?;
    let is_empty = ends.target.is_empty()?;
    // `--delete-extra` holds for this call alone.
    let is_owned = is_empty || resume.is_owned();
    ends.is_owned = is_owned || live.delete_extra;
    if !ends.is_owned && !live.only_verify {
        note("the target has keys: those that the source does not have stay; --delete-extra deletes them\n");
    }
    resume.begin(is_owned)?;
    let copied = copy(live, &mut ends, source, resume, !is_empty);
    ends.shown.end();
    let commands = copied?;
    let found = match live.no_verify {
        true => None,
        false => {
            note("comparing the servers\n");
            ends.shown = Shown::new();
            let found = pass(&mut ends, Action::Count);
            ends.shown.end();
            Some(found?)
        }
    };
    report(&ends, commands, found, json)
}

/// Refuses a copy of a server to itself.
fn check_servers(ends: &mut Ends) -> Result<(), Failure> {
    let (one, other) = (ends.source.info("server", "run_id")?, ends.target.info("server", "run_id")?);
    match one.is_some() && one == other {
        true => Err(Failure::Usage("--from and --to are the same server".to_owned())),
        false => Ok(()),
    }
}

/// Copies all keys. Returns the number of commands that were followed.
fn copy(
    live: &Live,
    ends: &mut Ends,
    source: Arc<Server>,
    resume: Resume,
    has_older_keys: bool,
) -> Result<u64, Failure> {
    if live.only_verify {
        return Ok(0);
    }
    let replicates = match live.by {
        By::Auto => is_redis(&mut ends.source)?,
        By::Stream => true,
        By::Scan => false,
    };
    if replicates {
        let has_older_keys = has_older_keys && resume.place().is_none();
        let mut follower = Follower::new(ends, source, resume, has_older_keys);
        match follower.run(live.follow) {
            Err(Failure::Failed(why)) if live.by == By::Auto && !follower.has_begun() => {
                note(&format!("{why}; reading with SCAN\n"));
            }
            done => {
                let commands = follower.commands;
                return done.map(|()| commands);
            }
        }
    }
    scan(live.follow, ends).map(|()| 0)
}

/// Returns true for a Redis or Valkey. Others answer PSYNC in another way.
fn is_redis(source: &mut Keys) -> Result<bool, Failure> {
    for field in ["kvrocks_version", "dragonfly_version", "esker_version"] {
        if source.info("server", field)?.is_some() {
            return Ok(false);
        }
    }
    Ok(source.info("server", "redis_version")?.is_some())
}

/// Copies by passes: one, or until a signal, and one more after it.
fn scan(until_signal: bool, ends: &mut Ends) -> Result<(), Failure> {
    let mut passes = 1;
    loop {
        let is_last = !until_signal || ends.stop.is_requested();
        let found = pass(ends, Action::Repair)?;
        if is_last {
            return Ok(());
        }
        ends.shown.text(&format!("pass {passes}: {} keys, {} of them differed", found.keys, found.count()));
        passes += 1;
        if !ends.stop.is_requested() {
            sleep(PASS_EVERY);
        }
    }
}

/// Prints the result. Differences are a failure.
fn report(ends: &Ends, commands: u64, found: Option<Differences>, json: bool) -> Result<(), Failure> {
    let (written, left_out) = (ends.sink.written(), &ends.left_out);
    if json {
        let verified = found.as_ref().map(|found| {
            serde_json::json!({
                "keys": found.keys, "missing": found.missing, "extra": found.extra, "value": found.values,
                "expiry": found.expiries, "other_types": found.others,
            })
        });
        let value = serde_json::json!({
            "written": written, "commands": commands, "left_out": left_out.of, "verified": verified,
        });
        say(&format!("{value}\n"))?;
    } else {
        say(&super::result("wrote", written, commands, left_out, false))?;
        if let Some(found) = &found {
            say(&format!("compared {} keys: {}\n", found.keys, in_words(found)))?;
        }
    }
    let differ = found.as_ref().map_or(0, Differences::count);
    match (differ, left_out.missed) {
        (0, 0) => Ok(()),
        (0, missed) => Err(Failure::Failed(format!("changes that the target cannot hold: {missed}"))),
        (differ, _) => {
            let examples = found.map(|found| found.examples.join("; ")).unwrap_or_default();
            Err(Failure::Failed(format!("{differ} keys differ, such as {examples}")))
        }
    }
}

fn in_words(found: &Differences) -> String {
    let counts = [
        (found.missing, "missing"),
        (found.values, "with another value"),
        (found.expiries, "with another expiry"),
        (found.extra, "only in the target"),
    ];
    let differ: Vec<String> = counts
        .iter()
        .filter(|(count, _)| *count > 0)
        .map(|(count, what)| format!("{count} {what}"))
        .collect();
    let differ = if differ.is_empty() { "no differences".to_owned() } else { differ.join(", ") };
    let others: Vec<String> = found.others.iter().map(|(kind, count)| format!("{kind} ({count})")).collect();
    if others.is_empty() { differ } else { format!("{differ}; of other types: {}", others.join(", ")) }
}
