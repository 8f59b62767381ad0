//! Libraries for scripts: those of Redis, and replacements of Lua functions that could run forever or crash.

use std::sync::Arc;

use mlua::{FromLuaMulti, Function, IntoLuaMulti, Lua, LuaString, MultiValue, Table, Value};

use super::errors::{NO_MEMORY, Raised, bad_argument, expected, raised, text};
use super::number::{number_in, spelled};
use crate::service::scripts::control::Reins;
use crate::service::scripts::interpreter::Held;

pub(super) mod bit;
pub(super) mod cjson;
pub(super) mod cmsgpack;
pub(super) mod numbers;
mod pattern;
pub(super) mod random;
pub(super) mod redis;
pub(super) mod strings;
pub(super) mod structs;
pub(super) mod tables;

/// Adds a function that can check the reins.
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

/// Limit of the values that a Lua function can return.
const VALUES_MAX: usize = 7900;

fn no_memory() -> mlua::Error {
    Raised::Text(NO_MEMORY.to_vec()).into()
}

/// Steps charged for a value or a format item, beside its bytes.
const ITEM_STEPS: usize = 16;

/// Charges `steps` to the script. Fails if the script is stopped.
fn charge(reins: &Reins, steps: usize) -> mlua::Result<()> {
    Ok(reins.work(steps).map_err(Raised::Stop)?)
}

/// Replaces a Lua function by one that charges the script: before the call for the bytes of all string arguments, and
/// after it for those of all string results. Errors name the function and the place in the script as Lua does.
fn charge_calls(lua: &Lua, held: &Held, table: &Table, name: &'static str) -> mlua::Result<()> {
    let (held, of_lua) = (held.clone(), table.raw_get::<Function>(name)?);
    let charged = lua.create_function(move |lua, arguments: MultiValue| {
        let reins = held.get();
        charge(&reins, string_bytes(&arguments))?;
        let results = of_lua.call::<MultiValue>(arguments).map_err(|error| renamed(lua, error, name))?;
        charge(&reins, string_bytes(&results))?;
        Ok(results)
    })?;
    table.raw_set(name, charged)
}

/// Adds the name of the function and the place in the script to an error that Lua raised in a function called from
/// Rust.
fn renamed(lua: &Lua, error: mlua::Error, name: &str) -> mlua::Error {
    let why = match raised(&error) {
        Raised::Text(why) if why != NO_MEMORY => why,
        _ => return error,
    };
    let why = String::from_utf8_lossy(&why);
    let argument = why.strip_prefix("bad argument #").and_then(|rest| rest.split_once(" to '?' ("));
    let argument = argument.and_then(|(index, rest)| Some((index.parse().ok()?, rest.strip_suffix(')')?)));
    match argument {
        Some((index, why)) => bad_argument(lua, index, name, why),
        None => text(lua, why.as_bytes()),
    }
}

fn string_bytes(values: &MultiValue) -> usize {
    values
        .iter()
        .filter_map(Value::as_string)
        .map(|text| text.as_bytes().len())
        .fold(0, usize::saturating_add)
}

/// A buffer outside the interpreter's memory, limited to the script's string limit.
struct Output<'r> {
    bytes: Vec<u8>,
    most: usize,
    reins: &'r Reins,
}

impl<'r> Output<'r> {
    fn new(reins: &'r Reins) -> Output<'r> {
        Output { bytes: Vec::new(), most: reins.string_bytes_max(), reins }
    }

    fn put(&mut self, bytes: &[u8]) -> mlua::Result<()> {
        if self.bytes.len() + bytes.len() > self.most {
            return Err(no_memory());
        }
        charge(self.reins, bytes.len())?;
        self.bytes.extend_from_slice(bytes);
        Ok(())
    }
}

/// Returns an argument as a string. Like Lua's functions, converts numbers.
fn string(lua: &Lua, value: &Value, index: usize, function: &str) -> mlua::Result<LuaString> {
    match value {
        Value::String(text) => Ok(text.clone()),
        Value::Integer(number) => lua.create_string(spelled(*number as f64, 14)),
        Value::Number(number) => lua.create_string(spelled(*number, 14)),
        other => Err(bad_argument(lua, index, function, &expected("string", other))),
    }
}

/// Returns an argument as a number. Like Lua's functions, converts strings.
fn number(lua: &Lua, value: &Value, index: usize, function: &str) -> mlua::Result<f64> {
    match lua.coerce_number(value.clone())? {
        Some(number) => Ok(number),
        None => Err(bad_argument(lua, index, function, &expected("number", value))),
    }
}

/// Like [`number`], with a default for nil.
fn number_or(lua: &Lua, value: &Value, default: f64, index: usize, function: &str) -> mlua::Result<f64> {
    if value.is_nil() { Ok(default) } else { number(lua, value, index, function) }
}
