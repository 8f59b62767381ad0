//! Compression methods and their text form. The command line, the network and the benchmarks parse them here, so that
//! all accept the same words.

use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;

use esker_log::Codec;

use crate::base::error::{Error, Result};

/// Compression of values in new puts. A value is stored uncompressed if it is shorter than 128 bytes, or if compression
/// saves less than an eighth.
///
/// It does not affect stored values: each record states its own compression.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Compression {
    /// No compression.
    Off,
    /// LZ4: fast, and halves the length of text.
    #[default]
    Lz4,
    /// Zstandard at a level of [`LEVELS`](Self::LEVELS): shorter than LZ4, but slower. Higher levels slow down writes,
    /// but not reads. Needs the cargo feature `zstd`.
    Zstd(u8),
}

/// Level of `zstd` without a number.
const DEFAULT_LEVEL: u8 = 3;

impl Compression {
    /// The names of the methods, for messages. Case is ignored when they are parsed.
    pub const WORDS: &str = "lz4, zstd (level 3), zstd:LEVEL (1 to 22) or off";

    /// Valid levels of Zstandard.
    pub const LEVELS: RangeInclusive<u8> = 1..=22;

    /// Checks that this build has the method.
    ///
    /// # Errors
    /// [`Error::MissingFeature`], for Zstandard without the cargo feature `zstd`.
    pub fn check(self) -> Result<()> {
        match self {
            Compression::Zstd(_) if !Codec::Zstd.is_available() => Err(Error::MissingFeature {
                feature: Codec::Zstd.name(),
                what: format!("compression is {self}"),
            }),
            _ => Ok(()),
        }
    }
}

/// ```
/// # extern crate esker_engine as esker;
/// use esker::Compression;
///
/// assert_eq!("lz4".parse::<Compression>()?, Compression::Lz4);
/// assert_eq!(Compression::Zstd(7).to_string(), "zstd:7");
/// assert!("gzip".parse::<Compression>().is_err());
/// # Ok::<(), esker::Error>(())
/// ```
impl FromStr for Compression {
    type Err = Error;

    fn from_str(text: &str) -> Result<Compression, Error> {
        let lower = text.to_ascii_lowercase();
        let level = |text: &str| {
            let level = text.parse().ok().filter(|level: &u8| level.to_string() == text);
            level.filter(|level| Compression::LEVELS.contains(level)).map(Compression::Zstd)
        };
        let compression = match lower.as_str() {
            "off" => Some(Compression::Off),
            "lz4" => Some(Compression::Lz4),
            "zstd" => Some(Compression::Zstd(DEFAULT_LEVEL)),
            _ => lower.strip_prefix("zstd:").and_then(level),
        };
        let words = Compression::WORDS;
        let compression = compression
            .ok_or_else(|| Error::invalid(format!("'{text}' is not a compression; it is {words}")))?;
        compression.check().map(|()| compression)
    }
}

impl fmt::Display for Compression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Compression::Off => f.write_str("off"),
            Compression::Lz4 => f.write_str("lz4"),
            Compression::Zstd(level) => write!(f, "zstd:{level}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn compressions_are_read_as_they_are_written() {
        let zstd: &[&str] = if Codec::Zstd.is_available() { &["zstd:1", "zstd:3", "zstd:22"] } else { &[] };
        for text in ["off", "lz4"].iter().chain(zstd) {
            assert_eq!(text.parse::<Compression>().expect(text).to_string(), *text);
            assert_eq!(text.to_uppercase().parse::<Compression>().expect(text).to_string(), *text);
        }
        assert_eq!(Compression::Zstd(3).to_string(), "zstd:3");
        assert_eq!("zstd".parse().ok(), Codec::Zstd.is_available().then_some(Compression::Zstd(3)));
    }

    #[test]
    fn other_words_are_refused_with_the_choices() {
        for text in
            ["", "none", "gzip", "lz4:1", "zstd:", "zstd:0", "zstd:23", "zstd:-1", "zstd:03", "zstd:+3"]
        {
            let error = text.parse::<Compression>().expect_err(text).to_string();
            assert!(error.contains(&format!("'{text}'")) && error.contains(Compression::WORDS), "{error}");
        }
    }
}
