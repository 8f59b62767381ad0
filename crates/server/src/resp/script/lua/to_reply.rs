//! Values of Lua as answers.

use mlua::{LuaString, Table, Value};

use super::number::{number_in, spelled};
use crate::resp::wire::reply::Replies;

/// Tables in tables.
const DEPTH_MAX: usize = 200;

/// Answers what a script returned, or raised in a table. `protocol` is what the script chose for itself.
pub(in crate::resp) fn answer(value: &Value, protocol: u8, replies: &mut Replies) {
    answer_at(value, protocol, replies, 0);
}

fn answer_at(value: &Value, protocol: u8, replies: &mut Replies, depth: usize) {
    match value {
        Value::Boolean(value) if protocol >= 3 => replies.boolean(*value),
        Value::Boolean(true) => replies.integer(1),
        Value::Integer(number) => replies.integer(*number),
        Value::Number(number) => replies.integer(truncated(*number)),
        Value::String(text) => replies.bulk(&text.as_bytes()),
        Value::Table(_) if depth > DEPTH_MAX => replies.error("ERR reached lua stack limit"),
        Value::Table(table) => answer_table(table, protocol, replies, depth),
        _ => replies.null(),
    }
}

/// As a conversion in C does it, where what does not fit is the least.
fn truncated(number: f64) -> i64 {
    // The first that is too large is 2⁶³.
    if number >= -(2f64.powi(63)) && number < 2f64.powi(63) { number as i64 } else { i64::MIN }
}

fn field(table: &Table, name: &str) -> Option<Value> {
    table.raw_get::<Value>(name).ok().filter(|value| !value.is_nil())
}

fn text(value: Option<Value>) -> Option<Vec<u8>> {
    match value? {
        Value::String(text) => Some(LuaString::as_bytes(&text).to_vec()),
        Value::Integer(number) => Some(number.to_string().into_bytes()),
        Value::Number(number) => Some(spelled(number, 14).into_bytes()),
        _ => None,
    }
}

/// The text of a table that is an error.
pub(in crate::resp) fn error_of(table: &Table) -> Option<Vec<u8>> {
    text(field(table, "err"))
}

fn answer_table(table: &Table, protocol: u8, replies: &mut Replies, depth: usize) {
    if let Some(Value::String(error)) = field(table, "err") {
        return replies.error_bytes(&error.as_bytes());
    }
    if let Some(Value::String(status)) = field(table, "ok") {
        return replies.status_bytes(&status.as_bytes());
    }
    if let Some(number @ (Value::Number(_) | Value::Integer(_))) = field(table, "double") {
        return replies.double(&spelled(number_in(&number).unwrap_or(0.0), 17));
    }
    if let Some(Value::Table(map)) = field(table, "map") {
        let pairs: Vec<_> = map.pairs::<Value, Value>().flatten().collect();
        replies.map(pairs.len());
        for (key, value) in pairs {
            answer_at(&key, protocol, replies, depth + 1);
            answer_at(&value, protocol, replies, depth + 1);
        }
        return;
    }
    if let Some(Value::Table(set)) = field(table, "set") {
        let keys: Vec<_> = set.pairs::<Value, Value>().flatten().map(|(key, _)| key).collect();
        replies.set(keys.len());
        keys.iter().for_each(|key| answer_at(key, protocol, replies, depth + 1));
        return;
    }
    if let Some(Value::String(number)) = field(table, "big_number") {
        return replies.big_number(&number.as_bytes());
    }
    if let Some(Value::Table(verbatim)) = field(table, "verbatim_string")
        && let Some(Value::String(text)) = field(&verbatim, "string")
        && let Some(Value::String(format)) = field(&verbatim, "format")
    {
        return replies.verbatim(&format.as_bytes(), &text.as_bytes());
    }
    let mut elements = 0;
    while table.raw_get::<Value>(elements + 1).is_ok_and(|value| !value.is_nil()) {
        elements += 1;
    }
    replies.array(elements);
    for index in 1..=elements {
        // What is cut short already need not be made.
        if replies.is_cut_short() {
            return;
        }
        answer_at(&table.raw_get(index).unwrap_or(Value::Nil), protocol, replies, depth + 1);
    }
}
