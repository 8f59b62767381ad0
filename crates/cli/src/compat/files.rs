//! Reads append-only files and RDB files: commands, and the types of values.

use std::path::Path;

use esker_server::served::Caller;

use super::report::{At, Report};
use crate::terminal::Failure;
use crate::transfer::{Surveyed, survey};

/// Name of the manifest that makes a directory one of Redis.
const MANIFEST_END: &str = ".manifest";

/// Returns true for a directory with a manifest of an append-only file.
pub(super) fn is_directory_of_redis(path: &Path) -> bool {
    let entries = std::fs::read_dir(path).into_iter().flatten().flatten();
    { entries }.any(|entry| entry.file_name().to_string_lossy().ends_with(MANIFEST_END))
}

/// Reads an append-only file, an RDB file, a manifest, or the directory of one.
///
/// # Errors
/// If a file cannot be read, or is none of these.
pub(super) fn read(path: &Path, report: &mut Report) -> Result<(), Failure> {
    let mut in_transaction = false;
    survey(path, &mut |surveyed| match surveyed {
        Surveyed::Command { file, at, words } => {
            let words: Vec<&[u8]> = words.iter().map(|word| &word[..]).collect();
            let is = |name: &str| words[0].eq_ignore_ascii_case(name.as_bytes());
            in_transaction &= !is("exec");
            let caller = if in_transaction { Caller::Transaction } else { Caller::Client };
            report.command(&words, caller, At::Byte { name: file, at });
            in_transaction |= is("multi");
        }
        Surveyed::Strings { count } => report.strings(count),
        Surveyed::LeftOut { kind, count } => {
            report.values(kind, count, At::File { name: &path.display().to_string() })
        }
    })
}
