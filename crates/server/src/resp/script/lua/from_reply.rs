//! Converts answers of commands to Lua values.

use mlua::{Lua, Table, Value};

use super::errors::error_table;

/// Returns the answer in `bytes` as the Lua value that Redis would pass to scripts.
pub(in crate::resp) fn value_of(lua: &Lua, bytes: &[u8]) -> mlua::Result<Value> {
    Reader { bytes, at: 0 }.value(lua)
}

/// Returns the text of an error reply.
pub(in crate::resp) fn error_in(bytes: &[u8]) -> Option<&[u8]> {
    bytes.strip_prefix(b"-").and_then(|rest| rest.strip_suffix(b"\r\n"))
}

/// Parses replies of our own server, which are well-formed.
struct Reader<'b> {
    bytes: &'b [u8],
    at: usize,
}

impl<'b> Reader<'b> {
    fn line(&mut self) -> &'b [u8] {
        let rest = &self.bytes[self.at..];
        let end = memchr::memchr(b'\r', rest).expect("every line of an answer has an end");
        self.at += end + 2;
        &rest[..end]
    }

    fn value(&mut self, lua: &Lua) -> mlua::Result<Value> {
        let line = self.line();
        let (kind, rest) = line.split_first().expect("every line of an answer begins with its type");
        let number = || std::str::from_utf8(rest).ok().and_then(|text| text.parse::<i64>().ok()).unwrap_or(0);
        match kind {
            b'+' => one_field(lua, "ok", Value::String(lua.create_string(rest)?)),
            b'-' => error_table(lua, rest),
            b':' => Ok(Value::Number(number() as f64)),
            b'$' | b'*' if number() < 0 => Ok(Value::Boolean(false)),
            b'$' | b'=' => {
                let bytes = &self.bytes[self.at..self.at + number() as usize];
                self.at += bytes.len() + 2;
                if *kind == b'$' {
                    return Ok(Value::String(lua.create_string(bytes)?));
                }
                let table = lua.create_table()?;
                table.raw_set("format", lua.create_string(&bytes[..3])?)?;
                table.raw_set("string", lua.create_string(&bytes[4..])?)?;
                one_field(lua, "verbatim_string", Value::Table(table))
            }
            b'*' => {
                let table = lua.create_table_with_capacity(number() as usize, 0)?;
                for index in 1..=number() {
                    let value = self.value(lua)?;
                    table.raw_set(index, value)?;
                }
                Ok(Value::Table(table))
            }
            b'%' => {
                let table = lua.create_table()?;
                for _ in 0..number() {
                    let key = self.value(lua)?;
                    let value = self.value(lua)?;
                    table.raw_set(key, value)?;
                }
                one_field(lua, "map", Value::Table(table))
            }
            b'~' => {
                let table = lua.create_table()?;
                for _ in 0..number() {
                    table.raw_set(self.value(lua)?, true)?;
                }
                one_field(lua, "set", Value::Table(table))
            }
            _ => Ok(Value::Nil),
        }
    }
}

fn one_field(lua: &Lua, name: &str, value: Value) -> mlua::Result<Value> {
    let table: Table = lua.create_table_with_capacity(0, 1)?;
    table.raw_set(name, value)?;
    Ok(Value::Table(table))
}
