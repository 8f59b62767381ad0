//! Compiles the text of a script within the script's time.
//!
//! Lua 5.1 compiles a text in one call that no hook interrupts, and its cost is not linear in the length of the text:
//! 1. It links the jumps of `break`, `elseif`, `and` and `or` into lists and walks a list from its beginning for each
//!    further jump. The number of these words is therefore limited ([`JUMPS_MAX`]), and a text with more is not
//!    compiled.
//! 2. It compares each name with the locals of all enclosing functions, and a string with all strings of the same
//!    hash. Lua therefore gets the text in pieces of [`PIECE_BYTES`], and the reins are checked before each piece. A
//!    first attempt ends after its millisecond, and the script runs again beside the serving threads.

use std::sync::Arc;

use bytes::Bytes;
use memchr::memmem;
use mlua::{Function, Lua, LuaString, Table, Value};

use super::errors::Raised;
use crate::service::scripts::control::Reins;

/// Limit of the jumps of one text. Scripts of job queues have some tens. 8,192 `break`s in one list take 87 ms to
/// compile (SCRIPT LOAD in redis-server 7.0.15), so half as many take a quarter of that: 22 ms, about as long as 1
/// MiB of assignments (27 ms).
const JUMPS_MAX: usize = 4096;

/// Bytes that Lua compiles between two checks of the reins: 10 to 20 µs for a typical text.
const PIECE_BYTES: usize = 256;

/// The first byte of compiled code, which a script must not pass as a text.
const SIGNATURE: u8 = 0x1b;

/// Compiles texts in the environment of scripts.
#[derive(Clone)]
pub(super) struct Compiler {
    /// Lua's own `load`, which reads a text from a function.
    pub(super) load: Function,
    /// The globals of the compiled text.
    pub(super) environment: Table,
}

impl Compiler {
    /// Compiles a text as a function. Errors name `chunk` as Lua shows it. Fails with [`Raised::Stop`] if the
    /// script's time ends meanwhile, and with [`Raised::Text`] if the text is not a valid program or has more than
    /// [`JUMPS_MAX`] jumps.
    pub(super) fn compile(
        &self,
        lua: &Lua,
        reins: &Arc<Reins>,
        text: Bytes,
        chunk: LuaString,
    ) -> mlua::Result<Function> {
        reins.work(text.len()).map_err(Raised::Stop)?;
        if text.first() == Some(&SIGNATURE) {
            return Err(refused("attempt to load a binary chunk (mode is 't')"));
        }
        let jumps = count_jumps(&text);
        if jumps > JUMPS_MAX {
            return Err(refused(&format!(
                "the script has {jumps} of the words 'and', 'break', 'elseif' and 'or', more than {JUMPS_MAX}: split it into \
                 several scripts, or look cases up in a table"
            )));
        }
        let (of_reader, mut at) = (reins.clone(), 0);
        let reader = lua.create_function_mut(move |lua, ()| {
            of_reader.check().map_err(Raised::Stop)?;
            let piece = &text[at..text.len().min(at + PIECE_BYTES)];
            at += piece.len();
            if piece.is_empty() { Ok(None) } else { lua.create_string(piece).map(Some) }
        })?;
        match self.load.call((reader, chunk))? {
            (Value::Function(function), _) => {
                function.set_environment(self.environment.clone())?;
                Ok(function)
            }
            (_, Value::Error(error)) => Err(*error),
            (_, Value::String(why)) => Err(Raised::Text(why.as_bytes().to_vec()).into()),
            _ => Err(refused("the script cannot be compiled")),
        }
    }
}

fn refused(why: &str) -> mlua::Error {
    Raised::Text(why.as_bytes().to_vec()).into()
}

/// Counts the words `and`, `break`, `elseif` and `or` outside of strings and comments. In a text that Lua refuses
/// in the middle, words after that place may be missed, which is harmless: Lua does not compile them.
fn count_jumps(text: &[u8]) -> usize {
    let (mut at, mut jumps) = (0, 0);
    while let Some(&byte) = text.get(at) {
        let rest = &text[at..];
        at += match byte {
            b'-' if rest.starts_with(b"--") => comment_bytes(rest),
            b'[' => long_bracket_bytes(rest).unwrap_or(1),
            b'"' | b'\'' => string_bytes(rest),
            b'0'..=b'9' => word_bytes(rest, |byte| byte == b'.'),
            b'A'..=b'Z' | b'a'..=b'z' | b'_' => {
                let bytes = word_bytes(rest, |_| false);
                jumps += usize::from(matches!(&rest[..bytes], b"and" | b"break" | b"elseif" | b"or"));
                bytes
            }
            _ => 1,
        };
    }
    jumps
}

