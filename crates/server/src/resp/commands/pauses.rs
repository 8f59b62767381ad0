//! CLIENT PAUSE, UNPAUSE and UNBLOCK.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crate::resp::session::{Session, audit};
use crate::resp::wire::commands::Command;
use crate::resp::wire::error_text::{self, is};
use crate::resp::wire::number::parse_integer;
use crate::resp::wire::reply::Replies;
use crate::service::Service;
use crate::service::pauses::Paused;

/// `CLIENT PAUSE milliseconds [WRITE | ALL]`.
pub(super) fn pause(command: Command<'_>, session: &mut Session, service: &Service, replies: &mut Replies) {
    if command.len() > 4 {
        return replies.error(&error_text::unknown_or_wrong_arguments("CLIENT", command));
    }
    let paused = match command.arguments(3).next() {
        Some(word) if is(word, "write") => Paused::Writes,
        Some(word) if !is(word, "all") => {
            return replies.error("ERR CLIENT PAUSE mode must be WRITE or ALL");
        }
        _ => Paused::All,
    };
    let Some(milliseconds) = parse_integer(command.argument(2)) else {
        return replies.error("ERR timeout is not an integer or out of range");
    };
    let Ok(milliseconds) = u64::try_from(milliseconds) else {
        return replies.error("ERR timeout is negative");
    };
    if service.draining.load(Ordering::Relaxed) {
        return replies.error("ERR the server stops");
    }
    service.pauses.begin(paused, Instant::now(), Duration::from_millis(milliseconds));
    audit::note(session, &format!("CLIENT PAUSE: {milliseconds} ms"));
    replies.simple("OK");
}

pub(super) fn unpause(_: Command<'_>, session: &mut Session, service: &Service, replies: &mut Replies) {
    service.pauses.end();
    audit::note(session, "CLIENT UNPAUSE");
    replies.simple("OK");
}

/// `CLIENT UNBLOCK id [TIMEOUT | ERROR]`: no command blocks its client.
pub(super) fn unblock(command: Command<'_>, _: &mut Session, _: &Service, replies: &mut Replies) {
    if command.len() > 4 {
        return replies.error(&error_text::unknown_or_wrong_arguments("CLIENT", command));
    }
    if command.arguments(3).next().is_some_and(|why| !is(why, "timeout") && !is(why, "error")) {
        return replies.error("ERR CLIENT UNBLOCK reason should be TIMEOUT or ERROR");
    }
    match parse_integer(command.argument(2)) {
        Some(_) => replies.integer(0),
        None => replies.error(error_text::NOT_AN_INTEGER),
    }
}
