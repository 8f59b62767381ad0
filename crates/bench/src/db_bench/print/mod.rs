//! Output in db_bench's format: the head, lines while a benchmark runs, and results.

mod date;
pub(crate) mod head;
mod histogram;
pub(crate) mod json;
pub(crate) mod measure;
pub(crate) mod message;
pub(crate) mod stats;
pub(crate) mod watch;
