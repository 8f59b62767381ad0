//! What becomes of puts when the store is full, as people write it.

use std::fmt;
use std::str::FromStr;

use crate::base::error::{Error, Result};

/// What a store does with a put that it has no room for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WhenFull {
    /// It refuses the put: nothing that was acknowledged is dropped.
    #[default]
    Refuse,
    /// It is a cache: keys that were not asked for of late are dropped, and no put is refused for lack of room.
    Evict,
    /// As [`Evict`](Self::Evict), but only keys that expire are dropped. Where there are none left, puts are refused.
    EvictExpiring,
}

impl WhenFull {
    /// All of them.
    pub const ALL: [WhenFull; 3] = [WhenFull::Refuse, WhenFull::Evict, WhenFull::EvictExpiring];

    /// The words for them, for messages.
    pub const WORDS: &str = "refuse, evict or evict-expiring";

    /// Whether anything is dropped.
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
