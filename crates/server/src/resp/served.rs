//! Checks whether the server would run a command or a script, without a store.
//!
//! The checks use the table of commands, their runners and the compiler of scripts, so that the answers are those of the
//! server, which has no cluster. A command on keys runs on a view of absent keys, so that its options are parsed by its own function.

use std::convert::Infallible;
use std::time::Duration;

use bytes::Bytes;

use super::commands::admit::{check_arguments, unknown};
use super::commands::databases::places;
use super::commands::{TABLE, family, names_elsewhere};
use super::script::lookup;
use super::session::view::View;
use super::verb::Verb;
use super::verb::facts::{Group, InMulti};
use super::wire::commands::{Command, Copied};
use super::wire::error_text;
use super::wire::reply::Replies;
use crate::Limits;
use crate::service::KEY_BYTES_MAX;

/// Limit of the time for compiling a script.
const COMPILE_TIME: Duration = Duration::from_secs(5);

/// The caller of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Caller<'k> {
    /// A client, outside of a transaction.
    Client,
    /// A client, between MULTI and EXEC.
    Transaction,
    /// A script that declares these keys, or unknown keys.
    Script(Option<&'k [Vec<u8>]>),
}

/// The reason why the server does not run a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unserved {
    /// The command in lower case, with its subcommand after `|` if the server has that subcommand.
    pub command: String,
    /// The data type or feature of Redis that the command belongs to, if Esker has neither.
    pub family: Option<&'static str>,
    /// The error text of the server, on one line, with `…` in place of arguments and without texts of scripts.
    pub error: String,
}

