//! One benchmark after the other on one store.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use esker_device::{Runtime, Threads, block_on};
use esker_engine::{Activity, Stats, Store};
use serde_json::{Value, json};

use super::benchmark::{Benchmark, Chore, Order, Step, Work};
use super::clients::{self, Role, Shared};
use super::config::{Config, ValueSize};
use super::measure::{Counts, Outcome, average};
use super::mixgraph::Model;
use super::watch::{ReportFile, Watch};
use crate::failure::{Failure, Result};
use crate::process::cpu_seconds;
use crate::progress;
use crate::workload::Values;
use crate::{durability, process};

const RULE: &str = "------------------------------------------------";
/// Background work rests when nothing was moved for so long.
const RESTED: Duration = Duration::from_secs(1);

/// A store and what was measured on it.
pub(crate) struct Session {
    config: Config,
    model: Model,
    store: Store,
    runtime: Arc<dyn Runtime>,
    /// When the numbers were last reset.
    since: Activity,
    report: Option<ReportFile>,
    done_before: u64,
    runs: Vec<Value>,
    /// Nothing was written since the store was opened, so it need not be made anew.
    untouched: bool,
}

impl Session {
    /// Opens the store and prints what will be measured on it.
    pub(crate) fn begin(config: Config, model: Model, notes: &[String]) -> Result<Session> {
        notes.iter().for_each(|note| eprintln!("note: {note}"));
        let runtime: Arc<dyn Runtime> =
            Threads::new(2).map_err(|error| Failure::failed("threads for background work", error))?;
        let report = ReportFile::new(&config)?;
        let store = open(&config, &runtime)?;
        if !config.use_existing_db && !store.is_empty() {
            // As db_bench, which destroys what is there, unless it is told to use it.
            block_on(store.clear())?;
        }
        let session = Session {
            config,
            model,
            store,
            runtime,
            since: Activity::default(),
            report,
            done_before: 0,
            runs: Vec::new(),
            untouched: true,
        };
        session.head();
        Ok(session)
    }

    fn head(&self) {
        let config = &self.config;
        let (least, most) = match config.value_size {
            ValueSize::Fixed(bytes) => (bytes, bytes),
            ValueSize::Uniform(least, most) | ValueSize::Normal(least, most) => (least, most),
        };
        let values = if least == most { format!("{most}") } else { format!("{least} to {most}") };
        let raw = config.num as f64 * (config.key_size as f64 + (least + most) as f64 / 2.0) / 1048576.0;
        println!("Esker:      version {}", env!("CARGO_PKG_VERSION"));
        println!("Keys:       {} bytes each", config.key_size);
        println!("Values:     {values} bytes each (not compressed)");
        println!("Entries:    {}", config.num);
        println!("RawSize:    {raw:.1} MB (estimated)");
        println!("Write rate: {} bytes/second", config.write_limit.unwrap_or(0));
        println!("Read rate: {} ops/second", config.read_limit.unwrap_or(0));
        println!("Durability: {}", durability::name(config.durability));
        for tier in &self.store.stats().tiers {
            println!(
                "Tier:       {} {} by {}, direct {}, unit {}, {} segments of {} bytes",
                tier.name,
                tier.path,
                tier.backend,
                tier.direct,
                tier.unit_bytes,
                tier.segments_total,
                tier.segment_bytes
            );
        }
        println!("{RULE}");
        println!("DB path: [{}]", config.places.name());
    }

    /// Does all steps, closes the store, and writes the JSON.
    pub(crate) fn run(mut self, steps: &[Step]) -> Result<()> {
        for step in steps {
            match step {
                Step::Chore(chore) => self.chore(*chore)?,
                Step::Run { benchmark, times, warm_ups } => {
                    let mut outcomes = Vec::new();
                    for turn in 0..warm_ups + times {
                        let outcome = self.benchmark(benchmark)?;
                        if turn < *warm_ups {
                            continue;
                        }
                        println!("{}", outcome.line());
                        if self.config.histogram {
                            print!("{}", outcome.histograms());
                        }
                        self.runs.push(outcome.json());
                        outcomes.push(outcome);
                    }
                    if *times > 1 {
                        println!("{}", average(benchmark.name, &outcomes));
                    }
                }
            }
        }
        if self.config.statistics {
            self.chore(Chore::Stats)?;
        }
        block_on(self.store.close())?;
        self.json()
    }

