//! The superblock: identity and parameters of a tier. Four copies at the start of a device, each in a write unit of its own,
//! and up to two far copies ([`far_copies`](crate::far_copies)).
//!
//! It is written in two groups of copies with a flush in between, so that a crash leaves a whole group of one generation. The
//! highest valid generation counts.

use std::fmt;

use bincode::error::{DecodeError, EncodeError};
use bincode::{Decode, Encode, de::Decoder, enc::Encoder};
use esker_device::{StripeMap, UNIT_BYTES_MAX};

use crate::checksum::{Identity, Secret};
use crate::databases::{Cleared, Databases};
use crate::layout::{Field, is_dense};
use crate::location::{MIN_GRANULE_BYTES, SEGMENT_GRANULES_MAX, Tier};
use crate::page::PAGE_BYTES;

/// Maximum number of copies far from the start of a device.
pub const FAR_COPIES_MAX: usize = 2;
/// Number of copies at the start of a device.
pub const COPIES: usize = 4;
/// Bytes at the start of a device that contain every position of a superblock copy, for any write unit.
pub const HEAD_BYTES: u64 = COPIES as u64 * UNIT_BYTES_MAX;
/// Format version that this code writes and reads.
pub const FORMAT_VERSION: u64 = 5;
/// Maximum number of devices of a tier.
pub const MEMBERS_MAX: usize = 32;
/// Maximum number of entries of [`Superblock::stripes`] and of [`Superblock::moved`]: a copy is at most a page.
pub const STRIPES_MAX: usize = 64;
/// See [`STRIPES_MAX`].
pub const MOVED_MAX: usize = 64;
/// Maximum offset of slot 0, far beyond the copies of the largest write unit.
const DATA_OFFSET_MAX: u64 = 1 << 30;
const PREFIX_BYTES: usize = 24;
const MAGIC_VALUE: u64 = u64::from_le_bytes(*b"ESKERSB1");

const MAGIC: Field = Field::new("magic", 0, 8, "`ESKERSB1`");
const CRC: Field = Field::new("crc", 8, 4, "CRC32C of bytes 12..24 and the payload");
const VERSION: Field = Field::new("version", 12, 4, "format version; another one is refused");
const COPY: Field = Field::new("copy", 16, 4, "which of the copies this is");
const PAYLOAD_BYTES: Field = Field::new("payload_bytes", 20, 4, "length of the bincode payload that follows");
/// Layout of the superblock's prefix.
pub(crate) const FIELDS: &[Field] = &[MAGIC, CRC, VERSION, COPY, PAYLOAD_BYTES];
const _: () = assert!(is_dense(FIELDS, PREFIX_BYTES));

/// Content of a superblock, encoded as bincode (fixed-width integers, little-endian).
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Superblock {
    /// Number of writes of this superblock so far.
    pub generation: u64,
    /// Identity of the store, the same on its tiers.
    pub store_id: u128,
    /// True for the fast tier.
    pub fast: bool,
    /// True if the store has another tier.
    pub has_peer: bool,
    /// Number of openings of the store so far.
    pub epoch: u64,
    /// Opening whose staging file is valid.
    pub staging_epoch: u64,
    /// SipHash key of the key digest.
    pub digest_key: [u64; 2],
    /// Seed of the checksums.
    pub salt: u64,
    /// Alignment of records in bytes.
    pub granule_bytes: u64,
    /// Length of a segment in bytes.
    pub segment_bytes: u64,
    /// Write unit of this tier in bytes; the indirection unit on the capacity tier.
    pub unit_bytes: u64,
    /// Byte offset of slot 0.
    pub data_offset: u64,
    /// Slots from this number on were never written. The device is never shorter than this many slots.
    pub used_slots: u32,
    /// Per keyspace, the sequence number up to which its records were cleared.
    pub cleared: Cleared,
    /// Keyspace of each database.
    pub databases: Databases,
    /// Creation time of the store in milliseconds since the Unix epoch.
    pub created_at_ms: u64,
    /// Time of this write in milliseconds since the Unix epoch, as far as the store was sure of it.
    pub clock_ms: u64,
    /// Number that identifies the machine boot in which the staging file was written; 0: no staging file.
    pub staging_boot: u64,
    /// Length in bytes of the staging file at that time.
    pub staging_bytes: u64,
    /// Census of a closed store; `None` while the store is open, and after a crash.
    pub census: Option<Census>,
    /// Watermarks of records that have expired for good, whatever the clock says.
    pub expired: Vec<ExpiryWatermark>,
    /// Identity of the device, different on each device of a store.
    pub device_id: u128,
    /// Devices of the tier, in the order of their slots, if it has several.
    pub devices: Vec<DeviceMember>,
    /// Byte offsets on the device of further copies, beside the [`COPIES`] at its start, in ascending order: in the middle, and
    /// at the end.
    pub far_copies: Vec<u64>,
    /// Distribution of the tier's slots over `devices`: ranges of slots, in ascending order.
    pub stripes: Vec<Stripe>,
    /// Slots of a failed device whose segments were written again elsewhere.
    pub moved: Vec<MovedSlot>,
}

