//! The identity block: all that is needed to read a tier's segments if its superblocks are lost.
//!
//! It follows the header of a segment's first frame. Its checksum is not salted, because the salt is in it. Nothing reads it
//! while a superblock exists, so damage to it is no damage to the frame.

use esker_seeded_bugs::{Bug, planted};

use crate::checksum::{Identity, Secret};
use crate::frame::HEADER_BYTES;
use crate::layout::{Field, is_dense};
use crate::location::Tier;
use crate::segment::{SegmentName, SegmentShape};
use crate::superblock::{FORMAT_VERSION, Superblock};

/// Length in bytes of the identity block.
pub const IDENTITY_BYTES: usize = 112;
const MAGIC_VALUE: u64 = u64::from_le_bytes(*b"ESKERID1");

const MAGIC: Field = Field::new("magic", 0, 8, "`ESKERID1`");
const CRC: Field = Field::new("crc", 8, 4, "CRC32C of bytes 12..112");
const VERSION: Field = Field::new("version", 12, 4, "format version");
const STORE_LOW: Field = Field::new("store_id", 16, 8, "identity of the store, lower half");
const STORE_HIGH: Field = Field::new("store_id", 24, 8, "upper half");
const DEVICE_LOW: Field = Field::new("device_id", 32, 8, "identity of the device, lower half");
const DEVICE_HIGH: Field = Field::new("device_id", 40, 8, "upper half");
const KEY_FIRST: Field = Field::new("digest_key", 48, 8, "SipHash key of the key digest, first half");
const KEY_SECOND: Field = Field::new("digest_key", 56, 8, "second half");
const SALT: Field = Field::new("salt", 64, 8, "seed of the checksums");
const DATA_OFFSET: Field = Field::new("data_offset", 72, 8, "byte offset of slot 0 on the device");
const SEGMENT: Field = Field::new("segment", 80, 8, "number of the segment");
const EPOCH: Field = Field::new("epoch", 88, 4, "opening of the store in which the segment was opened");
const SLOT: Field = Field::new("slot", 92, 4, "slot of the tier for which it was written");
const SEGMENT_BYTES: Field = Field::new("segment_bytes", 96, 4, "length of a segment");
const UNIT_BYTES: Field = Field::new("unit_bytes", 100, 4, "write unit of the tier");
const GRANULE_BYTES: Field = Field::new("granule_bytes", 104, 4, "alignment of records");
const TIERS: Field = Field::new("tiers", 108, 4, "bit 0: the fast tier; bit 1: the store has another tier");
/// Layout of the block.
pub(crate) const FIELDS: &[Field] = &[
    MAGIC,
    CRC,
    VERSION,
    STORE_LOW,
    STORE_HIGH,
    DEVICE_LOW,
    DEVICE_HIGH,
    KEY_FIRST,
    KEY_SECOND,
    SALT,
    DATA_OFFSET,
    SEGMENT,
    EPOCH,
    SLOT,
    SEGMENT_BYTES,
    UNIT_BYTES,
    GRANULE_BYTES,
    TIERS,
];
const _: () = assert!(is_dense(FIELDS, IDENTITY_BYTES));

/// The part of a tier's identity that its segments repeat, beside their shape and the store's secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TierIdentity {
    /// Identity of the store.
    pub store_id: u128,
    /// Identity of the device.
    pub device_id: u128,
    /// True if the store has another tier.
    pub has_peer: bool,
    /// Byte offset of slot 0 on the device.
    pub data_offset: u64,
}

impl TierIdentity {
    /// No identity, for shapes of segments that no store has.
    pub const NONE: TierIdentity =
        TierIdentity { store_id: 0, device_id: 0, has_peer: false, data_offset: 0 };

    /// Returns the identity of the tier with this superblock.
    pub fn of(superblock: &Superblock) -> TierIdentity {
        let Superblock { store_id, device_id, has_peer, data_offset, .. } = *superblock;
        TierIdentity { store_id, device_id, has_peer, data_offset }
    }
}

impl SegmentShape {
    /// Returns the shape of the segments of the tier with this superblock.
    pub fn of(superblock: &Superblock) -> SegmentShape {
        SegmentShape {
            tier: superblock.tier(),
            segment_bytes: superblock.segment_bytes as u32,
            unit_bytes: superblock.unit_bytes as u32,
            granule_bytes: superblock.granule_bytes as u32,
            identity: TierIdentity::of(superblock),
        }
    }
}

/// The content of an identity block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentIdentity {
    /// Shape of the tier's segments, and identity of the tier.
    pub shape: SegmentShape,
    /// Secret of the store.
    pub secret: Secret,
    /// Number of the segment.
    pub segment: u64,
    /// Slot for which it was written.
    pub slot: u32,
    /// Opening of the store in which it was opened.
    pub epoch: u64,
}