    fn chore(&mut self, chore: Chore) -> Result<()> {
        match chore {
            Chore::Flush => block_on(self.store.flush())?,
            Chore::ResetStats => self.since = self.store.stats().activity,
            Chore::Stats => print_stats(&self.store.stats(), &self.since),
            Chore::Settle => {
                let began = Instant::now();
                block_on(self.store.flush())?;
                let moved = || {
                    let did = self.store.stats().activity;
                    (did.relocated_bytes, did.segments_freed)
                };
                let (mut last, mut since) = (moved(), Instant::now());
                while since.elapsed() < RESTED {
                    thread::sleep(Duration::from_millis(50));
                    let now = moved();
                    if now != last {
                        (last, since) = (now, Instant::now());
                    }
                }
                println!("waitforcompaction: {:.3} seconds", began.elapsed().as_secs_f64());
            }
        }
        Ok(())
    }

    fn benchmark(&mut self, benchmark: &Benchmark) -> Result<Outcome> {
        if benchmark.fresh && !self.config.use_existing_db && !self.untouched {
            self.begin_again()?;
        }
        self.untouched = false;
        let shared = Arc::new(Shared {
            config: self.config.clone(),
            benchmark: *benchmark,
            store: self.store.clone(),
            runtime: self.runtime.clone(),
            values: Values::new(self.config.seed),
            model: self.model.clone(),
            done: AtomicU64::new(0),
            over: AtomicBool::new(false),
        });
        let began = Instant::now();
        let cpu_before = cpu_seconds();
        let until = self.config.duration.map(|duration| began + duration);
        let spawn = |index, role| {
            let shared = shared.clone();
            thread::spawn(move || {
                let began = Instant::now();
                let counts = clients::run(&shared, index, role, until);
                if counts.is_err() {
                    shared.over.store(true, Ordering::Relaxed);
                }
                (counts, began.elapsed())
            })
        };
        let threads: Vec<_> = (0..self.config.threads).map(|index| spawn(index, Role::Measured)).collect();
        let beside = benchmark.beside_writer.then(|| spawn(self.config.threads, Role::BesideWriter));
        let mut watch = Watch::new(&self.config, progress::bar(benchmark.name, self.expected(benchmark)));
        while !threads.iter().all(thread::JoinHandle::is_finished) {
            thread::sleep(Duration::from_millis(5));
            let done = shared.done.load(Ordering::Relaxed);
            watch.tick(done);
            if let Some(report) = &mut self.report {
                report.tick(self.done_before + done)?;
            }
        }
        let elapsed = began.elapsed();
        watch.end();
        if !self.config.finish_after_writes {
            shared.over.store(true, Ordering::Relaxed);
        }
        self.done_before += shared.done.load(Ordering::Relaxed);
        let (mut counts, mut thread_seconds) = (Counts::default(), 0.0);
        let bug = |_| Failure::Failed("a client thread ended by a bug in the measurement".into());
        for thread in threads {
            let (done, took) = thread.join().map_err(bug)?;
            counts.add(&done?);
            thread_seconds += took.as_secs_f64();
        }
        let cpu = cpu_seconds() - cpu_before;
        let mut message = match benchmark.work {
            Work::Read { .. } | Work::Update | Work::ReadWrite => {
                format!("({} of {} found)", counts.found, counts.reads)
            }
            _ => String::new(),
        };
        if let Some(beside) = beside {
            let (wrote, took) = beside.join().map_err(bug)?;
            let wrote = wrote?;
            let rate = wrote.bytes as f64 / 1048576.0 / took.as_secs_f64().max(1e-9);
            message = format!("{message} (writer beside: {} puts, {rate:.1} MB/s)", wrote.operations);
        }
        Ok(Outcome {
            name: benchmark.name.into(),
            counts,
            elapsed,
            thread_seconds,
            cpu_seconds: cpu,
            message,
        })
    }

