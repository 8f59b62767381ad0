//! Errors between Lua and our Rust functions.
//!
//! A Rust function cannot raise a Lua value: it returns an error, which Lua carries as a value that scripts do not
//! know. Wherever a script catches an error, it is converted to the value that Redis would have raised: a text, or a
//! table with `err`.

use std::fmt;

use mlua::{Error, Lua, Value};

use crate::service::scripts::control::Stop;

/// An error that a Rust function raises.
#[derive(Clone, Debug)]
pub(in crate::resp) enum Raised {
    /// A table with this text, including the error code, as `err`.
    Reply(Vec<u8>),
    /// A text.
    Text(Vec<u8>),
    /// The script is stopped, and cannot catch the error.
    Stop(Stop),
}

impl fmt::Display for Raised {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Raised::Reply(text) | Raised::Text(text) => f.write_str(&String::from_utf8_lossy(text)),
            Raised::Stop(stop) => write!(f, "{stop:?}"),
        }
    }
}

impl std::error::Error for Raised {}

impl From<Raised> for Error {
    fn from(raised: Raised) -> Error {
        Error::external(raised)
    }
}

/// Lua's message for a failed allocation.
pub(in crate::resp) const NO_MEMORY: &[u8] = b"not enough memory";

/// The beginning of errors that Lua raises in `prelude.lua`.
pub(in crate::resp) const PRELUDE_PLACE: &[u8] = b"prelude:";

/// Returns an error with the text after the place in the script that called the current function, like Lua's own
/// functions. A function of `prelude.lua` between the two is skipped.
pub(in crate::resp) fn text(lua: &Lua, text: impl AsRef<[u8]>) -> Error {
    let place = |level| {
        lua.inspect_stack(level, |frame| {
            let name = frame.source().short_src.map(|name| name.into_owned()).unwrap_or_default();
            frame.current_line().map(|line| format!("{name}:{line}: "))
        })
    };
    let places = (1..).map_while(place).map(Option::unwrap_or_default);
    let mut of_scripts = places.skip_while(|place| place.as_bytes().starts_with(PRELUDE_PLACE));
    let mut bytes = of_scripts.next().unwrap_or_default().into_bytes();
    bytes.extend_from_slice(text.as_ref());
    Raised::Text(bytes).into()
}

/// Returns the error for an invalid argument. As in Lua, the function has the name by which the script calls it, and
/// the object of a method call is not counted.
pub(in crate::resp) fn bad_argument(lua: &Lua, index: usize, function: &str, why: &str) -> Error {
    let called = lua.inspect_stack(0, |frame| {
        let names = frame.names();
        (names.name.map(|name| name.into_owned()), names.name_what == Some("method"))
    });
    let (name, is_method) = called.unwrap_or_default();
    let function = name.as_deref().unwrap_or(function);
    let index = match (is_method, index) {
        (true, 1) => return text(lua, format!("calling '{function}' on bad self ({why})")),
        (true, index) => index.saturating_sub(1),
        _ => index,
    };
    text(lua, format!("bad argument #{index} to '{function}' ({why})"))
}

/// Returns the message for an argument of the wrong type.
pub(super) fn expected(wanted: &str, found: &Value) -> String {
    match found {
        Value::Nil => format!("{wanted} expected, got no value"),
        Value::Integer(_) => format!("{wanted} expected, got number"),
        other => format!("{wanted} expected, got {}", other.type_name()),
    }
}

/// Returns an error of the functions in the table `redis`.
pub(in crate::resp) fn reply(text: &str) -> Error {
    Raised::Reply(format!("ERR {text}").into_bytes()).into()
}

/// Returns the error that a Rust function raised, or the text of an error of Lua.
pub(in crate::resp) fn raised(error: &Error) -> Raised {
    match error {
        Error::CallbackError { cause, .. } => raised(cause),
        Error::WithContext { cause, .. } => raised(cause),
        Error::MemoryError(_) => Raised::Text(NO_MEMORY.to_vec()),
        Error::ExternalError(other) => match other.downcast_ref::<Raised>() {
            Some(raised) => raised.clone(),
            None => Raised::Text(other.to_string().into_bytes()),
        },
        Error::RuntimeError(text) => {
            // The traceback is removed: a script that caught the error would see it after the message.
            let end = text.find("\nstack traceback:").unwrap_or(text.len());
            Raised::Text(text.as_bytes()[..end].to_vec())
        }
        Error::SyntaxError { message, .. } => Raised::Text(message.clone().into_bytes()),
        other => Raised::Text(other.to_string().into_bytes()),
    }
}

/// Converts a raised value to the one that scripts see.
pub(in crate::resp) fn shown(lua: &Lua, value: Value) -> mlua::Result<Value> {
    let Value::Error(error) = value else { return Ok(value) };
    match raised(&error) {
        Raised::Reply(text) => error_table(lua, &text),
        Raised::Text(text) => Ok(Value::String(lua.create_string(text)?)),
        stop @ Raised::Stop(_) => Err(stop.into()),
    }
}

/// Returns the table that `redis.pcall` returns for an error.
pub(in crate::resp) fn error_table(lua: &Lua, text: &[u8]) -> mlua::Result<Value> {
    let table = lua.create_table_with_capacity(0, 2)?;
    table.raw_set("err", lua.create_string(text)?)?;
    table.raw_set("ignore_error_stats_update", true)?;
    Ok(Value::Table(table))
}
