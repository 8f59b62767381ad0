//! `esker device`: properties and counters of drives.

mod advice;
mod array;
mod block;
mod doctor;
mod measure;
mod online;
mod probe;
mod scratch;
#[cfg(test)]
mod tests;
mod unit;
mod waf;

use clap::Subcommand;

pub(crate) use self::doctor::describe;
use crate::terminal::Failure;

/// Shows what a device is, what of it matters to a store, and what to do about it.
#[derive(clap::Args)]
#[command(
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true,
    after_help = "\
Examples:
  esker device /dev/nvme0n1
  esker device /dev/nvme0n1p1 --keys 2g --json
  esker device /dev/md/capacity
  esker device /var/lib/esker
  esker device waf /dev/nvme0
  esker device /dev/nvme1n1 --measure --destroy-data
  esker device waf --help
  esker device add capacity /dev/disk/by-id/nvme-D     to a running server

esker device DEVICE, waf and list write nothing. --measure overwrites up to 32 GiB of the device; add erases the start of a
device and makes it a part of the store; drain moves a device's records and removes the device.

Exit code 0; 1 if something about the device should be fixed, or a drive, log page or server does not answer; 2 if the
call is wrong."
)]
pub(crate) struct Arguments {
    #[command(flatten)]
    doctor: doctor::Arguments,
    #[command(subcommand)]
    verb: Option<Verb>,
}

#[derive(Subcommand)]
enum Verb {
    /// Shows how many bytes a drive writes to its flash for each byte that it is given.
    Waf(waf::Arguments),
    /// Lists the devices of a running server's tiers of several devices.
    List(online::List),
    /// Adds a blank device to a tier of a running server.
    Add(online::Add),
    /// Moves the records of a running server's device to the others of its tier, and then removes it.
    Drain(online::Drain),
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    match &arguments.verb {
        Some(Verb::Waf(arguments)) => waf::run(arguments),
        Some(Verb::List(arguments)) => online::list(arguments),
        Some(Verb::Add(arguments)) => online::add(arguments),
        Some(Verb::Drain(arguments)) => online::drain(arguments),
        None => doctor::run(&arguments.doctor),
    }
}
