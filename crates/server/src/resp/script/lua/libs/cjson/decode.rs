//! Converts JSON to Lua values.

use std::sync::atomic::Ordering;

use mlua::{LightUserData, Lua, Value};

use super::super::{ITEM_STEPS, charge};
use super::{Choices, DEPTH_MAX, error};
use crate::resp::script::lua::errors::Raised;
use crate::service::scripts::control::Reins;

pub(super) fn decoded(lua: &Lua, reins: &Reins, choices: &Choices, text: &[u8]) -> mlua::Result<Value> {
    if text.len() >= 2 && (text[0] == 0 || text[1] == 0) {
        return Err(error(lua, "JSON parser does not support UTF-16 or UTF-32".to_owned()));
    }
    let mut decoder = Decoder { lua, reins, choices, text, at: 0, depth: 0 };
    let first = decoder.next()?;
    let value = decoder.value(first)?;
    match decoder.next()? {
        Token { kind: TokenKind::End, .. } => Ok(value),
        other => Err(decoder.unexpected("the end", &other)),
    }
}

/// The kinds of tokens.
enum TokenKind {
    ObjectBegin,
    ObjectEnd,
    ArrayBegin,
    ArrayEnd,
    String(Vec<u8>),
    Number(f64),
    Boolean(bool),
    Null,
    Colon,
    Comma,
    End,
    Wrong(&'static str),
}

struct Token {
    kind: TokenKind,
    at: usize,
}

struct Decoder<'d> {
    lua: &'d Lua,
    reins: &'d Reins,
    choices: &'d Choices,
    text: &'d [u8],
    at: usize,
    depth: u32,
}

