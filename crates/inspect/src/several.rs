//! Tiers of several devices: which device is which is read from their superblocks, as an opening does.

use std::sync::Arc;

use esker_device::{Buffer, ReadAt, SlotPlace, StripedReader};
use esker_log::{DeviceMember, SegmentIdentity, SegmentShape, Superblock};

use crate::error::{InspectError, Result};
use crate::tier_view::TierView;

/// Bytes of a segment's start that are read.
const START_BYTES: usize = 4096;

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

/// Returns a view of a device without a superblock, if it is one of several of a tier: `known` are the superblocks of other
/// devices. The device must have segments of the tier where only a missing device has them.
pub(crate) fn without_superblock(source: &Arc<dyn ReadAt>, known: &[Superblock]) -> Option<TierView> {
    let newest = known.iter().filter(|superblock| !superblock.devices.is_empty());
    let newest = newest.max_by_key(|superblock| (superblock.epoch, superblock.generation))?;
    let (map, shape) = (newest.stripe_map()?, SegmentShape::of(newest));
    let is_known =
        |member: &DeviceMember| known.iter().any(|superblock| superblock.device_id == member.device_id);
    let has_segment = |position: usize, local: u32| {
        let mut start = Buffer::zeroed(START_BYTES);
        let offset = newest.data_offset + u64::from(local) * newest.segment_bytes;
        let identity = source.read_at(offset, &mut start).ok().and_then(|()| SegmentIdentity::parse(&start));
        identity.is_some_and(|identity| {
            identity.is_of(&shape, &newest.secret())
                && map.slot_at(SlotPlace { member: position, local }) == Some(identity.slot)
        })
    };
    let missing =
        newest.devices.iter().enumerate().filter(|(_, member)| !member.is_vacant() && !is_known(member));
    let mut its = missing
        .filter(|(position, member)| (0..member.used_slots).any(|local| has_segment(*position, local)));
    let (position, _) = its.next()?;
    if its.next().is_some() {
        return None;
    }
    let superblock = newest.of_member(position);
    Some(TierView { source: source.clone(), members: Vec::new(), given: Vec::new(), superblock, shape })
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
