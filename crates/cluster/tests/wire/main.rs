//! Tests of the network between nodes, with real sockets on the loopback interface.

mod bind;
mod calls;
mod hostile;
mod identities;
mod levels;
mod raw;
mod secrets;
mod support;
mod tls;
