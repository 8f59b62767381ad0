//! Patterns of channel names, which publishers match synchronously.
//!
//! A name may be as long as a key, and no other task runs on the thread during a match, so matching must not take
//! pattern length times name length steps. The parts before the first `*` and after the last one have fixed
//! positions. The parts between stars are searched from the left, each after the previous one. A part of literal
//! bytes is found in time linear in the name; so is one with `?` or `[]`, which must be short for that reason.

use memchr::memmem;

use super::{Pattern, Token};

/// Limit of the tokens of a part between two stars that contains `?` or `[]`: each token has a bit of a word.
const MIXED_MAX: usize = 64;

/// Length in bytes of a text up to which such a part is compared at each position. In a longer text that would take a
/// millisecond or more, so it pays to first compute the tokens that match each byte.
const LONG_BYTES: usize = 1 << 10;

const TOO_LONG: &str =
    "ERR between two * of a pattern of channels there are up to 64 characters if there is ? or [] among them";

/// A compiled pattern; see the module.
pub(in crate::resp) struct Parts {
    pattern: Pattern,
    /// For each token, its byte if it is a literal, else 0.
    bytes: Box<[u8]>,
    parts: Box<[Part]>,
}

/// A range of tokens without a star.
#[derive(Clone, Copy)]
struct Part {
    start: u16,
    end: u16,
    is_mixed: bool,
}

impl Parts {
    /// Compiles a pattern. Fails if it or a part of it is too long.
    pub(in crate::resp) fn new(text: &[u8]) -> Result<Parts, &'static str> {
        let pattern = Pattern::new(text)?;
        let byte = |token: &Token| if let Token::Byte(byte) = token { *byte } else { 0 };
        let bytes = pattern.tokens.iter().map(byte).collect();
        let count = 1 + pattern.tokens.iter().filter(|token| **token == Token::Star).count();
        let (mut parts, mut start) = (Vec::with_capacity(count), 0);
        for tokens in pattern.tokens.split(|token| *token == Token::Star) {
            let end = start + tokens.len();
            let is_mixed = tokens.iter().any(|token| !matches!(token, Token::Byte(_)));
            let is_between = (1..count - 1).contains(&parts.len());
            if is_mixed && is_between && tokens.len() > MIXED_MAX {
                return Err(TOO_LONG);
            }
            parts.push(Part { start: start as u16, end: end as u16, is_mixed });
            start = end + 1;
        }
        Ok(Parts { pattern, bytes, parts: parts.into() })
    }

    /// Returns the bytes of memory of the pattern.
    pub(in crate::resp) fn held_bytes(&self) -> usize {
        self.pattern.held_bytes() + self.bytes.len() + size_of_val(&*self.parts)
    }

    /// Returns true if the pattern matches a name.
    pub(in crate::resp) fn matches(&self, name: &[u8]) -> bool {
        let [first, between @ .., last] = &*self.parts else {
            let [only] = &*self.parts else { return false };
            return name.len() == self.pattern.least && self.is_at(*only, name);
        };
        if name.len() < self.pattern.least || !self.is_at(*first, name) {
            return false;
        }
        let (mut rest, behind) = name[first.len()..].split_at(name.len() - first.len() - last.len());
        if !self.is_at(*last, behind) {
            return false;
        }
        for part in between {
            let Some(at) = self.find(*part, rest) else { return false };
            rest = &rest[at + part.len()..];
        }
        true
    }

    /// Returns the first position of a part in a text.
    fn find(&self, part: Part, text: &[u8]) -> Option<usize> {
        match part.is_mixed {
            true if text.len() > LONG_BYTES => self.find_in_long(part, text),
            true => {
                (0..(text.len() + 1).saturating_sub(part.len())).find(|at| self.is_at(part, &text[*at..]))
            }
            false => memmem::find(text, &self.bytes[part.range()]),
        }
    }

    /// Like [`find`](Self::find), in one step per byte of the text. Bit `n` of a word is set if the last bytes match
    /// the tokens up to `n`.
    fn find_in_long(&self, part: Part, text: &[u8]) -> Option<usize> {
        let mut tokens_of = [0_u64; 256];
        for (at, token) in self.pattern.tokens[part.range()].iter().enumerate() {
            let of_byte =
                tokens_of.iter_mut().zip(0..=u8::MAX).filter(|(_, byte)| self.pattern.is(*token, *byte));
            of_byte.for_each(|(tokens, _)| *tokens |= 1 << at);
        }
        let (last, mut begun) = (1_u64 << (part.len() - 1), 0);
        let end = text.iter().position(|byte| {
            begun = (begun << 1 | 1) & tokens_of[usize::from(*byte)];
            begun & last != 0
        });
        end.map(|end| end + 1 - part.len())
    }

    /// Returns true if a text, which is long enough, begins with a part.
    fn is_at(&self, part: Part, text: &[u8]) -> bool {
        match part.is_mixed {
            true => {
                let tokens = &self.pattern.tokens[part.range()];
                tokens.iter().zip(text).all(|(token, byte)| self.pattern.is(*token, *byte))
            }
            false => text.starts_with(&self.bytes[part.range()]),
        }
    }
}