fn word_bytes(text: &[u8], also: impl Fn(u8) -> bool) -> usize {
    let is_of_word = |byte: &&u8| byte.is_ascii_alphanumeric() || **byte == b'_' || also(**byte);
    text.iter().take_while(is_of_word).count()
}

fn comment_bytes(text: &[u8]) -> usize {
    match long_bracket_bytes(&text[2..]) {
        Some(bytes) => 2 + bytes,
        None => memchr::memchr2(b'\n', b'\r', text).unwrap_or(text.len()),
    }
}

/// Returns the bytes of `[==[…]==]`, if the text begins with one. An unterminated one extends to the end of the text.
fn long_bracket_bytes(text: &[u8]) -> Option<usize> {
    let level = text.strip_prefix(b"[")?.iter().take_while(|byte| **byte == b'=').count();
    if text.get(1 + level) != Some(&b'[') {
        return None;
    }
    let end = [b"]", &*vec![b'='; level], b"]"].concat();
    let from = level + 2;
    Some(memmem::find(&text[from..], &end).map_or(text.len(), |at| from + at + end.len()))
}

fn string_bytes(text: &[u8]) -> usize {
    let mut at = 1;
    while let Some(&byte) = text.get(at) {
        match byte {
            b'\\' => at += 2,
            _ if byte == text[0] => return at + 1,
            _ => at += 1,
        }
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jump_words_are_counted_outside_of_strings_and_comments() {
        for (text, jumps) in [
            ("", 0),
            ("return a and b or c", 2),
            ("if a then elseif b then end while true do break end", 2),
            ("local band, _or, and1 = 1 return t.oriental", 0),
            ("return 'a and b' .. \"or \\\" or\" .. 'x\\\\' or 1", 1),
            ("-- and or\nreturn a or b --[[ or\nor ]] or c --[==[ or ]] or ]==] or d -- or", 3),
            ("return [[ or ]] or [=[ or ]] or ]=] or t[1] or t[ [[or]] ]", 3),
            ("return 1 or 0x1f or 1e5or", 2),
            ("return 'without an end or", 0),
            ("return [[ without an end or", 0),
            ("return 'x\\\nor' or 2", 1),
        ] {
            assert_eq!(count_jumps(text.as_bytes()), jumps, "{text}");
        }
    }

    /// Compiles a text in a new interpreter, with a time limit.
    fn compile(text: String, until: std::time::Instant) -> Result<(), Raised> {
        let lua = Lua::new();
        let reins = Arc::new(Reins::default());
        reins.begin(until, 1 << 20, false);
        let compiler = Compiler { load: lua.globals().raw_get("load").unwrap(), environment: lua.globals() };
        let chunk = lua.create_string("@user_script").unwrap();
        compiler
            .compile(&lua, &reins, text.into(), chunk)
            .map(drop)
            .map_err(|error| super::super::errors::raised(&error))
    }

    fn later() -> std::time::Instant {
        std::time::Instant::now() + std::time::Duration::from_secs(3600)
    }

    #[test]
    fn text_with_many_jumps_is_refused_with_the_limit() {
        let breaks = |count| format!("while true do {}end", "do break end ".repeat(count));
        assert!(compile(breaks(JUMPS_MAX), later()).is_ok());
        let Err(Raised::Text(why)) = compile(breaks(JUMPS_MAX + 1), later()) else {
            panic!("the text must be refused")
        };
        let why = String::from_utf8(why).unwrap();
        assert!(why.contains("4097") && why.contains("more than 4096") && why.contains("split"), "{why}");
    }

    #[test]
    fn compiling_ends_with_the_time_of_the_script() {
        // The reader is called for a second piece only after the first one, whatever the first costs.
        let text = "local a = 1 ".repeat(100);
        assert!(matches!(compile(text, std::time::Instant::now()), Err(Raised::Stop(_))));
    }

    #[test]
    fn pieces_make_the_same_program() {
        let text = format!("return '{}'", "x".repeat(10 * PIECE_BYTES));
        assert!(compile(text, later()).is_ok());
        let Err(Raised::Text(why)) = compile("\n\nreturn return".to_owned(), later()) else { panic!() };
        assert_eq!(String::from_utf8_lossy(&why), "user_script:3: unexpected symbol near 'return'");
        let Err(Raised::Text(why)) = compile("\x1bLua".to_owned(), later()) else { panic!() };
        assert!(String::from_utf8_lossy(&why).contains("binary chunk"));
    }
}
