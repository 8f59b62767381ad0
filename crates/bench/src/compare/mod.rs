//! `esker-bench compare`: the same workload here and on others, in alternation, with a report.
//!
//! 1. `plan` says which data sets there are and which steps on each; `engine` makes the command line of a step for each
//!    contestant. They all take db_bench's flags and print db_bench's lines, which `parse` reads.
//! 2. Every step is a process of its own (`child`) in a control group that limits its memory, page cache included
//!    (`cgroup`); what it took of the machine is what Linux says of the process (`usage`).
//! 3. A repetition goes through the data sets, and for each through the engines, so that they take turns. Before each the
//!    directory is empty and caches are dropped; after it the directory is removed.
//! 4. Every step is written to `records.jsonl` (`record`), and the report (`goals`, `report`, `charts`) is written anew,
//!    so that an interrupted run keeps what it has and `--resume` goes on.

mod cgroup;
mod charts;
mod child;
mod engine;
mod goals;
mod machine;
mod network;
mod parse;
mod plan;
mod record;
mod report;
mod rivals;
mod usage;

pub(crate) use self::report::short;

use std::collections::BTreeMap;
use std::fmt::Display;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::Instant;

use rustix::fs::FlockOperation;
use rustix::io::Errno;

use self::cgroup::Group as Limit;
use self::engine::{Engine, Line, Programs};
use self::machine::Machine;
use self::parse::Latency;
use self::plan::{Benchmark, Group, Sizes, Step};
use self::record::{Measured, Record, Records};
use crate::failure::{Failure, Result};
use crate::size;

/// Options of `esker-bench compare`.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct Arguments {
    /// Who takes part: esker, esker-two-tier, esker-fast, rocksdb, blobdb, fjall, redb, sled, redis, raw.
    #[arg(
        long,
        value_name = "NAMES",
        default_value = "esker,esker-two-tier,esker-fast,rocksdb,blobdb,raw",
        value_delimiter = ','
    )]
    with: Vec<String>,
    /// What is measured: load, data (gets, 70/30, write pressure, overwrites), sync, small, hits, network [default: all].
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    only: Vec<String>,
    /// quick is a look at whether it works; goals is what the goals are measured with.
    #[arg(long, value_name = "NAME", default_value = "goals", value_parser = ["quick", "goals"])]
    preset: String,
    /// How often everything is measured; the report has the medians.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=99))]
    repetitions: Option<u64>,
    /// Keys and values of the data set of 4 KiB values; the others are in proportion [default: 8g].
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    data_bytes: Option<u64>,
    /// Memory of each engine, page cache included.
    #[arg(long, value_name = "SIZE", default_value = "512m", value_parser = size::parse)]
    memory: u64,
    /// How long gets, 70/30, synced puts and each step of write pressure last [default: 30].
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..))]
    duration: Option<u64>,
    /// How full Esker is, in percent of what users may fill.
    #[arg(long, value_name = "PERCENT", default_value_t = 75, value_parser = clap::value_parser!(u64).range(5..=95))]
    fill: u64,
    /// MB/s of the writers in the steps of write pressure.
    #[arg(long, value_name = "NUMBERS", default_value = "0,20,40,80", value_delimiter = ',')]
    pressure_mb: Vec<u64>,
    /// Where the report goes.
    #[arg(long, value_name = "DIR", default_value = "esker-compare")]
    out: PathBuf,
    /// Where the engines keep their data while they are measured: on the disk that is to be measured [default: OUT]; below it in
    /// esker-compare-data.
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Keep what an earlier run of the same settings measured, and measure the rest.
    #[arg(long)]
    resume: bool,
    /// RocksDB's db_bench.
    #[arg(long, value_name = "PATH", default_value = "db_bench")]
    db_bench: PathBuf,
    /// The package with the Rust engines, which is built when one of them takes part.
    #[arg(long, value_name = "DIR", default_value = "rivals")]
    rivals: PathBuf,
    /// The program that serves, for network [default: `esker` beside this one].
    #[arg(long, value_name = "PATH")]
    esker: Option<PathBuf>,
}

