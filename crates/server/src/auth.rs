//! Who a connection is, and what it may do.
//!
//! A connection's session holds the user it speaks for, or none before it has said who it is. Whether a user may
//! run a command is asked in one place, `resp::command::rights`; what a user has is decided here.
//!
//! - `auth/account`: what a user is made of, and how rules of ACL SETUSER change that.
//! - `auth/change`: ACL SETUSER, DELUSER and SAVE.
//! - `auth/changes`: what a reading of the file changed, for the log.
//! - `auth/commands`: sets of commands, and rules about them.
//! - `auth/file`: the file of users.
//! - `auth/password`: hashes, slow for guessers and fast for those who were right before.
//! - `auth/reach`: sets of keys and channels.
//! - `auth/throttle`: who guesses.
//!
//! When users are changed or read again, what sessions hold of them becomes outdated, and a session asks for its user anew
//! (see [`Users::refresh`]): rights change at once, and who is gone or has lost a password is disconnected.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use tokio::sync::watch;

use crate::Result;
use crate::base::address::Address;
use crate::base::config::Access;
use crate::base::counting::count;
use crate::base::notices::Notices;

mod account;
mod change;
mod changes;
mod commands;
mod file;
mod password;
mod reach;
mod throttle;

use account::Account;
pub(crate) use change::{NotSaved, NotSet};
use commands::Allowed;
pub(crate) use commands::{CommandTable, Needs, Row};
use file::users_error;
pub use file::{Right, UserEntry, UserFile};
pub use password::LOGIN_BYTES;
use password::{Checker, Secret};
use reach::Reach;
use throttle::{Throttle, Verdict};

/// The user that a lone password belongs to, and that everybody is where nobody has one.
const DEFAULT_NAME: &str = "default";

/// Bytes of a name that the log shows, which is what a name may have.
const NAME_SHOWN_BYTES: usize = 64;

/// Someone with rights.
#[derive(Debug)]
pub(crate) struct User {
    name: String,
    /// What all else here is made of.
    account: Account,
    /// The commands that it may run.
    allowed: Allowed,
    keys: Reach,
    channels: Reach,
    /// It may do everything, and reach keys that a command does not name.
    is_admin: bool,
    /// The user was changed, or read again, since.
    outdated: AtomicBool,
}

impl User {
    fn new(name: String, account: Account, table: &CommandTable) -> User {
        let (allowed, keys, channels) = account.resolve(table);
        let is_admin = table.is_all(&allowed.set) && keys.is_everything() && account.databases.is_empty();
        User { name, account, allowed, keys, channels, is_admin, outdated: AtomicBool::new(false) }
    }

    /// The name, as `ACL WHOAMI` tells it.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Whether nobody can log in as this user.
    pub(crate) fn is_off(&self) -> bool {
        self.account.is_off
    }

    /// Whether any password is right.
    pub(crate) fn needs_no_password(&self) -> bool {
        self.account.needs_no_password
    }

    /// Whether the user may run a command, by its row in the table.
    pub(crate) fn may_run(&self, row: usize) -> bool {
        self.allowed.set.contains(row)
    }

    /// Whether this key may be read, by a command that the user may run.
    pub(crate) fn may_read(&self, key: &[u8]) -> bool {
        self.keys.may_read(key)
    }

    /// Whether this key may be written, by a command that the user may run.
    pub(crate) fn may_write(&self, key: &[u8]) -> bool {
        self.keys.may_write(key)
    }

    /// Returns true if this user and another one may read the same keys of a database.
    pub(crate) fn reads_as(&self, other: &User, database: u8) -> bool {
        self.may_use(database) == other.may_use(database) && self.keys.readable() == other.keys.readable()
    }

    /// Whether the user may hear what is published on channels that begin so.
    pub(crate) fn may_hear(&self, channel: &[u8]) -> bool {
        self.channels.may_read(channel)
    }

    /// Whether the user may publish on this channel.
    pub(crate) fn may_publish(&self, channel: &[u8]) -> bool {
        self.channels.may_write(channel)
    }

    /// Whether the user may do everything, and reach keys that a command does not name. Channels are apart from that.
    pub(crate) fn is_admin(&self) -> bool {
        self.is_admin
    }

