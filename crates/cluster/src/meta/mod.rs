//! The meta group: the nodes of the cluster, in keyspace 15.

pub mod codec;
pub mod table;
