//! `esker check` and `esker repair`.

use std::fmt::Write;
use std::path::PathBuf;

use clap::Args;
use esker_inspect::{
    CheckOptions, Effort, Finding, FoundTier, IndexCheck, Key, Repaired, Report, RestoredCopies, Severity,
    SuperblockCopy, restore_copies, restore_superblocks,
};

use super::exit::{Outcome, failure};
use super::memory::Memory;
use super::place::{Output, Place};
use super::show::{bytes, colours, count, json, things};
use super::watch::Bar;
use crate::terminal::{Failure, say};

/// Verifies everything in a store: every checksum, every version of every key, summaries against records, superblocks
/// against segments, records that only the staging file of a killed store holds, and the index that a server would build against the
/// log. Nothing is written.
///
/// Keys that do not fit the memory are read in further passes over the summaries; the report shows how many, and the memory.
/// The index is compared if it fits half of the memory.
///
/// Names the damage, the keys that are concerned and the remedy. Beside a server that has the store open the index is not
/// compared, and apparent damage is read twice, so that data which the server is writing is not reported.
#[derive(Args)]
#[command(after_help = concat!(
    "Examples:\n",
    "  esker check /var/lib/esker/store && echo all is well\n",
    "  esker check /dev/nvme0n1 --peer /dev/nvme1n1 --json | jq .lost_keys\n",
    "\nExit codes: 0 all is well; 1 it is not, or something failed; 2 the call is wrong."
))]
pub(crate) struct Check {
    #[command(flatten)]
    place: Place,
    #[command(flatten)]
    memory: Memory,
    /// Do not open the store in memory to compare its index with the log.
    #[arg(long)]
    skip_index: bool,
    #[command(flatten)]
    output: Output,
}

/// Makes a new store with every key whose newest version is healthy, with that value and its expiry. The damaged store is
/// not changed.
///
/// A key whose newest version is damaged is left out and listed; an older version is never shown in its place. If keys
/// were lost that cannot be named, every key that may be stale as a result is listed too. So is every key of which the
/// staging file of a killed store has a newer version: open such a store once before, if a server still opens it.
///
/// Beside --memory, the engine that writes the new store takes what its keys need: about 10 bytes for each.
#[derive(Args)]
#[command(after_help = concat!(
    "Examples:\n",
    "  esker repair /var/lib/esker/store --to /var/lib/esker/store.new\n",
    "  esker repair fast.img --peer capacity.img --to new-fast.img --to-peer new-capacity.img\n",
    "  esker repair /var/lib/esker/store --in-place --confirm      the old store is kept as store.damaged\n",
    "  esker repair /dev/nvme0n1 --superblocks --confirm           rewrite lost or damaged copies of the superblock\n",
    "  esker repair /dev/nvme0n1 --find-segments --confirm         rebuild lost superblocks, then esker check\n",
    "\nExit codes: 0 nothing was lost; 1 something was, or something failed; 2 the call is wrong."
))]
pub(crate) struct Repair {
    #[command(flatten)]
    place: Place,
    #[command(flatten)]
    memory: Memory,
    /// Path of the new store; for a store with two tiers, its fast tier.
    #[arg(long, value_name = "PATH", required_unless_present_any = ["in_place", "find_segments", "superblocks"])]
    to: Option<PathBuf>,
    /// Path of the new store's capacity tier.
    #[arg(long, value_name = "PATH", requires = "to")]
    to_peer: Option<PathBuf>,
    /// Make the new store beside the old one and give it the old one's name; the old one is kept as PATH.damaged.
    #[arg(long, requires = "confirm", conflicts_with = "to")]
    in_place: bool,
    /// Rewrite lost or damaged copies of the superblock from one that is left, at the start, in the middle or at the end of the
    /// device. Nothing of the store is lost. Without --confirm, show the copies and write nothing.
    #[arg(long, conflicts_with_all = ["to", "in_place", "find_segments"])]
    superblocks: bool,
    /// Rebuild superblocks that were lost from the segments of the store. Without --confirm, show what was found and write
    /// nothing; with it, write the superblocks at the start of the tier. Then check the store.
    #[arg(long, conflicts_with_all = ["to", "in_place"])]
    find_segments: bool,
    /// Confirm the repair in place, or writing the superblocks.
    #[arg(long)]
    confirm: bool,
    #[command(flatten)]
    output: Output,
}

pub(crate) fn check(arguments: &Check) -> Result<Outcome, Failure> {
    let view = arguments.memory.view(&arguments.place)?;
    let bar = Bar::new();
    let report = view.check(CheckOptions { index: !arguments.skip_index }, &bar).map_err(failure)?;
    bar.clear();
    match arguments.output.json {
        true => json(&report)?,
        false => say(&text(&report, bar.elapsed().as_secs_f64()))?,
    }
    Ok(if report.well { Outcome::Well } else { Outcome::NotWell })
}

