//! Traces of block devices, as other tools write them, and their replay on a modelled drive.
//!
//! A trace is read line by line and never kept in memory. Its format is detected from its first lines.

mod blkparse;
mod fio;
mod format;
mod ftrace;
mod line;
mod line_reader;
mod replay;
mod replay_table;
mod requests;
mod tally;

pub use format::Format;
pub use replay::{Replay, ReplayReport, replay};
pub use requests::{NotUnderstood, Requests};
pub use tally::Tally;
