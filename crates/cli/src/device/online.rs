//! `esker device list`, `add` and `drain`: the devices of a running server.

use std::time::Duration;

use clap::ValueEnum;

use crate::client::{Answer, Login};
use crate::terminal::{Failure, say};

/// Default time limit of an answer. A device that is added is erased at its start first.
const PATIENCE: Duration = Duration::from_secs(60);

/// A running server.
#[derive(clap::Args)]
struct At {
    /// RESP address of the server: HOST:PORT, or a port of this machine.
    #[arg(long, default_value = "127.0.0.1:6379", value_name = "ADDR")]
    from: String,
    #[command(flatten)]
    login: Login,
}

#[derive(clap::Args)]
#[command(after_help = "Examples:\n  esker device list\n  esker device list --from 10.0.0.7:6379 --user ops")]
pub(crate) struct List {
    #[command(flatten)]
    at: At,
}

#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  esker device add capacity /dev/disk/by-id/nvme-D

The device must be blank: its start must be zeros (blkdiscard). Afterwards add its path to the server's setting of
that tier, because the next start needs it.")]
pub(crate) struct Add {
    /// The tier, which has several devices already.
    tier: Tier,
    /// Path of the block device on the server.
    path: String,
    #[command(flatten)]
    at: At,
}

#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  esker device drain /dev/disk/by-id/nvme-B
  watch esker device list

Returns at once; the device is removed from the list when it is empty. Then take its path out of the server's
settings, because otherwise the next start adds it again.")]
pub(crate) struct Drain {
    /// Path of the device, as `esker device list` shows it.
    path: String,
    #[command(flatten)]
    at: At,
}

#[derive(Clone, Copy, ValueEnum)]
enum Tier {
    Fast,
    Capacity,
}

impl At {
    fn ask(&self, words: &[&str]) -> Result<String, Failure> {
        let words: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
        let mut client = self.login.connect(&self.from, PATIENCE)?;
        match client.ask(&words)? {
            Answer::Text(_) => Ok(String::new()),
            Answer::Parts(lines) => lines
                .into_iter()
                .map(|line| match line {
                    Answer::Text(line) => Ok(String::from_utf8_lossy(&line).into_owned() + "\n"),
                    _ => Err(client.unexpected("DEVICE").into()),
                })
                .collect(),
            _ => Err(client.unexpected("DEVICE").into()),
        }
    }
}

pub(crate) fn list(arguments: &List) -> Result<(), Failure> {
    match arguments.at.ask(&["DEVICE", "LIST"])? {
        lines if lines.is_empty() => say("no tier has several devices\n"),
        lines => say(&lines),
    }
}

pub(crate) fn add(Add { tier, path, at }: &Add) -> Result<(), Failure> {
    let tier = match tier {
        Tier::Fast => "fast",
        Tier::Capacity => "capacity",
    };
    at.ask(&["DEVICE", "ADD", tier, path])?;
    say(&format!("{path} was added; add it to the setting {tier} of the server before its next start\n"))
}

pub(crate) fn drain(Drain { path, at }: &Drain) -> Result<(), Failure> {
    at.ask(&["DEVICE", "DRAIN", path])?;
    say(&format!("{path} is being drained; it is removed when it is empty (esker device list)\n"))
}
