//! The final output: percentiles, checks, and JSON.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::arguments::Arguments;
use super::checks::Check;
use super::sample::Phase;

/// Prints percentiles and checks.
pub(crate) fn end(arguments: &Arguments, loaded: &Phase, baseline: Option<&Phase>, checks: &[Check]) {
    if arguments.json {
        println!("{:#}", figures(arguments, loaded, baseline, checks));
        return;
    }
    let who =
        if arguments.dir.is_some() { "client and store" } else { "client, store and devices in memory" };
    for (name, phase) in [("loaded", Some(loaded)), ("baseline", baseline)] {
        let Some(phase) = phase else { continue };
        println!();
        println!(
            "{name}: {} operations in {:.0} s, {:.0}/s, {:.1} us of processor each ({who}); {} segments freed",
            phase.operations,
            phase.took.as_secs_f64(),
            phase.rate(),
            phase.cpu_us_per_operation,
            phase.segments_freed
        );
        for (kind, latencies) in &phase.latencies {
            let summary = latencies.summary();
            let at: Vec<_> = summary.percentiles.iter().map(|(p, us)| format!("p{p} {us:.0}")).collect();
            println!("  {kind:>6} us: {} max {:.0}", at.join(" "), summary.max);
        }
    }
    println!();
    for check in checks {
        let verdict = match check.passed {
            Some(true) => "pass",
            Some(false) => "FAIL",
            None => "-",
        };
        println!("{verdict:>4}  {}: {}; asked: {}", check.what, check.found, check.asked);
    }
}

/// Returns all measurements as JSON.
fn figures(arguments: &Arguments, loaded: &Phase, baseline: Option<&Phase>, checks: &[Check]) -> Value {
    let phase = |phase: &Phase| {
        json!({
            "keys": phase.keys,
            "seconds": phase.took.as_secs_f64(),
            "operations": phase.operations,
            "operations_per_s": phase.rate(),
            "cpu_us_per_operation": phase.cpu_us_per_operation,
            "segments_freed": phase.segments_freed,
            "refused": phase.refused,
            "latency_us": phase.latencies.iter().map(|(kind, l)| (*kind, l.summary())).collect::<BTreeMap<_, _>>(),
            "samples": phase.samples,
        })
    };
    json!({
        "command": "endurance",
        "version": env!("CARGO_PKG_VERSION"),
        "fill_percent": arguments.fill,
        "reserve_percent": arguments.reserve,
        "capacity_bytes": arguments.capacity,
        "fast_bytes": arguments.fast,
        "value_bytes": arguments.value_bytes,
        "durability": arguments.durability.to_string(),
        "rate": arguments.rate,
        "threads": arguments.threads,
        "depth": arguments.depth,
        "loaded": phase(loaded),
        "baseline": baseline.map(phase),
        "checks": checks,
    })
}