/// Limit of findings and keys in the text output; JSON has all listed ones.
const SHOWN: usize = 100;

fn text(report: &Report, seconds: f64) -> String {
    let counts = &report.counts;
    let mut text = format!(
        "read {} of {} in {seconds:.1} s\n{}, {}: {} superseded, {} ({} with nothing behind)\n",
        bytes(counts.read_bytes),
        things(counts.segments, "segment"),
        things(counts.keys, "key"),
        things(counts.records, "record"),
        count(counts.superseded),
        things(counts.tombstones, "tombstone"),
        count(counts.tombstones_needless),
    );
    let _ = match &report.index {
        IndexCheck::Compared { keys, wrong: 0 } => {
            writeln!(text, "the index agrees with the log for all {} keys", count(*keys))
        }
        IndexCheck::Compared { keys, wrong } => {
            writeln!(text, "the index disagrees with the log for {} of {} keys", count(*wrong), count(*keys))
        }
        IndexCheck::Skipped => writeln!(text, "the index was not compared with the log"),
        IndexCheck::NotEnoughMemory { needed_bytes, allowed_bytes } => writeln!(
            text,
            "the index was not compared with the log: it needs {} and may take {}; raise --memory to {}",
            bytes(*needed_bytes),
            bytes(*allowed_bytes),
            bytes(2 * needed_bytes)
        ),
        IndexCheck::Refused { .. } => writeln!(text, "a server would refuse to open it"),
    };
    text.push_str(&effort(&report.effort));
    if let Some(staging) = &report.staging {
        let records = things(staging.records, "record");
        let only = things(staging.only_there, "key");
        let _ = writeln!(
            text,
            "the staging file {} has {records} and the newest version of {only}: opening the store writes them",
            staging.path
        );
    }
    if report.in_flight > 0 {
        let segments = things(report.in_flight, "segment");
        let _ = writeln!(text, "{segments} changed during the check: a server has the store open");
    }
    for finding in report.findings.iter().take(SHOWN) {
        text.push_str(&shown(finding));
    }
    text.push_str(&more("", report.findings.len(), report.findings.len() as u64 + report.findings_not_shown));
    text.push_str(&keys("lost", &report.lost_keys, report.lost_count));
    if report.unnamed_keys {
        text.push_str("keys were lost that cannot be named: any key may have an older value, or be back\n");
    }
    let notes = if report.notes > 0 { format!(" ({})", things(report.notes, "note")) } else { String::new() };
    let _ = match report.well {
        true => writeln!(text, "all is well{notes}"),
        false => writeln!(text, "NOT WELL: {}{notes}", things(report.damages, "damage")),
    };
    text
}

/// Returns the line about passes and memory.
fn effort(effort: &Effort) -> String {
    let Effort { passes, summary_bytes, memory_bytes } = *effort;
    let again = match passes {
        0 | 1 => String::new(),
        _ => format!(", which read {} of summaries again", bytes(summary_bytes)),
    };
    let number = if passes == 1 { "1 pass".to_owned() } else { format!("{} passes", count(passes)) };
    format!("{number} over the keys{again}, with {} of memory\n", bytes(memory_bytes))
}

fn shown(finding: &Finding) -> String {
    let (name, colour) = match finding.severity {
        Severity::Damage => ("damage", 31),
        Severity::Note => ("note", 33),
    };
    let name = if colours() { format!("\x1b[{colour}m{name}\x1b[0m") } else { name.to_owned() };
    let segment = finding.segment.map_or(String::new(), |number| format!(", segment {number}"));
    let key = finding.key.as_ref().map_or(String::new(), |key| format!("; key {key}"));
    format!(
        "{name}: {} at {}{segment}: {}{key}\n  {}\n",
        finding.path, finding.offset, finding.what, finding.consequence
    )
}

fn keys(what: &str, keys: &[Key], number: u64) -> String {
    if number == 0 {
        return String::new();
    }
    let mut text = format!("{} {what}:\n", things(number, "key"));
    keys.iter().take(SHOWN).for_each(|key| {
        let _ = writeln!(text, "  {key}");
    });
    text + &more("  ", keys.len(), number)
}

/// Returns the text about those not shown: `listed` of `number` are listed.
fn more(indent: &str, listed: usize, number: u64) -> String {
    let (listed, mut text) = (listed as u64, String::new());
    let in_json = listed.saturating_sub(SHOWN as u64);
    if in_json > 0 {
        let _ = writeln!(text, "{indent}and {} more; --json has them", count(in_json));
    }
    if number > listed {
        let _ =
            writeln!(text, "{indent}and {} more, which are counted and not listed", count(number - listed));
    }
    text
}

