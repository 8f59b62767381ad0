//! Policy of a full store, and its text form.

use std::fmt;
use std::str::FromStr;

use crate::base::error::{Error, Result};

/// Policy for puts when the store is full.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WhenFull {
    /// Refuses the put. No acknowledged record is dropped.
    #[default]
    Refuse,
    /// Cache mode: keys that were not used recently are evicted, and no put is refused for lack of room.
    Evict,
    /// As [`Evict`](Self::Evict), but only keys with an expiry are evicted. When none is left, puts are refused.
    EvictExpiring,
}

impl WhenFull {
    /// All policies.
    pub const ALL: [WhenFull; 3] = [WhenFull::Refuse, WhenFull::Evict, WhenFull::EvictExpiring];

    /// The names of the policies, for messages.
    pub const WORDS: &str = "refuse, evict or evict-expiring";

    /// Returns true if the policy evicts keys.
    pub fn evicts(self) -> bool {
        self != WhenFull::Refuse
    }
}

impl FromStr for WhenFull {
    type Err = Error;

    fn from_str(text: &str) -> Result<WhenFull> {
        let known = WhenFull::ALL.into_iter().find(|one| one.to_string() == text.to_ascii_lowercase());
        known.ok_or_else(|| {
            Error::invalid(format!("'{text}' is not what a full store can do; it is {}", WhenFull::WORDS))
        })
    }
}

impl fmt::Display for WhenFull {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            WhenFull::Refuse => "refuse",
            WhenFull::Evict => "evict",
            WhenFull::EvictExpiring => "evict-expiring",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_read_as_they_are_written() {
        for one in WhenFull::ALL {
            assert_eq!(one.to_string().to_uppercase().parse::<WhenFull>().expect("a word"), one);
        }
        let error = "forget".parse::<WhenFull>().expect_err("no such word").to_string();
        assert!(error.contains("'forget'") && error.contains(WhenFull::WORDS), "{error}");
    }
}
