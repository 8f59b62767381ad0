//! What is wrong with a call, in one line that says what may have been meant.

use clap::error::{ContextKind, ContextValue, ErrorKind};

use crate::settings::{Places, Setting, flag_for};

/// What has a `--help` of its own.
const VERBS: &[&str] = &[
    "serve", "user", "inspect", "segments", "records", "trace", "get", "put", "del", "scan", "check",
    "repair", "import", "export", "backup", "restore", "top", "calc", "device",
];

/// The parser's message without its usage and hints, which are what `--help` is for. `call` is what followed the command's name.
pub(crate) fn one_line(error: &clap::Error, call: &[String]) -> String {
    let verb = call.first().map(String::as_str).filter(|verb| VERBS.contains(verb));
    let help = verb.map_or("esker --help".to_owned(), |verb| format!("esker {verb} --help"));
    if error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        return format!("which verb? (see {help})");
    }
    let meant = match unknown_flag(error).map(|flag| (setting_meant(&flag, error), flag)) {
        // Nothing of what follows it is shown.
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

/// A flag that the parser does not know, without its value.
fn unknown_flag(error: &clap::Error) -> Option<String> {
    let invalid = text_of(error, ContextKind::InvalidArg)?;
    let flag = invalid.split('=').next().unwrap_or_default();
    (error.kind() == ErrorKind::UnknownArgument && flag.starts_with("--")).then(|| flag.to_owned())
}

/// The setting that another server calls so, or that is nearly called so. Of mistyped names the parser knows those of flags that
/// are no settings too.
fn setting_meant(flag: &str, error: &clap::Error) -> Option<&'static Setting> {
    let name = flag.trim_start_matches('-');
    let nearest = Setting::nearest(name)
        .filter(|setting| parser_meant(error).is_none() || setting.places == Places::Secret);
    Setting::elsewhere(name).or(nearest)
}

/// What the parser found that is like a word that it does not know.
fn parser_meant(error: &clap::Error) -> Option<String> {
    let kinds = [ContextKind::SuggestedArg, ContextKind::SuggestedSubcommand, ContextKind::SuggestedValue];
    kinds.into_iter().find_map(|kind| text_of(error, kind))
}

/// The value that a flag was given.
fn value_of<'c>(flag: &str, call: &'c [String]) -> Option<&'c str> {
    call.iter().enumerate().find_map(|(at, word)| match word.strip_prefix(flag)? {
        "" => call.get(at + 1).map(String::as_str),
        behind => behind.strip_prefix('='),
    })
}

fn text_of(error: &clap::Error, kind: ContextKind) -> Option<String> {
    match error.get(kind)? {
        ContextValue::String(text) => Some(text.clone()),
        // The likeliest comes last.
        ContextValue::Strings(texts) => texts.last().cloned(),
        _ => None,
    }
}
