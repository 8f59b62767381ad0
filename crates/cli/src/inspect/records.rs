//! `esker records` and `esker trace`: records and their locations in the log.

use std::fmt::Write;

use clap::Args;
use esker_inspect::{RecordRow, Records, Standing};

use super::exit::{Outcome, failure};
use super::place::{Database, KeyForm, Output, Place};
use super::show::{at_ms, bytes, count, json, table, things};
use super::watch::Bar;
use crate::terminal::{Failure, say};
use crate::time::now_ms;

/// Shows every record of one segment, in the order in which they lie.
#[derive(Args)]
#[command(after_help = concat!(
    "Examples:\n",
    "  esker records /var/lib/esker/store --segment 42\n",
    "  esker records store --segment 42 --json | jq '.records[] | select(.damage)'\n",
    "\nesker segments shows the numbers of segments.\n",
    "\nExit codes: 0 done; 1 something failed or was not there; 2 the call is wrong."
))]
pub(crate) struct OfSegment {
    #[command(flatten)]
    place: Place,
    /// Number of the segment.
    #[arg(long, value_name = "NUMBER")]
    segment: u64,
    #[command(flatten)]
    output: Output,
}

/// Shows where every version of a key lies, which one counts, and why. Exits with 1 if there is none.
#[derive(Args)]
#[command(after_help = concat!(
    "Examples:\n",
    "  esker trace /var/lib/esker/store user:1000\n",
    "  esker trace store 00ff --hex --json\n",
    "\nExit codes: 0 done; 1 something failed or was not there; 2 the call is wrong."
))]
pub(crate) struct OfKey {
    #[command(flatten)]
    place: Place,
    /// The key.
    key: String,
    #[command(flatten)]
    form: KeyForm,
    #[command(flatten)]
    database: Database,
    #[command(flatten)]
    output: Output,
}

pub(crate) fn of_segment(arguments: &OfSegment) -> Result<Outcome, Failure> {
    let view = arguments.place.view()?;
    let found = view.records(arguments.segment, now_ms(), &Bar::new()).map_err(failure)?;
    match arguments.output.json {
        true => json(&found)?,
        false => say(&segment_text(&found))?,
    }
    Ok(Outcome::Well)
}

/// Note that a newest record may not be the newest version.
const IN_DOUBT: &str = "note: keys that cannot be named are lost, so the newest version shown here may be stale; see esker check\n";

fn segment_text(found: &Records) -> String {
    let rows = &found.records;
    let row = |row: &RecordRow| {
        vec![
            row.offset.to_string(),
            row.bytes.to_string(),
            value(row),
            if row.tombstone { "tombstone" } else { "put" }.to_owned(),
            row.sequence.to_string(),
            standing(row),
            row.expires_at_ms.map_or("-".to_owned(), at_ms),
            row.key.to_string(),
        ]
    };
    let shown: Vec<_> = rows.iter().map(row).collect();
    let head = ["offset", "bytes", "value", "kind", "sequence", "standing", "expires", "key"];
    let mut text = table(&head, &shown, &[0, 1, 2, 4]);
    let current = rows.iter().filter(|row| row.standing == Standing::Current).count();
    let _ = writeln!(text, "{}, {} current", things(rows.len() as u64, "record"), count(current as u64));
    text.push_str(if found.in_doubt { IN_DOUBT } else { "" });
    text
}

/// Returns the length of a value and its compression.
fn value(row: &RecordRow) -> String {
    let length = row.value_bytes.map_or("-".to_owned(), |bytes| bytes.to_string());
    row.compression.map_or(length.clone(), |how| format!("{length} {how}"))
}

fn standing(row: &RecordRow) -> String {
    let name = match row.standing {
        Standing::Current => "current",
        Standing::Expired => "expired",
        Standing::Deleted => "deleted",
        Standing::Superseded => "superseded",
        Standing::Copy => "copy",
        Standing::Cleared => "cleared",
    };
    match &row.damage {
        Some(damage) => format!("{name}, damaged: {damage}"),
        None => name.to_owned(),
    }
}

pub(crate) fn of_key(arguments: &OfKey) -> Result<Outcome, Failure> {
    let key = arguments.form.parse(&arguments.key)?;
    let view = arguments.place.view()?;
    let found = view.trace(arguments.database.number, &key, now_ms(), &Bar::new()).map_err(failure)?;
    match arguments.output.json {
        true => json(&found)?,
        false => say(&key_text(&found, view.is_closed()))?,
    }
    Ok(if found.records.is_empty() { Outcome::NotWell } else { Outcome::Well })
}

fn key_text(found: &Records, closed: bool) -> String {
    let mut text = String::new();
    for row in &found.records {
        let what = match row.tombstone {
            true => "tombstone".to_owned(),
            false => format!("put of {}", row.value_bytes.map_or("a value".to_owned(), bytes)),
        };
        let stored = row.compression.zip(row.stored_value_bytes);
        let stored = stored.map_or(String::new(), |(how, stored)| format!(", {} by {how}", bytes(stored)));

        let expires = row.expires_at_ms.map_or(String::new(), |at| format!(", expires {}", at_ms(at)));
        let _ = writeln!(
            text,
            "sequence {}: {what}{stored}{expires}\n  {} tier, slot {}, segment {} ({}), offset {}, {} bytes\n  {}",
            row.sequence,
            row.tier,
            row.slot,
            row.segment,
            row.class.name(),
            row.offset,
            row.bytes,
            row.standing.why()
        );
        if let Some(damage) = &row.damage {
            let _ = writeln!(text, "  damaged: {damage}");
        }
    }
    if found.records.is_empty() {
        text.push_str("the log has no version of this key\n");
    }
    text.push_str(if found.in_doubt { IN_DOUBT } else { "" });
    if !closed {
        text.push_str(
            "note: the store is not closed; data that is only in memory or in the staging file is not shown\n",
        );
    }
    text
}
