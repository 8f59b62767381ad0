//! Writes `report.md` and `results.json`: medians, ratios to the goals, and the conditions of the
//! measurement.

use std::collections::BTreeSet;
use std::fmt::Write;

use esker_bench::{Failure, Result};
use serde_json::json;

use super::charts;
use super::goals::{self, Against, Goal, ROWS, Row, Spread};
use super::number::short;
use super::record::Record;
use crate::contest::command_line::POWER;
use crate::contest::engine::Engine;
use crate::contest::plan;
use crate::run::comparison::Comparison;

/// Rewrites both files.
pub(crate) fn write(comparison: &Comparison, records: &[Record]) -> Result<()> {
    for (name, text) in
        [("report.md", markdown(comparison, records)), ("results.json", results(comparison, records))]
    {
        let path = comparison.out.join(name);
        // A reader finds either the old or the new file.
        let beside = path.with_extension("new");
        std::fs::write(&beside, text)
            .and_then(|()| std::fs::rename(&beside, &path))
            .map_err(|error| Failure::failed(&format!("writing {}", path.display()), error))?;
    }
    Ok(())
}

fn cell(spread: Option<Spread>) -> String {
    match spread {
        None => "–".into(),
        Some(of) if of.count == 1 => short(of.median),
        Some(of) => format!("{} ({}–{})", short(of.median), short(of.least), short(of.most)),
    }
}

fn goal(row: &Row, goal: &Goal) -> String {
    let sign = if row.metric.less_is_better() { "≤" } else { "≥" };
    match goal.against {
        Against::Nothing => format!("{sign} {}", goal.bound),
        Against::Engine(other) => format!("{sign} {:.2} × {}", goal.bound, other.name()),
    }
}

fn markdown(comparison: &Comparison, records: &[Record]) -> String {
    let (engines, machine) = (&comparison.engines, &comparison.machine);
    let mut text = String::from("# Esker beside others\n\n");
    let made: BTreeSet<u64> = records.iter().map(|record| record.repetition).collect();
    let _ = writeln!(
        text,
        "{}. Rounds measured: {} of {}. Median of the rounds, least and most in parentheses. {} of memory for each engine, \
         page cache included{}.\n",
        machine.date,
        made.len(),
        comparison.repetitions,
        mib(comparison.sizes.memory_bytes),
        machine.limit.as_ref().map_or(", BUT NOT LIMITED".into(), |limit| format!(", held to by a {limit}")),
    );
    for note in &machine.notes {
        let _ = writeln!(text, "**{note}.**\n");
    }
    goals_table(&mut text, comparison, records);
    figures_table(&mut text, engines, records);
    survives(&mut text, engines);
    how(&mut text, comparison, records);
    lines(&mut text, records);
    text
}

fn mib(bytes: u64) -> String {
    format!("{} MiB", bytes >> 20)
}

fn goals_table(text: &mut String, comparison: &Comparison, records: &[Record]) {
    let Some(headline) = Engine::headline(&comparison.engines) else { return };
    let _ = writeln!(
        text,
        "## Goals\n\nOf `{}`, the configuration on one disk. Ratios are of medians.\n",
        headline.name()
    );
    if comparison.sizes.fits_in_memory() {
        let _ = writeln!(
            text,
            "**No goal is judged: {} of data fit in {} of memory, so gets are not reads of the device.**\n",
            mib(comparison.sizes.data_bytes),
            mib(comparison.sizes.memory_bytes)
        );
    }
    *text += "| what | goal | ratio | |\n|---|---|---|---|\n";
    for row in ROWS {
        for goal_of in row.goals {
            let (ratio, verdict) = match goals::verdict(records, row, goal_of, headline) {
                None => ("–".into(), "not measured"),
                Some(verdict) if comparison.sizes.fits_in_memory() => {
                    (format!("{:.2}", verdict.ratio), "not judged")
                }
                Some(verdict) if verdict.met => (format!("{:.2}", verdict.ratio), "met"),
                Some(verdict) => (format!("{:.2}", verdict.ratio), "**MISSED**"),
            };
            let _ = writeln!(text, "| {} | {} | {ratio} | {verdict} |", row.what, goal(row, goal_of));
        }
    }
    text.push('\n');
}

fn figures_table(text: &mut String, engines: &[Engine], records: &[Record]) {
    let names: Vec<_> = engines.iter().map(|engine| engine.name()).collect();
    let _ = writeln!(text, "## Figures\n\n| what | unit | {} |", names.join(" | "));
    let _ = writeln!(text, "|---|---|{}", "---|".repeat(engines.len()));
    for row in ROWS {
        let cells: Vec<_> =
            engines.iter().map(|engine| cell(goals::figures(records, row, *engine))).collect();
        if cells.iter().any(|cell| cell != "–") {
            let _ = writeln!(text, "| {} | {} | {} |", row.what, row.metric.unit(), cells.join(" | "));
        }
    }
    let peaks: Vec<_> = engines
        .iter()
        .map(|engine| {
            let of = records.iter().filter(|record| record.engine == engine.name());
            of.filter_map(|record| record.peak_bytes).max().map_or("–".into(), mib)
        })
        .collect();
    let _ = writeln!(text, "| most memory in use, page cache included | | {} |", peaks.join(" | "));
    text.push('\n');
    for chart in charts::names(records) {
        let _ = writeln!(text, "![{chart}]({chart})");
    }
    let failures: Vec<_> = records.iter().filter(|record| record.failed.is_some()).collect();
    if !failures.is_empty() {
        *text += "\n### What failed\n\n";
    }
    for record in failures {
        let why = record.failed.as_deref().unwrap_or("");
        let _ = writeln!(text, "* {} on {}, round {}: {why}", record.step, record.engine, record.repetition);
    }
}

