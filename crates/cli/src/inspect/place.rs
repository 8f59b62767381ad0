//! Options that name the store and the key.

use std::path::PathBuf;

use clap::Args;
use esker_engine::Store;
use esker_inspect::StoreView;

use super::exit::failure;
use crate::terminal::Failure;

/// A store.
#[derive(Args)]
pub(crate) struct Place {
    /// The store: its directory, or the file or block device of its tier.
    #[arg(value_name = "STORE")]
    pub(crate) store: PathBuf,
    /// A further file or block device of the store: of its other tier, or of a tier of several devices; repeatable, in any
    /// order.
    #[arg(long, value_name = "PATH")]
    pub(crate) peer: Vec<PathBuf>,
}

impl Place {
    pub(crate) fn paths(&self) -> Vec<PathBuf> {
        [&self.store].into_iter().chain(&self.peer).cloned().collect()
    }

    /// Opens the store for reading.
    pub(crate) fn view(&self) -> Result<StoreView, Failure> {
        StoreView::open(&self.paths()).map_err(failure)
    }
}

/// How output is written.
#[derive(Args)]
pub(crate) struct Output {
    /// Print JSON instead of text.
    #[arg(long)]
    pub(crate) json: bool,
}

/// How a key is written on the command line.
#[derive(Args)]
pub(crate) struct KeyForm {
    /// Keys are given in hexadecimal digits.
    #[arg(long)]
    hex: bool,
}

impl KeyForm {
    /// Parses a key.
    pub(crate) fn parse(&self, text: &str) -> Result<Vec<u8>, Failure> {
        let key = if self.hex { unhex(text) } else { Some(text.as_bytes().to_vec()) };
        match key {
            None => {
                Err(Failure::Usage(format!("'{text}' is not a whole number of bytes in hexadecimal digits")))
            }
            Some(key) if key.is_empty() => Err(Failure::Usage("a key has at least one byte".to_owned())),
            Some(key) => Ok(key),
        }
    }
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    if !text.len().is_multiple_of(2) || !text.is_ascii() {
        return None;
    }
    (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).ok()).collect()
}

/// Which database is meant.
#[derive(Args)]
pub(crate) struct Database {
    /// The number of the key's database.
    #[arg(long = "database", value_name = "NUMBER", default_value = "0", value_parser = database)]
    pub(super) number: u8,
}

/// Parses the number of a database.
pub(crate) fn database(text: &str) -> Result<u8, String> {
    let last = Store::DATABASES - 1;
    let number = text.parse().ok().filter(|number| *number <= last);
    number.ok_or_else(|| format!("databases are 0 to {last}"))
}
