//! The index against a model: random operations on keys that collide, and readers beside a writer that moves
//! everything.

mod concurrent;
mod oracle;
mod random;
mod scan;
mod seed;
mod world;
