//! The server's identity, TIME, ROLE, BGSAVE, SHUTDOWN, the empty lists of FUNCTION and MODULE, and the
//! refused command DEBUG.

use super::cluster::members::offset;
use super::databases::database_number;
use super::info;
use crate::auth::Needs;
use crate::resp::session::Session;
use crate::resp::session::audit;
use crate::resp::verb::facts::{Databases, Group, InMulti, flags, tips};
use crate::resp::verb::{Run, Verb};
use crate::resp::wire::commands::Command;
use crate::resp::wire::reply::Replies;
use crate::service::backups::Refused;
use crate::service::{Service, wall_clock_ms, wall_clock_us};

use crate::resp::wire::error_text::{self, is};

const SERVER: Verb = Verb { group: Group::Server, ..Verb::DEFAULT };

/// The commands of this family.
#[rustfmt::skip]
pub(super) const COMMANDS: &[Verb] = &[
    Verb { name: "bgsave", arity: -1, run: Run::Answer(bgsave), needs: Needs::Admin,
        flags: &["admin", "noscript", "no_async_loading"], since: "1.0.0",
        summary: "Begins a backup into the server's directory of backups.", ..SERVER },
    Verb { name: "dbsize", arity: 1, run: Run::Answer(dbsize), needs: Needs::ReadOrMonitor, flags: flags::READ,
        categories: &["keyspace"], tips: &[tips::EVERYWHERE, tips::SUM], in_scripts: true,
        databases: Databases::Current, since: "1.0.0", summary: "Returns the number of keys.", ..SERVER },
    Verb { name: "debug", arity: -2, run: Run::Refuse("ERR DEBUG command not allowed."), needs: Needs::Admin,
        flags: flags::ADMIN, since: "1.0.0", summary: "Is refused.", ..SERVER },
    Verb { name: "flushall", arity: -1,
        run: Run::Wait(|command, session, service, replies| Box::pin(flush(command, true, session, service, replies))),
        needs: Needs::Admin, flags: flags::LONG_CHANGE, categories: &["keyspace", "dangerous"],
        tips: &[tips::EVERYWHERE, tips::ALL], databases: Databases::All, in_multi: InMulti::Refused, since: "1.0.0",
        summary: "Deletes every key, durably.", ..SERVER },
    Verb { name: "flushdb", arity: -1,
        run: Run::Wait(|command, session, service, replies| Box::pin(flush(command, false, session, service, replies))),
        needs: Needs::Admin, flags: flags::LONG_CHANGE, categories: &["keyspace", "dangerous"],
        tips: &[tips::EVERYWHERE, tips::ALL], databases: Databases::Current, in_multi: InMulti::Refused,
        since: "1.0.0", summary: "Deletes every key of the database, durably.", ..SERVER },
    Verb { name: "info", arity: -1, run: Run::Sampled(info::info), flags: flags::TELL, categories: &["dangerous"],
        tips: &[tips::VARIES, tips::EVERYWHERE, tips::SPECIAL],
        while_opening: Some(|command, _, opening, replies| info::while_opening(command, &(opening.progress)(), replies)),
        bound: info::bound, since: "1.0.0",
        summary: "Returns facts and counters of the server.", ..SERVER },
    Verb { name: "lastsave", arity: 1, run: Run::Answer(lastsave), needs: Needs::Monitor, flags: flags::FAST,
        categories: &["admin"], tips: &[tips::VARIES], in_scripts: true, since: "1.0.0",
        summary: "Returns when the last backup was taken, or else when the server was started.", ..SERVER },
    Verb { name: "role", arity: 1, run: Run::Answer(role), flags: &["noscript", "loading", "stale", "fast"],
        categories: &["admin"], since: "2.8.12", summary: "Returns the role: master, without replicas.", ..SERVER },
    Verb { name: "shutdown", arity: -1, run: Run::Answer(shutdown), needs: Needs::Admin,
        flags: &["admin", "noscript", "loading", "stale", "no_multi", "allow_busy"], in_multi: InMulti::Refused,
        since: "1.0.0", summary: "Stops the server as SIGTERM does.", ..SERVER },
    Verb { name: "swapdb", arity: 3,
        run: Run::Wait(|command, session, service, replies| Box::pin(swap(command, session, service, replies))),
        needs: Needs::Admin, flags: flags::CHANGE, categories: &["keyspace", "dangerous"],
        databases: Databases::Named, in_multi: InMulti::Refused, since: "4.0.0",
        summary: "Gives each of two databases the keys of the other.", ..SERVER },
    Verb { name: "time", arity: 1, run: Run::Answer(time), flags: flags::FAST, tips: &[tips::VARIES],
        in_scripts: true, since: "2.6.0", summary: "Returns the time of the server.", ..SERVER },
    Verb { name: "module", arity: -2, needs: Needs::Monitor,
        unsupported: ("modules", &["help", "load", "loadex", "unload"]), since: "4.0.0",
        summary: "Lists modules, of which there are none.", ..SERVER },
    Verb { name: "module|list", arity: 2, run: Run::Answer(|_, _, _, replies| replies.array(0)),
        needs: Needs::Monitor, flags: &["admin", "noscript"], tips: &[tips::ANY_ORDER], since: "4.0.0",
        summary: "Returns an empty list: there are no modules.", ..SERVER },
];

