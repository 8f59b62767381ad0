//! A pool of threads for work that cannot yield: Argon2, compiling a script, strong compression, parsing a long setting.
//!
//! Serving threads stay free: a task hands the pool a job and awaits the result. Three rules bound the pool:
//!
//! 1. Its queue has a limit. When the queue is full, the newest job of the source with the most waiting jobs is refused,
//!    unless that source is the one that asks; then the new job is refused.
//! 2. Sources take turns (round robin), so a source with many jobs delays another source by at most one job per thread.
//! 3. Each job has a deadline that covers waiting and running. A job that has not begun by then never begins.
//!
//! A job owns its data and its result. A panic ends the job and not the thread. Dropping the pool refuses all waiting jobs
//! and returns at once: running jobs end on their own, and nothing waits for them.

use std::collections::{HashMap, VecDeque};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, Weak};

use tokio::sync::oneshot;
use tokio::time::{Instant, timeout_at};

use super::address::Address;

/// The unit of fairness: jobs of one source queue behind each other, and sources take turns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Source {
    /// An IPv4 /24 or an IPv6 /48, by its first address.
    Block(IpAddr),
    /// A block that sent a wrong password recently. Its jobs come after those of all other sources, and yield to them in a full
    /// queue.
    SuspectBlock(IpAddr),
    /// A user of this machine, connected through the unix socket.
    LocalUser(u32),
    /// A change requested by an admin. It comes before the jobs of all other sources, and displaces them in a full queue.
    Admin,
}

impl Source {
    /// Returns the address block of a connection.
    pub(crate) fn block(address: &Address) -> Source {
        match address {
            Address::Network(address) => Source::Block(match address.ip().to_canonical() {
                IpAddr::V4(ip) => Ipv4Addr::from(u32::from(ip) & !0xff).into(),
                IpAddr::V6(ip) => Ipv6Addr::from(u128::from(ip) >> 80 << 80).into(),
            }),
            Address::Local { uid, .. } => Source::LocalUser(*uid),
        }
    }

    /// Returns the source of jobs of a block under suspicion.
    pub(crate) fn suspect(self) -> Source {
        match self {
            Source::Block(first) => Source::SuspectBlock(first),
            other => other,
        }
    }

    /// Returns the rank of the source; jobs of a lower rank number come first.
    fn rank(self) -> u8 {
        match self {
            Source::Admin => 0,
            Source::SuspectBlock(_) => 2,
            _ => 1,
        }
    }
}

/// The reason for a job without a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Busy {
    /// The queue is full.
    #[error("the server is busy: {limit} {pool} jobs wait already; try again later")]
    Full {
        /// Name of the pool.
        pool: &'static str,
        /// Jobs that may wait.
        limit: usize,
    },
    /// The deadline passed.
    #[error("the server is busy: the {pool} job did not end before its deadline; try again later")]
    Late {
        /// Name of the pool.
        pool: &'static str,
    },
    /// The job panicked, or no thread could be started.
    #[error("the {pool} job failed; the server's log has the cause")]
    Failed {
        /// Name of the pool.
        pool: &'static str,
    },
    /// The pool was dropped.
    #[error("the server is stopping")]
    Stopping,
}

/// Number of jobs of a pool, by state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct JobCounts {
    /// Jobs that wait for a thread.
    pub(crate) queued: u64,
    /// Jobs that run.
    pub(crate) running: u64,
    /// Jobs that ended, since the start.
    pub(crate) done: u64,
    /// Jobs that never began: the queue was full, the deadline passed or the caller was dropped.
    pub(crate) refused: u64,
}

type Work = Box<dyn FnOnce(Result<(), Busy>) + Send>;

struct Job {
    deadline: Instant,
    /// Dead when the caller has stopped waiting.
    wanted: Weak<()>,
    /// Runs the job if it is given `Ok`, and sends the result or the refusal.
    work: Work,
}

#[derive(Default)]
struct Queue {
    /// Jobs by source; no list is empty.
    waiting: HashMap<Source, VecDeque<Job>>,
    /// Sources with waiting jobs, in the order of their turns.
    turns: VecDeque<Source>,
    queued: usize,
    threads: usize,
    idle: usize,
    is_stopped: bool,
}