/// One of several devices of a tier.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct DeviceMember {
    /// Identity of the device; 0: no device is at this position, because it was removed or lost.
    pub device_id: u128,
    /// Number of slots on it.
    pub slots: u32,
    /// Slots of the device from this number on were never written.
    pub used_slots: u32,
    /// True if no new segment is written to the device.
    pub draining: bool,
}

impl DeviceMember {
    /// Returns true if no device is at this position.
    pub fn is_vacant(&self) -> bool {
        self.device_id == 0
    }
}

/// A range of slots of a tier that rotates over some of its devices: each takes the next slot in turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Stripe {
    /// Number of slots of the range on each device.
    pub rows: u32,
    /// Bit `n`: the device at position `n` of the list takes part.
    pub members: u32,
}

/// A slot of a failed device whose segment was written again to the place of another slot, which holds nothing from then on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct MovedSlot {
    /// The slot of the segment.
    pub slot: u32,
    /// The slot whose place on a device it has.
    pub to: u32,
}

/// The segments on a tier of a closed store, all of which recovery must find. Damage that hides or resurrects a
/// segment, or its last frame, changes the census.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Census {
    /// Number of segments.
    pub segments: u32,
    /// Sum, modulo 2^64, of a checksum of each segment's number, slot and tail.
    pub sum: u64,
}

impl Census {
    /// Counts a segment: its number, its slot, and the end of its last frame.
    pub fn count(&mut self, secret: &Secret, segment: u64, slot: u32, tail: u32) {
        let [number, place] = [segment, u64::from(slot) << 32 | u64::from(tail)].map(u64::to_le_bytes);
        self.segments += 1;
        self.sum = self.sum.wrapping_add(secret.check(&[number, place].concat()));
    }
}

/// Records that have expired for good: those numbered up to `sequence` that expire by `time_ms`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct ExpiryWatermark {
    /// Highest sequence number.
    pub sequence: u64,
    /// Latest expiry, in milliseconds since the Unix epoch.
    pub time_ms: u64,
}

/// The reason why a device has no usable superblock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SuperblockError {
    /// No superblock: the device was never formatted.
    Absent,
    /// A superblock exists, but every copy is damaged.
    Damaged,
    /// The superblock has an unsupported format version.
    Version {
        /// The version found.
        found: u64,
    },
}

impl std::error::Error for SuperblockError {}

impl fmt::Display for SuperblockError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SuperblockError::Absent => f.write_str("no superblock"),
            SuperblockError::Damaged => {
                write!(f, "all {COPIES} copies of the superblock at the start are damaged")
            }
            SuperblockError::Version { found } => {
                write!(f, "the store has format version {found}; this program reads version {FORMAT_VERSION}")
            }
        }
    }
}

impl Superblock {
    /// Returns the tier.
    pub fn tier(&self) -> Tier {
        if self.fast { Tier::Fast } else { Tier::Capacity }
    }

