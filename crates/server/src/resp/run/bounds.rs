//! How long the answers are of commands that work on no key: what they tell of the server.
//!
//! An answer is made in memory, and a few bytes can ask for a long one, a transaction for very many of them. So each has a
//! bound, for which memory is taken before the answer is made; what would be longer is not answered.

use crate::resp::command::describe::lengths;
use crate::resp::command::{Answer, acl, config, pubsub, tracking};
use crate::resp::script::lookup::COMPILED_BYTES;
use crate::resp::session::Session;
use crate::resp::verbs::Verb;
use crate::resp::wire::commands::Command;
use crate::resp::wire::error_text::is;
use crate::resp::wire::glob;
use crate::resp::wire::reply::Replies;
use crate::service::Service;
use crate::service::calls::VERBS_COUNT;
use crate::service::clients::LINE_BYTES_MAX;
use crate::service::scripts::IDLE_BYTES;
use crate::service::status;

/// Errors, and answers of a few words.
const SHORT_BYTES: usize = 512;

/// The lines of HELP.
const HELP_BYTES: usize = 4 << 10;

/// INFO without what it tells of each verb, and that.
const INFO_BYTES: usize = 24 << 10;
const INFO_VERB_BYTES: usize = 384;

/// LATENCY HISTOGRAM of one verb.
const HISTOGRAM_BYTES: usize = 1 << 10;

/// What is told of a key beside it.
const KEY_BYTES: usize = 128;

/// What CONFIG GET makes of a pattern beside what the longest takes.
const ASKED_BYTES: usize = 192;

/// What the answer of a command takes at most.
#[derive(Clone, Copy)]
pub(super) struct Bound {
    /// Bytes of the answer.
    pub(super) answer: usize,
    /// Memory of what is made on the way to it, until it is made.
    pub(super) beside: usize,
}

/// What the answer of a command takes at most.
pub(super) fn bound(verb: &Verb, command: Command<'_>, session: &Session, service: &Service) -> Bound {
    let answer = answer_bytes(verb, command, session, service);
    let beside = match verb.name {
        "ping" | "echo" => 0,
        "command" if command.len() > 2 => glob::HELD_BYTES_MAX.min(command.bytes() * 24),
        "command" => 0,
        _ if verb.group == "pubsub" => answer + pubsub::beside_bytes(command),
        "script" if loads_script(command) => command.bytes() * COMPILED_BYTES + IDLE_BYTES,
        "config" => answer + glob::HELD_BYTES_MAX + command.len() * ASKED_BYTES,
        _ => answer,
    };
    Bound { answer, beside }
}

/// Returns true for SCRIPT LOAD, which compiles.
pub(super) fn loads_script(command: Command<'_>) -> bool {
    command.len() == 3 && is(command.argument(1), "load")
}

fn answer_bytes(verb: &Verb, command: Command<'_>, session: &Session, service: &Service) -> usize {
    let word = if command.len() > 1 { command.argument(1) } else { b"" };
    let count = command.len();
    if is(word, "help") {
        return HELP_BYTES;
    }
    let long = match verb.name {
        "ping" | "echo" => command.bytes(),
        "command" => of_command(word, command),
        "info" if count == 1 => INFO_BYTES,
        "info" => INFO_BYTES + VERBS_COUNT * INFO_VERB_BYTES + status::BYTES_MAX,
        "client" if is(word, "list") => service.clients.len() * LINE_BYTES_MAX,
        "client" if is(word, "info") => LINE_BYTES_MAX,
        "client" if is(word, "trackinginfo") => tracking::answer_bytes(session),
        "config" if is(word, "get") => config::answer_bytes(service),
        // An entry takes more than the names of its fields.
        "acl" if is(word, "log") => service.acl_log.entries.held_bytes(),
        "slowlog" if is(word, "get") => service.slowlog.entries.held_bytes(),
        "latency" if is(word, "histogram") => count.max(VERBS_COUNT) * HISTOGRAM_BYTES,
        "acl" => of_acl(word, service),
        _ if verb.group == "pubsub" => pubsub::answer_bytes(command, session, service),
        "script" if is(word, "exists") => count * KEY_BYTES,
        _ => 0,
    };
    SHORT_BYTES + long
}

fn of_command(word: &[u8], command: Command<'_>) -> usize {
    let (lengths, others) = (lengths(), command.len().saturating_sub(2));
    match word {
        b"" => lengths.all,
        _ if is(word, "info") && others == 0 => lengths.all,
        _ if is(word, "info") => others * lengths.verb,
        _ if is(word, "docs") && others == 0 => lengths.documents,
        _ if is(word, "docs") => others * lengths.document,
        _ if is(word, "list") => lengths.names,
        _ if is(word, "getkeys") || is(word, "getkeysandflags") => command.bytes() + others * KEY_BYTES,
        _ => 0,
    }
}

/// The longest is a list of all users with what they may do.
fn of_acl(word: &[u8], service: &Service) -> usize {
    if !["list", "users", "getuser"].iter().any(|name| is(word, name)) {
        return lengths().names;
    }
    let users = service.users.all();
    users.iter().map(|user| SHORT_BYTES + acl::shown_bytes(user)).sum()
}

/// Answers a command; what would be longer than it may be is an error.
pub(super) fn answer_within(
    bound: Bound,
    answer: Answer,
    command: Command<'_>,
    session: &mut Session,
    service: &Service,
    replies: &mut Replies,
) {
    let start = replies.mark();
    replies.limit(bound.answer);
    answer(command, session, service, replies);
    if replies.unlimit() {
        replies.cut(start);
        replies.error(&format!("ERR cannot answer: it would take more than {} bytes", bound.answer));
    }
}
