//! Commands that were read together.

use bytes::Bytes;

use crate::resp::commands::admit::{NotAdmitted, admit};
use crate::resp::session::{Answers, Session};
use crate::resp::verb::Verb;
use crate::resp::wire::commands::{Command, Commands};
use crate::service::Service;

/// Commands that were read together, and the progress of running them.
pub(in crate::resp) struct Batch<'a> {
    pub(super) commands: &'a Commands,
    pub(super) data: Bytes,
    /// The next command to run.
    pub(super) next: usize,
    /// Keys of the next command that are already answered. Only a long MGET is ever interrupted.
    pub(super) answered: usize,
    /// True if one of those keys was answered with an error.
    pub(super) failed: bool,
    /// The index of the command that was admitted last, and its verb.
    pub(super) let_in: Option<(usize, &'static Verb)>,
}

impl<'a> Batch<'a> {
    pub(in crate::resp) fn new(commands: &'a Commands, data: Bytes) -> Batch<'a> {
        Batch { commands, data, next: 0, answered: 0, failed: false, let_in: None }
    }

    pub(in crate::resp) fn is_done(&self) -> bool {
        self.next == self.commands.len()
    }

    /// Returns the number of commands that have run.
    pub(in crate::resp) fn position(&self) -> usize {
        self.next
    }

    pub(super) fn command(&self, index: usize) -> Command<'_> {
        self.commands.get(index, &self.data)
    }

    /// Returns the descriptor of the next command, or its refusal.
    pub(super) fn admit_next(
        &self,
        session: &Session,
        service: &Service,
    ) -> Result<&'static Verb, NotAdmitted> {
        match self.let_in {
            // The rest of a command that is partly answered.
            Some((index, verb)) if index == self.next && self.answered > 0 => Ok(verb),
            _ => admit(self.command(self.next), session, service.cluster.as_deref()),
        }
    }

    /// Returns the admitted commands from `next` on, with their descriptors, up to the first refused one. If the client
    /// does not want all answers, only the first is returned.
    pub(super) fn admitted<'s>(
        &'s self,
        session: &Session,
        service: &Service,
    ) -> impl Iterator<Item = (Command<'s>, &'static Verb)> {
        let alone =
            session.answers != Answers::On || session.durability_next.is_some() || session.is_caching_given();
        let end = if alone { self.next + 1 } else { self.commands.len() };
        (self.next..end).map_while(|index| {
            let command = self.command(index);
            match self.let_in {
                Some((known, verb)) if known == index => Some((command, verb)),
                _ => admit(command, session, service.cluster.as_deref()).ok().map(|verb| (command, verb)),
            }
        })
    }
}
