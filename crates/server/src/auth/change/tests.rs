use super::*;
use crate::Right;
use crate::auth::tests::{HERE, file, open, row, with_password};
use crate::auth::{Access, NoRoom, UserFile, password};

async fn set(users: &Users, name: &str, rules: &str) -> Result<(), NotSet> {
    let rules: Vec<_> = rules.split(' ').map(str::as_bytes).collect();
    users.set(name.as_bytes(), &rules).await
}

fn user(users: &Users, name: &str) -> Arc<User> {
    users.all().into_iter().find(|user| user.name() == name).expect("there is such a user")
}

/// Returns keys, channels and commands as rules.
fn shown(user: &User) -> String {
    let keys =
        user.shown_keys().chain(user.shown_channels()).map(|text| String::from_utf8(text).unwrap() + " ");
    keys.collect::<String>() + &user.shown_commands()
}

#[tokio::test]
async fn rules_do_what_they_do_in_redis() {
    let users = open(&Access::default()).unwrap();
    for (rules, expected) in [
        ("reset", "-@all"),
        ("reset +get", "-@all +get"),
        ("reset +GET -get +set", "-@all -get +set"),
        ("reset +@READ -keys", "-@all +@read -keys"),
        ("reset +@read -keys +@read", "-@all -keys +@read"),
        ("reset +@all -@dangerous", "+@all -@dangerous"),
        ("reset +get allcommands", "+@all"),
        ("reset +@all nocommands", "-@all"),
        ("reset +config|get +config", "-@all +config"),
        ("reset +config -config|set", "-@all +config -config|set"),
        ("reset +hset +hset|x", "-@all"),
        ("reset ~a* %R~b* &c* +get", "~a* %R~b* &c* -@all +get"),
        ("reset ~a* allkeys &a* allchannels", "~* &* -@all"),
        ("reset ~* &* resetkeys resetchannels ~b* &b*", "~b* &b* -@all"),
        ("reset %R~a* %W~a* sanitize-payload clearselectors ", "~a* -@all"),
    ] {
        set(&users, "ann", rules).await.unwrap();
        assert_eq!(shown(&user(&users, "ann")), expected, "{rules}");
    }
    set(&users, "ann", "reset +@read -keys ~a*").await.unwrap();
    let ann = user(&users, "ann");
    assert!(ann.may_run(row("get")) && !ann.may_run(row("keys")) && !ann.may_run(row("ping")));
    assert!(!ann.may_run(row("set")) && !ann.is_admin());
    set(&users, "ann", "+config -config|set").await.unwrap();
    let ann = user(&users, "ann");
    assert!(ann.may_run(row("config")) && ann.may_run(row("config|get")) && !ann.may_run(row("config|set")));
    for (rules, admin) in [
        ("~* +@all", true),
        ("resetkeys ~a*", false),
        ("resetkeys %R~*", false),
        ("~*", true),
        ("-flushall", false),
        ("+flushall", true),
        ("databases=3", false),
    ] {
        set(&users, "ann", rules).await.unwrap();
        assert_eq!(user(&users, "ann").is_admin(), admin, "{rules}");
    }
    assert!(user(&users, "ann").may_use(3) && !user(&users, "ann").may_use(0));
    set(&users, "ann", "databases=*").await.unwrap();
    assert!(user(&users, "ann").may_use(0));
}