/// The mode reported to clients without a cluster, and in one.
pub(super) const ALONE: &str = "standalone";
pub(super) const IN_CLUSTER: &str = "cluster";

/// Returns the mode reported to clients.
pub(super) fn run_mode(service: &Service) -> &'static str {
    if service.cluster.is_some() { IN_CLUSTER } else { ALONE }
}

/// The role reported to clients: not a replica.
pub(super) const ROLE: &str = "master";

pub(super) fn time(_: Command<'_>, _: &mut Session, _: &Service, replies: &mut Replies) {
    let now = wall_clock_us();
    replies.array(2);
    replies.bulk((now / 1_000_000).to_string().as_bytes());
    replies.bulk((now % 1_000_000).to_string().as_bytes());
}

pub(super) fn role(_: Command<'_>, _: &mut Session, service: &Service, replies: &mut Replies) {
    replies.array(3);
    replies.bulk(ROLE.as_bytes());
    replies.integer(i64::try_from(offset(service)).unwrap_or(i64::MAX));
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

pub(super) fn dbsize(_: Command<'_>, session: &mut Session, service: &Service, replies: &mut Replies) {
    replies.integer((service.keys(session.database()) as i64 + session.uncommitted_keys).max(0));
}

/// FLUSHALL or FLUSHDB. SYNC and ASYNC make no difference: the store drops all keys in one step.
pub(in crate::resp) async fn flush(
    command: Command<'_>,
    all: bool,
    session: &Session,
    service: &Service,
    replies: &mut Replies,
) {
    let known = match command.len() {
        1 => true,
        2 => is(command.argument(1), "sync") || is(command.argument(1), "async"),
        _ => false,
    };
    if !known {
        return replies.error(error_text::SYNTAX);
    }
    let (cleared, what) = match all {
        // The other databases of a cluster are its groups. Database 0 clears the groups that this node leads.
        true if service.cluster.is_some() => (service.store.clear().await, "FLUSHALL".to_owned()),
        true => (service.store.clear_all().await, "FLUSHALL".to_owned()),
        false => {
            (session.store(service).clear().await, format!("FLUSHDB of database {}", session.database()))
        }
    };
    match cleared {
        Ok(()) => {
            audit::note(session, &what);
            replies.simple("OK");
        }
        Err(error) => {
            audit::note(session, &format!("{what} failed"));
            replies.store_error(&error);
        }
    }
}

/// `SWAPDB database database`.
pub(in crate::resp) async fn swap(
    command: Command<'_>,
    session: &Session,
    service: &Service,
    replies: &mut Replies,
) {
    let number = |index: usize| database_number(command.argument(index));
    let Ok(first) = number(1) else { return replies.error("ERR invalid first DB index") };
    let Ok(second) = number(2) else { return replies.error("ERR invalid second DB index") };
    let [Some(first), Some(second)] = [first, second].map(|number| service.database_of(number)) else {
        return replies.error(error_text::NO_SUCH_DATABASE);
    };
    match service.store.swap_databases(first, second).await {
        Ok(()) => {
            audit::note(session, &format!("SWAPDB {first} {second}"));
            replies.simple("OK");
        }
        Err(error) => {
            audit::note(session, &format!("SWAPDB {first} {second} failed"));
            replies.store_error(&error);
        }
    }
}
