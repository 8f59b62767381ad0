//! Identify Namespace: size, block length, and preferred write granularity.

/// Length in bytes of the answer to Identify.
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

/// Feature bits that say whether the preferences for writes and for deallocation are defined (OPTPERF; drives before
/// version 1.1 of the command set have only the lower bit, which then covers both).
const OPTIMAL_PERFORMANCE: u8 = 0b11 << 4;
const DEALLOCATE_DEFINED: u8 = 0b01 << 4;

/// A namespace as reported by Identify. A value that the drive does not define is `None`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Namespace {
    /// Number of logical blocks.
    pub blocks: u64,
    /// Length of a logical block in bytes.
    pub block_bytes: u64,
    /// Preferred multiple of the write length in bytes (NPWG): the indirection unit, on drives that report it.
    pub write_granularity_bytes: Option<u64>,
    /// Preferred alignment of writes in bytes (NPWA).
    pub write_alignment_bytes: Option<u64>,
    /// Preferred multiple of the deallocation length in bytes (NPDG).
    pub deallocate_granularity_bytes: Option<u64>,
    /// Optimal write length in bytes (NOWS).
    pub optimal_write_bytes: Option<u64>,
}

/// The reason why bytes do not describe a namespace.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NamespaceError {
    /// The answer has the wrong length.
    #[error("the answer to Identify has {0} bytes instead of {IDENTIFY_BYTES}")]
    Length(usize),
    /// The drive has no active namespace of this number.
    #[error("the namespace is not active")]
    Inactive,
    /// The block length is not one of NVMe.
    #[error("the namespace has blocks of 2^{0} bytes; NVMe blocks have 2^9 to 2^20 bytes")]
    Blocks(u8),
}

impl Namespace {
    /// Parses the answer to Identify Namespace.
    ///
    /// # Errors
    /// If the answer is invalid.
    pub fn parse(bytes: &[u8]) -> Result<Namespace, NamespaceError> {
        if bytes.len() != IDENTIFY_BYTES {
            return Err(NamespaceError::Length(bytes.len()));
        }
        let blocks = number(&bytes[at::SIZE]);
        if blocks == 0 {
            return Err(NamespaceError::Inactive);
        }
        // The format index has four bits, and two higher bits in front of them on namespaces with more than 16 formats.
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

/// Decodes a little-endian number of at most 8 bytes.
fn number(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |sum, byte| sum << 8 | u64::from(*byte))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Returns a namespace of 1,000 blocks of 4 KiB, its second format, written in units of 64 KiB.
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
    fn preferred_write_sizes_are_in_blocks() {
        let namespace = Namespace {
            blocks: 1000,
            block_bytes: 4096,
            write_granularity_bytes: Some(64 << 10),
            write_alignment_bytes: Some(64 << 10),
            deallocate_granularity_bytes: Some(1 << 20),
            optimal_write_bytes: Some(128 << 10),
        };
        assert_eq!(Namespace::parse(&identified()), Ok(namespace));
        // With only the upper bit set, the deallocation preference is in another field, which is not read.
        let mut later = identified();
        later[at::FEATURES] = 0b10 << 4;
        let later = Namespace::parse(&later).expect("it is one");
        assert_eq!(later, Namespace { deallocate_granularity_bytes: None, ..namespace });
    }

    #[test]
    fn undefined_fields_are_absent() {
        let mut bytes = identified();
        bytes[at::FEATURES] = !OPTIMAL_PERFORMANCE;
        let namespace = Namespace::parse(&bytes).expect("it is one");
        assert_eq!((namespace.write_granularity_bytes, namespace.optimal_write_bytes), (None, None));
        assert_eq!((namespace.write_alignment_bytes, namespace.deallocate_granularity_bytes), (None, None));
    }

    #[test]
    fn active_lba_format_is_used() {
        let mut bytes = identified();
        bytes[at::FORMAT] = 0;
        assert_eq!(Namespace::parse(&bytes).map(|namespace| namespace.block_bytes), Ok(512));
        // Format 16 + 1.
        bytes[at::FORMAT] = 0b010_0001;
        bytes[at::FORMATS + 4 * 17 + 2] = 13;
        assert_eq!(Namespace::parse(&bytes).map(|namespace| namespace.block_bytes), Ok(8192));
    }

    #[test]
    fn non_namespace_is_refused() {
        assert_eq!(Namespace::parse(&[0; 512]), Err(NamespaceError::Length(512)));
        assert_eq!(Namespace::parse(&[0; IDENTIFY_BYTES]), Err(NamespaceError::Inactive));
        let mut bytes = identified();
        bytes[at::FORMATS + 6] = 63;
        assert_eq!(Namespace::parse(&bytes), Err(NamespaceError::Blocks(63)));
    }
}
