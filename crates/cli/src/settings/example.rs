//! Prints the settings: the example file, and the output of `--check-config`.

use std::fmt::Write;

use esker_server::Limits;

use super::kind::Value;
use super::layers::{Origin, Settings};
use super::table::{Places, SETTINGS};
use crate::inspect::show::bytes as size;

/// Returns the text of `docs/esker.toml`: every setting with its meaning, all commented out.
pub(crate) fn example() -> String {
    let mut text = String::from(
        "# Settings of `esker serve`, with their defaults. Made by `esker serve --print-config`.\n\
         #\n\
         # Each can also be given in the environment, `memory` as ESKER_MEMORY, and as a flag, --memory.\n\
         # A flag goes before the environment, the environment before this file. Use it with\n\
         # `esker serve --config esker.toml`, and look at the outcome with `--check-config`.\n",
    );
    let mut group = "";
    for setting in SETTINGS.iter().filter(|setting| setting.places != Places::FlagOnly) {
        if setting.group != group {
            group = setting.group;
            let _ = write!(text, "\n\n# ---- {group} ----\n");
        }
        let _ = write!(text, "\n# {}\n", setting.meaning);
        let _ = match setting.default {
            "" => writeln!(
                text,
                "# Default: {}.\n# {} = \"{}\"",
                setting.unset,
                setting.name,
                setting.kind.placeholder()
            ),
            default if default.bytes().all(|byte| byte.is_ascii_digit()) || default == "false" => {
                writeln!(text, "# {} = {default}", setting.name)
            }
            default => writeln!(text, "# {} = \"{default}\"", setting.name),
        };
    }
    text
}

/// Returns every setting with its value, origin and meaning. Sizes derived from `memory` have their
/// values under these limits.
pub(crate) fn explain(settings: &Settings, limits: &Limits) -> String {
    let mut text = String::new();
    let mut group = "";
    for setting in SETTINGS {
        if setting.group != group {
            group = setting.group;
            let _ = writeln!(text, "{}# {group}", if text.is_empty() { "" } else { "\n" });
        }
        let (value, origin) = match settings.get(setting.name) {
            Some(given) => {
                let value = if setting.is_hidden() { "(not shown)" } else { &given.text };
                let origin = match &given.origin {
                    Origin::Default => "default".to_owned(),
                    Origin::File(file, line) => format!("{file}:{line}"),
                    Origin::Environment => setting.variable(),
                    Origin::Flag => format!("--{}", setting.name),
                };
                let value = match in_force(setting.name, limits) {
                    Some(bytes) if given.value != Value::Size(bytes) => {
                        format!("{} ({value}, and at most a third of client-memory-each)", size(bytes))
                    }
                    _ => value.to_owned(),
                };
                (value, origin)
            }
            None => {
                let value = match in_force(setting.name, limits) {
                    Some(bytes) => format!("{} ({})", size(bytes), setting.unset),
                    None => format!("({})", setting.unset),
                };
                (value, "default".to_owned())
            }
        };
        let _ = writeln!(text, "{} = {value}  [{origin}]\n    {}", setting.name, setting.meaning);
    }
    text
}

/// Returns the value in force of a size derived from `memory`.
fn in_force(name: &str, limits: &Limits) -> Option<u64> {
    let bytes = match name {
        "client-memory" => limits.client_bytes_max,
        "client-memory-each" => limits.connection_bytes_max,
        "argument-limit" => limits.bulk_bytes_max,
        _ => return None,
    };
    Some(bytes as u64)
}
