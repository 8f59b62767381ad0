//! Tests of replication in a simulated world: the log in the store, openraft's storage suite, and three nodes.

mod history;
mod log_lane;
mod nodes;
mod refused;
mod suite;
mod support;
