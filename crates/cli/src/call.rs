//! Turns a wrong call into one line that suggests the intended word.

use clap::error::{ContextKind, ContextValue, ErrorKind};

use crate::settings::{Places, Setting, flag_for};

/// Verbs with their own `--help`.
const VERBS: &[&str] = &[
    "serve", "user", "inspect", "segments", "records", "trace", "get", "put", "del", "scan", "check",
    "repair", "import", "export", "backup", "restore", "top", "calc", "device", "compat", "ping", "support",
    "bench",
];

/// Returns the parser's message without usage and hints, which `--help` shows. `call` are the arguments
/// after the command's name.
pub(crate) fn one_line(error: &clap::Error, call: &[String]) -> String {
    let verb = call.first().map(String::as_str).filter(|verb| VERBS.contains(verb));
    let help = verb.map_or("esker --help".to_owned(), |verb| format!("esker {verb} --help"));
    if error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        return format!("which verb? (see {help})");
    }
    let meant = match unknown_flag(error).map(|flag| (setting_meant(&flag, error), flag)) {
        // The rest of the message is dropped, because it may contain the secret.
        Some((Some(setting), _)) if setting.places == Places::Secret => {
            let instead = match verb {
                Some("user") => "it is asked for, or read from stdin",
                _ => "give it in the file or as ESKER_PASSWORD",
            };
            return format!(
                "no password on a command line, which every user of the machine can read: {instead}"
            );
        }
        Some((Some(setting), flag)) if verb == Some("serve") => {
            Some(flag_for(setting, value_of(&flag, call)))
        }
        _ => parser_meant(error),
    };
    let text = error.to_string();
    let message = text.split("\n\n").next().unwrap_or(&text);
    let words: Vec<_> = message.trim_start_matches("error: ").split_whitespace().collect();
    match meant {
        Some(meant) => format!("{}; did you mean {meant}? (see {help})", words.join(" ")),
        None => format!("{} (see {help})", words.join(" ")),
    }
}

/// Returns the flag that the parser does not know, without its value.
fn unknown_flag(error: &clap::Error) -> Option<String> {
    let invalid = text_of(error, ContextKind::InvalidArg)?;
    let flag = invalid.split('=').next().unwrap_or_default();
    (error.kind() == ErrorKind::UnknownArgument && flag.starts_with("--")).then(|| flag.to_owned())
}

/// Returns the setting that has this name in another server, or the one with the most similar name. For
/// mistyped names, the parser also suggests flags that are not settings.
fn setting_meant(flag: &str, error: &clap::Error) -> Option<&'static Setting> {
    let name = flag.trim_start_matches('-');
    let nearest = Setting::nearest(name)
        .filter(|setting| parser_meant(error).is_none() || setting.places == Places::Secret);
    Setting::elsewhere(name).or(nearest)
}

/// Returns the parser's suggestion for an unknown word.
fn parser_meant(error: &clap::Error) -> Option<String> {
    let kinds = [ContextKind::SuggestedArg, ContextKind::SuggestedSubcommand, ContextKind::SuggestedValue];
    kinds.into_iter().find_map(|kind| text_of(error, kind))
}

/// Returns the value of a flag.
fn value_of<'c>(flag: &str, call: &'c [String]) -> Option<&'c str> {
    call.iter().enumerate().find_map(|(at, word)| match word.strip_prefix(flag)? {
        "" => call.get(at + 1).map(String::as_str),
        behind => behind.strip_prefix('='),
    })
}

fn text_of(error: &clap::Error, kind: ContextKind) -> Option<String> {
    match error.get(kind)? {
        ContextValue::String(text) => Some(text.clone()),
        // The most similar one comes last.
        ContextValue::Strings(texts) => texts.last().cloned(),
        _ => None,
    }
}
