//! Operations of clients with their replies, and a sequential model that computes the expected replies.

use std::fmt;

/// Content of a key: absent or a number.
pub(crate) type Value = Option<i64>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    Get,
    Set(i64),
    /// SET with NX: only if the key is absent.
    SetNew(i64),
    /// SET with XX: only if the key exists.
    SetKnown(i64),
    /// GETSET.
    Swap(i64),
    /// GETDEL.
    Take,
    Del,
    Incr,
    /// PEXPIREAT with a time in the past.
    Outdate,
    /// WATCH, GET, and EXEC with a SET: sets the second value if the key has the first. An aborted EXEC had no effect and is not
    /// an operation.
    Exchange(Value, i64),
    /// Not a command: a value with a time to live, or its result of INCR, expires.
    Vanish(i64),
}

/// Distance between values that are set, so that increments of one do not reach another.
pub(crate) const APART: i64 = 1_000_000;

/// An action on a key. Several of them form a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Step {
    pub(crate) key: usize,
    pub(crate) action: Action,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reply {
    Ok,
    /// EXEC was aborted because of WATCH.
    Aborted,
    Value(Value),
    Number(i64),
}

/// One operation of one client.
#[derive(Clone, Debug)]
pub(crate) struct Operation {
    pub(crate) client: usize,
    pub(crate) steps: Vec<Step>,
    /// One for each step; `None` if the server was killed before it answered. Such an operation happened as a whole before the
    /// kill or never.
    pub(crate) replies: Option<Vec<Reply>>,
    /// Times of a clock that never repeats. The operation took effect between `invoked` and `returned`.
    pub(crate) invoked: u64,
    /// Time of the reply, or of the death of the server.
    pub(crate) returned: u64,
}

impl Operation {
    /// Applies the operation, and returns true if the replies equal the client's.
    pub(crate) fn apply(&self, state: &mut [Value]) -> bool {
        let mut right = true;
        for (at, step) in self.steps.iter().enumerate() {
            let reply = step.apply(&mut state[step.key]);
            right &= self.replies.as_ref().is_none_or(|replies| replies.get(at) == Some(&reply));
        }
        right
    }
}

fn put(value: &mut Value, new: i64) -> Reply {
    *value = Some(new);
    Reply::Ok
}

impl Step {
    fn apply(&self, value: &mut Value) -> Reply {
        match self.action {
            Action::Get => Reply::Value(*value),
            Action::Set(new) => put(value, new),
            Action::SetNew(new) if value.is_none() => put(value, new),
            Action::SetKnown(new) if value.is_some() => put(value, new),
            Action::SetNew(_) | Action::SetKnown(_) => Reply::Value(None),
            Action::Swap(new) => Reply::Value(value.replace(new)),
            Action::Take => Reply::Value(value.take()),
            Action::Outdate => Reply::Number(i64::from(value.take().is_some())),
            Action::Exchange(expected, new) if *value == expected => put(value, new),
            Action::Exchange(..) => Reply::Aborted,
            Action::Vanish(set) => {
                value.take_if(|now| (set..set + APART).contains(now));
                Reply::Ok
            }
            Action::Del => Reply::Number(i64::from(value.take().is_some())),
            Action::Incr => Reply::Number(*value.insert(value.unwrap_or(0) + 1)),
        }
    }
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:>7}..{:<7} client {}:", self.invoked, self.returned, self.client)?;
        for (at, step) in self.steps.iter().enumerate() {
            write!(f, " {:?} {}", step.action, step.key)?;
            match &self.replies {
                Some(replies) => write!(f, " -> {:?};", replies[at])?,
                None => write!(f, " -> killed;")?,
            }
        }
        Ok(())
    }
}

/// Formats a history as JSON, one line per operation, for checkers in other languages.
pub(crate) fn to_json_lines(history: &[Operation]) -> String {
    let reply = |reply: &Reply| match reply {
        Reply::Ok => serde_json::json!("ok"),
        Reply::Aborted => serde_json::json!("aborted"),
        Reply::Value(value) => serde_json::json!({ "value": value }),
        Reply::Number(number) => serde_json::json!({ "number": number }),
    };
    let step = |step: &Step| {
        let (name, value, expected) = match step.action {
            Action::Get => ("get", None, None),
            Action::Set(value) => ("set", Some(value), None),
            Action::SetNew(value) => ("set_new", Some(value), None),
            Action::SetKnown(value) => ("set_known", Some(value), None),
            Action::Swap(value) => ("swap", Some(value), None),
            Action::Take => ("take", None, None),
            Action::Del | Action::Outdate => ("del", None, None),
            Action::Incr => ("incr", None, None),
            Action::Exchange(expected, value) => ("exchange", Some(value), expected),
            Action::Vanish(value) => ("vanish", Some(value), None),
        };
        serde_json::json!({ "key": step.key, "action": name, "value": value, "expected": expected })
    };
    let line = |operation: &Operation| {
        let steps: Vec<_> = operation.steps.iter().map(step).collect();
        let replies = operation.replies.as_ref().map(|replies| replies.iter().map(reply).collect::<Vec<_>>());
        let (invoked, returned) = (operation.invoked, operation.returned);
        let line = serde_json::json!({
            "client": operation.client, "invoked": invoked, "returned": returned, "steps": steps, "replies": replies,
        });
        format!("{line}\n")
    };
    history.iter().map(line).collect()
}
