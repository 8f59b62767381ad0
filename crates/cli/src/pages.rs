//! Shell completions and manual pages, generated from the definition of the command.

use std::path::PathBuf;

use clap::Command;
use clap_complete::{Shell, generate};

use crate::terminal::{Failure, say};

/// Prints shell completions for `esker`.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  esker completions bash > /usr/share/bash-completion/completions/esker
  esker completions zsh > ~/.zfunc/_esker
  esker completions fish > ~/.config/fish/completions/esker.fish")]
pub(crate) struct Completions {
    /// The shell.
    shell: Shell,
}

/// Writes manual pages, one for each verb.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  esker man /usr/local/share/man/man1 && man esker-serve")]
pub(crate) struct Man {
    /// Directory to write them to; it must exist.
    #[arg(value_name = "DIR")]
    directory: PathBuf,
}

pub(crate) fn completions(arguments: &Completions, mut command: Command) -> Result<(), Failure> {
    let mut text = Vec::new();
    generate(arguments.shell, &mut command, "esker", &mut text);
    say(&String::from_utf8_lossy(&text))
}

pub(crate) fn man(arguments: &Man, command: Command) -> Result<(), Failure> {
    let shown = arguments.directory.display();
    if !arguments.directory.is_dir() {
        return Err(Failure::Usage(format!("there is no directory {shown}")));
    }
    clap_mangen::generate_to(command, &arguments.directory)
        .map_err(|error| Failure::Failed(format!("cannot write manual pages to {shown}: {error}")))
}