pub(crate) fn repair(arguments: &Repair) -> Result<Outcome, Failure> {
    if arguments.find_segments {
        return find_segments(arguments);
    }
    if arguments.superblocks {
        return superblocks(arguments);
    }
    let view = arguments.memory.view(&arguments.place)?;
    let bar = Bar::new();
    let to: Vec<PathBuf> = arguments.to.iter().chain(&arguments.to_peer).cloned().collect();
    let repaired = match arguments.in_place {
        true => view.repair_in_place(&bar),
        false => view.repair_to(&to, &bar),
    };
    let repaired = repaired.map_err(failure)?;
    bar.clear();
    match arguments.output.json {
        true => json(&repaired)?,
        false => say(&repaired_text(&repaired))?,
    }
    let staged = repaired.old.staging.as_ref().map_or(0, |staging| staging.only_there);
    if staged > 0 {
        let keys = things(staged, "key");
        let what = format!(
            "the newest versions of {keys} are only in the old store's staging file, not in the new store: if a server can \
             still open the old store, open it once, which writes them, and repair again"
        );
        let _ = std::io::Write::write_fmt(&mut std::io::stderr(), format_args!("esker: {what}\n"));
    }
    let lost = repaired.lost_count > 0 || repaired.unnamed_keys || staged > 0 || !repaired.well;
    Ok(if lost { Outcome::NotWell } else { Outcome::Well })
}

fn find_segments(arguments: &Repair) -> Result<Outcome, Failure> {
    let bar = Bar::new();
    let found = restore_superblocks(&arguments.place.paths(), arguments.confirm, &bar).map_err(failure)?;
    bar.clear();
    if arguments.output.json {
        json(&found)?;
        return Ok(Outcome::Well);
    }
    let mut text = String::new();
    for FoundTier { path, tier, segments, foreign_segments, completed_by_peer, .. } in &found {
        let _ = writeln!(text, "{path}: the {tier} tier of a store, with {}", things(*segments, "segment"));
        if *foreign_segments > 0 {
            let _ = writeln!(text, "  {} of other stores: ignored", things(*foreign_segments, "segment"));
        }
        if !completed_by_peer {
            text.push_str(
                "  segments do not tell which databases were cleared or swapped, nor which records had expired for good: cleared \
                 and expired keys may be back, and databases have their first keyspaces\n",
            );
        }
    }
    text.push_str(match arguments.confirm {
        true => "the superblocks are written; check the store with esker check before it is served\n",
        false => "nothing was written; write the superblocks with --confirm\n",
    });
    say(&text)?;
    Ok(Outcome::Well)
}

fn superblocks(arguments: &Repair) -> Result<Outcome, Failure> {
    let restored = restore_copies(&arguments.place.paths(), arguments.confirm).map_err(failure)?;
    if arguments.output.json {
        json(&restored)?;
        return Ok(Outcome::Well);
    }
    let mut text = String::new();
    for RestoredCopies { path, tier, generation, from, copies } in &restored {
        let _ = writeln!(
            text,
            "{path}: the {tier} tier, generation {generation} of its superblock, found at byte {from}"
        );
        for copy in copies {
            let _ = writeln!(text, "  {}", copy_text(copy));
        }
    }
    text.push_str(match arguments.confirm {
        true => "all copies are written\n",
        false => "nothing was written; write all copies with --confirm\n",
    });
    say(&text)?;
    Ok(Outcome::Well)
}

/// Describes a copy of a superblock: number, offset and state.
pub(super) fn copy_text(copy: &SuperblockCopy) -> String {
    let state = match (copy.is_good, copy.generation) {
        (true, _) => "good".to_owned(),
        (false, Some(generation)) => format!("old: generation {generation}"),
        (false, None) => "lost or damaged".to_owned(),
    };
    format!("copy {} at byte {}: {state}", copy.number, copy.offset)
}

fn repaired_text(repaired: &Repaired) -> String {
    let paths = |paths: &[PathBuf]| {
        let shown: Vec<_> = paths.iter().map(|path| path.display().to_string()).collect();
        shown.join(" and ")
    };
    let mut text = format!(
        "{} with {} in the new store {}\n",
        things(repaired.kept_keys, "key"),
        bytes(repaired.kept_bytes),
        paths(&repaired.to)
    );
    if !repaired.damaged.is_empty() {
        let _ = writeln!(text, "the old store is kept as {}", paths(&repaired.damaged));
    }
    text.push_str(&keys("lost", &repaired.lost_keys, repaired.lost_count));
    if repaired.unnamed_keys {
        text.push_str("keys were lost that cannot be named\n");
    }
    text.push_str(&keys(
        "that may have an older value or may have been deleted",
        &repaired.stale_keys,
        repaired.stale_count,
    ));
    text.push_str(match repaired.well {
        true => "the new store passes a check\n",
        false => "THE NEW STORE DOES NOT PASS A CHECK\n",
    });
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_help_lists_all_fields() {
        assert_eq!(more("", 100, 100), "");
        assert_eq!(more("  ", 101, 101), "  and 1 more; --json has them\n");
        let both = "and 99,900 more; --json has them\nand 7 more, which are counted and not listed\n";
        assert_eq!(more("", 100_000, 100_007), both);
    }
}
