//! State shared by all threads of a benchmark.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};

use esker_device::Runtime;
use esker_engine::Store;

use super::command_line::benchmark::Benchmark;
use super::command_line::config::Config;
use super::mixgraph::Model;
use crate::workload::Values;

/// A running benchmark.
pub(crate) struct Shared {
    pub(crate) config: Config,
    /// Number of this benchmark in the session; each draws its own keys.
    pub(crate) turn: u64,
    pub(crate) benchmark: Benchmark,
    pub(crate) store: Store,
    pub(crate) runtime: Arc<dyn Runtime>,
    pub(crate) values: Values,
    pub(crate) model: Model,
    /// Number of operations so far, including those of earlier benchmarks, for interval lines.
    pub(crate) done: Arc<AtomicU64>,
    /// Number of existing keys, for workloads that insert.
    pub(crate) inserted: AtomicU64,
    /// Set when the measured threads have ended, or the writers that they wait for.
    pub(crate) over: AtomicBool,
}

impl Shared {
    /// Returns the number of keys to choose from.
    pub(super) fn keys(&self) -> u64 {
        (self.config.num / self.benchmark.fewer).max(1)
    }

    /// Returns true if the writers beside the measured threads complete all their puts, even if those
    /// threads end earlier.
    pub(super) fn writers_finish(&self) -> bool {
        self.config.finish_after_writes && self.benchmark.beside_writers > 0 && !self.benchmark.steps
    }
}
