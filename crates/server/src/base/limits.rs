//! Bounds on what clients can make the server hold. No bound here reserves memory: bytes are kept as they arrive.

use std::time::Duration;

/// What one client and all clients together may take.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Connections at a time; one more is refused with an error reply.
    pub connections_max: usize,
    /// Connections at a time from one IPv4 address or one IPv6 /64.
    pub connections_per_address_max: usize,
    /// Memory for all clients together: input, commands that run, and answers that wait.
    pub client_bytes_max: usize,
    /// What one client may have of it.
    pub connection_bytes_max: usize,
    /// Arguments of one command, the verb included.
    pub arguments_max: usize,
    /// Bytes of one argument.
    pub bulk_bytes_max: usize,
    /// Bytes of one inline command, and of one header line.
    pub inline_bytes_max: usize,
    /// Bytes of one command with all its arguments. At most 1 GiB, so that positions fit 32 bits.
    pub command_bytes_max: usize,
    /// Bytes of a command that is too long that are read all the same, so that its client gets to see why it is refused.
    /// The connection of a longer one ends.
    pub refused_bytes_max: usize,
    /// Commands of one client that are taken up at once; more wait in the input.
    pub pipeline_max: usize,
    /// A connection with more unsent reply bytes than this is not read from, and starts no further command.
    pub backlog_bytes_max: usize,
    /// A connection with more unsent reply bytes than this is dropped.
    pub backlog_bytes_hard: usize,
    /// How long a client whose answers wait may go without taking 64 KiB of them a second.
    pub reply_wait: Option<Duration>,
    /// How long a command may take to arrive, with a second more for each 64 KiB of it.
    pub command_wait: Option<Duration>,
    /// How long a client may take to shake hands, and to log in where it must.
    pub login_wait: Option<Duration>,
    /// How long a client may be silent between commands.
    pub idle_wait: Option<Duration>,
    /// How long a connection is silent before TCP asks whether the other end is still there. It asks three times, a third of
    /// this apart, and closes the connection if nobody answers. The kernel counts in seconds.
    pub keepalive: Option<Duration>,
    /// How long a client waits for memory before it is dropped.
    pub memory_wait: Duration,
    /// How long a script may run.
    pub script_time: Duration,
    /// Memory of a script's interpreter; at most a quarter of what one client may have. It may write half as much, and answer
    /// half as much.
    pub script_bytes_max: usize,
    /// Keys that are kept track of for clients that keep them; 0: as many as an eighth of the memory for clients
    /// has room for.
    pub tracking_keys_max: usize,
    /// How long a server that stops serves on, not ready any more, for load balancers to notice.
    pub drain_delay: Duration,
    /// How long a closing connection may take to send what is left, and a stopping server to finish its commands.
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
    /// What a client may take before it has logged in: enough for HELLO, AUTH and a few more.
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
