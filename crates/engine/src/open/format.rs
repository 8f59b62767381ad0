//! Creating a store on devices, and finding an existing one.

use std::sync::Arc;

use esker_device::{Buffer, Device, DeviceKind, FORMAT_MARK, Runtime, SIGNATURE_BYTES, foreign_signature};
use esker_log::{
    Cleared, Databases, HEAD_BYTES, Packing, SEGMENT_GRANULES_MAX, SUPERBLOCK_COPIES, Superblock,
    SuperblockError, Tier, Tiers,
};
use esker_seeded_bugs::{Bug, planted};

use crate::base::error::{Error, Result};
use crate::base::option_name::OptionName;
use crate::open::extent::{bytes_for, place_far_copies, too_large};
use crate::open::lost::{refuse_far_copies, refuse_lost_superblocks};
use crate::open::options::Options;
use crate::open::several::{self, Joined};
use crate::open::staging_file;
use crate::segments::accounting::WriteAccounting;
use crate::segments::far_copies;
use crate::segments::members::write_to_members;
use crate::segments::superblock_copies::clear_head;
use crate::segments::superblock_copies::write_superblock;
use crate::segments::superblocks::{clear_slots, used_slots_for};

/// Minimum distance of two copies of a superblock, in bytes.
const SUPERBLOCK_STRIDE_BYTES: usize = 4096;
/// Bytes that are read first to find a superblock. They hold all copies at the start of a device whose write unit is at most
/// 16 KiB; those of larger units take up to 4 MiB.
const NEAR_BYTES: u64 = 64 << 10;
/// Minimum number of segments in a tier.
pub(crate) const LEAST_SEGMENTS: u64 = 8;
/// Minimum number of write units in a segment: frames, the summary and the markers of a freed slot are whole units.
const LEAST_UNITS: u64 = 8;

/// A tier to be opened or created.
pub(crate) struct TierPlan {
    pub(crate) tier: Tier,
    pub(crate) device: Arc<dyn Device>,
    /// Maximum size of the tier, in bytes: the requested limit, else the default.
    pub(crate) limit_bytes: u64,
    /// The requested limit, in bytes.
    pub(crate) asked_bytes: Option<u64>,
    pub(crate) unit_bytes: u64,
    pub(crate) accounting: Arc<WriteAccounting>,
    /// Its superblock, if it has one.
    pub(crate) superblock: Option<Superblock>,
    /// Its devices, if it has several; `device` is all of them then.
    pub(crate) joined: Option<Joined>,
}

impl TierPlan {
    /// Returns its devices.
    fn devices(&self) -> Vec<Arc<dyn Device>> {
        match &self.joined {
            Some(joined) => joined.striped.devices().into_iter().map(|(_, device)| device).collect(),
            None => vec![self.device.clone()],
        }
    }
}

/// Common parameters of the tiers of a new store.
pub(crate) struct StorePlan {
    pub(crate) segment_bytes: u64,
    /// An error if the memory budget is too small for a new store.
    pub(crate) memory: Result<()>,
    pub(crate) force: bool,
    pub(crate) create: bool,
}

/// Returns the superblock on a device, if there is one.
pub(crate) async fn find_superblock(device: &Arc<dyn Device>) -> Result<Option<Superblock>> {
    let bytes = HEAD_BYTES.min(device.geometry().bytes);
    let bytes = bytes - bytes % u64::from(device.geometry().block_bytes);
    if bytes == 0 {
        return Ok(None);
    }
    if let Some(superblock) = find_near_start(device).await {
        return far_copies::newest(device, superblock).await.map(Some);
    }
    let (head, unread) = read_head(device, bytes as usize).await?;
    match (Superblock::find(&head), unread) {
        (Ok(superblock), _) => match superblock.nonsense() {
            None => far_copies::newest(device, superblock).await.map(Some),
            Some(what) => {
                let path = device.path();
                let what = format!("{path}: the superblock says {what}, which no store has");
                Err(Error::Corrupt { key: None, segment: 0, offset: 0, what })
            }
        },
        // A superblock may be in the unreadable part.
        (Err(SuperblockError::Absent), Some(error)) => {
            refuse_far_copies(device, &head).await?;
            Err(error)
        }
        (Err(SuperblockError::Absent), None) => Ok(None),
        // A crash tore the first pair of superblocks while the store was created: it was never opened.
        (Err(SuperblockError::Damaged), None) if head.starts_with(FORMAT_MARK) => Ok(None),
        (Err(error @ SuperblockError::Version { .. }), _) => {
            Err(Error::invalid(format!("{}: {error}", device.path())))
        }
        (Err(error), _) => {
            refuse_far_copies(device, &head).await?;
            let path = device.path();
            let what = format!(
                "{path}: {error}; `esker repair {path} --find-segments` rebuilds it from the segments"
            );
            Err(Error::Corrupt { key: None, segment: 0, offset: 0, what })
        }
    }
}

