//! Converts Lua values to answers.

use mlua::{LuaString, Table, Value};

use super::number::{number_in, spelled};
use crate::resp::wire::reply::Replies;

/// Limit of the depth of nested tables.
const DEPTH_MAX: usize = 200;

/// Bytes of the shortest answer to a value.
const LEAST_BYTES: usize = 3;

/// Answers the value that a script returned, or a table that it raised. `protocol` is the version that the script
/// chose.
pub(in crate::resp) fn answer(value: &Value, protocol: u8, replies: &mut Replies) {
    Answering { protocol, replies, owed: 0 }.value(value, 0);
}

/// An answer in progress.
struct Answering<'r> {
    protocol: u8,
    replies: &'r mut Replies,
    /// Values still to be answered in the tables begun so far.
    owed: usize,
}

impl Answering<'_> {
    fn value(&mut self, value: &Value, depth: usize) {
        // An answer that is already cut short is not continued: a table that contains itself twice unfolds to 2²⁰⁰
        // tables.
        if self.replies.is_cut_short() {
            return;
        }
        match value {
            Value::Boolean(value) if self.protocol >= 3 => self.replies.boolean(*value),
            Value::Boolean(true) => self.replies.integer(1),
            Value::Integer(number) => self.replies.integer(*number),
            Value::Number(number) => self.replies.integer(truncated(*number)),
            Value::String(text) => self.replies.bulk(&text.as_bytes()),
            Value::Table(_) if depth > DEPTH_MAX => self.replies.error("ERR reached lua stack limit"),
            Value::Table(table) => self.table(table, depth),
            _ => self.replies.null(),
        }
    }

    /// Adds to the values still to be answered. A table that contains itself is counted at every depth, so the answer
    /// is cut short as soon as all of these values cannot fit.
    fn owe(&mut self, values: usize) {
        self.owed += values;
        self.replies.must_have_room(self.owed.saturating_mul(LEAST_BYTES));
    }

    /// Answers one of the values still to be answered. Returns false if the answer is cut short.
    fn owed(&mut self, value: &Value, depth: usize) -> bool {
        self.owed -= 1;
        self.value(value, depth + 1);
        !self.replies.is_cut_short()
    }

    fn table(&mut self, table: &Table, depth: usize) {
        if let Some(Value::String(error)) = field(table, "err") {
            return self.replies.error_bytes(&error.as_bytes());
        }
        if let Some(Value::String(status)) = field(table, "ok") {
            return self.replies.status_bytes(&status.as_bytes());
        }
        if let Some(number @ (Value::Number(_) | Value::Integer(_))) = field(table, "double") {
            return self.replies.double(&spelled(number_in(&number).unwrap_or(0.0), 17));
        }
        if let Some(Value::Table(map)) = field(table, "map") {
            // Iterated twice instead of collected: at every depth a list would take memory outside the script's
            // limit.
            let pairs = || map.pairs::<Value, Value>().flatten();
            let count = pairs().count();
            self.replies.map(count);
            self.owe(2 * count);
            let _ = pairs().all(|(key, value)| self.owed(&key, depth) && self.owed(&value, depth));
            return;
        }
        if let Some(Value::Table(set)) = field(table, "set") {
            let pairs = || set.pairs::<Value, Value>().flatten();
            let count = pairs().count();
            self.replies.set(count);
            self.owe(count);
            let _ = pairs().all(|(key, _)| self.owed(&key, depth));
            return;
        }
        if let Some(Value::String(number)) = field(table, "big_number") {
            return self.replies.big_number(&number.as_bytes());
        }
        if let Some(Value::Table(verbatim)) = field(table, "verbatim_string")
            && let Some(Value::String(text)) = field(&verbatim, "string")
            && let Some(Value::String(format)) = field(&verbatim, "format")
        {
            return self.replies.verbatim(&format.as_bytes(), &text.as_bytes());
        }
        let mut elements = 0;
        while table.raw_get::<Value>(elements + 1).is_ok_and(|value| !value.is_nil()) {
            elements += 1;
        }
        self.replies.array(elements);
        self.owe(elements);
        let _ = (1..=elements).all(|index| self.owed(&table.raw_get(index).unwrap_or(Value::Nil), depth));
    }
}

/// Converts like C: a number that does not fit becomes the lowest integer.
fn truncated(number: f64) -> i64 {
    // The lowest number that is too large is 2⁶³.
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

/// Returns the error text of a table with `err`.
pub(in crate::resp) fn error_of(table: &Table) -> Option<Vec<u8>> {
    text(field(table, "err"))
}
