//! Redis' glob patterns, as used by KEYS, SCAN, CONFIG GET and COMMAND LIST.
//!
//! A pattern is compiled once: a class becomes a set of bytes, so that every step has the same cost. Matching
//! backtracks only to the last `*`, so it takes at most pattern length times text length steps. That is slow for a
//! long key, so matching of keys yields to other tasks in between.

use crate::base::turn;

mod parts;

pub(in crate::resp) use parts::Parts;

/// Limit of the bytes of a pattern.
pub(in crate::resp) const PATTERN_BYTES_MAX: usize = 4 << 10;

pub(in crate::resp) const TOO_LONG: &str = "ERR pattern exceeds maximum allowed size (4096 bytes)";

/// Upper bound of the memory of [`Parts`], in bytes per byte of the pattern.
pub(in crate::resp) const PARTS_FACTOR: usize = 38;

/// Upper bound of the memory of a pattern, in bytes.
pub(in crate::resp) const HELD_BYTES_MAX: usize = 96 << 10;

/// Matching steps between two checks of the time.
const STEPS: usize = 1 << 12;

/// A compiled pattern of `*`, `?`, `[abc]`, `[^a-z]` and `\`-escapes.
pub(in crate::resp) struct Pattern {
    tokens: Vec<Token>,
    classes: Vec<Class>,
    /// Minimum length of a matching text: one byte for each token that is not a star.
    least: usize,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Token {
    /// Any number of bytes.
    Star,
    /// Any byte.
    Any,
    Byte(u8),
    /// A byte of the class with this index.
    OneOf(u16),
}

/// A set of bytes.
#[derive(Default)]
struct Class([u64; 4]);

impl Class {
    fn add(&mut self, low: u8, high: u8) {
        (low..=high).for_each(|byte| self.0[usize::from(byte) / 64] |= 1 << (byte % 64));
    }

    fn has(&self, byte: u8) -> bool {
        self.0[usize::from(byte) / 64] & 1 << (byte % 64) != 0
    }
}

/// The state of a match: positions in the pattern and in the text, and the positions to return to, behind the last
/// star.
#[derive(Clone, Copy, Default)]
struct Progress {
    pattern: usize,
    text: usize,
    star: Option<(usize, usize)>,
}

impl Pattern {
    /// Compiles a pattern. Fails if it is too long.
    pub(in crate::resp) fn new(text: &[u8]) -> Result<Pattern, &'static str> {
        if text.len() > PATTERN_BYTES_MAX {
            return Err(TOO_LONG);
        }
        let mut pattern = Pattern { tokens: Vec::new(), classes: Vec::new(), least: 0 };
        let mut at = 0;
        while let Some(&byte) = text.get(at) {
            let (token, width) = match byte {
                b'*' => (Token::Star, 1),
                b'?' => (Token::Any, 1),
                b'[' => {
                    let (class, width) = class(&text[at..]);
                    pattern.classes.push(class);
                    (Token::OneOf(pattern.classes.len() as u16 - 1), width)
                }
                b'\\' if at + 1 < text.len() => (Token::Byte(text[at + 1]), 2),
                literal => (Token::Byte(literal), 1),
            };
            at += width;
            pattern.least += usize::from(token != Token::Star);
            // Adjacent stars are equivalent to one.
            if token != Token::Star || pattern.tokens.last() != Some(&Token::Star) {
                pattern.tokens.push(token);
            }
        }
        Ok(pattern)
    }

    /// Returns the bytes of memory of the pattern.
    pub(in crate::resp) fn held_bytes(&self) -> usize {
        self.tokens.capacity() * size_of::<Token>() + self.classes.capacity() * size_of::<Class>()
    }

    /// Returns true if the pattern matches a short text.
    pub(in crate::resp) fn matches(&self, text: &[u8]) -> bool {
        let mut progress = Progress::default();
        loop {
            if let Some(matches) = self.step(&mut progress, text) {
                return matches;
            }
        }
    }

    /// Returns true if the pattern matches a text of any length; yields to other tasks now and then.
    pub(in crate::resp) async fn matches_long(&self, text: &[u8]) -> bool {
        let mut progress = Progress::default();
        loop {
            let matches = self.step(&mut progress, text);
            turn::pause().await;
            if let Some(matches) = matches {
                return matches;
            }
        }
    }

    fn is(&self, token: Token, byte: u8) -> bool {
        match token {
            Token::Star | Token::Any => true,
            Token::Byte(literal) => literal == byte,
            Token::OneOf(class) => self.classes[usize::from(class)].has(byte),
        }
    }

