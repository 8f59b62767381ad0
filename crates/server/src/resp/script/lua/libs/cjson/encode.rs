//! Converts Lua values to JSON.

use std::sync::atomic::Ordering;

use mlua::{Lua, Table, Value};

use super::{Choices, DEPTH_MAX, error};
use crate::resp::script::lua::errors::Raised;
use crate::resp::script::lua::libs::{ITEM_STEPS, Output, charge};
use crate::resp::script::lua::number::{number_in, spelled};
use crate::service::scripts::control::Reins;

pub(super) fn encoded(lua: &Lua, reins: &Reins, choices: &Choices, value: &Value) -> mlua::Result<Vec<u8>> {
    let mut encoder = Encoder { lua, reins, choices, output: Output::new(reins) };
    encoder.value(value, 0)?;
    Ok(encoder.output.bytes)
}

struct Encoder<'e> {
    lua: &'e Lua,
    reins: &'e Reins,
    choices: &'e Choices,
    output: Output<'e>,
}

impl Encoder<'_> {
    fn refused(&self, what: &str, why: &str) -> mlua::Error {
        error(self.lua, format!("Cannot serialise {what}: {why}"))
    }

    fn value(&mut self, value: &Value, depth: u32) -> mlua::Result<()> {
        charge(self.reins, ITEM_STEPS)?;
        match value {
            Value::String(text) => self.string(&text.as_bytes()),
            Value::Integer(number) => self.number(*number as f64),
            Value::Number(number) => self.number(*number),
            Value::Boolean(true) => self.output.put(b"true"),
            Value::Boolean(false) => self.output.put(b"false"),
            Value::Table(table) => self.table(table, depth + 1),
            Value::Nil => self.output.put(b"null"),
            Value::LightUserData(data) if data.0.is_null() => self.output.put(b"null"),
            other => Err(self.refused(other.type_name(), "type not supported")),
        }
    }

    fn number(&mut self, number: f64) -> mlua::Result<()> {
        if !number.is_finite() {
            let text = match number {
                _ if self.choices.encodes_invalid.load(Ordering::Relaxed) == 0 => {
                    return Err(self.refused("number", "must not be NaN or Inf"));
                }
                _ if self.choices.encodes_invalid.load(Ordering::Relaxed) == 2 => "null",
                _ if number.is_nan() => "nan",
                _ if number < 0.0 => "-inf",
                _ => "inf",
            };
            return self.output.put(text.as_bytes());
        }
        let digits = self.choices.digits.load(Ordering::Relaxed) as usize;
        self.output.put(spelled(number, digits).as_bytes())
    }

    fn string(&mut self, text: &[u8]) -> mlua::Result<()> {
        charge(self.reins, text.len())?;
        self.output.put(b"\"")?;
        let mut plain = 0;
        for (at, &byte) in text.iter().enumerate() {
            let escape: &[u8] = match byte {
                b'"' => b"\\\"",
                b'\\' => b"\\\\",
                b'/' => b"\\/",
                0x08 => b"\\b",
                b'\t' => b"\\t",
                b'\n' => b"\\n",
                0x0c => b"\\f",
                b'\r' => b"\\r",
                0..0x20 | 0x7f => &format!("\\u{byte:04x}").into_bytes(),
                _ => continue,
            };
            self.output.put(&text[plain..at])?;
            self.output.put(escape)?;
            plain = at + 1;
        }
        self.output.put(&text[plain..])?;
        self.output.put(b"\"")
    }

    fn table(&mut self, table: &Table, depth: u32) -> mlua::Result<()> {
        self.reins.check().map_err(Raised::Stop)?;
        if depth > self.choices.encode_depth.load(Ordering::Relaxed).min(DEPTH_MAX) {
            return Err(error(self.lua, format!("Cannot serialise, excessive nesting ({depth})")));
        }
        match self.length(table)? {
            Some(length) if length > 0 => self.array(table, length, depth),
            _ => self.object(table, depth),
        }
    }

    /// Returns the length of a table that is an array, or `None` for any other table.
    fn length(&self, table: &Table) -> mlua::Result<Option<u64>> {
        let (mut most, mut count) = (0, 0);
        for pair in table.pairs::<Value, Value>() {
            match number_in(&pair?.0) {
                Some(index) if index >= 1.0 && index.fract() == 0.0 => most = most.max(index as u64),
                _ => return Ok(None),
            }
            count += 1;
            charge(self.reins, ITEM_STEPS)?;
        }
        let ratio = u64::from(self.choices.sparse_ratio.load(Ordering::Relaxed));
        let safe = u64::from(self.choices.sparse_safe.load(Ordering::Relaxed));
        if ratio > 0 && most > count * ratio && most > safe {
            if !self.choices.converts_sparse.load(Ordering::Relaxed) {
                return Err(self.refused("table", "excessively sparse array"));
            }
            return Ok(None);
        }
        Ok(Some(most))
    }

    fn array(&mut self, table: &Table, length: u64, depth: u32) -> mlua::Result<()> {
        self.output.put(b"[")?;
        for index in 1..=length {
            if index > 1 {
                self.output.put(b",")?;
            }
            let value = table.raw_get(index)?;
            self.value(&value, depth)?;
        }
        self.output.put(b"]")
    }

    fn object(&mut self, table: &Table, depth: u32) -> mlua::Result<()> {
        self.output.put(b"{")?;
        let mut is_first = true;
        for pair in table.pairs::<Value, Value>() {
            let (key, value) = pair?;
            if !std::mem::take(&mut is_first) {
                self.output.put(b",")?;
            }
            match &key {
                Value::String(text) => self.string(&text.as_bytes())?,
                Value::Number(_) | Value::Integer(_) => {
                    self.output.put(b"\"")?;
                    self.number(number_in(&key).unwrap_or(0.0))?;
                    self.output.put(b"\"")?;
                }
                other => {
                    return Err(self.refused(other.type_name(), "table key must be a number or string"));
                }
            }
            self.output.put(b":")?;
            self.value(&value, depth)?;
        }
        self.output.put(b"}")
    }
}
