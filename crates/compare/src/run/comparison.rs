//! What all steps of a comparison share.

use std::fs::File;
use std::path::PathBuf;
use std::time::Instant;

use esker_bench::{Failure, Result};

use super::cgroup::Group as Limit;
use super::machine::Machine;
use crate::contest::command_line::Programs;
use crate::contest::engine::Engine;
use crate::contest::plan::Sizes;

/// Who is measured, on what, and where.
pub(crate) struct Comparison {
    pub(crate) sizes: Sizes,
    pub(crate) repetitions: u64,
    pub(crate) engines: Vec<Engine>,
    /// Names of data sets; all of them if there are none.
    pub(crate) only: Vec<String>,
    pub(crate) programs: Programs,
    /// Where the engines keep their data.
    pub(crate) dir: PathBuf,
    /// Where the report goes.
    pub(crate) out: PathBuf,
    pub(crate) machine: Machine,
    /// Held until the end.
    pub(crate) _lock: File,
    pub(crate) began: Instant,
}

impl Comparison {
    /// Is this data set measured?
    pub(crate) fn wants(&self, group: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|name| name == group)
    }

    /// With redis-server, or when it is asked for.
    pub(crate) fn wants_network(&self) -> bool {
        self.wants("network") && (!self.only.is_empty() || self.engines.contains(&Engine::Redis))
    }

    /// A new group for the next process, so that its memory begins at nothing.
    pub(crate) fn limit(&self) -> Result<Option<Limit>> {
        if self.machine.limit.is_none() {
            return Ok(None);
        }
        let limit = Limit::of_this_process(self.sizes.memory_bytes);
        limit.map(Some).map_err(|why| Failure::Failed(format!("limiting memory, as before: {why}")))
    }
}
