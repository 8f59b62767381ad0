//! Creates interpreters: the functions that scripts may use, in read-only tables.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use mlua::state::{GcIncParams, GcMode};
use mlua::{Function, HookTriggers, Lua, LuaOptions, LuaString, MultiValue, StdLib, Table, Value, VmState};

use super::compile::Compiler;
use super::errors::{self, NO_MEMORY, Raised, bad_argument, expected};
use super::libs;
use super::to_reply::error_of;
use crate::service::scripts::control::Reins;
use crate::service::scripts::interpreter::{Held, Interpreter};

/// The chunk name of scripts in errors.
const CHUNK: &str = "@user_script";

/// The chunk name of `prelude.lua`.
const PRELUDE: &str = "=prelude";

/// Memory at which a collection begins, in percent of the memory after the last one. Garbage counts against the
/// script's limit until it is collected, so collections are early. They are later in a first attempt, which uses
/// little memory, and where running again with more costs little.
const PAUSE_PERCENT: i32 = 125;
const SHORT_PAUSE_PERCENT: i32 = 300;

/// Instructions between two checks of the reins by the hook.
const INSTRUCTIONS: u32 = 1000;

/// Instructions between two checks in a first attempt, which occupies a serving thread. Its 1 MiB of memory bounds
/// the time of each instruction.
const SHORT_INSTRUCTIONS: u32 = 100;

/// Instructions between two checks after a slow interval: one instruction may copy or compare strings of megabytes.
const SLOW_INSTRUCTIONS: u32 = 10;

/// Number of checks in a row, none of them after a slow interval, that end the checks every [`SLOW_INSTRUCTIONS`]. The kernel may
/// have run other threads in the slow interval.
const FAST_LOOKS: u32 = 100;

/// Time between two checks above which the interval counts as slow. A usual interval takes microseconds.
const SLOW: Duration = Duration::from_millis(1);

/// Lua functions that scripts may use, as in Redis. Some are replaced by our own.
const FUNCTIONS: [&str; 17] = [
    "assert",
    "error",
    "gcinfo",
    "getmetatable",
    "ipairs",
    "next",
    "pairs",
    "rawequal",
    "rawget",
    "select",
    "setmetatable",
    "tonumber",
    "tostring",
    "type",
    "unpack",
    "_VERSION",
    "collectgarbage",
];

/// The error that ended a script, for its answer.
#[derive(Debug, Default)]
pub(in crate::resp) struct Failure {
    pub(in crate::resp) text: Vec<u8>,
    /// The chunk and the line of the error.
    pub(in crate::resp) place: Option<(String, usize)>,
}

/// Creates an interpreter.
pub(in crate::resp) fn interpreter() -> mlua::Result<Interpreter> {
    let lua = Lua::new_with(StdLib::TABLE | StdLib::STRING | StdLib::MATH, LuaOptions::new())?;
    let held = Held::default();
    let prelude = Prelude::load(&lua, &held)?;
    let (globals, redis) = globals(&lua, &held, &prelude)?;
    let environment: Table = prelude.shield.call(globals.clone())?;
    globals.raw_set("_G", environment.clone())?;
    let of_lua: Function = lua.globals().raw_get("load")?;
    let compiler = Compiler { load: of_lua.clone(), environment: environment.clone() };
    for (name, strings) in [("loadstring", true), ("load", false)] {
        let (held, compiler) = (held.clone(), compiler.clone());
        let load = move |lua: &Lua, arguments| load(lua, &held, &compiler, strings, arguments);
        globals.raw_set(name, lua.create_function(load)?)?;
    }
    Ok(Interpreter::new(lua, held, [environment, redis], [of_lua, prelude.run, prelude.clean]))
}

/// The results of `prelude.lua`.
struct Prelude {
    /// Replacements of Lua functions.
    made: Table,
    /// Returns an empty table that gives read-only access to another one.
    shield: Function,
    run: Function,
    clean: Function,
    /// The table of the globals of scripts.
    globals: Table,
}

