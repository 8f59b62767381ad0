//! Ownership of files made by a tool. The tool may run as root, while a service of another user opens the
//! files.
//!
//! That user can rename files in the directory meanwhile, so that root would change the owner of the
//! wrong file. Therefore:
//!
//! 1. Every file is opened once, and links are not followed.
//! 2. A file in a directory is reached from the open directory, and only by the names that the engine
//!    uses.
//! 3. Only a file that this user owns and that has a single name changes its owner. Files in a directory
//!    do so only while this user owns the directory.
//!
//! A risk remains: the owner of the directory can rename a file of root in it to the name of the new
//! file. So root should keep no files in directories of other users, or run the tool as that user.

use std::ffi::OsStr;
use std::fs::{File, Metadata, Permissions};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt, fchown};
use std::path::Path;

use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::process::{getegid, geteuid, getgroups};

use crate::store::{FILE_IN_DIRECTORY, STAGING_IN_DIRECTORY, parent_of};

/// Returns true if this user can make a file with the owner and group of `old`.
pub(crate) fn may_give_as(old: &Path) -> io::Result<bool> {
    let like = open(CWD, old.as_os_str())?.metadata()?;
    let has_group = || like.gid() == getegid().as_raw() || groups().contains(&like.gid());
    Ok(geteuid().is_root() || is_ours(&like) && has_group())
}

fn groups() -> Vec<u32> {
    getgroups().unwrap_or_default().into_iter().map(|group| group.as_raw()).collect()
}

/// Gives `new`, which will replace `old`, and the engine's files in it the owner, group and mode of
/// `old`.
pub(crate) fn give_as(new: &Path, old: &Path) -> io::Result<()> {
    let (new, old) = (open(CWD, new.as_os_str())?, open(CWD, old.as_os_str())?);
    let (made, like) = (new.metadata()?, old.metadata()?);
    if made.is_dir() != like.is_dir() {
        return Err(io::Error::other("one is a directory and the other is not"));
    }
    if like.is_dir() {
        for name in [FILE_IN_DIRECTORY, STAGING_IN_DIRECTORY] {
            let file = match open(&new, name.as_ref()) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                opened => opened?,
            };
            let counterpart = open(&old, name.as_ref()).and_then(|file| file.metadata());
            let counterpart = counterpart.ok().filter(Metadata::is_file);
            let like = counterpart.as_ref().unwrap_or(&like);
            // Another user who owns the directory can have moved any file of ours into it.
            if !is_ours(&made) && !has_owner_of(&file.metadata()?, like) {
                return Err(io::Error::other("another user owns the directory"));
            }
            give(&file, like)?;
            // The old store has no such file: the new file keeps its mode.
            if counterpart.is_some() {
                set_rights(&file, like)?;
            }
        }
    }
    give(&new, &like)?;
    set_rights(&new, &like)
}

/// Gives a file made by root to the owner of its directory.
///
/// # Errors
/// The error of the file system.
pub fn give_to_owner_of_directory(path: &Path) -> io::Result<()> {
    if !geteuid().is_root() {
        return Ok(());
    }
    let name = path.file_name().ok_or_else(|| io::Error::other("it has no name"))?;
    // The directory is opened first, so that the file is opened in this directory even if it is renamed
    // meanwhile.
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let directory = File::from(openat(CWD, parent_of(path), flags, Mode::empty())?);
    let file = open(&directory, name)?;
    match file.metadata()?.uid() {
        0 => give(&file, &directory.metadata()?),
        _ => Ok(()),
    }
}

/// Opens a file by its name in a directory. Does not follow a link of that name.
fn open(directory: impl AsFd, name: &OsStr) -> io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    Ok(File::from(openat(directory, name, flags, Mode::empty())?))
}

fn is_ours(found: &Metadata) -> bool {
    found.uid() == geteuid().as_raw()
}

fn has_owner_of(found: &Metadata, like: &Metadata) -> bool {
    (found.uid(), found.gid()) == (like.uid(), like.gid())
}

fn give(file: &File, like: &Metadata) -> io::Result<()> {
    let found = file.metadata()?;
    let refused = |what| Err(io::Error::other(what));
    match () {
        () if !found.is_dir() && !found.is_file() => refused("it is not a file"),
        () if found.is_file() && found.nlink() > 1 => refused("it has other hard links"),
        () if has_owner_of(&found, like) => Ok(()),
        () if !is_ours(&found) => refused("another user owns it"),
        () => fchown(file, Some(like.uid()), Some(like.gid())),
    }
}

