//! Finds scripts by their digests, and compiles their texts.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use bytes::Bytes;

use super::lua::errors::{self, Raised};
use super::lua::{digest, sandbox};
use crate::base::turn::aside;
use crate::service::Service;
use crate::service::scripts::IDLE_BYTES;
use crate::service::scripts::cache::{Script, Sha};
use crate::service::scripts::control::{Reins, Stop};
use crate::service::scripts::interpreter::Interpreter;

/// The error for a script that was ended by the stop of the server.
pub(in crate::resp) const CLOSED: &str = "ERR Script ended: the server stops; nothing that the script wrote was kept, so send it again after the restart";

/// Time limit of a first attempt.
pub(super) const SHORT: Duration = Duration::from_millis(1);

/// Limit of the bytes of a script that a first attempt compiles: about as many as compile in [`SHORT`].
pub(super) const SHORT_BODY_BYTES: usize = 16 << 10;

/// Limit of the bytes of a script.
const BODY_BYTES_MAX: usize = 1 << 20;

/// Bytes of memory that compiling takes for each byte of a script.
pub(in crate::resp) const COMPILED_BYTES: usize = 32;

/// The error reply if there is no script.
pub(in crate::resp) struct Unknown(pub(in crate::resp) Vec<u8>);

/// The error for an unknown digest.
pub(super) const UNKNOWN: &[u8] = b"NOSCRIPT No matching script. Please use EVAL.";

/// Returns the digest in an argument.
pub(in crate::resp) fn digest_of(argument: &[u8]) -> Option<Sha> {
    argument.to_ascii_lowercase().try_into().ok()
}

/// Returns the script with a digest.
pub(super) fn by_digest(argument: &[u8], service: &Service) -> Result<Arc<Script>, Unknown> {
    let found = digest_of(argument).and_then(|sha| service.scripts.cache().get(&sha));
    found.ok_or_else(|| Unknown(UNKNOWN.to_vec()))
}

/// Returns the script with a text, and true if it is cached.
pub(super) fn by_body(body: &[u8], service: &Service) -> Result<(Arc<Script>, bool), Unknown> {
    let sha = digest(body);
    if let Some(script) = service.scripts.cache().get(&sha) {
        return Ok((script, true));
    }
    new_script(body, sha).map(|script| (Arc::new(script), false))
}

/// Checks the length of a text and its first line.
fn new_script(body: &[u8], sha: Sha) -> Result<Script, Unknown> {
    if body.len() > BODY_BYTES_MAX {
        let text = format!("ERR a script has at most {BODY_BYTES_MAX} bytes");
        return Err(Unknown(text.into_bytes()));
    }
    let flags = flags_of(body)?;
    Ok(Script {
        sha,
        body: Bytes::copy_from_slice(body),
        has_flags: flags.is_some(),
        is_read_only: flags == Some(true),
        is_long: AtomicBool::new(false),
    })
}

/// Compiles a text without a server, with the given time limit.
pub(in crate::resp) fn try_compile(body: &[u8], time: Duration) -> Result<(), Unknown> {
    let script = new_script(body, digest(body))?;
    let mut interpreter =
        sandbox::interpreter().map_err(|error| Unknown(format!("ERR {error}").into_bytes()))?;
    let reins: Arc<Reins> = Arc::default();
    reins.begin(Instant::now() + time, COMPILED_BYTES * body.len() + IDLE_BYTES, false);
    sandbox::take_reins(&mut interpreter, &reins, false).map_err(|error| refused(&error))?;
    let outcome = compile(&mut interpreter, &script).map(drop);
    match reins.stopped() {
        Some(stop) => Err(Unknown(stop_text(stop, time).into_bytes())),
        None => outcome,
    }
}

/// Compiles a text on trial and returns its script. A text that takes longer than a first attempt is compiled beside
/// the serving threads, in a slot for long-running scripts.
pub(in crate::resp) async fn compiled(body: &[u8], service: &Service) -> Result<Arc<Script>, Unknown> {
    let (script, known) = by_body(body, service)?;
    if known {
        return Ok(script);
    }
    if body.len() <= SHORT_BODY_BYTES {
        let reins = Arc::default();
        let outcome = compile_until(Instant::now() + SHORT, &script, &reins, service);
        if reins.stopped().is_none() {
            return outcome.map(|()| script);
        }
    }
    let running = service.scripts.long_turn().await;
    let time = service.config.limits.script_time;
    let outcome = aside(false, || compile_until(Instant::now() + time, &script, running.reins(), service));
    match running.reins().stopped() {
        Some(stop) => Err(Unknown(stop_text(stop, time).into_bytes())),
        None => outcome.map(|()| script),
    }
}

