//! The pool's three rules, and its shutdown.

use std::sync::mpsc;
use std::time::Duration;

use super::*;

const A: Source = Source::LocalUser(1);
const B: Source = Source::LocalUser(2);

fn far() -> Instant {
    Instant::now() + Duration::from_secs(600)
}

/// A pool of one thread that is held by a job until the sender is dropped.
async fn held(queued_max: usize) -> (Arc<Pool>, mpsc::Sender<()>) {
    let pool = Arc::new(Pool::new("test", 1, queued_max));
    let (release, held) = mpsc::channel::<()>();
    let (begun, mut has_begun) = tokio::sync::mpsc::unbounded_channel();
    let holder = pool.clone();
    tokio::spawn(async move {
        let job = move || {
            begun.send(()).expect("the test waits");
            let _ = held.recv();
        };
        let _ = holder.run(Source::LocalUser(99), far(), job).await;
    });
    has_begun.recv().await.expect("the job begins");
    (pool, release)
}

/// Queues a job that logs its name when it runs. Returns when it is queued or refused.
async fn queue(
    pool: &Arc<Pool>,
    source: Source,
    name: &'static str,
    log: &Arc<Mutex<Vec<&'static str>>>,
) -> tokio::task::JoinHandle<Result<(), Busy>> {
    let (pool, log) = (pool.clone(), log.clone());
    let asked = tokio::spawn(async move {
        pool.run(source, far(), move || log.lock().expect("no test panics with it").push(name)).await
    });
    tokio::task::yield_now().await;
    asked
}

#[tokio::test]
async fn sources_take_turns_whatever_the_length_of_their_queues() {
    let (pool, release) = held(16).await;
    let log = Arc::default();
    let mut asked = Vec::new();
    for (source, name) in [(A, "a1"), (A, "a2"), (A, "a3"), (B, "b1"), (B, "b2")] {
        asked.push(queue(&pool, source, name, &log).await);
    }
    assert_eq!(pool.counts(), JobCounts { queued: 5, running: 1, done: 0, refused: 0 });
    drop(release);
    for job in asked {
        assert_eq!(job.await.expect("it does not panic"), Ok(()));
    }
    assert_eq!(*log.lock().expect("no test panics with it"), ["a1", "b1", "a2", "b2", "a3"]);
}

#[tokio::test]
async fn jobs_of_admins_come_first_and_find_room_in_a_full_queue() {
    let (pool, release) = held(2).await;
    let log = Arc::default();
    let first = queue(&pool, A, "a1", &log).await;
    let second = queue(&pool, B, "b1", &log).await;
    let admin = queue(&pool, Source::Admin, "admin", &log).await;
    assert_eq!(
        queue(&pool, Source::LocalUser(3), "c1", &log).await.await.expect("it does not panic"),
        Err(Busy::Full { pool: "test", limit: 2 })
    );
    drop(release);
    assert_eq!(admin.await.expect("it does not panic"), Ok(()));
    let done = [first.await, second.await].map(|job| job.expect("it does not panic").is_ok());
    assert_eq!(done.iter().filter(|done| **done).count(), 1, "one gave way");
    assert_eq!(log.lock().expect("no test panics with it")[0], "admin");
}

#[tokio::test]
async fn suspect_blocks_come_last_and_give_way() {
    let (pool, release) = held(3).await;
    let log = Arc::default();
    let block = |last: u8| Source::Block(Ipv4Addr::new(10, 0, last, 0).into());
    let suspects = [
        queue(&pool, block(1).suspect(), "s1", &log).await,
        queue(&pool, block(2).suspect(), "s2", &log).await,
        queue(&pool, block(3).suspect(), "s3", &log).await,
    ];
    let other = queue(&pool, block(4), "other", &log).await;
    drop(release);
    assert_eq!(other.await.expect("it does not panic"), Ok(()));
    let mut done = 0;
    for job in suspects {
        done += usize::from(job.await.expect("it does not panic").is_ok());
    }
    assert_eq!(done, 2, "one gave way");
    assert_eq!(log.lock().expect("no test panics with it")[0], "other");
}

