//! How a server is set up.

use std::net::SocketAddr;

use crate::Limits;

/// Settings of a [`Server`](crate::Server).
#[derive(Clone, Debug)]
pub struct Config {
    /// Addresses that answer RESP. Port 0 takes any free port.
    pub resp: Vec<SocketAddr>,
    /// What one client and all clients together may take.
    pub limits: Limits,
    /// What `CONFIG GET` answers beside the server's own settings: name and value, such as `("dir", "/data")`.
    pub settings: Vec<(String, String)>,
}

impl Config {
    /// RESP on one address, everything else by default.
    pub fn resp(address: SocketAddr) -> Config {
        Config { resp: vec![address], limits: Limits::default(), settings: Vec::new() }
    }
}
