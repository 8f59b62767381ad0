//! The format of the log: written data reads back, changes are detected, and no bytes on a device make a parser panic.

mod compression;
mod document;
mod far_copies;
mod frame;
mod golden;
mod hostile;
mod location;
mod record;
mod rot;
mod scan;
mod segment;
mod slots;
mod summary;
mod superblock;
mod world;
