//! Who a connection is, and what it may do.
//!
//! A connection's session holds the user it speaks for, or none before it has said who it is. What a command needs is
//! decided in one place, `resp::command::rights`; what a user has is decided here.
//!
//! - `auth/changes`: what a reading of it changed, for the log.
//! - `auth/file`: the file of users.
//! - `auth/password`: hashes, slow for guessers and fast for those who were right before.
//! - `auth/throttle`: who guesses.
//!
//! When the users are read again, every user that is held by a session becomes outdated, and the session asks for its
//! user anew (see [`Users::refresh`]): rights change at once, and who is gone or has another password is disconnected.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use tokio::sync::watch;

use crate::base::address::Address;
use crate::base::config::Access;
use crate::base::counting::count;
use crate::base::notices::Notices;
use crate::{Error, Result};

mod changes;
mod file;
mod password;
mod throttle;

pub use file::{Right, UserEntry, UserFile};
pub use password::LOGIN_BYTES;
use password::{Checker, Secret};
use throttle::{Throttle, Verdict};

/// The user that a lone password belongs to, and that everybody is where nobody has one.
const DEFAULT_NAME: &str = "default";

/// Bytes of a name that the log shows, which is what a name may have.
const NAME_SHOWN_BYTES: usize = 64;

/// Someone with rights.
#[derive(Debug)]
pub(crate) struct User {
    name: String,
    rights: Vec<Right>,
    /// Key prefixes that the user may reach; every key if there are none.
    prefixes: Vec<Vec<u8>>,
    /// Numbers of the databases that the user may use; all if there are none.
    databases: Vec<u8>,
    /// How the user proves who it is; nobody can by password if `None`.
    secret: Option<Secret>,
    /// The users were read again since.
    outdated: AtomicBool,
}

impl User {
    fn all_powerful(secret: Option<Secret>) -> User {
        User {
            name: DEFAULT_NAME.to_owned(),
            rights: vec![Right::Read, Right::Write, Right::Admin],
            prefixes: Vec::new(),
            databases: Vec::new(),
            secret,
            outdated: AtomicBool::new(false),
        }
    }

    /// The name, as `ACL WHOAMI` tells it.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Whether there is any key that the user may read: the right to run commands that read.
    pub(crate) fn reads(&self) -> bool {
        self.has(Right::Read)
    }

    /// Whether there is any key that the user may write.
    pub(crate) fn writes(&self) -> bool {
        self.has(Right::Write)
    }

    /// Whether the user may read this key.
    pub(crate) fn may_read(&self, key: &[u8]) -> bool {
        self.reads() && self.reaches(key)
    }

    /// Whether the user may write this key.
    pub(crate) fn may_write(&self, key: &[u8]) -> bool {
        self.writes() && self.reaches(key)
    }

    /// Whether the user may see what the server does.
    pub(crate) fn monitors(&self) -> bool {
        self.is_admin() || self.has(Right::Monitor)
    }

    /// Whether the user may see and change the server itself, and reach keys that a command does not name.
    pub(crate) fn is_admin(&self) -> bool {
        self.has(Right::Admin)
    }

    /// What keys must begin with for the user to reach them; every key if there are none.
    pub(crate) fn prefixes(&self) -> &[Vec<u8>] {
        &self.prefixes
    }

    /// Whether the user may use this database.
    pub(crate) fn may_use(&self, database: u8) -> bool {
        self.databases.is_empty() || self.databases.contains(&database)
    }

    /// Whether no database is kept from the user.
    pub(crate) fn may_use_all_databases(&self) -> bool {
        self.databases.is_empty()
    }

    /// Whether the users were read again since this was handed out, so that [`Users::refresh`] should be asked.
    pub(crate) fn is_outdated(&self) -> bool {
        self.outdated.load(Ordering::Acquire)
    }

    fn has(&self, right: Right) -> bool {
        self.rights.contains(&right)
    }

    fn reaches(&self, key: &[u8]) -> bool {
        self.prefixes.is_empty() || self.prefixes.iter().any(|prefix| key.starts_with(prefix))
    }
}

/// The users of one reading of the file.
#[derive(Debug, Default)]
struct Roster {
    /// Who everybody is where nobody has a password.
    everyone: Option<Arc<User>>,
    named: BTreeMap<String, Arc<User>>,
}

/// All users of a server.
#[derive(Debug)]
pub(crate) struct Users {
    access: Access,
    roster: std::sync::RwLock<Arc<Roster>>,
    checker: Checker,
    throttle: Throttle,
    notices: Notices,
    /// Tells whoever waits that the users were read again.
    reloads: watch::Sender<()>,
    pub(crate) logins: AtomicU64,
    pub(crate) failures: AtomicU64,
}

impl Users {
    /// Reads the users that the settings name. Without any, whoever connects may do everything.
    pub(crate) fn open(access: &Access) -> Result<Users> {
        let checker = Checker::new()?;
        let roster = Arc::new(Roster::read(access, &checker)?);
        Ok(Users {
            access: access.clone(),
            roster: std::sync::RwLock::new(roster),
            checker,
            throttle: Throttle::default(),
            notices: Notices::default(),
            reloads: watch::Sender::new(()),
            logins: AtomicU64::new(0),
            failures: AtomicU64::new(0),
        })
    }

