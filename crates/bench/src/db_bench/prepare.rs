//! Checks the store and its place before a measurement, and removes an old store.

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

/// Name of the data file of a store in a directory.
const DATA: &str = "data.esker";
/// Length of the region with all copies of a superblock, in bytes.
const HEAD_BYTES: u64 = 4 << 20;

/// Removes the files of a closed store from its directory, and no other files.
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

/// Returns the superblock of the store in a directory, if there is one.
fn superblock(db: &Path) -> Option<Superblock> {
    let mut head = Vec::new();
    File::open(db.join(DATA)).ok()?.take(HEAD_BYTES).read_to_end(&mut head).ok()?;
    Superblock::find(&head).ok()
}

/// Removes the store in the directory if the requested lengths of segments or units differ from its own,
/// which cannot be changed. Only a store that can be opened, and that no other process has open, is
/// removed.
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

/// Checks that the values fit into the store, and that `--json` can be written, before anything is
/// deleted.
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
