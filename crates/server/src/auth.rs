//! Authentication and authorization of connections.
//!
//! A connection's session holds its user, or none before the login. Whether a user may run a command is decided in one place,
//! `resp::commands::rights`; the rights of users are determined here.
//!
//! - `auth/account`: the data of a user, and the rules of ACL SETUSER that change it.
//! - `auth/change`: ACL SETUSER, DELUSER and SAVE.
//! - `auth/changes`: logs the differences after a reload of the users file.
//! - `auth/commands`: sets of commands, and the rules that select them.
//! - `auth/file`: the users file.
//! - `auth/checker`: checks passwords in a queue; a password that was right before skips the queue.
//! - `auth/password`: password hashes and their cost limits.
//! - `auth/prefixes`: sets of keys and channels.
//! - `auth/room`: the memory budget of users.
//! - `auth/throttle`: limits password guessing.
//!
//! When users are changed or reloaded, the user held by a session becomes outdated, and the session fetches it again (see
//! [`Users::refresh`]): changed rights apply at once, and a session whose user was removed or lost a password is closed.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

use crate::Result;
use crate::base::address::Address;
use crate::base::config::Access;
use crate::base::counting::count;
use crate::base::limited_log::Notices;
use crate::base::pool::{Busy, Source};

mod account;
mod change;
mod changes;
mod checker;
mod commands;
mod file;
mod password;
mod prefixes;
mod room;
mod throttle;

use account::Account;
pub(crate) use change::{NotSaved, NotSet};
use checker::{Caller, Checker};
use commands::Allowed;
pub(crate) use commands::{CommandTable, Needs, Row};
use file::users_error;
pub use file::{Right, UserEntry, UserFile};
pub use password::LOGIN_BYTES;

use prefixes::Reach;
use room::Room;
pub(crate) use room::{Hold, NoRoom};
use throttle::{Suspects, Throttle, Verdict};

/// Name of the user that a password without a name belongs to, and of all clients if no password is set.
const DEFAULT_NAME: &str = "default";

/// Maximum bytes of a user name shown in the log, equal to the maximum length of a name.
const NAME_SHOWN_BYTES: usize = 64;

/// Memory of a user's map entry and allocations, in bytes.
const PLACE_BYTES: usize = 256;

/// A user and its rights.
#[derive(Debug)]
pub(crate) struct User {
    name: String,
    /// Account from which the other fields are derived.
    account: Account,
    /// Commands that the user may run.
    allowed: Allowed,
    keys: Reach,
    channels: Reach,
    /// True if the user may do everything, including access to keys that a command does not name.
    is_admin: bool,
    /// True once the user was changed or reloaded.
    outdated: AtomicBool,
}

impl User {
    fn new(name: String, account: Account, table: &CommandTable) -> User {
        let (allowed, keys, channels) = account.resolve(table);
        let is_admin = table.is_all(&allowed.set) && keys.is_everything() && account.databases.is_empty();
        User { name, account, allowed, keys, channels, is_admin, outdated: AtomicBool::new(false) }
    }

    /// Returns the name, as in `ACL WHOAMI`.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Returns the memory of the user in bytes, including its map entry.
    fn bytes(&self) -> usize {
        let reach = self.keys.bytes() + self.channels.bytes() + self.allowed.bytes();
        size_of::<User>() + PLACE_BYTES + 2 * self.name.len() + reach + self.account.bytes()
    }

    /// Returns true if logins as this user are disabled.
    pub(crate) fn is_off(&self) -> bool {
        self.account.is_off
    }

    /// Returns true if any password is accepted.
    pub(crate) fn needs_no_password(&self) -> bool {
        self.account.needs_no_password
    }

    /// Returns true if the user may run the command of a table row.
    pub(crate) fn may_run(&self, row: usize) -> bool {
        self.allowed.set.contains(row)
    }

    /// Returns true if commands of the user may read this key.
    pub(crate) fn may_read(&self, key: &[u8]) -> bool {
        self.keys.may_read(key)
    }

    /// Returns true if commands of the user may write this key.
    pub(crate) fn may_write(&self, key: &[u8]) -> bool {
        self.keys.may_write(key)
    }

