//! State shared by all steps of a comparison.

use std::fs::File;
use std::path::PathBuf;
use std::time::Instant;

use esker_bench::{Failure, Result};

use super::cgroup::Group as Limit;
use super::machine::Machine;
use crate::contest::command_line::Programs;
use crate::contest::engine::Engine;
use crate::contest::plan::Sizes;

/// The engines, the data and the places of a comparison.
pub(crate) struct Comparison {
    pub(crate) sizes: Sizes,
    pub(crate) repetitions: u64,
    pub(crate) engines: Vec<Engine>,
    /// Names of the data sets to measure; empty for all.
    pub(crate) only: Vec<String>,
    pub(crate) programs: Programs,
    /// Directory of the engines' data.
    pub(crate) dir: PathBuf,
    /// Directory of the report.
    pub(crate) out: PathBuf,
    pub(crate) machine: Machine,
    /// Held until the end.
    pub(crate) _lock: File,
    pub(crate) began: Instant,
}

impl Comparison {
    /// Returns true if this data set is measured.
    pub(crate) fn wants(&self, group: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|name| name == group)
    }

    /// Returns true if the network case is measured: with redis-server, or on request.
    pub(crate) fn wants_network(&self) -> bool {
        self.wants("network") && (!self.only.is_empty() || self.engines.contains(&Engine::Redis))
    }

    /// Makes a new group for the next process, so that its memory usage starts at zero.
    pub(crate) fn limit(&self) -> Result<Option<Limit>> {
        if self.machine.limit.is_none() {
            return Ok(None);
        }
        let limit = Limit::of_this_process(self.sizes.memory_bytes);
        limit.map(Some).map_err(|why| Failure::Failed(format!("limiting memory, as before: {why}")))
    }
}