/// Returns the superblock on a device with a small write unit: all copies at its start are in the first [`NEAR_BYTES`].
/// Otherwise, and if the superblock or the read is unsound, returns `None`: then [`HEAD_BYTES`] are to be read.
async fn find_near_start(device: &Arc<dyn Device>) -> Option<Superblock> {
    if device.geometry().bytes < NEAR_BYTES {
        return None;
    }
    let (start, result) = device.read(0, device.buffer(NEAR_BYTES as usize)).await;
    result.ok()?;
    let superblock = Superblock::find(&start).ok()?;
    let copies_end = SUPERBLOCK_COPIES as u64 * Superblock::stride_bytes(superblock.unit_bytes);
    let is_whole = copies_end <= NEAR_BYTES || planted(Bug::SuperblocksBehindStartMissed);
    (is_whole && superblock.nonsense().is_none()).then_some(superblock)
}

/// Reads the first bytes of a device. If that fails, reads them page by page: unreadable pages are zeros, and the first
/// error is returned too.
async fn read_head(device: &Arc<dyn Device>, bytes: usize) -> Result<(Buffer, Option<Error>)> {
    let (mut head, result) = device.read(0, device.buffer(bytes)).await;
    match result.map_err(Error::from) {
        Ok(()) => return Ok((head, None)),
        Err(error) if error.is_of_reading() => tracing::error!(%error, "reading superblocks page by page"),
        Err(error) => return Err(error),
    }
    head.fill(0);
    let mut first = None;
    let page_bytes = SUPERBLOCK_STRIDE_BYTES.max(device.geometry().block_bytes as usize);
    for (number, page) in head.chunks_mut(page_bytes).enumerate() {
        let (read, result) = device.read((number * page_bytes) as u64, device.buffer(page.len())).await;
        match result.map_err(Error::from) {
            Ok(()) => page.copy_from_slice(&read),
            Err(error) if error.is_of_reading() => {
                first.get_or_insert(error);
            }
            Err(error) => return Err(error),
        }
    }
    Ok((head, first))
}

/// Returns the superblocks of the store on these devices, in the order of the devices. Creates the store if there is
/// none.
pub(crate) async fn load_or_format(
    tiers: &[TierPlan],
    plan: &StorePlan,
    options: &Options,
    runtime: &Arc<dyn Runtime>,
) -> Result<Vec<Superblock>> {
    let found: Vec<Option<Superblock>> = tiers.iter().map(|tier| tier.superblock.clone()).collect();
    // A crash during the creation of a store of two tiers leaves one tier without a superblock, and the other with a
    // superblock that was never opened: both are marked as opened, durably, before anything else is written to either.
    // A tier of a store that was opened is never formatted, even with `force_format`.
    let was_never_opened = !found.iter().flatten().any(was_opened);
    let may_format = was_never_opened || planted(Bug::OpenedTierFormatted) && plan.force;
    if found.iter().any(Option::is_none) && may_format {
        return format(tiers, &found, plan, options, runtime).await;
    }
    if let (Some(new), Some(kept)) =
        (found.iter().position(Option::is_none), found.iter().position(Option::is_some))
    {
        refuse_foreign(&tiers[new], false).await.or_else(only_if_lost)?;
        return Err(refuse_beside_store(&tiers[new], &tiers[kept]));
    }
    let mut superblocks = Vec::new();
    for (tier, superblock) in tiers.iter().zip(found.into_iter().flatten()) {
        let path = tier.device.path();
        if superblock.tier() != tier.tier || superblock.has_peer != (tiers.len() > 1) {
            let is = if superblock.has_peer { "one of two tiers" } else { "the only tier" };
            return Err(Error::invalid(format!(
                "{path} is the {} tier, {is}, of its store; it was given as the {} tier of {}",
                superblock.tier().name(),
                tier.tier.name(),
                tiers.len()
            )));
        }
        superblocks.push(superblock);
    }
    if superblocks.iter().any(|s| s.store_id != superblocks[0].store_id) {
        return Err(Error::invalid(format!(
            "{} and {} belong to different stores; give the tiers that belong together",
            tiers[0].device.path(),
            tiers[1].device.path()
        )));
    }
    refuse_other_time(tiers, &superblocks)?;
    Ok(superblocks)
}

