//! Prints the results.

use serde_json::json;

use super::arguments::Arguments;
use super::measure::Run;

/// Prints one line of the table, after the head if it is the first.
pub(crate) fn line(run: &Run, first: bool) {
    if first {
        println!(
            "{:<11} {:>7} {:>5} {:>9} | {:>9} {:>9} {:>9} | {:>6} {:>6} {:>11} | {:>5}",
            "load",
            "reserve",
            "full",
            "effective",
            "destaged",
            "user",
            "records",
            "goal",
            "best",
            "closed form",
            "s"
        );
    }
    let or_dash = |wa: Option<f64>| wa.map_or("-".to_owned(), |wa| format!("{wa:.3}"));
    let best = run.reference.iter().filter(|r| !r.rule.contains("bound") && !r.rule.contains("closed"));
    let best = best.map(|r| r.wa).min_by(f64::total_cmp);
    println!(
        "{:<11} {:>5} % {:>3} % {:>7.1} % | {:>9.3} {:>9.3} {:>9} | {:>6} {:>6} {:>5.2} {:>5.2} | {:>5.0}",
        run.distribution,
        run.reserve_percent,
        run.fill_percent,
        run.effective_reserve * 100.0,
        run.wa_per_destaged_byte,
        run.wa_per_user_byte,
        or_dash(run.wa_of_records),
        run.goal.map_or("-".to_owned(), |goal| format!("{goal:.2}")),
        best.map_or("-".to_owned(), |best| format!("{best:.2}")),
        run.closed_form,
        run.closed_form_effective,
        run.seconds
    );
}

/// Prints the meaning of the columns, and details that do not fit into the table.
pub(crate) fn notes(arguments: &Arguments, runs: &[Run]) {
    let Some(run) = runs.first() else { return };
    println!();
    println!(
        "{} segments of {} bytes, {} records of {} bytes in each at most; overwritten {} times, second half.",
        run.segments, arguments.segment, run.records_per_segment, run.record_bytes, arguments.turns
    );
    println!("destaged: bytes sent to the capacity tier for each byte of records that came to it.");
    println!("user: bytes sent to all devices for each byte of keys and values put.");
    println!("records: records appended for each record put, which is what a simulation counts.");
    println!(
        "best: best rule of the reference table at this reserve; closed form: uniform, at the set and at the effective reserve."
    );
    for run in runs {
        let did = &run.second_half;
        let share = |bytes: u64| 100.0 * bytes as f64 / did.user_bytes as f64;
        println!();
        println!("{}, {} %, {} % full:", run.distribution, run.reserve_percent, run.fill_percent);
        println!(
            "  of user bytes: lanes {:.1} %, relocated {:.1} %, padding {:.1} %, summaries {:.1} %, markers and superblocks {:.2} %",
            share(did.lane_bytes),
            share(did.relocated_bytes),
            share(did.padding_bytes),
            share(did.summary_bytes),
            100.0 * did.other_bytes() as f64 / did.user_bytes as f64
        );
        println!("  devices were sent {} bytes more than the store names a cause for", run.unnamed_bytes);
        println!(
            "  {} puts waited {:.1} s in all, {} were refused for a moment; {} segments freed; {} keys verified",
            did.stalls,
            did.stall_us as f64 / 1e6,
            run.refused,
            did.segments_freed,
            run.verified_keys
        );
        let turns: Vec<String> = run.wa_by_turn.iter().map(|wa| format!("{wa:.2}")).collect();
        println!("  by turn (user): {}", turns.join(" "));
        if !run.reference.is_empty() {
            let rows: Vec<String> = run.reference.iter().map(|r| format!("{} {:.2}", r.rule, r.wa)).collect();
            println!("  reference: {}", rows.join("; "));
        }
    }
}

/// Prints all results as JSON.
pub(crate) fn json(arguments: &Arguments, runs: &[Run]) {
    let all = json!({
        "command": "writeamp",
        "version": env!("CARGO_PKG_VERSION"),
        "turns": arguments.turns,
        "segment_bytes": arguments.segment,
        "unit_bytes": arguments.iu,
        "value_bytes": arguments.value_bytes,
        "fast_percent": arguments.fast_percent,
        "depth": arguments.depth,
        "seed": arguments.seed,
        "reference": "design notes, performance, section 5: simulation of 262,144 records, 128 to a segment, 12 overwrites, second half",
        "runs": runs,
    });
    println!("{all:#}");
}
