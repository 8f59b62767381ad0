//! Functions of the table `string` that could run for long or produce long results.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use memchr::memmem;
use mlua::{Function, Lua, LuaString, MultiValue, Table, Value};

use super::pattern::{Extent, Matcher};
use super::{Output, add, charge, charge_calls, number, number_or, string};
use crate::resp::script::lua::errors::bad_argument;
use crate::service::scripts::control::Reins;
use crate::service::scripts::interpreter::Held;

pub(in crate::resp::script::lua) fn install(lua: &Lua, held: &Held, strings: &Table) -> mlua::Result<()> {
    add(lua, held, strings, "find", |lua, reins, values| find(lua, reins, values, true))?;
    add(lua, held, strings, "match", |lua, reins, values| find(lua, reins, values, false))?;
    add(lua, held, strings, "gsub", gsub)?;
    add(lua, held, strings, "rep", rep)?;
    // These are charged because a script could call them very often on strings of megabytes.
    for name in ["dump", "format", "lower", "reverse", "upper"] {
        charge_calls(lua, held, strings, name)?;
    }
    let held = held.clone();
    let each = lua.create_function(move |lua, values: (Value, Value)| gmatch(lua, &held, values))?;
    strings.raw_set("gfind", &each)?;
    strings.raw_set("gmatch", each)
}

fn captured(lua: &Lua, source: &[u8], (start, extent): (usize, Extent)) -> mlua::Result<Value> {
    match extent {
        Extent::Bytes(bytes) => Ok(Value::String(lua.create_string(&source[start..start + bytes])?)),
        _ => Ok(Value::Number((start + 1) as f64)),
    }
}

fn find(
    lua: &Lua,
    reins: &Arc<Reins>,
    (source, pattern, from, plain): (Value, Value, Value, Value),
    finds: bool,
) -> mlua::Result<MultiValue> {
    let name = if finds { "find" } else { "match" };
    let (source, pattern) = (string(lua, &source, 1, name)?, string(lua, &pattern, 2, name)?);
    let (source, pattern) = (&*source.as_bytes(), &*pattern.as_bytes());
    let from = number_or(lua, &from, 1.0, 3, name)? as i64;
    let from = if from < 0 { from + source.len() as i64 + 1 } else { from };
    let from = ((from - 1).max(0) as usize).min(source.len());
    charge(reins, pattern.len())?;
    let is_plain = !matches!(plain, Value::Nil | Value::Boolean(false));
    if finds && (is_plain || !pattern.iter().any(|byte| b"^$*+?.([%-".contains(byte))) {
        charge(reins, source.len() - from)?;
        let found = memmem::find(&source[from..], pattern).map(|at| from + at);
        return Ok(match found {
            Some(at) => {
                [(at + 1) as f64, (at + pattern.len()) as f64].map(Value::Number).into_iter().collect()
            }
            None => MultiValue::from_iter([Value::Nil]),
        });
    }
    let anchored = pattern.first() == Some(&b'^');
    let mut matcher = Matcher::new(lua, reins, source, pattern);
    for start in from..=source.len() {
        if let Some(end) = matcher.at(start, anchored.into())? {
            let mut values = MultiValue::new();
            if finds {
                values.extend([(start + 1) as f64, end as f64].map(Value::Number));
            }
            for capture in matcher.captures(start, end, !finds)? {
                values.push_back(captured(lua, source, capture)?);
            }
            return Ok(values);
        }
        if anchored {
            break;
        }
    }
    Ok(MultiValue::from_iter([Value::Nil]))
}

fn gmatch(lua: &Lua, held: &Held, (source, pattern): (Value, Value)) -> mlua::Result<Function> {
    let source = string(lua, &source, 1, "gmatch")?;
    let pattern = string(lua, &pattern, 2, "gmatch")?;
    let (held, next) = (held.clone(), AtomicUsize::new(0));
    lua.create_function(move |lua, ()| {
        let (reins, source, pattern) = (held.get(), &*source.as_bytes(), &*pattern.as_bytes());
        let mut matcher = Matcher::new(lua, &reins, source, pattern);
        for start in next.load(Ordering::Relaxed)..=source.len() {
            if let Some(end) = matcher.at(start, 0)? {
                next.store(end + usize::from(end == start), Ordering::Relaxed);
                let captures = matcher.captures(start, end, true)?;
                return captures.into_iter().map(|capture| captured(lua, source, capture)).collect();
            }
        }
        next.store(source.len() + 1, Ordering::Relaxed);
        Ok(MultiValue::from_iter([Value::Nil]))
    })
}