    /// Whether the user may use this database.
    pub(crate) fn may_use(&self, database: u8) -> bool {
        self.may_use_all_databases() || self.account.databases.contains(&database)
    }

    /// Whether no database is kept from the user.
    pub(crate) fn may_use_all_databases(&self) -> bool {
        self.account.databases.is_empty()
    }

    /// Whether no channel is kept from the user, by its name.
    pub(crate) fn reaches_all_channels(&self) -> bool {
        self.channels.may_read(b"") || self.channels.may_write(b"")
    }

    /// The commands that it may run, as rules of Redis.
    pub(crate) fn shown_commands(&self) -> String {
        self.allowed.text()
    }

    /// The keys that it may reach, as rules of Redis.
    pub(crate) fn shown_keys(&self) -> impl Iterator<Item = Vec<u8>> {
        self.keys.shown(b'~')
    }

    /// The channels that it may use, as rules of Redis.
    pub(crate) fn shown_channels(&self) -> impl Iterator<Item = Vec<u8>> {
        self.channels.shown(b'&')
    }

    /// Whether the users were read again since this was handed out, so that [`Users::refresh`] should be asked.
    pub(crate) fn is_outdated(&self) -> bool {
        self.outdated.load(Ordering::Acquire)
    }
}

/// Users by name.
#[derive(Clone, Debug, Default)]
struct Roster(BTreeMap<String, Arc<User>>);

/// All users of a server.
#[derive(Debug)]
pub(crate) struct Users {
    access: Access,
    table: &'static CommandTable,
    roster: std::sync::RwLock<Arc<Roster>>,
    /// Held by who reads or writes the file.
    file: std::sync::Mutex<()>,
    checker: Checker,
    throttle: Throttle,
    notices: Notices,
    /// Tells whoever waits that users have changed.
    reloads: watch::Sender<()>,
    pub(crate) logins: AtomicU64,
    pub(crate) failures: AtomicU64,
}

impl Users {
    /// Reads the users that the settings name. Without any, whoever connects may do everything.
    pub(crate) fn open(access: &Access, table: &'static CommandTable) -> Result<Users> {
        let checker = Checker::new()?;
        let roster = Arc::new(Roster::read(access, table, &checker)?);
        Ok(Users {
            access: access.clone(),
            table,
            roster: std::sync::RwLock::new(roster),
            file: std::sync::Mutex::default(),
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
        if self.access.users.is_none() {
            return Ok(());
        }
        let _file = self.file.lock().expect("nobody panics with it");
        let fresh = Roster::read(&self.access, self.table, &self.checker)?;
        let told = fresh.clone();
        let old = self.replace(|roster| Ok(std::mem::replace(roster, fresh)))?;
        changes::log(&old, &told);
        Ok(())
    }

    /// Changes the users in one step, or not if that is refused. Whoever holds a user that was changed is told.
    fn replace<T, E>(
        &self,
        change: impl FnOnce(&mut Roster) -> std::result::Result<T, E>,
    ) -> std::result::Result<T, E> {
        let mut place = self.roster.write().expect("nobody panics with it");
        let mut fresh = Roster::clone(&place);
        let given = change(&mut fresh)?;
        let fresh = Arc::new(fresh);
        let old = std::mem::replace(&mut *place, fresh.clone());
        drop(place);
        let hashes = fresh.0.values().flat_map(|user| user.account.secrets.iter().filter_map(Secret::hash));
        self.checker.keep(&hashes.collect());
        // Must come after the new users are in place, or else a session would be given its old user again.
        for user in old.0.values() {
            if !fresh.0.get(&user.name).is_some_and(|same| Arc::ptr_eq(same, user)) {
                user.outdated.store(true, Ordering::Release);
            }
        }
        self.reloads.send_replace(());
        Ok(given)
    }

    /// The commands that users may run.
    pub(crate) fn commands(&self) -> &'static CommandTable {
        self.table
    }

    /// Sees every change from now on.
    pub(crate) fn reloads(&self) -> watch::Receiver<()> {
        self.reloads.subscribe()
    }

    fn roster(&self) -> Arc<Roster> {
        self.roster.read().expect("nobody panics with it").clone()
    }

    /// Who a connection speaks for before it has said anything; `None` if it must log in first.
    pub(crate) fn unnamed(&self) -> Option<Arc<User>> {
        let roster = self.roster();
        let default = roster.0.get(DEFAULT_NAME)?;
        (default.needs_no_password() && !default.is_off()).then(|| default.clone())
    }

    /// All of them, by name.
    pub(crate) fn all(&self) -> Vec<Arc<User>> {
        self.roster().0.values().cloned().collect()
    }

    /// Whether the user named `default` has a password, which is what a lone password is checked against.
    pub(crate) fn default_has_password(&self) -> bool {
        self.roster().0.get(DEFAULT_NAME).is_some_and(|user| !user.account.secrets.is_empty())
    }

    /// The same user as the users are now; `None` if it is gone, or if a password that was right is not any more.
    pub(crate) fn refresh(&self, user: &User) -> Option<Arc<User>> {
        let roster = self.roster();
        let now = roster.0.get(&user.name)?;
        let keeps = |secret| now.needs_no_password() || now.account.secrets.contains(secret);
        user.account.secrets.iter().all(keeps).then(|| now.clone())
    }

    /// The same user as the users are now, if nothing more needs to be said: it is not off, and any password is still right if
    /// that is why it was let in.
    pub(crate) fn still(&self, user: &Arc<User>) -> Option<Arc<User>> {
        let now = if user.is_outdated() { self.refresh(user)? } else { user.clone() };
        let may = !now.is_off() && (now.needs_no_password() || !user.needs_no_password());
        may.then_some(now)
    }

    /// As [`still`](Self::still) of who was let in without a word: by a certificate, or because nobody needs a password. Only the
    /// user `default` can do without one, so the user tells which of them it was.
    pub(crate) fn still_unnamed(&self, user: &Arc<User>) -> Option<Arc<User>> {
        match () {
            () if !user.is_outdated() => Some(user.clone()),
            () if user.needs_no_password() => self.unnamed(),
            () => self.of_certificate([user.name()]),
        }
    }

    /// The user that a client's certificate names, if there is one that is not off.
    pub(crate) fn of_certificate<'a>(&self, names: impl IntoIterator<Item = &'a str>) -> Option<Arc<User>> {
        let roster = self.roster();
        names.into_iter().find_map(|name| roster.0.get(name).filter(|user| !user.is_off()).cloned())
    }

