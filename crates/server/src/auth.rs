//! Who a connection is, and what it may do.
//!
//! A connection's session holds the user it speaks for, or none before it has said who it is. Whether a user may
//! run a command is asked in one place, `resp::commands::rights`; what a user has is decided here.
//!
//! - `auth/account`: what a user is made of, and how rules of ACL SETUSER change that.
//! - `auth/change`: ACL SETUSER, DELUSER and SAVE.
//! - `auth/changes`: what a reading of the file changed, for the log.
//! - `auth/commands`: sets of commands, and rules about them.
//! - `auth/file`: the file of users.
//! - `auth/checker`: checks passwords in a queue; a password that was right before skips the queue.
//! - `auth/password`: hashes of passwords, and what they may cost.
//! - `auth/reach`: sets of keys and channels.
//! - `auth/room`: the memory of users.
//! - `auth/throttle`: who guesses.
//!
//! When users are changed or read again, what sessions hold of them becomes outdated, and a session asks for its user anew
//! (see [`Users::refresh`]): rights change at once, and who is gone or has lost a password is disconnected.

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

/// The user that a lone password belongs to, and that everybody is where nobody has one.
const DEFAULT_NAME: &str = "default";

/// Bytes of a name that the log shows, which is what a name may have.
const NAME_SHOWN_BYTES: usize = 64;

/// Memory of a user's place in the map and of the allocations that it is made of, in bytes.
const PLACE_BYTES: usize = 256;

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

    /// Memory of the user, in bytes: its own, and that of its place among the others.
    fn bytes(&self) -> usize {
        let reach = self.keys.bytes() + self.channels.bytes() + self.allowed.bytes();
        size_of::<User>() + PLACE_BYTES + 2 * self.name.len() + reach + self.account.bytes()
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

/// The reason for which a login is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LoginRefused {
    /// User or password are wrong, or too many passwords were.
    Wrong,
    /// The password was not checked.
    Busy(Busy),
}

/// How long a login may wait where `login-timeout` is off, and a change of users.
const LOGIN_WAIT: Duration = Duration::from_secs(60);

/// The time until which a login may wait that begins now.
pub(crate) fn login_deadline(login_wait: Option<Duration>) -> Instant {
    Instant::now() + login_wait.unwrap_or(LOGIN_WAIT)
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
    throttle: Arc<Throttle>,
    suspects: Suspects,
    room: Room,
    notices: Notices,
    /// Tells whoever waits that users have changed.
    reloads: watch::Sender<()>,
    pub(crate) logins: AtomicU64,
    pub(crate) failures: AtomicU64,
}

impl Users {
    /// Reads the users that the settings name. Without any, whoever connects may do everything.
    ///
    /// `client_bytes`: memory for all clients, of which users may take a part.
    ///
    /// # Errors
    /// `Users` if the file cannot be used, or has more users than there is memory for.
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

    /// Reads the file of users again. If it cannot be used the old users stay.
    pub(crate) fn reload(&self) -> Result<()> {
        if self.access.users.is_none() {
            return Ok(());
        }
        let _file = self.file.lock().expect("nobody panics with it");
        let fresh = Roster::read(&self.access, self.table, &self.checker)?;
        let told = fresh.clone();
        let old = self.replace(|roster| Ok(std::mem::replace(roster, fresh)));
        let old = old.map_err(|no_room: NoRoom| wrong_users(&self.access, &no_room))?;
        changes::log(&old, &told);
        Ok(())
    }

    /// Takes the memory of users by `hold` from now on.
    pub(crate) fn hold_by(&self, hold: Hold) {
        let roster = self.roster.read().expect("the lock is never poisoned: no code panics while holding it");
        self.room.hold_by(hold, roster.bytes());
    }

    /// Changes the users in one step, or not if that is refused or there is no memory for it. Sessions are notified of the users
    /// that were changed.
    fn replace<T, E: From<NoRoom>>(
        &self,
        change: impl FnOnce(&mut Roster) -> std::result::Result<T, E>,
    ) -> std::result::Result<T, E> {
        let mut place = self.roster.write().expect("nobody panics with it");
        let mut fresh = Roster::clone(&place);
        let given = change(&mut fresh)?;
        self.room.take(fresh.bytes(), place.bytes())?;
        let fresh = Arc::new(fresh);
        let old = std::mem::replace(&mut *place, fresh.clone());
        drop(place);
        self.checker.follow(fresh.secrets());
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

    /// The user, if name and password are right. Waits in a queue, and does not block the thread.
    ///
    /// # Errors
    /// [`LoginRefused`]: the password is wrong, too many were wrong, or the queue is full or was too long for the deadline.
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

    /// Writes a line about a login that was not checked.
    fn note_busy(&self, name: &[u8], from: &Address, busy: Busy) -> LoginRefused {
        if let Some(left_out) = self.notices.turn() {
            let user = name[..name.len().min(NAME_SHOWN_BYTES)].escape_ascii();
            tracing::warn!(address = %from.holder(), %user, left_out, "login not checked: {busy}");
        }
        LoginRefused::Busy(busy)
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

/// Users of the settings that there is no memory for.
fn wrong_users(access: &Access, no_room: &NoRoom) -> crate::Error {
    users_error(access.users.as_deref().unwrap_or(std::path::Path::new("")), no_room.to_string())
}

impl Roster {
    /// Memory of all users, in bytes.
    fn bytes(&self) -> usize {
        self.0.values().map(|user| user.bytes()).sum()
    }

    /// The secrets of each user.
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