    /// About how many operations a benchmark makes, for the bar.
    fn expected(&self, benchmark: &Benchmark) -> u64 {
        let config = &self.config;
        let each = match benchmark.work {
            Work::Fill(Order::Unique) => return config.num,
            Work::Fill(_) => config.writes,
            Work::Delete(_) => config.deletes,
            _ => config.reads,
        };
        config.threads * each / benchmark.fewer
    }

    /// Empties the store: of a directory the files go, elsewhere everything is deleted.
    fn begin_again(&mut self) -> Result<()> {
        let places = &self.config.places;
        if places.fast.is_some() || places.capacity.is_some() {
            block_on(self.store.clear())?;
            return self.chore(Chore::Settle);
        }
        block_on(self.store.close())?;
        for name in ["data.esker", "staging.esker"] {
            let path = places.db.join(name);
            match std::fs::remove_file(&path) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                    return Err(Failure::failed(&format!("removing {}", path.display()), error));
                }
                _ => {}
            }
        }
        self.store = open(&self.config, &self.runtime)?;
        self.since = Activity::default();
        Ok(())
    }

    fn json(self) -> Result<()> {
        let Some(path) = &self.config.json else { return Ok(()) };
        let all = json!({
            "command": "db_bench",
            "version": env!("CARGO_PKG_VERSION"),
            "num": self.config.num,
            "key_size": self.config.key_size,
            "threads": self.config.threads,
            "queue_depth": self.config.queue_depth,
            "durability": durability::name(self.config.durability),
            "resident_bytes": process::resident_bytes(),
            "runs": self.runs,
        });
        let text = format!("{all:#}\n");
        match path.as_str() {
            "-" | "1" | "true" => print!("{text}"),
            path => std::fs::write(path, text)
                .map_err(|error| Failure::failed(&format!("writing --json={path}"), error))?,
        }
        Ok(())
    }
}

fn open(config: &Config, runtime: &Arc<dyn Runtime>) -> Result<Store> {
    let places = &config.places;
    let parent = places.db.parent().filter(|_| places.fast.is_none() && places.capacity.is_none());
    if let Some(parent) = parent.filter(|_| !config.use_existing_db) {
        std::fs::create_dir_all(parent)
            .map_err(|error| Failure::failed(&format!("making {}", parent.display()), error))?;
    }
    let options = places.options(config.durability).create(!config.use_existing_db).runtime(runtime.clone());
    Ok(block_on(Store::open(options))?)
}

fn print_stats(stats: &Stats, since: &Activity) {
    println!("{RULE}");
    println!(
        "keys {} live {} bytes of {} index {} bytes cache {} bytes claims {}",
        stats.keys,
        stats.live_bytes,
        stats.user_limit_bytes,
        stats.index_bytes,
        stats.cache_bytes,
        stats.claims
    );
    for tier in &stats.tiers {
        println!(
            "tier {} {} free of {} segments, live {} bytes",
            tier.name, tier.segments_free, tier.segments_total, tier.live_bytes
        );
    }
    let now = &stats.activity;
    let rows = [
        ("puts", now.puts - since.puts),
        ("deletes", now.deletes - since.deletes),
        ("user bytes", now.user_bytes - since.user_bytes),
        ("lane bytes", now.lane_bytes - since.lane_bytes),
        ("relocated bytes", now.relocated_bytes - since.relocated_bytes),
        ("padding bytes", now.padding_bytes - since.padding_bytes),
        ("summary bytes", now.summary_bytes - since.summary_bytes),
        ("flushes", now.flushes - since.flushes),
        ("memory hits", now.memory_hits - since.memory_hits),
        ("cache hits", now.cache_hits - since.cache_hits),
        ("device reads", now.device_reads - since.device_reads),
        ("segments freed", now.segments_freed - since.segments_freed),
        ("stalls", now.stalls - since.stalls),
        ("stall us", now.stall_us - since.stall_us),
    ];
    for (name, value) in rows {
        println!("{name:<16} {value}");
    }
    let written = rows[3].1 + rows[4].1 + rows[5].1 + rows[6].1;
    println!(
        "write amplification {:.3} (bytes to devices by user bytes)",
        written as f64 / rows[2].1.max(1) as f64
    );
    println!("{RULE}");
}
