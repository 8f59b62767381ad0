//! Output options and errors shared by all verbs of `esker ftl`.

use clap::Args;
use esker_ftl::Error;

use crate::terminal::Failure;

#[derive(Args)]
pub(super) struct Output {
    /// Print JSON instead of tables.
    #[arg(long)]
    pub(super) json: bool,
    /// What random choices are made from; the same seed gives the same figures.
    #[arg(long, default_value_t = 1)]
    pub(super) seed: u64,
}

pub(super) fn failure(error: Error) -> Failure {
    let text = error.to_string();
    if error.is_usage() { Failure::Usage(text) } else { Failure::Failed(text) }
}
