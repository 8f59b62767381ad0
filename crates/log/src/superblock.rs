//! The superblock: what a tier is and to which store it belongs. Four copies, each in an indirection unit of its own.
//!
//! It is written two copies at a time with a flush in between, so that a crash leaves two of one generation. The highest
//! valid generation counts.

use serde::{Deserialize, Serialize};

use crate::checksum::{Identity, Secret};
use crate::databases::{Cleared, Databases};
use crate::layout::{Field, is_dense};
use crate::location::{MIN_GRANULE_BYTES, SEGMENT_GRANULES_MAX, Tier};
use crate::page::PAGE_BYTES;

/// Number of copies.
pub const COPIES: usize = 4;
/// Format version that this code writes and reads.
pub const FORMAT_VERSION: u64 = 4;
/// Where slot 0 begins, at most: far behind the copies of the largest write unit.
const DATA_OFFSET_MAX: u64 = 1 << 30;
const PREFIX_BYTES: usize = 24;
const MAGIC_VALUE: u64 = u64::from_le_bytes(*b"ESKERSB1");

const MAGIC: Field = Field::new("magic", 0, 8, "`ESKERSB1`");
const CRC: Field = Field::new("crc", 8, 4, "CRC32C of bytes 12..24 and the payload");
const VERSION: Field = Field::new("version", 12, 4, "format version; another one is refused");
const COPY: Field = Field::new("copy", 16, 4, "which of the copies this is");
const PAYLOAD_BYTES: Field = Field::new("payload_bytes", 20, 4, "length of the bincode payload that follows");
/// The layout of the superblock's prefix.
pub(crate) const FIELDS: &[Field] = &[MAGIC, CRC, VERSION, COPY, PAYLOAD_BYTES];
const _: () = assert!(is_dense(FIELDS, PREFIX_BYTES));

/// What is kept in a superblock, as bincode (fixed-width integers, little-endian).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Superblock {
    /// Counts the writes of this superblock.
    pub generation: u64,
    /// Identity of the store, the same on its tiers.
    pub store_id: u128,
    /// Whether this is the fast tier.
    pub fast: bool,
    /// Whether the store has another tier.
    pub has_peer: bool,
    /// Counts the openings of the store.
    pub epoch: u64,
    /// Opening whose staging file counts.
    pub staging_epoch: u64,
    /// Key of the key digest.
    pub digest_key: [u64; 2],
    /// Seed of the checksums.
    pub salt: u64,
    /// Alignment of records.
    pub granule_bytes: u64,
    /// Length of a segment.
    pub segment_bytes: u64,
    /// Writes to this tier begin at and are multiples of this; the indirection unit on the capacity tier.
    pub unit_bytes: u64,
    /// Where slot 0 begins.
    pub data_offset: u64,
    /// Slots from here on were never written. The device is never shorter than this many slots.
    pub used_slots: u32,
    /// Up to which sequence number the records of each keyspace were cleared.
    pub cleared: Cleared,
    /// Which keyspace each database has.
    pub databases: Databases,
    /// When the store was made, in milliseconds since the Unix epoch.
    pub created_at_ms: u64,
    /// What time it was when this was written, in milliseconds since the Unix epoch, as far as the store was sure.
    pub clock_ms: u64,
    /// The start of the machine in which the staging file was written, as a number; 0: there was none.
    pub staging_boot: u64,
    /// How long the staging file was then.
    pub staging_bytes: u64,
    /// What a store that was closed holds; `None` while it is open, and after it was killed.
    pub census: Option<Census>,
    /// What has expired, whatever the clock says.
    pub expired: Vec<ExpiryWatermark>,
}

/// What lies on a tier of a store that was closed: recovery has to find just that. Any segment, or last frame of one, that
/// damage hides or brings back makes a difference.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Census {
    /// Number of segments.
    pub segments: u32,
    /// Sum, modulo 2^64, of a checksum of each segment's number, slot and tail.
    pub sum: u64,
}

impl Census {
    /// Counts a segment: its number, its slot, and where its last frame ends.
    pub fn count(&mut self, secret: &Secret, segment: u64, slot: u32, tail: u32) {
        let [number, place] = [segment, u64::from(slot) << 32 | u64::from(tail)].map(u64::to_le_bytes);
        self.segments += 1;
        self.sum = self.sum.wrapping_add(secret.check(&[number, place].concat()));
    }
}

/// Records that have expired for good.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExpiryWatermark {
    /// Records numbered up to this one,
    pub sequence: u64,
    /// if they expire by this time, in milliseconds since the Unix epoch.
    pub time_ms: u64,
}

/// Why a device has no superblock that can be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SuperblockError {
    /// There is none: the device was never formatted.
    #[error("no superblock")]
    Absent,
    /// There was one, and every copy is damaged.
    #[error("all {COPIES} copies of the superblock are damaged")]
    Damaged,
    /// It was written by another version.
    #[error("the store has format version {found}; this program reads version {FORMAT_VERSION}")]
    Version {
        /// The version found.
        found: u64,
    },
}

impl Superblock {
    /// The tier.
    pub fn tier(&self) -> Tier {
        if self.fast { Tier::Fast } else { Tier::Capacity }
    }