#[tokio::test]
async fn acl_rule_that_is_invalid_is_named_and_changes_nothing() {
    let users = open(&Access::default()).unwrap();
    set(&users, "ann", "~a* +get").await.unwrap();
    let sha = "#9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08";
    for (rule, what) in [
        ("foo", "Syntax error"),
        ("+foo", "Unknown command or category name in ACL"),
        ("+", "Unknown command or category name in ACL"),
        ("-@foo", "Unknown command or category name in ACL"),
        ("+@", "Unknown command or category name in ACL"),
        ("+config|foo", "Unknown command or category name in ACL"),
        ("+config|get|x", "first argument"),
        ("+get|x", "first argument"),
        ("~b", "a prefix with * behind it"),
        ("~b*c*", "a prefix with * behind it"),
        ("&b?*", "a prefix with * behind it"),
        ("%X~b*", "Syntax error"),
        ("(~b*)", "no selectors"),
        ("skip-sanitize-payload", "always checked"),
        ("nopass", "only the user default"),
        ("databases=16", "0 to 15"),
        ("databases=", "0 to 15"),
        (sha, "SHA-256 is not kept"),
        (
            "#$argon2id$v=19$m=7168,t=4294967295,p=1$c29tZXNhbHRzb21l$MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE",
            "t=4294967295 (passes), of at most 10",
        ),
        ("!abc", "Argon2"),
        ("<secret", "does not exist"),
        (">", "an empty password"),
    ] {
        let refused = set(&users, "ann", &format!("on ~more* &more* +set {rule} +@all")).await;
        let Err(NotSet::Rule(named, why)) = refused else { panic!("{rule}: {refused:?}") };
        let is_secret = ["#", "!", "<", ">"].iter().any(|sign| rule.starts_with(sign));
        assert_eq!(named, if is_secret { format!("{}(redacted)", &rule[..1]) } else { rule.to_owned() });
        assert!(why.contains(what), "{rule}: {why}");
    }
    for (rules, named) in [("~* ~b*", "~b*"), ("allkeys %R~b*", "%R~b*"), ("&* &b*", "&b*")] {
        let Err(NotSet::Rule(rule, why)) = set(&users, "ann", rules).await else { panic!("{rules}") };
        assert!(rule == named && why.starts_with("Adding a pattern after the * pattern"), "{rule}: {why}");
    }
    assert_eq!(shown(&user(&users, "ann")), "~a* -@all +get");
    assert!(user(&users, "ann").is_off());
    for name in ["", "a b", "a\0", "ü", &"x".repeat(65)] {
        assert!(matches!(users.set(name.as_bytes(), &[b"on"]).await, Err(NotSet::Other(_))), "{name}");
    }
    assert_eq!(users.all().len(), 2);
}

#[tokio::test]
async fn users_have_bounded_patterns_passwords_and_count() {
    let users = open(&Access::default()).unwrap();
    let patterns: String = (0..200).map(|n| format!("~{n}{}* ", "x".repeat(99))).collect();
    let Err(NotSet::Rule(_, why)) = set(&users, "ann", patterns.trim()).await else { panic!("no bound") };
    assert!(why.contains("16 KiB"), "{why}");
    let Err(NotSet::Rule(rule, why)) = set(&users, "ann", ">a >b >c >d >e").await else { panic!("no bound") };
    assert!(rule == ">(redacted)" && why.contains("up to 4 passwords"), "{why}");
    let again = ">a resetpass ".repeat(17);
    let Err(NotSet::Rule(_, why)) = set(&users, "ann", again.trim()).await else { panic!("no bound") };
    assert!(why.contains("up to 16 passwords"), "{why}");
    let Err(NotSet::Rule(_, why)) = set(&users, "ann", &format!(">{}", "x".repeat(1025))).await else {
        panic!("no bound")
    };
    assert!(why.contains("1024 bytes"), "{why}");
    for number in 1..USERS_MAX {
        set(&users, &format!("u{number}"), "on").await.unwrap();
    }
    assert!(matches!(set(&users, "one-more", "on").await, Err(NotSet::Other(_))));
    set(&users, "u1", "off").await.unwrap();
    assert_eq!(users.remove([&b"u1"[..]].into_iter()), Ok(1));
    set(&users, "one-more", "on").await.unwrap();
}

#[tokio::test]
async fn passwords_come_and_go_and_who_loses_one_must_go() {
    let users = open(&Access::default()).unwrap();
    let may = async |password: &str| users.admit(b"ann", password.as_bytes(), &HERE).await.is_some();
    set(&users, "ann", ">one").await.unwrap();
    assert!(!may("one").await, "it is off");
    set(&users, "ann", "on >two >one").await.unwrap();
    assert!(may("one").await && may("two").await && !may("three").await);
    assert_eq!(user(&users, "ann").account.secrets.len(), 2);
    let ann = users.admit(b"ann", b"one", &HERE).await.unwrap();
    set(&users, "ann", ">three +get").await.unwrap();
    assert!(ann.is_outdated());
    let ann = users.refresh(&ann).expect("no password was lost");
    assert!(ann.may_run(row("get")));
    set(&users, "ann", "<one").await.unwrap();
    assert!(users.refresh(&ann).is_none() && !may("one").await && may("two").await);
    let hash = user(&users, "ann").account.secrets[0].hash().unwrap().to_owned();
    set(&users, "bob", &format!("on #{hash}")).await.unwrap();
    assert!(users.admit(b"bob", b"two", &HERE).await.is_some());
    set(&users, "bob", &format!("!{hash}")).await.unwrap();
    assert!(users.admit(b"bob", b"two", &HERE).await.is_none());
    let ann = user(&users, "ann");
    set(&users, "ann", "off").await.unwrap();
    assert!(users.refresh(&ann).is_some() && !may("two").await, "who is there stays, as in Redis");
    set(&users, "ann", "on resetpass").await.unwrap();
    assert!(!may("two").await && users.of_certificate(["ann"]).is_some());
    set(&users, "ann", "off").await.unwrap();
    assert!(users.of_certificate(["ann"]).is_none());
}

