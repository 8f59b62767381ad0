//! Libraries that scripts find: those of Redis, and what of Lua's own could run for ever or crash.

use std::sync::Arc;

use mlua::{FromLuaMulti, IntoLuaMulti, Lua, LuaString, Table, Value};

use super::errors::{NO_MEMORY, Raised, bad_argument, expected};
use super::number::{number_in, spelled};
use crate::service::scripts::interpreter::Held;
use crate::service::scripts::reins::Reins;

pub(super) mod bit;
pub(super) mod cjson;
pub(super) mod cmsgpack;
mod pattern;
pub(super) mod random;
pub(super) mod redis;
pub(super) mod strings;
pub(super) mod structs;

/// Adds a function that may ask the reins.
fn add<A, R>(
    lua: &Lua,
    held: &Held,
    table: &Table,
    name: &str,
    function: fn(&Lua, &Arc<Reins>, A) -> mlua::Result<R>,
) -> mlua::Result<()>
where
    A: FromLuaMulti + 'static,
    R: IntoLuaMulti + 'static,
{
    let held = held.clone();
    table.raw_set(name, lua.create_function(move |lua, arguments| function(lua, &held.get(), arguments))?)
}

/// Values that a function of Lua can return.
const VALUES_MAX: usize = 7900;

fn no_memory() -> mlua::Error {
    Raised::Text(NO_MEMORY.to_vec()).into()
}

/// Bytes that a function makes beside the interpreter's memory: not more than a script may have.
struct Output {
    bytes: Vec<u8>,
    most: usize,
}

impl Output {
    fn new(reins: &Reins) -> Output {
        Output { bytes: Vec::new(), most: reins.string_bytes_max() }
    }

    fn put(&mut self, bytes: &[u8]) -> mlua::Result<()> {
        if self.bytes.len() + bytes.len() > self.most {
            return Err(no_memory());
        }
        self.bytes.extend_from_slice(bytes);
        Ok(())
    }
}

/// An argument as a string, as Lua's functions take it: numbers are spelled.
fn string(lua: &Lua, value: &Value, index: usize, function: &str) -> mlua::Result<LuaString> {
    match value {
        Value::String(text) => Ok(text.clone()),
        Value::Integer(number) => lua.create_string(spelled(*number as f64, 14)),
        Value::Number(number) => lua.create_string(spelled(*number, 14)),
        other => Err(bad_argument(lua, index, function, &expected("string", other))),
    }
}

/// An argument as a number, as Lua's functions take it: strings that spell one are.
fn number(lua: &Lua, value: &Value, index: usize, function: &str) -> mlua::Result<f64> {
    match lua.coerce_number(value.clone())? {
        Some(number) => Ok(number),
        None => Err(bad_argument(lua, index, function, &expected("number", value))),
    }
}

/// The same for one that need not be there.
fn number_or(lua: &Lua, value: &Value, default: f64, index: usize, function: &str) -> mlua::Result<f64> {
    if value.is_nil() { Ok(default) } else { number(lua, value, index, function) }
}
