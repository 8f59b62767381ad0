//! `esker device`: what drives tell of themselves.

mod waf;

use clap::Subcommand;

use crate::terminal::Failure;

/// Asks drives what they do with what they are given.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  esker device waf /dev/nvme0
  esker device waf /dev/nvme0 --interval 10m
  esker device waf --help

Exit code 0; 1 if a drive or a log page does not tell; 2 if the call is wrong.")]
pub(crate) struct Arguments {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Shows how many bytes a drive writes to its flash for each byte that it is given.
    Waf(waf::Arguments),
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    match &arguments.verb {
        Verb::Waf(arguments) => waf::run(arguments),
    }
}
