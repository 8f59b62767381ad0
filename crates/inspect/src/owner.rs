//! Whose files are that a tool makes: it may be run by root, and a service of another user opens them.
//!
//! That user may change names in the directory meanwhile, so everything is opened once, and links are not followed: root would
//! give away what they lead to.

use std::fs::{self, File, Metadata};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, fchown};
use std::path::Path;

use crate::store::parent_of;

/// Gives what is to take the place of `old`, with all that lies in it, its owner, group and rights.
pub(crate) fn give_as(new: &Path, old: &Path) -> io::Result<()> {
    let like = fs::metadata(old)?;
    if like.is_dir() {
        for entry in fs::read_dir(new)? {
            let entry = entry?;
            let counterpart = old.join(entry.file_name());
            match counterpart.exists() {
                true => give_as(&entry.path(), &counterpart)?,
                // The old one has none: its rights stay.
                false => give(&open(&entry.path())?, &like)?,
            }
        }
    }
    let file = open(new)?;
    give(&file, &like)?;
    file.set_permissions(like.permissions())
}

/// Gives what root has made to those who have the directory that it lies in.
///
/// # Errors
/// What the file system said.
pub fn give_to_owner_of_directory(path: &Path) -> io::Result<()> {
    let file = open(path)?;
    match file.metadata()?.uid() {
        0 => give(&file, &fs::metadata(parent_of(path))?),
        _ => Ok(()),
    }
}

fn open(path: &Path) -> io::Result<File> {
    File::options().read(true).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK).open(path)
}

fn give(file: &File, like: &Metadata) -> io::Result<()> {
    let mine = file.metadata()?;
    if (mine.uid(), mine.gid()) == (like.uid(), like.gid()) {
        return Ok(());
    }
    if mine.is_file() && mine.nlink() > 1 {
        return Err(io::Error::other("it has other names too"));
    }
    fchown(file, Some(like.uid()), Some(like.gid()))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{chown, symlink};

    use super::*;

    #[test]
    fn what_a_name_was_turned_to_meanwhile_is_not_given_away() {
        let directory = tempfile::tempdir().expect("a directory for the test");
        let home = directory.path().join("home");
        fs::create_dir(&home).expect("a directory");
        let secrets = ["first", "second"].map(|name| directory.path().join(name));
        secrets.iter().for_each(|secret| fs::write(secret, "").expect("a file"));
        if chown(&home, Some(4321), Some(1234)).is_err() {
            eprintln!("skipped: only root can give anything away");
            return;
        }
        symlink(&secrets[0], home.join("link")).expect("a link");
        fs::hard_link(&secrets[1], home.join("name")).expect("another name");
        for name in ["link", "name"] {
            give_to_owner_of_directory(&home.join(name)).expect_err("it is something else");
        }
        assert!(secrets.iter().all(|secret| fs::metadata(secret).expect("it is there").uid() == 0));
    }
}
