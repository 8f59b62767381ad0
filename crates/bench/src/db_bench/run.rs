//! One benchmark after the other on one store.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use esker_device::{Runtime, Threads, block_on};
use esker_engine::{Activity, Stats, Store};
use serde_json::{Value, json};

use super::benchmark::{Benchmark, Chore, Order, Step, Work};
use super::clients::{self, Shared};
use super::config::{Config, ValueSize};
use super::measure::{Counts, Outcome, average};
use super::mixgraph::Model;
use super::prepare;
use super::raw::RawFile;
use super::source::Role;
use super::stats::{self, RULE};
use super::watch::{ReportFile, Watch};
use crate::failure::{Failure, Result};
use crate::process::cpu_seconds;
use crate::progress;
use crate::workload::Values;
use crate::{durability, process};

/// Background work rests when nothing was moved for so long.
const RESTED: Duration = Duration::from_secs(2);

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
    raw: Option<RawFile>,
    turns: u64,
    /// Nothing was written since the store was opened, so it need not be made anew.
    untouched: bool,
}

impl Session {
    /// Opens the store and prints what will be measured on it.
    pub(crate) fn begin(config: Config, model: Model, notes: &[String]) -> Result<Session> {
        notes.iter().for_each(|note| eprintln!("note: {note}"));
        let runtime: Arc<dyn Runtime> =
            Threads::new(2).map_err(|error| Failure::failed("threads for background work", error))?;
        let store = open(&config, &runtime)?;
        prepare::check(&config, &store)?;
        let report = ReportFile::new(&config)?;
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
            raw: None,
            turns: 0,
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
                Step::Run { benchmark, .. } if benchmark.steps => self.pressure(benchmark)?,
                Step::Run { benchmark, times, warm_ups } => {
                    let mut outcomes = Vec::new();
                    for turn in 0..warm_ups + times {
                        let outcome = self.benchmark(benchmark)?;
                        if turn < *warm_ups {
                            continue;
                        }
                        self.print(&outcome, benchmark);
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
        let stats = self.store.stats();
        block_on(self.store.close())?;
        self.json(&stats)
    }

    fn print(&mut self, outcome: &Outcome, benchmark: &Benchmark) {
        println!("{}", outcome.line());
        if self.config.histogram {
            print!("{}", outcome.histograms());
        }
        let whole = benchmark.fixed || benchmark.shape.is_some();
        if whole || benchmark.steps {
            print!("{}", outcome.quality());
        }
        if whole {
            println!(
                "since the store was opened, at the store and at the devices:\n{}",
                self.store.latencies()
            );
            stats::print(&self.store.stats(), &self.since);
        }
        self.runs.push(outcome.json());
    }

    /// One reader while writers write more and more.
    fn pressure(&mut self, benchmark: &Benchmark) -> Result<()> {
        for megabytes in self.config.pressure_mb.clone() {
            if benchmark.work == Work::RawPressure {
                let name = format!("{} {megabytes} MB/s", benchmark.name);
                let (config, runtime) = (self.config.clone(), self.runtime.clone());
                let outcome = self.raw_file()?.pressure(name, megabytes, &config, &*runtime)?;
                self.print(&outcome, benchmark);
                continue;
            }
            let mut config = self.config.clone();
            config.write_limit = Some(megabytes << 20);
            config.duration = Some(config.pressure_step);
            config.threads = 1;
            let writers = if megabytes == 0 { 0 } else { benchmark.beside_writers };
            let step = Benchmark { beside_writers: writers, ..*benchmark };
            let mut outcome = self.measure(&step, config)?;
            outcome.name = format!("{} {megabytes} MB/s", benchmark.name);
            self.print(&outcome, benchmark);
        }
        Ok(())
    }

    /// The file of the raw benchmarks, which is made for the first of them.
    fn raw_file(&mut self) -> Result<&RawFile> {
        let file = match self.raw.take() {
            Some(file) => file,
            None => RawFile::make(&self.config)?,
        };
        Ok(self.raw.insert(file))
    }

    fn chore(&mut self, chore: Chore) -> Result<()> {
        match chore {
            Chore::Flush => block_on(self.store.flush())?,
            Chore::ResetStats => self.since = self.store.stats().activity,
            Chore::Stats => stats::print(&self.store.stats(), &self.since),
            Chore::Settle => {
                let began = Instant::now();
                block_on(self.store.flush())?;
                let moved = || {
                    let did = self.store.stats().activity;
                    (did.relocated_bytes, did.segments_freed, did.claims_settled)
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
        if let Work::Raw(raw) = benchmark.work {
            let config = self.config.clone();
            return self.raw_file()?.measure(benchmark.name, raw, &config);
        }
        let mut config = self.config.clone();
        benchmark.fix_lengths(&mut config);
        if benchmark.fixed {
            (config.key_size, config.value_size, config.readwritepercent) = (16, ValueSize::Fixed(4096), 70);
        }
        if let Some(shape) = benchmark.shape {
            (config.key_size, config.value_size) = (16, ValueSize::Fixed(shape.value_bytes));
            (config.threads, config.queue_depth) = (shape.threads, shape.queue_depth);
            // As many operations in all as without the eight threads.
            config.writes = config.writes.div_ceil(shape.threads);
        }
        self.measure(benchmark, config)
    }

    /// Runs the threads of one benchmark.
    fn measure(&mut self, benchmark: &Benchmark, config: Config) -> Result<Outcome> {
        self.untouched = false;
        self.turns += 1;
        let shared = Arc::new(Shared {
            config: config.clone(),
            turn: self.turns,
            benchmark: *benchmark,
            store: self.store.clone(),
            runtime: self.runtime.clone(),
            values: Values::new(self.config.seed),
            model: self.model.clone(),
            done: AtomicU64::new(0),
            inserted: AtomicU64::new(config.num),
            over: AtomicBool::new(false),
        });
        let began = Instant::now();
        let cpu_before = cpu_seconds();
        let until = config.duration.map(|duration| began + duration);
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
        let threads: Vec<_> = (0..config.threads).map(|index| spawn(index, Role::Measured)).collect();
        let writers = config.threads..config.threads + benchmark.beside_writers;
        let beside: Vec<_> = writers.map(|index| spawn(index, Role::BesideWriter)).collect();
        let mut watch = Watch::new(&config, progress::bar(benchmark.name, self.expected(benchmark)));
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
        if !config.finish_after_writes {
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
            Work::Read { .. } | Work::Update | Work::ReadWrite | Work::Ycsb(_) => {
                format!("({} of {} found)", counts.found, counts.reads)
            }
            _ => String::new(),
        };
        let (mut wrote, mut longest) = (Counts::default(), Duration::ZERO);
        for beside in beside {
            let (did, took) = beside.join().map_err(bug)?;
            wrote.add(&did?);
            longest = longest.max(took);
        }
        if benchmark.beside_writers > 0 {
            let rate = wrote.bytes as f64 / 1048576.0 / longest.as_secs_f64().max(1e-9);
            message = format!("{message} (writers beside: {} puts, {rate:.1} MB/s)", wrote.operations);
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
        prepare::remove_files(&places.db)?;
        self.store = open(&self.config, &self.runtime)?;
        self.since = Activity::default();
        Ok(())
    }

    fn json(self, stats: &Stats) -> Result<()> {
        let Some(path) = &self.config.json else { return Ok(()) };
        let tiers: Vec<_> = stats
            .tiers
            .iter()
            .map(|tier| {
                let of = &tier.operations;
                json!({
                    "name": tier.name,
                    "submitted": of.submitted(),
                    "completed": of.completed(),
                    "reads": of.reads,
                    "read_bytes": of.read_bytes,
                    "writes": of.writes,
                    "write_bytes": of.write_bytes,
                    "flushes": of.flushes,
                    "discards": of.discards,
                    "system_calls": of.submit_calls,
                })
            })
            .collect();
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
            "store": {
                "keys": stats.keys,
                "live_bytes": stats.live_bytes,
                "user_limit_bytes": stats.user_limit_bytes,
                "index_bytes": stats.index_bytes,
                "cache_bytes": stats.cache_bytes,
                "puts": stats.activity.puts,
                "user_bytes": stats.activity.user_bytes,
                "memory_hits": stats.activity.memory_hits,
                "cache_hits": stats.activity.cache_hits,
                "device_reads": stats.activity.device_reads,
                "stall_us": stats.activity.stall_us,
                "write_amplification_per_user_byte": stats.write_amplification_per_user_byte(),
                "tiers": tiers,
            },
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
    if !config.use_existing_db {
        prepare::remove_other_shape(places, runtime)?;
    }
    let options = places.options(config.durability).create(!config.use_existing_db).runtime(runtime.clone());
    Ok(block_on(Store::open(options))?)
}
