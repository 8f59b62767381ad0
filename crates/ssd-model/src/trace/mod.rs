//! Traces of block devices, as other tools write them, and what a drive makes of them.
//!
//! A trace is read line by line and never kept. Its format is told from its first lines.

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
