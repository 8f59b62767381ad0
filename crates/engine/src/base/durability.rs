//! Durability levels as people write them. The command line, the network and the benchmarks read them here, so that all of
//! them take the same words.

use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;
use std::time::Duration;

use crate::base::error::{Error, Result};

/// When a write is acknowledged, and what it then survives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// Acknowledged when it is on the medium: SIGKILL and a power cut lose nothing. Visible to others no earlier.
    Sync,
    /// Acknowledged when it is in memory that outlives the process, the staging file: a panic and SIGKILL lose nothing, a power
    /// cut about the last second.
    Process,
    /// Acknowledged from memory; a power cut loses about the last so long, at most one second (longer only with
    /// [`coalesce_for`](crate::Options::coalesce_for)). What SIGKILL loses is not promised: nothing if there is a staging file.
    Periodic(Duration),
    /// Acknowledged from memory; a power cut loses about the last second. What SIGKILL loses is not promised: nothing if there
    /// is a staging file.
    None,
}

/// What `periodic` without a number means.
const DEFAULT_PERIOD_MS: u64 = 1000;

impl Durability {
    /// The words that name a level, for messages. Case does not matter.
    pub const WORDS: &str =
        "sync, process, periodic (a second), periodic:MS (1 to 60000 milliseconds) or none";

    /// The periods that can be named, in milliseconds.
    pub const PERIODS_MS: RangeInclusive<u64> = 1..=60_000;

    /// [`Periodic`](Self::Periodic) with so many milliseconds; `None` if it is none of [`PERIODS_MS`](Self::PERIODS_MS).
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

/// A number without a sign and without zeros in front.
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
