//! Durability as people write it, as `esker serve` takes it.

use std::time::Duration;

use esker_engine::Durability;

/// Durable within a day.
const LONGEST_MS: u64 = 86_400_000;

/// `sync`, `process`, `none` or `periodic:MS`.
pub(crate) fn parse(text: &str) -> Result<Durability, String> {
    let wrong = || {
        format!(
            "'{text}' is no durability: sync, process, none or periodic:100 (milliseconds, at most {LONGEST_MS})"
        )
    };
    match text {
        "sync" => Ok(Durability::Sync),
        "process" => Ok(Durability::Process),
        "none" => Ok(Durability::None),
        _ => {
            let ms = text
                .strip_prefix("periodic:")
                .and_then(|ms| ms.parse().ok())
                .filter(|ms| (1..=LONGEST_MS).contains(ms));
            ms.map(|ms| Durability::Periodic(Duration::from_millis(ms))).ok_or_else(wrong)
        }
    }
}

/// As it is written.
pub(crate) fn name(durability: Durability) -> String {
    match durability {
        Durability::Sync => "sync".into(),
        Durability::Process => "process".into(),
        Durability::None => "none".into(),
        Durability::Periodic(every) => format!("periodic:{}", every.as_millis()),
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn names_are_read_as_they_are_written() {
        for text in ["sync", "process", "none", "periodic:250"] {
            assert_eq!(super::parse(text).map(super::name), Ok(text.to_owned()));
        }
        for text in ["", "periodic", "periodic:0", "periodic:18446744073709551615", "Sync"] {
            assert!(super::parse(text).is_err(), "{text}");
        }
    }
}
