//! Options of a store as errors name them: each front end has its own words for them.

use std::fmt;

/// An option of a store that an error is about.
///
/// Displayed, it is the name of the method of [`Options`](crate::Options). A command line or a server calls it something else:
/// see [`Error::in_words`](crate::Error::in_words).
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OptionName {
    /// `memory_bytes`.
    Memory,
    /// `fast_limit_bytes`.
    FastLimit,
    /// `capacity_limit_bytes`.
    CapacityLimit,
    /// `indirection_unit_bytes`.
    IndirectionUnit,
    /// `segment_bytes`.
    Segment,
    /// `shaping_threshold_bytes`.
    ShapingThreshold,
    /// `reserve_percent`.
    Reserve,
    /// `force_format`.
    ForceFormat,
}

impl OptionName {
    /// What the library calls it.
    pub fn as_str(self) -> &'static str {
        match self {
            OptionName::Memory => "memory_bytes",
            OptionName::FastLimit => "fast_limit_bytes",
            OptionName::CapacityLimit => "capacity_limit_bytes",
            OptionName::IndirectionUnit => "indirection_unit_bytes",
            OptionName::Segment => "segment_bytes",
            OptionName::ShapingThreshold => "shaping_threshold_bytes",
            OptionName::Reserve => "reserve_percent",
            OptionName::ForceFormat => "force_format",
        }
    }
}

impl fmt::Display for OptionName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
