//! Devices of a tier that are taken out of it while the store is open.

use esker_device::{Buffer, FORMAT_MARK, Source, WriteMode};
use esker_log::DeviceMember;
use esker_seeded_bugs::{Bug, planted};

use crate::base::error::{Error, Result};
use crate::segments::space::Space;
use crate::segments::tier::Tier;

impl Space {
    /// Begins to drain the device with this path: it gets no new segments. `used_bytes` is compared with the limit that is left.
    ///
    /// # Errors
    /// `Invalid` if it is no device of a tier of several, or the only one left, or if the others have no room for the records.
    pub(crate) async fn drain_device(&self, path: &str, used_bytes: u64) -> Result<()> {
        let _turn = self.changing_devices.lock().await;
        let found = self.tiers().find_map(|tier| Some((tier, tier.members()?.position_of(path)?)));
        let Some((tier, position)) = found else {
            return Err(Error::invalid(format!(
                "{path} cannot be drained: it is no device of a tier of several devices"
            )));
        };
        let members = tier.members().expect("it was found in them");
        if members.is_draining(position) {
            return Ok(());
        }
        if members.has_failed(path) {
            return Err(Error::invalid(format!(
                "{path} cannot be drained: it has failed; its records are lost if it is not back at the next opening"
            )));
        }
        let others = members
            .healthy()
            .into_iter()
            .filter(|(other, _)| *other != position && !members.is_draining(*other));
        if others.count() == 0 {
            return Err(Error::invalid(format!(
                "{path} cannot be drained: no other device of its tier gets new segments"
            )));
        }
        tier.close_member(position, true);
        self.note_limit();
        let limit_bytes = self.user_limit_bytes();
        if used_bytes > limit_bytes {
            tier.close_member(position, false);
            self.note_limit();
            return Err(Error::invalid(format!(
                "{path} cannot be drained: {used_bytes} bytes are used, and the other devices have room for {limit_bytes}; \
                 add a device, or delete keys"
            )));
        }
        let marked = self
            .superblocks
            .update_tier(tier, |superblock| {
                superblock.devices[position].draining = true;
                Ok(())
            })
            .await;
        if marked.is_ok() {
            members.set_draining(position);
            tracing::info!(path, tier = tier.name().name(), "draining a device");
            self.reclaim.notify_one();
        }
        marked
    }

    /// Removes a device without segments: first from the list, durably, because otherwise the next opening would miss it. The
    /// caller knows that no slot of it is taken any more, since it is drained.
    pub(crate) async fn remove_device(&self, tier: &Tier, position: usize) -> Result<()> {
        let _turn = self.changing_devices.lock().await;
        let Some(members) = tier.members() else { return Ok(()) };
        let striped = members.striped()?;
        let device = striped.member(position);
        let data_offset = if planted(Bug::RemovedDeviceListed) {
            striped.map().head_bytes()
        } else {
            self.superblocks
                .update_tier(tier, |superblock| {
                    superblock.devices[position] = DeviceMember::default();
                    Ok(superblock.data_offset)
                })
                .await?
        };
        members.forget(position);
        striped.remove(position);
        let Some(device) = device else { return Ok(()) };
        let path = device.path();
        // The mark permits a store to format it, although it still has old segments.
        let mut empty = Buffer::zeroed(data_offset as usize);
        empty[..FORMAT_MARK.len()].copy_from_slice(FORMAT_MARK);
        match device.write(0, Source::Owned(empty), WriteMode::Durable).await {
            Ok(()) => {
                tracing::info!(path, "a drained device is empty and was removed: do not give it any more")
            }
            Err(error) => {
                tracing::warn!(path, %error, "a device was removed, but its superblock cannot be erased")
            }
        }
        Ok(())
    }
}