/// Each hash has its own salt, so one password may be present several times.
#[tokio::test]
async fn a_password_that_is_taken_away_is_right_by_none_of_its_hashes() {
    let users = open(&Access::default()).unwrap();
    let hash = || password::hash(b"one").unwrap();
    set(&users, "ann", &format!("on #{} >two #{} #{}", hash(), hash(), hash())).await.unwrap();
    assert!(users.admit(b"ann", b"one", &HERE).await.is_some());
    set(&users, "ann", "<one").await.unwrap();
    assert!(users.admit(b"ann", b"one", &HERE).await.is_none());
    assert!(users.admit(b"ann", b"two", &HERE).await.is_some());
    assert!(matches!(set(&users, "ann", "<one").await, Err(NotSet::Rule(..))));
}

#[tokio::test]
async fn the_default_user_can_be_closed_and_opened_again() {
    let users = open(&Access::default()).unwrap();
    let default = users.unnamed().unwrap();
    set(&users, "default", ">secret").await.unwrap();
    assert!(users.unnamed().is_none() && users.default_has_password());
    assert!(users.refresh(&default).is_some_and(|default| default.is_admin()), "who is there stays");
    assert!(users.admit(b"default", b"other", &HERE).await.is_none());
    assert!(users.admit(b"default", b"secret", &HERE).await.is_some());
    set(&users, "default", "nopass").await.unwrap();
    assert!(users.unnamed().is_some() && users.admit(b"default", b"any", &HERE).await.is_some());
    set(&users, "default", "off").await.unwrap();
    assert!(users.unnamed().is_none() && users.admit(b"default", b"any", &HERE).await.is_none());
    users.reload().unwrap();
    assert!(users.unnamed().is_none(), "there is no file that could say otherwise");
    assert!(users.remove([&b"ann"[..], b"default"].into_iter()).is_err());
    assert!(matches!(users.save(), Err(NotSaved::NoFile)));
    // A server with passwords keeps them.
    let users = open(&with_password("x")).unwrap();
    assert!(matches!(set(&users, "default", "nopass").await, Err(NotSet::Rule(..))));
}

#[tokio::test]
async fn users_file_saved_and_reloaded_keeps_all_accounts() {
    let (_directory, access) = file(&[
        ("ann", Some("a"), &[Right::Read, Right::Write], &["app:", "*"]),
        ("root", None, &[Right::Admin], &[]),
    ]);
    let path = access.users.clone().unwrap();
    let users = open(&access).unwrap();
    let before = UserFile::read(&path).unwrap();
    set(&users, "bob", "on >b >c ~b\\**  %R~c:* &d* +@all -@dangerous +config|get databases=1,2")
        .await
        .unwrap();
    set(&users, "off", "reset").await.unwrap();
    set(&users, "ann", ">more databases=3").await.unwrap();
    let all = |users: &Users| -> Vec<_> { users.all().iter().map(|user| user.account.clone()).collect() };
    let made = all(&users);
    users.save().unwrap();
    let text = std::fs::read_to_string(&path).unwrap();
    assert!(
        !text.contains("\"b\"") && text.contains("commands = \"+@all -@dangerous +config|get\""),
        "{text}"
    );
    let saved = UserFile::read(&path).unwrap();
    assert_eq!(saved.users()["root"], before.users()["root"]);
    assert_eq!(
        saved.users()["ann"].rights,
        before.users()["ann"].rights,
        "nothing was said of what it may do"
    );
    assert_eq!(all(&open(&access).unwrap()), made);
    set(&users, "ann", "-keys ~more*").await.unwrap();
    let ann = user(&users, "ann");
    assert!(ann.may_run(row("get")) && ann.may_run(row("incr")) && ann.may_run(row("ping")));
    assert!(!ann.may_run(row("keys")) && !ann.may_run(row("flushall")) && !ann.may_run(row("config|get")));
    assert!(ann.may_read(b"app:") && ann.may_write(b"more") && !ann.may_read(b"x") && ann.may_hear(b"*"));
    assert!(!ann.may_hear(b"more"));
    users.reload().unwrap();
    assert_eq!(all(&users), made, "what was not saved is gone");
    std::fs::write(&path, "[users.ann]\ncommands = \"+get -foo\"").unwrap();
    let error = users.reload().unwrap_err().to_string();
    assert!(error.contains("users.toml: line 1: user ann: commands: -foo: Unknown command"), "{error}");
    assert_eq!(all(&users), made);
    // A process killed while writing leaves this file.
    std::fs::write(format!("{}.{}", path.display(), std::process::id()), "half").unwrap();
    users.save().unwrap();
    assert_eq!(UserFile::read(&path).unwrap(), saved);
    std::fs::remove_dir_all(path.parent().unwrap()).unwrap();
    assert!(matches!(users.save(), Err(NotSaved::Failed(_))));
}

