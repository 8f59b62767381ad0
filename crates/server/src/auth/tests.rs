use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::LazyLock;

use super::*;
use crate::Password;
use crate::auth::commands;

/// Name, password, rights and prefixes.
type Row<'a> = (&'a str, Option<&'a str>, &'a [Right], &'a [&'a str]);

pub(super) const HERE: Address = Address::Network(SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 1));

/// A few commands of each kind.
pub(super) fn table() -> &'static CommandTable {
    const ROWS: [(&str, Needs, u32); 9] = [
        ("get", Needs::Read, 0b0001),
        ("keys", Needs::Read, 0b1001),
        ("set", Needs::Write, 0b0010),
        ("incr", Needs::ReadWrite, 0b0010),
        ("config", Needs::Monitor, 0b1000),
        ("config|get", Needs::Monitor, 0b1000),
        ("config|set", Needs::Admin, 0b1000),
        ("ping", Needs::Login, 0b0100),
        ("flushall", Needs::Admin, 0b1010),
    ];
    static TABLE: LazyLock<CommandTable> = LazyLock::new(|| {
        let rows =
            ROWS.into_iter().map(|(name, needs, categories)| commands::Row { name, needs, categories });
        let categories = &["read", "write", "connection", "dangerous", "transaction", "pubsub", "scripting"];
        CommandTable::new(rows.collect(), categories, |name| name == b"hset")
    });
    &TABLE
}

/// Returns the row of a command in that table.
pub(super) fn row(name: &str) -> usize {
    let names = ["get", "keys", "set", "incr", "config", "config|get", "config|set", "ping", "flushall"];
    names.iter().position(|known| *known == name).unwrap()
}

pub(super) fn open(access: &Access) -> Result<Users> {
    Users::open(access, table(), 64 << 20)
}

impl Users {
    /// Returns the user if name and password are right.
    pub(super) async fn admit(&self, name: &[u8], password: &[u8], from: &Address) -> Option<Arc<User>> {
        self.log_in(name, password, from, login_deadline(None)).await.ok()
    }
}

fn at(address: [u8; 4]) -> Address {
    Address::Network(SocketAddr::new(address.into(), 1))
}

pub(super) fn with_password(text: &str) -> Access {
    Access { password: Some(Password::new(text)), ..Access::default() }
}

