//! `cmsgpack`: MessagePack as in lua-cmsgpack.

use std::sync::Arc;

use mlua::{Lua, MultiValue, Table, Value, Variadic};

use super::{ITEM_STEPS, Output, VALUES_MAX, add, charge, number, number_in, number_or, string};
use crate::resp::script::lua::errors::{Raised, bad_argument, text};
use crate::service::scripts::control::Reins;
use crate::service::scripts::interpreter::Held;

/// Limit of the depth of packed tables; deeper ones are packed as nil.
const DEPTH_MAX: u32 = 16;

/// Limit of the depth of unpacked tables.
const UNPACKED_DEPTH_MAX: u32 = 1000;

pub(in crate::resp::script::lua) fn table(lua: &Lua, held: &Held) -> mlua::Result<Table> {
    let cmsgpack = lua.create_table()?;
    add(lua, held, &cmsgpack, "pack", pack)?;
    add(lua, held, &cmsgpack, "unpack", |lua, reins, bytes: Value| {
        unpack(lua, reins, &string(lua, &bytes, 1, "unpack")?.as_bytes(), None, 0)
    })?;
    add(lua, held, &cmsgpack, "unpack_one", |lua, reins, (bytes, from): (Value, Value)| {
        let from = number_or(lua, &from, 0.0, 2, "unpack_one")? as i64;
        unpack(lua, reins, &string(lua, &bytes, 1, "unpack_one")?.as_bytes(), Some(1), from)
    })?;
    add(lua, held, &cmsgpack, "unpack_limit", |lua, reins, (bytes, limit, from): (Value, Value, Value)| {
        let from = number_or(lua, &from, 0.0, 3, "unpack_limit")? as i64;
        let limit = number(lua, &limit, 2, "unpack_limit")? as i64;
        unpack(lua, reins, &string(lua, &bytes, 1, "unpack_limit")?.as_bytes(), Some(limit), from)
    })?;
    cmsgpack.raw_set("_NAME", "cmsgpack")?;
    cmsgpack.raw_set("_VERSION", "lua-cmsgpack 0.4.0")?;
    cmsgpack.raw_set("_COPYRIGHT", "Copyright (C) 2012, Salvatore Sanfilippo")?;
    cmsgpack.raw_set("_DESCRIPTION", "MessagePack C implementation for Lua")?;
    Ok(cmsgpack)
}

fn pack(lua: &Lua, reins: &Arc<Reins>, values: Variadic<Value>) -> mlua::Result<Value> {
    if values.is_empty() {
        return Err(bad_argument(lua, 0, "pack", "MessagePack pack needs input."));
    }
    let mut packer = Packer { reins, output: Output::new(reins) };
    values.iter().try_for_each(|value| packer.value(value, 0))?;
    Ok(Value::String(lua.create_string(&packer.output.bytes)?))
}

struct Packer<'p> {
    reins: &'p Reins,
    output: Output<'p>,
}

