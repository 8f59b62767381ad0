//! What all threads of a benchmark share.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};

use esker_device::Runtime;
use esker_engine::Store;

use super::command_line::benchmark::Benchmark;
use super::command_line::config::Config;
use super::mixgraph::Model;
use crate::workload::Values;

/// A benchmark that runs, for its threads.
pub(crate) struct Shared {
    pub(crate) config: Config,
    /// Of the benchmarks that were run, this is the so-manieth: each draws keys of its own.
    pub(crate) turn: u64,
    pub(crate) benchmark: Benchmark,
    pub(crate) store: Store,
    pub(crate) runtime: Arc<dyn Runtime>,
    pub(crate) values: Values,
    pub(crate) model: Model,
    /// Operations done so far, those of earlier benchmarks included, for the lines between.
    pub(crate) done: Arc<AtomicU64>,
    /// Keys there are, for workloads that insert.
    pub(crate) inserted: AtomicU64,
    /// Set when the threads that are measured are through, or those that they wait for.
    pub(crate) over: AtomicBool,
}

impl Shared {
    /// How many keys there are to choose from.
    pub(super) fn keys(&self) -> u64 {
        (self.config.num / self.benchmark.fewer).max(1)
    }

    /// Whether the writers beside the threads that are measured make as many puts as are asked for, however soon those end.
    pub(super) fn writers_finish(&self) -> bool {
        self.config.finish_after_writes && self.benchmark.beside_writers > 0 && !self.benchmark.steps
    }
}