#[tokio::test]
async fn rights_that_became_rules_are_saved_so_that_they_are_read() {
    let (_directory, access) = file(&[
        ("ann", Some("a"), &[Right::Read, Right::Write], &["my app:", "tab\t", "*"]),
        ("root", Some("r"), &[Right::Admin], &[]),
    ]);
    let users = open(&access).unwrap();
    set(&users, "ann", "-keys").await.unwrap();
    set(&users, "root", "databases=0,2").await.unwrap();
    let all = |users: &Users| -> Vec<_> { users.all().iter().map(|user| user.account.clone()).collect() };
    let made = all(&users);
    users.save().unwrap();
    users.reload().unwrap();
    assert_eq!(all(&users), made);
    let (ann, root) = (user(&users, "ann"), user(&users, "root"));
    assert!(ann.may_read(b"my app:1") && ann.may_write(b"tab\t1") && !ann.may_read(b"my"));
    assert!(root.may_run(row("flushall")) && root.may_use(2) && !root.may_use(1) && !root.is_admin());
    set(&users, "root", "databases=*").await.unwrap();
    assert!(user(&users, "root").is_admin());
}

/// For channels, only the permitted commands decide between subscribing and publishing, before a save and after it.
#[tokio::test]
async fn channels_of_converted_rights_follow_allowed_commands() {
    let (_directory, access) = file(&[
        ("bob", Some("b"), &[Right::Read], &["app:"]),
        ("eve", Some("e"), &[Right::Write], &["app:"]),
        ("sys", Some("s"), &[Right::Monitor], &["app:"]),
    ]);
    let users = open(&access).unwrap();
    assert!(!user(&users, "bob").may_publish(b"app:1") && !user(&users, "eve").may_hear(b"app:1"));
    for (name, rule) in [("bob", "+set"), ("eve", "+get"), ("sys", "+get")] {
        set(&users, name, rule).await.unwrap();
    }
    for _ in 0..2 {
        for (name, reaches) in [("bob", true), ("eve", true), ("sys", false)] {
            let user = user(&users, name);
            let may = [user.may_publish(b"app:1"), user.may_hear(b"app:1")];
            assert_eq!(may, [reaches; 2], "{name}: {}", shown(&user));
            assert!(!user.may_publish(b"other") && !user.may_hear(b"other"));
        }
        users.save().unwrap();
        users.reload().unwrap();
    }
}

#[tokio::test]
async fn users_refused_by_next_start_are_not_saved() {
    let (_directory, access) = file(&[("root", Some("r"), &[Right::Admin], &[])]);
    let path = access.users.clone().unwrap();
    let users = open(&access).unwrap();
    // No rule creates such a user any more.
    let mut account = user(&users, "root").account.clone();
    account.databases = vec![0];
    let wrong = Arc::new(User::new("root".to_owned(), account, users.table));
    let placed = users.replace(|roster| {
        roster.0.insert("root".to_owned(), wrong);
        Ok::<_, NoRoom>(())
    });
    placed.unwrap();
    let before = std::fs::read_to_string(&path).unwrap();
    let Err(NotSaved::Failed(what)) = users.save() else { panic!("it was saved") };
    assert_eq!(what, "user root: an admin uses every database; take away admin or the databases");
    assert_eq!(std::fs::read_to_string(&path).unwrap(), before);
}

