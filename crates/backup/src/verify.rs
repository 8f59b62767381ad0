//! Verification of a backup against its manifest.

use std::fs::{self, File};
use std::hash::Hasher;
use std::io::Read;
use std::path::{Path, PathBuf};

use twox_hash::XxHash3_64;

use crate::directory::{DAMAGED, Directory, PIECE_BYTES, find, sync};
use crate::error::{Error, Result};
use crate::manifest::Segment;
use crate::summary::Summary;

/// Reads a backup (the newest if none is named) and verifies it against its manifest. `progress` receives the bytes
/// read so far and the total.
///
/// A segment file that does not match is renamed with the suffix `.damaged`. The next backup then copies the segment
/// again, if the store still has it, and thereby heals all backups that share it.
///
/// # Errors
/// [`Error::Damaged`] with the first file that does not match; [`Error::Unread`] if all match, but not all of the store
/// could be read at the time.
pub fn verify(directory: &Path, id: Option<u64>, mut progress: impl FnMut(u64, u64)) -> Result<Summary> {
    let manifest = find(directory, id)?;
    let (mut done, all) = (0, manifest.summary.bytes);
    let mut damaged = Vec::new();
    manifest.each_segment(|segment| {
        let outcome = read_segment(directory, &segment, |_, piece| {
            done += piece.len() as u64;
            progress(done, all);
            Ok(())
        });
        match outcome {
            Err(Error::Damaged { path, what }) => {
                damaged.extend(put_aside(directory, &segment, path, what)?);
                Ok(())
            }
            outcome => outcome,
        }
    })?;
    let others = damaged.len().saturating_sub(1);
    match damaged.into_iter().next() {
        None => Error::unless_whole(manifest.summary),
        Some((path, what)) if others == 0 => Err(Error::Damaged { path, what }),
        Some((path, what)) => {
            Err(Error::Damaged { path, what: format!("{what}; and {others} more of its files are damaged") })
        }
    }
}

/// Renames a file that does not match. Returns its path and the problem; `None` if a second read verified after all.
fn put_aside(
    directory: &Path,
    segment: &Segment,
    path: PathBuf,
    what: String,
) -> Result<Option<(PathBuf, String)>> {
    let aside = damaged_path(&path);
    // A segment that was still open has no equal part in a later backup, and a missing file cannot be renamed.
    if segment.mark.is_none() || !path.exists() {
        return Ok(Some((path, what)));
    }
    // A concurrent backup may rely on the file, or may just have replaced it.
    let _lock = match Directory::lock(directory) {
        Ok(lock) => lock,
        Err(error) => {
            return Ok(Some((path, format!("{what}; it could not be put aside, so verify again: {error}"))));
        }
    };
    match read_segment(directory, segment, |_, _| Ok(())) {
        Ok(()) => return Ok(None),
        Err(Error::Damaged { .. }) => {}
        Err(error) => return Err(error),
    }
    let what = match fs::rename(&path, &aside) {
        Ok(()) => {
            sync(&directory.join("segments"))?;
            format!("{what}; it was put aside with the suffix {DAMAGED}, and {HEALS}")
        }
        Err(error) => format!("{what}; it cannot be put aside: {error}"),
    };
    Ok(Some((path, what)))
}

/// Consequence of putting a damaged file aside, for messages.
const HEALS: &str = "the next backup copies the segment again if the store still has it";

fn damaged_path(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(DAMAGED);
    name.into()
}

/// Reads the file of a segment, passing pieces with their offsets to `take`, and verifies it against the manifest.
pub(crate) fn read_segment(
    directory: &Path,
    segment: &Segment,
    mut take: impl FnMut(u64, &[u8]) -> Result<()>,
) -> Result<()> {
    let path = directory.join("segments").join(segment.file());
    let mut file = File::open(&path).map_err(|error| not_opened(&path, segment, error))?;
    let (mut check, mut at) = (XxHash3_64::new(), 0);
    let mut piece = vec![0; PIECE_BYTES];
    loop {
        let read = file.read(&mut piece).map_err(|error| not_read(&path, error))?;
        if read == 0 {
            break;
        }
        check.write(&piece[..read]);
        if at + read as u64 > segment.bytes {
            return Err(Error::damaged(&path, format!("it has more than {} bytes", segment.bytes)));
        }
        take(at, &piece[..read])?;
        at += read as u64;
    }
    if at != segment.bytes {
        return Err(Error::damaged(&path, format!("it has {at} bytes instead of {}", segment.bytes)));
    }
    if check.finish() != segment.check {
        return Err(Error::damaged(&path, "checksum mismatch"));
    }
    Ok(())
}

fn not_opened(path: &Path, segment: &Segment, error: std::io::Error) -> Error {
    match error.kind() {
        // A segment that was still open has no equal part in a later backup.
        std::io::ErrorKind::NotFound if segment.mark.is_none() => Error::damaged(path, "the file is missing"),
        std::io::ErrorKind::NotFound if damaged_path(path).exists() => {
            Error::damaged(path, format!("it was damaged and put aside; {HEALS}"))
        }
        std::io::ErrorKind::NotFound => Error::damaged(path, format!("the file is missing; {HEALS}")),
        _ => Error::io(path)(error),
    }
}

/// A file with a read error of its drive counts as damaged.
fn not_read(path: &Path, error: std::io::Error) -> Error {
    match error.raw_os_error() {
        Some(libc::EIO) => Error::damaged(path, format!("it cannot be read: {error}")),
        _ => Error::io(path)(error),
    }
}