    /// What it says that no store has, although its checksum agrees: whoever made it up can make that too.
    pub fn nonsense(&self) -> Option<String> {
        let Superblock { granule_bytes, segment_bytes, unit_bytes, data_offset, .. } = *self;
        let page = PAGE_BYTES as u64;
        let power =
            |bytes: u64, least: u64, most: u64| bytes.is_power_of_two() && (least..=most).contains(&bytes);
        if !power(segment_bytes, 64 << 10, 1 << 27) {
            return Some(format!("segments of {segment_bytes} bytes"));
        }
        if !power(unit_bytes, page, 1 << 20) || unit_bytes >= segment_bytes {
            return Some(format!("write units of {unit_bytes} bytes"));
        }
        let least = MIN_GRANULE_BYTES.max(segment_bytes / SEGMENT_GRANULES_MAX);
        if !power(granule_bytes, least, unit_bytes) {
            return Some(format!("granules of {granule_bytes} bytes"));
        }
        if !self.databases.is_sound() {
            return Some("that two databases have the same keyspace".to_owned());
        }
        let is_place = data_offset.is_multiple_of(page) && data_offset <= DATA_OFFSET_MAX;
        (!is_place).then(|| format!("that its data begin at {data_offset}"))
    }

    /// The secret of the store's checksums and digests.
    pub fn secret(&self) -> Secret {
        Secret { digest_key: self.digest_key, salt: self.salt }
    }

    /// Distance between copies on a tier whose write unit is `unit_bytes`.
    pub fn stride_bytes(unit_bytes: u64) -> u64 {
        unit_bytes.max(4096)
    }

    /// Where slot 0 begins: behind the copies, on a multiple of 1 MiB.
    pub fn data_offset_for(unit_bytes: u64) -> u64 {
        (COPIES as u64 * Superblock::stride_bytes(unit_bytes)).next_multiple_of(1 << 20)
    }

    /// One copy, padded to the stride.
    pub fn encode(&self, copy: usize) -> Vec<u8> {
        let payload =
            bincode::serde::encode_to_vec(self, config()).expect("integers and flags always encode");
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

    /// Reads the copy at `offset` of a device.
    fn decode(bytes: &[u8], offset: u64) -> Result<Superblock, SuperblockError> {
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
        let decoded = bincode::serde::decode_from_slice(payload, config());
        let (superblock, _): (Superblock, usize) = decoded.map_err(|_| SuperblockError::Damaged)?;
        let stride = Superblock::stride_bytes(superblock.unit_bytes);
        let copies_end = stride.checked_mul(COPIES as u64).ok_or(SuperblockError::Damaged)?;
        let belongs = COPY.get(prefix) < COPIES as u64
            && COPY.get(prefix) * stride == offset
            && superblock.data_offset >= copies_end;
        if belongs { Ok(superblock) } else { Err(SuperblockError::Absent) }
    }

    /// What is where each copy of a superblock like this one lies, in the first bytes of a device.
    pub fn copies(&self, bytes: &[u8]) -> [Result<Superblock, SuperblockError>; COPIES] {
        let stride = Superblock::stride_bytes(self.unit_bytes);
        std::array::from_fn(|copy| {
            let offset = copy as u64 * stride;
            let from = bytes.get(offset as usize..).unwrap_or(&[]);
            Superblock::decode(from, offset)
        })
    }

    /// The newest valid copy in the first bytes of a device, which must hold all copies of the largest stride to be
    /// found, 1 MiB. The stride is not known before a copy is read, so every power of two is tried.
    ///
    /// A copy counts only where its own number and stride put it, and the lowest one decides which store is meant: with
    /// a small stride, higher places lie among the records, where a value may hold the superblock of another store.
    pub fn find(bytes: &[u8]) -> Result<Superblock, SuperblockError> {
        let mut best: Result<Superblock, SuperblockError> = Err(SuperblockError::Absent);
        let strides = (12..=20).map(|shift| 1usize << shift);
        let mut offsets: Vec<usize> = strides.flat_map(|s| (0..COPIES).map(move |c| c * s)).collect();
        offsets.sort_unstable();
        offsets.dedup();
        for offset in offsets {
            if best.as_ref().is_ok_and(|known| offset as u64 >= known.data_offset) {
                break;
            }
            let Some(bytes) = bytes.get(offset..) else { break };
            match (Superblock::decode(bytes, offset as u64), &best) {
                (Ok(found), Ok(known)) => {
                    if found.store_id == known.store_id && found.generation > known.generation {
                        best = Ok(found);
                    }
                }
                (Ok(found), Err(_)) => best = Ok(found),
                (Err(SuperblockError::Absent), _) | (Err(_), Ok(_)) => {}
                // That another version wrote it says more than that something is damaged.
                (Err(_), Err(SuperblockError::Version { .. })) => {}
                (Err(error), Err(_)) => best = Err(error),
            }
        }
        best
    }
}

/// Integers at their full width, little-endian, whatever their value.
fn config() -> impl bincode::config::Config {
    bincode::config::standard().with_little_endian().with_fixed_int_encoding()
}

fn crc(bytes: &[u8], payload_bytes: usize) -> u32 {
    let identity = Identity { salt: 0, segment: 0, offset: 0 };
    identity.crc(&[&bytes[VERSION.offset..PREFIX_BYTES + payload_bytes]])
}
