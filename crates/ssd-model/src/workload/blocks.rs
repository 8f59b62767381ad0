//! Lengths of a job's requests: a single length, or a weighted mix like fio's `bssplit`.

use std::fmt;

use rand::Rng;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::report::size;

/// Request lengths in bytes, with their weights.
#[derive(Clone, Debug, PartialEq)]
pub struct Blocks {
    /// Sorted by length. At least one, with a weight above 0.
    shares: Vec<(u64, f64)>,
    total: f64,
}

impl From<u64> for Blocks {
    fn from(bytes: u64) -> Blocks {
        Blocks { shares: vec![(bytes, 1.0)], total: 1.0 }
    }
}

impl Blocks {
    /// Parses `64k`, or lengths with percentages such as `4k/60:64k/30:1m/10`. Without percentages, as in `4k:64k`, all
    /// lengths are equally frequent.
    ///
    /// # Errors
    /// A sentence that names the problem.
    pub fn parse(text: &str) -> Result<Blocks, String> {
        let mut shares = Vec::new();
        for part in text.split(':') {
            let (length, percent) =
                part.split_once('/').map_or((part, None), |(length, percent)| (length, Some(percent)));
            let weight = match percent {
                None => 1.0,
                Some(percent) => {
                    percent.parse().ok().filter(|weight| (0.0..=100.0).contains(weight)).ok_or_else(|| {
                        format!(
                            "'{percent}' in '{text}' is not a percentage from 0 to 100, as in 4k/60:64k/40"
                        )
                    })?
                }
            };
            shares.push((esker_command::parse(length)?, weight, percent.is_some()));
        }
        let total: f64 = shares.iter().map(|(_, weight, _)| weight).sum();
        let has_percentages = shares.iter().any(|(.., has)| *has);
        if shares.iter().any(|(.., has)| *has != has_percentages) {
            return Err(format!("'{text}' has a percentage for some lengths and not for others"));
        }
        if has_percentages && (total - 100.0).abs() > 0.01 {
            return Err(format!("the percentages in '{text}' add up to {total}; they must add up to 100"));
        }
        let mut shares: Vec<(u64, f64)> = shares
            .into_iter()
            .filter(|(_, weight, _)| *weight > 0.0)
            .map(|(bytes, weight, _)| (bytes, weight))
            .collect();
        shares.sort_by_key(|(bytes, _)| *bytes);
        if shares.windows(2).any(|pair| pair[0].0 == pair[1].0) {
            return Err(format!("'{text}' names a length twice"));
        }
        Ok(Blocks { shares, total })
    }

    /// Returns the longest length.
    pub fn longest(&self) -> u64 {
        self.shares.last().map_or(0, |(bytes, _)| *bytes)
    }

    /// Returns the shortest length.
    pub fn shortest(&self) -> u64 {
        self.shares.first().map_or(0, |(bytes, _)| *bytes)
    }

    /// Iterates over all lengths.
    pub(super) fn lengths(&self) -> impl Iterator<Item = u64> + '_ {
        self.shares.iter().map(|(bytes, _)| *bytes)
    }

    /// Draws the length of the next request. A single length consumes no random number.
    pub(super) fn draw(&self, random: &mut impl Rng) -> u64 {
        if self.shares.len() == 1 {
            return self.longest();
        }
        let mut at = random.random::<f64>() * self.total;
        for (bytes, weight) in &self.shares {
            if at < *weight {
                return *bytes;
            }
            at -= weight;
        }
        self.longest()
    }
}

/// Formats as `64 KiB`, or `4 KiB/60 % + 64 KiB/40 %`.
impl fmt::Display for Blocks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let [(bytes, _)] = self.shares[..] {
            return f.write_str(&size(bytes));
        }
        for (number, (bytes, weight)) in self.shares.iter().enumerate() {
            let plus = if number == 0 { "" } else { " + " };
            write!(f, "{plus}{}/{:.0} %", size(*bytes), weight / self.total * 100.0)?;
        }
        Ok(())
    }
}

impl Serialize for Blocks {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.shares[..] {
            [(bytes, _)] => serializer.serialize_u64(bytes),
            _ => serializer.collect_str(self),
        }
    }
}

impl<'de> Deserialize<'de> for Blocks {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Blocks, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Given {
            Bytes(u64),
            Text(String),
        }
        match Given::deserialize(from)? {
            Given::Bytes(bytes) => Ok(bytes.into()),
            Given::Text(text) => Blocks::parse(&text).map_err(serde::de::Error::custom),
        }
    }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;
    use rand::rngs::SmallRng;

    use super::*;

    #[test]
    fn mix_is_parsed_or_refused_with_reason() {
        let blocks = Blocks::parse("64k/30:4k/70").expect("it is a mix");
        assert_eq!((blocks.shortest(), blocks.longest()), (4096, 65_536));
        assert_eq!(blocks.to_string(), "4 KiB/70 % + 64 KiB/30 %");
        assert_eq!(Blocks::parse("64k"), Ok(65_536.into()));
        assert_eq!(
            Blocks::parse("4k:8k").map(|blocks| blocks.to_string()),
            Ok("4 KiB/50 % + 8 KiB/50 %".to_owned())
        );
        for (text, expected) in [
            ("4q", "'4q' is not a size"),
            ("4k/60:8k/50", "add up to 110"),
            ("4k/x:8k/50", "'x' in"),
            ("4k/50:8k", "for some lengths"),
            ("4k/50:4k/50", "names a length twice"),
            ("4k/-1:8k/101", "not a percentage"),
            ("", "is not a size"),
        ] {
            let error = Blocks::parse(text).expect_err(text);
            assert!(error.contains(expected), "{text}: {error}");
        }
    }

    #[test]
    fn lengths_follow_their_weights() {
        let (blocks, mut random) =
            (Blocks::parse("4k/75:64k/25").expect("a mix"), SmallRng::seed_from_u64(1));
        let short = (0..10_000).filter(|_| blocks.draw(&mut random) == 4096).count();
        assert!((7300..7700).contains(&short), "{short}");
        let (one, mut same) = (Blocks::from(4096), random.clone());
        assert_eq!(one.draw(&mut random), 4096);
        assert_eq!(random.random::<u64>(), same.random::<u64>(), "one length takes no random number");
    }
}
