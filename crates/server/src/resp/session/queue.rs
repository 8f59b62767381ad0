//! The state that EXEC needs: copies of the queued commands, and the watched keys.

use bytes::Bytes;
use esker_engine::KeyWatch;

use crate::Limits;
use crate::resp::verb::Verb;
use crate::resp::wire::commands::{Command, Copied};

/// A queued command with its verb.
pub(in crate::resp) type Queued = (&'static Verb, Copied);

/// Commands queued for EXEC.
#[derive(Default)]
pub(crate) struct Transaction {
    commands: Vec<Queued>,
    bytes: usize,
    /// The database that the last queued SELECT chooses.
    database: Option<u8>,
    /// True if a command was refused: EXEC will be refused too.
    spoiled: bool,
}

/// A watched key, its version when WATCH read it, a detector of puts since then, and the number of changes of the leadership
/// of its group in a cluster.
pub(crate) struct Watched {
    pub(in crate::resp) database: u8,
    pub(in crate::resp) key: Bytes,
    pub(in crate::resp) version: Option<u64>,
    pub(in crate::resp) watch: KeyWatch,
    pub(in crate::resp) leader_changes: u64,
}

/// Bytes of a queued command beside its arguments: its entry in the queue, which doubles when it grows, and its copy.
const COMMAND_BYTES: usize = 192;

/// Bytes of the queue for each argument.
const ARGUMENT_BYTES: usize = 8;

/// Bytes that the store holds for a watched key.
const WATCH_BYTES: usize = 128;

impl Transaction {
    pub(in crate::resp) fn held_bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn database(&self) -> Option<u8> {
        self.database
    }

    pub(in crate::resp) fn commands(&self) -> &[Queued] {
        &self.commands
    }

    /// Sets the database of the commands that are queued from now on.
    pub(in crate::resp) fn choose(&mut self, database: u8) {
        self.database = Some(database);
    }

    /// Notes that a command was refused.
    pub(in crate::resp) fn spoil(&mut self) {
        self.spoiled = true;
    }

    pub(in crate::resp) fn is_spoiled(&self) -> bool {
        self.spoiled
    }

    fn bytes_with(&self, command: Command<'_>) -> usize {
        self.bytes + command.bytes() + command.len() * ARGUMENT_BYTES + COMMAND_BYTES
    }

    /// Returns true if a command can be appended without exceeding the limits of a single command.
    pub(in crate::resp) fn has_room(&self, command: Command<'_>, limits: &Limits) -> bool {
        self.bytes_with(command) <= limits.command_bytes_max && self.commands.len() < limits.arguments_max
    }

    /// Appends a command, unless the transaction would exceed the limits of a single command. Returns the number of
    /// queued commands.
    pub(in crate::resp) fn push(
        &mut self,
        verb: &'static Verb,
        command: Command<'_>,
        limits: &Limits,
    ) -> Result<usize, String> {
        let bytes = self.bytes_with(command);
        if !self.has_room(command, limits) {
            *self = Transaction { spoiled: true, ..Transaction::default() };
            let (bytes, commands) = (limits.command_bytes_max, limits.arguments_max);
            return Err(format!("ERR transaction of more than {bytes} bytes or {commands} commands"));
        }
        self.bytes = bytes;
        self.commands.push((verb, Copied::of(command)));
        Ok(self.commands.len())
    }
}

impl Watched {
    pub(in crate::resp) fn held_bytes(&self) -> usize {
        2 * size_of::<Watched>() + self.key.len() + WATCH_BYTES
    }
}
