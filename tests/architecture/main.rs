//! What keeps the house in order: arrows between crates and between their rooms point one way, dependencies are used, and their
//! licences are known. Each rule is a table; a change that breaks one says so here, with what to do.

mod licences;
mod modules;
mod packages;
mod rooms;
mod source;