/// Keeps the error for a tier whose superblocks were lost, for which that of a tier without a store gives the wrong remedy.
fn only_if_lost(error: Error) -> Result<()> {
    match error {
        Error::SuperblocksLost { .. } => Err(error),
        _ => Ok(()),
    }
}

/// Returns true if a store was opened on a tier, so that the tier may hold records.
pub(crate) fn was_opened(superblock: &Superblock) -> bool {
    superblock.epoch > 0
}

/// Returns the error for a tier without a superblock beside a tier of a store: formatting it would create a new store
/// on both.
fn refuse_beside_store(new: &TierPlan, kept: &TierPlan) -> Error {
    Error::invalid(refused_beside_store(&new.device.path(), new.tier, &kept.device.path(), kept.tier))
}

/// Returns the message of that error, which names both tiers and the remedies.
pub(crate) fn refused_beside_store(
    new: &dyn std::fmt::Display,
    new_tier: Tier,
    kept: &dyn std::fmt::Display,
    kept_tier: Tier,
) -> String {
    let (new_tier, kept_tier) = (new_tier.name(), kept_tier.name());
    format!(
        "{new}, given as the {new_tier} tier, holds no store, but {kept}, given as the {kept_tier} tier, is a tier of \
         one; give the tiers that belong together. force_format (esker serve --force-format) would format {new} alone, \
         and never formats a tier of a store. If the {new_tier} tier is lost, restore a backup; to give up what {kept} holds and make a new store, \
         delete it or discard the whole device (blkdiscard)"
    )
}

/// Refuses tiers that were not closed, or killed, together: one of them is older, for example a restored image, and
/// would bring back overwritten or deleted records.
///
/// An opening raises the epoch on one tier after the other, on the older one first, before it writes anything else. A
/// crash therefore explains a difference of one, unless the newer tier got further in its opening than that.
fn refuse_other_time(tiers: &[TierPlan], superblocks: &[Superblock]) -> Result<()> {
    let ahead = superblocks.iter().max_by_key(|s| s.epoch).expect("a store has a tier");
    for (plan, behind) in tiers.iter().zip(superblocks) {
        let missed = ahead.epoch - behind.epoch;
        if missed > 1 || missed == 1 && ahead.staging_epoch == ahead.epoch {
            return Err(Error::invalid(format!(
                "{} is from another time than the other tier of its store: it was last opened as number {}, the other \
                 as number {}; give the tiers that were last used together",
                plan.device.path(),
                behind.epoch,
                ahead.epoch
            )));
        }
    }
    Ok(())
}

