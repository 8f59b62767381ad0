//! Tests of replication in a simulated world: the log in the store, openraft's storage suite, three nodes, and three
//! stores with keys.

mod groups;
mod history;
mod log_lane;
mod nodes;
mod refused;
mod stores;
mod suite;
mod support;
