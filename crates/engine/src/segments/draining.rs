//! Devices of a tier that are taken out of it while the store is open.

use esker_log::DeviceMember;
use esker_seeded_bugs::{Bug, planted};

use crate::base::error::{Error, Result};
use crate::segments::space::Space;
use crate::segments::superblock_copies::clear_head;
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
        if marked.is_err() {
            tier.close_member(position, false);
            self.note_limit();
        } else {
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
        // No slot of the device is cleared meanwhile, nor later, because it has none then.
        let clearing = self.superblocks.clearing().await;
        let superblock = self
            .superblocks
            .update_tier(tier, |superblock| {
                if !planted(Bug::RemovedDeviceListed) {
                    superblock.devices[position] = DeviceMember::default();
                }
                Ok(superblock.clone())
            })
            .await?;
        members.forget(position);
        striped.remove(position);
        drop(clearing);
        let Some(device) = device else { return Ok(()) };
        let path = device.path();
        match clear_head(&device, tier.accounting(), &superblock).await {
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