#[tokio::test]
async fn a_full_queue_refuses_the_source_with_the_most_jobs() {
    let (pool, release) = held(3).await;
    let log = Arc::default();
    let mut asked = Vec::new();
    for name in ["a1", "a2", "a3"] {
        asked.push(queue(&pool, A, name, &log).await);
    }
    let full = Err(Busy::Full { pool: "test", limit: 3 });
    assert_eq!(queue(&pool, A, "a4", &log).await.await.expect("it does not panic"), full);
    let of_b = queue(&pool, B, "b1", &log).await;
    assert_eq!(asked.pop().expect("three").await.expect("it does not panic"), full);
    // Now A has two waiting jobs and B one: neither may displace the other.
    assert_eq!(queue(&pool, B, "b2", &log).await.await.expect("it does not panic"), full);
    assert_eq!(pool.counts().refused, 3);
    drop(release);
    assert_eq!(of_b.await.expect("it does not panic"), Ok(()));
    for job in asked {
        assert_eq!(job.await.expect("it does not panic"), Ok(()));
    }
    assert_eq!(*log.lock().expect("no test panics with it"), ["a1", "b1", "a2"]);
}

#[tokio::test]
async fn a_job_past_its_deadline_is_refused_and_never_begins() {
    let (pool, release) = held(4).await;
    let (ran, has_run) = mpsc::channel();
    let deadline = Instant::now() + Duration::from_millis(1);
    let late = pool.run(A, deadline, move || ran.send(())).await;
    assert!(matches!(late, Err(Busy::Late { pool: "test" })), "{late:?}");
    drop(release);
    assert_eq!(pool.run(B, far(), || 7).await, Ok(7));
    assert!(has_run.recv().is_err(), "the job was dropped without running");
}

#[tokio::test]
async fn a_job_whose_caller_is_gone_never_begins() {
    let (pool, release) = held(4).await;
    let log = Arc::default();
    let asked = queue(&pool, A, "a1", &log).await;
    asked.abort();
    assert!(asked.await.expect_err("it was aborted").is_cancelled());
    drop(release);
    assert_eq!(pool.run(B, far(), || 7).await, Ok(7));
    assert!(log.lock().expect("no test panics with it").is_empty());
}

#[tokio::test]
async fn a_panicking_job_leaves_the_pool_alive() {
    let pool = Pool::new("test", 1, 4);
    let failed = pool.run(A, far(), || panic!("as this test wants it")).await;
    let failed: Result<(), Busy> = failed;
    assert_eq!(failed, Err(Busy::Failed { pool: "test" }));
    assert_eq!(pool.run(A, far(), || 7).await, Ok(7));
}

#[tokio::test]
async fn dropping_the_pool_refuses_waiting_jobs_and_waits_for_none() {
    let pool = Pool::new("test", 1, 4);
    let shared = pool.0.clone();
    let (release, held) = mpsc::channel::<()>();
    let (begun, has_begun) = oneshot::channel();
    let waiting = Arc::new(());
    let queue = |work: Work| {
        let job = Job { deadline: far(), wanted: Arc::downgrade(&waiting), work };
        shared.queue_job(A, job).expect("there is room");
    };
    queue(Box::new(move |_| {
        begun.send(()).expect("the test waits");
        let _ = held.recv();
    }));
    has_begun.await.expect("the job begins");
    let (send, refused) = oneshot::channel();
    queue(Box::new(move |may_begin| {
        let _ = send.send(may_begin);
    }));
    drop(pool);
    assert_eq!(refused.await, Ok(Err(Busy::Stopping)));
    assert_eq!(shared.running.load(Ordering::Relaxed), 1, "the running job is not waited for");
    drop(release);
}

#[test]
fn a_block_is_an_ipv4_24_or_an_ipv6_48() {
    let of = |text: &str| {
        Source::block(&Address::Network((text.parse::<IpAddr>().expect("an address"), 1).into()))
    };
    assert_eq!(of("10.1.2.3"), of("10.1.2.200"));
    assert_ne!(of("10.1.2.3"), of("10.1.3.3"));
    assert_eq!(of("::ffff:10.1.2.3"), of("10.1.2.3"));
    assert_eq!(of("2001:db8:1::1"), of("2001:db8:1:ffff::1"));
    assert_ne!(of("2001:db8:1::1"), of("2001:db8:2::1"));
}
