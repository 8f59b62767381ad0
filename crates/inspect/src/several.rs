//! Tiers of several devices: which device is which is read from their superblocks, as an opening does.

use std::sync::Arc;

use esker_device::{ReadAt, StripedReader};

use crate::error::{InspectError, Result};
use crate::store::TierView;

/// Joins the devices of a tier to one view.
///
/// # Errors
/// If a device of a tier is missing, or one does not belong to it.
pub(crate) fn join(views: Vec<TierView>) -> Result<Vec<TierView>> {
    let (mut several, mut tiers): (Vec<_>, Vec<_>) =
        views.into_iter().partition(|view| !view.superblock.devices.is_empty());
    while let Some(first) = several.first() {
        let key = |view: &TierView| (view.superblock.store_id, view.superblock.fast);
        let of_tier = key(first);
        let (same, others) = several.into_iter().partition(|view| key(view) == of_tier);
        several = others;
        tiers.push(join_tier(same)?);
    }
    Ok(tiers)
}

fn join_tier(views: Vec<TierView>) -> Result<TierView> {
    let newest = views.iter().max_by_key(|view| (view.superblock.epoch, view.superblock.generation));
    let newest = newest.expect("a tier has a device").superblock.clone();
    let tier = newest.tier().name();
    let mut members: Vec<Option<&TierView>> = vec![None; newest.devices.len()];
    for view in &views {
        let (path, id) = (view.path(), view.superblock.device_id);
        let Some(position) = newest.devices.iter().position(|member| member.device_id == id) else {
            return Err(InspectError::Call(format!(
                "{path} was removed from the {tier} tier of its store, or its loss was accepted; do not name it"
            )));
        };
        if let Some(other) = members[position].replace(view) {
            let other = other.path();
            return Err(InspectError::Call(format!(
                "{path} and {other} are copies of one device of the {tier} tier"
            )));
        }
    }
    let is_missing =
        |position: &usize| members[*position].is_none() && !newest.devices[*position].is_vacant();
    if let Some(position) = (0..members.len()).find(is_missing) {
        let there: Vec<String> = views.iter().map(TierView::path).collect();
        return Err(InspectError::Call(format!(
            "device {} of {} of the {tier} tier is missing beside {}; name every device of the store, the further ones with --peer",
            position + 1,
            members.len(),
            there.join(", ")
        )));
    }
    let at: Vec<(usize, Arc<dyn ReadAt>)> = members
        .iter()
        .enumerate()
        .filter_map(|(position, view)| Some((position, view.as_ref()?.source.clone())))
        .collect();
    let sources = members.iter().zip(&newest.devices);
    let sources =
        sources.map(|(view, member)| (view.map(|view| view.source.clone()), member.used_slots)).collect();
    let map = newest.stripe_map().expect("it has several devices");
    let shape = views[0].shape;
    Ok(TierView {
        source: Arc::new(StripedReader::new(sources, map)),
        members: at,
        given: views.into_iter().flat_map(|view| view.given).collect(),
        superblock: newest,
        shape,
    })
}
