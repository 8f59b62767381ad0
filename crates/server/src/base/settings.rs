//! Names of the store's options in the server's settings.

use esker_engine::{Error, OptionName};

/// Returns the setting that an option of the store comes from.
pub fn setting_of(option: OptionName) -> &'static str {
    match option {
        OptionName::Memory => "memory",
        OptionName::FastLimit => "fast-limit",
        OptionName::CapacityLimit => "capacity-limit",
        OptionName::IndirectionUnit => "iu",
        OptionName::Reserve => "reserve",
        OptionName::Segment => "segment-size",
        OptionName::MaxGarbage => "max-garbage",
        OptionName::ForceFormat => "force-format",
        OptionName::OnDeviceLoss => "on-device-loss",
        OptionName::WhenFull => "when-full",
        OptionName::CoalesceFor => "coalesce-for",
        // These are not settings of a server.
        OptionName::ShapingThreshold => "the shaping threshold",
        other => other.as_str(),
    }
}

/// Returns the text of a store error for clients.
pub(crate) fn text_of(error: &Error) -> String {
    error.in_words(|option| setting_of(option).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_read_settings_and_no_options_of_the_library() {
        let full = Error::Full { live_bytes: 9, limit_bytes: 8, option: OptionName::FastLimit };
        assert_eq!(
            text_of(&full),
            "store is full: 9 bytes are used of at most 8; delete keys, or raise fast-limit"
        );
        assert!(full.to_string().ends_with("raise fast_limit_bytes"), "{full}");
        let memory = text_of(&Error::OutOfMemory { index_bytes: 9, budget_bytes: 8 });
        assert!(memory.ends_with("delete keys or raise memory"), "{memory}");
        let long = Error::Option { option: OptionName::Segment, what: "allows values of 1 bytes".to_owned() };
        assert_eq!(text_of(&long), "segment-size allows values of 1 bytes");
    }
}