    /// The user, if name and password are right. It may take long, and does not block the thread.
    pub(crate) async fn log_in(&self, name: &[u8], password: &[u8], from: &Address) -> Option<Arc<User>> {
        let roster = self.roster();
        let user = std::str::from_utf8(name).ok().and_then(|name| roster.0.get(name));
        let user = user.filter(|user| !user.is_off());
        if let Some(user) = user.filter(|user| user.needs_no_password()) {
            return Some(user.clone());
        }
        let secrets = user.map_or(&[][..], |user| &user.account.secrets);
        let attempt = self.checker.attempt(name, password, secrets, from.origin());
        let may_check = || self.throttle.look(attempt) == Verdict::Check;
        let checked = match self.throttle.look(attempt) {
            Verdict::Check => self.checker.check(name, password, secrets, may_check).await,
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
    fn read(access: &Access, table: &CommandTable, checker: &Checker) -> Result<Roster> {
        let mut roster = Roster::default();
        if let Some(path) = &access.users {
            UserFile::read_with(path, |name, entry| {
                roster.add(name, Account::of_entry(entry, table)?, table);
                Ok(())
            })?;
        }
        if let Some(password) = &access.password {
            let secret = checker.secret_of(DEFAULT_NAME.as_bytes(), password.bytes());
            if let (true, Some(path)) = (roster.0.contains_key(DEFAULT_NAME), &access.users) {
                let what =
                    "it has a user default, and password is set, which is that user's; take one of them away";
                return Err(users_error(path, what.to_owned()));
            }
            roster.add(DEFAULT_NAME, Account::all_powerful(vec![secret]), table);
        }
        if access.users.is_none() && access.password.is_none() {
            roster.add(DEFAULT_NAME, Account::all_powerful(Vec::new()), table);
        }
        Ok(roster)
    }

    fn add(&mut self, name: &str, account: Account, table: &CommandTable) {
        self.0.insert(name.to_owned(), Arc::new(User::new(name.to_owned(), account, table)));
    }
}

#[cfg(test)]
#[path = "auth/tests.rs"]
mod tests;
