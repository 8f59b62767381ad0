//! Checks the structure of the repository: dependencies between crates and between their rooms point one
//! way, declared dependencies are used, and their licences are allowed. Each rule is a table; a violation
//! is reported with its remedy.

mod licences;
mod modules;
mod packages;
mod rooms;
mod source;