impl Decoder<'_> {
    fn unexpected(&self, wanted: &str, found: &Token) -> mlua::Error {
        let name = match found.kind {
            TokenKind::ObjectBegin => "T_OBJ_BEGIN",
            TokenKind::ObjectEnd => "T_OBJ_END",
            TokenKind::ArrayBegin => "T_ARR_BEGIN",
            TokenKind::ArrayEnd => "T_ARR_END",
            TokenKind::String(_) => "T_STRING",
            TokenKind::Number(_) => "T_NUMBER",
            TokenKind::Boolean(_) => "T_BOOLEAN",
            TokenKind::Null => "T_NULL",
            TokenKind::Colon => "T_COLON",
            TokenKind::Comma => "T_COMMA",
            TokenKind::End => "T_END",
            TokenKind::Wrong(what) => what,
        };
        error(self.lua, format!("Expected {wanted} but found {name} at character {}", found.at + 1))
    }

    fn peek(&self, ahead: usize) -> u8 {
        self.text.get(self.at + ahead).copied().unwrap_or(0)
    }

    /// Returns the next token, and charges the script for its bytes and the blanks before it.
    fn next(&mut self) -> mlua::Result<Token> {
        let from = self.at;
        let token = self.read();
        charge(self.reins, self.at - from + ITEM_STEPS)?;
        Ok(token)
    }

    fn read(&mut self) -> Token {
        while matches!(self.peek(0), b' ' | b'\t' | b'\n' | b'\r') {
            self.at += 1;
        }
        let at = self.at;
        let single = match self.peek(0) {
            b'{' => TokenKind::ObjectBegin,
            b'}' => TokenKind::ObjectEnd,
            b'[' => TokenKind::ArrayBegin,
            b']' => TokenKind::ArrayEnd,
            b',' => TokenKind::Comma,
            b':' => TokenKind::Colon,
            0 => return Token { kind: TokenKind::End, at },
            _ => return self.long(),
        };
        self.at += 1;
        Token { kind: single, at }
    }

    /// Returns a token of several characters.
    fn long(&mut self) -> Token {
        let at = self.at;
        let rest = &self.text[at..];
        let decodes_invalid = self.choices.decodes_invalid.load(Ordering::Relaxed);
        match rest[0] {
            b'"' => return self.string(),
            b'-' | b'0'..=b'9' if !decodes_invalid && is_invalid_number(rest) => {
                return Token { kind: TokenKind::Wrong("invalid number"), at };
            }
            b'-' | b'0'..=b'9' => return self.number(),
            _ => {}
        }
        let words: [(&[u8], TokenKind); 3] = [
            (b"true", TokenKind::Boolean(true)),
            (b"false", TokenKind::Boolean(false)),
            (b"null", TokenKind::Null),
        ];
        for (word, kind) in words {
            if rest.starts_with(word) {
                self.at += word.len();
                return Token { kind, at };
            }
        }
        if decodes_invalid && is_invalid_number(rest) {
            return self.number();
        }
        Token { kind: TokenKind::Wrong("invalid token"), at }
    }

    fn number(&mut self) -> Token {
        let at = self.at;
        match number_of(&self.text[at..]) {
            Some((number, length)) => {
                self.at += length;
                Token { kind: TokenKind::Number(number), at }
            }
            None => Token { kind: TokenKind::Wrong("invalid number"), at },
        }
    }

    fn string(&mut self) -> Token {
        let at = self.at;
        self.at += 1;
        let mut bytes = Vec::new();
        loop {
            let plain = &self.text[self.at..];
            let end = plain.iter().position(|byte| matches!(byte, b'"' | b'\\' | 0)).unwrap_or(plain.len());
            bytes.extend_from_slice(&plain[..end]);
            self.at += end;
            match self.peek(0) {
                b'"' => break,
                b'\\' => {
                    let escape = match self.peek(1) {
                        b'b' => 0x08,
                        b't' => b'\t',
                        b'n' => b'\n',
                        b'f' => 0x0c,
                        b'r' => b'\r',
                        same @ (b'"' | b'\\' | b'/') => same,
                        b'u' => match self.unicode() {
                            Some((character, length)) => {
                                bytes.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
                                self.at += length;
                                continue;
                            }
                            None => {
                                return Token {
                                    kind: TokenKind::Wrong("invalid unicode escape code"),
                                    at: self.at,
                                };
                            }
                        },
                        _ => return Token { kind: TokenKind::Wrong("invalid escape code"), at: self.at },
                    };
                    bytes.push(escape);
                    self.at += 2;
                }
                _ => return Token { kind: TokenKind::Wrong("unexpected end of string"), at: self.at },
            }
        }
        self.at += 1;
        Token { kind: TokenKind::String(bytes), at }
    }

    /// Returns the character of a `\uXXXX` escape or surrogate pair, and the length of the escape in bytes.
    fn unicode(&self) -> Option<(char, usize)> {
        let unit = |at: usize| {
            let digits = self.text.get(self.at + at..self.at + at + 6)?.strip_prefix(b"\\u")?;
            let is_hex = digits.iter().all(u8::is_ascii_hexdigit);
            u32::from_str_radix(std::str::from_utf8(digits).ok().filter(|_| is_hex)?, 16).ok()
        };
        let first = unit(0)?;
        if !(0xD800..0xDC00).contains(&first) {
            return char::from_u32(first).map(|character| (character, 6));
        }
        let second = unit(6).filter(|second| (0xDC00..0xE000).contains(second))?;
        char::from_u32(0x10000 + ((first - 0xD800) << 10) + (second - 0xDC00))
            .map(|character| (character, 12))
    }

    fn value(&mut self, token: Token) -> mlua::Result<Value> {
        match token.kind {
            TokenKind::String(text) => Ok(Value::String(self.lua.create_string(text)?)),
            TokenKind::Number(number) => Ok(Value::Number(number)),
            TokenKind::Boolean(value) => Ok(Value::Boolean(value)),
            TokenKind::Null => Ok(Value::LightUserData(LightUserData(std::ptr::null_mut()))),
            TokenKind::ObjectBegin => self.nested(Decoder::object),
            TokenKind::ArrayBegin => self.nested(Decoder::array),
            _ => Err(self.unexpected("value", &token)),
        }
    }

    fn nested(&mut self, inner: fn(&mut Self) -> mlua::Result<Value>) -> mlua::Result<Value> {
        self.reins.check().map_err(Raised::Stop)?;
        self.depth += 1;
        if self.depth > self.choices.decode_depth.load(Ordering::Relaxed).min(DEPTH_MAX) {
            let (depth, at) = (self.depth, self.at);
            let why = format!("Found too many nested data structures ({depth}) at character {at}");
            return Err(error(self.lua, why));
        }
        let value = inner(self)?;
        self.depth -= 1;
        Ok(value)
    }

    fn object(&mut self) -> mlua::Result<Value> {
        let table = self.lua.create_table()?;
        let mut token = self.next()?;
        if matches!(token.kind, TokenKind::ObjectEnd) {
            return Ok(Value::Table(table));
        }
        loop {
            let TokenKind::String(key) = token.kind else {
                return Err(self.unexpected("object key string", &token));
            };
            let colon = self.next()?;
            if !matches!(colon.kind, TokenKind::Colon) {
                return Err(self.unexpected("colon", &colon));
            }
            let token_of_value = self.next()?;
            let value = self.value(token_of_value)?;
            table.raw_set(self.lua.create_string(key)?, value)?;
            token = self.next()?;
            match token.kind {
                TokenKind::ObjectEnd => return Ok(Value::Table(table)),
                TokenKind::Comma => token = self.next()?,
                _ => return Err(self.unexpected("comma or object end", &token)),
            }
        }
    }

    fn array(&mut self) -> mlua::Result<Value> {
        let table = self.lua.create_table()?;
        let mut token = self.next()?;
        if matches!(token.kind, TokenKind::ArrayEnd) {
            return Ok(Value::Table(table));
        }
        for index in 1.. {
            let value = self.value(token)?;
            table.raw_set(index, value)?;
            token = self.next()?;
            match token.kind {
                TokenKind::ArrayEnd => break,
                TokenKind::Comma => token = self.next()?,
                _ => return Err(self.unexpected("comma or array end", &token)),
            }
        }
        Ok(Value::Table(table))
    }
}

