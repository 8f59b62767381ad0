//! Runs one benchmark after the other on one store.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::thread;
use std::time::{Duration, Instant};

use esker_device::{Runtime, Threads, block_on};
use esker_engine::{Activity, Stats, Store};
use serde_json::Value;

use super::command_line::benchmark::{Benchmark, Chore, Order, Step, Work};
use super::command_line::config::{Config, ValueSize};
use super::mixgraph::Model;
use super::prepare;
use super::print::measure::{Outcome, repeated, so_far};
use super::print::watch::{Extent, ReportFile, Watch};
use super::print::{head, json, stats};
use super::raw::RawFile;
use super::shared::Shared;
use super::source::counted;
use super::threads;
use crate::instruments::failure::{Failure, Result};
use crate::instruments::progress;
use crate::workload::Values;

/// Time without relocation after which background work counts as ended.
const RESTED: Duration = Duration::from_secs(2);

/// A store, and the results measured on it.
pub(crate) struct Session {
    config: Config,
    model: Model,
    store: Store,
    runtime: Arc<dyn Runtime>,
    /// The activity at the last reset of the statistics.
    since: Activity,
    report: Option<ReportFile>,
    /// Number of operations of all benchmarks so far.
    done: Arc<AtomicU64>,
    runs: Vec<Value>,
    raw: Option<RawFile>,
    turns: u64,
    /// True if the store was not written since it was opened, so that it need not be made anew.
    untouched: bool,
    /// True if nothing is printed on stdout.
    is_quiet: bool,
}

impl Session {
    /// Opens the store, and prints the head unless the session is quiet.
    pub(crate) fn begin(config: Config, model: Model, notes: &[String], is_quiet: bool) -> Result<Session> {
        notes.iter().for_each(|note| eprintln!("note: {note}"));
        let runtime: Arc<dyn Runtime> =
            Threads::new(2).map_err(|error| Failure::failed("threads for background work", error))?;
        let store = open(&config, &runtime)?;
        prepare::check(&config, &store)?;
        let done = Arc::new(AtomicU64::new(0));
        let report = ReportFile::begin(&config, done.clone())?;
        if !config.use_existing_db && !store.is_empty() {
            // As db_bench, which destroys an existing store unless a flag asks to use it.
            block_on(store.clear())?;
        }
        let session = Session {
            config,
            model,
            store,
            runtime,
            since: Activity::default(),
            report,
            done,
            runs: Vec::new(),
            raw: None,
            turns: 0,
            untouched: true,
            is_quiet,
        };
        if !is_quiet {
            head::print(&session.config, &session.store);
        }
        Ok(session)
    }

    /// Runs all steps, closes the store, and writes the JSON. Returns the results.
    pub(crate) fn run(mut self, steps: &[Step]) -> Result<Vec<Value>> {
        for step in steps {
            match step {
                Step::Chore(chore) => self.chore(*chore)?,
                Step::Run { benchmark, times, warm_ups } => self.repeat(benchmark, *times, *warm_ups)?,
            }
        }
        if self.config.statistics {
            self.chore(Chore::Stats)?;
        }
        let stats = self.store.stats();
        block_on(self.store.close())?;
        if let Some(report) = self.report.take() {
            report.end()?;
        }
        self.json(&stats)
    }

    fn print(&mut self, outcome: &Outcome, benchmark: &Benchmark) {
        self.runs.push(outcome.json());
        if self.is_quiet {
            return;
        }
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
    }

    /// Runs a benchmark the requested number of times, with each of its steps if it has some.
    fn repeat(&mut self, benchmark: &Benchmark, times: u64, warm_ups: u64) -> Result<()> {
        let mut steps: Vec<_> = self.config.pressure_mb.iter().copied().map(Some).collect();
        if !benchmark.steps {
            steps = vec![None];
        }
        for step in steps {
            if warm_ups > 0 {
                println!("Warming up benchmark by running {warm_ups} times");
            }
            for _ in 0..warm_ups {
                println!("{}", self.once(benchmark, step)?.line());
            }
            if times > 1 {
                println!("Running benchmark for {times} times");
            }
            let mut outcomes = Vec::new();
            for _ in 0..times {
                let outcome = self.once(benchmark, step)?;
                self.print(&outcome, benchmark);
                outcomes.push(outcome);
                if let Some(line) = so_far(&outcomes[0].name, &outcomes) {
                    println!("{line}");
                }
            }
            if times > 1 {
                println!("{}", repeated(&outcomes[0].name, &outcomes));
            }
        }
        Ok(())
    }

