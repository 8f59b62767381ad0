//! Lua 5.1 patterns, matched within a script's time.
//!
//! Lua's own matcher can run for hours on short strings without a way to stop it, and its recursion is bounded only
//! by the pattern's length. This matcher checks the reins regularly, and bounds its recursion.

use mlua::Lua;

use crate::resp::script::lua::errors::{Raised, text};
use crate::service::scripts::control::Reins;

const ESCAPE: u8 = b'%';

/// Limit of the captures of a pattern.
const CAPTURES_MAX: usize = 32;

/// Limit of the recursion depth.
const DEPTH_MAX: usize = 200;

/// The extent of a capture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Extent {
    Open,
    /// A position capture, without bytes.
    Position,
    Bytes(usize),
}

/// A match in progress.
pub(super) struct Matcher<'t> {
    lua: &'t Lua,
    reins: &'t Reins,
    source: &'t [u8],
    pattern: &'t [u8],
    captures: [(usize, Extent); CAPTURES_MAX],
    level: usize,
    depth: usize,
}

type Outcome<T> = mlua::Result<T>;

impl<'t> Matcher<'t> {
    pub(super) fn new(lua: &'t Lua, reins: &'t Reins, source: &'t [u8], pattern: &'t [u8]) -> Matcher<'t> {
        // A pattern ends at its first zero byte, like a C string.
        let end = memchr::memchr(0, pattern).unwrap_or(pattern.len());
        let captures = [(0, Extent::Open); CAPTURES_MAX];
        Matcher { lua, reins, source, pattern: &pattern[..end], captures, level: 0, depth: 0 }
    }

    /// Matches the pattern from byte `pattern` on at position `source`. Returns the end of the match.
    pub(super) fn at(&mut self, source: usize, pattern: usize) -> Outcome<Option<usize>> {
        (self.level, self.depth) = (0, 0);
        self.run(source, pattern)
    }

    /// Returns the captures, or the whole match if there are none.
    pub(super) fn captures(&self, start: usize, end: usize, whole: bool) -> Outcome<Vec<(usize, Extent)>> {
        if self.level == 0 && whole {
            return Ok(vec![(start, Extent::Bytes(end - start))]);
        }
        let captures = self.captures[..self.level].to_vec();
        match captures.iter().any(|(_, extent)| *extent == Extent::Open) {
            true => Err(self.error("unfinished capture")),
            false => Ok(captures),
        }
    }

    /// Returns a capture by its number in a replacement.
    pub(super) fn capture(&self, index: usize, start: usize, end: usize) -> Outcome<(usize, Extent)> {
        match self.captures(start, end, true)?.get(index) {
            Some(capture) => Ok(*capture),
            None => Err(self.error("invalid capture index")),
        }
    }

    pub(super) fn error(&self, what: &str) -> mlua::Error {
        text(self.lua, what)
    }

    /// Returns a byte of the pattern, zero beyond its end.
    fn p(&self, at: usize) -> u8 {
        self.pattern.get(at).copied().unwrap_or(0)
    }

    fn s(&self, at: usize) -> u8 {
        self.source.get(at).copied().unwrap_or(0)
    }

    fn step(&self) -> Outcome<()> {
        self.steps(1)
    }

    fn steps(&self, steps: usize) -> Outcome<()> {
        Ok(self.reins.work(steps).map_err(Raised::Stop)?)
    }

    fn run(&mut self, s: usize, p: usize) -> Outcome<Option<usize>> {
        if self.depth == DEPTH_MAX {
            return Err(self.error("pattern too complex"));
        }
        self.depth += 1;
        let outcome = self.items(s, p);
        self.depth -= 1;
        outcome
    }

    /// Matches the items of the pattern one after the other.
    fn items(&mut self, mut s: usize, mut p: usize) -> Outcome<Option<usize>> {
        loop {
            self.step()?;
            match (self.p(p), self.p(p + 1)) {
                (0, _) => return Ok(Some(s)),
                (b'(', b')') => return self.open(s, p + 2, Extent::Position),
                (b'(', _) => return self.open(s, p + 1, Extent::Open),
                (b')', _) => return self.close(s, p + 1),
                (b'$', 0) => return Ok((s == self.source.len()).then_some(s)),
                (ESCAPE, b'b') => match self.balance(s, p + 2)? {
                    Some(end) => (s, p) = (end, p + 4),
                    None => return Ok(None),
                },
                (ESCAPE, b'f') => {
                    p += 2;
                    if self.p(p) != b'[' {
                        return Err(self.error("missing '[' after '%f' in pattern"));
                    }
                    let end = self.class_end(p)?;
                    let before = if s == 0 { 0 } else { self.s(s - 1) };
                    if self.in_set(before, p, end - 1)? || !self.in_set(self.s(s), p, end - 1)? {
                        return Ok(None);
                    }
                    p = end;
                }
                (ESCAPE, digit @ b'0'..=b'9') => match self.again(s, digit)? {
                    Some(end) => (s, p) = (end, p + 2),
                    None => return Ok(None),
                },
                _ => {
                    let end = self.class_end(p)?;
                    let fits = s < self.source.len() && self.fits(self.s(s), p, end)?;
                    match self.p(end) {
                        b'?' => {
                            if fits && let Some(found) = self.run(s + 1, end + 1)? {
                                return Ok(Some(found));
                            }
                            p = end + 1;
                        }
                        b'*' => return self.most(s, p, end),
                        b'+' if fits => return self.most(s + 1, p, end),
                        b'-' => return self.least(s, p, end),
                        _ if fits && self.p(end) != b'+' => (s, p) = (s + 1, end),
                        _ => return Ok(None),
                    }
                }
            }
        }
    }

    /// Returns the end of the class that begins at `p`. A set may be as long as a pattern, and is scanned for each
    /// byte of the source, so the steps are charged.
    fn class_end(&self, p: usize) -> Outcome<usize> {
        let end = self.find_class_end(p);
        self.steps(end.as_ref().map_or(self.pattern.len(), |end| *end).saturating_sub(p))?;
        end
    }

    fn find_class_end(&self, mut p: usize) -> Outcome<usize> {
        let first = self.p(p);
        p += 1;
        match first {
            ESCAPE if self.p(p) == 0 => Err(self.error("malformed pattern (ends with '%')")),
            ESCAPE => Ok(p + 1),
            b'[' => {
                p += usize::from(self.p(p) == b'^');
                loop {
                    if self.p(p) == 0 {
                        return Err(self.error("malformed pattern (missing ']')"));
                    }
                    p += if self.p(p) == ESCAPE && self.p(p + 1) != 0 { 2 } else { 1 };
                    if self.p(p) == b']' {
                        return Ok(p + 1);
                    }
                }
            }
            _ => Ok(p),
        }
    }

    fn fits(&self, byte: u8, p: usize, end: usize) -> Outcome<bool> {
        Ok(match self.p(p) {
            b'.' => true,
            ESCAPE => in_class(byte, self.p(p + 1)),
            b'[' => self.in_set(byte, p, end - 1)?,
            other => other == byte,
        })
    }

    /// Returns true if a byte is in the set between two brackets.
    fn in_set(&self, byte: u8, p: usize, end: usize) -> Outcome<bool> {
        let (is_in, at) = self.find_in_set(byte, p, end);
        self.steps(at.saturating_sub(p))?;
        Ok(is_in)
    }

    /// Like [`in_set`](Self::in_set). Also returns the position at which the scan of the set ended.
    fn find_in_set(&self, byte: u8, mut p: usize, end: usize) -> (bool, usize) {
        let sense = self.p(p + 1) != b'^';
        p += usize::from(!sense);
        loop {
            p += 1;
            if p >= end {
                return (!sense, p);
            }
            if self.p(p) == ESCAPE {
                p += 1;
                if in_class(byte, self.p(p)) {
                    return (sense, p);
                }
            } else if self.p(p + 1) == b'-' && p + 2 < end {
                p += 2;
                if (self.p(p - 2)..=self.p(p)).contains(&byte) {
                    return (sense, p);
                }
            } else if self.p(p) == byte {
                return (sense, p);
            }
        }
    }

    fn balance(&mut self, s: usize, p: usize) -> Outcome<Option<usize>> {
        let (open, close) = (self.p(p), self.p(p + 1));
        if open == 0 || close == 0 {
            return Err(self.error("unbalanced pattern"));
        }
        if self.s(s) != open || s >= self.source.len() {
            return Ok(None);
        }
        let mut depth = 1;
        for at in s + 1..self.source.len() {
            self.step()?;
            if self.source[at] == close {
                depth -= 1;
                if depth == 0 {
                    return Ok(Some(at + 1));
                }
            } else if self.source[at] == open {
                depth += 1;
            }
        }
        Ok(None)
    }

    fn most(&mut self, s: usize, p: usize, end: usize) -> Outcome<Option<usize>> {
        let mut count = 0;
        while s + count < self.source.len() && self.fits(self.s(s + count), p, end)? {
            self.step()?;
            count += 1;
        }
        loop {
            if let Some(found) = self.run(s + count, end + 1)? {
                return Ok(Some(found));
            }
            let Some(fewer) = count.checked_sub(1) else { return Ok(None) };
            count = fewer;
        }
    }

    fn least(&mut self, mut s: usize, p: usize, end: usize) -> Outcome<Option<usize>> {
        loop {
            if let Some(found) = self.run(s, end + 1)? {
                return Ok(Some(found));
            }
            if s >= self.source.len() || !self.fits(self.s(s), p, end)? {
                return Ok(None);
            }
            s += 1;
        }
    }

    fn open(&mut self, s: usize, p: usize, extent: Extent) -> Outcome<Option<usize>> {
        if self.level == CAPTURES_MAX {
            return Err(self.error("too many captures"));
        }
        self.captures[self.level] = (s, extent);
        self.level += 1;
        let found = self.run(s, p)?;
        self.level -= usize::from(found.is_none());
        Ok(found)
    }

    fn close(&mut self, s: usize, p: usize) -> Outcome<Option<usize>> {
        let open = self.captures[..self.level].iter().rposition(|(_, extent)| *extent == Extent::Open);
        let Some(open) = open else { return Err(self.error("invalid pattern capture")) };
        self.captures[open].1 = Extent::Bytes(s - self.captures[open].0);
        let found = self.run(s, p)?;
        if found.is_none() {
            self.captures[open].1 = Extent::Open;
        }
        Ok(found)
    }

    /// Matches the bytes of an earlier capture again (`%1`).
    fn again(&mut self, s: usize, digit: u8) -> Outcome<Option<usize>> {
        let index = usize::from(digit).checked_sub(usize::from(b'1'));
        let captures = &self.captures[..self.level];
        let Some(&(start, extent)) = index.and_then(|index| captures.get(index)) else {
            return Err(self.error("invalid capture index"));
        };
        let bytes = match extent {
            Extent::Open => return Err(self.error("invalid capture index")),
            // Never matches: Lua treats the capture as longer than any text.
            Extent::Position => return Ok(None),
            Extent::Bytes(bytes) => bytes,
        };
        let source = self.source;
        self.steps(bytes)?;
        Ok(source[s..].starts_with(&source[start..start + bytes]).then_some(s + bytes))
    }
}

fn in_class(byte: u8, class: u8) -> bool {
    let is = match class.to_ascii_lowercase() {
        b'a' => byte.is_ascii_alphabetic(),
        b'c' => byte.is_ascii_control(),
        b'd' => byte.is_ascii_digit(),
        b'l' => byte.is_ascii_lowercase(),
        b'p' => byte.is_ascii_punctuation(),
        b's' => byte.is_ascii_whitespace() || byte == 0x0b,
        b'u' => byte.is_ascii_uppercase(),
        b'w' => byte.is_ascii_alphanumeric(),
        b'x' => byte.is_ascii_hexdigit(),
        b'z' => byte == 0,
        _ => return class == byte,
    };
    is != class.is_ascii_uppercase()
}
