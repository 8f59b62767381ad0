//! Checks the staging file of a killed store: whether it is intact, and which records are only in it.

use std::collections::HashMap;
use std::path::PathBuf;

use esker_engine::{StagingContent, StagingLook};
use esker_log::{Entry, KeyHash};

use super::report::{Finding, Findings, Severity, StagingReport};
use crate::store::StoreView;

/// The content of the staging file, by key.
#[derive(Default)]
pub(crate) struct Staged {
    /// The sequence number of the newest version of each key in it.
    newest: HashMap<KeyHash, u64>,
    report: Option<StagingReport>,
}

impl Staged {
    /// Returns true if the staging file holds a version of the key that is newer than `sequence`.
    pub(crate) fn has_newer(&self, hash: &KeyHash, sequence: u64) -> bool {
        self.newest.get(hash).is_some_and(|&staged| staged > sequence)
    }

    /// Returns true if the staging file holds any version of the key.
    pub(super) fn has(&self, hash: &KeyHash) -> bool {
        self.newest.contains_key(hash)
    }

    /// Returns the report. `on_devices` is the number of staged keys whose version on the devices is at
    /// least as new.
    pub(super) fn report(&self, on_devices: u64) -> Option<StagingReport> {
        let keys = self.newest.len() as u64;
        self.report
            .clone()
            .map(|report| StagingReport { only_there: keys.saturating_sub(on_devices), ..report })
    }
}

/// Reads the staging file if an opening would use it: the store was not closed, and no process has it
/// open.
pub(super) fn look(view: &StoreView, findings: &mut Findings) -> Staged {
    let first = &view.tiers[0];
    let mut staged = Staged::default();
    let Some(place) = view.directory().or(view.paths.first().map(PathBuf::as_path)) else { return staged };
    if view.is_closed() || view.is_in_use() || first.superblock.staging_bytes == 0 {
        return staged;
    }
    let looked = match StagingLook::of(place, &first.superblock, first.shape) {
        Ok(looked) => looked,
        Err(error) => {
            let so =
                "data that only the staging file holds is unknown; a server cannot open the store either";
            findings.add(Finding::at(first, 0, Severity::Damage, error.to_string()).so(so).unnamed());
            return staged;
        }
    };
    let path = looked.path.display().to_string();
    let at = |severity, what: String| Finding { path: path.clone(), ..Finding::at(first, 0, severity, what) };
    let (segments, damage) = match looked.content {
        StagingContent::Left { segments, damage } => (segments, damage),
        StagingContent::Lost => {
            let so = "writes that were acknowledged at durability process and are not on the devices are lost: opening \
                      refuses this, unless the loss is accepted";
            let what = "the staging file of the process that was killed is missing".to_owned();
            findings.add(at(Severity::Damage, what).so(so).unnamed());
            return staged;
        }
        StagingContent::Missing => {
            let so =
                "writes that were acknowledged at durability process and are not on the devices are lost";
            findings
                .add(at(Severity::Note, "the staging file of this store does not exist".to_owned()).so(so));
            return staged;
        }
        _ => {
            let so = "it may be incomplete, so opening takes nothing from it";
            let what = "the staging file is from an earlier boot of the machine".to_owned();
            findings.add(at(Severity::Note, what).so(so));
            return staged;
        }
    };
    for what in damage {
        let so = "acknowledged records that are stored nowhere else may be lost: opening refuses this, unless the loss is accepted";
        findings.add(at(Severity::Damage, what).so(so).unnamed());
    }
    let cleared = view.cleared;
    let is_cleared = |entry: &Entry| cleared.covers(&entry.key_hash, entry.sequence);
    for entry in segments.iter().flat_map(|(_, entries)| entries).filter(|entry| !is_cleared(entry)) {
        let newest = staged.newest.entry(entry.key_hash).or_default();
        *newest = entry.sequence.max(*newest);
    }
    let records = segments.iter().map(|(_, entries)| entries.len() as u64).sum();
    staged.report = Some(StagingReport { path, segments: segments.len() as u64, records, only_there: 0 });
    staged
}
