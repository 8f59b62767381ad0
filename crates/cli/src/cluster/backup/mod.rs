//! `esker cluster backup`, `verify` and `restore`: the keys of a running cluster in a directory, each group at one index of its log.
//!
//! ```text
//! DIR/manifest.json   a line of JSON, and a line with its CRC-32C; written last
//! DIR/group-NN.esker  parts, see `file`
//! ```

mod file;
mod manifest;
mod restoring;
mod taking;
mod verifying;

use std::path::PathBuf;

use super::at::At;
use crate::terminal::{Failure, say};

/// Writes the keys of the cluster to a new directory, while clients write
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  esker cluster backup /backup/2026-11-28 --from 10.0.0.7:6379
  esker cluster backup /backup/2026-11-28 --json

Each group is whole at one index of its log, not before the call; groups differ in their moments, so keys of several slots may be of
different times. Values that expire later keep their time. The directory must not exist; without success there is none.
Exit code 0; 1 if a group cannot be copied; 2 if the call is wrong.")]
pub(super) struct Backup {
    /// New directory of the backup.
    #[arg(value_name = "DIRECTORY")]
    directory: PathBuf,
    #[command(flatten)]
    at: At,
    /// Print the manifest as JSON.
    #[arg(long)]
    json: bool,
}

/// Reads a backup of a cluster, and compares it with its checksums and counts
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  esker cluster verify /backup/2026-11-28

Exit code 0; 1 if it is damaged, with the file and the place.")]
pub(super) struct Verify {
    /// Directory of the backup.
    #[arg(value_name = "DIRECTORY")]
    directory: PathBuf,
    /// Print the manifest as JSON.
    #[arg(long)]
    json: bool,
}

/// Writes the keys of a backup into a new, empty cluster, of any number of nodes and groups
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  esker cluster restore /backup/2026-11-28 --from 10.0.1.7:6379
  esker cluster restore /backup/of-node-4 --groups 3,7       what another node had (docs/cluster.md)

The whole backup is verified before anything is written. Keys that have expired since are left out. If it is interrupted, empty the
cluster (FLUSHALL on each node), and begin again. Exit code 0; 1 if the backup is damaged, the cluster has keys, or a write fails.")]
pub(super) struct Restore {
    /// Directory of the backup.
    #[arg(value_name = "DIRECTORY")]
    directory: PathBuf,
    /// Only these groups of the backup, separated by commas. The cluster may have keys of others.
    #[arg(long, value_name = "NUMBERS", value_delimiter = ',')]
    groups: Vec<u8>,
    #[command(flatten)]
    at: At,
}

pub(super) fn backup(given: &Backup) -> Result<(), Failure> {
    let manifest = taking::take(&given.at, &given.directory)?;
    say(&manifest.shown("backed up", given.json))
}

pub(super) fn verify(given: &Verify) -> Result<(), Failure> {
    let manifest = verifying::verify(&given.directory)?;
    say(&manifest.shown("verified", given.json))
}

pub(super) fn restore(given: &Restore) -> Result<(), Failure> {
    let restored = restoring::restore(&given.at, &given.directory, &given.groups)?;
    say(&format!("restored {restored}\n"))
}