impl Prelude {
    fn load(lua: &Lua, held: &Held) -> mlua::Result<Prelude> {
        let (all, ours, globals) = (lua.globals(), lua.create_table()?, lua.create_table()?);
        ours.raw_set("caught", function(lua, held, caught)?)?;
        ours.raw_set("shown", function(lua, held, shown)?)?;
        ours.raw_set("failed", function(lua, held, failed)?)?;
        ours.raw_set("sort_failed", function(lua, held, libs::tables::sort_failed)?)?;
        ours.raw_set(
            "is_of_lua",
            function(lua, held, |_, _, value| {
                Ok(value.as_function().is_none_or(|function| function.info().what == "Lua"))
            })?,
        )?;
        ours.raw_set(
            "refuse_rawset",
            function(lua, held, |lua, _, value| {
                let why = expected("table", &value);
                refuse(errors::text(lua, format!("bad argument #1 to 'rawset' ({why})")))
            })?,
        )?;
        ours.raw_set(
            "refuse_resume",
            function(lua, held, |lua, _, _| {
                refuse(errors::text(lua, "bad argument #1 to 'resume' (coroutine expected)"))
            })?,
        )?;
        ours.raw_set("refuse_write", function(lua, held, |lua, _, _| refuse(errors::text(lua, READ_ONLY)))?)?;
        ours.raw_set(
            "refuse_raw_write",
            function(lua, held, |_, _, _| refuse(Raised::Text(READ_ONLY.as_bytes().to_vec()).into()))?,
        )?;
        let get = |name: &str| all.raw_get::<Function>(name);
        let resume = all.raw_get::<Table>("coroutine")?.raw_get("resume")?;
        let sort = all.raw_get::<Table>("table")?.raw_get("sort")?;
        let [pcall, xpcall, next, rawset, setmetatable, kind, error] =
            ["pcall", "xpcall", "next", "rawset", "setmetatable", "type", "error"].map(get);
        let theirs = [pcall?, xpcall?, resume, next?, rawset?, setmetatable?, sort, kind?, error?];
        let tables = [ours, globals.clone()].into_iter().map(Value::Table);
        let arguments: MultiValue = tables.chain(theirs.into_iter().map(Value::Function)).collect();
        let prelude = lua.load(include_str!("prelude.lua")).set_name(PRELUDE);
        let (made, shield, run, clean) = prelude.call(arguments)?;
        Ok(Prelude { made, shield, run, clean, globals })
    }
}

fn refuse(why: mlua::Error) -> mlua::Result<()> {
    Err(why)
}

/// Returns the table of the globals of scripts, and the table `redis` without its shield.
fn globals(lua: &Lua, held: &Held, prelude: &Prelude) -> mlua::Result<(Table, Table)> {
    let (all, globals) = (lua.globals(), prelude.globals.clone());
    for name in FUNCTIONS {
        globals.raw_set(name, all.raw_get::<Value>(name)?)?;
    }
    for name in ["pcall", "xpcall", "rawset"] {
        globals.raw_set(name, prelude.made.raw_get::<Function>(name)?)?;
    }
    let of_collection = held.clone();
    let collect = move |lua: &Lua, arguments| {
        // A collection takes milliseconds if a script uses megabytes.
        of_collection.get().check().map_err(Raised::Stop)?;
        collect_garbage(lua, arguments)
    };
    globals.raw_set("collectgarbage", lua.create_function(collect)?)?;
    let [string, math, table, coroutine] =
        ["string", "math", "table", "coroutine"].map(|name| all.raw_get(name));
    let (string, math, table, coroutine): (Table, Table, Table, Table) = (string?, math?, table?, coroutine?);
    coroutine.raw_set("resume", prelude.made.raw_get::<Function>("resume")?)?;
    libs::strings::install(lua, held, &string)?;
    libs::tables::install(lua, held, &table)?;
    table.raw_set("sort", prelude.made.raw_get::<Function>("sort")?)?;
    libs::numbers::install(lua, held, &globals)?;
    libs::random::install(lua, held, &math)?;
    let of_strings = lua.create_table()?;
    of_strings.raw_set("__index", &string)?;
    of_strings.raw_set("__metatable", false)?;
    lua.set_type_metatable::<LuaString>(Some(of_strings));
    let redis = libs::redis::table(lua, held)?;
    redis.raw_set("pcall", call_caught(lua, held, &redis)?)?;
    let libraries = [
        ("string", string),
        ("math", math),
        ("coroutine", coroutine),
        ("redis", redis.clone()),
        ("bit", libs::bit::table(lua)?),
        ("struct", libs::structs::table(lua, held)?),
        ("cjson", libs::cjson::table(lua, held)?),
        ("cmsgpack", libs::cmsgpack::table(lua, held)?),
    ];
    for (name, table) in libraries {
        globals.raw_set(name, prelude.shield.call::<Table>(table)?)?;
    }
    let tables: Table = prelude.shield.call(table)?;
    let (unknown, held, of_scripts) = (lua.create_table()?, held.clone(), globals.clone());
    let find = move |lua: &Lua, (_, name): (Value, Value)| {
        if name.as_string().is_some_and(|name| *name == TABLES) {
            held.note_tables();
            of_scripts.raw_set(TABLES, &tables)?;
            return Ok(tables.clone());
        }
        Err(unknown_global(lua, &name))
    };
    unknown.raw_set("__index", lua.create_function(find)?)?;
    globals.set_metatable(Some(unknown))?;
    Ok((globals, redis))
}

/// The library whose functions write into a table without calling its metamethods. A script that never used it has
/// left nothing in the tables that all scripts share. So it becomes a global only on first use, and cleaning removes
/// it again.
const TABLES: &str = "table";