fn gsub(
    lua: &Lua,
    reins: &Arc<Reins>,
    (source, pattern, with, most): (Value, Value, Value, Value),
) -> mlua::Result<(LuaString, f64)> {
    let (source, pattern) = (string(lua, &source, 1, "gsub")?, string(lua, &pattern, 2, "gsub")?);
    let (source, pattern) = (&*source.as_bytes(), &*pattern.as_bytes());
    let with = match with {
        Value::Table(_) | Value::Function(_) => with,
        Value::String(_) | Value::Number(_) | Value::Integer(_) => {
            Value::String(string(lua, &with, 3, "gsub")?)
        }
        _ => return Err(bad_argument(lua, 3, "gsub", "string/function/table expected")),
    };
    let most = number_or(lua, &most, (source.len() + 1) as f64, 4, "gsub")?;
    let anchored = pattern.first() == Some(&b'^');
    let mut matcher = Matcher::new(lua, reins, source, pattern);
    let mut output = Output::new(reins);
    let (mut at, mut count) = (0, 0.0);
    while count < most {
        let end = matcher.at(at, anchored.into())?;
        if let Some(end) = end {
            count += 1.0;
            replace(lua, &matcher, source, at..end, &with, &mut output)?;
        }
        match end {
            Some(end) if end > at => at = end,
            _ if at < source.len() => {
                output.put(&source[at..=at])?;
                at += 1;
            }
            _ => break,
        }
        if anchored {
            break;
        }
    }
    output.put(&source[at..])?;
    Ok((lua.create_string(&output.bytes)?, count))
}

fn replace(
    lua: &Lua,
    matcher: &Matcher<'_>,
    source: &[u8],
    found: std::ops::Range<usize>,
    with: &Value,
    output: &mut Output<'_>,
) -> mlua::Result<()> {
    let (start, end) = (found.start, found.end);
    let value = match with {
        Value::String(text) => {
            let text = text.as_bytes();
            let mut bytes = text.iter();
            while let Some(&byte) = bytes.next() {
                match (byte, if byte == b'%' { bytes.next() } else { None }) {
                    (b'%', Some(b'0')) => output.put(&source[start..end])?,
                    (b'%', Some(digit)) if digit.is_ascii_digit() => {
                        let capture = matcher.capture(usize::from(digit - b'1'), start, end)?;
                        let value = captured(lua, source, capture)?;
                        output.put(&string(lua, &value, 1, "gsub")?.as_bytes())?;
                    }
                    (b'%', Some(&other)) => output.put(&[other])?,
                    (b'%', None) => output.put(&[0])?,
                    (byte, _) => output.put(&[byte])?,
                }
            }
            return Ok(());
        }
        Value::Table(table) => {
            let first = matcher.capture(0, start, end)?;
            table.get::<Value>(captured(lua, source, first)?)?
        }
        Value::Function(function) => {
            let captures = matcher.captures(start, end, true)?;
            let values: mlua::Result<MultiValue> =
                captures.into_iter().map(|capture| captured(lua, source, capture)).collect();
            function.call::<Value>(values?)?
        }
        _ => Value::Nil,
    };
    match value {
        Value::Nil | Value::Boolean(false) => output.put(&source[start..end]),
        Value::String(_) | Value::Number(_) | Value::Integer(_) => {
            output.put(&string(lua, &value, 1, "gsub")?.as_bytes())
        }
        other => {
            let name = other.type_name();
            Err(matcher.error(&format!("invalid replacement value (a {name})")))
        }
    }
}

fn rep(lua: &Lua, reins: &Arc<Reins>, (text, count): (Value, Value)) -> mlua::Result<LuaString> {
    let text = string(lua, &text, 1, "rep")?;
    let count = number(lua, &count, 2, "rep")?;
    let (text, mut output) = (text.as_bytes(), Output::new(reins));
    if count < 1.0 || text.is_empty() {
        return lua.create_string("");
    }
    if text.len() as f64 * count.floor() > output.most as f64 {
        return Err(super::no_memory());
    }
    for _ in 0..count as usize {
        output.put(&text)?;
    }
    lua.create_string(&output.bytes)
}
