//! Sets of keys or channels that a user may access, by prefix.

use std::collections::BTreeSet;
use std::fmt;

/// A prefix of names and the permitted operations.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Pattern {
    pub(super) prefix: Vec<u8>,
    /// True if keys may be read, or channels subscribed to.
    pub(super) read: bool,
    /// True if keys may be written, or channels published to.
    pub(super) write: bool,
}

/// All patterns of a user.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Reach(Vec<Pattern>);

/// Error in a pattern.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WrongPattern {
    Syntax,
    NotPrefix,
    NotText,
}

impl fmt::Display for WrongPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            WrongPattern::Syntax => "Syntax error",
            WrongPattern::NotPrefix => {
                "a pattern is a prefix with * behind it, such as ~app:*, with \\ before what would be special"
            }
            WrongPattern::NotText => "a pattern is UTF-8, since the file of users is text",
        })
    }
}

/// Returns true for bytes with a special meaning in patterns.
fn is_special(byte: u8) -> bool {
    matches!(byte, b'*' | b'?' | b'[' | b'\\')
}

/// Returns true for bytes that Redis rules do not allow unless escaped by `\`; prefixes in the users file may contain them.
fn is_blank(byte: u8) -> bool {
    matches!(byte, 0 | b' ' | b'\t'..=b'\r')
}

impl Pattern {
    /// Parses `~prefix*`, `%R~prefix*`, `%W~prefix*`, `%RW~prefix*`, or `&prefix*`, depending on `sign`.
    pub(super) fn parse(text: &[u8], sign: u8) -> Result<Pattern, WrongPattern> {
        let (flags, glob) = match text.split_first() {
            Some((&first, glob)) if first == sign => (None, glob),
            Some((b'%', rest)) if sign == b'~' => {
                let end = rest.iter().position(|byte| *byte == sign).ok_or(WrongPattern::Syntax)?;
                (Some(&rest[..end]), &rest[end + 1..])
            }
            _ => return Err(WrongPattern::Syntax),
        };
        let has = |letter: u8| {
            flags.is_none_or(|flags| flags.iter().any(|flag| flag.eq_ignore_ascii_case(&letter)))
        };
        let (read, write) = (has(b'R'), has(b'W'));
        let known =
            flags.is_none_or(|flags| flags.iter().all(|flag| matches!(flag, b'r' | b'R' | b'w' | b'W')));
        if !known || !(read || write) {
            return Err(WrongPattern::Syntax);
        }
        if std::str::from_utf8(glob).is_err() {
            return Err(WrongPattern::NotText);
        }
        let mut prefix = Vec::with_capacity(glob.len());
        let mut bytes = glob.iter().copied();
        loop {
            match bytes.next() {
                Some(b'*') if bytes.len() == 0 => return Ok(Pattern { prefix, read, write }),
                Some(b'\\') => prefix.push(bytes.next().ok_or(WrongPattern::NotPrefix)?),
                Some(byte) if is_blank(byte) => return Err(WrongPattern::Syntax),
                Some(byte) if !is_special(byte) => prefix.push(byte),
                _ => return Err(WrongPattern::NotPrefix),
            }
        }
    }

    /// Formats the pattern for [`parse`](Self::parse). A channel's operations are omitted, because commands determine them.
    fn show(&self, sign: u8) -> Vec<u8> {
        let flags: &[u8] = match (self.read, self.write) {
            (true, false) if sign == b'~' => b"%R",
            (false, true) if sign == b'~' => b"%W",
            _ => b"",
        };
        let mut shown = [flags, &[sign]].concat();
        for &byte in &self.prefix {
            if is_special(byte) || is_blank(byte) {
                shown.push(b'\\');
            }
            shown.push(byte);
        }
        shown.push(b'*');
        shown
    }
}

impl Reach {
    pub(super) fn everything() -> Reach {
        Reach(vec![Pattern { prefix: Vec::new(), read: true, write: true }])
    }

