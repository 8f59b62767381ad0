//! `math.random`, with the same numbers as Redis for a given seed.

use std::sync::Arc;

use mlua::{Lua, Table, Value, Variadic};

use super::{add, number};
use crate::resp::script::lua::errors::text;
use crate::service::scripts::control::Reins;
use crate::service::scripts::interpreter::Held;

const RANDOM_MAX: u32 = i32::MAX as u32;

pub(in crate::resp::script::lua) fn install(lua: &Lua, held: &Held, math: &Table) -> mlua::Result<()> {
    add(lua, held, math, "random", random)?;
    add(lua, held, math, "randomseed", seed)
}

fn random(lua: &Lua, reins: &Arc<Reins>, bounds: Variadic<Value>) -> mlua::Result<f64> {
    let part = f64::from(reins.next_random() % RANDOM_MAX) / f64::from(RANDOM_MAX);
    let bound =
        |index: usize| -> mlua::Result<f64> { Ok(number(lua, &bounds[index], index + 1, "random")?.trunc()) };
    match bounds.len() {
        0 => Ok(part),
        1 => {
            let upper = bound(0)?;
            match upper >= 1.0 {
                true => Ok((part * upper).floor() + 1.0),
                false => Err(text(lua, "bad argument #1 to 'random' (interval is empty)")),
            }
        }
        2 => {
            let (lower, upper): (f64, f64) = (bound(0)?, bound(1)?);
            match lower <= upper {
                true => Ok((part * (upper - lower + 1.0)).floor() + lower),
                false => Err(text(lua, "bad argument #2 to 'random' (interval is empty)")),
            }
        }
        _ => Err(text(lua, "wrong number of arguments")),
    }
}

fn seed(lua: &Lua, reins: &Arc<Reins>, seed: Value) -> mlua::Result<()> {
    reins.seed(number(lua, &seed, 1, "randomseed")? as i64 as u32);
    Ok(())
}
