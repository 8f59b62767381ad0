//! `struct`: packs values in C layout, like the library of Roberto Ierusalimschy.

use std::sync::Arc;

use mlua::{Lua, MultiValue, Table, Value, Variadic};

use super::{ITEM_STEPS, Output, VALUES_MAX, add, charge, number, number_in, number_or, string};
use crate::resp::script::lua::errors::{bad_argument, text};
use crate::service::scripts::control::Reins;
use crate::service::scripts::interpreter::Held;

/// Limit of the bytes of an integer.
const INTEGER_BYTES_MAX: usize = 32;

/// Default alignment of `!`, in bytes.
const ALIGNMENT: usize = 8;

pub(in crate::resp::script::lua) fn table(lua: &Lua, held: &Held) -> mlua::Result<Table> {
    let table = lua.create_table()?;
    add(lua, held, &table, "pack", pack)?;
    add(lua, held, &table, "unpack", unpack)?;
    add(lua, held, &table, "size", size)?;
    Ok(table)
}

/// A format that is being parsed.
struct Format<'f> {
    lua: &'f Lua,
    reins: &'f Reins,
    name: &'static str,
    rest: &'f [u8],
    is_big: bool,
    alignment: usize,
}

/// An item of a format.
struct Item {
    option: u8,
    size: usize,
    padding: usize,
}

impl<'f> Format<'f> {
    fn new(lua: &'f Lua, reins: &'f Reins, name: &'static str, rest: &'f [u8]) -> Format<'f> {
        // A format ends at its first zero byte, like a C string.
        let end = memchr::memchr(0, rest).unwrap_or(rest.len());
        Format { lua, reins, name, rest: &rest[..end], is_big: false, alignment: 1 }
    }

    fn number(&mut self, default: usize) -> mlua::Result<usize> {
        let digits = self.rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
        charge(self.reins, digits)?;
        if digits == 0 {
            return Ok(default);
        }
        let (number, rest) = self.rest.split_at(digits);
        self.rest = rest;
        let number = std::str::from_utf8(number).ok().and_then(|digits| digits.parse::<i32>().ok());
        number.map(|number| number as usize).ok_or_else(|| text(self.lua, "integral size overflow"))
    }

    /// Returns the next item, if there is one. `at`: the current offset in the packed bytes.
    fn next(&mut self, at: usize) -> mlua::Result<Option<Item>> {
        while let Some((&option, rest)) = self.rest.split_first() {
            self.rest = rest;
            charge(self.reins, ITEM_STEPS)?;
            let size = match option {
                b'b' | b'B' | b'x' => 1,
                b'h' | b'H' => 2,
                b'f' => 4,
                b'l' | b'L' | b'T' | b'd' => 8,
                b's' => 0,
                b'c' => self.number(1)?,
                b'i' | b'I' => {
                    let size = self.number(4)?;
                    if size > INTEGER_BYTES_MAX {
                        let why = format!("integral size {size} is larger than limit of {INTEGER_BYTES_MAX}");
                        return Err(text(self.lua, why));
                    }
                    size
                }
                // Unknown letters are errors only for `pack` and `unpack`.
                _ if option.is_ascii_alphanumeric() && self.name == "size" => continue,
                _ => {
                    self.control(option)?;
                    continue;
                }
            };
            let padding = match size {
                0 => 0,
                _ if option == b'c' => 0,
                _ => {
                    let to = size.min(self.alignment);
                    (to.wrapping_sub(at & (to - 1))) & (to - 1)
                }
            };
            return Ok(Some(Item { option, size, padding }));
        }
        Ok(None)
    }

    fn control(&mut self, option: u8) -> mlua::Result<()> {
        match option {
            b' ' => {}
            b'>' => self.is_big = true,
            b'<' | b'=' => self.is_big = false,
            b'!' => {
                let alignment = self.number(ALIGNMENT)?;
                if !alignment.is_power_of_two() {
                    return Err(text(self.lua, format!("alignment {alignment} is not a power of 2")));
                }
                self.alignment = alignment;
            }
            other => {
                let why = format!("invalid format option '{}'", char::from(other));
                return Err(bad_argument(self.lua, 1, self.name, &why));
            }
        }
        Ok(())
    }
}

