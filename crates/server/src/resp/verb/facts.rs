//! The parts of a descriptor: groups, keys, databases, sizes, and the words that descriptors share.

use crate::resp::wire::commands::Command;
use crate::resp::wire::number::parse_integer;
use crate::service::channels::Kind;

/// Flags of access to a key, as in Redis.
pub(in crate::resp) type Access = &'static [&'static str];

/// Faster ways to run some commands than on a view, outside transactions.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(in crate::resp) enum Fast {
    No,
    /// GET.
    Get,
    /// MGET, with any number of keys.
    Mget,
    /// EXISTS and TOUCH, which need no values.
    Count,
    /// Commands that need only the length of a value and its expiry.
    Facts,
    /// SET, if it does not depend on the stored entry.
    Set,
    /// DEL and UNLINK, with any number of keys.
    Delete,
}

/// Redis' groups of commands.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(in crate::resp) enum Group {
    String,
    Bitmap,
    Hyperloglog,
    Generic,
    Transactions,
    Scripting,
    Connection,
    Pubsub,
    Server,
    Cluster,
    /// Lines of HTTP, which are no commands and end the connection.
    Http,
}

impl Group {
    pub(in crate::resp) fn name(self) -> &'static str {
        match self {
            Group::String => "string",
            Group::Bitmap => "bitmap",
            Group::Hyperloglog => "hyperloglog",
            Group::Generic => "generic",
            Group::Transactions => "transactions",
            Group::Scripting => "scripting",
            Group::Connection => "connection",
            Group::Pubsub => "pubsub",
            Group::Server => "server",
            Group::Cluster => "cluster",
            Group::Http => "",
        }
    }
}