/// Everything that the steps share.
struct Comparison {
    sizes: Sizes,
    repetitions: u64,
    engines: Vec<Engine>,
    only: Vec<String>,
    programs: Programs,
    dir: PathBuf,
    out: PathBuf,
    machine: Machine,
    /// Held until the end.
    _lock: File,
    began: Instant,
}

/// Measures, and writes the report.
pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let mut comparison = Comparison::of(arguments)?;
    let settings = format!("{:?}\n", comparison.sizes);
    let mut records = Records::open(&comparison.out, &settings, arguments.resume)?;
    for repetition in 1..=comparison.repetitions {
        for group in plan::groups(&comparison.sizes, repetition) {
            if !comparison.wants(group.name) {
                continue;
            }
            for turn in engine::turns(&comparison.engines) {
                comparison.turn(&mut records, &group, &turn, repetition)?;
                comparison.report(&records)?;
            }
        }
        if comparison.wants_network() {
            network::measure(&comparison, &mut records, repetition)?;
            comparison.report(&records)?;
        }
    }
    comparison.report(&records)?;
    // Only what was made here, and only if it is empty.
    let _ = std::fs::remove_dir(&comparison.dir);
    println!("{}", comparison.out.join("report.md").display());
    outcome(&records.all)
}

/// A step that failed is a failure of all, and so is a call that measured nothing; the report is there nevertheless.
fn outcome(records: &[Record]) -> Result<()> {
    let failed = records.iter().filter(|record| record.failed.is_some()).count();
    match (failed, records.len()) {
        (0, 0) => Err(Failure::Failed("nothing was measured".into())),
        (0, _) => Ok(()),
        (failed, all) => Err(Failure::Failed(format!("{failed} of {all} steps failed; the report says why"))),
    }
}

impl Comparison {
    fn of(arguments: &Arguments) -> Result<Comparison> {
        let quick = arguments.preset == "quick";
        let sizes = Sizes {
            data_bytes: arguments.data_bytes.unwrap_or(if quick { 128 << 20 } else { 8 << 30 }),
            memory_bytes: arguments.memory,
            seconds: arguments.duration.unwrap_or(if quick { 2 } else { 30 }),
            pressure_mb: arguments.pressure_mb.clone(),
            fill_percent: arguments.fill,
        };
        let engines = arguments.with.iter().map(|name| Engine::parse(name).map_err(Failure::Usage));
        let mut engines = engines.collect::<Result<Vec<_>>>()?;
        let known: Vec<&str> = plan::GROUPS.into_iter().chain(["network"]).collect();
        if let Some(name) = arguments.only.iter().find(|name| !known.contains(&name.as_str())) {
            return Err(Failure::usage(format!(
                "--only: '{name}' is not measured; there are {}",
                known.join(", ")
            )));
        }
        let out = absolute(&arguments.out)?;
        // Below a directory of our own, since it is emptied.
        let parent = absolute(arguments.dir.as_ref().unwrap_or(&arguments.out))?;
        let dir = parent.join("esker-compare-data");
        let lock = lock(&parent)?;
        // What an interrupted run left.
        machine::remove(&dir)?;
        for made in [&out, &out.join("logs"), &dir] {
            std::fs::create_dir_all(made)
                .map_err(|error| Failure::usage(format!("making {}: {error}", made.display())))?;
        }
        let free =
            rustix::fs::statvfs(&dir).map_err(|error| Failure::failed(&dir.display().to_string(), error))?;
        let (free, needed) = (free.f_bavail * free.f_frsize, sizes.disk_bytes());
        if free < needed {
            return Err(Failure::usage(format!(
                "{} has {} MiB free, and engines may need {} at once; give --dir or smaller --data-bytes",
                dir.display(),
                free >> 20,
                needed >> 20
            )));
        }
        let mut machine = Machine::look(&dir);
        let this = this_program()?;
        let programs = Programs {
            server: arguments.esker.clone().unwrap_or_else(|| this.0.with_file_name("esker")),
            esker: this,
            db_bench: arguments.db_bench.clone(),
            rivals: rivals::build(&arguments.rivals, &mut engines, &mut machine)?,
        };
        if engines.iter().any(|engine| matches!(engine, Engine::RocksDb | Engine::BlobDb)) {
            match machine::db_bench_version(&programs.db_bench) {
                Some(version) => machine.versions.push(version),
                None => {
                    machine.note(format!(
                        "LEFT OUT: rocksdb and blobdb, since {} cannot be run (Debian has it in rocksdb-tools)",
                        programs.db_bench.display()
                    ));
                    engines.retain(|engine| !matches!(engine, Engine::RocksDb | Engine::BlobDb));
                }
            }
        }
        if engines.contains(&Engine::Redis) {
            match machine::said("redis-server", &["--version"]) {
                Some(version) => machine.versions.push(version),
                None => {
                    machine.note("LEFT OUT: redis, since redis-server cannot be run".into());
                    engines.retain(|engine| *engine != Engine::Redis);
                }
            }
        }
        match Limit::of_this_process(sizes.memory_bytes) {
            Ok(limit) => machine.limit = Some(limit.describe()),
            Err(why) => machine.note(format!(
                "MEMORY IS NOT LIMITED: {why}. Engines that lean on the page cache have all of the machine's memory, and \
                 these figures do not compare at equal memory. Run as root, or in a group that may make others"
            )),
        }
        Ok(Comparison {
            sizes,
            repetitions: arguments.repetitions.unwrap_or(if quick { 1 } else { 3 }),
            engines,
            only: arguments.only.clone(),
            programs,
            dir,
            out,
            machine,
            _lock: lock,
            began: Instant::now(),
        })
    }