fn compile_until(
    until: Instant,
    script: &Script,
    reins: &Arc<Reins>,
    service: &Service,
) -> Result<(), Unknown> {
    let mut interpreter = interpreter(service)?;
    let memory = COMPILED_BYTES * script.body.len() + IDLE_BYTES;
    reins.begin(until, memory, false);
    let outcome =
        sandbox::take_reins(&mut interpreter, reins, false).map_err(|error| refused(&error)).and_then(|()| {
            let _ = interpreter.lua.set_memory_limit(interpreter.lua.used_memory() + memory);
            compile(&mut interpreter, script)
        });
    give_back(interpreter, service);
    outcome.map(drop)
}

/// Returns an idle or new interpreter.
pub(super) fn interpreter(service: &Service) -> Result<Interpreter, Unknown> {
    match service.scripts.take_idle() {
        Some(interpreter) => Ok(interpreter),
        None => sandbox::interpreter().map_err(|error| Unknown(format!("ERR {error}").into_bytes())),
    }
}

/// Cleans an interpreter and returns it to the idle ones, unless it is too large even after a collection.
pub(super) fn give_back(mut interpreter: Interpreter, service: &Service) {
    let lua = &interpreter.lua;
    let _ = lua.set_memory_limit(0);
    // An interpreter whose script was stopped is not reused.
    if interpreter.held.is_over() || sandbox::clean(&interpreter).is_err() {
        return;
    }
    if lua.used_memory() > IDLE_BYTES {
        // The last script's arguments are held until `clean`.
        if interpreter.clean.call::<()>(()).is_err() {
            return;
        }
        interpreter.forget_compiled();
        let lua = &interpreter.lua;
        lua.expire_registry_values();
        if lua.gc_collect().is_err() || lua.used_memory() > IDLE_BYTES {
            return;
        }
    }
    service.scripts.give_back(interpreter);
}

/// Returns a script as a function of an interpreter.
pub(super) fn compile(interpreter: &mut Interpreter, script: &Script) -> Result<mlua::Function, Unknown> {
    if let Some(function) = interpreter.compiled(&script.sha) {
        return Ok(function);
    }
    // The shebang line is not Lua code, but counts as a line.
    let end = if script.has_flags { memchr::memchr(b'\n', &script.body).unwrap_or(0) } else { 0 };
    let function =
        sandbox::compile(interpreter, script.body.slice(end..)).map_err(|error| refused(&error))?;
    interpreter.keep_compiled(script.sha, function.clone());
    Ok(function)
}

fn refused(error: &mlua::Error) -> Unknown {
    let why = match errors::raised(error) {
        Raised::Text(text) | Raised::Reply(text) => text,
        Raised::Stop(_) => errors::NO_MEMORY.to_vec(),
    };
    Unknown([b"ERR Error compiling script (new function): ", &*why].concat())
}

/// Returns true if the shebang line declares `no-writes`, or `None` if there is no shebang.
fn flags_of(body: &[u8]) -> Result<Option<bool>, Unknown> {
    if !body.starts_with(b"#!") {
        return Ok(None);
    }
    let unknown = |what: &str, word: &[u8]| {
        let mut text = format!("ERR {what}").into_bytes();
        text.extend_from_slice(word);
        Unknown(text)
    };
    let Some(end) = memchr::memchr(b'\n', body) else { return Err(unknown("Invalid script shebang", b"")) };
    let mut words = body[..end].split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
    match words.next() {
        Some(b"#!lua") => {}
        other => return Err(unknown("Unexpected engine in script shebang: ", other.unwrap_or_default())),
    }
    let mut is_read_only = false;
    for word in words {
        let Some(flags) = word.strip_prefix(b"flags=") else {
            return Err(unknown("Unknown lua shebang option: ", word));
        };
        for flag in flags.split(|byte| *byte == b',').filter(|flag| !flag.is_empty()) {
            match flag {
                b"no-writes" => is_read_only = true,
                b"allow-oom" | b"allow-stale" | b"no-cluster" | b"allow-cross-slot-keys" => {}
                other => return Err(unknown("Unexpected flag in script shebang: ", other)),
            }
        }
    }
    Ok(Some(is_read_only))
}

/// Returns the error for a script that was stopped. `time`: the limit of its time.
pub(super) fn stop_text(stop: Stop, time: Duration) -> String {
    match stop {
        Stop::Time => format!("ERR Script ended: it ran for more than {time:?} (script-time-limit)"),
        Stop::Memory => "ERR Script ended: it took too much memory (script-memory)".to_owned(),
        Stop::Killed => "ERR Script killed by user with SCRIPT KILL...".to_owned(),
        Stop::Elsewhere => "ERR Script ended: it is run again".to_owned(),
        Stop::Shutdown => CLOSED.to_owned(),
    }
}
