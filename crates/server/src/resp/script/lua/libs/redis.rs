//! The table `redis`, without the functions that call commands.

use std::sync::Arc;

use mlua::{Lua, Table, Value, Variadic};
use sha1::{Digest, Sha1};

use super::{add, number_in, spelled};
use crate::resp::script::lua::errors::{Raised, error_table, reply};
use crate::resp::version::{REDIS_VERSION, REDIS_VERSION_NUMBER};
use crate::service::scripts::control::Reins;
use crate::service::scripts::interpreter::Held;

/// Log levels.
const LEVELS: [&str; 4] = ["debug", "verbose", "notice", "warning"];

/// Limit of the bytes of a line that a script logs.
const LOGGED_BYTES_MAX: usize = 1024;

pub(in crate::resp::script::lua) fn table(lua: &Lua, held: &Held) -> mlua::Result<Table> {
    let redis = lua.create_table()?;
    let names = ["LOG_DEBUG", "LOG_VERBOSE", "LOG_NOTICE", "LOG_WARNING"];
    for (level, name) in names.into_iter().enumerate() {
        redis.raw_set(name, level)?;
    }
    let targets =
        [("REPL_NONE", 0), ("REPL_AOF", 1), ("REPL_SLAVE", 2), ("REPL_REPLICA", 2), ("REPL_ALL", 3)];
    for (name, target) in targets {
        redis.raw_set(name, target)?;
    }
    redis.raw_set("REDIS_VERSION", REDIS_VERSION)?;
    redis.raw_set("REDIS_VERSION_NUM", REDIS_VERSION_NUMBER)?;
    add(lua, held, &redis, "sha1hex", sha1hex)?;
    add(lua, held, &redis, "error_reply", error_reply)?;
    add(lua, held, &redis, "status_reply", status_reply)?;
    add(lua, held, &redis, "log", log)?;
    add(lua, held, &redis, "setresp", set_protocol)?;
    add(lua, held, &redis, "set_repl", set_replication)?;
    add(lua, held, &redis, "replicate_commands", |_, _, _: Variadic<Value>| Ok(true))?;
    Ok(redis)
}

/// Returns the SHA-1 digest of a text, in hexadecimal.
pub(in crate::resp) fn digest(text: &[u8]) -> [u8; 40] {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digest = Sha1::digest(text);
    std::array::from_fn(|at| DIGITS[usize::from(digest[at / 2] >> (4 * (1 - at % 2)) & 15)])
}

fn bytes_of(value: &Value) -> Vec<u8> {
    match value {
        Value::String(text) => text.as_bytes().to_vec(),
        Value::Integer(number) => spelled(*number as f64, 14).into_bytes(),
        Value::Number(number) => spelled(*number, 14).into_bytes(),
        _ => Vec::new(),
    }
}

fn sha1hex(lua: &Lua, reins: &Arc<Reins>, arguments: Variadic<Value>) -> mlua::Result<Value> {
    let [text] = &arguments[..] else { return Err(reply("wrong number of arguments")) };
    let text = bytes_of(text);
    reins.work(text.len()).map_err(Raised::Stop)?;
    Ok(Value::String(lua.create_string(digest(&text))?))
}

const WRONG_ARGUMENTS: &[u8] = b"ERR wrong number or type of arguments";

fn error_reply(lua: &Lua, _: &Arc<Reins>, arguments: Variadic<Value>) -> mlua::Result<Value> {
    let [Value::String(text)] = &arguments[..] else { return error_table(lua, WRONG_ARGUMENTS) };
    let text = text.as_bytes();
    let text = text.strip_prefix(b"-").unwrap_or(&text);
    let end = text.iter().rposition(|byte| !b"\r\n".contains(byte)).map_or(0, |last| last + 1);
    // A text without an error code gets the default code.
    let code: &[u8] = if text.contains(&b' ') { b"" } else { b"ERR " };
    error_table(lua, &[code, &text[..end]].concat())
}

fn status_reply(lua: &Lua, _: &Arc<Reins>, arguments: Variadic<Value>) -> mlua::Result<Value> {
    let [text @ Value::String(_)] = &arguments[..] else { return error_table(lua, WRONG_ARGUMENTS) };
    let table = lua.create_table()?;
    table.raw_set("ok", text)?;
    Ok(Value::Table(table))
}

/// Messages of scripts are logged only at level debug, because otherwise any client could fill the log.
fn log(_: &Lua, _: &Arc<Reins>, arguments: Variadic<Value>) -> mlua::Result<()> {
    let [level, words @ ..] = &arguments[..] else {
        return Err(reply("redis.log() requires two arguments or more."));
    };
    if words.is_empty() {
        return Err(reply("redis.log() requires two arguments or more."));
    }
    let Some(level) = number_in(level) else {
        return Err(reply("First argument must be a number (log level)."));
    };
    let Some(level) = LEVELS.get(if level < 0.0 { usize::MAX } else { level as usize }) else {
        return Err(reply("Invalid debug level."));
    };
    if tracing::enabled!(tracing::Level::DEBUG) {
        tracing::debug!(level, "message of a script: {}", line(words).escape_ascii());
    }
    Ok(())
}

/// Returns the words as a line to be logged. Excess bytes are not copied, because they might exceed the memory: the
/// same long string may occur very often among the words.
fn line(words: &[Value]) -> Vec<u8> {
    let mut line = Vec::with_capacity(LOGGED_BYTES_MAX);
    for (at, word) in words.iter().enumerate() {
        if line.len() == LOGGED_BYTES_MAX {
            break;
        }
        if at > 0 {
            line.push(b' ');
        }
        let room = LOGGED_BYTES_MAX - line.len();
        match word {
            Value::String(text) => line.extend(text.as_bytes().iter().take(room)),
            other => line.extend(bytes_of(other).iter().take(room)),
        }
    }
    line
}

fn set_protocol(_: &Lua, reins: &Arc<Reins>, arguments: Variadic<Value>) -> mlua::Result<()> {
    let [version] = &arguments[..] else { return Err(reply("redis.setresp() requires one argument.")) };
    match number_in(version).map(|version| version as i64) {
        Some(version @ 2..=3) => {
            reins.protocol.store(version as u8, std::sync::atomic::Ordering::Relaxed);
            Ok(())
        }
        _ => Err(reply("RESP version must be 2 or 3.")),
    }
}

/// Without effect: there is no replication.
fn set_replication(_: &Lua, _: &Arc<Reins>, arguments: Variadic<Value>) -> mlua::Result<()> {
    match &arguments[..] {
        [target] if number_in(target).is_some_and(|target| (0.0..4.0).contains(&target)) => Ok(()),
        [_] => Err(reply("Invalid replication flags. Use REPL_AOF, REPL_REPLICA, REPL_ALL or REPL_NONE.")),
        _ => Err(reply("redis.set_repl() requires two arguments.")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn script_log_line_is_cut_without_copying_the_rest() {
        let lua = Lua::new();
        let word = |text: &[u8]| Value::String(lua.create_string(text).unwrap());
        assert_eq!(line(&[word(b"a"), Value::Integer(1), Value::Nil, word(b"b")]), b"a 1  b");
        let long = word(&[b'x'; 1 << 20]);
        for words in [vec![long.clone(); 50], vec![word(b"x"); 2000]] {
            let line = line(&words);
            assert!(line.starts_with(b"x"));
            assert_eq!((line.len(), line.capacity()), (LOGGED_BYTES_MAX, LOGGED_BYTES_MAX));
        }
    }
}
