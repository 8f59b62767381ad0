//! What is looked at, and taken away, before a store is measured.

use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read};
use std::path::Path;
use std::sync::Arc;

use esker_device::{Runtime, block_on};
use esker_engine::{Durability, Store};
use esker_log::Superblock;

use super::command_line::config::Config;
use super::command_line::places::Places;
use crate::instruments::failure::{Failure, Result};

/// The file of a store in a directory.
const DATA: &str = "data.esker";
/// All copies of a superblock are below this.
const HEAD_BYTES: u64 = 4 << 20;

/// Removes the files of a closed store from its directory, and nothing else.
pub(super) fn remove_files(db: &Path) -> Result<()> {
    for path in [DATA, "staging.esker"].map(|name| db.join(name)) {
        match std::fs::remove_file(&path) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                return Err(Failure::failed(&format!("removing {}", path.display()), error));
            }
            _ => {}
        }
    }
    Ok(())
}

/// The superblock of the store in a directory, if there is one.
fn superblock(db: &Path) -> Option<Superblock> {
    let mut head = Vec::new();
    File::open(db.join(DATA)).ok()?.take(HEAD_BYTES).read_to_end(&mut head).ok()?;
    Superblock::find(&head).ok()
}

/// Removes the store in the directory if segments or units are to be of another length, which cannot be changed. Only a
/// store that can be opened as it is, by nobody else, is removed.
pub(super) fn remove_other_shape(places: &Places, runtime: &Arc<dyn Runtime>) -> Result<()> {
    if places.fast.is_some() || places.capacity.is_some() {
        return Ok(());
    }
    let Some(there) = superblock(&places.db).filter(|there| places.differs(there)) else { return Ok(()) };
    let options = places.of_shape(&there).options(Durability::None).create(false).runtime(runtime.clone());
    let store = block_on(Store::open(options))?;
    block_on(store.close())?;
    remove_files(&places.db)
}

/// Can what is asked for be put into the store, and written to `--json`? Nothing was emptied yet.
pub(super) fn check(config: &Config, store: &Store) -> Result<()> {
    let (longest, most) = (config.value_size.most(), store.max_value_bytes(config.key_size));
    if longest as u64 > most {
        return Err(Failure::usage(format!(
            "values of {longest} bytes: at most {most} fit in a segment of this store beside a key of {} bytes; give --segment",
            config.key_size
        )));
    }
    match config.json.as_deref() {
        None | Some("-" | "1" | "true") => Ok(()),
        Some(path) => OpenOptions::new()
            .create(true)
            .append(true)
            .open(path)
            .map(|_| ())
            .map_err(|error| Failure::usage(format!("--json={path}: {error}"))),
    }
}
