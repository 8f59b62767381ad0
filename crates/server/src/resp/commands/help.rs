//! HELP of commands with subcommands, in the layout of Redis and where possible in its words.

use crate::resp::session::Session;
use crate::resp::verb::facts::Bound;
use crate::resp::verb::{Run, Verb};
use crate::resp::wire::commands::Command;
use crate::resp::wire::reply::Replies;
use crate::service::Service;

/// Bytes of the lines of HELP.
const BYTES: usize = 4 << 10;

pub(super) const RUN: Run = Run::Answer(|command, session, _, replies| help(command, session, replies));

pub(super) const BOUND: fn(Command<'_>, &Session, &Service) -> Bound = |_, _, _| Bound::twice(BYTES);

/// Answers the lines of [`Verb::help`].
pub(super) fn help(command: Command<'_>, session: &mut Session, replies: &mut Replies) {
    let Some(&Verb { name, help, .. }) = session.commands.named(command.verb()) else { return };
    replies.array(help.lines().count() + 3);
    let name = name.to_ascii_uppercase();
    replies.simple(&format!("{name} <subcommand> [<arg> [value] [opt] ...]. Subcommands are:"));
    help.lines().chain(["HELP", "    Prints this help."]).for_each(|line| replies.simple(line));
}