pub(super) fn file(users: &[Row<'_>]) -> (tempfile::TempDir, Access) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("users.toml");
    write(&path, users);
    (directory, Access { users: Some(path), ..Access::default() })
}

fn write(path: &Path, users: &[Row<'_>]) {
    let mut file = UserFile::default();
    for (name, password, rights, prefixes) in users {
        let prefixes = prefixes.iter().map(|&prefix| prefix.to_owned()).collect();
        let mut entry = UserEntry { rights: rights.to_vec(), prefixes, ..UserEntry::default() };
        if let Some(password) = password {
            entry.set_password(password).expect("there are random numbers");
        }
        file.set(name, entry).unwrap();
    }
    file.write(path).unwrap();
}

#[tokio::test]
async fn default_user_accepts_any_password_if_no_users_exist() {
    let users = open(&Access::default()).unwrap();
    assert_eq!(users.unnamed().unwrap().name(), "default");
    assert!(users.admit(b"default", b"whatever", &HERE).await.is_some());
    assert!(users.admit(b"root", b"whatever", &HERE).await.is_none());
}

#[tokio::test]
async fn a_password_of_the_settings_is_the_default_users() {
    let users = open(&with_password("open sesame")).unwrap();
    assert!(users.unnamed().is_none() && users.default_has_password());
    let user = users.admit(b"default", b"open sesame", &HERE).await.unwrap();
    assert!(user.is_admin() && user.may_write(b"any"));
    for (name, password) in [("default", "open"), ("default", ""), ("root", "open sesame")] {
        assert!(
            users.admit(name.as_bytes(), password.as_bytes(), &HERE).await.is_none(),
            "{name} {password}"
        );
    }
}

/// A password too long for a login is rejected.
#[tokio::test]
async fn passwords_have_one_length_everywhere() {
    let (longest, longer) = ("x".repeat(1024), "x".repeat(1025));
    let server = |password: &str| {
        let here = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0);
        crate::Sockets::bind(&crate::Config { access: with_password(password), ..crate::Config::resp(here) })
    };
    assert!(server(&longest).is_ok());
    let refused = server(&longer).map(drop).unwrap_err().to_string();
    assert_eq!(refused, "a password may have at most 1024 bytes");
    let mut entry = UserEntry::default();
    assert_eq!(entry.set_password(&longer).unwrap_err().to_string(), refused);
    assert_eq!(entry, UserEntry::default());
    let (_directory, access) = file(&[("ann", Some(&longest), &[Right::Read], &[])]);
    let users = open(&access).unwrap();
    assert!(users.admit(b"ann", longest.as_bytes(), &HERE).await.is_some());
}

#[tokio::test]
async fn users_of_a_file_have_rights() {
    let (_directory, access) = file(&[
        ("ann", Some("a"), &[Right::Read, Right::Write], &["app:", "tmp:"]),
        ("bob", Some("b"), &[Right::Read], &[]),
        ("robot", None, &[Right::Admin], &[]),
    ]);
    let users = open(&access).unwrap();
    assert!(users.unnamed().is_none() && !users.default_has_password());
    let ann = users.admit(b"ann", b"a", &HERE).await.unwrap();
    assert!(ann.may_read(b"app:1") && ann.may_write(b"tmp:") && !ann.may_read(b"ap") && !ann.is_admin());
    let bob = users.admit(b"bob", b"b", &HERE).await.unwrap();
    assert!(bob.may_read(b"x") && !bob.may_write(b"x"));
    assert!(bob.may_run(row("get")) && bob.may_run(row("ping")) && !bob.may_run(row("set")));
    assert!(!bob.may_run(row("incr")) && !bob.may_run(row("config|get")));
    assert!(ann.may_run(row("incr")) && ann.may_run(row("keys")) && !ann.may_run(row("flushall")));
    assert!(users.admit(b"bob", b"a", &HERE).await.is_none());
    assert!(users.admit(b"robot", b"", &HERE).await.is_none(), "a user without a password");
    assert!(users.of_certificate(["else", "robot"]).unwrap().is_admin());
    assert!(users.of_certificate(["else"]).is_none());
    // From memory now, and only for this password.
    assert!(users.admit(b"bob", b"b", &HERE).await.is_some());
    assert!(users.admit(b"bob", b"c", &HERE).await.is_none());
    assert!(users.admit(b"ann", b"b", &HERE).await.is_none());
}

#[tokio::test]
async fn guessing_ends_in_a_block_even_with_the_right_password() {
    let users = open(&with_password("right")).unwrap();
    guess(&users, "default", 10, &HERE).await;
    assert!(users.admit(b"default", b"right", &HERE).await.is_none());
    assert!(users.admit(b"default", b"right", &at([10, 1, 1, 1])).await.is_some());
}

#[tokio::test]
async fn a_reload_changes_rights_and_logs_out_whose_password_changed() {
    let (_directory, access) =
        file(&[("ann", Some("a"), &[Right::Read], &[]), ("bob", Some("b"), &[Right::Read], &[])]);
    let path = access.users.clone().unwrap();
    let users = open(&access).unwrap();
    let ann = users.admit(b"ann", b"a", &HERE).await.unwrap();
    let bob = users.admit(b"bob", b"b", &HERE).await.unwrap();
    let mut changed = UserFile::read(&path).unwrap();
    let mut entry = changed.users()["ann"].clone();
    entry.rights = vec![Right::Write];
    changed.set("ann", entry).unwrap();
    let mut entry = changed.users()["bob"].clone();
    entry.set_password("new").expect("there are random numbers");
    changed.set("bob", entry).unwrap();
    changed.write(&path).unwrap();
    users.reload().unwrap();
    assert!(ann.is_outdated() && bob.is_outdated());
    let ann = users.refresh(&ann).unwrap();
    assert!(!ann.may_run(row("get")) && ann.may_run(row("set")) && !ann.is_outdated());
    assert!(users.refresh(&bob).is_none());
    assert!(users.admit(b"bob", b"b", &HERE).await.is_none());
    assert!(users.admit(b"bob", b"new", &HERE).await.is_some());

    std::fs::write(&path, "users = 3").unwrap();
    users.reload().unwrap_err();
    assert!(!ann.is_outdated(), "a file that cannot be used changes nothing");
}

#[test]
fn users_file_with_error_is_refused_without_showing_hash() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("users.toml");
    let costly = |costs: &str| {
        let hash =
            format!("$argon2id$v=19${costs}$c29tZXNhbHRzb21l$MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE");
        format!("[users.ann]\nrights = [\"read\"]\npassword_hash = \"{hash}\"")
    };
    for (text, expected) in [
        ("[users.ann]\nrights = []", "no rights"),
        ("[users.ann]\nrights = [\"fly\"]", "fly"),
        ("[users.ann]\nrights = [\"read\"]\npassword = \"secret\"", "password_hash"),
        ("[users.ann]\nrights = [\"admin\"]\nprefixes = [\"a\"]", "every key"),
        ("[users.\"a b\"]\nrights = [\"read\"]", "without blanks"),
        ("[users.ann]\nrights = [\"read\"]\npassword_hash = \"secret\"", "PHC"),
        (&costly("m=4194304,t=2,p=1"), "m=4194304 (KiB), of at most 7168"),
        (&costly("m=7168,t=4294967295,p=1"), "t=4294967295 (passes), of at most 10"),
        (&costly("m=7168,t=11,p=1"), "t=11 (passes), of at most 10"),
        (&costly("m=7168,t=5,p=64"), "p=64 (lanes), of at most 4"),
        ("[users.ann]\nrights = [\"read\"]\npassword_hash = \"$argon2id$v=19$m=7168,t=5,p=1\"", "PHC"),
        ("[users.ann]\npassword_hash = 'secret'\nrights = ", "line 3: "),
        ("[users.ann]\nrights = [\"read\"]\n[users.bob]\nrights = []", "line 3: user bob: "),
        ("[users.ann]\nrights = [\"read\"]\nkeys = [\"~a*\"]", "go with commands"),
        ("[users.ann]\nrights = [\"read\"]\ncommands = \"+get\"", "take the place of rights"),
        ("[users.ann]\nprefixes = [\"a\"]\ncommands = \"+get\"", "take the place of rights"),
        ("[users.ann]\ncommands = \"+get\"\nkeys = [\"a*\"]", "keys: a*: Syntax error"),
        ("[users.ann]\ncommands = \"+get\"\nchannels = [\"&a\"]", "channels: &a: a pattern is a prefix"),
        ("[users.ann]\ncommands = \"+get\"\nmore_password_hashes = [\"secret\"]", "PHC"),
    ] {
        std::fs::write(&path, text).unwrap();
        let error = UserFile::read(&path).unwrap_err().to_string();
        assert!(error.contains(expected) && error.contains("users.toml"), "{text}: {error}");
        assert!(!error.contains("secret") && !error.contains("$argon"), "{error}");
    }
}

