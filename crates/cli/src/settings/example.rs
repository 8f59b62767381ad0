//! The settings for people: the example file, and what `--check-config` says.

use std::fmt::Write;

use super::layers::{Origin, Settings};
use super::table::{Places, SETTINGS};

/// The text of `docs/esker.toml`: every setting with its meaning, none of them in force.
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

/// Every setting: what holds, where it came from, what it means.
pub(crate) fn explain(settings: &Settings) -> String {
    let mut text = String::new();
    let mut group = "";
    for setting in SETTINGS {
        if setting.group != group {
            group = setting.group;
            let _ = writeln!(text, "{}# {group}", if text.is_empty() { "" } else { "\n" });
        }
        let (value, origin) = match settings.get(setting.name) {
            Some(given) => {
                let value = if setting.places == Places::Secret { "(not shown)" } else { &given.text };
                let origin = match &given.origin {
                    Origin::Default => "default".to_owned(),
                    Origin::File(file, line) => format!("{file}:{line}"),
                    Origin::Environment => setting.variable(),
                    Origin::Flag => format!("--{}", setting.name),
                };
                (value.to_owned(), origin)
            }
            None => (format!("({})", setting.unset), "default".to_owned()),
        };
        let _ = writeln!(text, "{} = {value}  [{origin}]\n    {}", setting.name, setting.meaning);
    }
    text
}
