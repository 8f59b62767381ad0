//! Bounds on what clients can make the server hold. No bound here reserves memory: bytes are kept as they arrive.

use std::time::Duration;

/// What one client and all clients together may take.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Connections at a time; one more is refused with an error reply.
    pub connections_max: usize,
    /// Arguments of one command, the verb included.
    pub arguments_max: usize,
    /// Bytes of one argument.
    pub bulk_bytes_max: usize,
    /// Bytes of one inline command, and of one header line.
    pub inline_bytes_max: usize,
    /// Bytes of one command with all its arguments. At most 1 GiB, so that positions fit 32 bits.
    pub command_bytes_max: usize,
    /// A connection with more unsent reply bytes than this is not read from, and starts no further command.
    pub backlog_bytes_max: usize,
    /// How long a closing connection may take to send what is left, and a stopping server to finish its commands.
    pub closing_wait: Duration,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            connections_max: 10_000,
            arguments_max: 1 << 20,
            bulk_bytes_max: 16 << 20,
            inline_bytes_max: 64 << 10,
            command_bytes_max: 256 << 20,
            backlog_bytes_max: 1 << 20,
            closing_wait: Duration::from_secs(10),
        }
    }
}