    /// Returns a field value that no store has, if any, although the checksum matches: an attacker can forge both.
    pub fn nonsense(&self) -> Option<String> {
        let Superblock { granule_bytes, segment_bytes, unit_bytes, data_offset, .. } = *self;
        let page = PAGE_BYTES as u64;
        let power =
            |bytes: u64, least: u64, most: u64| bytes.is_power_of_two() && (least..=most).contains(&bytes);
        if !power(segment_bytes, 64 << 10, 1 << 29) {
            return Some(format!("segments of {segment_bytes} bytes"));
        }
        if !power(unit_bytes, page, UNIT_BYTES_MAX) || unit_bytes >= segment_bytes {
            return Some(format!("write units of {unit_bytes} bytes"));
        }
        let least = MIN_GRANULE_BYTES.max(segment_bytes / SEGMENT_GRANULES_MAX);
        if !power(granule_bytes, least, unit_bytes) {
            return Some(format!("granules of {granule_bytes} bytes"));
        }
        if !self.databases.is_sound() {
            return Some("that two databases have the same keyspace".to_owned());
        }
        if let Some(what) = self.nonsense_of_devices() {
            return Some(what);
        }
        let is_place = data_offset.is_multiple_of(page) && data_offset <= DATA_OFFSET_MAX;
        if !is_place {
            return Some(format!("that its data begin at {data_offset}"));
        }
        let is_far = |at: &u64| *at >= data_offset && at.is_multiple_of(unit_bytes);
        let is_sound = self.far_copies.len() <= FAR_COPIES_MAX && self.far_copies.iter().all(is_far);
        (!is_sound).then(|| format!("that it has far copies at {:?}", self.far_copies))
    }

    /// Returns true if a device of a tier of several is at a position of the list.
    pub fn lists(&self, position: usize) -> bool {
        self.devices.get(position).is_some_and(|member| !member.is_vacant())
    }

    /// Returns the contradiction in the lists about the devices of a tier, if there is one.
    fn nonsense_of_devices(&self) -> Option<String> {
        let Superblock { devices, stripes, moved, .. } = self;
        if devices.len() > MEMBERS_MAX || stripes.len() > STRIPES_MAX || moved.len() > MOVED_MAX {
            let counts = (devices.len(), stripes.len(), moved.len());
            return Some(format!("that its tier has {counts:?} devices, ranges of slots and moved slots"));
        }
        if devices.is_empty() {
            return (!stripes.is_empty() || !moved.is_empty())
                .then(|| "that the slots of its only device are distributed".to_owned());
        }
        let known = u32::MAX >> (MEMBERS_MAX - devices.len());
        let slots: u64 = stripes.iter().map(|s| u64::from(s.rows) * u64::from(s.members.count_ones())).sum();
        let is_wrong = |stripe: &&Stripe| stripe.members == 0 || stripe.members & !known != 0;
        if let Some(stripe) = stripes.iter().find(is_wrong) {
            return Some(format!("that slots lie on the devices {:#b} of {}", stripe.members, devices.len()));
        }
        if slots > u64::from(u32::MAX) || u64::from(self.used_slots) > slots {
            return Some(format!("that {} of {slots} slots were used", self.used_slots));
        }
        let beyond = moved.iter().find(|m| u64::from(m.slot.max(m.to)) >= slots || m.slot == m.to);
        beyond.map(|moved| format!("that slot {} lies at slot {} of {slots}", moved.slot, moved.to))
    }

    /// Returns the map from slots to devices of a tier of several devices.
    pub fn stripe_map(&self) -> Option<StripeMap> {
        if self.devices.is_empty() {
            return None;
        }
        let mut map = StripeMap::new(self.data_offset, self.segment_bytes);
        self.stripes.iter().for_each(|stripe| map.add(stripe.rows, stripe.members));
        self.moved.iter().for_each(|moved| map.move_slot(moved.slot, moved.to));
        Some(map)
    }

