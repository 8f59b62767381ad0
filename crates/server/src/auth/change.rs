//! Changes of users by ACL SETUSER, DELUSER and SAVE. Unsaved changes are lost when the process ends.

use std::sync::Arc;

use super::account::{Account, Slow, Wrong, shown};
use super::checker::Caller;
use super::file::check_name;
use super::password::salt_beside;
use super::{DEFAULT_NAME, NoRoom, User, UserFile, Users, login_deadline};
use crate::base::pool::{Busy, Source};

/// Maximum number of users at which another one can be added.
const USERS_MAX: usize = 4096;

/// Maximum number of passwords added or removed by one change, because each takes a few hundredths of a second.
const PASSWORDS_MAX: usize = 16;

/// Reason why a user was not changed.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum NotSet {
    /// The redacted rule and its error.
    Rule(String, String),
    /// There is no memory for the user.
    NoRoom(NoRoom),
    /// Another error.
    Other(String),
}

/// Reason why a changed user was not put in place.
enum NotPlaced {
    Refused(NotSet),
    /// Another command changed the user.
    ChangedMeanwhile,
}

impl From<NoRoom> for NotPlaced {
    fn from(no_room: NoRoom) -> NotPlaced {
        NotPlaced::Refused(NotSet::NoRoom(no_room))
    }
}

/// Reason why users were not saved.
#[derive(Debug)]
pub(crate) enum NotSaved {
    /// No users file is configured.
    NoFile,
    /// The file cannot be written, or cannot represent all users.
    Failed(String),
}

/// Returns the caller of an admin's jobs: admins are logged in, and do not wait behind logins.
fn admin() -> Caller {
    Caller { source: Source::Admin, deadline: login_deadline(None) }
}

fn busy(busy: Busy) -> NotSet {
    NotSet::Other(busy.to_string())
}

impl Users {
    /// Changes or creates a user by applying rules in order. Either all rules are applied or none.
    pub(crate) async fn set(&self, name: &[u8], rules: &[&[u8]]) -> Result<(), NotSet> {
        let other = |text: &str| Err(NotSet::Other(text.to_owned()));
        if name.iter().any(|byte| *byte == 0 || byte.is_ascii_whitespace()) {
            return other("Usernames can't contain spaces or null characters");
        }
        let Ok(name) = std::str::from_utf8(name) else { return other("a name is 1 to 64 ASCII characters") };
        check_name(name).map_err(|what| NotSet::Other(what.to_owned()))?;
        loop {
            let before = self.roster().0.get(name).cloned();
            let account = before.as_ref().map_or_else(Account::new, |user| user.account.clone());
            let changed = self.changed(name, account, rules).await?;
            let user = Arc::new(User::new(name.to_owned(), changed, self.table));
            let placed = self.replace(|roster| {
                let now = roster.0.get(name);
                if now.is_none() && roster.0.len() >= USERS_MAX {
                    let text = format!("there are {USERS_MAX} users already");
                    return Err(NotPlaced::Refused(NotSet::Other(text)));
                }
                // Another command may have changed the user meanwhile.
                if now.map(Arc::as_ptr) != before.as_ref().map(Arc::as_ptr) {
                    return Err(NotPlaced::ChangedMeanwhile);
                }
                roster.0.insert(name.to_owned(), user);
                Ok(())
            });
            match placed {
                Ok(()) => return Ok(()),
                Err(NotPlaced::Refused(refused)) => return Err(refused),
                Err(NotPlaced::ChangedMeanwhile) => {}
            }
        }
    }

