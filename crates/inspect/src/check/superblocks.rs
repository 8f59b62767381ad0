//! Checks the superblocks of a store: copies, sizes, and that the epochs of the tiers match.

use esker_log::{CopyPlace, SUPERBLOCK_COPIES, Superblock};

use super::report::{Finding, Findings, Severity};
use crate::error::Result;
use crate::store::{HEAD_BYTES, StoreView, TierView};
use crate::superblocks::read_copy;

/// Checks every copy on every tier.
pub(super) fn check(view: &StoreView, findings: &mut Findings) -> Result<()> {
    for tier in &view.tiers {
        for single in tier.singles() {
            copies(view, &single, findings)?;
        }
        if tier.bytes() < tier.bytes_needed() {
            let so = "the data beyond its end is lost; restore the device to its earlier size, or restore a backup";
            findings.add(Finding::at(tier, tier.bytes(), Severity::Damage, tier.cut_off()).so(so).unnamed());
        }
    }
    if let [fast, capacity] = &view.tiers[..] {
        one_time(fast, capacity, findings);
    }
    Ok(())
}

fn copies(view: &StoreView, tier: &TierView, findings: &mut Findings) -> Result<()> {
    let head = tier.head()?;
    let newest = &tier.superblock;
    for place in newest.copy_places() {
        let CopyPlace { number: copy, offset: at } = place;
        let add = |findings: &mut Findings, what: String| {
            let so = "nothing is lost while another copy is good; every opening rewrites all copies, as does esker repair --superblocks";
            findings.add(Finding::at(tier, at, Severity::Damage, what).so(so));
        };
        match read_copy(&*tier.source, place, &head, newest) {
            Ok(found) if found == *newest => {
                let wanted = found.encode(copy);
                if let Ok(bytes) = tier.read_bytes(at, wanted.len()) {
                    padding(tier, &bytes, at, &wanted, findings);
                }
            }
            // Copies are written in two groups: a crash in between leaves one group old and one new.
            Ok(found) if !view.is_closed() && found.generation + 1 == newest.generation => {}
            Ok(found) if newest.is_of_same_device(&found) => {
                let (has, newest) = (found.generation, newest.generation);
                add(
                    findings,
                    format!(
                        "copy {copy} of the superblock has generation {has}, but the newest copy has {newest}"
                    ),
                );
            }
            Ok(_) => add(findings, format!("copy {copy} of the superblock belongs to another store")),
            Err(error) => add(findings, format!("copy {copy} of the superblock cannot be used: {error}")),
        }
    }
    let stride = Superblock::stride_bytes(newest.unit_bytes);
    let behind = SUPERBLOCK_COPIES * stride as usize..(newest.data_offset as usize).min(HEAD_BYTES);
    if let Some(at) = head.get(behind.clone()).and_then(|bytes| bytes.iter().position(|byte| *byte != 0)) {
        let at = (behind.start + at) as u64;
        let what = "bytes between the superblocks and the first segment are not zeros";
        findings.add(Finding::at(tier, at, Severity::Note, what).so("no data is stored there"));
    }
    Ok(())
}

/// Checks that the padding after a copy is zeros.
fn padding(tier: &TierView, found: &[u8], at: u64, wanted: &[u8], findings: &mut Findings) {
    if let Some(differs) = found.iter().zip(wanted).position(|(a, b)| a != b) {
        let what = "padding behind a copy of the superblock is not zeros";
        findings
            .add(Finding::at(tier, at + differs as u64, Severity::Note, what).so("no data is stored there"));
    }
}

/// Compares the epochs of the tiers. An opening raises the epoch on one tier after the other, so a crash
/// explains a difference of one.
fn one_time(fast: &TierView, capacity: &TierView, findings: &mut Findings) {
    let (ahead, behind) =
        if fast.superblock.epoch > capacity.superblock.epoch { (fast, capacity) } else { (capacity, fast) };
    let missed = ahead.superblock.epoch - behind.superblock.epoch;
    let further = ahead.superblock.staging_epoch == ahead.superblock.epoch;
    if missed > 1 || missed == 1 && further {
        let what = format!(
            "the last opening of this tier was number {}, that of the other tier number {}: they are from different times",
            behind.superblock.epoch, ahead.superblock.epoch
        );
        let so =
            "old values and deleted keys would come back; use the two tiers that were last used together";
        findings.add(Finding::at(behind, 0, Severity::Damage, what).so(so).unnamed());
    }
}
