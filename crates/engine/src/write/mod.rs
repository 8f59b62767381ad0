//! Writing: puts, deletes, batches, updates, and the lane that orders them.
//!
//! A put: `put` checks it, compresses its value (`compressing`) and finds room for it (`room`), `append` waits for its turn,
//! `lane` assigns a place in the log and a sequence number, and `committer` writes it and makes it visible.

mod admission;
mod append;
mod append_points;
pub(crate) mod apply;
mod apply_run;
pub(crate) mod batch;
pub(crate) mod coalescing;
pub(crate) mod committer;
mod compressing;
pub(crate) mod databases;
mod deadline;
mod gathering;
pub(crate) mod group_log;
mod keep_expired;
pub(crate) mod lane;
pub(crate) mod live_options;
pub(crate) mod options;
pub(crate) mod preallocate;
mod prepared;
mod propose;
pub(crate) mod put;
mod put_many;
pub(crate) mod reserve;
pub(crate) mod room;
mod update;

use std::sync::Arc;

use crate::base::error::Result;
use crate::base::tasks::Tasks;
use crate::catalog::Catalog;
use crate::segments::space::Space;
use crate::write::admission::Admission;
use crate::write::compressing::Compressing;
use crate::write::group_log::LogLane;
use crate::write::lane::Lane;
use crate::write::live_options::Changeable;
use crate::write::room::Pressure;

/// Input of [`Writer::new`], decided by an opening.
pub(crate) struct WriterParts {
    pub(crate) catalog: Arc<Catalog>,
    pub(crate) tasks: Arc<Tasks>,
    pub(crate) lane: Arc<Lane>,
    pub(crate) large: Option<Arc<Lane>>,
    pub(crate) group_log: Option<Arc<LogLane>>,
    pub(crate) shaping_threshold_bytes: u64,
    pub(crate) changeable: Changeable,
}

/// The write side of a store.
pub(crate) struct Writer {
    pub(crate) space: Arc<Space>,
    pub(crate) catalog: Arc<Catalog>,
    pub(crate) tasks: Arc<Tasks>,
    pub(crate) lane: Arc<Lane>,
    /// Lane for large values, if there are two tiers.
    large: Option<Arc<Lane>>,
    /// Log of replicated groups, if the store is a member of a cluster.
    pub(crate) group_log: Option<Arc<LogLane>>,
    /// Length in bytes from which values are large.
    shaping_threshold_bytes: u64,
    /// Length in bytes of the longest record that fits in a segment of any lane.
    longest_record_bytes: u64,
    pub(crate) changeable: Changeable,
    compressing: Compressing,
    pub(crate) admission: Admission,
    pub(crate) pressure: Pressure,
    /// Held by a close from the last write until the devices are released.
    pub(crate) closing: tokio::sync::Mutex<()>,
}

impl Writer {
    pub(crate) fn new(parts: WriterParts) -> Arc<Writer> {
        let WriterParts { catalog, tasks, lane, large, group_log, shaping_threshold_bytes, changeable } =
            parts;
        let space = catalog.space.clone();
        let pressure = Pressure::new(&space.health);
        let admission = Admission::default();
        let longest = |lane: &Arc<Lane>| lane.shape.max_record_bytes();
        let longest_record_bytes = large.as_ref().map_or(u64::MAX, longest).min(longest(&lane));
        Arc::new(Writer {
            space,
            catalog,
            tasks,
            lane,
            large,
            group_log,
            shaping_threshold_bytes,
            longest_record_bytes,
            changeable,
            compressing: Compressing::default(),
            admission,
            pressure,
            closing: tokio::sync::Mutex::default(),
        })
    }

    pub(crate) fn lanes(&self) -> impl Iterator<Item = &Arc<Lane>> {
        std::iter::once(&self.lane).chain(&self.large)
    }

    /// Refuses further appends. Appended records are still written.
    pub(crate) fn stop(&self) {
        self.lanes().for_each(|lane| lane.stop());
        self.group_log.iter().for_each(|log| log.stop());
    }

    /// Makes all records durable that were acknowledged before.
    pub(crate) async fn flush(&self) -> Result<()> {
        if let Some(written) = self.lane.flush_coalescing() {
            written.wait().await?;
        }
        self.flush_lanes().await
    }

    /// Makes the lanes' records durable, but not the records that coalesce in memory.
    pub(crate) async fn flush_lanes(&self) -> Result<()> {
        let flushed: Vec<_> = self.lanes().map(|lane| lane.flush()).collect();
        for lane in flushed {
            lane.wait().await?;
        }
        Ok(())
    }
}
