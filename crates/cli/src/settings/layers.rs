//! Settings from the flags, the environment and the file, in this order of precedence.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;
use std::path::Path;

use toml::de::{DeTable, DeValue};

use super::kind::Value;
use super::table::{Places, SETTINGS, Setting};

/// Limit of a configuration file in bytes.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// The origin of a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    Default,
    /// The file's name, and the line.
    File(String, usize),
    Environment,
    Flag,
}

/// A setting with its value.
#[derive(Clone)]
pub(crate) struct Given {
    pub(crate) setting: &'static Setting,
    pub(crate) text: String,
    pub(crate) value: Value,
    pub(crate) origin: Origin,
}

impl fmt::Display for Given {
    /// Formats the name as in its origin: with the line of a file, as a variable, or as a flag.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.setting.name;
        match &self.origin {
            Origin::Default => write!(f, "{name} (default)"),
            Origin::File(file, line) => write!(f, "{name} ({file}:{line})"),
            Origin::Environment => f.write_str(&self.setting.variable()),
            Origin::Flag => write!(f, "--{name}"),
        }
    }
}

/// All settings that have a value.
#[derive(Clone, Default)]
pub(crate) struct Settings {
    given: BTreeMap<&'static str, Given>,
}

impl Settings {
    /// Returns the default values.
    pub(crate) fn defaults() -> Settings {
        let mut settings = Settings::default();
        for setting in SETTINGS.iter().filter(|setting| !setting.default.is_empty()) {
            settings.set(setting, setting.default, Origin::Default).expect("the table's defaults are good");
        }
        settings
    }

    /// Returns the setting, if it has a value.
    pub(crate) fn get(&self, name: &str) -> Option<&Given> {
        assert!(Setting::find(name).is_some(), "no setting {name} in the table");
        self.given.get(name)
    }

    /// Returns the setting, if it was given explicitly.
    pub(crate) fn explicit(&self, name: &str) -> Option<&Given> {
        self.get(name).filter(|given| given.origin != Origin::Default)
    }

    fn set(&mut self, setting: &'static Setting, text: &str, origin: Origin) -> Result<(), String> {
        let mut given = Given { setting, text: text.to_owned(), value: Value::Switch(false), origin };
        // A secret's text must not appear in a message.
        let shown = |error: String| match setting.is_hidden() && !text.is_empty() {
            true => format!("{given}: it must be {}", setting.kind.form()),
            false => format!("{given}: {error}"),
        };
        given.value = setting.kind.parse(text).map_err(shown)?;
        self.given.insert(setting.name, given);
        Ok(())
    }

    /// Reads the keys of a TOML file. An unknown key is an error.
    pub(crate) fn read_file(&mut self, path: &Path) -> Result<(), String> {
        let shown = path.display().to_string();
        let text = esker_server::read_text(path, FILE_BYTES_MAX)
            .map_err(|error| format!("cannot read the configuration file {shown}: {error}"))?;
        // The parser's own message quotes the line, which may hold a password.
        let table = DeTable::parse(&text).map_err(|error| {
            let line = error.span().map_or(0, |span| line_of(&text, span.start));
            format!("{shown}:{line}: this is not TOML: {}", error.message())
        })?;
        for (key, value) in table.get_ref() {
            let name = key.get_ref().as_ref();
            match value.get_ref() {
                DeValue::Table(section) if name == "cluster" => {
                    for (key, value) in section {
                        let line = line_of(&text, key.span().start);
                        let name = Setting::in_cluster_section(key.get_ref());
                        self.read_key(&shown, line, &name, value.get_ref())?;
                    }
                }
                value => self.read_key(&shown, line_of(&text, key.span().start), name, value)?,
            }
        }
        Ok(())
    }

    /// Reads the value of one key of a file.
    fn read_key(&mut self, file: &str, line: usize, name: &str, value: &DeValue<'_>) -> Result<(), String> {
        let setting = Setting::find(name).ok_or_else(|| format!("{file}:{line}: {}", unknown(name)))?;
        if setting.places == Places::FlagOnly {
            return Err(format!("{file}:{line}: {name} can only be given as --{name}"));
        }
        let wrong = || format!("{file}:{line}: {name} must be {}", setting.kind.form());
        let text = text_of(value).ok_or_else(wrong)?;
        self.set(setting, &text, Origin::File(file.to_owned(), line))
    }

    /// Reads the variables that begin with `ESKER_`. Returns warnings about unknown ones. They are not
    /// errors, because other programs set some, such as `ESKER_SERVICE_HOST` in a Kubernetes pod beside a
    /// service named esker.
    pub(crate) fn read_environment(
        &mut self,
        variables: impl IntoIterator<Item = (OsString, OsString)>,
    ) -> Result<Vec<String>, String> {
        let mut warnings = Vec::new();
        for (variable, value) in variables {
            let Some(variable) = variable.to_str().filter(|name| name.starts_with("ESKER_")) else {
                continue;
            };
            if variable == "ESKER_CONFIG" {
                continue;
            }
            let setting = SETTINGS.iter().find(|setting| setting.variable() == variable);
            let Some(setting) = setting.filter(|setting| setting.places != Places::FlagOnly) else {
                warnings.push(format!("{variable} has no effect: {}", unknown(&variable[6..])));
                continue;
            };
            let text = value.to_str().ok_or_else(|| format!("{variable} is not UTF-8"))?;
            // An empty variable counts as unset, because scripts often cannot unset a variable.
            if !text.is_empty() {
                self.set(setting, text, Origin::Environment)?;
            }
        }
        Ok(warnings)
    }

    /// Sets the value of a flag.
    pub(crate) fn flag(&mut self, setting: &'static Setting, text: &str) -> Result<(), String> {
        self.set(setting, text, Origin::Flag)
    }
}

fn unknown(name: &str) -> String {
    let name_shown = name.escape_debug();
    match Setting::nearest(name) {
        Some(near) => format!("there is no setting '{name_shown}'; did you mean '{}'?", near.name),
        None => format!("there is no setting '{name_shown}' (see esker serve --help)"),
    }
}

/// Converts a TOML scalar to its text on a command line, and a list to its members separated by commas.
fn text_of(value: &DeValue<'_>) -> Option<String> {
    Some(match value {
        DeValue::String(text) => text.as_ref().to_owned(),
        DeValue::Integer(number) if number.radix() == 10 => number.as_str().to_owned(),
        DeValue::Boolean(value) => value.to_string(),
        DeValue::Array(members) if members.is_empty() => "none".to_owned(),
        DeValue::Array(members) => {
            let members = members.iter().map(|member| member.get_ref().as_str());
            members.collect::<Option<Vec<_>>>()?.join(",")
        }
        _ => return None,
    })
}

fn line_of(text: &str, offset: usize) -> usize {
    1 + text.as_bytes().iter().take(offset).filter(|&&byte| byte == b'\n').count()
}
