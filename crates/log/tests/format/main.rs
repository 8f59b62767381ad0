//! The bytes of the log: what is written is read again, what was changed is noticed, and nothing that can lie on a
//! device makes a parser panic.

mod compression;
mod document;
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
