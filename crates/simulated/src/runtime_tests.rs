//! Tests of the seeded executor.

use std::collections::BTreeSet;

use super::*;

/// Runs a few tasks that yield, sleep and draw numbers. Returns the order of their actions, and the trace.
fn history(seed: u64) -> (Vec<(u64, Duration)>, u64) {
    let runtime = SimRuntime::new(seed);
    let log = Arc::new(Mutex::new(Vec::new()));
    for id in 0..5 {
        let (world, log) = (runtime.clone(), log.clone());
        let task = async move {
            for _ in 0..10 {
                let pause = world.random() % 3;
                world.sleep(Duration::from_micros(pause)).await;
                log.lock().push((id, world.now()));
            }
        };
        runtime.spawn("worker", Box::pin(task));
    }
    runtime.run_until_idle();
    assert_eq!(runtime.task_count(), 0);
    let log = log.lock().clone();
    (log, runtime.trace())
}

#[test]
fn a_seed_replays_and_others_differ() {
    let mut traces = BTreeSet::new();
    for seed in 0..50 {
        let first = history(seed);
        assert_eq!(first, history(seed), "seed {seed}");
        assert_eq!(first.0.len(), 50);
        traces.insert(first.1);
    }
    assert_eq!(traces.len(), 50, "another seed is another history");
}

#[test]
fn time_jumps_and_nobody_waits() {
    let runtime = SimRuntime::new(1);
    let year = Duration::from_secs(365 * 24 * 3600);
    let before_ms = runtime.wall_clock_ms();
    runtime.run(runtime.sleep(year));
    assert_eq!(runtime.now(), year);
    assert_eq!(runtime.wall_clock_ms() - before_ms, year.as_millis() as u64);
    runtime.jump_wall_clock(-5000);
    assert_eq!(runtime.wall_clock_ms() + 5000 - before_ms, year.as_millis() as u64);
    assert_eq!(runtime.now(), year, "the monotonic clock does not jump");
}

#[test]
fn a_dropped_sleep_leaves_no_timer() {
    let runtime = SimRuntime::new(1);
    let mut sleep = runtime.sleep(Duration::from_secs(1000));
    runtime.run(std::future::poll_fn(|context| {
        assert!(sleep.as_mut().poll(context).is_pending());
        Poll::Ready(())
    }));
    drop(sleep);
    runtime.run(runtime.sleep(Duration::from_secs(1)));
    runtime.run_until_idle();
    assert_eq!(runtime.now(), Duration::from_secs(1));
}

#[test]
#[should_panic(expected = "seed 77: deadlock at 3s: nothing can go on, waiting are {\"stuck\": 2}")]
fn a_deadlock_names_the_seed() {
    let runtime = SimRuntime::new(77);
    for _ in 0..2 {
        runtime.spawn("stuck", Box::pin(std::future::pending()));
    }
    let sleep = runtime.sleep(Duration::from_secs(3));
    runtime.run(async {
        sleep.await;
        std::future::pending::<()>().await;
    });
}

#[test]
#[should_panic(expected = "seed 5: no end after 1000 steps")]
fn a_livelock_names_the_seed() {
    let runtime = SimRuntime::new(5);
    runtime.set_steps_max(1000);
    runtime.run(std::future::poll_fn(|context| {
        context.waker().wake_by_ref();
        Poll::<()>::Pending
    }));
}

struct Spawns(SimRuntime, Arc<Mutex<u32>>);

impl Drop for Spawns {
    fn drop(&mut self) {
        *self.1.lock() += 1;
        // Tasks spawned by a dying task die too.
        self.0.spawn("late", Box::pin(std::future::pending()));
        drop(self.0.sleep(Duration::from_secs(1)));
    }
}

#[test]
fn a_crash_drops_everything_and_the_world_goes_on() {
    let runtime = SimRuntime::new(9);
    let dropped = Arc::new(Mutex::new(0));
    for _ in 0..3 {
        let guard = Spawns(runtime.clone(), dropped.clone());
        let sleep = runtime.sleep(Duration::from_secs(5));
        let task = async move {
            let _guard = guard;
            sleep.await;
        };
        runtime.spawn("doomed", Box::pin(task));
    }
    runtime.run(runtime.sleep(Duration::from_secs(1)));
    assert_eq!((runtime.task_count(), *dropped.lock()), (3, 0));
    runtime.crash();
    assert_eq!((runtime.task_count(), *dropped.lock()), (0, 3));
    runtime.run(runtime.sleep(Duration::from_secs(1)));
    assert_eq!(runtime.now(), Duration::from_secs(2));
}