impl Packer<'_> {
    fn value(&mut self, value: &Value, depth: u32) -> mlua::Result<()> {
        charge(self.reins, ITEM_STEPS)?;
        match value {
            Value::String(text) => {
                let text = text.as_bytes();
                match text.len() {
                    short @ 0..32 => self.output.put(&[0xa0 | short as u8])?,
                    short @ 32..256 => self.output.put(&[0xd9, short as u8])?,
                    long => self.length(0xda, long)?,
                }
                self.output.put(&text)
            }
            Value::Boolean(value) => self.output.put(&[0xc2 + u8::from(*value)]),
            Value::Integer(number) => self.integer(*number),
            Value::Number(number) => self.number(*number),
            Value::Table(table) if depth < DEPTH_MAX => self.table(table, depth),
            _ => self.output.put(&[0xc0]),
        }
    }

    /// Appends a 16-bit length, or a 32-bit one with the next code.
    fn length(&mut self, code: u8, length: usize) -> mlua::Result<()> {
        match u16::try_from(length) {
            Ok(length) => self.with(code, &length.to_be_bytes()),
            Err(_) => self.with(code + 1, &(length as u32).to_be_bytes()),
        }
    }

    fn with(&mut self, code: u8, bytes: &[u8]) -> mlua::Result<()> {
        self.output.put(&[code])?;
        self.output.put(bytes)
    }

    fn number(&mut self, number: f64) -> mlua::Result<()> {
        let fits = number >= -(2f64.powi(63)) && number < 2f64.powi(63);
        if fits && number == (number as i64) as f64 {
            return self.integer(number as i64);
        }
        match f64::from(number as f32) == number {
            true => self.with(0xca, &(number as f32).to_be_bytes()),
            false => self.with(0xcb, &number.to_be_bytes()),
        }
    }

    fn integer(&mut self, number: i64) -> mlua::Result<()> {
        match number {
            -32..128 => self.output.put(&[number as u8]),
            128..=0xff => self.with(0xcc, &(number as u8).to_be_bytes()),
            0x100..=0xffff => self.with(0xcd, &(number as u16).to_be_bytes()),
            0x1_0000..=0xffff_ffff => self.with(0xce, &(number as u32).to_be_bytes()),
            0x1_0000_0000.. => self.with(0xcf, &number.to_be_bytes()),
            -128..-32 => self.with(0xd0, &(number as i8).to_be_bytes()),
            -32768..-128 => self.with(0xd1, &(number as i16).to_be_bytes()),
            -2_147_483_648..-32768 => self.with(0xd2, &(number as i32).to_be_bytes()),
            _ => self.with(0xd3, &number.to_be_bytes()),
        }
    }

    fn table(&mut self, table: &Table, depth: u32) -> mlua::Result<()> {
        self.reins.check().map_err(Raised::Stop)?;
        let (mut count, mut most, mut is_array) = (0_usize, 0.0, true);
        for pair in table.pairs::<Value, Value>() {
            match number_in(&pair?.0) {
                Some(index) if index > 0.0 && index.fract() == 0.0 => most = index.max(most),
                _ => is_array = false,
            }
            count += 1;
            charge(self.reins, ITEM_STEPS)?;
        }
        if is_array && most == count as f64 {
            match count {
                0..16 => self.output.put(&[0x90 | count as u8])?,
                _ => self.length(0xdc, count)?,
            }
            for index in 1..=count {
                let value = table.raw_get(index)?;
                self.value(&value, depth + 1)?;
            }
            return Ok(());
        }
        match count {
            0..16 => self.output.put(&[0x80 | count as u8])?,
            _ => self.length(0xde, count)?,
        }
        for pair in table.pairs::<Value, Value>() {
            let (key, value) = pair?;
            self.value(&key, depth + 1)?;
            self.value(&value, depth + 1)?;
        }
        Ok(())
    }
}

/// Unpacks values from an offset on. With a limit, the first result is the offset of the next value, or -1.
fn unpack(lua: &Lua, reins: &Reins, bytes: &[u8], limit: Option<i64>, from: i64) -> mlua::Result<MultiValue> {
    if from < 0 || limit.is_some_and(|limit| limit < 0) {
        let length = bytes.len();
        let why = format!("Invalid request to unpack with offset of {from} and limit of {length}.");
        return Err(text(lua, why));
    }
    if from as usize > bytes.len() {
        let why = format!("Start offset {from} greater than input length {}.", bytes.len());
        return Err(text(lua, why));
    }
    // A limit of 0 from the beginning means no limit.
    let limit = limit.filter(|limit| (*limit, from) != (0, 0));
    let mut unpacker = Unpacker { lua, reins, rest: &bytes[from as usize..] };
    let mut values = MultiValue::new();
    let most = limit.filter(|limit| *limit > 0).unwrap_or(i64::MAX);
    while !unpacker.rest.is_empty() && (values.len() as i64) < most {
        if values.len() >= VALUES_MAX {
            return Err(text(lua, "too many values to unpack"));
        }
        match unpacker.value(0)? {
            Ok(value) => values.push_back(value),
            Err(Bad::Short) => return Err(text(lua, "Missing bytes in input.")),
            Err(Bad::Format) => return Err(text(lua, "Bad data format in input.")),
        }
    }
    if limit.is_some() {
        let rest = unpacker.rest.len();
        values.push_front(Value::Number(if rest == 0 { -1.0 } else { (bytes.len() - rest) as f64 }));
    }
    Ok(values)
}

/// An error in packed bytes.
enum Bad {
    Short,
    Format,
}