/// Creates a store. `found`: the superblocks of a store that was never opened.
async fn format(
    tiers: &[TierPlan],
    found: &[Option<Superblock>],
    plan: &StorePlan,
    options: &Options,
    runtime: &Arc<dyn Runtime>,
) -> Result<Vec<Superblock>> {
    let store_id = u128::from(runtime.random()) << 64 | u128::from(runtime.random());
    let digest_key = [runtime.random(), runtime.random()];
    let salt = runtime.random();
    let total: u64 = tiers.iter().map(|t| t.limit_bytes).sum();
    let granule_bytes = granule_for(total, plan.segment_bytes);
    let mut superblocks = Vec::new();
    for (tier, found) in tiers.iter().zip(found) {
        if !plan.create {
            return Err(Error::invalid(format!("{} holds no store", tier.device.path())));
        }
        refuse_foreign(tier, plan.force || found.is_some()).await?;
        check_sizes(&tier.device.path(), tier.limit_bytes, tier.unit_bytes, plan.segment_bytes)?;
        let data_offset = Superblock::data_offset_for(tier.unit_bytes);
        let slots = tier.limit_bytes.saturating_sub(data_offset) / plan.segment_bytes;
        refuse_beyond(tier, tiers.len(), slots, granule_bytes, plan.segment_bytes)?;
        // Afterwards, because more memory does not help a store that is impossible.
        plan.memory.clone()?;
        let grows = tier.device.geometry().kind == DeviceKind::File;
        let mut superblock = Superblock {
            generation: 1,
            store_id,
            fast: tier.tier == Tier::Fast,
            has_peer: tiers.len() > 1,
            epoch: 0,
            staging_epoch: 0,
            digest_key,
            salt,
            granule_bytes,
            segment_bytes: plan.segment_bytes,
            unit_bytes: tier.unit_bytes,
            data_offset,
            used_slots: 0,
            cleared: Cleared::default(),
            databases: Databases::default(),
            created_at_ms: runtime.wall_clock_ms(),
            clock_ms: 0,
            staging_boot: 0,
            staging_bytes: 0,
            census: None,
            expired: Vec::new(),
            device_id: u128::from(runtime.random()) << 64 | u128::from(runtime.random()),
            devices: Vec::new(),
            far_copies: Vec::new(),
            stripes: Vec::new(),
            moved: Vec::new(),
        };
        match &tier.joined {
            Some(joined) => several::distribute(&mut superblock, joined, slots, runtime)?,
            None => {
                place_far_copies(&tier.device, &mut superblock);
                let slots = superblock.slots_within(tier.limit_bytes);
                superblock.used_slots = used_slots_for(0, slots as u32, grows);
            }
        }
        superblocks.push(superblock);
    }
    // After lost superblocks are refused, because the staging file may be that of their store.
    staging_file::check_of_new_store(options)?;
    for (tier, superblock) in tiers.iter().zip(&superblocks) {
        let device = &tier.device;
        // Before the first write: otherwise the device may issue a unit in parts.
        device.set_write_unit(superblock.unit_bytes as u32);
        if device.geometry().kind == DeviceKind::File {
            device.resize(superblock.data_offset).await?;
            device.extend(bytes_for(superblock.used_slots, superblock)).await?;
        }
        // Old content must not be mistaken for a superblock of this store or another one.
        for device in tier.devices() {
            clear_head(&device, &tier.accounting, superblock).await?;
        }
        clear_slots(device, &tier.accounting, superblock, 0..superblock.used_slots).await?;
    }
    for (tier, superblock) in tiers.iter().zip(&superblocks) {
        match &tier.joined {
            Some(joined) => {
                write_to_members(&joined.striped, |_| false, &tier.accounting, superblock).await?
            }
            None => write_superblock(&tier.device, &tier.accounting, superblock).await?,
        }
    }
    Ok(superblocks)
}

/// Refuses a tier of more slots than a new store can address.
fn refuse_beyond(
    plan: &TierPlan,
    tiers: usize,
    slots: u64,
    granule_bytes: u64,
    segment_bytes: u64,
) -> Result<()> {
    let tiers = if tiers > 1 { Tiers::Both } else { Tiers::Only(plan.tier) };
    let packing = Packing { granule_bytes, segment_bytes, tiers };
    if slots <= packing.slots_max() {
        return Ok(());
    }
    let most_bytes = Superblock::data_offset_for(plan.unit_bytes) + packing.slots_max() * segment_bytes;
    let what = too_large(&plan.device.path(), most_bytes, &packing);
    Err(Error::invalid(format!(
        "a tier of {} bytes is too large: {what}; format with larger segments, or set a lower limit",
        plan.limit_bytes
    )))
}

/// Checks that a tier of these sizes is large enough.
pub(crate) fn check_sizes(
    path: &dyn std::fmt::Display,
    limit_bytes: u64,
    unit_bytes: u64,
    segment_bytes: u64,
) -> Result<()> {
    if segment_bytes < LEAST_UNITS * unit_bytes {
        let (least, most) = (LEAST_UNITS * unit_bytes, segment_bytes / LEAST_UNITS);
        let what = format!(
            "is {segment_bytes}, less than {LEAST_UNITS} write units of {unit_bytes} bytes; choose segments of at least {least} \
             bytes, or an indirection unit of at most {most}"
        );
        return Err(Error::option(OptionName::Segment, what));
    }
    let data_offset = Superblock::data_offset_for(unit_bytes);
    let least = data_offset + LEAST_SEGMENTS * segment_bytes;
    if limit_bytes < least {
        return Err(Error::invalid(format!(
            "{path} has room for {limit_bytes} bytes; at least {least} are needed: {LEAST_SEGMENTS} segments of \
             {segment_bytes} bytes behind {data_offset} bytes of metadata. Give the store more room, or choose shorter \
             segments; a segment has at least {LEAST_UNITS} write units, here of {unit_bytes} bytes"
        )));
    }
    Ok(())
}