fn pack(lua: &Lua, reins: &Arc<Reins>, values: Variadic<Value>) -> mlua::Result<Value> {
    let of = string(lua, values.first().unwrap_or(&Value::Nil), 1, "pack")?;
    let of = of.as_bytes();
    let (mut format, mut output, mut argument) =
        (Format::new(lua, reins, "pack", &of), Output::new(reins), 1);
    while let Some(Item { option, size, padding }) = format.next(output.bytes.len())? {
        output.put(&[0; INTEGER_BYTES_MAX][..padding])?;
        if option == b'x' {
            output.put(&[0])?;
            continue;
        }
        argument += 1;
        let value = values.get(argument - 1).unwrap_or(&Value::Nil);
        if value.is_nil() {
            let wanted = if matches!(option, b'c' | b's') { "string" } else { "number" };
            return Err(bad_argument(lua, argument, "pack", &format!("{wanted} expected, got nil")));
        }
        match option {
            b'c' | b's' => {
                let bytes = string(lua, value, argument, "pack")?;
                let bytes = bytes.as_bytes();
                let size = if size == 0 { bytes.len() } else { size };
                if bytes.len() < size {
                    return Err(bad_argument(lua, argument + 1, "pack", "string too short"));
                }
                output.put(&bytes[..size])?;
                if option == b's' {
                    output.put(&[0])?;
                }
            }
            b'f' => {
                let bytes = (number(lua, value, argument, "pack")? as f32).to_le_bytes();
                put_ordered(&mut output, bytes, format.is_big)?;
            }
            b'd' => {
                let bytes = number(lua, value, argument, "pack")?.to_le_bytes();
                put_ordered(&mut output, bytes, format.is_big)?;
            }
            _ => {
                let number = number(lua, value, argument, "pack")?;
                let bits = if number < 0.0 { number as i64 as u64 } else { number as u64 };
                let mut bytes = [0; INTEGER_BYTES_MAX];
                bytes[..8].copy_from_slice(&bits.to_le_bytes());
                let bytes = &mut bytes[..size];
                if format.is_big {
                    bytes.reverse();
                }
                output.put(bytes)?;
            }
        }
    }
    Ok(Value::String(lua.create_string(&output.bytes)?))
}

fn put_ordered<const BYTES: usize>(
    output: &mut Output<'_>,
    mut little: [u8; BYTES],
    is_big: bool,
) -> mlua::Result<()> {
    if is_big {
        little.reverse();
    }
    output.put(&little)
}

fn unpack(
    lua: &Lua,
    reins: &Arc<Reins>,
    (of, data, from): (Value, Value, Value),
) -> mlua::Result<MultiValue> {
    let (of, data) = (string(lua, &of, 1, "unpack")?, string(lua, &data, 2, "unpack")?);
    let (of, data) = (of.as_bytes(), data.as_bytes());
    let from = number_or(lua, &from, 1.0, 3, "unpack")? as i64;
    if from < 1 {
        return Err(bad_argument(lua, 3, "unpack", "offset must be 1 or greater"));
    }
    let mut at = from as usize - 1;
    let mut format = Format::new(lua, reins, "unpack", &of);
    let mut values: Vec<Value> = Vec::new();
    let short = || bad_argument(lua, 2, "unpack", "data string too short");
    while let Some(Item { option, size, padding }) = format.next(at)? {
        // An item may have no bytes, so only the format limits the number of items.
        if values.len() >= VALUES_MAX {
            return Err(text(lua, "stack overflow (too many results)"));
        }
        at += padding;
        let bytes = at.checked_add(size).and_then(|end| data.get(at..end)).ok_or_else(short)?;
        let mut ordered = [0; INTEGER_BYTES_MAX];
        if size <= INTEGER_BYTES_MAX {
            ordered[..size].copy_from_slice(bytes);
            if format.is_big {
                ordered[..size].reverse();
            }
        }
        let mut taken = size;
        match option {
            b'x' => {}
            b'c' => {
                if size == 0 {
                    let Some(length) = values.pop().and_then(|value| number_in(&value)) else {
                        return Err(text(lua, "format 'c0' needs a previous size"));
                    };
                    taken = length as usize;
                }
                let end = at.checked_add(taken);
                let bytes = end.and_then(|end| data.get(at..end)).ok_or_else(short)?;
                charge(reins, bytes.len())?;
                values.push(Value::String(lua.create_string(bytes)?));
            }
            b's' => {
                let rest = data.get(at..).unwrap_or_default();
                let Some(end) = memchr::memchr(0, rest) else {
                    return Err(text(lua, "unfinished string in data"));
                };
                charge(reins, end)?;
                values.push(Value::String(lua.create_string(&rest[..end])?));
                taken = end + 1;
            }
            b'f' => values.push(Value::Number(f32::from_le_bytes(first(&ordered)).into())),
            b'd' => values.push(Value::Number(f64::from_le_bytes(first(&ordered)))),
            _ => {
                let bits = u64::from_le_bytes(first(&ordered));
                let unused = 64 - 8 * size.clamp(1, 8);
                let number = match option.is_ascii_lowercase() {
                    true => ((bits << unused) as i64 >> unused) as f64,
                    false => bits as f64,
                };
                values.push(Value::Number(if size == 0 { 0.0 } else { number }));
            }
        }
        at += taken;
    }
    values.push(Value::Number((at + 1) as f64));
    Ok(values.into_iter().collect())
}

fn first<const BYTES: usize>(of: &[u8; INTEGER_BYTES_MAX]) -> [u8; BYTES] {
    std::array::from_fn(|at| of[at])
}

fn size(lua: &Lua, reins: &Arc<Reins>, of: Value) -> mlua::Result<f64> {
    let of = string(lua, &of, 1, "size")?;
    let of = of.as_bytes();
    let (mut format, mut at) = (Format::new(lua, reins, "size", &of), 0_usize);
    while let Some(Item { option, size, padding }) = format.next(at)? {
        match (option, size) {
            (b's', _) => return Err(bad_argument(lua, 1, "size", "option 's' has no fixed size")),
            (b'c', 0) => return Err(bad_argument(lua, 1, "size", "option 'c0' has no fixed size")),
            _ => at = at.saturating_add(padding + size),
        }
    }
    Ok(at as f64)
}