fn survives(text: &mut String, engines: &[Engine]) {
    *text += "\n## What an acknowledged write survives\n\n| engine | not synced | synced |\n|---|---|---|\n";
    for engine in engines {
        let _ = writeln!(text, "| {} | {} | process crash and power cut |", engine.name(), engine.survives());
    }
    *text += "\nWrites are not synced but in the rows that say so.\n";
}

fn how(text: &mut String, comparison: &Comparison, records: &[Record]) {
    let (machine, sizes) = (&comparison.machine, &comparison.sizes);
    let _ = writeln!(
        text,
        "\n## How\n\n* Machine: {}, {}, {} of memory, data on {}.\n* Versions: {}.",
        machine.kernel,
        machine.cpu,
        mib(machine.memory_bytes),
        machine.disk,
        machine.versions.join(", ")
    );
    for group in plan::groups(sizes, 1).iter().filter(|group| comparison.wants(group.name)) {
        let _ = writeln!(text, "* {}: {}.", group.name, group.about);
    }
    if comparison.wants("network") && records.iter().any(|record| record.group == "network") {
        let _ = writeln!(
            text,
            "* network: {} keys of 4 KiB, which memory holds, SET and GET of keys drawn uniformly by redis-benchmark over 32 \
             connections without pipelining. redis-server with an append-only file that is not synced is compared with \
             durability `process`; both servers have the memory limit, redis-benchmark is outside of it.",
            sizes.hit_keys()
        );
    }
    conditions(text, comparison);
    let warnings: BTreeSet<_> = records
        .iter()
        .flat_map(|r| r.warnings.iter().map(move |warning| (r.engine.as_str(), warning)))
        .collect();
    for (engine, warning) in warnings {
        let _ = writeln!(text, "* **{engine} warns of itself: {warning}.**");
    }
    let _ = writeln!(text, "* Hardware counters: {}.", machine.counters);
    text.push('\n');
}

/// Writes the conditions of all measurements.
fn conditions(text: &mut String, comparison: &Comparison) {
    let (machine, sizes) = (&comparison.machine, &comparison.sizes);
    let caches = if machine.caches_dropped {
        "caches are dropped"
    } else {
        "caches CANNOT BE DROPPED (that needs root)"
    };
    let _ = writeln!(
        text,
        "* The engines take turns, and each step is a process of its own; before it everything is synced and {caches}. An \
         engine's directory is made new for a data set and removed after it. `raw` is measured in turn with Esker's first \
         configuration, step by step.\n\
         * Steps without a number of operations last {} s.\n\
         * Values are compressed by: {}. Compression leaves half of them, but of those of the Rust engines nothing.\n\
         * Stock db_bench has no queue depth: it has one thread for each operation in flight, as have the \
         Rust engines; Esker has two threads with the rest in flight on each. `raw` is the device without a store: random \
         reads of 4 KiB, O_DSYNC writes of 4 KiB, and a reader beside writers of long runs, with the same clients.\n\
         * Bytes written and processor time are what Linux says of the process in `/proc/PID/io` and `/proc/PID/stat`, \
         between the end of the warm-up and the end of the benchmark.\n\
         * After `fill` Esker's records are {} % of what users may fill, which is 80 % of what it may take on the device.\n\
         * Keys of unlike popularity: stock db_bench cannot draw Zipf for writes, so both sides run `mixgraph` with puts \
         only: a power law (exponent {POWER}) by which a quarter of the keys is ever drawn. The most popular hundredth of \
         the keys gets 69 % of the puts, the most popular fifth 94 % (by Zipf 0.99 68 and 89 %). Half of the keys \
         that db_bench draws were not there before, so that its store holds an eighth more in the end, which its row of space \
         does not count.",
        sizes.seconds, sizes.compression, sizes.fill_percent,
    );
    let _ = writeln!(
        text,
        "* Write pressure: writers at {:?} MB/s in all, a reader with one operation in flight; the top step counts. \
         db_bench has one writer beside the reader, at the top step.",
        sizes.pressure_mb
    );
}

fn lines(text: &mut String, records: &[Record]) {
    *text += "## Command lines\n\nOf the first round; their output is in `logs/` beside this report, until it is removed.\n\n```sh\n";
    for record in records.iter().filter(|record| record.repetition == 1) {
        let _ = writeln!(text, "# {} {}\n{}", record.engine, record.step, record.command);
    }
    *text += "```\n";
}

fn results(comparison: &Comparison, records: &[Record]) -> String {
    let rows: Vec<_> = ROWS
        .iter()
        .map(|row| {
            let figures = comparison.engines.iter().filter_map(|engine| {
                Some((engine.name().to_owned(), json!(goals::figures(records, row, *engine)?)))
            });
            let goals: Vec<_> = row
                .goals
                .iter()
                .map(|of| {
                    let verdict =
                        Engine::headline(&comparison.engines).and_then(|e| goals::verdict(records, row, of, e));
                    json!({
                        "goal": goal(row, of),
                        "ratio": verdict.map(|verdict| verdict.ratio),
                        "met": verdict.filter(|_| !comparison.sizes.fits_in_memory()).map(|verdict| verdict.met),
                    })
                })
                .collect();
            json!({
                "what": row.what,
                "step": row.step,
                "unit": row.metric.unit(),
                "less_is_better": row.metric.less_is_better(),
                "figures": figures.collect::<serde_json::Map<_, _>>(),
                "goals": goals,
            })
        })
        .collect();
    let all = json!({
        "command": "compare",
        "machine": comparison.machine,
        "data_bytes": comparison.sizes.data_bytes,
        "memory_bytes": comparison.sizes.memory_bytes,
        "repetitions": comparison.repetitions,
        "rows": rows,
        "records": records,
    });
    format!("{all:#}\n")
}