impl Part {
    fn len(self) -> usize {
        self.range().len()
    }

    fn range(self) -> std::ops::Range<usize> {
        usize::from(self.start)..usize::from(self.end)
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;

    /// Returns all texts of the given letters up to a length.
    fn texts(letters: &[u8], longest: usize) -> Vec<Vec<u8>> {
        let (mut all, mut last) = (vec![Vec::new()], vec![Vec::new()]);
        for _ in 0..longest {
            let with = |text: &Vec<u8>, letter: u8| [text, &[letter][..]].concat();
            let longer = last.iter().flat_map(|text| letters.iter().map(move |letter| with(text, *letter)));
            last = longer.collect();
            all.extend(last.iter().cloned());
        }
        all
    }

    #[test]
    fn matches_what_the_pattern_does() {
        let names = texts(b"ab", 5);
        let escaped = [&b"[^a]*b"[..], b"*[a]b*?[ab]", b"\\**a", b"*\\*", b"[", b"*[b"].map(<[u8]>::to_vec);
        for pattern in texts(b"ab*?", 5).iter().chain(&escaped) {
            let (parts, whole) = (Parts::new(pattern).unwrap(), Pattern::new(pattern).unwrap());
            for name in &names {
                let shown = (pattern.escape_ascii(), name.escape_ascii());
                assert_eq!(parts.matches(name), whole.matches(name), "{} {}", shown.0, shown.1);
            }
        }
    }

    #[test]
    fn matches_what_the_pattern_does_in_long_names() {
        let mut matching = 0;
        for at in 0..400_u32 {
            // Pseudo-random letters, more of them `a` than `b`.
            let letter = |place: u32| if (place * place * 7 + place * at) % 11 < 8 { b'a' } else { b'b' };
            let name: Vec<u8> = (0..1_500 + at).map(letter).collect();
            let mut part = name[700..700 + MIXED_MAX - (at % 60) as usize].to_vec();
            part[(at % 4) as usize] = b'?';
            if at % 3 == 0 {
                part[2] ^= 3;
            }
            for pattern in
                [[b"*", &part[..], b"*"].concat(), [b"?*", &part[..], b"*a?*", &part[..], b"*"].concat()]
            {
                let whole = Pattern::new(&pattern).unwrap().matches(&name);
                matching += usize::from(whole);
                assert_eq!(Parts::new(&pattern).unwrap().matches(&name), whole, "{}", pattern.escape_ascii());
            }
        }
        assert!((100..700).contains(&matching), "{matching}");
    }

    #[test]
    fn a_part_with_classes_between_stars_is_short() {
        let mixed = |count: usize| "[a]".repeat(count);
        for (pattern, fits) in [
            (format!("*{}*", mixed(64)), true),
            (format!("*{}*", mixed(65)), false),
            (format!("*x*{}?*", "a".repeat(64)), false),
            (format!("*{}*", "a".repeat(4000)), true),
            (format!("{}*{}", mixed(600), mixed(600)), true),
        ] {
            assert_eq!(Parts::new(pattern.as_bytes()).err(), (!fits).then_some(TOO_LONG), "{pattern}");
        }
    }

    #[test]
    fn no_pattern_takes_long_on_the_name_of_a_long_key() {
        let name = [b"a".repeat(60_000), b"b".repeat(5_000)].concat();
        let long = "a".repeat(4_000);
        for pattern in [
            format!("*{long}c*"),
            format!("*c{long}*"),
            format!("*{long}c"),
            format!("*{}c*", "?".repeat(63)),
            format!("*{}*", "a*".repeat(2_000)),
            format!("{}c", "?*".repeat(2_000)),
        ] {
            let parts = Parts::new(pattern.as_bytes()).unwrap();
            let began = Instant::now();
            let _ = parts.matches(&name);
            // A match takes less than a millisecond; with backtracking it would take minutes.
            assert!(began.elapsed() < Duration::from_secs(10), "{pattern}: {:?}", began.elapsed());
        }
    }

    #[test]
    fn glob_parts_memory_is_bounded() {
        for pattern in ["[a]".repeat(1_365), "[]".repeat(1_025), "a*".repeat(2_048), "a".repeat(4_096)] {
            let held = Parts::new(pattern.as_bytes()).unwrap().held_bytes();
            assert!(held <= pattern.len() * super::super::PARTS_FACTOR, "{held} bytes for {}", &pattern[..6]);
        }
    }
}
