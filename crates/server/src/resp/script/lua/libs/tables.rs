//! Functions of the table `table` that could run for long.

use mlua::{Lua, Table, Value};

use super::charge_calls;
use crate::resp::script::lua::errors::{PRELUDE_PLACE, Raised, text};
use crate::service::scripts::control::Reins;
use crate::service::scripts::interpreter::Held;

pub(in crate::resp::script::lua) fn install(lua: &Lua, held: &Held, tables: &Table) -> mlua::Result<()> {
    charge_calls(lua, held, tables, "concat")
}

/// Raises an error of Lua's own `sort` as if the script had called it: with the place in the script for an error of
/// `sort`, and without one if two values cannot be compared.
pub(in crate::resp::script::lua) fn sort_failed(lua: &Lua, _: &Reins, raised: Value) -> mlua::Result<()> {
    let Some(why) = raised.as_string().map(|why| why.as_bytes().to_vec()) else { return Ok(()) };
    if why.starts_with(PRELUDE_PLACE) {
        let from = memchr::memchr(b' ', &why).map_or(0, |blank| blank + 1);
        return Err(Raised::Text(why[from..].to_vec()).into());
    }
    if let Some(why) = why.strip_prefix(b"bad argument #1 to '?' (").and_then(|why| why.strip_suffix(b")")) {
        return Err(text(lua, [b"bad argument #1 to 'sort' (", why, b")"].concat()));
    }
    match why == b"invalid order function for sorting" {
        true => Err(text(lua, why)),
        false => Ok(()),
    }
}
