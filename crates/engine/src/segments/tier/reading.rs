//! Reads of a tier's segments, in whole blocks of the device.

use esker_device::{Buffer, Device, DeviceError, Pending};

use super::Tier;
use crate::base::error::{Error, Result};
use crate::base::latency::Timed;

/// A read operation of the device.
type DeviceRead = fn(&dyn Device, u64, Buffer) -> Pending<(Buffer, std::result::Result<(), DeviceError>)>;

impl Tier {
    /// Reads a part of a segment, widened to the device's blocks. Returns the buffer, and the position of `offset` in it.
    pub(crate) async fn read(&self, slot: u32, offset: u32, bytes: u64) -> Result<(Buffer, usize)> {
        self.read_by(<dyn Device>::read, slot, offset, bytes, None).await
    }

    /// Like [`Tier::read`], reusing the buffer `used` if it is large enough.
    pub(crate) async fn read_into(
        &self,
        slot: u32,
        offset: u32,
        bytes: u64,
        used: Option<Buffer>,
    ) -> Result<(Buffer, usize)> {
        self.read_by(<dyn Device>::read, slot, offset, bytes, used).await
    }

    /// Like [`Tier::read`], for background work.
    pub(crate) async fn read_background(
        &self,
        slot: u32,
        offset: u32,
        bytes: u64,
    ) -> Result<(Buffer, usize)> {
        self.read_by(<dyn Device>::read_background, slot, offset, bytes, None).await
    }

    async fn read_by(
        &self,
        read: DeviceRead,
        slot: u32,
        offset: u32,
        bytes: u64,
        used: Option<Buffer>,
    ) -> Result<(Buffer, usize)> {
        let device = self.device()?;
        let block = u64::from(device.geometry().block_bytes);
        let start = u64::from(offset) / block * block;
        let end = (u64::from(offset).saturating_add(bytes)).min(u64::from(self.shape.segment_bytes));
        let end = end.next_multiple_of(block).min(u64::from(self.shape.segment_bytes));
        let len = (end - start) as usize;
        let used = used.and_then(|mut buffer| buffer.fit(len).then_some(buffer));
        let buffer = used.unwrap_or_else(|| device.buffer(len));
        let began = self.clock.now();
        let (buffer, result) = read(&*device, self.device_offset(slot, start as u32), buffer).await;
        self.recorder.record(Timed::Read(self.name), self.clock.now().saturating_sub(began));
        result.map_err(Error::from)?;
        Ok((buffer, (u64::from(offset) - start) as usize))
    }

    /// Reads across the start of a slot: the block before it and its own first block. Returns the buffer, and the position of
    /// the slot's start in it. For the slot number behind the last, reads only the former.
    pub(crate) async fn read_border(&self, slot: u32, slots: u32) -> Result<(Buffer, usize)> {
        let device = self.device()?;
        let block = device.geometry().block_bytes as usize;
        let buffer = device.buffer(if slot < slots { 2 * block } else { block });
        let (buffer, result) = device.read(self.device_offset(slot, 0) - block as u64, buffer).await;
        result.map_err(Error::from)?;
        Ok((buffer, block))
    }
}