struct Shared {
    name: &'static str,
    threads_max: usize,
    queued_max: usize,
    queue: Mutex<Queue>,
    arrived: Condvar,
    running: AtomicU64,
    done: AtomicU64,
    refused: AtomicU64,
}

/// A bounded pool of threads; see the module.
pub(crate) struct Pool(Arc<Shared>);

impl std::fmt::Debug for Pool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pool").field("name", &self.0.name).field("counts", &self.counts()).finish()
    }
}

impl Job {
    fn may_begin(&self, now: Instant) -> bool {
        self.deadline > now && self.wanted.strong_count() > 0
    }
}

impl Queue {
    fn push(&mut self, source: Source, job: Job) {
        let jobs = self.waiting.entry(source).or_default();
        let is_first = jobs.is_empty();
        jobs.push_back(job);
        if is_first {
            self.await_turn(source);
        }
        self.queued += 1;
    }

    /// Puts a source behind those of its rank.
    fn await_turn(&mut self, source: Source) {
        let at = self.turns.partition_point(|other| other.rank() <= source.rank());
        self.turns.insert(at, source);
    }

    /// Takes the first job of the source whose turn it is.
    fn pop(&mut self) -> Option<Job> {
        let source = self.turns.pop_front()?;
        let jobs = self.waiting.get_mut(&source)?;
        let job = jobs.pop_front();
        if jobs.is_empty() {
            self.waiting.remove(&source);
        } else {
            self.await_turn(source);
        }
        self.queued -= 1;
        job
    }

    /// Removes the newest job of the source with the most waiting jobs, if that source has more of them than `source` would
    /// have with one more. A job of a lower rank takes the place of one of the highest.
    fn displace(&mut self, source: Source) -> Option<Job> {
        let own = self.waiting.get(&source).map_or(0, VecDeque::len);
        let (fullest, jobs) =
            self.waiting.iter_mut().max_by_key(|(other, jobs)| (other.rank(), jobs.len()))?;
        let gives_way = fullest.rank() > source.rank();
        if fullest.rank() < source.rank() || !gives_way && jobs.len() <= own + 1 {
            return None;
        }
        let (fullest, job) = (*fullest, jobs.pop_back());
        if jobs.is_empty() {
            self.waiting.remove(&fullest);
            self.turns.retain(|other| *other != fullest);
        }
        self.queued -= 1;
        job
    }

    /// Removes the jobs whose deadline has passed or whose caller was dropped.
    fn expire(&mut self, now: Instant) -> Vec<Job> {
        let mut late = Vec::new();
        for jobs in self.waiting.values_mut() {
            let (expired, kept) =
                std::mem::take(jobs).into_iter().partition::<VecDeque<_>, _>(|job| !job.may_begin(now));
            *jobs = kept;
            late.extend(expired);
        }
        self.waiting.retain(|_, jobs| !jobs.is_empty());
        let waiting = &self.waiting;
        self.turns.retain(|source| waiting.contains_key(source));
        self.queued -= late.len();
        late
    }
}

impl Pool {
    /// A pool of at most `threads` threads, which are started when jobs need them. At most `queued_max` jobs wait.
    pub(crate) fn new(name: &'static str, threads: usize, queued_max: usize) -> Pool {
        Pool(Arc::new(Shared {
            name,
            threads_max: threads,
            queued_max,
            queue: Mutex::default(),
            arrived: Condvar::new(),
            running: AtomicU64::new(0),
            done: AtomicU64::new(0),
            refused: AtomicU64::new(0),
        }))
    }

