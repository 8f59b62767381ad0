//! Settings of `esker serve`: one table, three places to give them, one outcome.
//!
//! - `table`: every setting, once.
//! - `kind`: what a setting's text may be.
//! - `layers`: flag before environment before file before default.
//! - `outcome`: options of the store and the server, and the contradictions that are refused.
//! - `sizes`: sizes that no store works with.
//! - `changes`: what a reload changes.
//! - `example`: the settings for people.

mod changes;
mod example;
mod kind;
mod layers;
mod resolved;
mod sizes;
mod table;
#[cfg(test)]
mod tests;

pub(crate) use example::{example, explain};
pub(crate) use layers::Settings;
pub(crate) use resolved::Outcome;
pub(crate) use table::{Places, SETTINGS, Setting, flag_for};

use std::path::PathBuf;

/// Paths with commas between them.
pub(crate) fn names(places: &[PathBuf]) -> String {
    places.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(",")
}