fn unknown_global(lua: &Lua, name: &Value) -> mlua::Error {
    let name = match name {
        Value::String(name) => name.as_bytes().to_vec(),
        other => other.type_name().as_bytes().to_vec(),
    };
    errors::text(lua, [b"Script attempted to access nonexistent global variable '", &*name, b"'"].concat())
}

/// Removes everything that a script left in shared tables.
pub(in crate::resp) fn clean(interpreter: &Interpreter) -> mlua::Result<()> {
    if !interpreter.held.take_tables() {
        return Ok(());
    }
    interpreter.clean.call(())
}

const READ_ONLY: &str = "Attempt to modify a readonly table";

type Ours<R> = fn(&Lua, &Reins, Value) -> mlua::Result<R>;

fn function<R: mlua::IntoLuaMulti + 'static>(
    lua: &Lua,
    held: &Held,
    ours: Ours<R>,
) -> mlua::Result<Function> {
    let held = held.clone();
    lua.create_function(move |lua, value: Value| ours(lua, &held.get(), value))
}

/// `redis.pcall`: like `redis.call`, which is created for each run, but returns errors as answers.
fn call_caught(lua: &Lua, held: &Held, redis: &Table) -> mlua::Result<Function> {
    let (held, redis) = (held.clone(), redis.clone());
    lua.create_function(move |_, arguments: MultiValue| {
        let call = redis.raw_get::<Function>("call")?;
        held.catch_next(true);
        let answer = call.call::<Value>(arguments);
        // The call may have failed before it read the flag.
        held.catch_next(false);
        answer
    })
}

/// Lets a script run within the limits of its reins. `is_short`: first attempt.
pub(in crate::resp) fn take_reins(
    interpreter: &mut Interpreter,
    reins: &Arc<Reins>,
    is_short: bool,
) -> mlua::Result<()> {
    let Interpreter { lua, held, .. } = &*interpreter;
    held.set(reins.clone());
    held.looked_at(Some(Instant::now()));
    let is_other = interpreter.is_short != Some(is_short);
    if is_other {
        let percent = if is_short { SHORT_PAUSE_PERCENT } else { PAUSE_PERCENT };
        lua.gc_set_mode(GcMode::Incremental(GcIncParams::default().pause(percent)));
    }
    let was_slow = held.note_slow(false);
    if is_other || was_slow || held.is_over() {
        held.note_over(false);
        let usual = if is_short { SHORT_INSTRUCTIONS } else { INSTRUCTIONS };
        hook(lua, held, usual, usual)?;
    }
    interpreter.is_short = Some(is_short);
    Ok(())
}

/// Sets a hook that checks the reins every `instructions` instructions: usually every `usual`, and every [`SLOW_INSTRUCTIONS`] from a
/// slow interval until [`FAST_LOOKS`] intervals in a row were not slow. A stopped script could catch the error and continue, so from
/// then on every instruction raises it.
fn hook(lua: &Lua, held: &Held, instructions: u32, usual: u32) -> mlua::Result<()> {
    let (held, fast_looks) = (held.clone(), AtomicU32::new(0));
    lua.set_global_hook(HookTriggers::new().every_nth_instruction(instructions), move |lua, _| {
        let now = Instant::now();
        let before = held.looked_at(Some(now));
        if let Err(stop) = held.get().check_at(now) {
            if instructions > 1 {
                held.note_over(true);
                hook(lua, &held, 1, usual)?;
            }
            return Err(Raised::Stop(stop).into());
        }
        let is_slow = before.is_some_and(|before| now - before > SLOW);
        if instructions > SLOW_INSTRUCTIONS && is_slow {
            held.note_slow(true);
            hook(lua, &held, SLOW_INSTRUCTIONS, usual)?;
        } else if instructions == SLOW_INSTRUCTIONS {
            let looks = if is_slow { 0 } else { fast_looks.load(Ordering::Relaxed) + 1 };
            fast_looks.store(looks, Ordering::Relaxed);
            if looks == FAST_LOOKS {
                held.note_slow(false);
                hook(lua, &held, usual, usual)?;
            }
        }
        Ok(VmState::Continue)
    })
}

/// Compiles a script within the time of the interpreter's reins.
pub(in crate::resp) fn compile(interpreter: &Interpreter, body: Bytes) -> mlua::Result<Function> {
    let Interpreter { lua, held, load, environment, .. } = interpreter;
    let compiler = Compiler { load: load.clone(), environment: environment.clone() };
    compiler.compile(lua, &held.get(), body, lua.create_string(CHUNK)?)
}

/// Returns the value that a script catches by `pcall`: the text in `err` of a table, or the value itself.
fn caught(lua: &Lua, reins: &Reins, value: Value) -> mlua::Result<Value> {
    let value = shown(lua, reins, value)?;
    match value.as_table().and_then(error_of) {
        Some(text) => Ok(Value::String(lua.create_string(text)?)),
        None => Ok(value),
    }
}