    fn wants(&self, group: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|name| name == group)
    }

    /// With redis-server, or when it is asked for.
    fn wants_network(&self) -> bool {
        self.wants("network") && (!self.only.is_empty() || self.engines.contains(&Engine::Redis))
    }

    /// All steps of a data set on some engines, each step on all of them.
    fn turn(
        &mut self,
        records: &mut Records,
        group: &Group,
        engines: &[Engine],
        repetition: u64,
    ) -> Result<()> {
        let json = self.dir.join("figures.json");
        let mut lines: Vec<(&Step, Engine, Line)> = Vec::new();
        for (step, engine) in group.steps.iter().flat_map(|step| engines.iter().map(move |e| (step, *e))) {
            let dir = self.dir.join(engine.name());
            let line = engine::line(engine, step, &self.sizes, &self.programs, &dir, &json);
            lines.extend(line.map(|line| (step, engine, line)));
        }
        if lines.iter().all(|(step, engine, _)| records.has(repetition, step.name, engine.name())) {
            return Ok(());
        }
        for engine in engines {
            records.forget(repetition, group.name, engine.name());
            machine::remove(&self.dir.join(engine.name()))?;
        }
        // Those that have no data set to go on with.
        let mut out: Vec<Engine> = Vec::new();
        for (step, engine, line) in lines {
            if out.contains(&engine) {
                continue;
            }
            if step.fresh || engine == Engine::Raw {
                let dir = self.dir.join(engine.name());
                machine::remove(&dir)?;
                machine::make(&dir)?;
            }
            let _ = std::fs::remove_file(&json);
            let record = self.measure(group, step, engine, &line, repetition)?;
            if record.failed.is_some() && step.fresh {
                out.push(engine);
            }
            records.push(record)?;
        }
        engines.iter().try_for_each(|engine| machine::remove(&self.dir.join(engine.name())))
    }

    /// One step on one engine.
    fn measure(
        &mut self,
        group: &Group,
        step: &Step,
        engine: Engine,
        line: &Line,
        repetition: u64,
    ) -> Result<Record> {
        self.machine.drop_caches();
        let minutes = self.began.elapsed().as_secs() / 60;
        eprintln!("{minutes:>4} min  round {repetition}  {:<12} {}", step.name, engine.name());
        let limit = self.limit()?;
        let label = format!("{}-{}-{repetition}.txt", step.name, engine.name());
        let log = self.out.join("logs").join(label);
        let output = child::run(&line.program, &line.words, limit.as_ref(), &log)?;
        let (latencies, store) = line.json.as_deref().map(figures).unwrap_or_default();
        let mut runs: Vec<Measured> =
            output.runs.into_iter().map(|(run, usage)| Measured { run, usage }).collect();
        // Its own figures are finer than the histogram that it prints.
        for (measured, latency) in runs.iter_mut().zip(latencies) {
            measured.run.latency_us = latency;
        }
        let missing = runs.is_empty().then(|| "it printed no figures".to_owned());
        let failed = output.failed.or(missing);
        if let Some(why) = &failed {
            eprintln!("          {} on {} failed: {why}; see {}", step.name, engine.name(), log.display());
        }
        Ok(Record {
            repetition,
            group: group.name.into(),
            step: step.name.into(),
            engine: engine.name().into(),
            command: child::typed(&line.program, &line.words),
            runs,
            usage: output.usage,
            peak_bytes: output.peak_bytes,
            user_bytes_per_put: 16 + step.value_bytes,
            put_share: put_share(step),
            in_flight: step.in_flight,
            warnings: output.warnings,
            failed,
            store,
        })
    }

    /// A new group for the next process, so that its memory begins at nothing.
    fn limit(&self) -> Result<Option<Limit>> {
        if self.machine.limit.is_none() {
            return Ok(None);
        }
        let limit = Limit::of_this_process(self.sizes.memory_bytes);
        limit.map(Some).map_err(|why| Failure::Failed(format!("limiting memory, as before: {why}")))
    }

    fn report(&self, records: &Records) -> Result<()> {
        report::write(self, &records.all)?;
        charts::write(&self.out, &records.all, &self.engines)
    }
}