    /// Returns true if this user and another one may read the same keys of a database.
    pub(crate) fn reads_as(&self, other: &User, database: u8) -> bool {
        self.may_use(database) == other.may_use(database) && self.keys.readable() == other.keys.readable()
    }

    /// Returns true if the user may subscribe to channels with this prefix.
    pub(crate) fn may_hear(&self, channel: &[u8]) -> bool {
        self.channels.may_read(channel)
    }

    /// Returns true if the user may publish on this channel.
    pub(crate) fn may_publish(&self, channel: &[u8]) -> bool {
        self.channels.may_write(channel)
    }

    /// Returns true if the user may do everything, including access to keys that a command does not name. Channels are
    /// independent of that.
    pub(crate) fn is_admin(&self) -> bool {
        self.is_admin
    }

    /// Returns true if the user may use this database.
    pub(crate) fn may_use(&self, database: u8) -> bool {
        self.may_use_all_databases() || self.account.databases.contains(&database)
    }

    /// Returns true if the user may use every database.
    pub(crate) fn may_use_all_databases(&self) -> bool {
        self.account.databases.is_empty()
    }

    /// Returns true if the user may use every channel, by its name.
    pub(crate) fn reaches_all_channels(&self) -> bool {
        self.channels.may_read(b"") || self.channels.may_write(b"")
    }

    /// Returns the permitted commands as Redis rules.
    pub(crate) fn shown_commands(&self) -> String {
        self.allowed.text()
    }

    /// Returns the permitted keys as Redis rules.
    pub(crate) fn shown_keys(&self) -> impl Iterator<Item = Vec<u8>> {
        self.keys.shown(b'~')
    }

    /// Returns the permitted channels as Redis rules.
    pub(crate) fn shown_channels(&self) -> impl Iterator<Item = Vec<u8>> {
        self.channels.shown(b'&')
    }

    /// Returns true if the user was changed or reloaded since it was handed out, so that [`Users::refresh`] must be called.
    pub(crate) fn is_outdated(&self) -> bool {
        self.outdated.load(Ordering::Acquire)
    }
}

/// Reason of a refused login.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LoginRefused {
    /// User or password are wrong, or there were too many wrong passwords.
    Wrong,
    /// The password was not checked.
    Busy(Busy),
}

/// Maximum wait of a login without `login-timeout`, and of a change of users.
const LOGIN_WAIT: Duration = Duration::from_secs(60);

/// Returns the deadline of a login that begins now.
pub(crate) fn login_deadline(login_wait: Option<Duration>) -> Instant {
    Instant::now() + login_wait.unwrap_or(LOGIN_WAIT)
}

/// Users by name.
#[derive(Clone, Debug, Default)]
struct Roster(BTreeMap<String, Arc<User>>);

/// All users of the server.
#[derive(Debug)]
pub(crate) struct Users {
    access: Access,
    table: &'static CommandTable,
    roster: std::sync::RwLock<Arc<Roster>>,
    /// Held while the users file is read or written.
    file: std::sync::Mutex<()>,
    checker: Checker,
    throttle: Arc<Throttle>,
    suspects: Suspects,
    room: Room,
    notices: Notices,
    /// Notifies receivers that users have changed.
    reloads: watch::Sender<()>,
    pub(crate) logins: AtomicU64,
    pub(crate) failures: AtomicU64,
}

impl Users {
    /// Loads the configured users. Without any, every client may do everything.
    ///
    /// `client_bytes`: memory for all clients, a part of which users may take.
    ///
    /// # Errors
    /// `Users` if the file is unusable, or its users exceed their memory.
    pub(crate) fn open(access: &Access, table: &'static CommandTable, client_bytes: usize) -> Result<Users> {
        let (checker, room) = (Checker::new()?, Room::new(client_bytes));
        let roster = Arc::new(Roster::read(access, table, &checker)?);
        room.take(roster.bytes(), 0).map_err(|no_room| wrong_users(access, &no_room))?;
        checker.follow(roster.secrets());
        Ok(Users {
            access: access.clone(),
            table,
            roster: std::sync::RwLock::new(roster),
            file: std::sync::Mutex::default(),
            checker,
            throttle: Arc::default(),
            suspects: Suspects::default(),
            room,
            notices: Notices::default(),
            reloads: watch::Sender::new(()),
            logins: AtomicU64::new(0),
            failures: AtomicU64::new(0),
        })
    }

