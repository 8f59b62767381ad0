//! `esker segments`: every segment as a table, a map or a picture.

use std::cmp::Reverse;
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::PathBuf;

use clap::{Args, ValueEnum};
use esker_inspect::{SegmentClass, Segments, SlotRow, SlotState, colour, svg};

use super::exit::{Outcome, failure};
use super::memory::Memory;
use super::place::{Output, Place};
use super::show::{at_ms, bytes, colours, count, json, table};
use super::watch::Bar;
use crate::new_file::NewFile;
use crate::terminal::{Failure, say};

/// Shows every segment of a store: which state and class it is of, how many records it has, and how much of it is live.
#[derive(Args)]
#[command(after_help = concat!(
    "Examples:\n",
    "  esker segments /var/lib/esker/store\n",
    "  esker segments store --sort live --state sealed | head    the emptiest ones\n",
    "  esker segments store --map\n",
    "  esker segments store --svg map.svg\n",
    "\nThe map has one cell a slot, and the number of the first in each line: · free, + open, ! unclear, and ░▒▓█ by how much is live.\n",
    "\nExit codes: 0 done; 1 something failed or was not there; 2 the call is wrong."
))]
pub(crate) struct Arguments {
    #[command(flatten)]
    place: Place,
    #[command(flatten)]
    memory: Memory,
    #[command(flatten)]
    output: Output,
    /// Show a map instead of the table, of the same slots in the same order.
    #[arg(long, conflicts_with = "json")]
    map: bool,
    /// Write the map as a picture to a file too, which must not be there yet.
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// What to sort by.
    #[arg(long, value_enum, default_value = "slot")]
    sort: Sort,
    /// Turn the order around.
    #[arg(long)]
    reverse: bool,
    /// Show only slots in this state: free, open, sealed or unclear.
    #[arg(long, value_name = "STATE", value_parser = ["free", "open", "sealed", "unclear"])]
    state: Option<String>,
    /// Show only segments of this class, such as lane or collected_old.
    #[arg(long, value_name = "CLASS", value_parser = SegmentClass::ALL.map(SegmentClass::name))]
    class: Option<String>,
    /// Show only this tier: fast or capacity.
    #[arg(long, value_name = "TIER", value_parser = ["fast", "capacity"])]
    tier: Option<String>,
    /// Count live bytes key by key; else they are estimated from a part of the keys of a large store.
    #[arg(long)]
    exact: bool,
}

#[derive(Clone, Copy, PartialEq, ValueEnum)]
enum Sort {
    /// Tier and slot.
    Slot,
    /// Live bytes.
    Live,
    /// Records.
    Records,
    /// Number of the segment: the oldest first.
    Age,
}

pub(crate) fn run(arguments: &Arguments) -> Result<Outcome, Failure> {
    let view = arguments.memory.view(&arguments.place)?;
    let bar = Bar::new();
    let mut segments = view.slot_rows(arguments.exact, &bar).map_err(failure)?;
    bar.clear();
    segments.slots.retain(|row| is_wanted(arguments, row));
    sort(&mut segments.slots, arguments.sort);
    if arguments.reverse {
        segments.slots.reverse();
    }
    if let Some(path) = &arguments.svg {
        let file = NewFile::create(path)?;
        let written = file.writer()?.write_all(svg(&segments).as_bytes());
        written.map_err(|error| Failure::Failed(format!("cannot write {}: {error}", path.display())))?;
        file.keep()?;
    }
    if arguments.map {
        say(&map(&segments, colours()))?;
        return Ok(Outcome::Well);
    }
    match arguments.output.json {
        true => json(&segments)?,
        false if arguments.svg.is_some() => {}
        false => say(&text(&segments))?,
    }
    Ok(Outcome::Well)
}

fn is_wanted(arguments: &Arguments, row: &SlotRow) -> bool {
    let is = |wanted: &Option<String>, found: &str| wanted.as_ref().is_none_or(|wanted| wanted == found);
    is(&arguments.state, row.state.name())
        && is(&arguments.tier, row.tier)
        && is(&arguments.class, row.class.map_or("", SegmentClass::name))
}

fn sort(rows: &mut [SlotRow], by: Sort) {
    match by {
        Sort::Slot => {}
        Sort::Live => rows.sort_by_key(|row| row.live_bytes),
        Sort::Records => rows.sort_by_key(|row| Reverse(row.records)),
        Sort::Age => rows.sort_by_key(|row| row.segment.unwrap_or(u64::MAX)),
    }
}

fn text(segments: &Segments) -> String {
    let number = |number: Option<u64>| number.map_or("-".to_owned(), |number| number.to_string());
    let row = |row: &SlotRow| {
        vec![
            row.tier.to_owned(),
            row.slot.to_string(),
            row.state.name().to_owned(),
            number(row.segment),
            row.class.map_or("-", SegmentClass::name).to_owned(),
            count(row.records),
            bytes(row.used_bytes),
            bytes(row.live_bytes),
            format!("{:.1} %", row.live_share * 100.0),
            number(row.epoch),
            row.expires_s.map_or("-".to_owned(), |at| at_ms(u64::from(at) * 1000)),
        ]
    };
    let rows: Vec<_> = segments.slots.iter().map(row).collect();
    let head =
        ["tier", "slot", "state", "segment", "class", "records", "used", "live", "share", "epoch", "expires"];
    let mut text = table(&head, &rows, &[1, 3, 5, 6, 7, 8, 9]);
    if segments.sampled > 1 {
        let _ = writeln!(text, "live: estimated from one key in {}; --exact counts", segments.sampled);
    }
    text
}

const COLUMNS: usize = 64;
const SHADES: [char; 4] = ['░', '▒', '▓', '█'];

/// Draws one character per slot.
fn map(segments: &Segments, colours: bool) -> String {
    let mut text = String::new();
    for tier in ["fast", "capacity"] {
        let rows: Vec<&SlotRow> = segments.slots.iter().filter(|row| row.tier == tier).collect();
        if rows.is_empty() {
            continue;
        }
        let _ = writeln!(text, "{tier} tier, {} slots of {}", rows.len(), bytes(segments.segment_bytes));
        for line in rows.chunks(COLUMNS) {
            let cells: String = line.iter().map(|row| cell(row, colours)).collect();
            let _ = writeln!(text, "{:>6} {cells}", line[0].slot);
        }
    }
    let there = |class: &SegmentClass| segments.slots.iter().any(|row| row.class == Some(*class));
    let legend = SegmentClass::ALL.into_iter().filter(there).map(|class| {
        let how = if colours { paint('█', class) + " " } else { String::new() };
        format!("{how}{}", class.name())
    });
    let _ = writeln!(text, "classes: {}", legend.collect::<Vec<_>>().join("  "));
    text
}

fn cell(row: &SlotRow, colours: bool) -> String {
    let shade = SHADES[((row.live_share * 4.0) as usize).min(3)];
    let sign = match row.state {
        SlotState::Free => '·',
        SlotState::Open => '+',
        SlotState::Unclear => '!',
        SlotState::Sealed => shade,
    };
    match row.class {
        Some(class) if colours => paint(sign, class),
        _ => sign.to_string(),
    }
}

fn paint(sign: char, class: SegmentClass) -> String {
    let [r, g, b] = colour(class);
    format!("\x1b[38;2;{r};{g};{b}m{sign}\x1b[0m")
}
