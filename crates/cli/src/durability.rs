//! Durability as an option's value: `sync`, `process`, `periodic`, `periodic:100`, `none`.

use std::time::Duration;

use esker_engine::Durability;

/// A durability from its name; `periodic` is every second, or takes milliseconds after a colon.
pub(crate) fn parse(text: &str) -> Result<Durability, String> {
    let forms = "it must be sync, process, periodic (a second), periodic:MS with MS in milliseconds such as periodic:100, or none";
    let lower = text.to_ascii_lowercase();
    match lower.as_str() {
        "sync" => return Ok(Durability::Sync),
        "process" => return Ok(Durability::Process),
        "periodic" => return Ok(Durability::Periodic(Duration::from_secs(1))),
        "none" => return Ok(Durability::None),
        _ => {}
    }
    match lower.strip_prefix("periodic:").map(str::parse) {
        Some(Ok(ms)) if ms > 0 => Ok(Durability::Periodic(Duration::from_millis(ms))),
        _ => Err(format!("'{text}' is not a durability: {forms}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durabilities_by_name() {
        assert_eq!(parse("sync"), Ok(Durability::Sync));
        assert_eq!(parse("Process"), Ok(Durability::Process));
        assert_eq!(parse("none"), Ok(Durability::None));
        assert_eq!(parse("periodic"), Ok(Durability::Periodic(Duration::from_secs(1))));
        assert_eq!(parse("periodic:250"), Ok(Durability::Periodic(Duration::from_millis(250))));
        for text in ["", "always", "periodically", "periodic:", "periodic:0", "periodic:1s", "periodic:-1"] {
            assert!(parse(text).unwrap_err().contains("periodic:100"), "{text}");
        }
    }
}
