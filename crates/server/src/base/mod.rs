//! Basics used by every other folder: settings, errors, addresses, counters, the stop, and time limits of transfers and tasks.

pub(crate) mod accept;
pub(crate) mod address;
pub(crate) mod config;
pub(crate) mod counting;
pub(crate) mod error;
pub(crate) mod keyspace_events;
pub(crate) mod limited_log;
pub(crate) mod limits;
pub(crate) mod moment;
pub(crate) mod otlp;
pub(crate) mod pace;
pub(crate) mod policy;
pub(crate) mod pool;
pub(crate) mod process;
pub(crate) mod rate;
pub(crate) mod settings;
pub(crate) mod shutdown;
pub(crate) mod socket;
pub(crate) mod text;
pub(crate) mod turn;
