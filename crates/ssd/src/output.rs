//! Output options and errors shared by all verbs of `esker-ssd`.

use clap::Args;
use esker_ssd_model::Error;

use esker_command::Failure;

#[derive(Args)]
pub(crate) struct Output {
    /// Print JSON instead of tables.
    #[arg(long)]
    pub(crate) json: bool,
    /// What random choices are made from; the same seed gives the same figures.
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
}

pub(crate) fn failure(error: Error) -> Failure {
    let text = error.to_string();
    if error.is_usage() { Failure::Usage(text) } else { Failure::Failed(text) }
}