    /// Runs a benchmark, or one step of it, with progress output.
    fn once(&mut self, benchmark: &Benchmark, step: Option<u64>) -> Result<Outcome> {
        // Preparations are not part of the progress output.
        if benchmark.fresh && !self.config.use_existing_db && !self.untouched {
            self.begin_again()?;
        }
        if matches!(benchmark.work, Work::Raw(_) | Work::RawPressure) {
            self.raw_file()?;
        }
        let extent = self.extent(benchmark);
        let bar = progress::bar(benchmark.name, extent.length());
        let _watch = Watch::begin(self.config.stats_interval, extent, bar, self.done.clone());
        match step {
            Some(megabytes) => self.pressure(benchmark, megabytes),
            None => self.benchmark(benchmark),
        }
    }

    /// Runs one reader while writers write `megabytes` megabytes per second.
    fn pressure(&mut self, benchmark: &Benchmark, megabytes: u64) -> Result<Outcome> {
        let name = format!("{} {megabytes} MB/s", benchmark.name);
        if benchmark.work == Work::RawPressure {
            let (config, runtime, done) = (self.config.clone(), self.runtime.clone(), self.done.clone());
            return self.raw_file()?.pressure(name, megabytes, &config, &*runtime, &done);
        }
        let mut config = self.config.clone();
        config.write_limit = Some(megabytes << 20);
        config.duration = Some(config.pressure_step);
        config.threads = 1;
        let writers = if megabytes == 0 { 0 } else { benchmark.beside_writers };
        let step = Benchmark { beside_writers: writers, ..*benchmark };
        Ok(Outcome { name, ..self.measure(&step, config)? })
    }

    /// Returns the file of the raw benchmarks, which is made for the first of them.
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
                    (did.relocated_bytes, did.segments_freed, did.overwrites_verified)
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
        if let Work::Raw(raw) = benchmark.work {
            let config = self.config.clone();
            let done = self.done.clone();
            return self.raw_file()?.measure(benchmark.name, raw, &config, &done);
        }
        let mut config = self.config.clone();
        benchmark.fix_lengths(&mut config);
        if benchmark.fixed {
            (config.key_size, config.value_size, config.readwritepercent) = (16, ValueSize::Fixed(4096), 70);
        }
        if let Some(shape) = benchmark.shape {
            (config.key_size, config.value_size) = (16, ValueSize::Fixed(shape.value_bytes));
            (config.threads, config.queue_depth) = (shape.threads, shape.queue_depth);
            // As many operations in total as without the eight threads.
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
            values: Values::compressible(self.config.seed, self.config.compression_ratio),
            model: self.model.clone(),
            done: self.done.clone(),
            inserted: AtomicU64::new(config.num),
            over: AtomicBool::new(false),
        });
        threads::measure(&shared)
    }

    /// Returns the duration of a benchmark, or its approximate number of operations.
    fn extent(&self, benchmark: &Benchmark) -> Extent {
        let config = &self.config;
        if benchmark.steps {
            return Extent::Time(config.pressure_step);
        }
        if let Some(duration) = config.duration.filter(|_| !counted(benchmark.work)) {
            return Extent::Time(duration);
        }
        Extent::Operations(match benchmark.work {
            Work::Fill(Order::Unique) => config.writes.min(config.num),
            Work::Fill(_) => config.threads * config.writes,
            Work::Delete(_) => config.threads * config.deletes,
            _ => config.threads * config.reads,
        })
    }

    /// Empties the store: deletes the files in its directory, or all keys if it lies elsewhere.
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

    /// Writes the JSON, if it was requested.
    fn json(self, stats: &Stats) -> Result<Vec<Value>> {
        let Some(path) = &self.config.json else { return Ok(self.runs) };
        let text = format!("{:#}\n", json::all(&self.config, &self.runs, stats));
        match path.as_str() {
            "-" | "1" | "true" => print!("{text}"),
            path => std::fs::write(path, text)
                .map_err(|error| Failure::failed(&format!("writing --json={path}"), error))?,
        }
        Ok(self.runs)
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
    let options = places
        .options(config.durability)
        .compression(config.compression)
        .create(!config.use_existing_db)
        .runtime(runtime.clone());
    Ok(block_on(Store::open(options))?)
}