type Unpacked = mlua::Result<Result<Value, Bad>>;

struct Unpacker<'u> {
    lua: &'u Lua,
    reins: &'u Reins,
    rest: &'u [u8],
}

impl Unpacker<'_> {
    fn take<const BYTES: usize>(&mut self) -> Option<[u8; BYTES]> {
        let (first, rest) = self.rest.split_first_chunk::<BYTES>()?;
        self.rest = rest;
        Some(*first)
    }

    fn value(&mut self, depth: u32) -> Unpacked {
        charge(self.reins, ITEM_STEPS)?;
        let Some([code]) = self.take::<1>() else { return Ok(Err(Bad::Short)) };
        let number = |number: Option<f64>| Ok(number.map(Value::Number).ok_or(Bad::Short));
        match code {
            0..0x80 => number(Some(code.into())),
            0xe0.. => number(Some((code as i8).into())),
            0xcc => number(self.take().map(|bytes| u8::from_be_bytes(bytes).into())),
            0xcd => number(self.take().map(|bytes| u16::from_be_bytes(bytes).into())),
            0xce => number(self.take().map(|bytes| u32::from_be_bytes(bytes).into())),
            0xcf => number(self.take().map(|bytes| u64::from_be_bytes(bytes) as f64)),
            0xd0 => number(self.take().map(|bytes| i8::from_be_bytes(bytes).into())),
            0xd1 => number(self.take().map(|bytes| i16::from_be_bytes(bytes).into())),
            0xd2 => number(self.take().map(|bytes| i32::from_be_bytes(bytes).into())),
            0xd3 => number(self.take().map(|bytes| i64::from_be_bytes(bytes) as f64)),
            0xca => number(self.take().map(|bytes| f32::from_be_bytes(bytes).into())),
            0xcb => number(self.take().map(f64::from_be_bytes)),
            0xc0 => Ok(Ok(Value::Nil)),
            0xc2 | 0xc3 => Ok(Ok(Value::Boolean(code == 0xc3))),
            0xa0..0xc0 => self.string(Some(usize::from(code & 0x1f))),
            0xd9 => {
                let length = self.take().map(|[length]: [u8; 1]| length.into());
                self.string(length)
            }
            0xda => {
                let length = self.take().map(|bytes| u16::from_be_bytes(bytes).into());
                self.string(length)
            }
            0xdb => {
                let length = self.take().map(|bytes| u32::from_be_bytes(bytes) as usize);
                self.string(length)
            }
            0x90..0xa0 => self.table(Some(usize::from(code & 0xf)), false, depth),
            0x80..0x90 => self.table(Some(usize::from(code & 0xf)), true, depth),
            0xdc | 0xde => {
                let length = self.take().map(|bytes| u16::from_be_bytes(bytes).into());
                self.table(length, code == 0xde, depth)
            }
            0xdd | 0xdf => {
                let length = self.take().map(|bytes| u32::from_be_bytes(bytes) as usize);
                self.table(length, code == 0xdf, depth)
            }
            _ => Ok(Err(Bad::Format)),
        }
    }

    fn string(&mut self, length: Option<usize>) -> Unpacked {
        let Some((bytes, rest)) = length.and_then(|length| self.rest.split_at_checked(length)) else {
            return Ok(Err(Bad::Short));
        };
        self.rest = rest;
        charge(self.reins, bytes.len())?;
        Ok(Ok(Value::String(self.lua.create_string(bytes)?)))
    }

    fn table(&mut self, length: Option<usize>, is_map: bool, depth: u32) -> Unpacked {
        self.reins.check().map_err(Raised::Stop)?;
        let Some(length) = length else { return Ok(Err(Bad::Short)) };
        if depth == UNPACKED_DEPTH_MAX {
            return Ok(Err(Bad::Format));
        }
        let table = self.lua.create_table()?;
        for index in 1..=length {
            let mut key = Value::Number(index as f64);
            if is_map {
                match self.value(depth + 1)? {
                    Ok(value) => key = value,
                    bad => return Ok(bad),
                }
            }
            match self.value(depth + 1)? {
                // Lua raises its own error for an invalid key.
                Ok(value) => table.raw_set(key, value)?,
                bad => return Ok(bad),
            }
        }
        Ok(Ok(Value::Table(table)))
    }
}
