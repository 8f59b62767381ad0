//! The users file: a TOML table for each user, with a hash in place of the password.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, fchown};
use std::path::Path;

use esker_engine::Store;
use serde::{Deserialize, Serialize};

use super::password::{self, SECRETS_MAX, Secret};
use super::prefixes::{Pattern, Reach};
use crate::base::config::Password;
use crate::base::text::read_text;
use crate::{Error, Result};

/// A right of a user.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Right {
    /// Read keys.
    Read,
    /// Write and delete keys.
    Write,
    /// See the state and the configuration of the server: settings, clients, slow commands with their arguments. Gives access to
    /// no key and changes nothing.
    Monitor,
    /// Everything: all keys, including those that a command does not name, and the server itself.
    Admin,
}

impl Right {
    /// Number of rights.
    pub(super) const COUNT: usize = 4;

    /// Returns the right with a name.
    pub fn parse(name: &str) -> Option<Right> {
        match name {
            "read" => Some(Right::Read),
            "write" => Some(Right::Write),
            "monitor" => Some(Right::Monitor),
            "admin" => Some(Right::Admin),
            _ => None,
        }
    }

    /// Returns the name of the right in the file.
    pub fn name(self) -> &'static str {
        match self {
            Right::Read => "read",
            Right::Write => "write",
            Right::Monitor => "monitor",
            Right::Admin => "admin",
        }
    }
}

/// A user in the users file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UserEntry {
    /// True if logins are disabled.
    #[serde(default, skip_serializing_if = "is_false")]
    pub off: bool,
    /// Argon2 hash in PHC form. Without it, the user can only log in by certificate.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub password_hash: Option<String>,
    /// Hashes of up to three additional passwords.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub more_password_hashes: Vec<String>,
    /// Rights of the user. Alternatively to rights and prefixes, the entry has commands, keys and channels.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rights: Vec<Right>,
    /// Prefixes of the keys that the user may access; every key if empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub prefixes: Vec<String>,
    /// Databases that the user may use; all if empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub databases: Vec<u8>,
    /// Commands that the user may run, in the notation of Redis: `-@all +@read -keys`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commands: Option<String>,
    /// Keys that the user may access, with `commands`: `~app:*`, `%R~app:*`. No key if empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub keys: Vec<String>,
    /// Channels that the user may use, with `commands`: `&app:*`. No channel if empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub channels: Vec<String>,
}

fn is_false(value: &bool) -> bool {
    !value
}

impl UserEntry {
    /// Replaces all passwords by the hash of this one. Takes a few hundredths of a second.
    ///
    /// # Errors
    /// The password is too long, or the system has no random numbers.
    pub fn set_password(&mut self, password: &str) -> Result<()> {
        Password::check_length(password.as_bytes())?;
        self.password_hash = Some(password::hash(password.as_bytes())?);
        self.more_password_hashes.clear();
        Ok(())
    }

    /// Returns all password hashes.
    pub(super) fn hashes(&self) -> impl Iterator<Item = &str> {
        self.password_hash.iter().chain(&self.more_password_hashes).map(String::as_str)
    }

    /// Returns the keys and the channels of an entry with `commands`.
    pub(super) fn reach(&self) -> std::result::Result<[Reach; 2], String> {
        let read = |field, texts: &[String], sign| {
            let mut reach = Reach::default();
            for text in texts {
                let wrong = |wrong| format!("{field}: {}: {}", text.escape_debug(), wrong);
                reach.add(Pattern::parse(text.as_bytes(), sign).map_err(wrong)?);
            }
            Ok::<_, String>(reach)
        };
        Ok([read("keys", &self.keys, b'~')?, read("channels", &self.channels, b'&')?])
    }

    /// Checks the entry. Names of commands are checked when a server loads the file.
    pub(super) fn check(&self) -> std::result::Result<(), String> {
        let wrong = |what: &str| Err(what.to_owned());
        let is_admin = self.rights.contains(&Right::Admin);
        match self.commands {
            None if self.rights.is_empty() => {
                return wrong("there are no rights; give some of read, write, monitor and admin");
            }
            None if !(self.keys.is_empty() && self.channels.is_empty()) => {
                return wrong("keys and channels go with commands; with rights there are prefixes");
            }
            Some(_) if !(self.rights.is_empty() && self.prefixes.is_empty()) => {
                return wrong(
                    "commands take the place of rights, and keys that of prefixes; take one of them away",
                );
            }
            _ => {}
        }
        if is_admin && !self.prefixes.is_empty() {
            return wrong("an admin reaches every key; take away admin or the prefixes");
        }
        if is_admin && !self.databases.is_empty() {
            return wrong("an admin uses every database; take away admin or the databases");
        }
        if self.databases.iter().any(|number| *number >= Store::DATABASES) {
            return wrong("databases are 0 to 15");
        }
        self.reach()?;
        if self.hashes().count() > SECRETS_MAX {
            return wrong("a user has up to 4 passwords");
        }
        self.hashes().try_for_each(|hash| Secret::of_hash(hash).map(drop)).map_err(|wrong| wrong.to_string())
    }
}

/// The users file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UserFile {
    #[serde(default)]
    users: BTreeMap<String, UserEntry>,
}

/// Maximum size of a users file, in bytes.
const FILE_BYTES_MAX: u64 = 16 << 20;

