//! Durability levels and their text form. The command line, the network and the benchmarks parse them here, so that all
//! accept the same words.

use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;
use std::time::Duration;

use crate::base::error::{Error, Result};

/// When a write is acknowledged, and which failures it survives from then on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// Acknowledged when the record is on the medium: SIGKILL and a power failure lose nothing. Not visible to others
    /// before that.
    Sync,
    /// Acknowledged when the record is in the staging file, memory that outlives the process: a panic and SIGKILL lose
    /// nothing, a power failure loses about the last second.
    Process,
    /// Acknowledged from memory. A power failure loses about the last period, at most 1 s (longer only with
    /// [`coalesce_for`](crate::Options::coalesce_for)). Loss on SIGKILL is unspecified; with a staging file nothing is
    /// lost.
    Periodic(Duration),
    /// Acknowledged from memory; a power failure loses about the last second. Loss on SIGKILL is unspecified; with a
    /// staging file nothing is lost.
    None,
}

/// Period of `periodic` without a number, in milliseconds.
const DEFAULT_PERIOD_MS: u64 = 1000;

impl Durability {
    /// The names of the levels, for messages. Case is ignored when they are parsed.
    pub const WORDS: &str =
        "sync, process, periodic (a second), periodic:MS (1 to 60000 milliseconds) or none";

    /// Valid periods, in milliseconds.
    pub const PERIODS_MS: RangeInclusive<u64> = 1..=60_000;

    /// Returns [`Periodic`](Self::Periodic) with a period of `ms` milliseconds; `None` if `ms` is outside
    /// [`PERIODS_MS`](Self::PERIODS_MS).
    pub fn periodic_ms(ms: u64) -> Option<Durability> {
        Self::PERIODS_MS.contains(&ms).then(|| Durability::Periodic(Duration::from_millis(ms)))
    }
}

/// ```
/// # extern crate esker_engine as esker;
/// use esker::Durability;
///
/// assert_eq!("sync".parse::<Durability>()?, Durability::Sync);
/// assert_eq!("periodic:250".parse::<Durability>()?.to_string(), "periodic:250");
/// assert!("always".parse::<Durability>().is_err());
/// # Ok::<(), esker::Error>(())
/// ```
impl FromStr for Durability {
    type Err = Error;

    fn from_str(text: &str) -> Result<Durability, Error> {
        let lower = text.to_ascii_lowercase();
        let level = match lower.as_str() {
            "sync" => Some(Durability::Sync),
            "process" => Some(Durability::Process),
            "none" => Some(Durability::None),
            "periodic" => Durability::periodic_ms(DEFAULT_PERIOD_MS),
            _ => lower.strip_prefix("periodic:").and_then(plain_number).and_then(Durability::periodic_ms),
        };
        level.ok_or_else(|| Error::invalid(format!("'{text}' is not a durability; it is {}", Self::WORDS)))
    }
}

/// Parses a number without sign or leading zeros.
fn plain_number(text: &str) -> Option<u64> {
    text.parse().ok().filter(|number: &u64| number.to_string() == text)
}

impl fmt::Display for Durability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Durability::Sync => f.write_str("sync"),
            Durability::Process => f.write_str("process"),
            Durability::Periodic(every) => write!(f, "periodic:{}", every.as_millis()),
            Durability::None => f.write_str("none"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_are_read_as_they_are_written() {
        for text in ["sync", "process", "none", "periodic:1", "periodic:250", "periodic:60000"] {
            assert_eq!(text.parse::<Durability>().expect(text).to_string(), text);
            assert_eq!(text.to_uppercase().parse::<Durability>().expect(text).to_string(), text);
        }
        assert_eq!("periodic".parse::<Durability>().expect("a second").to_string(), "periodic:1000");
    }

    #[test]
    fn other_words_are_refused_with_the_choices() {
        for text in [
            "",
            "always",
            "periodically",
            "periodic:",
            "periodic:0",
            "periodic:60001",
            "periodic:18446744073709551616",
            "periodic:1s",
            "periodic:-1",
            "periodic:+1",
            "periodic:01",
            "periodic: 1",
            " sync",
        ] {
            let error = text.parse::<Durability>().expect_err(text).to_string();
            assert!(error.contains(&format!("'{text}'")) && error.contains(Durability::WORDS), "{error}");
        }
    }
}
