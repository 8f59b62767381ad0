//! `bit`: operations on 32-bit numbers.

use mlua::{Lua, Table, Value, Variadic};

use super::{number, number_or};

/// An operation with its name in scripts.
type Unary = (&'static str, fn(i32) -> i32);
type Fold = (&'static str, fn(i32, i32) -> i32);
type Shift = (&'static str, fn(i32, u32) -> i32);

pub(in crate::resp::script::lua) fn table(lua: &Lua) -> mlua::Result<Table> {
    let bit = lua.create_table()?;
    let unary: [Unary; 3] = [("tobit", |bits| bits), ("bnot", |bits| !bits), ("bswap", i32::swap_bytes)];
    for (name, function) in unary {
        let function = move |lua: &Lua, value: Value| Ok(function(bits(lua, &value, 1, name)?));
        bit.raw_set(name, lua.create_function(function)?)?;
    }
    let folds: [Fold; 3] = [
        ("band", |one, other| one & other),
        ("bor", |one, other| one | other),
        ("bxor", |one, other| one ^ other),
    ];
    for (name, function) in folds {
        let function = move |lua: &Lua, values: Variadic<Value>| {
            let mut folded = bits(lua, values.first().unwrap_or(&Value::Nil), 1, name)?;
            for (index, value) in values.iter().enumerate().skip(1) {
                folded = function(folded, bits(lua, value, index + 1, name)?);
            }
            Ok(folded)
        };
        bit.raw_set(name, lua.create_function(function)?)?;
    }
    // Only the lowest five bits of the distance are used.
    let shifts: [Shift; 5] = [
        ("lshift", i32::wrapping_shl),
        ("rshift", |bits, by| (bits as u32).wrapping_shr(by) as i32),
        ("arshift", i32::wrapping_shr),
        ("rol", |bits, by| bits.rotate_left(by & 31)),
        ("ror", |bits, by| bits.rotate_right(by & 31)),
    ];
    for (name, function) in shifts {
        let function = move |lua: &Lua, (value, by): (Value, Value)| {
            Ok(function(bits(lua, &value, 1, name)?, bits(lua, &by, 2, name)? as u32))
        };
        bit.raw_set(name, lua.create_function(function)?)?;
    }
    bit.raw_set("tohex", lua.create_function(to_hex)?)?;
    Ok(bit)
}

/// Returns a number as 32 bits, rounded like the Lua library: to the nearest integer, half to even.
fn bits(lua: &Lua, value: &Value, index: usize, function: &str) -> mlua::Result<i32> {
    // Adding 1.5 · 2⁵² moves the integer into the lowest bits of the mantissa.
    Ok((number(lua, value, index, function)? + 6_755_399_441_055_744.0).to_bits() as i32)
}

fn to_hex(lua: &Lua, (value, digits): (Value, Value)) -> mlua::Result<String> {
    let bits = bits(lua, &value, 1, "tohex")? as u32;
    let digits = number_or(lua, &digits, 8.0, 2, "tohex")? as i32;
    let text = if digits < 0 { format!("{bits:08X}") } else { format!("{bits:08x}") };
    Ok(text[8 - digits.unsigned_abs().min(8) as usize..].to_owned())
}
