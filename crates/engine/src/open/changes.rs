//! Writes to the devices of a tier of several before the epoch is raised.

use esker_device::{Buffer, Source, WriteMode};
use esker_log::Superblock;
use esker_seeded_bugs::{Bug, planted};

use crate::base::error::{Error, Result};
use crate::segments::members::Members;
use crate::segments::superblock_copies::{clear_head, write_superblock_over};
use crate::segments::superblocks::clear_slots;
use crate::segments::tier::Tier;

/// Devices of a tier to be written to before the epoch is raised.
#[derive(Default)]
pub(crate) struct Changes {
    /// Positions of devices that are added.
    pub(super) added: Vec<usize>,
    /// Devices with an older superblock than others, because the last process ended while it wrote them.
    pub(super) behind: Vec<Laggard>,
}

/// A device with an older superblock than others of its tier.
pub(super) struct Laggard {
    pub(super) position: usize,
    /// The generation on it.
    pub(super) generation: u64,
    /// The newest superblock, as others have it.
    pub(super) newest: Superblock,
}

impl Changes {
    /// Makes all devices of a tier ready for the next superblock, which may name other devices.
    pub(super) async fn prepare(&self, tier: &Tier, superblock: &Superblock) -> Result<()> {
        let Some(members) = tier.members() else { return Ok(()) };
        catch_up(tier, members, &self.behind).await?;
        for (position, device) in members.striped()?.devices() {
            if self.added.contains(&position) {
                tracing::info!(path = device.path(), tier = tier.name().name(), "adding a device");
                clear_head(&device, tier.accounting(), superblock).await?;
            }
        }
        erase_far_copies(tier, members, superblock).await
    }
}

/// Writes the newest superblock to the devices that have an older one, before any superblock is changed: the next epoch would
/// be two ahead of theirs if this opening is interrupted too, and a crash could tear the only group of copies that they have.
async fn catch_up(tier: &Tier, members: &Members, behind: &[Laggard]) -> Result<()> {
    for Laggard { position, generation, newest } in behind.iter().filter(|_| !planted(Bug::LaggardLeftBehind))
    {
        let Some(device) = members.striped()?.member(*position) else { continue };
        write_superblock_over(&device, tier.accounting(), newest, *generation).await?;
    }
    Ok(())
}

/// Erases the far copies of a tier that had one device until now, and makes the slots that they overlap read as free. Those
/// slots stay out of use in this opening.
///
/// The superblock of the tier is written afterwards, because otherwise a crash could leave copies that name no other device.
async fn erase_far_copies(tier: &Tier, members: &Members, superblock: &Superblock) -> Result<()> {
    if superblock.far_copies.is_empty() {
        return Ok(());
    }
    let first = members.striped()?.member(0).ok_or_else(|| Error::invalid("the first device is missing"))?;
    for &offset in &superblock.far_copies {
        tier.accounting().superblock(superblock.unit_bytes);
        let zeros = Source::Owned(Buffer::zeroed(superblock.unit_bytes as usize));
        first.write(offset, zeros, WriteMode::Durable).await?;
    }
    let without = Superblock { far_copies: Vec::new(), ..superblock.clone() };
    let slots: Vec<u32> = superblock.slots_out_of_use(superblock.used_slots).collect();
    clear_slots(&tier.device()?, tier.accounting(), &without, slots.into_iter()).await
}