    /// Runs a job on a thread of the pool and returns its result. If the caller stops waiting before the job begins, the job
    /// never begins.
    ///
    /// # Errors
    /// [`Busy`]: the queue is full, the deadline passed (a running job ends on its own and its result is dropped), the job
    /// panicked, or the pool was dropped.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        source: Source,
        deadline: Instant,
        job: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Busy> {
        let pool = self.0.name;
        let (send, receive) = oneshot::channel();
        let work = move |may_begin: Result<(), Busy>| drop(send.send(may_begin.map(|()| job())));
        let waiting = Arc::new(());
        let wanted = Arc::downgrade(&waiting);
        self.0.queue_job(source, Job { deadline, wanted, work: Box::new(work) })?;
        match timeout_at(deadline, receive).await {
            Ok(Ok(result)) => result,
            Ok(Err(_)) => Err(Busy::Failed { pool }),
            Err(_) => Err(Busy::Late { pool }),
        }
    }

    /// Number of jobs by state.
    pub(crate) fn counts(&self) -> JobCounts {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let Shared { running, done, refused, .. } = &*self.0;
        let queued = self.0.lock().queued as u64;
        JobCounts { queued, running: load(running), done: load(done), refused: load(refused) }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        let mut queue = self.0.lock();
        queue.is_stopped = true;
        let waiting: Vec<Job> = std::iter::from_fn(|| queue.pop()).collect();
        drop(queue);
        self.0.arrived.notify_all();
        waiting.into_iter().for_each(|job| (job.work)(Err(Busy::Stopping)));
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().expect("the lock is never poisoned: jobs run without it")
    }

    /// Refuses jobs. Called without the lock, because dropping a job drops its captured data.
    fn refuse(&self, jobs: impl IntoIterator<Item = Job>, why: Busy) {
        for job in jobs {
            self.refused.fetch_add(1, Ordering::Relaxed);
            (job.work)(Err(why));
        }
    }

    fn queue_job(self: &Arc<Self>, source: Source, job: Job) -> Result<(), Busy> {
        let (name, limit) = (self.name, self.queued_max);
        let full = Busy::Full { pool: name, limit };
        let mut queue = self.lock();
        let late = if queue.queued >= limit { queue.expire(Instant::now()) } else { Vec::new() };
        let displaced = if queue.queued >= limit { queue.displace(source) } else { None };
        let fits = queue.queued < limit;
        let mut started = Ok(());
        if fits {
            queue.push(source, job);
            if queue.idle == 0 && queue.threads < self.threads_max {
                let shared = self.clone();
                let thread = std::thread::Builder::new().name(format!("esker-{name}"));
                started = thread.spawn(move || shared.work()).map(drop);
                queue.threads += usize::from(started.is_ok());
                let has_none = queue.threads == 0;
                if let (Err(error), true) = (&started, has_none) {
                    tracing::error!(%error, pool = name, "no thread can be started; the job is refused");
                } else {
                    started = Ok(());
                }
            }
        }
        let unserved = if started.is_err() { queue.pop() } else { None };
        drop(queue);
        self.refuse(late, Busy::Late { pool: name });
        self.refuse(displaced, full);
        self.refuse(unserved, Busy::Failed { pool: name });
        if !fits {
            self.refused.fetch_add(1, Ordering::Relaxed);
            return Err(full);
        }
        self.arrived.notify_one();
        Ok(())
    }

    /// Runs jobs until the pool is dropped.
    fn work(&self) {
        while let Some(job) = self.next_job() {
            if !job.may_begin(Instant::now()) {
                self.refuse([job], Busy::Late { pool: self.name });
                continue;
            }
            self.running.fetch_add(1, Ordering::Relaxed);
            let ran = catch_unwind(AssertUnwindSafe(|| (job.work)(Ok(()))));
            if ran.is_err() {
                tracing::error!(pool = self.name, "a job panicked");
            }
            self.running.fetch_sub(1, Ordering::Relaxed);
            self.done.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn next_job(&self) -> Option<Job> {
        let mut queue = self.lock();
        loop {
            if queue.is_stopped {
                return None;
            }
            if let Some(job) = queue.pop() {
                return Some(job);
            }
            queue.idle += 1;
            queue = self.arrived.wait(queue).expect("the lock is never poisoned: jobs run without it");
            queue.idle -= 1;
        }
    }
}

#[cfg(test)]
#[path = "pool/tests.rs"]
mod tests;
