//! Turns end, and time beside the serving threads is not counted.

use std::sync::Mutex;
use std::sync::atomic::Ordering;

use super::*;

/// Uses the processor for a while.
fn work(time: Duration) {
    let until = processor_time() + time;
    while processor_time() < until {
        std::hint::spin_loop();
    }
}

/// Returns the number of turns in a histogram, and an upper bound of the longest.
fn observed(turns: &Histogram) -> (u64, Duration) {
    let counts = turns.buckets.iter().map(|bucket| bucket.load(Ordering::Relaxed));
    let counts: Vec<u64> = counts.collect();
    let longest = counts.iter().rposition(|&count| count > 0).unwrap_or(0);
    (counts.iter().sum(), Duration::from_micros(super::super::counting::FIRST_BOUND_US << longest))
}

async fn measured<T>(future: impl Future<Output = T>) -> (T, u64, Duration) {
    let turns = Arc::new(Histogram::default());
    let output = Measured::new(Box::pin(future), turns.clone()).await;
    let (count, longest) = observed(&turns);
    (output, count, longest)
}

#[tokio::test]
async fn a_loop_that_pauses_yields_once_a_turn() {
    let rounds = 100;
    let step = TURN / 5;
    let ((), turns, longest) = measured(async {
        for _ in 0..rounds {
            work(step);
            // A function in between begins no turn of its own.
            pause().await;
        }
    })
    .await;
    assert!(turns >= 20, "{rounds} rounds of {step:?} are {turns} turns");
    assert!(longest <= 4 * TURN, "a turn took up to {longest:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn work_beside_frees_serving_thread_and_is_not_counted() {
    let (begun, mut has_begun) = tokio::sync::mpsc::unbounded_channel();
    let (release, released) = std::sync::mpsc::channel::<()>();
    let busy = tokio::spawn(measured(async move {
        beside(
            true,
            Box::pin(async move {
                begun.send(()).expect("the test waits");
                released.recv().expect("the test releases it");
                work(Duration::from_millis(20));
            }),
        )
        .await;
    }));
    has_begun.recv().await.expect("it begins");
    // The runtime's only worker thread blocks in `released.recv()`; this task runs all the same.
    let other = tokio::spawn(async { 7 }).await.expect("it does not panic");
    assert_eq!(other, 7);
    release.send(()).expect("it waits");
    let ((), _, longest) = busy.await.expect("it does not panic");
    assert!(longest < Duration::from_millis(20), "a turn took up to {longest:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn work_that_is_not_beside_is_counted() {
    let ((), _, longest) = measured(async { work(Duration::from_millis(20)) }).await;
    assert!(longest >= Duration::from_millis(20), "a turn took up to {longest:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_future_beside_that_waits_frees_its_place() {
    let mut waiting = Vec::new();
    let (release, _) = tokio::sync::broadcast::channel::<()>(1);
    for _ in 0..8 {
        let mut released = release.subscribe();
        waiting.push(tokio::spawn(async move {
            beside(true, Box::pin(async { released.recv().await.is_ok() })).await
        }));
    }
    // More of them wait than there are places; this one runs.
    assert_eq!(tokio::spawn(beside(true, Box::pin(async { 7 }))).await.expect("it does not panic"), 7);
    release.send(()).expect("they wait");
    for one in waiting {
        assert!(one.await.expect("it does not panic"));
    }
}

#[tokio::test]
async fn all_that_are_ready_work_before_the_first_of_them_answers() {
    let said = Arc::new(Mutex::new(String::new()));
    let clients = ['a', 'b', 'c'].map(|name| {
        let said = said.clone();
        tokio::spawn(async move {
            said.lock().expect("no test panics with it").push(name);
            behind_the_others().await;
            said.lock().expect("no test panics with it").push(name.to_ascii_uppercase());
        })
    });
    for client in clients {
        client.await.expect("it does not panic");
    }
    assert_eq!(*said.lock().expect("no test panics with it"), "abcABC");
}
