//! The options of the command.

use std::path::PathBuf;

/// Options of `esker-bench cache`.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct Arguments {
    /// Skews of Zipf by which keys are asked for.
    #[arg(long, value_name = "T", value_delimiter = ',', default_value = "0.9,1.1")]
    pub(super) theta: Vec<f64>,
    /// Records that the store's bytes hold, headers not counted.
    #[arg(long, value_name = "N", default_value_t = 65_536)]
    pub(super) records: u64,
    /// Keys for each of them.
    #[arg(long, value_name = "N", default_value_t = 10)]
    pub(super) keys: u64,
    /// Requests for each of them; the second half is counted.
    #[arg(long, value_name = "N", default_value_t = 50)]
    pub(super) requests: u64,
    /// Length of a value.
    #[arg(long, value_name = "BYTES", default_value_t = 4096, value_parser = clap::value_parser!(u64).range(16..))]
    pub(super) value_bytes: u64,
    /// Length of a segment.
    #[arg(long, value_name = "SIZE", default_value = "2m", value_parser = esker_command::parse)]
    pub(super) segment: u64,
    /// Requests in flight.
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u64).range(1..=4096))]
    pub(super) depth: u64,
    /// The store's memory budget.
    #[arg(long, value_name = "SIZE", default_value = "64m", value_parser = esker_command::parse)]
    pub(super) memory: u64,
    /// Draws the requests.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(super) seed: u64,
    /// Keep the store in new files in this directory [default: in memory].
    #[arg(long, value_name = "DIR")]
    pub(super) dir: Option<PathBuf>,
    /// Print JSON.
    #[arg(long)]
    pub(super) json: bool,
}

impl Arguments {
    /// Returns the number of keys.
    pub(super) fn keys(&self) -> u64 {
        self.records * self.keys
    }

    /// Returns the number of requests.
    pub(super) fn requests(&self) -> u64 {
        self.records * self.requests
    }
}
