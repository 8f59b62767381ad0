//! Bound of garbage, and its text form.

use std::fmt;
use std::str::FromStr;

use crate::base::error::{Error, Result};

/// Amount of garbage, as a share of live data, beyond which it is collected even if slots are free.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MaxGarbage {
    /// [`Off`](Self::Off) for a device, and for a file with a limit; otherwise, because the file system is shared with
    /// others, `reserve / (100 - reserve)`: with a reserve of 20 %, a quarter of the live data.
    #[default]
    Auto,
    /// No bound: garbage stays until free slots run low. A larger part of the tier without live data then means fewer
    /// bytes written.
    Off,
    /// At most this many percent of the live data.
    Percent(u32),
}

/// Largest bound in percent.
const MOST_PERCENT: u32 = 10_000;

impl MaxGarbage {
    /// The text forms, for messages.
    pub const WORDS: &str = "auto, off or percent of the live data (1 to 10000)";

    /// Returns the bound as a share of the live data; `None` if there is none. `is_shared`: the tier is a file without
    /// a limit.
    pub(crate) fn share(self, is_shared: bool, reserve_share: f64) -> Option<f64> {
        match self {
            MaxGarbage::Auto => is_shared.then(|| reserve_share / (1.0 - reserve_share)),
            MaxGarbage::Off => None,
            MaxGarbage::Percent(percent) => Some(f64::from(percent) / 100.0),
        }
    }

    /// Returns true if the bound can be set.
    pub(crate) fn is_valid(self) -> bool {
        !matches!(self, MaxGarbage::Percent(percent) if !(1..=MOST_PERCENT).contains(&percent))
    }
}

impl FromStr for MaxGarbage {
    type Err = Error;

    fn from_str(text: &str) -> Result<MaxGarbage> {
        let bound = match text.to_ascii_lowercase().as_str() {
            "auto" => Some(MaxGarbage::Auto),
            "off" => Some(MaxGarbage::Off),
            number => number.parse().ok().map(MaxGarbage::Percent),
        };
        let refused =
            || Error::invalid(format!("'{text}' is not a bound of garbage; it is {}", MaxGarbage::WORDS));
        bound.filter(|bound| bound.is_valid()).ok_or_else(refused)
    }
}

impl fmt::Display for MaxGarbage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MaxGarbage::Auto => f.write_str("auto"),
            MaxGarbage::Off => f.write_str("off"),
            MaxGarbage::Percent(percent) => write!(f, "{percent}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_form_is_parsed_back() {
        for bound in [MaxGarbage::Auto, MaxGarbage::Off, MaxGarbage::Percent(1), MaxGarbage::Percent(10_000)]
        {
            assert_eq!(bound.to_string().to_uppercase().parse::<MaxGarbage>().expect("it is valid"), bound);
        }
        for text in ["0", "10001", "", "25%", "-1", "none"] {
            let error = text.parse::<MaxGarbage>().expect_err("it is refused").to_string();
            assert!(error.contains(MaxGarbage::WORDS), "{error}");
        }
    }

    #[test]
    fn auto_bounds_garbage_only_where_the_file_system_is_shared() {
        assert_eq!(MaxGarbage::Auto.share(false, 0.2), None);
        assert_eq!(MaxGarbage::Auto.share(true, 0.2), Some(0.25));
        assert_eq!(MaxGarbage::Off.share(true, 0.2), None);
        assert_eq!(MaxGarbage::Percent(40).share(false, 0.2), Some(0.4));
    }
}
