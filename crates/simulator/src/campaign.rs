//! Many histories, and the states that they reached together.

use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use esker_simulator::{Failure, Plan, RARE, Reached, Shape, run, shrink};

/// Maximum number of runs to reduce a failing plan.
const SHRINKING_RUNS: u64 = 3000;

/// Interval between progress reports.
const REPORT_EVERY: Duration = Duration::from_secs(60);

/// Number of failures after which a campaign ends.
const FAILURES_MAX: u64 = 10;

pub(crate) struct Campaign {
    pub(crate) shape: Shape,
    pub(crate) first: u64,
    pub(crate) histories: u64,
    pub(crate) time: Option<Duration>,
    pub(crate) threads: usize,
    pub(crate) failures: PathBuf,
}

impl Campaign {
    /// Runs the campaign. Returns true if no history failed.
    pub(crate) fn run(&self) -> bool {
        let (next, done, failed) = (AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0));
        let (began, reached) = (Instant::now(), Mutex::new(Reached::default()));
        let told = Mutex::new(began);
        std::thread::scope(|scope| {
            for _ in 0..self.threads {
                scope.spawn(|| {
                    while failed.load(Ordering::Relaxed) < FAILURES_MAX
                        && self.time.is_none_or(|time| began.elapsed() < time)
                    {
                        let number = next.fetch_add(1, Ordering::Relaxed);
                        if number >= self.histories {
                            return;
                        }
                        let plan = Plan::draw(self.first + number, self.shape);
                        match run(&plan) {
                            Ok(of_one) => {
                                reached.lock().expect("no thread panics while it holds the lock").add(&of_one)
                            }
                            Err(failure) => {
                                failed.fetch_add(1, Ordering::Relaxed);
                                self.tell_of_failure(self.first + number, &plan, &failure);
                            }
                        }
                        let done = done.fetch_add(1, Ordering::Relaxed) + 1;
                        let mut told = told.lock().expect("no thread panics while it holds the lock");
                        if told.elapsed() > REPORT_EVERY {
                            *told = Instant::now();
                            eprintln!("{done} histories in {} s", began.elapsed().as_secs());
                        }
                    }
                });
            }
        });
        let (done, failed) = (done.into_inner(), failed.into_inner());
        let reached = reached.into_inner().expect("no thread panics while it holds the lock");
        print_reached(&reached);
        println!(
            "{done} histories from seed {} on in {} s: {} operations, {} ends of processes, {failed} failed",
            self.first,
            began.elapsed().as_secs(),
            reached.operations,
            reached.ends,
        );
        failed == 0
    }

    fn tell_of_failure(&self, seed: u64, plan: &Plan, failure: &Failure) {
        println!("the history of seed {seed} failed: {}", failure.message);
        let three_devices = if self.shape.three_devices { " --three-devices" } else { "" };
        println!(
            "replay: esker-simulator --seed {seed} --operations {}{three_devices}",
            self.shape.operations
        );
        replay_failed(plan, failure, &self.failures);
    }
}

fn print_reached(reached: &Reached) {
    for state in RARE {
        match reached.states.get(state) {
            Some(count) => println!("{count:>10}  {state}"),
            None => println!("{:>10}  {state}", "never"),
        }
    }
}

/// Reduces a failing plan, and writes the result to a file.
pub(crate) fn replay_failed(plan: &Plan, failure: &Failure, directory: &Path) {
    let (least, failure) = shrink(plan, SHRINKING_RUNS).unwrap_or((plan.clone(), failure.clone()));
    println!("cut down from {} operations to {}: {}", plan.operations(), least.operations(), failure.message);
    let file = directory.join(format!("esker-simulator-{}.json", plan.seed));
    let text = serde_json::to_string_pretty(&least).expect("a plan can be written");
    match std::fs::write(&file, text) {
        Ok(()) => println!("replay: esker-simulator --replay {}", file.display()),
        Err(error) => println!("{} cannot be written: {error}", file.display()),
    }
}
