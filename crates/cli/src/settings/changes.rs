//! Settings that a reload applies, and the names of those that need a restart.

use esker_engine::{Compression, Durability, WhenFull};

use super::layers::Settings;
use super::table::{Places, SETTINGS};

/// Settings that a reload applies. Users and certificates are always reloaded.
const AT_RELOAD: [&str; 8] = [
    "log",
    "durability",
    "compression",
    "when-full",
    "background-limit",
    "scrub-limit",
    "connections",
    "connections-per-address",
];

/// The values that a reload applies.
#[derive(Debug, PartialEq)]
pub(crate) struct Changeable<'s> {
    pub(crate) log: &'s str,
    pub(crate) durability: Durability,
    pub(crate) compression: Compression,
    pub(crate) when_full: WhenFull,
    pub(crate) background_bytes_per_s: Option<u64>,
    pub(crate) scrub_bytes_per_s: Option<u64>,
    pub(crate) connections: usize,
    pub(crate) connections_per_address: usize,
}

impl Settings {
    /// Returns the values that a reload applies.
    pub(crate) fn changeable(&self) -> Changeable<'_> {
        Changeable {
            log: self.log(),
            durability: self.durability(),
            compression: self.compression(),
            when_full: self.when_full(),
            background_bytes_per_s: self.bytes("background-limit"),
            scrub_bytes_per_s: self.bytes("scrub-limit"),
            connections: self.count("connections"),
            connections_per_address: self.count("connections-per-address"),
        }
    }

    /// Returns the names of the settings that differ from `before`: those that a reload applies, and
    /// those that need a restart. A setting that applies to one start only is in neither list.
    pub(crate) fn changed_since(&self, before: &Settings) -> [Vec<&'static str>; 2] {
        let text = |settings: &Settings, name| settings.get(name).map(|given| given.text.clone());
        let changed = SETTINGS.iter().filter(|setting| {
            setting.places != Places::FlagOnly && text(self, setting.name) != text(before, setting.name)
        });
        let (now, later) = changed.map(|setting| setting.name).partition(|name| AT_RELOAD.contains(name));
        [now, later]
    }
}