const HEAD: &str = "# Users of Esker, written by `esker user` and ACL SAVE. Comments are not kept.\n\n";

impl UserFile {
    /// Reads and checks a users file.
    ///
    /// # Errors
    /// `Users`, with the file and its error.
    pub fn read(path: &Path) -> Result<UserFile> {
        UserFile::read_with(path, |_, _| Ok(()))
    }

    /// As [`read`](Self::read), and calls `look` for each user.
    pub(super) fn read_with(
        path: &Path,
        mut look: impl FnMut(&str, &UserEntry) -> std::result::Result<(), String>,
    ) -> Result<UserFile> {
        let wrong = |what: String| users_error(path, what);
        let text = read_text(path, FILE_BYTES_MAX).map_err(|error| wrong(error.to_string()))?;
        // The parser's full message quotes the line, which may contain a hash.
        let file: UserFile = toml::from_str(&text).map_err(|error| {
            let before = error.span().and_then(|span| text.get(..span.start));
            let line = before
                .map_or_else(String::new, |before| format!("line {}: ", before.matches('\n').count() + 1));
            wrong(format!("{line}{}", error.message()))
        })?;
        for (name, entry) in &file.users {
            let line = line_of(&text, name).map_or_else(String::new, |line| format!("line {line}: "));
            let wrong = |what: &str| wrong(format!("{line}user {}: {what}", name.escape_debug()));
            check_name(name).map_err(wrong)?;
            entry.check().and_then(|()| look(name, entry)).map_err(|what| wrong(&what))?;
        }
        Ok(file)
    }

    /// Returns all users by name.
    pub fn users(&self) -> &BTreeMap<String, UserEntry> {
        &self.users
    }

    /// Adds or replaces a user.
    ///
    /// # Errors
    /// The reason why the name is invalid.
    pub fn set(&mut self, name: &str, entry: UserEntry) -> std::result::Result<(), &'static str> {
        check_name(name)?;
        self.users.insert(name.to_owned(), entry);
        Ok(())
    }

    /// Removes a user. Returns true if it existed.
    pub fn remove(&mut self, name: &str) -> bool {
        self.users.remove(name).is_some()
    }

    /// Replaces the file atomically: a reader finds the old file or the new one. Owner and mode are kept, so that a process that
    /// could read the file still can. A new file is readable by its owner only, who is the owner of the directory if root creates
    /// it.
    ///
    /// # Errors
    /// The error of the file system; the old file is unchanged then.
    pub fn write(&self, path: &Path) -> std::io::Result<()> {
        let text = toml::to_string_pretty(self).map_err(std::io::Error::other)?;
        // Through a symbolic link, the target is replaced and not the link.
        let path = std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        let mut beside = path.as_os_str().to_owned();
        beside.push(format!(".{}", std::process::id()));
        // A process with the same id may have been killed while writing.
        let _ = std::fs::remove_file(&beside);
        let mut file = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&beside)?;
        let written = file
            .write_all(HEAD.as_bytes())
            .and_then(|()| file.write_all(text.as_bytes()))
            .and_then(|()| give_to_owner(&file, &path))
            .and_then(|()| file.sync_all())
            .and_then(|()| std::fs::rename(&beside, &path));
        if written.is_err() {
            let _ = std::fs::remove_file(&beside);
        }
        // Otherwise the old file could reappear after a power failure.
        written.and_then(|()| File::open(directory_of(&path))?.sync_all())
    }
}

fn directory_of(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Returns the line number of a user's table, if it has one of its own.
fn line_of(text: &str, name: &str) -> Option<usize> {
    let heads = [format!("[users.{name}]"), format!("[users.\"{name}\"]")];
    text.lines()
        .position(|line| heads.iter().any(|head| line.trim_start().starts_with(head)))
        .map(|index| index + 1)
}

/// Gives a new file the owner, group and mode of the file that it replaces. Without one, root gives it to the owner and group
/// of the directory.
fn give_to_owner(file: &File, path: &Path) -> std::io::Result<()> {
    let mine = file.metadata()?;
    match std::fs::metadata(path) {
        Ok(old) => {
            if (old.uid(), old.gid()) != (mine.uid(), mine.gid()) {
                fchown(file, Some(old.uid()), Some(old.gid())).map_err(|error| {
                    let what = format!(
                        "its owner and group cannot be kept ({error}); change it as its owner or as root"
                    );
                    std::io::Error::new(error.kind(), what)
                })?;
            }
            file.set_permissions(old.permissions())
        }
        Err(error) if error.kind() == ErrorKind::NotFound && mine.uid() == 0 => {
            let parent = std::fs::metadata(directory_of(path))?;
            fchown(file, Some(parent.uid()), Some(parent.gid()))
        }
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    }
}

/// Checks a name. It must fit on a line with other words, as printed by `CLIENT LIST`.
pub(super) fn check_name(name: &str) -> std::result::Result<(), &'static str> {
    let good = (1..=64).contains(&name.len()) && name.bytes().all(|byte| byte.is_ascii_graphic());
    if good { Ok(()) } else { Err("a name is 1 to 64 ASCII characters without blanks") }
}

/// Returns the error for an unusable users file.
pub(super) fn users_error(path: &Path, what: String) -> Error {
    Error::Users { path: path.to_owned(), what }
}