    async fn changed(&self, name: &str, mut account: Account, rules: &[&[u8]]) -> Result<Account, NotSet> {
        let may_need_none =
            name == DEFAULT_NAME && self.access.users.is_none() && self.access.password.is_none();
        let mut passwords = 0;
        for rule in rules {
            let wrong = |wrong: Wrong| NotSet::Rule(shown(rule), wrong.to_string());
            let Some(slow) = account.apply(rule, self.table, may_need_none).map_err(wrong)? else { continue };
            passwords += 1;
            if passwords > PASSWORDS_MAX {
                return Err(wrong(Wrong::NotHere("a command adds and takes away up to 16 passwords")));
            }
            let (Slow::AddPassword(password) | Slow::RemovePassword(password)) = slow;
            let known = self.find(name, password, &account).await?;
            match (slow, known) {
                (Slow::AddPassword(_), Some(_)) => account.needs_no_password = false,
                (Slow::AddPassword(password), None) => {
                    let salt = salt_beside(&account.secrets);
                    let salt = salt.map_err(|error| NotSet::Other(error.to_string()))?;
                    let secret = self.checker.hash(password, salt, admin()).await.map_err(busy)?;
                    account.add_secret(secret).map_err(wrong)?;
                }
                (Slow::RemovePassword(_), None) => return Err(wrong(Wrong::NoSuchPassword)),
                (Slow::RemovePassword(_), mut known) => {
                    // Several hashes may belong to the same password.
                    while let Some(index) = known {
                        account.secrets.remove(index);
                        known = self.find(name, password, &account).await?;
                    }
                }
            }
        }
        Ok(account)
    }

    /// Returns the index of the secret in an account that a password matches.
    async fn find(&self, name: &str, password: &[u8], account: &Account) -> Result<Option<usize>, NotSet> {
        self.checker.find(name.as_bytes(), password, &account.secrets, admin()).await.map_err(busy)
    }

    /// Removes users and returns their number. If `default` is among them, none is removed.
    pub(crate) fn remove<'n>(
        &self,
        names: impl Iterator<Item = &'n [u8]> + Clone,
    ) -> Result<usize, &'static str> {
        if names.clone().any(|name| name == DEFAULT_NAME.as_bytes()) {
            return Err("The 'default' user cannot be removed");
        }
        let removed = self.replace(|roster| {
            let names = names.filter_map(|name| std::str::from_utf8(name).ok());
            Ok::<_, NoRoom>(names.filter(|name| roster.0.remove(*name).is_some()).count())
        });
        Ok(removed.expect("removing users never needs more memory"))
    }

    /// Returns true if a users file is configured, which can be reloaded and saved.
    pub(crate) fn have_file(&self) -> bool {
        self.access.users.is_some()
    }

    /// Writes all users to the users file. Blocks the thread.
    pub(crate) fn save(&self) -> Result<(), NotSaved> {
        let path = self.access.users.as_ref().ok_or(NotSaved::NoFile)?;
        let _file = self.file.lock().expect("the lock is never poisoned: no code panics while holding it");
        let mut file = UserFile::default();
        for (name, user) in &self.roster().0 {
            if name == DEFAULT_NAME && self.access.password.is_some() {
                if !user.is_of_settings() {
                    let what = "the user default is that of the setting password, and was changed: take the setting away";
                    return Err(NotSaved::Failed(what.to_owned()));
                }
                continue;
            }
            // The next start must be able to read the file.
            let entry = user.account.to_entry();
            let wrong = |what: String| NotSaved::Failed(format!("user {name}: {what}"));
            entry.check().and_then(|()| Account::of_entry(&entry, self.table)).map_err(wrong)?;
            file.set(name, entry).map_err(|what| NotSaved::Failed(what.to_owned()))?;
        }
        file.write(path).map_err(|error| NotSaved::Failed(format!("{}: {error}", path.display())))
    }
}

impl User {
    /// Returns true if the user is still the one that the setting `password` creates.
    fn is_of_settings(&self) -> bool {
        let [secret] = &*self.account.secrets else { return false };
        secret.hash().is_none() && self.account == Account::all_powerful(vec![secret.clone()])
    }
}

#[cfg(test)]
#[path = "change/tests.rs"]
mod tests;
