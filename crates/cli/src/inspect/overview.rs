//! `esker inspect`: an overview of a store, or the layout of its bytes.

use std::fmt::Write;

use clap::Args;
use esker_inspect::{
    ClassOverview, LayoutField, Overview, SegmentClass, State, TierOverview, format_version, layout,
    layout_text,
};

use super::check::copy_text;
use super::exit::{Outcome, failure};
use super::place::{Output, Place};
use super::show::{at_ms, bytes, count, json, percent, table};
use crate::terminal::{Failure, say};

/// Shows what a store is and how full it is. The store may be closed, damaged, or open in a server: it is only read.
#[derive(Args)]
#[command(after_help = concat!(
    "Examples:\n",
    "  esker inspect /var/lib/esker/store\n",
    "  esker inspect /dev/nvme0n1 --peer /dev/nvme1n1 --json\n",
    "  esker inspect layout                    the layout of the bytes on the devices\n",
    "\nExit codes: 0 done; 1 something failed or was not there; 2 the call is wrong."
))]
pub(crate) struct Arguments {
    #[command(flatten)]
    place: Place,
    #[command(flatten)]
    output: Output,
}

pub(crate) fn run(arguments: &Arguments) -> Result<Outcome, Failure> {
    if arguments.place.store.as_os_str() == "layout" {
        return show_layout(arguments.output.json);
    }
    let overview = arguments.place.view()?.overview().map_err(failure)?;
    match arguments.output.json {
        true => json(&overview)?,
        false => say(&text(&overview))?,
    }
    Ok(Outcome::Well)
}

fn show_layout(as_json: bool) -> Result<Outcome, Failure> {
    if as_json {
        json(&layout())?;
        return Ok(Outcome::Well);
    }
    let mut text = format!("The on-disk format, version {}\n", format_version());
    if !super::show::colours() {
        // The same text as in docs/format.md, byte for byte.
        say(&format!("{text}\n{}", layout_text()))?;
        return Ok(Outcome::Well);
    }
    for layout in layout() {
        let number = |number: Option<usize>| number.map_or("–".to_owned(), |number| number.to_string());
        let row = |f: &LayoutField| {
            vec![number(f.offset), number(f.bytes), f.name.to_owned(), f.meaning.to_owned()]
        };
        let rows: Vec<_> = layout.fields.iter().map(row).collect();
        let _ = write!(
            text,
            "\n{}\n{}",
            layout.title,
            table(&["offset", "bytes", "field", "meaning"], &rows, &[0, 1])
        );
    }
    say(&text)?;
    Ok(Outcome::Well)
}

fn text(overview: &Overview) -> String {
    let state = match overview.state {
        State::InUse => "open in another process",
        State::Closed => "closed",
        State::NotClosed => "not closed: its process was killed",
    };
    let mut text = format!("store {}, format version {}\n", overview.store_id, overview.format_version);
    let mut line = |name: &str, what: String| {
        let _ = writeln!(text, "  {name:<12} {what}");
    };
    line("state", state.to_owned());
    line("made", at_ms(overview.created_at_ms));
    if overview.clock_ms > 0 {
        line("last written", at_ms(overview.clock_ms));
    }
    line("openings", count(overview.epoch));
    line(
        "geometry",
        format!(
            "segments of {}, records at multiples of {} bytes",
            bytes(overview.segment_bytes),
            overview.granule_bytes
        ),
    );
    line("records", format!("{} in sealed segments, of any version", count(overview.records)));
    for tier in &overview.tiers {
        text.push_str(&of_tier(tier));
    }
    for note in &overview.notes {
        let _ = writeln!(text, "note: {note}");
    }
    text
}

fn of_tier(tier: &TierOverview) -> String {
    let mut text = format!("\n{} tier: {}, {}\n", tier.name, tier.path, bytes(tier.device_bytes));
    let mut line = |name: &str, what: String| {
        let _ = writeln!(text, "  {name:<12} {what}");
    };
    line("write unit", bytes(tier.unit_bytes));
    line(
        "superblock",
        format!(
            "generation {}, {} of {} copies good",
            tier.generation,
            tier.superblock_copies.iter().filter(|copy| copy.is_good).count(),
            tier.superblock_copies.len()
        ),
    );
    for copy in &tier.superblock_copies {
        line("", copy_text(copy));
    }
    let states = &tier.states;
    let unclear = if states.unclear > 0 { format!(", {} unclear", states.unclear) } else { String::new() };
    line(
        "slots",
        format!(
            "{}: {} sealed, {} open, {} free{unclear}",
            tier.slots, states.sealed, states.open, states.free
        ),
    );
    let space = &tier.space;
    let used = [
        ("frames", space.frames_bytes),
        ("summaries", space.summary_bytes),
        ("gaps", space.gap_bytes),
        ("open", space.open_bytes),
        ("free", space.free_bytes),
    ];
    let total = used.iter().map(|(_, bytes)| bytes).sum();
    let shown = used.map(|(name, part)| format!("{name} {} ({})", bytes(part), percent(part, total)));
    line("space", shown.join(", "));
    let written = &tier.written;
    let causes = [
        ("users", written.user_bytes),
        ("destaging", written.destaged_bytes),
        ("collecting", written.collected_bytes),
        ("summaries", written.summary_bytes),
    ];
    let shown = causes.map(|(name, part)| format!("{name} {}", bytes(part)));
    line(
        "written by",
        format!("{} (data on the devices now; a running server counts all writes)", shown.join(", ")),
    );
    text.push_str(&classes(tier));
    text
}

fn classes(tier: &TierOverview) -> String {
    if tier.classes.is_empty() {
        return String::new();
    }
    let row = |(class, of): (&SegmentClass, &ClassOverview)| {
        vec![format!("  {}", class.name()), count(of.segments), count(of.records), bytes(of.frames_bytes)]
    };
    let rows: Vec<_> = tier.classes.iter().map(row).collect();
    table(&["  class", "segments", "records", "frames"], &rows, &[1, 2, 3])
}
