//! The server's identity, TIME, ROLE, BGSAVE, SHUTDOWN, the empty lists of FUNCTION and MODULE, and the
//! refused commands CLUSTER and DEBUG.

use crate::resp::session::Session;
use crate::resp::session::audit;
use crate::resp::wire::commands::Command;
use crate::resp::wire::reply::Replies;
use crate::service::backups::Refused;
use crate::service::{Service, wall_clock_ms, wall_clock_us};

use crate::resp::wire::error_text::{self, is};

/// The mode reported to clients: neither cluster nor sentinel.
pub(super) const RUN_MODE: &str = "standalone";

/// The role reported to clients: not a replica.
pub(super) const ROLE: &str = "master";

pub(super) fn time(_: Command<'_>, _: &mut Session, _: &Service, replies: &mut Replies) {
    let now = wall_clock_us();
    replies.array(2);
    replies.bulk((now / 1_000_000).to_string().as_bytes());
    replies.bulk((now % 1_000_000).to_string().as_bytes());
}

pub(super) fn role(_: Command<'_>, _: &mut Session, _: &Service, replies: &mut Replies) {
    replies.array(3);
    replies.bulk(ROLE.as_bytes());
    replies.integer(0);
    replies.array(0);
}

pub(super) fn lastsave(_: Command<'_>, _: &mut Session, service: &Service, replies: &mut Replies) {
    let started_s = (wall_clock_ms() / 1000).saturating_sub(service.uptime().as_secs());
    let saved_s = service.backups.state().saved_at_ms.map(|at_ms| at_ms / 1000);
    replies.integer(saved_s.unwrap_or(started_s) as i64);
}

/// `BGSAVE [SCHEDULE | CANCEL]`. SCHEDULE has no effect, because no other operation would have to end first.
pub(super) fn bgsave(command: Command<'_>, session: &mut Session, service: &Service, replies: &mut Replies) {
    let mut words = command.arguments(1);
    let word = words.next();
    let is_cancel = word.is_some_and(|word| is(word, "cancel"));
    if word.is_some_and(|word| !is_cancel && !is(word, "schedule")) || words.next().is_some() {
        return replies.error(error_text::SYNTAX);
    }
    if is_cancel {
        audit::note(session, "BGSAVE CANCEL");
        return match service.backups.cancel(&service.store) {
            true => replies.simple("Background saving cancelled"),
            false => replies.error("ERR Background saving is currently not in progress or scheduled"),
        };
    }
    match service.backups.begin(&service.store) {
        Ok(()) => {
            audit::note(session, "BGSAVE");
            replies.simple("Background saving started");
        }
        Err(Refused::Running) => replies.error("ERR Background save already in progress"),
        Err(Refused::Cancelled) => replies.error(
            "ERR the backup that was cancelled still waits for a write to its target; try again when that has ended",
        ),
        Err(Refused::NoThread) => replies.error("ERR the system gives no thread for a backup; raise its limit of threads"),
        Err(Refused::NoDirectory) => replies.error(
            "ERR this server has no directory for backups; name one in the setting backup-dir and start it again",
        ),
    }
}

/// `SHUTDOWN [NOSAVE|SAVE] [NOW] [FORCE]`: all variants are equal, because acknowledged writes are never lost; but
/// NOSAVE and SAVE together are an error. There is no reply: the connection ends, as in Redis.
pub(super) fn shutdown(
    command: Command<'_>,
    session: &mut Session,
    service: &Service,
    replies: &mut Replies,
) {
    let words = command.arguments(1);
    if words.len() > 0 && words.clone().all(|word| is(word, "abort")) {
        return replies.error("ERR No shutdown in progress.");
    }
    let given = |known| words.clone().any(|word| is(word, known));
    let is_known = |word| ["nosave", "save", "now", "force"].iter().any(|known| is(word, known));
    if !words.clone().all(is_known) || given("nosave") && given("save") {
        return replies.error(error_text::SYNTAX);
    }
    audit::note(session, "SHUTDOWN");
    session.leaving = true;
    service.stop.notify_one();
}

/// `FUNCTION LIST [LIBRARYNAME pattern] [WITHCODE]`: always empty; exists for tools that call it.
pub(super) fn function(command: Command<'_>, _: &mut Session, _: &Service, replies: &mut Replies) {
    let (mut has_name, mut has_code) = (false, false);
    let mut arguments = command.arguments(2);
    while let Some(word) = arguments.next() {
        if !has_code && is(word, "withcode") {
            has_code = true;
        } else if !has_name && is(word, "libraryname") {
            if arguments.next().is_none() {
                return replies.error("ERR library name argument was not given");
            }
            has_name = true;
        } else {
            return replies.error(&format!("ERR Unknown argument {}", error_text::shown(word, 128)));
        }
    }
    replies.array(0);
}

/// `MODULE LIST`: always empty; exists for tools that call it.
pub(super) fn module(_: Command<'_>, _: &mut Session, _: &Service, replies: &mut Replies) {
    replies.array(0);
}

pub(super) fn cluster(_: Command<'_>, _: &mut Session, _: &Service, replies: &mut Replies) {
    replies.error("ERR This instance has cluster support disabled");
}

pub(super) fn debug(_: Command<'_>, _: &mut Session, _: &Service, replies: &mut Replies) {
    replies.error("ERR DEBUG command not allowed.");
}
