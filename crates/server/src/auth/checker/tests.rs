//! Argon2 evaluations: their number per login, and their order.

use std::net::SocketAddr;
use std::sync::mpsc;

use super::*;
use crate::Right;
use crate::auth::tests::{HERE, file, open, with_password};
use crate::auth::{LoginRefused, Users, login_deadline};
use crate::base::address::Address;

fn address(address: [u8; 4]) -> Address {
    Address::Network(SocketAddr::new(address.into(), 1))
}

async fn set(users: &Users, name: &str, rules: &str) {
    let rules: Vec<_> = rules.split(' ').map(str::as_bytes).collect();
    users.set(name.as_bytes(), &rules).await.expect("the rules are right");
}

/// Returns the number of evaluations of a refused login.
async fn refused(users: &Users, name: &str, password: &str) -> u64 {
    let before = users.checker.evaluated();
    assert!(users.admit(name.as_bytes(), password.as_bytes(), &HERE).await.is_none(), "{name}");
    users.checker.evaluated() - before
}

/// Blocks the evaluation thread until the sender is dropped.
async fn hold(users: &Arc<Users>) -> mpsc::Sender<()> {
    let (release, held) = mpsc::channel::<()>();
    let (begun, mut has_begun) = tokio::sync::mpsc::unbounded_channel();
    let users = users.clone();
    tokio::spawn(async move {
        let job = move || {
            begun.send(()).expect("the test waits");
            let _ = held.recv();
        };
        let _ = users.checker.pool.run(Source::LocalUser(99), login_deadline(None), job).await;
    });
    has_begun.recv().await.expect("the job begins");
    release
}

type Login = tokio::task::JoinHandle<std::result::Result<(), LoginRefused>>;

/// Starts a login, which is queued when this returns.
async fn begin(users: &Arc<Users>, name: &str, password: &str, from: [u8; 4]) -> Login {
    let (users, name, password) = (users.clone(), name.to_owned(), password.to_owned());
    let login = tokio::spawn(async move {
        let deadline = login_deadline(None);
        users.log_in(name.as_bytes(), password.as_bytes(), &address(from), deadline).await.map(drop)
    });
    tokio::task::yield_now().await;
    login
}

#[tokio::test]
async fn refused_logins_take_as_many_evaluations_for_every_user() {
    let (_directory, access) =
        file(&[("one", Some("a"), &[Right::Read], &[]), ("certificate", None, &[Right::Read], &[])]);
    let users = open(&access).unwrap();
    set(&users, "four", "on >a >b >c >d").await;
    set(&users, "off", "off >a").await;
    for (turn, name) in ["one", "four", "off", "certificate", "nobody", "default"].into_iter().enumerate() {
        assert_eq!(refused(&users, name, &format!("wrong {turn}")).await, 1, "{name}");
    }
    // Hashes made elsewhere have their own salts.
    let [first, second, third] = [b"x", b"y", b"z"].map(|password| hash(password).unwrap());
    set(&users, "salts", &format!("on #{first} #{second} #{third}")).await;
    for (turn, name) in ["one", "four", "off", "certificate", "nobody", "salts"].into_iter().enumerate() {
        assert_eq!(refused(&users, name, &format!("wrong again {turn}")).await, 3, "{name}");
    }
    for (name, password) in [("four", "d"), ("four", "a"), ("salts", "z"), ("salts", "x"), ("one", "a")] {
        assert!(
            users.admit(name.as_bytes(), password.as_bytes(), &HERE).await.is_some(),
            "{name} {password}"
        );
    }
}

/// A server with only `requirepass` has no hashes, so the time of a login does not depend on the user.
#[tokio::test]
async fn a_server_without_hashes_makes_no_evaluation() {
    let users = open(&with_password("right")).unwrap();
    assert_eq!(refused(&users, "default", "wrong").await + refused(&users, "nobody", "wrong").await, 0);
    let (_directory, mut access) = file(&[("one", Some("a"), &[Right::Read], &[])]);
    access.password = with_password("right").password;
    let users = open(&access).unwrap();
    for name in ["default", "nobody", "one"] {
        assert_eq!(refused(&users, name, "wrong").await, 1, "{name}");
    }
}

#[tokio::test]
async fn logins_that_are_alike_take_one_evaluation() {
    let (_directory, access) = file(&[("pool", Some("a"), &[Right::Read], &[])]);
    let users = Arc::new(open(&access).unwrap());
    let release = hold(&users).await;
    let mut logins = Vec::new();
    for at in 0..300 {
        logins.push(begin(&users, "pool", "a", [10, 0, (at / 200) as u8, (at % 200) as u8]).await);
    }
    assert_eq!(users.checker.pool.counts().queued, 1);
    drop(release);
    for login in logins {
        assert_eq!(login.await.unwrap(), Ok(()));
    }
    assert_eq!(users.checker.evaluated(), 1);
    assert!(users.checker.lock_alike().is_empty());
}

