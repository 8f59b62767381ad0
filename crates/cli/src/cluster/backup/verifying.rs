//! Reads a whole backup of a cluster, and compares it with its checksums, counts and slots.

use std::path::Path;

use esker_cluster::slots::{SLOTS, slot_of};

use super::file::Reader;
use super::manifest::Manifest;
use crate::terminal::Failure;

/// Verifies a backup, and returns its manifest.
///
/// # Errors
/// The first damage, with its file and place.
pub(super) fn verify(directory: &Path) -> Result<Manifest, Failure> {
    let manifest = Manifest::read(directory)?;
    let mut next = 0;
    for of in &manifest.groups {
        let [first, last] = of.slots;
        if first != next || last < first || last >= SLOTS {
            let text = format!("the manifest lacks the slots {next} to {first}; take another backup");
            return Err(Failure::Failed(text));
        }
        next = last + 1;
        let mut reader = Reader::open(directory, manifest.backup, of)?;
        let mut changes = 0;
        while let Some(part) = reader.next()? {
            changes += part.len() as u64;
            if let Some(odd) = part.iter().find(|change| !(first..=last).contains(&slot_of(&change.key))) {
                let slot = slot_of(&odd.key);
                return Err(
                    reader.damaged(&format!("a key of slot {slot}, and the group has {first} to {last}"))
                );
            }
        }
        if (reader.parts(), changes) != (of.parts, of.keys + of.changes) {
            return Err(reader.damaged(&format!(
                "it has {} parts with {changes} changes, and the manifest says {} with {}",
                reader.parts(),
                of.parts,
                of.keys + of.changes
            )));
        }
    }
    match next {
        SLOTS => Ok(manifest),
        _ => {
            Err(Failure::Failed(format!("the manifest lacks the slots from {next} on; take another backup")))
        }
    }
}
