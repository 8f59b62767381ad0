//! `cjson`: JSON with the defaults and the errors of lua-cjson in Redis.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Weak};

use mlua::{LightUserData, Lua, Table, Value, Variadic};

use super::string;
use crate::resp::script::lua::errors::{bad_argument, text};
use crate::service::scripts::control::Reins;
use crate::service::scripts::interpreter::Held;

mod decode;
mod encode;

/// The options that a script can set, reset to the defaults for each script.
struct Choices {
    encode_depth: AtomicU32,
    decode_depth: AtomicU32,
    digits: AtomicU32,
    sparse_ratio: AtomicU32,
    sparse_safe: AtomicU32,
    converts_sparse: AtomicBool,
    /// Index of the choice in [`INVALID`].
    encodes_invalid: AtomicU32,
    decodes_invalid: AtomicBool,
    /// Without effect: an encoder keeps no buffer.
    keeps_buffer: AtomicBool,
}

impl Default for Choices {
    fn default() -> Choices {
        Choices {
            encode_depth: 1000.into(),
            decode_depth: 1000.into(),
            digits: 14.into(),
            sparse_ratio: 2.into(),
            sparse_safe: 10.into(),
            converts_sparse: false.into(),
            encodes_invalid: 0.into(),
            decodes_invalid: true.into(),
            keeps_buffer: true.into(),
        }
    }
}

/// The options of the current run.
#[derive(Default)]
struct OfRun {
    choices: Choices,
    /// The reins of that run, and the number of runs begun with them.
    run: std::sync::Mutex<(Weak<Reins>, u64)>,
}

impl OfRun {
    /// Returns the options, after a reset if another script has begun.
    fn of(&self, reins: &Arc<Reins>) -> &Choices {
        let mut run = self.run.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if run.1 != reins.runs() || !Weak::ptr_eq(&run.0, &Arc::downgrade(reins)) {
            *run = (Arc::downgrade(reins), reins.runs());
            self.choices.forget();
        }
        &self.choices
    }
}

impl Choices {
    fn forget(&self) {
        let fresh = Choices::default();
        let numbers = [
            (&self.encode_depth, fresh.encode_depth),
            (&self.decode_depth, fresh.decode_depth),
            (&self.digits, fresh.digits),
            (&self.sparse_ratio, fresh.sparse_ratio),
            (&self.sparse_safe, fresh.sparse_safe),
            (&self.encodes_invalid, fresh.encodes_invalid),
        ];
        let switches = [
            (&self.converts_sparse, fresh.converts_sparse),
            (&self.decodes_invalid, fresh.decodes_invalid),
            (&self.keeps_buffer, fresh.keeps_buffer),
        ];
        numbers.into_iter().for_each(|(of, to)| of.store(to.into_inner(), Ordering::Relaxed));
        switches.into_iter().for_each(|(of, to)| of.store(to.into_inner(), Ordering::Relaxed));
    }
}

/// Limit of the nesting depth for any options, to protect the stack.
const DEPTH_MAX: u32 = 1000;

type Function = fn(&Lua, &Arc<Reins>, &Choices, &[Value]) -> mlua::Result<Vec<Value>>;

pub(in crate::resp::script::lua) fn table(lua: &Lua, held: &Held) -> mlua::Result<Table> {
    let cjson = lua.create_table()?;
    let of_run = Arc::new(OfRun::default());
    let functions: [(&str, Function); 9] = [
        ("encode", encode),
        ("decode", decode),
        ("encode_max_depth", |lua, _, choices, values| {
            at_most(lua, 1, values, "encode_max_depth")?;
            choose(lua, &choices.encode_depth, values, 1..=i32::MAX as u32, "encode_max_depth")
        }),
        ("decode_max_depth", |lua, _, choices, values| {
            at_most(lua, 1, values, "decode_max_depth")?;
            choose(lua, &choices.decode_depth, values, 1..=i32::MAX as u32, "decode_max_depth")
        }),
        ("encode_number_precision", |lua, _, choices, values| {
            at_most(lua, 1, values, "encode_number_precision")?;
            choose(lua, &choices.digits, values, 1..=14, "encode_number_precision")
        }),
        ("encode_invalid_numbers", encode_invalid),
        ("decode_invalid_numbers", |lua, _, choices, values| {
            at_most(lua, 1, values, "decode_invalid_numbers")?;
            switch(lua, &choices.decodes_invalid, values.first(), "decode_invalid_numbers")
        }),
        ("encode_sparse_array", sparse),
        ("encode_keep_buffer", |lua, _, choices, values| {
            at_most(lua, 1, values, "encode_keep_buffer")?;
            switch(lua, &choices.keeps_buffer, values.first(), "encode_keep_buffer")
        }),
    ];
    for (name, function) in functions {
        let (held, of_run) = (held.clone(), of_run.clone());
        let function = move |lua: &Lua, values: Variadic<Value>| {
            let reins = held.get();
            Ok(Variadic::from_iter(function(lua, &reins, of_run.of(&reins), &values)?))
        };
        cjson.raw_set(name, lua.create_function(function)?)?;
    }
    cjson.raw_set("null", Value::LightUserData(LightUserData(std::ptr::null_mut())))?;
    cjson.raw_set("_NAME", "cjson")?;
    cjson.raw_set("_VERSION", "2.1.0")?;
    Ok(cjson)
}