/// The databases that a command uses.
#[derive(Clone, Copy)]
pub(in crate::resp) enum Databases {
    /// The current one, for its keys.
    OfKeys,
    /// The current one, for keys that it does not name.
    Current,
    All,
    /// The one in its argument, which it selects.
    Selected,
    /// Those in its arguments.
    Named,
    /// The current one, and that of a move, for the first key.
    MovedTo(fn(Command<'_>) -> Option<u8>),
    /// The current one for the first key, and that of a copy for the second.
    CopiedTo(fn(Command<'_>) -> Option<u8>),
}

/// The channels that a command names in its arguments.
#[derive(Clone, Copy)]
pub(in crate::resp) enum Channels {
    None,
    /// All arguments are channels or patterns to listen to.
    Heard(Kind),
    /// The first argument is a channel to publish to.
    Published,
}

/// Treatment of a command while a transaction is being queued.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(in crate::resp) enum InMulti {
    Queued,
    /// It is queued, and answered with an error by EXEC, as in Redis.
    RefusedByExec,
    /// It runs at once.
    Runs,
    Refused,
}

/// Which CLIENT PAUSE holds a command.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(in crate::resp) enum Pauses {
    /// One of writes if the command has the flag `write`, else one of all commands.
    ByFlags,
    /// One of writes: the command may write or send messages to other clients.
    OfWrites,
    /// None, so that a pause can be ended.
    Never,
}

/// Positions of keys among the arguments, as `COMMAND` reports them; a negative `last` counts from the end.
#[derive(Clone, Copy)]
pub(in crate::resp) struct Keys {
    pub(in crate::resp) first: i64,
    pub(in crate::resp) last: i64,
    pub(in crate::resp) step: i64,
    /// Index of the argument with the number of keys, if there is one: the keys follow it, and the other positions
    /// are zero.
    pub(in crate::resp) counted_at: Option<usize>,
}

impl Keys {
    pub(in crate::resp) const NONE: Keys = Keys { first: 0, last: 0, step: 0, counted_at: None };
    pub(in crate::resp) const ONE: Keys = Keys { first: 1, last: 1, step: 1, counted_at: None };
    pub(in crate::resp) const TWO: Keys = Keys { first: 1, last: 2, step: 1, counted_at: None };
    pub(in crate::resp) const ALL: Keys = Keys { first: 1, last: -1, step: 1, counted_at: None };
    /// The argument after the subcommand.
    pub(in crate::resp) const SECOND: Keys = Keys { first: 2, last: 2, step: 1, counted_at: None };
    pub(in crate::resp) const FROM_SECOND: Keys = Keys { first: 2, last: -1, step: 1, counted_at: None };
    pub(in crate::resp) const WITH_VALUES: Keys = Keys { first: 1, last: -1, step: 2, counted_at: None };
    pub(in crate::resp) const COUNTED: Keys = Keys { first: 0, last: 0, step: 0, counted_at: Some(2) };

    /// Returns true for no keys.
    pub(in crate::resp) fn is_none(&self) -> bool {
        self.step == 0 && self.counted_at.is_none()
    }

    /// Returns the indices of the arguments that are keys.
    pub(in crate::resp) fn of(&self, command: Command<'_>) -> impl Iterator<Item = usize> + Clone + use<> {
        if let Some(at) = self.counted_at {
            let count = (command.len() > at).then(|| parse_integer(command.argument(at))).flatten();
            let count = count.and_then(|count| usize::try_from(count).ok()).unwrap_or(0);
            // A command that declares more keys than it has arguments is refused when it runs.
            let count = if count >= command.len().saturating_sub(at) { 0 } else { count };
            return (at + 1..at + 1 + count).step_by(1);
        }
        let last = if self.last < 0 { command.len() as i64 + self.last } else { self.last };
        let end = if self.step == 0 { 0 } else { last as usize + 1 };
        (self.first as usize..end).step_by(self.step.max(1) as usize)
    }
}

/// Upper bounds of the memory for values, from a command's arguments.
#[derive(Clone, Copy)]
pub(in crate::resp) struct Sizes {
    /// Returns the length of the values of the keys after the command ran, from the longest one before and from the limit
    /// of the length of a value.
    pub(in crate::resp) after: fn(Command<'_>, usize, usize) -> usize,
    /// Returns the length of a value that the command makes from its arguments alone. The argument is the limit of the
    /// length of a value.
    pub(in crate::resp) made: fn(Command<'_>, usize) -> usize,
    /// Returns the bytes of values that the command answers, makes from others, or scans.
    pub(in crate::resp) moved: fn(Command<'_>, &Values<'_>) -> usize,
    /// Returns the bytes of temporary data for two values of these lengths, for a command that compares values.
    pub(in crate::resp) compared: Option<fn(usize, usize) -> usize>,
    /// True if a value becomes a separate copy only when it is written.
    pub(in crate::resp) is_copy: bool,
    /// True if the command scans values in one uninterruptible step without making or answering anything long.
    pub(in crate::resp) is_scan: bool,
}

/// The values of a command's keys.
pub(in crate::resp) struct Values<'a> {
    /// Bytes of all of them.
    pub(in crate::resp) sum: usize,
    /// The result of [`Sizes::after`].
    pub(in crate::resp) after: usize,
    /// Returns the bytes that are scanned again because a key is named again.
    pub(in crate::resp) repeated: &'a dyn Fn() -> usize,
}

/// Bytes of the longest integer as text.
const INTEGER_BYTES: usize = 20;

/// Microseconds of a command that always runs beside the serving threads.
pub(in crate::resp) const ALWAYS_LONG_US: usize = 1 << 20;

impl Sizes {
    /// The new value is an argument, another of the command's values, or an integer; nothing is answered of it.
    pub(in crate::resp) const DEFAULT: Sizes = Sizes {
        after: |command, longest, _| longest.max(command.bytes()).max(INTEGER_BYTES),
        made: |_, _| 0,
        moved: |_, _| 0,
        compared: None,
        is_copy: false,
        is_scan: false,
    };
    /// The command answers the values of its keys.
    pub(in crate::resp) const ANSWERED: Sizes = Sizes { moved: |_, values| values.sum, ..Sizes::DEFAULT };
    /// The command makes a value from its arguments and the one before.
    pub(in crate::resp) const MADE: Sizes = Sizes { moved: |_, values| values.after, ..Sizes::DEFAULT };
}

/// Upper bounds of the memory for the answer of a command that works on no key.
#[derive(Clone, Copy)]
pub(in crate::resp) struct Bound {
    /// Bytes of the answer.
    pub(in crate::resp) answer: usize,
    /// Bytes of temporary data while the answer is built.
    pub(in crate::resp) beside: usize,
}

impl Bound {
    /// Bytes of errors, and of answers of a few words.
    pub(in crate::resp) const SHORT_BYTES: usize = 512;

    /// Returns the bounds of an answer of `bytes` beside errors, which exists twice for a moment.
    pub(in crate::resp) const fn twice(bytes: usize) -> Bound {
        Bound { answer: Bound::SHORT_BYTES + bytes, beside: Bound::SHORT_BYTES + bytes }
    }

    /// Returns the bounds of an answer of `bytes` beside errors, which is built in place.
    pub(in crate::resp) const fn once(bytes: usize) -> Bound {
        Bound { answer: Bound::SHORT_BYTES + bytes, beside: 0 }
    }
}

/// Redis' ACL categories, in its order. Those of other data types contain no commands.
pub(in crate::resp) const CATEGORIES: [&str; 21] = [
    "keyspace",
    "read",
    "write",
    "set",
    "sortedset",
    "list",
    "hash",
    "string",
    "bitmap",
    "hyperloglog",
    "geo",
    "stream",
    "pubsub",
    "admin",
    "fast",
    "slow",
    "blocking",
    "dangerous",
    "connection",
    "transaction",
    "scripting",
];

/// Flags that several commands share.
pub(in crate::resp) mod flags {
    type Flags = &'static [&'static str];

    pub(in crate::resp) const NONE: Flags = &[];
    pub(in crate::resp) const READ: Flags = &["readonly", "fast"];
    pub(in crate::resp) const LONG_READ: Flags = &["readonly"];
    pub(in crate::resp) const WRITE: Flags = &["write", "denyoom", "fast"];
    pub(in crate::resp) const LONG_WRITE: Flags = &["write", "denyoom"];
    pub(in crate::resp) const CHANGE: Flags = &["write", "fast"];
    pub(in crate::resp) const LONG_CHANGE: Flags = &["write"];
    pub(in crate::resp) const NO_SCRIPT: Flags = &["noscript"];
    pub(in crate::resp) const LOGIN: Flags =
        &["noscript", "loading", "stale", "fast", "no_auth", "allow_busy"];
    pub(in crate::resp) const FAST: Flags = &["loading", "stale", "fast"];
    pub(in crate::resp) const TELL: Flags = &["loading", "stale"];
    /// Of commands about the client's own connection, or without any effect.
    pub(in crate::resp) const OWN: Flags = &["noscript", "loading", "stale"];
    pub(in crate::resp) const ADMIN: Flags = &["admin", "noscript", "loading", "stale"];
}

/// Access to keys that several commands share.
pub(in crate::resp) mod access {
    type Access = &'static [&'static str];

    pub(in crate::resp) const LOOK: Access = &["RO"];
    pub(in crate::resp) const READ: Access = &["RO", "access"];
    pub(in crate::resp) const UPDATE: Access = &["RW", "update"];
    pub(in crate::resp) const READ_UPDATE: Access = &["RW", "access", "update"];
    pub(in crate::resp) const READ_DELETE: Access = &["RW", "access", "delete"];
    pub(in crate::resp) const APPEND: Access = &["RW", "insert"];
    pub(in crate::resp) const OVERWRITE: Access = &["OW", "update"];
    pub(in crate::resp) const INSERT: Access = &["OW", "insert"];
    pub(in crate::resp) const VARIABLE: Access = &["RW", "access", "update", "variable_flags"];
}

/// Tips for proxies that several commands share.
pub(in crate::resp) mod tips {
    pub(in crate::resp) const EVERYWHERE: &str = "request_policy:all_shards";
    pub(in crate::resp) const ALL_NODES: &str = "request_policy:all_nodes";
    pub(in crate::resp) const BY_KEY: &str = "request_policy:multi_shard";
    pub(in crate::resp) const ALL: &str = "response_policy:all_succeeded";
    pub(in crate::resp) const SUM: &str = "response_policy:agg_sum";
    pub(in crate::resp) const LEAST: &str = "response_policy:agg_min";
    pub(in crate::resp) const SPECIAL: &str = "response_policy:special";
    pub(in crate::resp) const VARIES: &str = "nondeterministic_output";
    pub(in crate::resp) const ANY_ORDER: &str = "nondeterministic_output_order";
}
