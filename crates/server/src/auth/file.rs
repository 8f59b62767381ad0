//! The file of users: a TOML table for each, with a hash in place of the password.

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

/// What a user may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Right {
    /// Read keys.
    Read,
    /// Write and delete keys.
    Write,
    /// See what the server does and how it is set up: settings, clients, slow commands with their arguments. It reaches no
    /// key and changes nothing.
    Monitor,
    /// Everything: all keys, those too that a command does not name, and the server itself.
    Admin,
}

impl Right {
    /// How many there are.
    pub(super) const COUNT: usize = 4;

    /// The right of a name.
    pub fn parse(name: &str) -> Option<Right> {
        match name {
            "read" => Some(Right::Read),
            "write" => Some(Right::Write),
            "monitor" => Some(Right::Monitor),
            "admin" => Some(Right::Admin),
            _ => None,
        }
    }

    /// Its name in the file.
    pub fn name(self) -> &'static str {
        match self {
            Right::Read => "read",
            Right::Write => "write",
            Right::Monitor => "monitor",
            Right::Admin => "admin",
        }
    }
}

/// A user as the file has it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UserEntry {
    /// The user cannot log in.
    #[serde(default, skip_serializing_if = "is_false")]
    pub off: bool,
    /// Argon2 in PHC form. Without it only a certificate can log the user in.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub password_hash: Option<String>,
    /// Hashes of up to three passwords that are right as well.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub more_password_hashes: Vec<String>,
    /// What the user may do. Instead of this and of prefixes there may be commands, keys and channels.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rights: Vec<Right>,
    /// What keys must begin with for the user to reach them; every key if there are none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub prefixes: Vec<String>,
    /// Numbers of the databases that the user may use; all of them if there are none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub databases: Vec<u8>,
    /// The commands that the user may run, in the words of Redis: `-@all +@read -keys`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commands: Option<String>,
    /// Keys that the user may reach, where there are commands: `~app:*`, `%R~app:*`. None if there are none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub keys: Vec<String>,
    /// Channels that the user may use, where there are commands: `&app:*`. None if there are none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub channels: Vec<String>,
}

fn is_false(value: &bool) -> bool {
    !value
}

impl UserEntry {
    /// Sets the only password, by its hash. It takes a few hundredths of a second.
    ///
    /// # Errors
    /// It is too long, or the system gives no random numbers.
    pub fn set_password(&mut self, password: &str) -> Result<()> {
        Password::check_length(password.as_bytes())?;
        self.password_hash = Some(password::hash(password.as_bytes())?);
        self.more_password_hashes.clear();
        Ok(())
    }

    /// All hashes of passwords.
    pub(super) fn hashes(&self) -> impl Iterator<Item = &str> {
        self.password_hash.iter().chain(&self.more_password_hashes).map(String::as_str)
    }

    /// The keys and the channels that stand beside commands.
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

    /// What is wrong with it. Whether there are such commands is seen when a server reads it.
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

/// The file of users.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UserFile {
    #[serde(default)]
    users: BTreeMap<String, UserEntry>,
}

/// Length of a file of users.
const FILE_BYTES_MAX: u64 = 16 << 20;

const HEAD: &str = "# Users of Esker, written by `esker user` and ACL SAVE. Comments are not kept.\n\n";

impl UserFile {
    /// Reads and checks it.
    ///
    /// # Errors
    /// `Users`, which names the file and what is wrong with it.
    pub fn read(path: &Path) -> Result<UserFile> {
        UserFile::read_with(path, |_, _| Ok(()))
    }

    /// The same, and looks at each user.
    pub(super) fn read_with(
        path: &Path,
        mut look: impl FnMut(&str, &UserEntry) -> std::result::Result<(), String>,
    ) -> Result<UserFile> {
        let wrong = |what: String| users_error(path, what);
        let text = read_text(path, FILE_BYTES_MAX).map_err(|error| wrong(error.to_string()))?;
        // The parser's whole message quotes the line, which may hold a hash.
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

    /// All users by name.
    pub fn users(&self) -> &BTreeMap<String, UserEntry> {
        &self.users
    }

    /// Adds a user, or puts another in place of it.
    ///
    /// # Errors
    /// Why the name is none.
    pub fn set(&mut self, name: &str, entry: UserEntry) -> std::result::Result<(), &'static str> {
        check_name(name)?;
        self.users.insert(name.to_owned(), entry);
        Ok(())
    }

    /// Removes a user; says whether it was there.
    pub fn remove(&mut self, name: &str) -> bool {
        self.users.remove(name).is_some()
    }

    /// Writes it so that a reader finds the old file or the new one. Owner and mode stay what they were, so that whoever could
    /// read it still can; a new one only its owner reads, which is the directory's if root makes it.
    ///
    /// # Errors
    /// What the file system said; the old file is then as it was.
    pub fn write(&self, path: &Path) -> std::io::Result<()> {
        let text = toml::to_string_pretty(self).map_err(std::io::Error::other)?;
        // Behind a link is what is to be changed, and not the link.
        let path = std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        let mut beside = path.as_os_str().to_owned();
        beside.push(format!(".{}", std::process::id()));
        // A process of this number may have been killed while it wrote.
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
        // Else the old file could be there again after a loss of power.
        written.and_then(|()| File::open(directory_of(&path))?.sync_all())
    }
}

fn directory_of(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// The line on which the table of a user begins, if it has one of its own.
fn line_of(text: &str, name: &str) -> Option<usize> {
    let heads = [format!("[users.{name}]"), format!("[users.\"{name}\"]")];
    text.lines()
        .position(|line| heads.iter().any(|head| line.trim_start().starts_with(head)))
        .map(|index| index + 1)
}

/// Gives a file that is to take a path's place to those who have the path.
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

/// A name must fit on a line with other words, as `CLIENT LIST` prints it.
pub(super) fn check_name(name: &str) -> std::result::Result<(), &'static str> {
    let good = (1..=64).contains(&name.len()) && name.bytes().all(|byte| byte.is_ascii_graphic());
    if good { Ok(()) } else { Err("a name is 1 to 64 ASCII characters without blanks") }
}

/// What is wrong with a file of users.
pub(super) fn users_error(path: &Path, what: String) -> Error {
    Error::Users { path: path.to_owned(), what }
}
