//! `tonumber`, which may get megabytes of digits.

use mlua::{Function, Lua, MultiValue, Table, Value};

use super::{charge, renamed, string_bytes};
use crate::resp::script::lua::errors::bad_argument;
use crate::service::scripts::interpreter::Held;

const NAME: &str = "tonumber";

/// Replaces `tonumber` in the table of globals.
pub(in crate::resp::script::lua) fn install(lua: &Lua, held: &Held, globals: &Table) -> mlua::Result<()> {
    let (held, of_lua) = (held.clone(), globals.raw_get::<Function>(NAME)?);
    let to_number = move |lua: &Lua, arguments: MultiValue| match arguments.front() {
        _ if arguments.get(1).is_some_and(|base| !base.is_nil()) => {
            charge(&held.get(), string_bytes(&arguments))?;
            of_lua.call::<Value>(arguments).map_err(|error| renamed(lua, error, NAME))
        }
        None => Err(bad_argument(lua, 1, NAME, "value expected")),
        Some(Value::String(digits)) => {
            charge(&held.get(), digits.as_bytes().len())?;
            let number = lua.coerce_number(Value::String(digits.clone()))?;
            Ok(number.map_or(Value::Nil, Value::Number))
        }
        Some(number @ (Value::Integer(_) | Value::Number(_))) => Ok(number.clone()),
        Some(_) => Ok(Value::Nil),
    };
    globals.raw_set(NAME, lua.create_function(to_number)?)
}