/// Returns true if a text begins with a number that JSON does not allow: hexadecimal, with leading zeros, infinite,
/// or NaN.
fn is_invalid_number(text: &[u8]) -> bool {
    let at = |index: usize| text.get(index).copied().unwrap_or(0);
    if at(0) == b'+' {
        return true;
    }
    let text = text.strip_prefix(b"-").unwrap_or(text);
    let at = |index: usize| text.get(index).copied().unwrap_or(0);
    if at(0) == b'0' {
        return at(1).eq_ignore_ascii_case(&b'x') || at(1).is_ascii_digit();
    }
    at(0) > b'9'
        && text.get(..3).is_some_and(|word| [b"inf", b"nan"].iter().any(|of| word.eq_ignore_ascii_case(*of)))
}

/// Returns the number at the beginning of a text, parsed like `strtod`, and its length.
fn number_of(text: &[u8]) -> Option<(f64, usize)> {
    let (sign, start) = match text.first()? {
        b'-' => (-1.0, 1),
        b'+' => (1.0, 1),
        _ => (1.0, 0),
    };
    let rest = &text[start..];
    let lower = rest.get(..rest.len().min(8)).unwrap_or_default().to_ascii_lowercase();
    for (word, number) in [("infinity", f64::INFINITY), ("inf", f64::INFINITY), ("nan", f64::NAN)] {
        if lower.starts_with(word.as_bytes()) {
            return Some((sign * number, start + word.len()));
        }
    }
    let digits =
        |from: usize| rest[from.min(rest.len())..].iter().take_while(|byte| byte.is_ascii_digit()).count();
    if lower.starts_with(b"0x") {
        let hex = rest[2..].iter().take_while(|byte| byte.is_ascii_hexdigit()).count();
        if hex > 0 {
            let value = rest[2..2 + hex].iter().fold(0.0, |value, byte| {
                value * 16.0 + f64::from(char::from(*byte).to_digit(16).unwrap_or(0))
            });
            return Some((sign * value, start + 2 + hex));
        }
    }
    let mut end = digits(0);
    let mut some = end > 0;
    if rest.get(end) == Some(&b'.') {
        let fraction = digits(end + 1);
        if some || fraction > 0 {
            some = true;
            end += 1 + fraction;
        }
    }
    if !some {
        return None;
    }
    if rest.get(end).is_some_and(|byte| byte.eq_ignore_ascii_case(&b'e')) {
        let signed = usize::from(matches!(rest.get(end + 1), Some(b'+' | b'-')));
        let exponent = digits(end + 1 + signed);
        if exponent > 0 {
            end += 1 + signed + exponent;
        }
    }
    let number: f64 = std::str::from_utf8(&rest[..end]).ok()?.parse().ok()?;
    Some((sign * number, start + end))
}
