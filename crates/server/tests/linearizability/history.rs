//! What clients did and were told, and what a single thread would have been told.

use std::fmt;

/// What a key can hold: nothing or a number.
pub(crate) type Value = Option<i64>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    Get,
    Set(i64),
    Del,
    Incr,
}

/// An action on a key. Several of them are a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Step {
    pub(crate) key: usize,
    pub(crate) action: Action,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reply {
    Ok,
    Value(Value),
    Number(i64),
}

/// One operation of one client.
#[derive(Clone, Debug)]
pub(crate) struct Operation {
    pub(crate) client: usize,
    pub(crate) steps: Vec<Step>,
    /// One for each step; `None` if the server was killed before it answered. Such an operation happened as a whole
    /// before the kill or never.
    pub(crate) replies: Option<Vec<Reply>>,
    /// Moments on a clock that never tells the same twice. The operation took effect between them.
    pub(crate) invoked: u64,
    /// When the reply was there, or else when the server was dead.
    pub(crate) returned: u64,
}

impl Operation {
    /// Does it, and tells whether the replies are those that the client got.
    pub(crate) fn apply(&self, state: &mut [Value]) -> bool {
        let mut right = true;
        for (at, step) in self.steps.iter().enumerate() {
            let reply = step.apply(&mut state[step.key]);
            right &= self.replies.as_ref().is_none_or(|replies| replies.get(at) == Some(&reply));
        }
        right
    }
}

impl Step {
    fn apply(&self, value: &mut Value) -> Reply {
        match self.action {
            Action::Get => Reply::Value(*value),
            Action::Set(new) => {
                *value = Some(new);
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
