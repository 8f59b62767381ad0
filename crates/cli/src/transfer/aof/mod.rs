//! `esker import --rdb`: RDB files, append-only files with or without an RDB preamble, and the files of a
//! manifest.
//!
//! - `manifest`: finds the files.
//! - `commands`: reads the commands of a file.
//! - `replay`: applies commands to strings.
//! - `overlay`: newest versions between the replay and the target.

mod commands;
mod manifest;
mod overlay;
mod replay;
mod survey;
#[cfg(test)]
mod tests;

use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

pub(super) use self::commands::{Commands, Step};
pub(crate) use self::manifest::has_manifest;
use self::overlay::Overlay;
use self::replay::{Replay, Stop};
pub(crate) use self::survey::{Surveyed, survey};
use super::input::Input;
use super::progress::Shown;
use super::rdb::Rdb;
use super::record::{Destination, LeftOut};
use crate::terminal::Failure;

/// Remedy for commands that cannot be applied.
const REMEDY: &str = "let a redis-server load the file and rewrite it (BGREWRITEAOF), or export from it with esker export --from";

/// The files of one import.
pub(super) struct Files {
    /// The first file, already open.
    first: Opened,
    others: Vec<PathBuf>,
    options: Options,
}

/// Options of an import.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Options {
    /// The only database to import, or `None` for all.
    pub(super) database: Option<u64>,
    /// True if an incomplete last command is accepted.
    pub(super) allow_cut: bool,
}

/// A file, by its first byte.
enum Opened {
    Snapshot(Box<Rdb>),
    Commands(Commands<BufReader<Box<dyn Read>>>),
}

/// The error that bytes follow an RDB file that is no preamble.
fn bytes_follow(name: &str, offset: u64) -> Failure {
    Failure::Failed(format!(
        "{name}, byte {offset}: bytes follow the end of the RDB file, which does not say that commands do; they were not read: \
         give the whole of one file, as redis-server wrote it"
    ))
}

impl Opened {
    fn open(path: &Path, database: Option<u64>) -> Result<Opened, Failure> {
        let mut input = Input::open(path)?;
        match input.peek()? {
            Some(b'*' | b'#') => {
                let name = input.name.clone();
                Ok(Opened::Commands(Commands::new(input.into_reader(), name, 0)))
            }
            _ => Ok(Opened::Snapshot(Box::new(Rdb::new(input, database)?))),
        }
    }
}

impl Files {
    /// Opens an RDB file, an append-only file, a manifest, or the directory of one.
    ///
    /// # Errors
    /// If the path cannot be read, or is none of these files.
    pub(super) fn open(path: &Path, options: Options) -> Result<Files, Failure> {
        let mut files = manifest::files_of(path)?.into_iter();
        let first = files.next().expect("there is a file");
        let first = Opened::open(&first, options.database)?;
        Ok(Files { first, others: files.collect(), options })
    }

    /// Moves the keys to a target. Returns the number of commands that were read. The target is finished
    /// in any case.
    ///
    /// # Errors
    /// If a file or the target fails, a command cannot be applied, or a file ends within a command. The
    /// target then has the keys that were read before.
    pub(super) fn import(
        self,
        target: &mut dyn Destination,
        now_ms: u64,
        left_out: &mut LeftOut,
        shown: &mut Shown,
    ) -> Result<u64, Failure> {
        let overlay = Overlay::new(target, now_ms);
        let mut replay = Replay::new(overlay, self.options.database);
        let moved = self.replay(&mut replay, left_out, shown);
        let commands = replay.commands;
        replay.overlay.finish(left_out).and(moved).map(|()| commands)
    }

    fn replay(
        self,
        replay: &mut Replay<'_>,
        left_out: &mut LeftOut,
        shown: &mut Shown,
    ) -> Result<(), Failure> {
        let Files { first, others, options } = self;
        let mut is_last = others.is_empty();
        read(first, is_last, options, replay, left_out, shown)?;
        for (number, path) in others.iter().enumerate() {
            is_last = number + 1 == others.len();
            let opened = Opened::open(path, options.database)?;
            read(opened, is_last, options, replay, left_out, shown)?;
        }
        Ok(())
    }
}

/// Reads one file to its end.
fn read(
    opened: Opened,
    is_last: bool,
    options: Options,
    replay: &mut Replay<'_>,
    left_out: &mut LeftOut,
    shown: &mut Shown,
) -> Result<(), Failure> {
    replay.begin_file();
    let commands = match opened {
        Opened::Commands(commands) => commands,
        Opened::Snapshot(mut rdb) => {
            while let Some(record) = rdb.next(left_out)? {
                // The commands after the snapshot, if any, may change the expiry.
                let is_kept = rdb.is_preamble() || !is_last;
                if !is_kept && record.expires_at_ms.is_some_and(|at| at <= replay.overlay.now_ms()) {
                    left_out.add("expired");
                    continue;
                }
                replay.record(record, left_out)?;
                shown.look(rdb.progress(), replay.overlay.keys_written());
            }
            let (is_preamble, name, offset) = (rdb.is_preamble(), rdb.name().to_owned(), rdb.progress().0);
            let mut rest = rdb.into_rest();
            let has_more =
                |rest: &mut BufReader<Box<dyn Read>>| rest.fill_buf().map(|bytes| !bytes.is_empty());
            let unreadable = |error| Failure::Failed(format!("cannot read {name}: {error}"));
            if !is_preamble {
                return match has_more(&mut rest).map_err(unreadable)? {
                    false => Ok(()),
                    true => Err(bytes_follow(&name, offset)),
                };
            }
            Commands::new(rest, name, offset)
        }
    };
    replay_commands(commands, is_last, options, replay, left_out, shown)
}

fn replay_commands(
    mut commands: Commands<impl BufRead>,
    is_last: bool,
    options: Options,
    replay: &mut Replay<'_>,
    left_out: &mut LeftOut,
    shown: &mut Shown,
) -> Result<(), Failure> {
    let mut transaction_at = 0;
    let cut_at = loop {
        match commands.next()? {
            Step::Command { at, words } => {
                if !replay.is_in_transaction() {
                    transaction_at = at;
                }
                let name = words[0].clone();
                replay.command(words, left_out).map_err(|stop| match stop {
                    Stop::Failed(failure) => failure,
                    Stop::Refused(why) => Failure::Failed(format!(
                        "{}, byte {at}: {} cannot be applied: {why}; commands applied before it: {}; {REMEDY}",
                        commands.name(),
                        name.escape_ascii().to_string().to_ascii_uppercase(),
                        replay.commands.saturating_sub(1)
                    )),
                })?;
                shown.look((commands.offset(), None), replay.overlay.keys_written());
            }
            Step::Cut { at } if !replay.is_in_transaction() => break at,
            Step::End if !replay.is_in_transaction() => return Ok(()),
            // A transaction is applied completely or not at all.
            Step::Cut { .. } | Step::End => break transaction_at,
        }
    };
    let bytes = commands.offset() - cut_at;
    if is_last && options.allow_cut {
        left_out.add_many("byte of a command that was cut", bytes);
        return Ok(());
    }
    let remedy = match is_last {
        true => "with --allow-truncated this is no failure, as with aof-load-truncated in redis-server",
        false => "only the last file of a manifest may be cut: repair it with redis-check-aof --fix",
    };
    Err(Failure::Failed(format!(
        "{}, byte {cut_at}: the file ends within a command or transaction, whose {bytes} bytes were not applied; commands \
         applied before it: {}; {remedy}",
        commands.name(),
        replay.commands
    )))
}
