//! Logs the differences after a reload of the users file: users added, removed, and changed in rights or password. Hashes and
//! passwords are never logged.

use super::{Roster, User};

/// Logs the differences, if there are any.
pub(super) fn log(old: &Roster, fresh: &Roster) {
    let [added, removed, changed] = between(old, fresh);
    if !(added.is_empty() && removed.is_empty() && changed.is_empty()) {
        tracing::info!(target: crate::AUDIT, ?added, ?removed, ?changed, "users reloaded");
    }
}

/// Returns the names of users that were added, removed and changed.
fn between<'a>(old: &'a Roster, fresh: &'a Roster) -> [Vec<&'a str>; 3] {
    let names = |of: &'a Roster, chosen: &dyn Fn(&User) -> bool| -> Vec<&'a str> {
        of.0.values().filter(|user| chosen(user)).map(|user| user.name()).collect()
    };
    let is_other = |user: &User| old.0.get(user.name()).is_some_and(|before| before.account != user.account);
    [
        names(fresh, &|user| !old.0.contains_key(user.name())),
        names(old, &|user| !fresh.0.contains_key(user.name())),
        names(fresh, &is_other),
    ]
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::auth::account::Account;
    use crate::auth::tests::table;
    use crate::auth::{Right, UserEntry};

    #[test]
    fn users_that_came_went_and_changed_are_told_apart() {
        let user = |name: &str, rights: &[Right]| {
            let entry = UserEntry { rights: rights.to_vec(), ..UserEntry::default() };
            let account = Account::of_entry(&entry, table()).unwrap();
            (name.to_owned(), Arc::new(User::new(name.to_owned(), account, table())))
        };
        let roster = |users: Vec<(String, Arc<User>)>| Roster(users.into_iter().collect());
        let old = roster(vec![user("ann", &[Right::Read]), user("bob", &[Right::Read]), user("cid", &[])]);
        let fresh =
            roster(vec![user("ann", &[Right::Read]), user("bob", &[Right::Monitor]), user("dan", &[])]);
        assert_eq!(between(&old, &fresh), [vec!["dan"], vec!["cid"], vec!["bob"]]);
        assert_eq!(between(&old, &old), [vec![""; 0], vec![], vec![]]);
    }
}