    /// Reads the file of users again. If it cannot be used the old users stay.
    pub(crate) fn reload(&self) -> Result<()> {
        let fresh = Arc::new(Roster::read(&self.access, &self.checker)?);
        let old = std::mem::replace(&mut *self.roster.write().expect("nobody panics with it"), fresh.clone());
        changes::log(&old, &fresh);
        self.checker.forget();
        // Must come after the new users are in place, or else a session would be given its old user again.
        for user in old.named.values().chain(&old.everyone) {
            user.outdated.store(true, Ordering::Release);
        }
        self.reloads.send_replace(());
        Ok(())
    }

    /// Sees every reading from now on.
    pub(crate) fn reloads(&self) -> watch::Receiver<()> {
        self.reloads.subscribe()
    }

    fn roster(&self) -> Arc<Roster> {
        self.roster.read().expect("nobody panics with it").clone()
    }

    /// Who a connection speaks for before it has said anything; `None` if it must log in first.
    pub(crate) fn unnamed(&self) -> Option<Arc<User>> {
        self.roster().everyone.clone()
    }

    /// All of them, by name.
    pub(crate) fn all(&self) -> Vec<Arc<User>> {
        let roster = self.roster();
        roster.named.values().chain(&roster.everyone).cloned().collect()
    }

    /// Whether the user named `default` has a password, which is what a lone password is checked against.
    pub(crate) fn default_has_password(&self) -> bool {
        self.roster().named.get(DEFAULT_NAME).is_some_and(|user| user.secret.is_some())
    }

    /// The same user as the users are now; `None` if it is gone or has another password.
    pub(crate) fn refresh(&self, user: &User) -> Option<Arc<User>> {
        let roster = self.roster();
        let now = roster.named.get(&user.name).or(roster.everyone.as_ref())?;
        (now.name == user.name && now.secret == user.secret).then(|| now.clone())
    }

    /// The user that a client's certificate names, if there is one.
    pub(crate) fn of_certificate<'a>(&self, names: impl IntoIterator<Item = &'a str>) -> Option<Arc<User>> {
        let roster = self.roster();
        names.into_iter().find_map(|name| roster.named.get(name).cloned())
    }

    /// The user, if name and password are right. It may take long, and does not block the thread.
    pub(crate) async fn log_in(&self, name: &[u8], password: &[u8], from: &Address) -> Option<Arc<User>> {
        let roster = self.roster();
        let named = std::str::from_utf8(name).ok();
        if let Some(everyone) = &roster.everyone {
            return (named == Some(&*everyone.name)).then(|| everyone.clone());
        }
        let user = named.and_then(|name| roster.named.get(name));
        let secret = user.and_then(|user| user.secret.as_ref());
        let attempt = self.checker.attempt(name, password, secret, from.origin());
        let may_check = || self.throttle.look(attempt) == Verdict::Check;
        let checked = match self.throttle.look(attempt) {
            Verdict::Check => self.checker.check(name, password, secret, may_check).await,
            Verdict::KnownWrong | Verdict::Blocked => None,
        };
        if checked == Some(true) {
            count(&self.logins, 1);
            return user.cloned();
        }
        count(&self.failures, 1);
        let blocks = checked.is_some() && self.throttle.failed(attempt);
        self.note_failure(name, from, checked.is_some(), blocks);
        None
    }

    /// Writes a line about a login that failed. Whoever sends it chose the name.
    fn note_failure(&self, name: &[u8], from: &Address, was_checked: bool, blocks: bool) {
        let user = name[..name.len().min(NAME_SHOWN_BYTES)].escape_ascii();
        if blocks {
            tracing::warn!(address = %from.holder(), %user, "too many wrong passwords; refusing logins for a while");
        } else if let Some(left_out) = self.notices.turn() {
            let why = if was_checked {
                "wrong user or password"
            } else {
                "a password that was wrong before, or too many wrong ones"
            };
            tracing::warn!(address = %from.holder(), %user, left_out, "login failed: {why}");
        }
    }
}

impl Roster {
    fn read(access: &Access, checker: &Checker) -> Result<Roster> {
        let mut roster = Roster::default();
        if let Some(path) = &access.users {
            for (name, entry) in UserFile::read(path)?.users() {
                let wrong = |what| users_error(path, format!("user {name}: {what}"));
                let secret =
                    entry.password_hash.as_deref().map(Secret::of_hash).transpose().map_err(wrong)?;
                let user = User {
                    name: name.clone(),
                    rights: entry.rights.clone(),
                    prefixes: entry.prefixes.iter().map(|prefix| prefix.as_bytes().to_vec()).collect(),
                    databases: entry.databases.clone(),
                    secret,
                    outdated: AtomicBool::new(false),
                };
                roster.named.insert(name.clone(), Arc::new(user));
            }
        }
        if let Some(password) = &access.password {
            let secret = checker.secret_of(DEFAULT_NAME.as_bytes(), password.bytes());
            let user = Arc::new(User::all_powerful(Some(secret)));
            if let (Some(_), Some(path)) = (roster.named.insert(DEFAULT_NAME.to_owned(), user), &access.users)
            {
                let what =
                    "it has a user default, and password is set, which is that user's; take one of them away";
                return Err(users_error(path, what.to_owned()));
            }
        }
        if access.users.is_none() && access.password.is_none() {
            roster.everyone = Some(Arc::new(User::all_powerful(None)));
        }
        Ok(roster)
    }
}

fn users_error(path: &Path, what: String) -> Error {
    Error::Users { path: path.to_owned(), what }
}

#[cfg(test)]
#[path = "auth/tests.rs"]
mod tests;