pub(crate) async fn refuse_foreign(tier: &TierPlan, force: bool) -> Result<()> {
    for device in tier.devices() {
        refuse_foreign_device(&device, force).await?;
    }
    Ok(())
}

/// Refuses a device with data of other software, or with segments of a store whose superblocks are lost.
pub(crate) async fn refuse_foreign_device(device: &Arc<dyn Device>, force: bool) -> Result<()> {
    let bytes = (SIGNATURE_BYTES as u64).min(device.geometry().bytes);
    let bytes = bytes - bytes % u64::from(device.geometry().block_bytes);
    if force || bytes == 0 {
        return Ok(());
    }
    let (head, result) = device.read(0, device.buffer(bytes as usize)).await;
    result.map_err(Error::from)?;
    if head.starts_with(FORMAT_MARK) {
        return Ok(());
    }
    refuse_lost_superblocks(device, &head).await?;
    refuse_signature(&device.path(), &head)
}

/// Refuses a device that begins with the signature of other software.
pub(crate) fn refuse_signature(path: &dyn std::fmt::Display, start: &[u8]) -> Result<()> {
    match foreign_signature(start) {
        None => Ok(()),
        Some(what) => Err(Error::option(
            OptionName::ForceFormat,
            format!("is needed to format {path}, which is not empty: it holds {what}"),
        )),
    }
}

/// Returns the alignment of records for a store with these limits in total: fine enough to waste little, and coarse
/// enough that the smallest tables of the index still suffice when the limits are doubled.
pub fn granule_for(total_bytes: u64, segment_bytes: u64) -> u64 {
    Packing::granule_for(total_bytes.saturating_mul(2)).max(segment_bytes / SEGMENT_GRANULES_MAX)
}

#[cfg(test)]
mod tests {
    use esker_device::{Source, WriteMode};

    use super::*;
    use crate::open::devices::DEFAULT_FILE_LIMIT_BYTES;
    use crate::testing::Plan;

    /// A crash left the newest superblock in the second group of copies alone.
    #[test]
    fn newest_superblock_is_found_whatever_the_unit() {
        for unit_bytes in [4 << 10, 16 << 10, 32 << 10, 64 << 10] {
            let plan = Plan::new(1);
            let device: Arc<dyn Device> = Arc::new(plan.device());
            let data_offset = Superblock::data_offset_for(unit_bytes);
            let segment_bytes = 1 << 20;
            let first = Superblock {
                generation: 2,
                unit_bytes,
                segment_bytes,
                data_offset,
                ..plan.superblock(Tier::Capacity)
            };
            let second = Superblock { generation: first.generation + 1, ..first.clone() };
            let [new, old] = second.copy_groups();
            assert!(old.iter().chain(&new).map(|place| place.number).eq(0..SUPERBLOCK_COPIES));
            for (superblock, copies) in [(&first, &old), (&second, &new)] {
                for place in copies {
                    let bytes = Source::Owned(Buffer::copy_from(&superblock.encode(place.number)));
                    plan.world
                        .run(device.write(place.offset, bytes, WriteMode::Plain))
                        .expect("it is written");
                }
            }
            let found = plan.world.run(find_superblock(&device)).expect("it is read").expect("there is one");
            assert_eq!((found.unit_bytes, found.generation), (unit_bytes, second.generation));
        }
    }

    #[test]
    fn granule_grows_with_limit_and_leaves_index_room_to_double() {
        let segment_bytes = 16 << 20;
        let granule = |limit_bytes| granule_for(limit_bytes, segment_bytes);
        assert_eq!([64 << 30, 128 << 30, (128 << 30) + 1].map(granule), [4, 4, 8]);
        assert_eq!([DEFAULT_FILE_LIMIT_BYTES, DEFAULT_FILE_LIMIT_BYTES + 1].map(granule), [8, 16]);
        assert_eq!([2 << 40, 4 << 40, 1 << 50, u64::MAX].map(granule), [64; 4]);
        for limit_bytes in (1..=2048).map(|gigabytes| gigabytes << 30) {
            assert!(2 * limit_bytes / granule(limit_bytes) <= 1 << 36, "{limit_bytes}");
        }
        assert_eq!(
            [1 << 20, 1 << 30, 1 << 31].map(|segment_bytes| granule_for(1 << 50, segment_bytes)),
            [64, 64, 128]
        );
    }
}