    /// Returns the names with any of these prefixes; all names if there are none.
    pub(super) fn of_prefixes<'p>(
        prefixes: impl Iterator<Item = &'p [u8]>,
        read: bool,
        write: bool,
    ) -> Reach {
        if !read && !write {
            return Reach::default();
        }
        let mut patterns: Vec<_> =
            prefixes.map(|prefix| Pattern { prefix: prefix.to_vec(), read, write }).collect();
        if patterns.is_empty() {
            patterns.push(Pattern { prefix: Vec::new(), read, write });
        }
        Reach(patterns)
    }

    /// Adds a pattern. Operations already permitted for the same prefix stay permitted.
    pub(super) fn add(&mut self, pattern: Pattern) {
        match self.0.iter_mut().find(|known| known.prefix == pattern.prefix) {
            Some(known) => {
                known.read |= pattern.read;
                known.write |= pattern.write;
            }
            None => self.0.push(pattern),
        }
    }

    /// Permits all operations on all names of the set.
    pub(super) fn open(&mut self) {
        for pattern in &mut self.0 {
            (pattern.read, pattern.write) = (true, true);
        }
    }

    pub(super) fn may_read(&self, name: &[u8]) -> bool {
        self.0.iter().any(|pattern| pattern.read && name.starts_with(&pattern.prefix))
    }

    /// Returns the prefixes of readable names.
    pub(super) fn readable(&self) -> BTreeSet<&[u8]> {
        self.0.iter().filter(|pattern| pattern.read).map(|pattern| &pattern.prefix[..]).collect()
    }

    pub(super) fn may_write(&self, name: &[u8]) -> bool {
        self.0.iter().any(|pattern| pattern.write && name.starts_with(&pattern.prefix))
    }

    pub(super) fn is_everything(&self) -> bool {
        self.may_read(b"") && self.may_write(b"")
    }

    /// Returns each pattern as a Redis rule.
    pub(super) fn shown(&self, sign: u8) -> impl Iterator<Item = Vec<u8>> {
        self.0.iter().map(move |pattern| pattern.show(sign))
    }

    /// Returns the approximate memory in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.0.iter().map(|pattern| size_of::<Pattern>() + pattern.prefix.len()).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_are_prefixes_and_read_what_they_show() {
        for (text, sign, shown) in [
            ("~*", b'~', "~*"),
            ("~app:*", b'~', "~app:*"),
            ("%R~app:*", b'~', "%R~app:*"),
            ("%w~app:*", b'~', "%W~app:*"),
            ("%rW~a\\**", b'~', "~a\\**"),
            ("&a\\\\\\?\\[b]*", b'&', "&a\\\\\\?\\[b]*"),
            ("~my\\ app\\\t\\\0:*", b'~', "~my\\ app\\\t\\\0:*"),
        ] {
            let pattern = Pattern::parse(text.as_bytes(), sign).unwrap();
            assert_eq!(String::from_utf8(pattern.show(sign)).unwrap(), shown);
        }
        use WrongPattern::{NotPrefix, NotText, Syntax};
        for (text, wrong) in [
            (&b"~"[..], NotPrefix),
            (b"~app:", NotPrefix),
            (b"~a*b*", NotPrefix),
            (b"~a?*", NotPrefix),
            (b"~[ab]*", NotPrefix),
            (b"~a\\*", NotPrefix),
            (b"~a\\", NotPrefix),
            (b"~a **", Syntax),
            (b"~a b*", Syntax),
            (b"~a\0*", Syntax),
            (b"%~a*", Syntax),
            (b"%X~a*", Syntax),
            (b"%RX~a*", Syntax),
            (b"%R", Syntax),
            (b"%R&a*", Syntax),
            (b"&a*", Syntax),
            (b"~\xff*", NotText),
        ] {
            assert_eq!(Pattern::parse(text, b'~'), Err(wrong), "{}", text.escape_ascii());
        }
        assert_eq!(Pattern::parse(b"%R&a*", b'&'), Err(Syntax));
    }

    #[test]
    fn reading_and_writing_are_told_apart() {
        let mut reach = Reach::default();
        assert!(!reach.may_read(b"a") && !reach.may_write(b"a") && !reach.is_everything());
        for text in [b"%R~a*", b"%W~b*"] {
            reach.add(Pattern::parse(text, b'~').unwrap());
        }
        assert!(reach.may_read(b"ab") && !reach.may_write(b"ab"));
        assert!(!reach.may_read(b"b") && reach.may_write(b"b") && !reach.may_read(b""));
        reach.add(Pattern::parse(b"%W~a*", b'~').unwrap());
        assert_eq!(reach.shown(b'~').collect::<Vec<_>>(), [&b"~a*"[..], b"%W~b*"]);
        assert!(
            Reach::everything().is_everything()
                && Reach::of_prefixes([].into_iter(), true, true).is_everything()
        );
        assert!(!Reach::of_prefixes([].into_iter(), true, false).is_everything());
        assert_eq!(Reach::of_prefixes([].into_iter(), false, false), Reach::default());
    }
}
