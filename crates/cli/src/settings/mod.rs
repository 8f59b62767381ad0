//! Settings of `esker serve`: one table, three sources, one outcome.
//!
//! - `table`: every setting, once.
//! - `kind`: the syntax of a setting's text.
//! - `layers`: precedence: flag, environment, file, default.
//! - `resolved`: options of the store and the server; refuses contradictions.
//! - `cluster`: those of a node of a cluster.
//! - `sizes`: refuses sizes with which no store works.
//! - `changes`: the changes that a reload applies.
//! - `example`: prints the settings.

mod changes;
mod cluster;
mod example;
mod kind;
mod layers;
mod resolved;
mod sizes;
mod table;
#[cfg(test)]
mod tests;
mod traces;

pub(crate) use cluster::{Begin, ClusterSettings};
pub(crate) use example::{example, explain};
pub(crate) use layers::Settings;
pub(crate) use resolved::Outcome;
pub(crate) use table::{Places, SETTINGS, Setting, flag_for};

use std::path::PathBuf;

/// Formats paths separated by commas.
pub(crate) fn names(places: &[PathBuf]) -> String {
    places.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(",")
}