    /// Reloads the users file. If it is unusable, the previous users stay in force.
    pub(crate) fn reload(&self) -> Result<()> {
        if self.access.users.is_none() {
            return Ok(());
        }
        let _file = self.file.lock().expect("the lock is never poisoned: no code panics while holding it");
        let fresh = Roster::read(&self.access, self.table, &self.checker)?;
        let told = fresh.clone();
        let old = self.replace(|roster| Ok(std::mem::replace(roster, fresh)));
        let old = old.map_err(|no_room: NoRoom| wrong_users(&self.access, &no_room))?;
        changes::log(&old, &told);
        Ok(())
    }

    /// Charges the memory of users to `hold` from now on.
    pub(crate) fn hold_by(&self, hold: Hold) {
        let roster = self.roster.read().expect("the lock is never poisoned: no code panics while holding it");
        self.room.hold_by(hold, roster.bytes());
    }

    /// Changes the users in one step, or not at all if `change` fails or there is no memory. Sessions of changed users are
    /// notified.
    fn replace<T, E: From<NoRoom>>(
        &self,
        change: impl FnOnce(&mut Roster) -> std::result::Result<T, E>,
    ) -> std::result::Result<T, E> {
        let mut place =
            self.roster.write().expect("the lock is never poisoned: no code panics while holding it");
        let mut fresh = Roster::clone(&place);
        let given = change(&mut fresh)?;
        self.room.take(fresh.bytes(), place.bytes())?;
        let fresh = Arc::new(fresh);
        let old = std::mem::replace(&mut *place, fresh.clone());
        drop(place);
        self.checker.follow(fresh.secrets());
        // Users are marked as outdated after the new ones are in place, because otherwise a session could fetch its old user
        // again.
        for user in old.0.values() {
            if !fresh.0.get(&user.name).is_some_and(|same| Arc::ptr_eq(same, user)) {
                user.outdated.store(true, Ordering::Release);
            }
        }
        self.reloads.send_replace(());
        Ok(given)
    }