/// Share of puts in the operations of the benchmark that counts.
fn put_share(step: &Step) -> f64 {
    match step.benchmarks.iter().rfind(|benchmark| **benchmark != Benchmark::Settle) {
        Some(Benchmark::Fill | Benchmark::FillEach | Benchmark::Overwrite | Benchmark::Popular) => 1.0,
        Some(Benchmark::Mixed) => 1.0 - step.read_percent.unwrap_or(90) as f64 / 100.0,
        _ => 0.0,
    }
}

/// Locks the directory that the data lies in, so that no other run removes it. The lock ends with the process.
fn lock(parent: &Path) -> Result<File> {
    let named = |error: &dyn Display| Failure::usage(format!("{}: {error}", parent.display()));
    std::fs::create_dir_all(parent).map_err(|error| named(&error))?;
    let dir = File::open(parent).map_err(|error| named(&error))?;
    match rustix::fs::flock(&dir, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(dir),
        Err(error) if error == Errno::WOULDBLOCK => {
            Err(named(&"another comparison keeps its data here; give another --dir"))
        }
        Err(error) => Err(named(&error)),
    }
}

/// This program with the words that lead to the benchmarks.
fn this_program() -> Result<(PathBuf, Vec<String>)> {
    let program = std::env::current_exe().map_err(|error| Failure::failed("finding this program", error))?;
    let bench = program.file_name().is_some_and(|name| name == "esker");
    Ok((program, if bench { vec!["bench".into()] } else { Vec::new() }))
}

fn absolute(path: &Path) -> Result<PathBuf> {
    std::path::absolute(path).map_err(|error| Failure::failed(&path.display().to_string(), error))
}

/// Latencies of each run, and what the store said, from the JSON that a program wrote.
fn figures(path: &Path) -> (Vec<BTreeMap<String, Latency>>, Option<serde_json::Value>) {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let all: serde_json::Value = serde_json::from_str(&text).unwrap_or_default();
    let latency = |of: &serde_json::Value| Latency {
        count: of["count"].as_u64().unwrap_or(0),
        mean: of["mean"].as_f64().unwrap_or(0.0),
        max: of["max"].as_f64().unwrap_or(0.0),
        percentiles: of["percentiles"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(|pair| Some((pair[0].as_f64()?.to_string(), pair[1].as_f64()?)))
            .collect(),
    };
    let of_run = |run: &serde_json::Value| {
        let kinds = run["latency_us"].as_object().into_iter().flatten();
        kinds.map(|(kind, of)| (kind.clone(), latency(of))).collect()
    };
    let runs = all["runs"].as_array().into_iter().flatten().map(of_run).collect();
    (runs, all.get("store").cloned())
}
