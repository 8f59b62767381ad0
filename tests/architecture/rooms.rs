//! The order of the rooms inside each crate: folders and files right below `src`.
//!
//! Two rules: a room uses only rooms that precede it in its crate's table; and no cycle of files is
//! larger than the crate's row allows.

use std::collections::BTreeSet;
use std::path::Path;

use crate::modules::{Arrows, Modules, between_rooms, knots, shown};

/// Default limit of the files in a cycle.
const KNOT_MOST: usize = 3;

/// The rules inside a crate.
#[derive(Debug)]
struct Row {
    name: &'static str,
    /// Rooms from the lowest to the highest; those of one step must not use each other. Without a table,
    /// no folder may be part of a cycle.
    order: &'static [&'static [&'static str]],
    /// Limit of the files in a cycle.
    knot_most: usize,
    /// True if the row is in force; if not, its violations are printed.
    is_on: bool,
}

const fn row(name: &'static str, order: &'static [&'static [&'static str]]) -> Row {
    Row { name, order, knot_most: KNOT_MOST, is_on: true }
}

#[rustfmt::skip]
const ROWS: &[Row] = &[
    row("device", &[]),
    row("index", &[]),
    row("log", &[]),
    row("gc", &[]),
    row("simulated", &[]),
    row("simulator", &[]),
    row("engine", &[
        &["base"], &["segments"], &["catalog"], &["write"], &["read"], &["background"], &["open"], &["store"],
    ]),
    row("backup", &[]),
    row("server", &[
        &["base"], &["auth", "budget", "tls"], &["service"], &["grpc", "http", "resp"], &["fuzzing", "listen"],
    ]),
    row("rdb", &[]),
    row("inspect", &[]),
    row("command", &[]),
    row("cluster", &[]),
    row("seeded-bugs", &[]),
    row("ssd-model", &[]),
    row("nvme", &[]),
    row("ssd-bench", &[]),
    row("ssd", &[]),
    row("bench", &[]),
    row("compare", &[]),
    row("cli", &[]),
    row("fuzz-entry", &[]),
];

/// Returns the violations of a row, one per line.
fn broken(row: &Row, modules: &Modules) -> Vec<String> {
    let (name, arrows, rooms) = (row.name, modules.arrows(), modules.rooms());
    let mut broken = Vec::new();
    for knot in knots(&arrows).into_iter().filter(|knot| knot.len() > row.knot_most) {
        let files: Vec<_> = knot.iter().map(shown).collect();
        broken.push(format!("{name}: {} files use each other: {}", knot.len(), files.join(", ")));
    }
    if row.order.is_empty() {
        for knot in knots(&between_rooms(&arrows)) {
            if knot.iter().any(|room| rooms[&room[0]]) {
                let shown: Vec<_> = knot.iter().map(|room| room[0].as_str()).collect();
                broken.push(format!("{name}: folders in a circle: {}", shown.join(", ")));
                broken.extend(inside(&arrows, |room, other| {
                    shown.contains(&room).then_some(())?;
                    shown
                        .contains(&other)
                        .then(|| format!("{name}: one of the circle's arrows: {room} to {other}"))
                }));
            }
        }
        return broken;
    }
    let step = |room: &str| row.order.iter().position(|step| step.contains(&room));
    for room in rooms.keys().filter(|room| step(room).is_none()) {
        broken.push(format!("{name}: {room} stands in no step of the order; say where it belongs"));
    }
    for room in row.order.iter().copied().flatten().filter(|room| !rooms.contains_key(**room)) {
        broken.push(format!("{name}: the order names {room}, which is not there"));
    }
    broken.extend(inside(&arrows, |room, other| {
        let (from, to) = (step(room)?, step(other)?);
        (from <= to).then(|| format!("{name}: {room} stands before or beside {other}, and uses it"))
    }));
    broken
}

/// Returns the messages of `judge` about all arrows between rooms, with the files at both ends.
fn inside(arrows: &Arrows, judge: impl Fn(&str, &str) -> Option<String>) -> BTreeSet<String> {
    let pairs = arrows.iter().flat_map(|(module, others)| others.iter().map(move |other| (module, other)));
    let said = pairs.filter_map(|(module, other)| {
        let (room, other_room) = (module.first()?, other.first()?);
        let said = (room != other_room).then(|| judge(room, other_room))??;
        Some(format!("{said}: {} uses {}", shown(module), shown(other)))
    });
    said.collect()
}

#[test]
fn rooms_of_a_crate_use_those_below_them() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("crates");
    let entries = std::fs::read_dir(&crates).expect("crates are there");
    let found: BTreeSet<_> = entries.map(|entry| entry.expect("they can be listed").file_name()).collect();
    let rows: BTreeSet<_> = ROWS.iter().map(|row| row.name.into()).collect();
    assert_eq!(found, rows, "every crate has a row in {}", file!());
    let mut refused = Vec::new();
    for row in ROWS {
        let broken = broken(row, &Modules::below(&crates.join(row.name).join("src")));
        if row.is_on {
            refused.extend(broken);
        } else {
            println!("not in force yet:\n{}", broken.join("\n"));
        }
    }
    assert!(refused.is_empty(), "\n{}", refused.join("\n"));
}

#[test]
fn every_rule_is_seen_to_refuse() {
    let files = [
        ("low/mod.rs", "mod part; pub(crate) struct Low;"),
        ("low/part.rs", "fn f() { crate::high::g(); }"),
        ("high.rs", "use crate::low::Low; use crate::middle::M;"),
        ("middle.rs", "use crate::high;"),
    ];
    let judged = |order, knot_most, files: &[(&'static str, &'static str)]| {
        let row = Row { name: "crate", order, knot_most, is_on: true };
        broken(&row, &Modules::of(files.iter().copied())).join("\n")
    };
    let said = judged(&[&["low"], &["middle"], &["high"]], 1, &files);
    assert_eq!(
        said,
        "crate: 2 files use each other: high, middle\n\
         crate: low stands before or beside high, and uses it: low::part uses high\n\
         crate: middle stands before or beside high, and uses it: middle uses high"
    );
    let said = judged(&[&["low", "high"], &["gone"]], 2, &files);
    assert_eq!(
        said,
        "crate: middle stands in no step of the order; say where it belongs\n\
         crate: the order names gone, which is not there\n\
         crate: high stands before or beside low, and uses it: high uses low\n\
         crate: low stands before or beside high, and uses it: low::part uses high"
    );
    let said = judged(&[], 2, &files);
    assert!(said.starts_with("crate: folders in a circle: high, low, middle\n"), "{said}");
    assert!(said.contains("high to low: high uses low\n"), "{said}");
    // Single files may use each other, which is a cycle of files and not of folders.
    assert_eq!(judged(&[], 2, &[("a.rs", "use crate::b;"), ("b.rs", "use crate::a;")]), "");
    assert_eq!(judged(&[&["low"], &["middle"], &["high"]], 3, &[files[0], files[2], ("middle.rs", "")]), "");
}