#[tokio::test]
async fn login_queue_is_bounded_and_flood_delays_no_other_block() {
    let (_directory, access) = file(&[("ann", Some("a"), &[Right::Read], &[])]);
    let users = Arc::new(open(&access).unwrap());
    let release = hold(&users).await;
    let mut flood = Vec::new();
    for at in 0..QUEUED_MAX + 10 {
        flood.push(begin(&users, "ann", &format!("guess {at}"), [10, 1, 1, at as u8]).await);
    }
    assert_eq!(users.checker.pool.counts().queued, QUEUED_MAX as u64);
    let honest = begin(&users, "ann", "a", [10, 2, 2, 2]).await;
    drop(release);
    assert_eq!(honest.await.unwrap(), Ok(()));
    assert!(users.checker.evaluated() <= 3, "{} were before it", users.checker.evaluated());
    let full = Busy::Full { pool: POOL, limit: QUEUED_MAX };
    let mut busy = 0;
    for login in flood {
        match login.await.unwrap() {
            Err(LoginRefused::Busy(why)) => {
                assert_eq!(why, full);
                busy += 1;
            }
            refused => assert_eq!(refused, Err(LoginRefused::Wrong)),
        }
    }
    assert_eq!(busy, 11, "ten found no place, and one gave its own to the other block");
}

/// Each guessing block has its turns; after its first wrong password they come after those of other blocks.
#[tokio::test]
async fn a_flood_of_many_blocks_that_guessed_before_delays_no_other() {
    let (_directory, access) = file(&[("ann", Some("a"), &[Right::Read], &[])]);
    let users = Arc::new(open(&access).unwrap());
    let blocks = 20;
    for at in 0..blocks {
        let guess = format!("guess {at}");
        assert!(users.admit(b"ann", guess.as_bytes(), &address([10, 1, at, 1])).await.is_none());
    }
    let release = hold(&users).await;
    let mut flood = Vec::new();
    for at in 0..QUEUED_MAX {
        let from = [10, 1, (at % usize::from(blocks)) as u8, 2 + at as u8];
        flood.push(begin(&users, "ann", &format!("another {at}"), from).await);
    }
    assert_eq!(users.checker.pool.counts().queued, QUEUED_MAX as u64);
    let (before, honest) = (users.checker.evaluated(), begin(&users, "ann", "a", [10, 2, 2, 2]).await);
    drop(release);
    assert_eq!(honest.await.unwrap(), Ok(()));
    assert!(users.checker.evaluated() - before <= 2, "{} were before it", users.checker.evaluated() - before);
    flood.iter().for_each(Login::abort);
}

#[tokio::test]
async fn acl_setuser_is_not_behind_a_flood_of_logins() {
    let (_directory, access) = file(&[("ann", Some("a"), &[Right::Read], &[])]);
    let users = Arc::new(open(&access).unwrap());
    let release = hold(&users).await;
    let mut flood = Vec::new();
    for at in 0..QUEUED_MAX {
        flood.push(begin(&users, "ann", &format!("guess {at}"), [10, 1, at as u8, 1]).await);
    }
    assert_eq!(users.checker.pool.counts().queued, QUEUED_MAX as u64);
    let admin = users.clone();
    let change = tokio::spawn(async move { set(&admin, "ann", ">other").await });
    tokio::task::yield_now().await;
    drop(release);
    change.await.unwrap();
    assert!(users.checker.evaluated() <= 5, "{} were before it", users.checker.evaluated());
    flood.iter().for_each(Login::abort);
}

#[tokio::test]
async fn a_login_waits_no_longer_than_its_deadline() {
    let (_directory, access) = file(&[("ann", Some("a"), &[Right::Read], &[])]);
    let users = Arc::new(open(&access).unwrap());
    let release = hold(&users).await;
    let deadline = Instant::now() + std::time::Duration::from_millis(20);
    let late = Err(LoginRefused::Busy(Busy::Late { pool: POOL }));
    // The second login is equal, and waits for the first.
    let [first, second] = [(); 2].map(|()| users.log_in(b"ann", b"a", &HERE, deadline));
    let (first, second) = tokio::join!(first, second);
    assert_eq!((first.map(drop), second.map(drop)), (late, late));
    drop(release);
    assert_eq!(users.checker.evaluated(), 0);
}