/// Copies the mode, for files without the set-user-id, set-group-id and sticky bits, which no store has.
fn set_rights(file: &File, like: &Metadata) -> io::Result<()> {
    let kept = if like.is_dir() { 0o7777 } else { 0o777 };
    file.set_permissions(Permissions::from_mode(like.mode() & kept))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{chown, symlink};
    use std::path::PathBuf;

    use super::*;

    const SERVICE: u32 = 4321;

    fn give_away(path: &Path, uid: u32) {
        chown(path, Some(uid), Some(uid)).expect("root may");
    }

    fn owner(path: &Path) -> u32 {
        fs::symlink_metadata(path).expect("it is there").uid()
    }

    /// Returns the home directory of a service with its store, and a directory of root with two files.
    /// Returns `None` if the test does not run as root.
    fn homes() -> Option<(tempfile::TempDir, PathBuf, PathBuf)> {
        let directory = tempfile::tempdir().expect("a directory for the test");
        let (home, secrets) = (directory.path().join("home"), directory.path().join("secrets"));
        fs::create_dir(&home).expect("a directory");
        if chown(&home, Some(SERVICE), Some(SERVICE)).is_err() {
            eprintln!("skipped: only root can give anything away");
            return None;
        }
        let store = home.join("store");
        [&store, &secrets].iter().for_each(|path| fs::create_dir(path).expect("a directory"));
        for path in [store.join("data.esker"), secrets.join("data.esker"), secrets.join("job")] {
            fs::write(path, "").expect("a file");
        }
        [&store, &store.join("data.esker")].iter().for_each(|path| give_away(path, SERVICE));
        Some((directory, home, secrets))
    }

    fn assert_kept(secrets: &Path) {
        for path in [secrets, &secrets.join("data.esker"), &secrets.join("job")] {
            assert_eq!(owner(path), 0, "{}", path.display());
        }
    }

    #[test]
    fn ownership_of_replaced_path_is_not_given_away() {
        let Some((_directory, home, secrets)) = homes() else { return };
        symlink(secrets.join("data.esker"), home.join("link")).expect("a link");
        fs::hard_link(secrets.join("job"), home.join("name")).expect("another name");
        for name in ["link", "name"] {
            give_to_owner_of_directory(&home.join(name)).expect_err("it is something else");
        }
        assert_kept(&secrets);
    }

    #[test]
    fn ownership_through_link_at_new_store_is_not_given_away() {
        let Some((_directory, home, secrets)) = homes() else { return };
        symlink(&secrets, home.join("new")).expect("a link");
        give_as(&home.join("new"), &home.join("store")).expect_err("it is a link");
        assert_kept(&secrets);
    }

    #[test]
    fn of_a_new_store_only_the_files_of_the_engine_are_given_away() {
        let Some((_directory, home, secrets)) = homes() else { return };
        let (new, store) = (home.join("new"), home.join("store"));
        let [data, link] = ["data.esker", "link"].map(|name| new.join(name));
        [&new, &store.join("link")].iter().for_each(|path| fs::create_dir(path).expect("a directory"));
        give_away(&store.join("link"), SERVICE);
        fs::write(&data, "").expect("a file");
        symlink(&secrets, &link).expect("a link");
        give_as(&new, &store).expect("what the engine did not make is passed over");
        assert_eq!([&new, &data, &link].map(|path| owner(path)), [SERVICE, SERVICE, 0]);
        assert_kept(&secrets);
        give_away(&new, 0);
        let put: [fn(&Path, &Path) -> io::Result<()>; 2] =
            [|from, to| symlink(from, to), |from, to| fs::hard_link(from, to)];
        for put in put {
            fs::remove_file(&data).expect("it is there");
            put(&secrets.join("data.esker"), &data).expect("a link");
            give_as(&new, &store).expect_err("it is something else");
            assert_kept(&secrets);
        }
    }

    #[test]
    fn ownership_in_directory_of_other_user_is_not_given_away() {
        let Some((_directory, home, _)) = homes() else { return };
        let new = home.join("new");
        fs::create_dir(&new).expect("a directory");
        give_away(&new, SERVICE);
        fs::write(new.join("data.esker"), "").expect("a file");
        give_as(&new, &home.join("store")).expect_err("the service may have moved it there");
        assert_eq!(owner(&new.join("data.esker")), 0);
    }

    #[test]
    fn ownership_change_never_creates_setuid_root_program() {
        let Some((_directory, home, secrets)) = homes() else { return };
        let (program, link) = (secrets.join("job"), home.join("link"));
        fs::set_permissions(&program, Permissions::from_mode(0o4755)).expect("root may");
        symlink(&program, &link).expect("a link");
        let [new, ours] = ["new", "ours"].map(|name| home.join(name));
        [&new, &ours].iter().for_each(|path| fs::write(path, "").expect("a file"));
        give_away(&new, SERVICE);
        for like in [&link, &program] {
            give_as(&new, like).expect_err("it is not what root made");
            let found = fs::metadata(&new).expect("it is there");
            assert_eq!((found.uid(), found.mode() & 0o7000), (SERVICE, 0));
        }
        give_as(&ours, &program).expect("it is of root already");
        assert_eq!(fs::metadata(&ours).expect("it is there").mode() & 0o7777, 0o755);
    }

    /// Two directories of two users swap their names all the time.
    #[cfg(target_os = "linux")]
    #[test]
    fn a_file_goes_to_the_owner_of_the_directory_that_it_lies_in() {
        use std::sync::atomic::{AtomicBool, Ordering};

        use rustix::fs::{CWD, RenameFlags, renameat_with};
        let Some((_directory, home, _)) = homes() else { return };
        let users = [5001, 5002];
        let places = users.map(|uid| home.join(uid.to_string()));
        let files = [0, 1].map(|place: usize| {
            fs::create_dir(&places[place]).expect("a directory");
            give_away(&places[place], users[place]);
            File::create(places[place].join("file")).expect("a file")
        });
        let (file, ends) = (places[0].join("file"), AtomicBool::new(false));
        let mistakes = std::thread::scope(|scope| {
            scope.spawn(|| {
                while !ends.load(Ordering::Relaxed) {
                    renameat_with(CWD, &places[0], CWD, &places[1], RenameFlags::EXCHANGE)
                        .expect("they are swapped");
                }
            });
            let mut mistakes = 0;
            for _ in 0..5000 {
                give_to_owner_of_directory(&file).expect("a file of root's");
                for (file, uid) in files.iter().zip(users) {
                    let found = file.metadata().expect("it is open").uid();
                    mistakes += usize::from(found != 0 && found != uid);
                    fchown(file, Some(0), Some(0)).expect("root may");
                }
            }
            ends.store(true, Ordering::Relaxed);
            mistakes
        });
        assert_eq!(mistakes, 0);
    }
}
