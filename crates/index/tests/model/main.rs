//! The index against a model: random operations on colliding keys, and readers beside a writer that moves all entries.

mod concurrent;
mod oracle;
mod random;
mod scan;
mod seed;
mod world;