/// Returns an error as scripts see it. Fails if the script is stopped.
fn shown(lua: &Lua, reins: &Reins, value: Value) -> mlua::Result<Value> {
    let value = errors::shown(lua, value)?;
    if value.as_string().is_some_and(|text| text.as_bytes() == NO_MEMORY) {
        reins.lacks_memory().map_err(Raised::Stop)?;
    }
    reins.check().map_err(Raised::Stop)?;
    Ok(value)
}

/// Records the error that ended a script, and its place. Runs at the place where the error was raised.
fn failed(lua: &Lua, _: &Reins, value: Value) -> mlua::Result<()> {
    let raised = match &value {
        Value::Error(error) => errors::raised(error),
        Value::Table(table) => {
            Raised::Reply(error_of(table).unwrap_or_else(|| b"ERR unknown error".to_vec()))
        }
        other => match lua.coerce_string(other.clone())? {
            Some(text) => Raised::Text(text.as_bytes().to_vec()),
            None => Raised::Text(other.to_string()?.into_bytes()),
        },
    };
    let text = match raised {
        Raised::Reply(text) => text,
        Raised::Text(text) => [b"ERR ", &*text].concat(),
        Raised::Stop(_) => Vec::new(),
    };
    let frame = |level| {
        lua.inspect_stack(level, |frame| {
            let source = frame.source();
            let name = source.source.map(|name| name.into_owned()).unwrap_or_default();
            (source.what == "C", name, frame.current_line().unwrap_or(0))
        })
    };
    let is_ours =
        |at: &Option<(bool, String, usize)>| at.as_ref().is_some_and(|(_, name, _)| name == PRELUDE);
    let mut level = if matches!(frame(1), Some((true, ..))) { 2 } else { 1 };
    while is_ours(&frame(level)) {
        level += 1;
    }
    let place = frame(level).map(|(_, name, line)| (name, line));
    lua.set_app_data(Failure { text, place });
    Ok(())
}

/// `collectgarbage`: scripts may collect and query the memory, but not turn the collector off.
fn collect_garbage(lua: &Lua, (what, _): (Option<LuaString>, Value)) -> mlua::Result<f64> {
    match what.as_ref().map(|what| what.as_bytes().to_vec()).as_deref() {
        None | Some(b"collect") => lua.gc_collect().map(|()| 0.0),
        Some(b"count") => Ok(lua.used_memory() as f64 / 1024.0),
        Some(b"step" | b"stop" | b"restart" | b"setpause" | b"setstepmul") => Ok(0.0),
        Some(other) => {
            let why = format!("invalid option '{}'", String::from_utf8_lossy(other));
            Err(bad_argument(lua, 1, "collectgarbage", &why))
        }
    }
}

/// `loadstring`, and `load` with a function that returns the text piece by piece. Compiled code is refused.
fn load(
    lua: &Lua,
    held: &Held,
    compiler: &Compiler,
    strings: bool,
    (from, name): (Value, Option<LuaString>),
) -> mlua::Result<(Value, Option<LuaString>)> {
    let mut text = Vec::new();
    let reins = held.get();
    match (&from, strings) {
        (Value::String(whole), true) => {
            reins.work(whole.as_bytes().len()).map_err(Raised::Stop)?;
            text = whole.as_bytes().to_vec();
        }
        (Value::Function(pieces), false) => {
            while let Some(piece) = pieces.call::<Option<LuaString>>(())? {
                if piece.as_bytes().is_empty() {
                    break;
                }
                if text.len() + piece.as_bytes().len() > reins.string_bytes_max() {
                    return Err(Raised::Text(NO_MEMORY.to_vec()).into());
                }
                reins.work(piece.as_bytes().len()).map_err(Raised::Stop)?;
                text.extend_from_slice(&piece.as_bytes());
            }
        }
        (Value::Integer(_) | Value::Number(_), true) => return Ok((Value::Nil, None)),
        (_, true) => return Err(bad_argument(lua, 1, "loadstring", &expected("string", &from))),
        (_, false) => return Err(bad_argument(lua, 1, "load", &expected("function", &from))),
    }
    let name = match (name, from) {
        (Some(name), _) | (None, Value::String(name)) => name,
        _ => lua.create_string("=(load)")?,
    };
    match compiler.compile(lua, &reins, text.into(), name) {
        Ok(function) => Ok((Value::Function(function), None)),
        Err(error) => match errors::raised(&error) {
            Raised::Text(text) | Raised::Reply(text) => Ok((Value::Nil, Some(lua.create_string(text)?))),
            stop @ Raised::Stop(_) => Err(stop.into()),
        },
    }
}
