//! The Esker store: put, get, delete, batches, recovery, destaging.
mod batch;
mod error;
mod options;
mod store;
pub use batch::Batch;
pub use error::{Error, ErrorKind, Result};
pub use options::{Durability, Options};
pub use store::{Condition, Cursor, Entry, Page, Recovery, Stats, Store, WriteOptions};