    /// Returns the table of commands.
    pub(crate) fn commands(&self) -> &'static CommandTable {
        self.table
    }

    /// Returns a receiver that is notified of every change from now on.
    pub(crate) fn reloads(&self) -> watch::Receiver<()> {
        self.reloads.subscribe()
    }

    fn roster(&self) -> Arc<Roster> {
        self.roster.read().expect("the lock is never poisoned: no code panics while holding it").clone()
    }

    /// Returns the user of a connection before its login; `None` if a login is required.
    pub(crate) fn unnamed(&self) -> Option<Arc<User>> {
        let roster = self.roster();
        let default = roster.0.get(DEFAULT_NAME)?;
        (default.needs_no_password() && !default.is_off()).then(|| default.clone())
    }

    /// Returns all users by name.
    pub(crate) fn all(&self) -> Vec<Arc<User>> {
        self.roster().0.values().cloned().collect()
    }

    /// Returns true if the user `default` has a password. A password without a user name is checked against it.
    pub(crate) fn default_has_password(&self) -> bool {
        self.roster().0.get(DEFAULT_NAME).is_some_and(|user| !user.account.secrets.is_empty())
    }

    /// Returns the current version of a user; `None` if it was removed, or if one of its passwords is no longer valid.
    pub(crate) fn refresh(&self, user: &User) -> Option<Arc<User>> {
        let roster = self.roster();
        let now = roster.0.get(&user.name)?;
        let keeps = |secret| now.needs_no_password() || now.account.secrets.contains(secret);
        user.account.secrets.iter().all(keeps).then(|| now.clone())
    }

    /// Returns the current version of a user if its session may continue without a new login: the user exists with all its
    /// passwords (see [`refresh`](Self::refresh)), is enabled, and still needs no password if it needed none before.
    pub(crate) fn still(&self, user: &Arc<User>) -> Option<Arc<User>> {
        let now = if user.is_outdated() { self.refresh(user)? } else { user.clone() };
        let may = !now.is_off() && (now.needs_no_password() || !user.needs_no_password());
        may.then_some(now)
    }

    /// As [`still`](Self::still), for a session without a login: by a certificate, or because no password is required. Only the
    /// user `default` can have no password, so the user determines which case applies.
    pub(crate) fn still_unnamed(&self, user: &Arc<User>) -> Option<Arc<User>> {
        match () {
            () if !user.is_outdated() => Some(user.clone()),
            () if user.needs_no_password() => self.unnamed(),
            () => self.of_certificate([user.name()]),
        }
    }

    /// Returns the first enabled user that a client certificate names.
    pub(crate) fn of_certificate<'a>(&self, names: impl IntoIterator<Item = &'a str>) -> Option<Arc<User>> {
        let roster = self.roster();
        names.into_iter().find_map(|name| roster.0.get(name).filter(|user| !user.is_off()).cloned())
    }

    /// Returns the user if name and password are right. Waits in a queue without blocking the thread.
    ///
    /// # Errors
    /// [`LoginRefused`]: the password is wrong, there were too many wrong ones, or the queue was full or too slow for the
    /// deadline.
    pub(crate) async fn log_in(
        &self,
        name: &[u8],
        password: &[u8],
        from: &Address,
        deadline: Instant,
    ) -> std::result::Result<Arc<User>, LoginRefused> {
        let roster = self.roster();
        let user = std::str::from_utf8(name).ok().and_then(|name| roster.0.get(name));
        let user = user.filter(|user| !user.is_off());
        if let Some(user) = user.filter(|user| user.needs_no_password()) {
            return Ok(user.clone());
        }
        let secrets = user.map_or(&[][..], |user| &user.account.secrets);
        let attempt = self.checker.attempt(name, password, secrets, from.origin());
        let throttle = self.throttle.clone();
        let may_check = move || throttle.look(attempt) == Verdict::Check;
        let block = Source::block(from);
        let now = std::time::Instant::now();
        let caller = Caller { source: self.suspects.source(block, now), deadline };
        let checked = match self.throttle.look(attempt) {
            Verdict::Check => self.checker.check(name, password, secrets, caller, may_check).await,
            Verdict::KnownWrong | Verdict::Blocked => Ok(None),
        };
        let checked = checked.map_err(|busy| self.note_busy(name, from, busy))?;
        if let (Some(Some(_)), Some(user)) = (checked, user) {
            count(&self.logins, 1);
            return Ok(user.clone());
        }
        count(&self.failures, 1);
        if checked.is_some() {
            self.suspects.failed(block, std::time::Instant::now());
        }
        let blocks = checked.is_some() && self.throttle.failed(attempt);
        self.note_failure(name, from, checked.is_some(), blocks);
        Err(LoginRefused::Wrong)
    }

    /// Logs a login whose password was not checked.
    fn note_busy(&self, name: &[u8], from: &Address, busy: Busy) -> LoginRefused {
        if let Some(left_out) = self.notices.turn() {
            let user = name[..name.len().min(NAME_SHOWN_BYTES)].escape_ascii();
            tracing::warn!(address = %from.holder(), %user, left_out, "login not checked: {busy}");
        }
        LoginRefused::Busy(busy)
    }

    /// Logs a failed login. The name is untrusted input.
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

/// Returns the error for configured users that exceed their memory.
fn wrong_users(access: &Access, no_room: &NoRoom) -> crate::Error {
    users_error(access.users.as_deref().unwrap_or(std::path::Path::new("")), no_room.to_string())
}

impl Roster {
    /// Returns the memory of all users in bytes.
    fn bytes(&self) -> usize {
        self.0.values().map(|user| user.bytes()).sum()
    }

    /// Returns the secrets of each user.
    fn secrets(&self) -> impl Iterator<Item = &[password::Secret]> {
        self.0.values().map(|user| &*user.account.secrets)
    }

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
