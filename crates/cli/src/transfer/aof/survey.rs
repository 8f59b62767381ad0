//! Reads the files of an append-only file without applying their commands.

use std::io::BufRead;
use std::path::Path;

use esker_engine::Bytes;

use super::commands::{Commands, Step};
use super::{Opened, bytes_follow, manifest};
use crate::terminal::Failure;
use crate::transfer::record::LeftOut;

/// Contents of the files.
pub(crate) enum Surveyed<'a> {
    /// A command, at a byte of a file.
    Command { file: &'a str, at: u64, words: &'a [Bytes] },
    /// Strings of an RDB file, or of the snapshot before commands.
    Strings { count: u64 },
    /// Values of such a snapshot that an import leaves out, by type or reason.
    LeftOut { kind: &'a str, count: u64 },
}

/// Passes the contents of an RDB file, an append-only file, a manifest, or the directory of one to `see`. A last command
/// that is cut is skipped.
///
/// # Errors
/// If a file cannot be read, or is none of these.
pub(crate) fn survey(path: &Path, see: &mut dyn FnMut(Surveyed<'_>)) -> Result<(), Failure> {
    for file in manifest::files_of(path)? {
        match Opened::open(&file, None)? {
            Opened::Commands(commands) => survey_commands(commands, see)?,
            Opened::Snapshot(mut rdb) => {
                let (mut left_out, mut strings) = (LeftOut::default(), 0);
                while rdb.next(&mut left_out)?.is_some() {
                    strings += 1;
                }
                see(Surveyed::Strings { count: strings });
                left_out.of.iter().for_each(|(kind, count)| see(Surveyed::LeftOut { kind, count: *count }));
                let (is_preamble, name, offset) =
                    (rdb.is_preamble(), rdb.name().to_owned(), rdb.progress().0);
                let mut rest = rdb.into_rest();
                let more = rest.fill_buf().map(|bytes| !bytes.is_empty());
                let has_more =
                    more.map_err(|error| Failure::Failed(format!("cannot read {name}: {error}")))?;
                match (is_preamble, has_more) {
                    (true, _) => survey_commands(Commands::new(rest, name, offset), see)?,
                    (false, true) => return Err(bytes_follow(&name, offset)),
                    (false, false) => {}
                }
            }
        }
    }
    Ok(())
}

fn survey_commands(
    mut commands: Commands<impl BufRead>,
    see: &mut dyn FnMut(Surveyed<'_>),
) -> Result<(), Failure> {
    let name = commands.name().to_owned();
    while let Step::Command { at, words } = commands.next()? {
        see(Surveyed::Command { file: &name, at, words: &words });
    }
    Ok(())
}