#[test]
fn the_file_is_for_its_owner() {
    use std::os::unix::fs::PermissionsExt;
    let (_directory, access) = file(&[("ann", Some("a"), &[Right::Read], &[])]);
    let path = access.users.unwrap();
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    assert!(!std::fs::read_to_string(&path).unwrap().contains("\"a\""));
}

#[test]
fn debug_output_of_users_shows_no_secret() {
    let users = open(&with_password("open sesame")).unwrap();
    let access = with_password("open sesame");
    for shown in [format!("{users:?}"), format!("{access:?}")] {
        assert!(!shown.contains("sesame"), "{shown}");
    }
}

/// Tries `times` distinct wrong passwords.
async fn guess(users: &Users, name: &str, times: usize, from: &Address) {
    for turn in 0..times {
        let wrong = format!("guess {turn}");
        assert!(users.admit(name.as_bytes(), wrong.as_bytes(), from).await.is_none(), "{wrong}");
    }
}

#[tokio::test]
async fn the_same_wrong_password_again_and_again_locks_nobody_out() {
    let users = open(&with_password("right")).unwrap();
    for _ in 0..50 {
        assert!(users.admit(b"default", b"out of date", &HERE).await.is_none());
    }
    assert!(users.admit(b"default", b"right", &HERE).await.is_some());
}

