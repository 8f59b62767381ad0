//! Who a connection is, and what it may do.
//!
//! A connection's session holds the user it speaks for, or none before it has said who it is. What a command needs is
//! decided in one place, `resp::command::plan`; what a user has is decided here.

use std::net::IpAddr;
use std::sync::Arc;

/// Someone with rights.
#[derive(Debug)]
pub(crate) struct User {
    name: String,
}

impl User {
    /// The name, as `ACL WHOAMI` tells it.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Whether there is any key that the user may read: the right to run commands that read.
    pub(crate) fn reads(&self) -> bool {
        true
    }

    /// Whether there is any key that the user may write.
    pub(crate) fn writes(&self) -> bool {
        true
    }

    /// Whether the user may read this key.
    pub(crate) fn may_read(&self, _key: &[u8]) -> bool {
        self.reads()
    }

    /// Whether the user may write this key.
    pub(crate) fn may_write(&self, _key: &[u8]) -> bool {
        self.writes()
    }

    /// Whether the user may see and change the server itself, and reach keys that a command does not name.
    pub(crate) fn is_admin(&self) -> bool {
        true
    }
}

/// All users of a server.
#[derive(Debug)]
pub(crate) struct Users {
    /// Who everybody is while no users are configured.
    everyone: Arc<User>,
}

impl Users {
    /// No users are configured: whoever connects may do everything.
    pub(crate) fn open() -> Users {
        Users { everyone: Arc::new(User { name: "default".to_owned() }) }
    }

    /// Who a connection speaks for before it has said anything; `None` if it must log in first.
    pub(crate) fn unnamed(&self) -> Option<Arc<User>> {
        Some(self.everyone.clone())
    }

    /// Whether the user named `default` has a password, which is what a lone password is checked against.
    pub(crate) fn default_has_password(&self) -> bool {
        false
    }

    /// The user, if name and password are right. It may take long, and does not block the thread.
    pub(crate) async fn log_in(&self, name: &[u8], _password: &[u8], _from: IpAddr) -> Option<Arc<User>> {
        (name == self.everyone.name.as_bytes()).then(|| self.everyone.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn without_users_everybody_is_the_default_user_with_any_password() {
        let users = Users::open();
        assert_eq!(users.unnamed().unwrap().name(), "default");
        let from = IpAddr::from([127, 0, 0, 1]);
        assert!(users.log_in(b"default", b"whatever", from).await.is_some());
        assert!(users.log_in(b"root", b"whatever", from).await.is_none());
    }
}