/// Encodes the block of a segment.
pub(crate) fn encode(shape: SegmentShape, name: SegmentName, secret: &Secret) -> [u8; IDENTITY_BYTES] {
    let SegmentShape { tier, segment_bytes, unit_bytes, granule_bytes, identity } = shape;
    let mut to = [0; IDENTITY_BYTES];
    MAGIC.put(&mut to, MAGIC_VALUE);
    VERSION.put(&mut to, FORMAT_VERSION);
    for ([low, high], id) in
        [([STORE_LOW, STORE_HIGH], identity.store_id), ([DEVICE_LOW, DEVICE_HIGH], identity.device_id)]
    {
        low.put(&mut to, id as u64);
        high.put(&mut to, (id >> 64) as u64);
    }
    KEY_FIRST.put(&mut to, secret.digest_key[0]);
    KEY_SECOND.put(&mut to, secret.digest_key[1]);
    SALT.put(&mut to, secret.salt);
    DATA_OFFSET.put(&mut to, identity.data_offset);
    SEGMENT.put(&mut to, name.segment);
    EPOCH.put(&mut to, name.epoch);
    SLOT.put(&mut to, name.slot.into());
    SEGMENT_BYTES.put(&mut to, segment_bytes.into());
    UNIT_BYTES.put(&mut to, unit_bytes.into());
    GRANULE_BYTES.put(&mut to, granule_bytes.into());
    TIERS.put(&mut to, u64::from(tier == Tier::Fast) | u64::from(identity.has_peer) << 1);
    let crc = crc(&to);
    CRC.put(&mut to, crc.into());
    to
}

impl SegmentIdentity {
    /// Parses the block from the first bytes of a segment. `None` if there is none of this format version.
    pub fn parse(bytes: &[u8]) -> Option<SegmentIdentity> {
        let from = bytes.get(HEADER_BYTES..HEADER_BYTES + IDENTITY_BYTES)?;
        let is_one = MAGIC.get(from) == MAGIC_VALUE
            && u64::from(crc(from)) == CRC.get(from)
            && VERSION.get(from) == FORMAT_VERSION;
        if !is_one {
            return None;
        }
        let id = |low: Field, high: Field| u128::from(low.get(from)) | u128::from(high.get(from)) << 64;
        let identity = TierIdentity {
            store_id: id(STORE_LOW, STORE_HIGH),
            device_id: id(DEVICE_LOW, DEVICE_HIGH),
            has_peer: TIERS.get(from) & 2 != 0,
            data_offset: DATA_OFFSET.get(from),
        };
        Some(SegmentIdentity {
            shape: SegmentShape {
                tier: if TIERS.get(from) & 1 != 0 { Tier::Fast } else { Tier::Capacity },
                segment_bytes: SEGMENT_BYTES.get(from) as u32,
                unit_bytes: UNIT_BYTES.get(from) as u32,
                granule_bytes: GRANULE_BYTES.get(from) as u32,
                identity,
            },
            secret: Secret { digest_key: [KEY_FIRST.get(from), KEY_SECOND.get(from)], salt: SALT.get(from) },
            segment: SEGMENT.get(from),
            slot: SLOT.get(from) as u32,
            epoch: EPOCH.get(from),
        })
    }

    /// Returns the byte offset on the device at which the segment was written.
    pub fn device_offset(&self) -> u64 {
        let slot_bytes = u64::from(self.slot) * u64::from(self.shape.segment_bytes);
        self.shape.identity.data_offset.saturating_add(slot_bytes)
    }

    /// Returns true if the segment was written for this byte offset of the device. A block found elsewhere is a copy of one,
    /// for example in a value, or belongs to another store.
    pub fn lies_at(&self, offset: u64) -> bool {
        self.device_offset() == offset || planted(Bug::IdentityBelievedAnywhere)
    }

    /// Returns true if a segment of this identity lies on the tier with this shape and secret. The identities of store and
    /// device may differ: those of a restored store are new, and its segments are copies.
    pub fn is_of(&self, shape: &SegmentShape, secret: &Secret) -> bool {
        let TierIdentity { store_id, device_id, .. } = shape.identity;
        let identity = TierIdentity { store_id, device_id, ..self.shape.identity };
        self.secret == *secret && SegmentShape { identity, ..self.shape } == *shape
    }

    /// Returns true if this may be the start of a segment or of a freed slot of some store, by its magic alone.
    pub fn is_likely(bytes: &[u8]) -> bool {
        [b"EFRM", b"EFRE"].iter().any(|magic| bytes.starts_with(*magic))
    }
}

fn crc(bytes: &[u8]) -> u32 {
    Identity { salt: 0, segment: 0, offset: 0 }.crc(&[&bytes[VERSION.offset..]])
}
