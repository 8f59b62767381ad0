//! Names of options in errors. Each front end has its own names for them.

use std::fmt;

/// An option that an error is about.
///
/// `Display` prints the name of the method of [`Options`](crate::Options). A command line or a server uses another
/// name: see [`Error::in_words`](crate::Error::in_words).
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
    /// `max_garbage`.
    MaxGarbage,
    /// `force_format`.
    ForceFormat,
    /// `group_log_segments`.
    GroupLog,
    /// `on_device_loss`.
    OnDeviceLoss,
    /// `when_full`.
    WhenFull,
    /// `coalesce_for`.
    CoalesceFor,
}

impl OptionName {
    /// Returns the library's name of the option.
    pub fn as_str(self) -> &'static str {
        match self {
            OptionName::Memory => "memory_bytes",
            OptionName::FastLimit => "fast_limit_bytes",
            OptionName::CapacityLimit => "capacity_limit_bytes",
            OptionName::IndirectionUnit => "indirection_unit_bytes",
            OptionName::Segment => "segment_bytes",
            OptionName::ShapingThreshold => "shaping_threshold_bytes",
            OptionName::Reserve => "reserve_percent",
            OptionName::MaxGarbage => "max_garbage",
            OptionName::ForceFormat => "force_format",
            OptionName::GroupLog => "group_log_segments",
            OptionName::OnDeviceLoss => "on_device_loss",
            OptionName::WhenFull => "when_full",
            OptionName::CoalesceFor => "coalesce_for",
        }
    }
}

impl fmt::Display for OptionName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
