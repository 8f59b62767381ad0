//! The flash translation layer: the processing of a host's writes inside a drive.
//!
//! 1. A write is split at IU boundaries. A whole IU is programmed directly.
//! 2. A partial IU waits in the coalescing buffer for the rest. If its entry is evicted before the rest arrives, the
//!    drive reads the IU, modifies it and programs it whole.
//! 3. Programs go to the open superblock of the write's placement handle; the map is updated, and the old copy becomes
//!    invalid.
//! 4. While free superblocks are scarce, each program of the host triggers a few moves of the collector, so that a
//!    victim is empty by the time its space is needed. Moved IUs go to a separate open superblock per handle.
//!
//! Invariants, checked by the tests: a mapped IU has exactly one place; a superblock's count of valid IUs is the number
//! of its places that the map points at; a superblock holds IUs of only one handle.

mod coalesce;
mod collect;
mod counters;
mod map;
mod shape;
mod superblocks;
#[cfg(test)]
mod tests;

use coalesce::{Coalescer, Outcome};
use collect::Collection;
pub use counters::{Counters, Wear};
use map::{Divisor, Map};
pub use shape::{Collector, SECTOR_BYTES, Shape};
use superblocks::Superblocks;

use crate::Error;

/// A placement handle: a stream, or an FDP reclaim unit handle. IUs of different handles share no superblock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Handle(pub u16);

/// Cause of a flash read or program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// A request of the host.
    Host,
    /// Read-modify-write of a partially written IU.
    Modify,
    /// The collector moves valid IUs out of a victim.
    Collect,
}

/// The flash below the translation layer, notified of all operations. A place is a physical position, counted in IUs.
pub trait Flash {
    /// Programs an IU.
    fn program(&mut self, place: u32, cause: Cause);
    /// Reads an IU or a part of it.
    fn read(&mut self, place: u32, bytes: u32, cause: Cause);
    /// Erases a superblock.
    fn erase(&mut self, superblock: u32);
}

/// Flash whose operations take no time.
#[derive(Clone, Copy, Debug, Default)]
pub struct Untimed;

impl Flash for Untimed {
    fn program(&mut self, _: u32, _: Cause) {}
    fn read(&mut self, _: u32, _: u32, _: Cause) {}
    fn erase(&mut self, _: u32) {}
}

/// An open superblock to which IUs are appended.
#[derive(Clone, Copy, Debug)]
struct AppendPoint {
    superblock: u32,
    /// Next place in the superblock; it is full at `superblock_ius`.
    next: u32,
}

/// A modelled drive.
#[derive(Debug)]
pub struct Drive<F = Untimed> {
    shape: Shape,
    namespace_bytes: u64,
    superblock_ius: Divisor,
    sectors_per_iu: u32,
    map: Map,
    superblocks: Superblocks,
    coalescer: Coalescer,
    /// Append points of the host's writes, one per handle that has written.
    host: Vec<Option<AppendPoint>>,
    /// Append points of the collector, one per handle.
    moved: Vec<Option<AppendPoint>>,
    collection: Option<Collection>,
    counters: Counters,
    flash: F,
}

impl Drive {
    /// Returns a drive on which nothing takes time.
    pub fn new(shape: &Shape) -> Result<Drive, Error> {
        Drive::on(shape, Untimed)
    }
}

impl<F: Flash> Drive<F> {
    /// Returns an empty drive on the given flash.
    pub fn on(shape: &Shape, flash: F) -> Result<Drive<F>, Error> {
        let sizes = shape.sizes()?;
        let handles = usize::from(shape.handles);
        Ok(Drive {
            shape: shape.clone(),
            namespace_bytes: shape.namespace_bytes,
            superblock_ius: Divisor::new(sizes.superblock_ius),
            sectors_per_iu: shape.iu_bytes / SECTOR_BYTES as u32,
            map: Map::new(sizes.namespace_ius, sizes.superblocks * sizes.superblock_ius),
            superblocks: Superblocks::new(sizes.superblocks, sizes.superblock_ius),
            coalescer: Coalescer::new(shape.coalescing_ius, shape.iu_bytes / SECTOR_BYTES as u32),
            host: vec![None; handles],
            moved: vec![None; handles],
            collection: None,
            counters: Counters::new(shape.iu_bytes),
            flash,
        })
    }

    /// Returns the shape of the drive.
    pub fn shape(&self) -> &Shape {
        &self.shape
    }

    /// Returns the counters since the drive was built.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// Returns the erase counts of the superblocks.
    pub fn wear(&self) -> Wear {
        self.superblocks.wear()
    }

    /// Returns the flash below.
    pub fn flash(&self) -> &F {
        &self.flash
    }

    /// Returns the flash below.
    pub fn flash_mut(&mut self) -> &mut F {
        &mut self.flash
    }

