//! What is told of a verb: the columns of the table.

use crate::auth::Needs;
use crate::resp::wire::commands::Command;
use crate::resp::wire::number::parse_integer;

/// An entry of the table.
pub(in crate::resp) struct Verb {
    pub(in crate::resp) name: &'static str,
    /// Number of arguments with the verb; at least so many if negative.
    pub(in crate::resp) arity: i64,
    pub(in crate::resp) fast: Fast,
    pub(in crate::resp) keys: Keys,
    pub(in crate::resp) needs: Needs,
    pub(in crate::resp) flags: &'static [&'static str],
    pub(in crate::resp) group: &'static str,
    pub(in crate::resp) summary: &'static str,
}

/// Ways to run some commands with less work than on a view, where they do not stand in a transaction.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(in crate::resp) enum Fast {
    No,
    /// GET.
    Get,
    /// MGET, which may be of very many keys.
    Mget,
    /// EXISTS and TOUCH: the values are not needed.
    Count,
    /// What is known of a key beside its value: how long that is, and when it expires.
    Facts,
    /// SET, if it does not depend on what is there.
    Set,
    /// DEL and UNLINK, which may be of very many keys.
    Delete,
}

/// Positions of keys among the arguments, as `COMMAND` reports them; a negative last counts from the end.
pub(in crate::resp) struct Keys {
    pub(in crate::resp) first: i64,
    pub(in crate::resp) last: i64,
    pub(in crate::resp) step: i64,
    /// Where it is said how many keys follow, if it is: they begin behind it, and the other positions are zero.
    pub(in crate::resp) counted_at: Option<usize>,
}

impl Keys {
    /// Which arguments of a command are keys.
    pub(in crate::resp) fn of(&self, command: Command<'_>) -> impl Iterator<Item = usize> + Clone + use<> {
        if let Some(at) = self.counted_at {
            let count = (command.len() > at).then(|| parse_integer(command.argument(at))).flatten();
            let count = count.and_then(|count| usize::try_from(count).ok()).unwrap_or(0);
            // What names more keys than there are arguments is refused when it runs.
            let count = if count >= command.len().saturating_sub(at) { 0 } else { count };
            return (at + 1..at + 1 + count).step_by(1);
        }
        let last = if self.last < 0 { command.len() as i64 + self.last } else { self.last };
        let end = if self.step == 0 { 0 } else { last as usize + 1 };
        (self.first as usize..end).step_by(self.step.max(1) as usize)
    }
}
