//! The on-media format of Esker's log: record, frame, segment, summary, superblock.
//!
//! One log of segments spans two tiers. This crate knows the format, not its meaning: it encodes and decodes records,
//! and distinguishes a torn tail from rot. The layers above decide which component writes where and which record of a
//! key is current.
//!
//! Every layout is defined once, as a table of [`Field`]s next to its encoder; `docs/format.md` is generated from those
//! tables.

mod checksum;
mod class;
mod compression;
mod databases;
mod entries;
mod far_copies;
mod format;
mod frame;
mod header;
mod identity;
mod layout;
mod location;
mod page;
mod record;
mod record_walk;
mod scan;
mod segment;
mod slots;
mod summary;
mod superblock;
mod unsealed;
mod varint;

pub use checksum::{Identity, SMALL_VALUE_BYTES, Secret, ValueHasher, kept as digest_of};
pub use class::SegmentClass;
pub use compression::{BLOCK_BYTES, Codec, Compressed, Decompressor, compress};
pub use databases::{Cleared, Databases};
pub use entries::{Entries, EntryList, OwnedEntries, Position};
pub use esker_index::{KeyHash, Keyspace};
pub use far_copies::{COPY_BYTES, CopyPlace, FAR_COPIES_LEAST_SLOTS, FarSearch, FoundFar};
pub use format::{LAYOUTS, Layout, describe as describe_format};
pub use frame::{
    FrameHeader, HEADER_BYTES as FRAME_HEADER_BYTES, SEGMENT_STEP, SlotStart, Stream, free_marker, slot_start,
};
pub use header::{
    Claim, Damage, HEADER_BYTES_MAX as RECORD_HEADER_BYTES_MAX, KEYSPACE_BYTES, Kind, MAX_KEY_BYTES,
    SEQUENCE_EPOCH_SHIFT, header_bytes as record_header_bytes, keyspace_bytes, raw_field_bytes,
    record_bytes_max,
};
pub use identity::{IDENTITY_BYTES, SegmentIdentity, TierIdentity};
pub use layout::Field;
pub use location::{
    EXPANSION_MAX, Location, MIN_GRANULE_BYTES, PACKED_BITS, Packing, SEGMENT_GRANULES_MAX,
    SIZE_GRANULE_BYTES_MAX, Tier, Tiers, class_bytes, class_of, class_with, growth_of, length_class,
    memory_bytes,
};
pub use page::{GAP_BYTES_MAX, PAGE_BYTES, gap_before, skip_gap};
pub use record::{Record, RecordHead, RecordView, expansion_of};
pub use record_walk::{RecordWalk, WalkStep, WalkedRecord};
pub use scan::{SegmentScan, scan_segment, scan_segment_up_to};
pub use segment::{ClosedFrame, OpenSegment, SegmentName, SegmentShape, seal};
pub use slots::{FoundSlot, SlotEnds, SlotFinder, find_in_slots};
pub use summary::{
    Entry, FOOTER_BYTES, Footer, MAX_ENTRY_BYTES, SummaryHead, TYPICAL_ENTRY_BYTES, next_expiry_ms,
    space_bytes as summary_space_bytes,
};
pub use superblock::{
    COPIES as SUPERBLOCK_COPIES, Census, DeviceMember, ExpiryWatermark, FAR_COPIES_MAX, FORMAT_VERSION,
    HEAD_BYTES, MEMBERS_MAX, MOVED_MAX, MovedSlot, STRIPES_MAX, Stripe, Superblock, SuperblockError,
};
pub use unsealed::{Follower, Unsealed, scan_unsealed};
