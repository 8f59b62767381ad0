//! Changes of users over the wire: ACL SETUSER, DELUSER and SAVE. They end with the process, but for what was saved.

use std::sync::Arc;

use super::account::{Account, Slow, Wrong, shown};
use super::file::check_name;
use super::{DEFAULT_NAME, User, UserFile, Users};

/// Users that there may be for another one to be added.
const USERS_MAX: usize = 4096;

/// Passwords that one change may add or take away: each takes a few hundredths of a second.
const PASSWORDS_MAX: usize = 16;

/// Why a user was not changed.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum NotSet {
    /// This rule is wrong, as it may be shown; and why.
    Rule(String, String),
    /// Something else.
    Other(String),
}

/// Why users were not saved.
#[derive(Debug)]
pub(crate) enum NotSaved {
    /// There is no file of users.
    NoFile,
    /// It cannot be written, or not all of them can be in it.
    Failed(String),
}

impl Users {
    /// Changes a user by rules, in their order, or makes a new one. All of them are applied or none.
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
                    return Err(Some(NotSet::Other(format!("there are {USERS_MAX} users already"))));
                }
                // Somebody else may have changed the user meanwhile.
                if now.map(Arc::as_ptr) != before.as_ref().map(Arc::as_ptr) {
                    return Err(None);
                }
                roster.0.insert(name.to_owned(), user);
                Ok(())
            });
            match placed {
                Ok(()) => return Ok(()),
                Err(Some(refused)) => return Err(refused),
                Err(None) => {}
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
                    let secret = self.checker.hash(password).await;
                    let secret = secret.map_err(|error| NotSet::Other(error.to_string()))?;
                    account.add_secret(secret).map_err(wrong)?;
                }
                (Slow::RemovePassword(_), None) => return Err(wrong(Wrong::NoSuchPassword)),
                (Slow::RemovePassword(_), mut known) => {
                    // Several hashes may be of it.
                    while let Some(index) = known {
                        account.secrets.remove(index);
                        known = self.find(name, password, &account).await?;
                    }
                }
            }
        }
        Ok(account)
    }

    /// Which secret of an account a password is.
    async fn find(&self, name: &str, password: &[u8], account: &Account) -> Result<Option<usize>, NotSet> {
        let known = self.checker.find(name.as_bytes(), password, &account.secrets, || true).await;
        known.ok_or_else(|| NotSet::Other("the server stops".to_owned()))
    }

    /// Removes users; how many there were. `default` stays, and then all do.
    pub(crate) fn remove<'n>(
        &self,
        names: impl Iterator<Item = &'n [u8]> + Clone,
    ) -> Result<usize, &'static str> {
        if names.clone().any(|name| name == DEFAULT_NAME.as_bytes()) {
            return Err("The 'default' user cannot be removed");
        }
        let removed = self.replace(|roster| {
            let names = names.filter_map(|name| std::str::from_utf8(name).ok());
            let removed = names.filter(|name| roster.0.remove(*name).is_some()).count();
            if removed > 0 { Ok(removed) } else { Err(0) }
        });
        Ok(removed.unwrap_or_else(|none| none))
    }

    /// Whether there is a file of users, which can be read again and written.
    pub(crate) fn have_file(&self) -> bool {
        self.access.users.is_some()
    }

    /// Writes all users to their file. It blocks the thread.
    pub(crate) fn save(&self) -> Result<(), NotSaved> {
        let path = self.access.users.as_ref().ok_or(NotSaved::NoFile)?;
        let _file = self.file.lock().expect("nobody panics with it");
        let mut file = UserFile::default();
        for (name, user) in &self.roster().0 {
            if name == DEFAULT_NAME && self.access.password.is_some() {
                if !user.is_of_settings() {
                    let what = "the user default is that of the setting password, and was changed: take the setting away";
                    return Err(NotSaved::Failed(what.to_owned()));
                }
                continue;
            }
            // The next start reads it, and must not find that it cannot.
            let entry = user.account.to_entry();
            let wrong = |what: String| NotSaved::Failed(format!("user {name}: {what}"));
            entry.check().and_then(|()| Account::of_entry(&entry, self.table)).map_err(wrong)?;
            file.set(name, entry).map_err(|what| NotSaved::Failed(what.to_owned()))?;
        }
        file.write(path).map_err(|error| NotSaved::Failed(format!("{}: {error}", path.display())))
    }
}

impl User {
    /// Whether it is still the one that the setting `password` makes.
    fn is_of_settings(&self) -> bool {
        let [secret] = &*self.account.secrets else { return false };
        secret.hash().is_none() && self.account == Account::all_powerful(vec![secret.clone()])
    }
}

#[cfg(test)]
#[path = "change/tests.rs"]
mod tests;
