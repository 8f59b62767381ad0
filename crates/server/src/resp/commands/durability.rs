//! Durability as an extension of the protocol, available to every client: `CLIENT DURABILITY level [NEXT]` and `SET
//! key value DURABILITY level`. See `docs/compatibility.md`.

use std::sync::atomic::Ordering;
use std::time::Duration;

use esker_engine::Durability;
use tokio::time::sleep;

use super::set::SetOptions;
use crate::resp::session::Session;
use crate::resp::verb::facts::{Fast, Group, InMulti, flags, tips};
use crate::resp::verb::{Run, Verb};
use crate::resp::wire::commands::Command;
use crate::resp::wire::error_text::{self, is, shown};
use crate::resp::wire::number::parse_integer;
use crate::resp::wire::reply::Replies;
use crate::service::Service;

const WAIT: Verb = Verb {
    group: Group::Generic,
    flags: flags::NO_SCRIPT,
    categories: &["connection"],
    in_multi: InMulti::Refused,
    ..Verb::DEFAULT
};

/// The commands of this family.
#[rustfmt::skip]
pub(super) const COMMANDS: &[Verb] = &[
    Verb { name: "wait", arity: 3,
        run: Run::Wait(|command, session, service, replies| Box::pin(wait(command, session, service, replies))),
        tips: &[tips::EVERYWHERE, tips::LEAST], since: "3.0.0",
        summary: "Makes durable what was written, and returns the number of other nodes that have it durably.", ..WAIT },
    Verb { name: "waitaof", arity: 4,
        run: Run::Wait(|command, session, service, replies| Box::pin(wait_aof(command, session, service, replies))),
        tips: &[tips::EVERYWHERE, tips::LEAST], since: "7.2.0", summary: "Makes durable what was written.",
        ..WAIT },
];

/// Parses a durability level.
pub(crate) fn parse(word: &[u8]) -> Result<Durability, String> {
    let level = std::str::from_utf8(word).ok().and_then(|word| word.parse().ok());
    level.ok_or_else(|| {
        let (word, words) = (shown(word, 64), Durability::WORDS);
        format!("ERR '{word}' is not a durability; it is {words}")
    })
}

/// Returns the durability that a SET asks for in its options, if any.
pub(in crate::resp) fn own(command: Command<'_>, verb: &Verb) -> Option<Durability> {
    // Options are parsed only if one may be a durability.
    if verb.fast != Fast::Set || !command.arguments(3).any(|word| is(word, "durability")) {
        return None;
    }
    SetOptions::parse(command, 0).ok().and_then(|options| options.durability)
}

/// Returns the stronger level, which implies the guarantees of both.
pub(in crate::resp) fn stronger(one: Durability, other: Durability) -> Durability {
    let rank = |level| match level {
        Durability::Sync => (0, Duration::ZERO),
        Durability::Process => (1, Duration::ZERO),
        Durability::Periodic(period) => (2, period),
        Durability::None => (3, Duration::ZERO),
    };
    if rank(other) < rank(one) { other } else { one }
}

/// `CLIENT DURABILITY` without arguments answers the connection's level. A level sets it; `default` resets it to the
/// server's; `NEXT` sets the level for the next writing command only.
pub(super) fn client(command: Command<'_>, session: &mut Session, _: &Service, replies: &mut Replies) {
    if command.len() == 2 {
        let level = session.durability.map_or("default".to_owned(), |level| level.to_string());
        return replies.bulk(level.as_bytes());
    }
    let next = match command.len() {
        3 => false,
        4 if is(command.argument(3), "next") => true,
        _ => return replies.error(error_text::SYNTAX),
    };
    let level = match command.argument(2) {
        word if is(word, "default") => None,
        word => match parse(word) {
            Ok(level) => Some(level),
            Err(error) => return replies.error(&error),
        },
    };
    if next {
        session.durability_next = Some(level)
    } else {
        session.durability = level
    }
    replies.simple("OK");
}

/// Returns the time to wait for replicas; 0: without end. Without a cluster there are none, and nothing waits for them.
fn parse_timeout(timeout: &[u8]) -> Result<Duration, &'static str> {
    match parse_integer(timeout) {
        None => Err("ERR timeout is not an integer or out of range"),
        Some(..0) => Err("ERR timeout is negative"),
        Some(ms @ 0..) => Ok(Duration::from_millis(ms as u64)),
    }
}

/// Interval at which a wait for replicas notices the end of the server.
const LOOK: Duration = Duration::from_millis(100);

/// Waits until `wanted` other nodes have everything that was proposed here durably, or until the timeout, the end of the
/// connection or of the server. Returns the number of nodes that have them; 0 without a cluster.
async fn replicated(wanted: i64, wait: Duration, session: &Session, service: &Service) -> usize {
    let Some(cluster) = &service.cluster else { return 0 };
    let wanted = usize::try_from(wanted).unwrap_or(0);
    let has_ended = async {
        while !service.draining.load(Ordering::Relaxed) {
            sleep(LOOK).await;
        }
    };
    let expired = async {
        match wait.is_zero() {
            true => std::future::pending().await,
            false => sleep(wait).await,
        }
    };
    tokio::select! {
        biased;
        count = cluster.view.replicated(wanted) => return count,
        () = session.client.killed() => {}
        () = has_ended => {}
        () = expired => {}
    }
    cluster.view.replicated(0).await
}

/// `WAIT replicas timeout`: makes all acknowledged writes durable.
async fn wait(command: Command<'_>, session: &Session, service: &Service, replies: &mut Replies) {
    let Some(wanted) = parse_integer(command.argument(1)) else {
        return replies.error(error_text::NOT_AN_INTEGER);
    };
    let wait = match parse_timeout(command.argument(2)) {
        Ok(wait) => wait,
        Err(error) => return replies.error(error),
    };
    match service.store.flush().await {
        Ok(()) => replies.integer(replicated(wanted, wait, session, service).await as i64),
        Err(error) => replies.store_error(&error),
    }
}

/// `WAITAOF local replicas timeout`: makes all acknowledged writes durable.
async fn wait_aof(command: Command<'_>, session: &Session, service: &Service, replies: &mut Replies) {
    let numbers = [1, 2].map(|index| parse_integer(command.argument(index)));
    let [Some(local), Some(replicas)] = numbers else {
        return replies.error(error_text::NOT_AN_INTEGER);
    };
    if !(0..=1).contains(&local) {
        return replies.error("ERR value is out of range, value must between 0 and 1");
    }
    if replicas < 0 {
        return replies.error("ERR value is out of range, must be positive");
    }
    let wait = match parse_timeout(command.argument(3)) {
        Ok(wait) => wait,
        Err(error) => return replies.error(error),
    };
    match service.store.flush().await {
        Ok(()) => {
            let count = replicated(replicas, wait, session, service).await;
            replies.array(2);
            replies.integer(1);
            replies.integer(count as i64);
        }
        Err(error) => replies.store_error(&error),
    }
}
