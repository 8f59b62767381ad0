//! Finds the names of commands in source code.
//!
//! A name counts in three places:
//! 1. as the first argument of a function that runs a command, in any language: `redis.call('GET'`, `cmd("HSET")`,
//!    `execute_command("HSET"`, `Do(ctx, "HSET"`;
//! 2. as a word of capitals in quotes: `"HSET"`;
//! 3. as a method, `.hset(`, in a file that mentions Redis or Valkey, unless it is an everyday word such as `sort`.
//!
//! Lua files are compiled as scripts too.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use esker_server::served::{Caller, command_names};

use super::report::{At, Report};
use super::script;
use crate::terminal::Failure;

/// Longest file that is read, in bytes. Longer ones are generated or data.
const FILE_BYTES_MAX: u64 = 4 << 20;

/// Bytes between a function's name and the name of the command in its arguments.
const ARGUMENTS_BYTES: usize = 48;

/// Directories of tools and of the code of others.
const SKIPPED: [&str; 9] = [
    "node_modules",
    "target",
    "vendor",
    "third_party",
    "dist",
    "build",
    "venv",
    "site-packages",
    "__pycache__",
];

/// Endings of files with code.
const ENDINGS: [&str; 31] = [
    "c", "cc", "clj", "cpp", "cs", "cxx", "dart", "erl", "ex", "exs", "fs", "go", "groovy", "h", "hpp",
    "java", "js", "jsx", "kt", "lua", "mjs", "ml", "php", "pl", "py", "rb", "rs", "scala", "swift", "ts",
    "tsx",
];

/// Functions whose first text is the name of a command.
const RUNS: [&str; 9] = [
    "execute_command",
    "sendcommand",
    "send_command",
    "executecommand",
    "rawcommand",
    ".call",
    ".do",
    "cmd",
    ".b().arbitrary",
];

/// Methods that objects of other kinds have too; most are served anyway.
const EVERYDAY: [&str; 5] = ["sort", "sync", "readonly", "readwrite", "asking"];

/// Reads a file, or all files of code below a directory.
///
/// # Errors
/// If the path cannot be read, has no file of code, or its files name no command.
pub(super) fn read(path: &Path, report: &mut Report) -> Result<(), Failure> {
    let mut files = Vec::new();
    match path.is_dir() {
        true => files_below(path, &mut files)?,
        false => files.push(path.to_owned()),
    }
    if files.is_empty() {
        let endings = ENDINGS.join(", ");
        return Err(Failure::Usage(format!(
            "{} has no file of code: none ends in {endings}",
            path.display()
        )));
    }
    files.sort();
    let mut found = false;
    for file in &files {
        found |= read_file(file, report)?;
    }
    match found {
        true => Ok(()),
        false => Err(Failure::Usage(format!(
            "{} names no command in {} files of code; give the directory of the code that calls Redis, or output of MONITOR",
            path.display(),
            files.len()
        ))),
    }
}

/// Returns true for a file whose name ends like one of code.
pub(super) fn is_code(path: &Path) -> bool {
    ending(path).is_some_and(|ending| ENDINGS.contains(&ending.as_str()))
}

/// Returns the ending of a file's name in lower case.
fn ending(path: &Path) -> Option<String> {
    path.extension().map(|ending| ending.to_string_lossy().to_ascii_lowercase())
}

/// Collects the files of code; links are not followed.
fn files_below(directory: &Path, files: &mut Vec<PathBuf>) -> Result<(), Failure> {
    let cannot = |path: &Path, error| Failure::Usage(format!("cannot read {}: {error}", path.display()));
    for entry in fs::read_dir(directory).map_err(|error| cannot(directory, error))? {
        let entry = entry.map_err(|error| cannot(directory, error))?;
        let (path, name) = (entry.path(), entry.file_name().to_string_lossy().into_owned());
        let kind = entry.file_type().map_err(|error| cannot(&path, error))?;
        if kind.is_dir() && !name.starts_with('.') && !SKIPPED.contains(&name.as_str()) {
            files_below(&path, files)?;
        } else if kind.is_file() && is_code(&path) {
            files.push(path);
        }
    }
    Ok(())
}

/// Returns true if the file names a command.
fn read_file(path: &Path, report: &mut Report) -> Result<bool, Failure> {
    let name = path.display().to_string();
    let cannot = |error| Failure::Usage(format!("cannot read {name}: {error}"));
    if fs::metadata(path).map_err(cannot)?.len() > FILE_BYTES_MAX {
        report.skipped();
        return Ok(false);
    }
    let text = fs::read(path).map_err(cannot)?;
    report.file();
    let is_lua = ending(path).is_some_and(|ending| ending == "lua");
    if is_lua && !script::named(&text).is_empty() {
        report.script(&text, At::File { name: &name });
        return Ok(true);
    }
    let (mentions, mut found) = (is_about_redis(&text), false);
    for (number, line) in (1..).zip(text.split(|byte| *byte == b'\n')) {
        for (word, caller) in named_in(line, mentions) {
            report.name(&word, 1, caller, At::Line { name: &name, number });
            found = true;
        }
    }
    Ok(found)
}

