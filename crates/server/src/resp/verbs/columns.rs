//! The static description of a verb: the columns of the table.

use crate::auth::Needs;
use crate::resp::wire::commands::Command;
use crate::resp::wire::number::parse_integer;

/// A row of the table.
pub(in crate::resp) struct Verb {
    pub(in crate::resp) name: &'static str,
    /// Number of arguments, including the verb; the minimum if negative.
    pub(in crate::resp) arity: i64,
    pub(in crate::resp) fast: Fast,
    pub(in crate::resp) keys: Keys,
    pub(in crate::resp) needs: Needs,
    pub(in crate::resp) flags: &'static [&'static str],
    pub(in crate::resp) group: &'static str,
    pub(in crate::resp) summary: &'static str,
}

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

/// Positions of keys among the arguments, as `COMMAND` reports them; a negative `last` counts from the end.
pub(in crate::resp) struct Keys {
    pub(in crate::resp) first: i64,
    pub(in crate::resp) last: i64,
    pub(in crate::resp) step: i64,
    /// Index of the argument with the number of keys, if there is one: the keys follow it, and the other positions
    /// are zero.
    pub(in crate::resp) counted_at: Option<usize>,
}

impl Keys {
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