    /// Returns this superblock as it is written to the device at a position of the list: with its identity.
    pub fn of_member(&self, position: usize) -> Superblock {
        Superblock { device_id: self.devices[position].device_id, ..self.clone() }
    }

    /// Returns the secret of the store's checksums and digests.
    pub fn secret(&self) -> Secret {
        Secret { digest_key: self.digest_key, salt: self.salt }
    }

    /// Returns the distance between copies for a write unit of `unit_bytes`.
    pub fn stride_bytes(unit_bytes: u64) -> u64 {
        unit_bytes.max(4096)
    }

    /// Returns the offset of slot 0: after the copies, on a multiple of 1 MiB.
    pub fn data_offset_for(unit_bytes: u64) -> u64 {
        (COPIES as u64 * Superblock::stride_bytes(unit_bytes)).next_multiple_of(1 << 20)
    }

    /// Encodes one copy, padded to the stride.
    pub fn encode(&self, copy: usize) -> Vec<u8> {
        let payload = bincode::encode_to_vec(self, config()).expect("integers and flags always encode");
        let mut bytes = vec![0u8; Superblock::stride_bytes(self.unit_bytes) as usize];
        MAGIC.put(&mut bytes, MAGIC_VALUE);
        VERSION.put(&mut bytes, FORMAT_VERSION);
        COPY.put(&mut bytes, copy as u64);
        PAYLOAD_BYTES.put(&mut bytes, payload.len() as u64);
        bytes[PREFIX_BYTES..PREFIX_BYTES + payload.len()].copy_from_slice(&payload);
        let crc = crc(&bytes, payload.len());
        CRC.put(&mut bytes, u64::from(crc));
        bytes
    }

    /// Returns true if these bytes begin like a copy of any version, damaged or not.
    pub fn is_likely(bytes: &[u8]) -> bool {
        bytes.get(..PREFIX_BYTES).is_some_and(|prefix| MAGIC.get(prefix) == MAGIC_VALUE)
    }

    /// Decodes the copy at `offset` of the start of a device.
    fn decode_near(bytes: &[u8], offset: u64) -> Result<Superblock, SuperblockError> {
        match Superblock::decode(bytes, offset)? {
            (0..COPIES, superblock) => Ok(superblock),
            _ => Err(SuperblockError::Absent),
        }
    }

    /// Decodes the copy at `offset` of a device, and its number.
    pub(crate) fn decode(bytes: &[u8], offset: u64) -> Result<(usize, Superblock), SuperblockError> {
        let prefix = bytes.get(..PREFIX_BYTES).ok_or(SuperblockError::Absent)?;
        if MAGIC.get(prefix) != MAGIC_VALUE {
            return Err(SuperblockError::Absent);
        }
        let payload_bytes = PAYLOAD_BYTES.get(prefix) as usize;
        let payload =
            bytes.get(PREFIX_BYTES..PREFIX_BYTES + payload_bytes).ok_or(SuperblockError::Damaged)?;
        if u64::from(crc(bytes, payload_bytes)) != CRC.get(prefix) {
            return Err(SuperblockError::Damaged);
        }
        if VERSION.get(prefix) != FORMAT_VERSION {
            return Err(SuperblockError::Version { found: VERSION.get(prefix) });
        }
        let decoded = bincode::decode_from_slice(payload, config());
        let (superblock, _): (Superblock, usize) = decoded.map_err(|_| SuperblockError::Damaged)?;
        let stride = Superblock::stride_bytes(superblock.unit_bytes);
        let copies_end = stride.checked_mul(COPIES as u64).ok_or(SuperblockError::Damaged)?;
        let number = COPY.get(prefix) as usize;
        let belongs = superblock.copy_offset(number) == Some(offset) && superblock.data_offset >= copies_end;
        if belongs { Ok((number, superblock)) } else { Err(SuperblockError::Absent) }
    }