fn only<'v>(lua: &Lua, values: &'v [Value], name: &str) -> mlua::Result<&'v Value> {
    match values {
        [value] => Ok(value),
        _ => Err(bad_argument(lua, 1, name, "expected 1 argument")),
    }
}

fn encode(lua: &Lua, reins: &Arc<Reins>, choices: &Choices, values: &[Value]) -> mlua::Result<Vec<Value>> {
    let value = only(lua, values, "encode")?;
    let bytes = encode::encoded(lua, reins, choices, value)?;
    Ok(vec![Value::String(lua.create_string(bytes)?)])
}

fn decode(lua: &Lua, reins: &Arc<Reins>, choices: &Choices, values: &[Value]) -> mlua::Result<Vec<Value>> {
    let value = string(lua, only(lua, values, "decode")?, 1, "decode")?;
    decode::decoded(lua, reins, choices, &value.as_bytes()).map(|value| vec![value])
}

/// Sets a numeric option if a value is given. Returns the current value.
fn choose(
    lua: &Lua,
    of: &AtomicU32,
    values: &[Value],
    range: std::ops::RangeInclusive<u32>,
    name: &str,
) -> mlua::Result<Vec<Value>> {
    if let Some(value) = values.first().filter(|value| !value.is_nil()) {
        let number = super::number(lua, value, 1, name)?;
        if !(f64::from(*range.start())..=f64::from(*range.end())).contains(&number) {
            let why = format!("expected integer between {} and {}", range.start(), range.end());
            return Err(bad_argument(lua, 1, name, &why));
        }
        of.store(number as u32, Ordering::Relaxed);
    }
    Ok(vec![Value::Number(of.load(Ordering::Relaxed).into())])
}

/// Returns an error if there are more arguments than a setter takes.
fn at_most(lua: &Lua, most: usize, values: &[Value], name: &str) -> mlua::Result<()> {
    match values.len() > most {
        true => Err(bad_argument(lua, most + 1, name, "found too many arguments")),
        false => Ok(()),
    }
}

/// Words that setters take. Off and on can also be given as booleans, and are returned as such.
const INVALID: [&str; 3] = ["off", "on", "null"];

/// Returns the index of an argument among the words, or none if the argument is not given.
fn word(lua: &Lua, words: &[&str], value: Option<&Value>, name: &str) -> mlua::Result<Option<usize>> {
    match value {
        None | Some(Value::Nil) => Ok(None),
        Some(Value::Boolean(on)) => Ok(Some(usize::from(*on))),
        Some(value) => {
            let word = string(lua, value, 1, name)?;
            let place = words.iter().position(|known| word == *known);
            let why = || format!("invalid option '{}'", word.to_string_lossy());
            place.map(Some).ok_or_else(|| bad_argument(lua, 1, name, &why()))
        }
    }
}

fn switch(lua: &Lua, of: &AtomicBool, value: Option<&Value>, name: &str) -> mlua::Result<Vec<Value>> {
    if let Some(place) = word(lua, &INVALID[..2], value, name)? {
        of.store(place == 1, Ordering::Relaxed);
    }
    Ok(vec![Value::Boolean(of.load(Ordering::Relaxed))])
}

/// `encode_invalid_numbers([word])`.
fn encode_invalid(
    lua: &Lua,
    _: &Arc<Reins>,
    choices: &Choices,
    values: &[Value],
) -> mlua::Result<Vec<Value>> {
    const NAME: &str = "encode_invalid_numbers";
    at_most(lua, 1, values, NAME)?;
    if let Some(place) = word(lua, &INVALID, values.first(), NAME)? {
        choices.encodes_invalid.store(place as u32, Ordering::Relaxed);
    }
    Ok(vec![match choices.encodes_invalid.load(Ordering::Relaxed) {
        2 => Value::String(lua.create_string(INVALID[2])?),
        place => Value::Boolean(place == 1),
    }])
}

/// `encode_sparse_array([convert[, ratio[, safe]]])`.
fn sparse(lua: &Lua, _: &Arc<Reins>, choices: &Choices, values: &[Value]) -> mlua::Result<Vec<Value>> {
    at_most(lua, 3, values, "encode_sparse_array")?;
    let mut chosen = switch(lua, &choices.converts_sparse, values.first(), "encode_sparse_array")?;
    let numbers = [&choices.sparse_ratio, &choices.sparse_safe];
    for (index, of) in numbers.into_iter().enumerate() {
        let rest = values.get(index + 1..).unwrap_or_default();
        chosen.extend(choose(lua, of, rest, 0..=i32::MAX as u32, "encode_sparse_array")?);
    }
    Ok(chosen)
}

fn error(lua: &Lua, what: String) -> mlua::Error {
    text(lua, what)
}
