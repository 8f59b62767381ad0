//! What a reading of the users changed, for the log: who came, who went, whose rights or password are others. Hashes and
//! passwords are never told.

use super::{Roster, User};

/// Writes it to the log, if there is anything.
pub(super) fn log(old: &Roster, fresh: &Roster) {
    let [added, removed, changed] = between(old, fresh);
    if !(added.is_empty() && removed.is_empty() && changed.is_empty()) {
        tracing::info!(target: crate::AUDIT, ?added, ?removed, ?changed, "users were read again");
    }
}

/// Names of users that were added, removed and changed.
fn between<'a>(old: &'a Roster, fresh: &'a Roster) -> [Vec<&'a str>; 3] {
    let names = |of: &'a Roster, chosen: &dyn Fn(&User) -> bool| -> Vec<&'a str> {
        of.named.values().filter(|user| chosen(user)).map(|user| user.name()).collect()
    };
    let is_other = |user: &User| old.named.get(user.name()).is_some_and(|before| !is_same(before, user));
    [
        names(fresh, &|user| !old.named.contains_key(user.name())),
        names(old, &|user| !fresh.named.contains_key(user.name())),
        names(fresh, &is_other),
    ]
}

fn is_same(one: &User, other: &User) -> bool {
    let reach = |user: &User| (user.prefixes.clone(), user.databases.clone());
    one.rights == other.rights && reach(one) == reach(other) && one.secret == other.secret
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::auth::Right;

    #[test]
    fn users_that_came_went_and_changed_are_told_apart() {
        let user = |name: &str, rights: &[Right]| {
            let user = User { name: name.to_owned(), rights: rights.to_vec(), ..User::all_powerful(None) };
            (name.to_owned(), Arc::new(user))
        };
        let roster =
            |users: Vec<(String, Arc<User>)>| Roster { everyone: None, named: users.into_iter().collect() };
        let old = roster(vec![user("ann", &[Right::Read]), user("bob", &[Right::Read]), user("cid", &[])]);
        let fresh =
            roster(vec![user("ann", &[Right::Read]), user("bob", &[Right::Monitor]), user("dan", &[])]);
        assert_eq!(between(&old, &fresh), [vec!["dan"], vec!["cid"], vec!["bob"]]);
        assert_eq!(between(&old, &old), [vec![""; 0], vec![], vec![]]);
    }
}