fn is_about_redis(text: &[u8]) -> bool {
    let lower = text.to_ascii_lowercase();
    let has = |word: &[u8]| lower.windows(word.len()).any(|part| part == word);
    [&b"redis"[..], b"valkey", b"lettuce", b"stackexchange"].into_iter().any(has)
}

/// Returns the commands that a line names.
fn named_in(line: &[u8], mentions_redis: bool) -> Vec<(String, Caller<'static>)> {
    let of_scripts = script::named(line);
    let mut found: Vec<_> =
        of_scripts.iter().map(|(_, name)| ((*name).to_owned(), Caller::Script(None))).collect();
    let text = String::from_utf8_lossy(line);
    let mut add = |name: String| {
        if !found.iter().any(|(known, _)| known.eq_ignore_ascii_case(&name)) {
            found.push((name, Caller::Client));
        }
    };
    for (before, word) in in_quotes(&text) {
        let is_capitals = word.bytes().all(|byte| byte.is_ascii_uppercase() || b"_.".contains(&byte));
        if runs_command(before) || (is_capitals && mentions_redis) {
            known(word).into_iter().for_each(&mut add);
        }
    }
    if mentions_redis {
        methods(&text).filter_map(known).filter(|name| !EVERYDAY.contains(&name.as_str())).for_each(&mut add);
    }
    found
}

/// Returns the words in quotes, each with the text before it on the line.
fn in_quotes(text: &str) -> impl Iterator<Item = (&str, &str)> {
    text.match_indices(['"', '\''])
        .filter_map(|(at, _)| Some((&text[..at], script::first_word(&text.as_bytes()[at..])?)))
}

/// Returns true if a text ends with the call of a function that runs a command, up to its first text.
fn runs_command(before: &str) -> bool {
    let from = before.len().saturating_sub(ARGUMENTS_BYTES);
    let Some(tail) = (from..=before.len()).find_map(|at| before.get(at..)) else { return false };
    let Some((function, arguments)) = tail.rsplit_once('(') else { return false };
    let function = function.trim_end().to_ascii_lowercase();
    RUNS.iter().any(|name| function.ends_with(name)) && !arguments.contains(['"', '\''])
}

/// Returns the names of the methods that a line calls.
fn methods(text: &str) -> impl Iterator<Item = &str> {
    text.match_indices('.').filter_map(|(at, _)| {
        let behind = &text[at + 1..];
        let end = behind.find(|c: char| !c.is_ascii_alphanumeric() && c != '_')?;
        behind[end..].starts_with('(').then_some(&behind[..end])
    })
}

/// Commands by their names without underscores.
static KNOWN: LazyLock<HashMap<String, &str>> =
    LazyLock::new(|| command_names().map(|name| (plain(name), name)).collect());

/// Returns the command of a name in any case and with or without underscores; a name with a point is one of a module.
fn known(name: &str) -> Option<String> {
    let wanted = plain(name);
    let module = wanted.split_once('.').is_some_and(|(module, rest)| is_module(module) && !rest.is_empty());
    let known = KNOWN.get(&wanted).map(|known| (*known).to_owned());
    known.or_else(|| module.then(|| name.to_ascii_lowercase()))
}

fn plain(name: &str) -> String {
    name.to_ascii_lowercase().replace('_', "")
}

/// Returns true for the prefixes of the modules of Redis Stack.
fn is_module(prefix: &str) -> bool {
    ["json", "ft", "bf", "cf", "cms", "topk", "tdigest", "ts"].contains(&prefix)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(line: &str) -> Vec<String> {
        named_in(line.as_bytes(), true).into_iter().map(|(name, _)| name.to_ascii_lowercase()).collect()
    }

    #[test]
    fn commands_are_found_in_many_languages() {
        for (line, expected) in [
            ("r.hset('user', mapping=m)", "hset"),
            ("await client.zAdd('board', [])", "zadd"),
            ("rdb.LPush(ctx, \"queue\", v)", "lpush"),
            ("conn.Do(\"XADD\", key)", "xadd"),
            ("redis::cmd(\"hget\").arg(k)", "hget"),
            ("$redis->rawCommand('SADD', $k)", "sadd"),
            ("r.execute_command('JSON.SET', k)", "json.set"),
            ("local n = redis.call('INCR', KEYS[1])", "incr"),
            ("con.incrby_float(k, 1.0)", "incrbyfloat"),
            ("pipe.get(k)", "get"),
            ("r.sort_ro(k)", "sort_ro"),
        ] {
            assert_eq!(names(line), [expected], "{line}");
        }
        for line in ["list.sort()", "\"set of values\"", "x = 'hset'", "a.b.c", "f.hset_all()", "call('x')"] {
            assert_eq!(names(line), [""; 0], "{line}");
        }
        assert!(named_in(b"map.hset(k)", false).is_empty(), "a file that mentions no Redis");
    }
}