#[tokio::test]
async fn a_default_user_of_the_settings_is_not_saved() {
    let (_directory, access) = file(&[("ann", Some("a"), &[Right::Read], &[])]);
    let access = Access { users: access.users, ..with_password("x") };
    let users = open(&access).unwrap();
    users.save().unwrap();
    assert_eq!(UserFile::read(access.users.as_ref().unwrap()).unwrap().users().len(), 1);
    set(&users, "default", "-keys").await.unwrap();
    let Err(NotSaved::Failed(what)) = users.save() else { panic!("it was saved, or forgotten") };
    assert!(what.contains("the setting password"), "{what}");
    users.reload().unwrap();
    users.save().unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn changes_at_the_same_time_are_all_made() {
    let users = Arc::new(open(&Access::default()).unwrap());
    let mut changes = tokio::task::JoinSet::new();
    for prefix in 0..8 {
        for name in ["ann", "bob"] {
            let users = users.clone();
            changes.spawn(async move {
                let rules = [format!("~{prefix}*"), format!(">{}", prefix % 2)];
                let rules: Vec<_> = rules.iter().map(String::as_bytes).collect();
                users.set(name.as_bytes(), &rules).await.unwrap();
            });
        }
    }
    changes.join_all().await;
    for name in ["ann", "bob"] {
        let user = user(&users, name);
        assert!((0..8).all(|prefix| user.may_read(prefix.to_string().as_bytes())), "{}", shown(&user));
        assert_eq!(user.account.secrets.len(), 2);
    }
}

/// Users are paid from the memory for clients, and all users that fit can be listed.
#[tokio::test]
async fn users_beyond_memory_limit_are_refused_until_room_is_made() {
    let users = Users::open(&Access::default(), crate::auth::tests::table(), 1 << 20).unwrap();
    let pattern = "k".repeat(7000);
    let rules = format!("~{pattern}* &{pattern}* +@all -get");
    let mut refused = None;
    for at in 0..100 {
        if let Err(why) = set(&users, &format!("u{at}"), &rules).await {
            refused = Some((at, why));
            break;
        }
    }
    let (made, why) = refused.expect("users take no more than their part");
    assert!((2..10).contains(&made), "{made} users of 28 KB in 128 KiB");
    let NotSet::NoRoom(no_room) = why else { panic!("{why:?}") };
    let text = no_room.to_string();
    assert!(text.contains("may take 131072 (an eighth of client-memory)"), "{text}");
    // A change that needs no more memory than before is accepted.
    set(&users, "u0", "resetkeys resetchannels").await.unwrap();
    set(&users, "small", "on +get ~a*").await.unwrap();
    assert_eq!(users.remove([&b"u1"[..], b"nobody"].into_iter()), Ok(1));
    set(&users, "again", &rules).await.unwrap();
}

/// The memory is taken from that of clients, and returned to it.
#[tokio::test]
async fn users_hold_memory_of_clients() {
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
    let users = Users::open(&Access::default(), crate::auth::tests::table(), 1 << 20).unwrap();
    let (held, has_room) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(true)));
    let (by, if_any) = (held.clone(), has_room.clone());
    users.hold_by(Box::new(move |bytes| {
        let may = if_any.load(Ordering::Relaxed);
        if may {
            by.store(bytes, Ordering::Relaxed);
        }
        may
    }));
    let alone = held.load(Ordering::Relaxed);
    assert!(alone > 0, "there is a default user");
    set(&users, "ann", "on +get ~a*").await.unwrap();
    let both = held.load(Ordering::Relaxed);
    assert!(both > alone);
    has_room.store(false, Ordering::Relaxed);
    let refused = set(&users, "bob", "on +get ~a*").await;
    assert!(matches!(refused, Err(NotSet::NoRoom(NoRoom::UsedUp { .. }))), "{refused:?}");
    assert_eq!((users.all().len(), held.load(Ordering::Relaxed)), (2, both));
    has_room.store(true, Ordering::Relaxed);
    users.remove([&b"ann"[..]].into_iter()).unwrap();
    assert_eq!(held.load(Ordering::Relaxed), alone);
}
