//! Runs one round after the other: data sets, the engines in turn on each, the steps of each.

use esker_bench::{Failure, Result, println};

use crate::arguments::Arguments;
use crate::contest::command_line::{self, Line};
use crate::contest::engine::{self, Engine};
use crate::contest::plan::{self, Benchmark, Group, Step};
use crate::network;
use crate::prepare::prepare;
use crate::results::record::{Measured, Record, Records};
use crate::results::{charts, report};
use crate::run::comparison::Comparison;
use crate::run::space::SpaceWatch;
use crate::run::{child, machine, parse};

/// Measures, and writes the report.
pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let comparison = prepare(arguments)?;
    let settings = format!("{:?}\n", comparison.sizes);
    let mut records = Records::open(&comparison.out, &settings, arguments.resume)?;
    for repetition in 1..=comparison.repetitions {
        for group in plan::groups(&comparison.sizes, repetition) {
            if !comparison.wants(group.name) {
                continue;
            }
            for engines in engine::turns(&comparison.engines) {
                turn(&comparison, &mut records, &group, &engines, repetition)?;
                write(&comparison, &records)?;
            }
        }
        if comparison.wants_network() {
            network::measure(&comparison, &mut records, repetition)?;
            write(&comparison, &records)?;
        }
    }
    write(&comparison, &records)?;
    // Only a directory made here, and only if it is empty.
    let _ = std::fs::remove_dir(&comparison.dir);
    println!("{}", comparison.out.join("report.md").display());
    outcome(&records.all)
}

fn write(comparison: &Comparison, records: &Records) -> Result<()> {
    report::write(comparison, &records.all)?;
    charts::write(&comparison.out, &records.all, &comparison.engines)
}

/// Returns a failure if a step failed or if nothing was measured. The report is written in any case.
fn outcome(records: &[Record]) -> Result<()> {
    let failed = records.iter().filter(|record| record.failed.is_some()).count();
    match (failed, records.len()) {
        (0, 0) => Err(Failure::Failed("nothing was measured".into())),
        (0, _) => Ok(()),
        (failed, all) => Err(Failure::Failed(format!("{failed} of {all} steps failed; the report says why"))),
    }
}

/// Runs all steps of a data set on some engines, each step on all of them.
fn turn(
    comparison: &Comparison,
    records: &mut Records,
    group: &Group,
    engines: &[Engine],
    repetition: u64,
) -> Result<()> {
    let directory = |engine: Engine| comparison.dir.join(engine.name());
    let json = comparison.dir.join("figures.json");
    let mut lines: Vec<(&Step, Engine, Line)> = Vec::new();
    for (step, engine) in group.steps.iter().flat_map(|step| engines.iter().map(move |e| (step, *e))) {
        let (sizes, programs) = (&comparison.sizes, &comparison.programs);
        let line = command_line::line(engine, step, sizes, programs, &directory(engine), &json);
        lines.extend(line.map(|line| (step, engine, line)));
    }
    if lines.iter().all(|(step, engine, _)| records.has(repetition, step.name, engine.name())) {
        return Ok(());
    }
    for engine in engines {
        records.forget(repetition, group.name, engine.name())?;
        machine::remove(&directory(*engine))?;
    }
    // Engines whose data set is missing after a failed step.
    let mut out: Vec<Engine> = Vec::new();
    for (step, engine, line) in lines {
        if out.contains(&engine) {
            continue;
        }
        if step.fresh || engine == Engine::Raw {
            machine::remove(&directory(engine))?;
            machine::make(&directory(engine))?;
        }
        let _ = std::fs::remove_file(&json);
        let record = measure(comparison, group, step, engine, &line, repetition)?;
        if record.failed.is_some() && step.fresh {
            out.push(engine);
        }
        records.push(record)?;
    }
    engines.iter().try_for_each(|engine| machine::remove(&directory(*engine)))
}

/// Runs one step on one engine.
fn measure(
    comparison: &Comparison,
    group: &Group,
    step: &Step,
    engine: Engine,
    line: &Line,
    repetition: u64,
) -> Result<Record> {
    comparison.machine.drop_caches();
    let minutes = comparison.began.elapsed().as_secs() / 60;
    eprintln!("{minutes:>4} min  round {repetition}  {:<12} {}", step.name, engine.name());
    let limit = comparison.limit()?;
    let label = format!("{}-{}-{repetition}.txt", step.name, engine.name());
    let log = comparison.out.join("logs").join(label);
    let watch = SpaceWatch::start(&comparison.dir.join(engine.name()));
    let output = child::run(&line.program, &line.words, limit.as_ref(), &log)?;
    let space_bytes = watch.most_bytes();
    let (latencies, store) = line.json.as_deref().map(parse::figures).unwrap_or_default();
    let mut runs: Vec<Measured> =
        output.runs.into_iter().map(|(run, usage)| Measured { run, usage }).collect();
    // The JSON has finer latencies than the printed histogram.
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
        space_bytes,
        keys: step.num,
        user_bytes_per_put: 16 + step.value_bytes,
        put_share: put_share(step),
        in_flight: step.in_flight,
        warnings: output.warnings,
        failed,
        store,
    })
}

/// Returns the share of puts in the operations of the benchmark that counts.
fn put_share(step: &Step) -> f64 {
    match step.benchmarks.iter().rfind(|benchmark| **benchmark != Benchmark::Settle) {
        Some(Benchmark::Fill | Benchmark::FillEach | Benchmark::Overwrite | Benchmark::Popular) => 1.0,
        Some(Benchmark::Mixed) => 1.0 - step.read_percent.unwrap_or(90) as f64 / 100.0,
        _ => 0.0,
    }
}