    /// Writes a range of the namespace.
    pub fn write(&mut self, offset: u64, bytes: u64, handle: Handle) -> Result<(), Error> {
        self.check(offset, bytes)?;
        if handle.0 >= self.shape.handles {
            return Err(Error::NoSuchHandle { handle: handle.0, handles: self.shape.handles });
        }
        let iu_bytes = u64::from(self.shape.iu_bytes);
        self.counters.host_writes += 1;
        self.counters.host_bytes += bytes;
        if !(offset | bytes).is_multiple_of(iu_bytes) {
            self.counters.partial_writes += 1;
        }
        let (mut sector, end) = (offset / SECTOR_BYTES, (offset + bytes) / SECTOR_BYTES);
        while sector < end {
            let iu = (sector / u64::from(self.sectors_per_iu)) as u32;
            let first = (sector % u64::from(self.sectors_per_iu)) as u32;
            let count = (end - sector).min(u64::from(self.sectors_per_iu - first)) as u32;
            if count == self.sectors_per_iu {
                self.coalescer.forget(iu);
                self.counters.whole_ius += 1;
                self.program_for_host(iu, handle, Cause::Host);
            } else {
                self.write_part(iu, first, count, handle);
            }
            sector += u64::from(count);
        }
        Ok(())
    }

    /// Writes a share of the namespace once, sequentially.
    pub fn fill(&mut self, share: f64) -> Result<(), Error> {
        let iu_bytes = u64::from(self.shape.iu_bytes);
        let filled = (self.namespace_bytes as f64 * share) as u64 / iu_bytes * iu_bytes;
        self.write(0, filled.min(self.namespace_bytes), Handle(0))
    }

    /// Reads a range of the namespace.
    pub fn read(&mut self, offset: u64, bytes: u64) -> Result<(), Error> {
        self.check(offset, bytes)?;
        self.counters.read_bytes += bytes;
        let iu_bytes = u64::from(self.shape.iu_bytes);
        let (mut at, end) = (offset, offset + bytes);
        while at < end {
            let next = ((at / iu_bytes + 1) * iu_bytes).min(end);
            let iu = (at / iu_bytes) as u32;
            match self.map.place(iu) {
                Some(place) if !self.coalescer.holds(iu) => {
                    self.flash.read(place, (next - at) as u32, Cause::Host);
                }
                _ => {}
            }
            at = next;
        }
        Ok(())
    }

    /// Discards a range (TRIM). Whole IUs inside it become invalid.
    pub fn trim(&mut self, offset: u64, bytes: u64) -> Result<(), Error> {
        self.check(offset, bytes)?;
        let iu_bytes = u64::from(self.shape.iu_bytes);
        let (first, end) = (offset.div_ceil(iu_bytes), (offset + bytes) / iu_bytes);
        for iu in first..end {
            let iu = iu as u32;
            self.coalescer.forget(iu);
            if let Some(place) = self.map.unmap(iu) {
                self.superblocks.invalidate(self.superblock_ius.divide(place));
                self.counters.trimmed_ius += 1;
            }
        }
        Ok(())
    }

    /// Programs the contents of the coalescing buffer.
    pub fn flush(&mut self) {
        while let Some((iu, handle)) = self.coalescer.take_oldest() {
            self.modify(iu, handle);
        }
    }

    fn check(&self, offset: u64, bytes: u64) -> Result<(), Error> {
        let ends_inside = offset.checked_add(bytes).is_some_and(|end| end <= self.namespace_bytes);
        if ends_inside && (offset | bytes).is_multiple_of(SECTOR_BYTES) {
            return Ok(());
        }
        Err(Error::OutOfRange { offset, bytes, namespace_bytes: self.namespace_bytes })
    }

    /// Writes a part of an IU.
    fn write_part(&mut self, iu: u32, first: u32, count: u32, handle: Handle) {
        match self.coalescer.add(iu, first, count, handle) {
            Outcome::Held => {}
            Outcome::Complete => {
                self.counters.whole_ius += 1;
                self.counters.assembled_ius += 1;
                self.program_for_host(iu, handle, Cause::Host);
            }
            Outcome::Evicted(iu, handle) => self.modify(iu, handle),
        }
    }

    /// Performs the read-modify-write of a partially written IU.
    fn modify(&mut self, iu: u32, handle: Handle) {
        if let Some(place) = self.map.place(iu) {
            self.counters.modify_reads += 1;
            self.flash.read(place, self.shape.iu_bytes, Cause::Modify);
        }
        self.counters.modified_ius += 1;
        self.program_for_host(iu, handle, Cause::Modify);
    }

    fn program_for_host(&mut self, iu: u32, handle: Handle, cause: Cause) {
        let point = self.host[usize::from(handle.0)];
        let point = match point {
            Some(point) if point.next < self.superblock_ius.get() => point,
            _ => {
                self.seal(point);
                self.collect_until_there_is_room();
                AppendPoint { superblock: self.superblocks.open(handle.0), next: 0 }
            }
        };
        self.host[usize::from(handle.0)] = Some(AppendPoint { next: point.next + 1, ..point });
        self.program(iu, point, cause);
        self.collect_a_little();
    }

    fn seal(&mut self, point: Option<AppendPoint>) {
        if let Some(point) = point {
            self.superblocks.seal(point.superblock);
        }
    }

    /// Programs an IU at an append point, and maps it there.
    fn program(&mut self, iu: u32, at: AppendPoint, cause: Cause) {
        let place = at.superblock * self.superblock_ius.get() + at.next;
        if let Some(old) = self.map.set(iu, place) {
            self.superblocks.invalidate(self.superblock_ius.divide(old));
        }
        self.superblocks.validate(at.superblock);
        self.flash.program(place, cause);
    }
}
