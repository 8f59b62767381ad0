//! Settings that a reload changes, and the names of those that it cannot.

use esker_engine::{Durability, WhenFull};

use super::layers::Settings;
use super::table::{Places, SETTINGS};

/// Settings that a reload changes. Users and certificates are read again whatever the settings say.
const AT_RELOAD: [&str; 7] = [
    "log",
    "durability",
    "when-full",
    "background-limit",
    "scrub-limit",
    "connections",
    "connections-per-address",
];

/// What a reload changes.
#[derive(Debug, PartialEq)]
pub(crate) struct Changeable<'s> {
    pub(crate) log: &'s str,
    pub(crate) durability: Durability,
    pub(crate) when_full: WhenFull,
    pub(crate) background_bytes_per_s: Option<u64>,
    pub(crate) scrub_bytes_per_s: Option<u64>,
    pub(crate) connections: usize,
    pub(crate) connections_per_address: usize,
}

impl Settings {
    /// What a reload changes.
    pub(crate) fn changeable(&self) -> Changeable<'_> {
        Changeable {
            log: self.log(),
            durability: self.durability(),
            when_full: self.when_full(),
            background_bytes_per_s: self.bytes("background-limit"),
            scrub_bytes_per_s: self.bytes("scrub-limit"),
            connections: self.count("connections"),
            connections_per_address: self.count("connections-per-address"),
        }
    }

    /// Settings that are not what they were: those that a reload changes, and those that need another start. A setting that
    /// is meant for one start is neither.
    pub(crate) fn changed_since(&self, before: &Settings) -> [Vec<&'static str>; 2] {
        let text = |settings: &Settings, name| settings.get(name).map(|given| given.text.clone());
        let changed = SETTINGS.iter().filter(|setting| {
            setting.places != Places::FlagOnly && text(self, setting.name) != text(before, setting.name)
        });
        let (now, later) = changed.map(|setting| setting.name).partition(|name| AT_RELOAD.contains(name));
        [now, later]
    }
}