    /// Continues a match for some steps. Returns the result once it is known.
    fn step(&self, progress: &mut Progress, text: &[u8]) -> Option<bool> {
        if text.len() < self.least {
            return Some(false);
        }
        let Progress { pattern: mut p, text: mut t, mut star } = *progress;
        for _ in 0..STEPS {
            if t == text.len() {
                return Some(self.tokens[p..].iter().all(|&token| token == Token::Star));
            }
            match self.tokens.get(p) {
                Some(Token::Star) => {
                    p += 1;
                    if p == self.tokens.len() {
                        return Some(true);
                    }
                    star = Some((p, t));
                }
                Some(&token) if self.is(token, text[t]) => {
                    p += 1;
                    t += 1;
                }
                _ => {
                    let Some((after, from)) = star else { return Some(false) };
                    star = Some((after, from + 1));
                    (p, t) = (after, from + 1);
                }
            }
        }
        *progress = Progress { pattern: p, text: t, star };
        None
    }
}

/// Returns the class at the front of a pattern, and its length there. An unterminated class extends to the end of the
/// pattern.
fn class(pattern: &[u8]) -> (Class, usize) {
    let mut class = Class::default();
    let negated = pattern.get(1) == Some(&b'^');
    let mut at = 1 + usize::from(negated);
    loop {
        match pattern[at.min(pattern.len())..] {
            [] => break,
            [b']', ..] => {
                at += 1;
                break;
            }
            [b'\\', escaped, ..] => {
                class.add(escaped, escaped);
                at += 2;
            }
            [low, b'-', high, ..] => {
                class.add(low.min(high), low.max(high));
                at += 3;
            }
            [literal, ..] => {
                class.add(literal, literal);
                at += 1;
            }
        }
    }
    if negated {
        class.0.iter_mut().for_each(|bits| *bits = !*bits);
    }
    (class, at)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matches(pattern: &[u8], text: &[u8]) -> bool {
        Pattern::new(pattern).unwrap().matches(text)
    }

    #[test]
    fn patterns() {
        for (pattern, text, expected) in [
            ("save", "save", true),
            ("save", "saved", false),
            ("*", "", true),
            ("*", "port", true),
            ("max*", "maxclients", true),
            ("max*s", "maxclients", true),
            ("*a*a*a*b", "aaaaaaaaaa", false),
            ("**a***b**", "xaxbx", true),
            ("p?rt", "port", true),
            ("p?rt", "prt", false),
            ("\\*", "*", true),
            ("\\*", "x", false),
            ("x\\", "x\\", true),
            ("", "", true),
            ("", "x", false),
            ("h[ae]llo", "hello", true),
            ("h[ae]llo", "hillo", false),
            ("h[^e]llo", "hallo", true),
            ("h[^e]llo", "hello", false),
            ("h[a-c]llo", "hbllo", true),
            ("h[c-a]llo", "hbllo", true),
            ("h[a-c]llo", "hdllo", false),
            ("[\\]]", "]", true),
            ("[", "x", false),
            ("[x", "x", true),
            ("[^", "x", true),
            ("[]", "x", false),
            ("[a-]", "-", false),
            ("a*[0-9]b", "axx7b", true),
            ("*[", "x", false),
        ] {
            assert_eq!(matches(pattern.as_bytes(), text.as_bytes()), expected, "{pattern} on {text}");
        }
        assert!(matches(b"[\xf0-\xff]", b"\xff") && !matches(b"[^\x00-\xff]", b"\xff"));
    }

    #[test]
    fn long_texts_take_many_steps() {
        let text = [b"a".repeat(3000), b"b".repeat(3000)].concat();
        assert!(matches(b"*a[ab]b*[b]?", &text));
        assert!(matches(&[b"*".as_slice(), &b"a".repeat(3000), b"*b"].concat(), &text));
        assert!(!matches(&[b"*".as_slice(), &b"a".repeat(2000), b"*a"].concat(), &text));
    }

    #[test]
    fn glob_pattern_memory_is_bounded() {
        assert!(Pattern::new(&[b'*'; PATTERN_BYTES_MAX + 1]).is_err());
        let classes = Pattern::new(&b"[a]".repeat(PATTERN_BYTES_MAX / 3)).unwrap();
        let bytes = Pattern::new(&[b'a'; PATTERN_BYTES_MAX]).unwrap();
        for pattern in [classes, bytes] {
            assert!(pattern.held_bytes() <= HELD_BYTES_MAX, "{} bytes", pattern.held_bytes());
        }
    }
}