/// Checks a command as a client or a script sends it: its name, subcommand, number of arguments, keys, and, except for
/// most commands without keys, its options. Returns its name, such as `set` or `config|get`. Values of keys are taken as
/// absent, and the limits of lengths are the defaults.
///
/// # Errors
/// The reason why the server would not run the command.
pub fn check_command(words: &[&[u8]], caller: Caller<'_>) -> Result<&'static str, Unserved> {
    if words.is_empty() {
        return Err(refusal("", None, "ERR a command has a name"));
    }
    let copied = copied(words);
    let command = copied.command();
    let verb = known(command)?;
    let error = match check(verb, command, caller) {
        Ok(()) => return Ok(verb.name),
        Err(error) => without_arguments(&error, verb),
    };
    Err(refusal(verb.name, family_of_subcommand(verb, command), &error))
}

/// Checks a command's name alone, in any case: `get`, or `config|get` as INFO commandstats has it.
///
/// # Errors
/// As [`check_command`].
pub fn check_name(name: &str, caller: Caller<'_>) -> Result<&'static str, Unserved> {
    let words: Vec<&[u8]> = name.splitn(2, '|').map(str::as_bytes).collect();
    let copied = copied(&words);
    let command = copied.command();
    let verb = known(command)?;
    let unserved = |error: &str| Err(refusal(verb.name, family_of_subcommand(verb, command), error));
    if let Some(error) = verb.refusal() {
        return unserved(error);
    }
    if words.len() > 1 && verb.has_subcommands() {
        // The descriptor is that of the command itself if it has no such subcommand.
        let error = check_arguments(&TABLE, verb, command).expect_err("the subcommand is unknown");
        return unserved(&without_arguments(&error, verb));
    }
    match caller {
        // A command that only groups subcommands cannot be judged by its name alone.
        Caller::Script(_) if !verb.runs_in_scripts() && !verb.has_subcommands() => {
            unserved(error_text::NOT_IN_SCRIPT)
        }
        Caller::Transaction if verb.in_multi == InMulti::Refused => unserved(error_text::NOT_IN_TRANSACTION),
        _ => Ok(verb.name),
    }
}

/// Compiles a script.
///
/// # Errors
/// The error text of the server, if it would not accept the script.
pub fn check_script(text: &[u8]) -> Result<(), Unserved> {
    lookup::try_compile(text, COMPILE_TIME).map_err(|lookup::Unknown(why)| {
        let error = String::from_utf8_lossy(&why);
        // Both are followed by a word of the script.
        let ends =
            [error.find(" near "), error.find("shebang").and_then(|at| Some(at + error[at..].find(':')?))];
        let end = ends.into_iter().flatten().min().unwrap_or(error.len());
        refusal("eval", None, &error[..end])
    })
}

/// Returns the names of the commands that the server has, in lower case and without subcommands, and then those of other
/// data types and features of Redis.
pub fn command_names() -> impl Iterator<Item = &'static str> {
    TABLE.described().map(|verb| verb.name).chain(names_elsewhere())
}

fn copied(words: &[&[u8]]) -> Copied {
    let Ok(copied) = Copied::of_each(words, |word, bytes| {
        bytes.extend_from_slice(word);
        Ok::<(), Infallible>(())
    });
    copied
}

fn refusal(command: &str, family: Option<&'static str>, error: &str) -> Unserved {
    let error = error.split(['\r', '\n']).next().unwrap_or_default();
    Unserved { command: command.to_owned(), family, error: error.to_owned() }
}

/// Returns an error text with `…` in place of arguments, which may be keys or values. An error has them in quotes, as it has
/// the command's own name, or behind [`UNSUPPORTED_OPTION`](error_text::UNSUPPORTED_OPTION).
fn without_arguments(error: &str, verb: &Verb) -> String {
    if error.starts_with(error_text::UNSUPPORTED_OPTION) {
        return format!("{} …", error_text::UNSUPPORTED_OPTION);
    }
    let is_name = |text: &str| verb.name == text || verb.name.split('|').next() == Some(text);
    match (error.find('\''), error.rfind('\'')) {
        (Some(begin), Some(end)) if begin < end && !is_name(&error[begin + 1..end]) => {
            format!("{}…{}", &error[..=begin], &error[end..])
        }
        _ => error.to_owned(),
    }
}

/// Returns the descriptor of a command, or the refusal of an unknown one.
fn known(command: Command<'_>) -> Result<&'static Verb, Unserved> {
    TABLE.find(command).filter(|verb| verb.group != Group::Http).ok_or_else(|| {
        let name = error_text::shown(command.verb(), 128).to_ascii_lowercase();
        match family(command.verb()) {
            Some((_, family)) => refusal(&name, Some(family), &unknown(command)),
            // Arguments may be values of a user.
            None => refusal(&name, None, &format!("ERR unknown command '{name}'")),
        }
    })
}

/// Returns the feature of a subcommand that Esker does not have, or that a single server does not have.
fn family_of_subcommand(verb: &Verb, command: Command<'_>) -> Option<&'static str> {
    if verb.without_cluster.is_some() {
        return Some("cluster");
    }
    let (family, words) = verb.unsupported;
    let word = command.arguments(1).next()?;
    words.iter().any(|known| error_text::is(word, known)).then_some(family)
}

fn check(verb: &'static Verb, command: Command<'_>, caller: Caller<'_>) -> Result<(), String> {
    if let Some(error) = verb.refusal() {
        return Err(error.to_owned());
    }
    check_arguments(&TABLE, verb, command)?;
    match caller {
        Caller::Transaction if verb.in_multi == InMulti::Refused => {
            return Err(error_text::NOT_IN_TRANSACTION.to_owned());
        }
        Caller::Script(_) if !verb.runs_in_scripts() => return Err(error_text::NOT_IN_SCRIPT.to_owned()),
        _ => {}
    }
    if !verb.names_channels() {
        check_keys(verb, command, caller)?;
    }
    (verb.options)(command)?;
    run_on_absent_keys(verb, command)
}

fn check_keys(verb: &Verb, command: Command<'_>, caller: Caller<'_>) -> Result<(), String> {
    for key in verb.keys.of(command).map(|index| command.argument(index)) {
        if key.is_empty() || key.len() > KEY_BYTES_MAX {
            return Err(format!("ERR the key has {} bytes; a key has 1 to {KEY_BYTES_MAX}", key.len()));
        }
        if let Caller::Script(Some(declared)) = caller
            && !declared.iter().any(|one| one == key)
        {
            return Err(format!("ERR {}", error_text::NOT_DECLARED));
        }
    }
    Ok(())
}

/// Runs a command on keys as if they were absent. An error that says just that is no refusal.
fn run_on_absent_keys(verb: &Verb, command: Command<'_>) -> Result<(), String> {
    if !verb.run.is_on_view() {
        return Ok(());
    }
    let databases = usize::from(esker_engine::Store::DATABASES);
    let keys: Vec<_> = places(verb, command, 0, databases)
        .map(|(database, index)| (database, Bytes::copy_from_slice(command.argument(index))))
        .collect();
    let mut view = View::of_absent(Limits::default().bulk_bytes_max, 0, keys.into_iter());
    let mut replies = Replies::new();
    verb.run_on(command, &mut view, &mut replies);
    let error = replies.joined().strip_prefix(b"-").map(|line| String::from_utf8_lossy(line).into_owned());
    match error.filter(|error| error.trim_end() != error_text::NO_SUCH_KEY) {
        Some(error) => Err(error),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<&[u8]> {
        line.split(' ').map(str::as_bytes).collect()
    }

    fn refused(line: &str, caller: Caller<'_>) -> Unserved {
        check_command(&words(line), caller).expect_err(line)
    }

    #[test]
    fn described_command_is_served_or_refused_by_table() {
        let mut served = 0;
        for verb in TABLE.described_with_subcommands() {
            let checked = check_name(verb.name, Caller::Client);
            assert_eq!(checked.is_ok(), verb.refusal().is_none(), "{}", verb.name);
            served += u32::from(checked.is_ok());
        }
        assert!(served > 150, "{served}");
        for name in names_elsewhere() {
            assert!(check_name(name, Caller::Client).expect_err(name).family.is_some(), "{name}");
        }
        for name in ["post", "host:", "nothing", "config|nothing", ""] {
            assert!(check_name(name, Caller::Client).is_err(), "{name}");
        }
    }

    #[test]
    fn options_are_those_that_the_commands_parse() {
        for line in [
            "SET k v EX 10 NX GET",
            "set k v keepttl",
            "SET k v DURABILITY sync",
            "GETEX k PERSIST",
            "EXPIRE k 10 NX",
            "RENAME a b",
            "COPY a b DB 3 REPLACE",
            "MOVE a 5",
            "BITFIELD k GET u8 0",
            "SCAN 0 MATCH a* COUNT 10 TYPE hash",
            "CLIENT SETINFO lib-name x",
            "EVAL script 1 k",
        ] {
            assert!(check_command(&words(line), Caller::Client).is_ok(), "{line}");
        }
        for (line, error) in [
            ("SET k v IFEQ x", error_text::SYNTAX),
            ("SET k v EX 10 PX 10", error_text::SYNTAX),
            ("OBJECT it's", "ERR unknown subcommand '…'. Try OBJECT HELP."),
            ("OBJECT é", "ERR unknown subcommand '…'. Try OBJECT HELP."),
            ("EXPIRE k 10 é", "ERR Unsupported option …"),
            ("CONFIG GET", "ERR wrong number of arguments for 'config|get' command"),
            ("EXPIRE k 10 OR", "ERR Unsupported option …"),
            ("SCAN 0 NOVALUES x", error_text::SYNTAX),
            ("GET", "ERR wrong number of arguments for 'get' command"),
            ("CONFIG NOTHING", "ERR unknown subcommand '…'. Try CONFIG HELP."),
            ("CLUSTER SLOTS", "ERR This instance has cluster support disabled"),
            ("SAVE", "ERR unknown command 'save'"),
        ] {
            assert_eq!(refused(line, Caller::Client).error, error, "{line}");
        }
        assert_eq!(refused("HSET k f v", Caller::Client).family, Some("hashes"));
        assert_eq!(refused("FUNCTION LOAD x", Caller::Client).family, Some("functions"));
        assert!(refused("GET ", Caller::Client).error.contains("0 bytes"));
    }

    #[test]
    fn transactions_and_scripts_have_their_own_refusals() {
        assert_eq!(refused("SCAN 0", Caller::Transaction).error, error_text::NOT_IN_TRANSACTION);
        assert!(check_command(&words("GET k"), Caller::Transaction).is_ok());
        assert_eq!(refused("SCAN 0", Caller::Script(None)).error, error_text::NOT_IN_SCRIPT);
        let declared = [b"k".to_vec()];
        assert!(check_command(&words("GET k"), Caller::Script(Some(&declared))).is_ok());
        let error = refused("MGET k other", Caller::Script(Some(&declared))).error;
        assert!(error.contains("non declared key") && !error.contains("other"), "{error}");
    }

    #[test]
    fn scripts_are_compiled() {
        assert_eq!(check_script(b"return redis.call('GET', KEYS[1])"), Ok(()));
        assert_eq!(check_script(b"#!lua flags=no-writes\nreturn 1"), Ok(()));
        let error = check_script(b"retrun 1").expect_err("it is no Lua").error;
        assert!(error.contains("Error compiling script") && error.contains("user_script:1"), "{error}");
        for (text, expected) in [
            (&b"retrun secret"[..], "'=' expected"),
            (b"#!secret\nreturn 1", "Unexpected engine in script shebang"),
            (b"#!lua secret\nreturn 1", "Unknown lua shebang option"),
        ] {
            let error = check_script(text).expect_err("it is refused").error;
            assert!(error.ends_with(expected), "{error}");
        }
    }
}
