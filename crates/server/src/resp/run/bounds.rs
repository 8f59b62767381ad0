//! Upper bounds of the answers of commands that work on no key and report on the server.
//!
//! An answer is built in memory. A few bytes can request a long one, and a transaction can request very many. So each
//! answer has a bound: that much memory is acquired before the answer is built, and an answer that exceeds its bound
//! is replaced by an error.

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

/// Bytes of errors, and of answers of a few words.
const SHORT_BYTES: usize = 512;

/// Bytes of the lines of HELP.
const HELP_BYTES: usize = 4 << 10;

/// Bytes of INFO without its lines about verbs, and of the lines about one verb.
const INFO_BYTES: usize = 24 << 10;
const INFO_VERB_BYTES: usize = 384;

/// Bytes of LATENCY HISTOGRAM for one verb.
const HISTOGRAM_BYTES: usize = 1 << 10;

/// Bytes about a key in an answer, beside the key itself.
const KEY_BYTES: usize = 128;

/// Bytes that CONFIG GET takes for each of its patterns, beside the longest one.
const ASKED_BYTES: usize = 192;

/// Upper bounds of the memory for a command's answer.
#[derive(Clone, Copy)]
pub(super) struct Bound {
    /// Bytes of the answer.
    pub(super) answer: usize,
    /// Bytes of temporary data while the answer is built.
    pub(super) beside: usize,
}

/// Returns the upper bounds of the memory for a command's answer.
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
        // An entry takes more memory than its answer, including the names of its fields.
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

/// The longest answer is the list of all users with their rights.
fn of_acl(word: &[u8], service: &Service) -> usize {
    if !["list", "users", "getuser"].iter().any(|name| is(word, name)) {
        return lengths().names;
    }
    let users = service.users.all();
    users.iter().map(|user| SHORT_BYTES + acl::shown_bytes(user)).sum()
}

/// Answers a command; an answer that would exceed its bound is replaced by an error.
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