    /// Decodes each copy at the start of a device with this one's stride, from the first bytes of the device.
    pub fn copies(&self, bytes: &[u8]) -> [Result<Superblock, SuperblockError>; COPIES] {
        let stride = Superblock::stride_bytes(self.unit_bytes);
        std::array::from_fn(|copy| {
            let offset = copy as u64 * stride;
            let from = bytes.get(offset as usize..).unwrap_or(&[]);
            Superblock::decode_near(from, offset)
        })
    }

    /// Returns the newest valid copy, far copies apart, in the first [`HEAD_BYTES`] of a device, or in a device that is
    /// shorter. The stride is unknown before a copy is read, so every power of two is tried.
    ///
    /// A copy counts only at the position that its own number and stride imply, and the lowest copy determines the
    /// store: with a small stride, higher positions lie among the records, where a value may contain the superblock of
    /// another store.
    pub fn find(bytes: &[u8]) -> Result<Superblock, SuperblockError> {
        let mut best: Result<Superblock, SuperblockError> = Err(SuperblockError::Absent);
        let strides = (12..=UNIT_BYTES_MAX.ilog2()).map(|shift| 1usize << shift);
        let mut offsets: Vec<usize> = strides.flat_map(|s| (0..COPIES).map(move |c| c * s)).collect();
        offsets.sort_unstable();
        offsets.dedup();
        for offset in offsets {
            if best.as_ref().is_ok_and(|known| offset as u64 >= known.data_offset) {
                break;
            }
            let Some(bytes) = bytes.get(offset..) else { break };
            match (Superblock::decode_near(bytes, offset as u64), &best) {
                (Ok(found), Ok(known)) => {
                    if found.store_id == known.store_id && found.generation > known.generation {
                        best = Ok(found);
                    }
                }
                (Ok(found), Err(_)) => best = Ok(found),
                (Err(SuperblockError::Absent), _) | (Err(_), Ok(_)) => {}
                // An unsupported version is a more useful error than damage.
                (Err(_), Err(SuperblockError::Version { .. })) => {}
                (Err(error), Err(_)) => best = Err(error),
            }
        }
        best
    }
}

/// Implements the encoding of a structure as that of its fields, in this order.
macro_rules! encoded_as {
    ($name:ident { $($field:ident),* $(,)? }) => {
        impl Encode for $name {
            fn encode<E: Encoder>(&self, encoder: &mut E) -> Result<(), EncodeError> {
                $(self.$field.encode(encoder)?;)*
                Ok(())
            }
        }

        impl<Context> Decode<Context> for $name {
            fn decode<D: Decoder<Context = Context>>(decoder: &mut D) -> Result<$name, DecodeError> {
                Ok($name { $($field: Decode::decode(decoder)?),* })
            }
        }
    };
}
pub(crate) use encoded_as;

encoded_as!(Superblock {
    generation,
    store_id,
    fast,
    has_peer,
    epoch,
    staging_epoch,
    digest_key,
    salt,
    granule_bytes,
    segment_bytes,
    unit_bytes,
    data_offset,
    used_slots,
    cleared,
    databases,
    created_at_ms,
    clock_ms,
    staging_boot,
    staging_bytes,
    census,
    expired,
    device_id,
    devices,
    far_copies,
    stripes,
    moved,
});
encoded_as!(DeviceMember { device_id, slots, used_slots, draining });
encoded_as!(Stripe { rows, members });
encoded_as!(MovedSlot { slot, to });
encoded_as!(Census { segments, sum });
encoded_as!(ExpiryWatermark { sequence, time_ms });

/// Fixed-width integers, little-endian. The limit bounds the memory that the length of a list reserves before its items are
/// read: an attacker can forge a length with a matching checksum.
fn config() -> impl bincode::config::Config {
    const LIMIT_BYTES: usize = 2 * UNIT_BYTES_MAX as usize;
    bincode::config::standard().with_little_endian().with_fixed_int_encoding().with_limit::<LIMIT_BYTES>()
}

fn crc(bytes: &[u8], payload_bytes: usize) -> u32 {
    let identity = Identity { salt: 0, segment: 0, offset: 0 };
    identity.crc(&[&bytes[VERSION.offset..PREFIX_BYTES + payload_bytes]])
}
