//! Reads append-only files and RDB files: commands, and the types of values.

use std::path::Path;

use esker_server::served::Caller;

use super::report::{At, Report};
use crate::terminal::Failure;
use crate::transfer::{Surveyed, survey};

/// Reads an append-only file, an RDB file, a manifest, or the directory of one.
///
/// # Errors
/// If a file cannot be read, or is none of these.
pub(super) fn read(path: &Path, report: &mut Report) -> Result<(), Failure> {
    let (mut in_transaction, mut last_file) = (false, String::new());
    survey(path, &mut |surveyed| match surveyed {
        Surveyed::Command { file, at, words } => {
            if file != last_file {
                // A transaction ends with its file: a last one without EXEC has not taken effect.
                (in_transaction, last_file) = (false, file.to_owned());
            }
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
