//! Tests of replication in a simulated world: the log in the store, openraft's storage suite, three replicas, three stores
//! with keys, and clusters.

mod campaign;
mod checker;
mod clients;
mod copies;
mod groups;
mod healing;
mod history;
mod installs;
mod log_lane;
mod machines;
mod membership;
mod messages;
mod network;
mod nodes;
mod placement;
mod readers;
mod recovering;
mod refused;
mod replica_reads;
mod states;
mod stores;
mod suite;
mod support;
mod watcher;
