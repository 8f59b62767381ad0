//! Limits on the resources that clients can hold. No limit reserves memory: memory is taken as bytes arrive.

use std::time::Duration;

/// Limits per client and for all clients together.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Maximum number of connections; a further one is refused with an error reply.
    pub connections_max: usize,
    /// Maximum number of connections from one IPv4 address or one IPv6 /64.
    pub connections_per_address_max: usize,
    /// Memory for all clients together, in bytes: input, running commands, and pending replies.
    pub client_bytes_max: usize,
    /// Memory that one client may hold of it, in bytes.
    pub connection_bytes_max: usize,
    /// Maximum number of arguments of one command, the verb included.
    pub arguments_max: usize,
    /// Maximum length of one argument, in bytes.
    pub bulk_bytes_max: usize,
    /// Maximum length of an inline command or a header line, in bytes.
    pub inline_bytes_max: usize,
    /// Maximum length of one command with all its arguments, in bytes. At most 1 GiB, so that offsets fit 32 bits.
    pub command_bytes_max: usize,
    /// Bytes of an oversized command that are read and discarded, so that its client receives the error reply. The connection is
    /// closed if the command is longer.
    pub refused_bytes_max: usize,
    /// Maximum number of commands of one client that are taken from its input at once.
    pub pipeline_max: usize,
    /// Soft limit of unsent reply bytes. Above it the connection is not read, and starts no further command.
    pub backlog_bytes_max: usize,
    /// Hard limit of unsent reply bytes. Above it the connection is closed.
    pub backlog_bytes_hard: usize,
    /// Grace period of a client with pending replies; it is closed after that unless it reads 64 KiB per second.
    pub reply_wait: Option<Duration>,
    /// Time in which a command must arrive, plus a second for each 64 KiB of it.
    pub command_wait: Option<Duration>,
    /// Time for the TLS handshake, and for the login if one is required.
    pub login_wait: Option<Duration>,
    /// Maximum idle time between two commands.
    pub idle_wait: Option<Duration>,
    /// Idle time before the first TCP keepalive probe. Three probes are sent, a third of this time apart; without an answer the
    /// connection is closed. The kernel counts in seconds.
    pub keepalive: Option<Duration>,
    /// Time that a client waits for memory before its command fails or its connection is closed.
    pub memory_wait: Duration,
    /// Maximum run time of a script.
    pub script_time: Duration,
    /// Memory of a script's interpreter in bytes; at most a quarter of `connection_bytes_max`. The script's writes and its reply
    /// may take half as much each.
    pub script_bytes_max: usize,
    /// Maximum number of keys tracked for client-side caching; 0: as many as fit in an eighth of the memory for clients.
    pub tracking_keys_max: usize,
    /// Time that a stopping server keeps serving while it reports not ready, so that load balancers notice.
    pub drain_delay: Duration,
    /// Time that a closing connection has to send its pending replies, and a stopping server to finish its commands.
    pub closing_wait: Duration,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            connections_max: 10_000,
            connections_per_address_max: 1_000,
            client_bytes_max: 256 << 20,
            connection_bytes_max: 192 << 20,
            arguments_max: 1 << 20,
            bulk_bytes_max: 16 << 20,
            inline_bytes_max: 64 << 10,
            command_bytes_max: 256 << 20,
            refused_bytes_max: 512 << 20,
            pipeline_max: 4096,
            backlog_bytes_max: 1 << 20,
            backlog_bytes_hard: 64 << 20,
            reply_wait: Some(Duration::from_secs(30)),
            command_wait: Some(Duration::from_secs(30)),
            login_wait: Some(Duration::from_secs(10)),
            idle_wait: None,
            keepalive: Some(Duration::from_secs(300)),
            memory_wait: Duration::from_secs(10),
            script_time: Duration::from_secs(5),
            script_bytes_max: 8 << 20,
            tracking_keys_max: 1_000_000,
            drain_delay: Duration::ZERO,
            closing_wait: Duration::from_secs(10),
        }
    }
}

impl Limits {
    /// Returns the limits before login: enough for HELLO, AUTH and a few more commands.
    pub(crate) fn before_login(&self) -> Limits {
        Limits {
            arguments_max: self.arguments_max.min(10),
            bulk_bytes_max: self.bulk_bytes_max.min(16 << 10),
            inline_bytes_max: self.inline_bytes_max.min(4 << 10),
            command_bytes_max: self.command_bytes_max.min(32 << 10),
            refused_bytes_max: 0,
            pipeline_max: 1,
            backlog_bytes_max: self.backlog_bytes_max.min(16 << 10),
            reply_wait: self.login_wait,
            command_wait: self.login_wait,
            idle_wait: self.login_wait,
            ..self.clone()
        }
    }
}