#[tokio::test]
async fn guessing_at_one_user_locks_no_other_out_at_the_same_address() {
    let (_directory, access) =
        file(&[("ann", Some("a"), &[Right::Read], &[]), ("bob", Some("b"), &[Right::Read], &[])]);
    let users = open(&access).unwrap();
    guess(&users, "ann", 10, &HERE).await;
    assert!(users.admit(b"ann", b"a", &HERE).await.is_none(), "guessing goes on at full speed");
    assert!(users.admit(b"bob", b"b", &HERE).await.is_some());
}

#[tokio::test]
async fn however_many_addresses_guess_another_one_gets_in() {
    let users = open(&with_password("right")).unwrap();
    for n in 0..6000_u32 {
        guess(&users, "default", 2, &at((0x0a00_0000 + n).to_be_bytes())).await;
    }
    assert!(users.admit(b"default", b"right", &at([192, 0, 2, 1])).await.is_some());
}

/// Processes that may read the file, such as a service with another user than the one that changes it, can do so after a change.
#[test]
fn the_file_keeps_its_owner_and_its_mode() {
    use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
    let (directory, access) = file(&[("ann", Some("a"), &[Right::Read], &[])]);
    let path = access.users.unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o640)).unwrap();
    // Only root can change the owner; other users can only test that the mode is kept.
    let may_give_away = chown(&path, Some(4321), Some(1234)).is_ok();
    let shown = |path: &Path| {
        let found = std::fs::metadata(path).unwrap();
        (found.uid(), found.gid(), found.mode() & 0o7777)
    };
    let before = shown(&path);
    let mut changed = UserFile::read(&path).unwrap();
    assert!(changed.remove("ann"));
    changed.write(&path).unwrap();
    assert_eq!(shown(&path), before);
    assert!(UserFile::read(&path).unwrap().users().is_empty());

    // A symbolic link stays, and its target is changed.
    let link = directory.path().join("link.toml");
    symlink(&path, &link).unwrap();
    changed.set("bob", UserEntry { rights: vec![Right::Read], ..UserEntry::default() }).unwrap();
    changed.write(&link).unwrap();
    assert!(std::fs::symlink_metadata(&link).unwrap().is_symlink());
    assert!(UserFile::read(&path).unwrap().users().contains_key("bob"));
    assert_eq!(shown(&path), before);

    // A new file belongs to the owner of the directory, whose service will read it.
    if may_give_away {
        let new = directory.path().join("new.toml");
        chown(directory.path(), Some(4321), Some(1234)).unwrap();
        changed.write(&new).unwrap();
        assert_eq!(shown(&new), (4321, 1234, 0o600));
    }
    assert_eq!(
        std::fs::read_dir(directory.path())
            .unwrap()
            .filter(|e| {
                let name = e.as_ref().unwrap().file_name().into_string().unwrap();
                !["users.toml", "link.toml", "new.toml"].contains(&name.as_str())
            })
            .count(),
        0,
        "something was left beside it"
    );
}
