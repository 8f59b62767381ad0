//! Errors between Lua and the functions that we give it.
//!
//! A function of ours cannot raise any value of Lua: it returns an error, which Lua carries as a value that scripts know
//! nothing of. Wherever a script catches errors, that is made what Redis would have raised: a text, or a table with `err`.

use std::fmt;

use mlua::{Error, Lua, Value};

use crate::service::scripts::control::Stop;

/// What a function of ours raises.
#[derive(Clone, Debug)]
pub(in crate::resp) enum Raised {
    /// A table with this text as `err`, code and all.
    Reply(Vec<u8>),
    /// A text.
    Text(Vec<u8>),
    /// The script is over, and cannot catch that.
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

/// What Lua says where it has no memory.
pub(in crate::resp) const NO_MEMORY: &[u8] = b"not enough memory";

/// How errors begin that Lua raises in `prelude.lua`.
pub(in crate::resp) const PRELUDE_PLACE: &[u8] = b"prelude:";

/// A text behind the place in the script that called the function at hand, as Lua's own functions raise it. A function of
/// `prelude.lua` between the two is not shown.
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

/// An argument that a function does not take. As in Lua, the function has the name by which the script calls it, and the value
/// before the colon of a method is not counted.
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

/// That an argument is of another type than it should be.
pub(super) fn expected(wanted: &str, found: &Value) -> String {
    match found {
        Value::Nil => format!("{wanted} expected, got no value"),
        Value::Integer(_) => format!("{wanted} expected, got number"),
        other => format!("{wanted} expected, got {}", other.type_name()),
    }
}

/// An error of the functions in the table `redis`.
pub(in crate::resp) fn reply(text: &str) -> Error {
    Raised::Reply(format!("ERR {text}").into_bytes()).into()
}

/// What was raised, if it was by us.
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
            // Who called a function of the script from here sees where it failed behind what it said.
            let end = text.find("\nstack traceback:").unwrap_or(text.len());
            Raised::Text(text.as_bytes()[..end].to_vec())
        }
        Error::SyntaxError { message, .. } => Raised::Text(message.clone().into_bytes()),
        other => Raised::Text(other.to_string().into_bytes()),
    }
}

/// A value that was raised, as scripts see it.
pub(in crate::resp) fn shown(lua: &Lua, value: Value) -> mlua::Result<Value> {
    let Value::Error(error) = value else { return Ok(value) };
    match raised(&error) {
        Raised::Reply(text) => error_table(lua, &text),
        Raised::Text(text) => Ok(Value::String(lua.create_string(text)?)),
        stop @ Raised::Stop(_) => Err(stop.into()),
    }
}

/// The table that `redis.pcall` returns for an error.
pub(in crate::resp) fn error_table(lua: &Lua, text: &[u8]) -> mlua::Result<Value> {
    let table = lua.create_table_with_capacity(0, 2)?;
    table.raw_set("err", lua.create_string(text)?)?;
    table.raw_set("ignore_error_stats_update", true)?;
    Ok(Value::Table(table))
}
