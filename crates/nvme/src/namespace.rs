//! What a drive says of a namespace: the writes that it likes.

/// Bytes of the answer to Identify.
pub(crate) const IDENTIFY_BYTES: usize = 4096;

/// Offsets in the Identify Namespace data structure. Source: NVM Express, NVM Command Set specification 1.0, "Identify
/// Namespace Data Structure (CNS 00h)"; all granularities are counted in logical blocks, from 0 for one block.
mod at {
    use std::ops::Range;

    pub(super) const SIZE: Range<usize> = 0..8;
    pub(super) const FEATURES: usize = 24;
    pub(super) const FORMAT: usize = 26;
    pub(super) const WRITE_GRANULARITY: Range<usize> = 64..66;
    pub(super) const WRITE_ALIGNMENT: Range<usize> = 66..68;
    pub(super) const DEALLOCATE_GRANULARITY: Range<usize> = 68..70;
    pub(super) const OPTIMAL_WRITE: Range<usize> = 72..74;
    pub(super) const FORMATS: usize = 128;
}

/// Of the features: whether the preferences for writes, and that for deallocation, are defined (OPTPERF; drives before
/// version 1.1 of the command set know its lower bit alone, which means both).
const OPTIMAL_PERFORMANCE: u8 = 0b11 << 4;
const DEALLOCATE_DEFINED: u8 = 0b01 << 4;

/// A namespace, as Identify tells of it. What the drive does not define is `None`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Namespace {
    /// Logical blocks.
    pub blocks: u64,
    /// Bytes of a logical block.
    pub block_bytes: u64,
    /// Writes should be a multiple of this: the indirection unit, where a drive tells it (NPWG).
    pub write_granularity_bytes: Option<u64>,
    /// Writes should begin at a multiple of this (NPWA).
    pub write_alignment_bytes: Option<u64>,
    /// Deallocations should be a multiple of this (NPDG).
    pub deallocate_granularity_bytes: Option<u64>,
    /// The length of writes that suits the drive best (NOWS).
    pub optimal_write_bytes: Option<u64>,
}

/// Why bytes tell of no namespace.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NamespaceError {
    /// They are too few, or too many.
    #[error("the answer to Identify has {IDENTIFY_BYTES} bytes, and this has {0}")]
    Length(usize),
    /// The drive has no namespace of this number.
    #[error("the namespace is not active")]
    Inactive,
    /// Its blocks have a length that NVMe does not have.
    #[error("its blocks would have 2^{0} bytes")]
    Blocks(u8),
}

impl Namespace {
    /// Reads the answer to Identify Namespace.
    ///
    /// # Errors
    /// If it is none.
    pub fn parse(bytes: &[u8]) -> Result<Namespace, NamespaceError> {
        if bytes.len() != IDENTIFY_BYTES {
            return Err(NamespaceError::Length(bytes.len()));
        }
        let blocks = number(&bytes[at::SIZE]);
        if blocks == 0 {
            return Err(NamespaceError::Inactive);
        }
        // Four bits, and two more that are in front of them where a namespace has more than 16 formats.
        let format = bytes[at::FORMAT] & 0xF | (bytes[at::FORMAT] >> 5 & 0b11) << 4;
        let shift = bytes[at::FORMATS + 4 * usize::from(format) + 2];
        if !(9..=20).contains(&shift) {
            return Err(NamespaceError::Blocks(shift));
        }
        let block_bytes = 1u64 << shift;
        let features = bytes[at::FEATURES];
        let defined = |bits: u8, range: std::ops::Range<usize>| {
            (features & bits != 0).then(|| (number(&bytes[range]) + 1) * block_bytes)
        };
        Ok(Namespace {
            blocks,
            block_bytes,
            write_granularity_bytes: defined(OPTIMAL_PERFORMANCE, at::WRITE_GRANULARITY),
            write_alignment_bytes: defined(OPTIMAL_PERFORMANCE, at::WRITE_ALIGNMENT),
            deallocate_granularity_bytes: defined(DEALLOCATE_DEFINED, at::DEALLOCATE_GRANULARITY),
            optimal_write_bytes: defined(OPTIMAL_PERFORMANCE, at::OPTIMAL_WRITE),
        })
    }
}

/// Little-endian, of at most 8 bytes.
fn number(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |sum, byte| sum << 8 | u64::from(*byte))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A namespace of 1,000 blocks of 4 KiB, the second of its formats, which is written in units of 64 KiB.
    pub(crate) fn identified() -> Vec<u8> {
        let mut bytes = vec![0; IDENTIFY_BYTES];
        bytes[at::SIZE].copy_from_slice(&1000u64.to_le_bytes());
        bytes[at::FEATURES] = DEALLOCATE_DEFINED;
        bytes[at::FORMAT] = 1;
        bytes[at::FORMATS + 2] = 9;
        bytes[at::FORMATS + 6] = 12;
        bytes[at::WRITE_GRANULARITY].copy_from_slice(&15u16.to_le_bytes());
        bytes[at::WRITE_ALIGNMENT].copy_from_slice(&15u16.to_le_bytes());
        bytes[at::DEALLOCATE_GRANULARITY].copy_from_slice(&255u16.to_le_bytes());
        bytes[at::OPTIMAL_WRITE].copy_from_slice(&31u16.to_le_bytes());
        bytes
    }

    #[test]
    fn the_writes_that_a_drive_likes_are_counted_in_its_blocks() {
        let namespace = Namespace {
            blocks: 1000,
            block_bytes: 4096,
            write_granularity_bytes: Some(64 << 10),
            write_alignment_bytes: Some(64 << 10),
            deallocate_granularity_bytes: Some(1 << 20),
            optimal_write_bytes: Some(128 << 10),
        };
        assert_eq!(Namespace::parse(&identified()), Ok(namespace));
        // The upper bit alone: deallocation is told in another place, which is not read.
        let mut later = identified();
        later[at::FEATURES] = 0b10 << 4;
        let later = Namespace::parse(&later).expect("it is one");
        assert_eq!(later, Namespace { deallocate_granularity_bytes: None, ..namespace });
    }

    #[test]
    fn what_is_not_defined_is_not_made_up() {
        let mut bytes = identified();
        bytes[at::FEATURES] = !OPTIMAL_PERFORMANCE;
        let namespace = Namespace::parse(&bytes).expect("it is one");
        assert_eq!((namespace.write_granularity_bytes, namespace.optimal_write_bytes), (None, None));
        assert_eq!((namespace.write_alignment_bytes, namespace.deallocate_granularity_bytes), (None, None));
    }

    #[test]
    fn the_format_in_use_is_the_one_that_counts() {
        let mut bytes = identified();
        bytes[at::FORMAT] = 0;
        assert_eq!(Namespace::parse(&bytes).map(|namespace| namespace.block_bytes), Ok(512));
        // Format 16 + 1.
        bytes[at::FORMAT] = 0b010_0001;
        bytes[at::FORMATS + 4 * 17 + 2] = 13;
        assert_eq!(Namespace::parse(&bytes).map(|namespace| namespace.block_bytes), Ok(8192));
    }

    #[test]
    fn what_is_no_namespace_is_told() {
        assert_eq!(Namespace::parse(&[0; 512]), Err(NamespaceError::Length(512)));
        assert_eq!(Namespace::parse(&[0; IDENTIFY_BYTES]), Err(NamespaceError::Inactive));
        let mut bytes = identified();
        bytes[at::FORMATS + 6] = 63;
        assert_eq!(Namespace::parse(&bytes), Err(NamespaceError::Blocks(63)));
    }
}
