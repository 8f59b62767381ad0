//! SLOWLOG, LATENCY and MEMORY, for monitoring.

use std::time::Duration;

use super::describe::help::help;
use crate::resp::session::Session;
use crate::resp::session::audit;
use crate::resp::verbs::{self, table::VERBS};
use crate::resp::wire::commands::Command;
use crate::resp::wire::error_text::{self, is, shown};
use crate::resp::wire::number::parse_integer;
use crate::resp::wire::reply::Replies;
use crate::service::Service;

/// Entries that SLOWLOG GET returns without a count.
const SLOWLOG_DEFAULT: usize = 10;

pub(super) fn slowlog(command: Command<'_>, session: &mut Session, service: &Service, replies: &mut Replies) {
    match command.argument(1) {
        word if is(word, "len") && command.len() == 2 => {
            replies.integer(service.slowlog.entries.len() as i64)
        }
        word if is(word, "reset") && command.len() == 2 => {
            service.slowlog.entries.clear();
            audit::note(session, "SLOWLOG RESET");
            replies.simple("OK");
        }
        word if is(word, "get") && command.len() <= 3 => {
            let wanted = match command.len() {
                2 => Some(SLOWLOG_DEFAULT),
                _ => match parse_integer(command.argument(2)) {
                    Some(-1) => Some(usize::MAX),
                    Some(count) => usize::try_from(count).ok(),
                    None => None,
                },
            };
            let Some(wanted) = wanted else {
                return replies.error("ERR count should be greater than or equal to -1");
            };
            let entries = service.slowlog.entries.newest(wanted);
            replies.array(entries.len());
            for entry in entries {
                replies.array(6);
                replies.integer(entry.id as i64);
                replies.integer(entry.at_s as i64);
                replies.integer(entry.took_us as i64);
                replies.array(entry.arguments.len());
                entry.arguments.iter().for_each(|argument| replies.bulk(argument));
                replies.bulk(entry.peer.to_string().as_bytes());
                replies.bulk(&entry.name);
            }
        }
        word if is(word, "help") => help("slowlog", command, replies),
        word if is(word, "get") => replies.error(&error_text::unknown_or_wrong_arguments("SLOWLOG", command)),
        word if ["len", "reset"].iter().any(|known| is(word, known)) => {
            let name = String::from_utf8_lossy(word).to_ascii_lowercase();
            replies.error(&error_text::wrong_arguments(&format!("slowlog|{name}")));
        }
        _ => replies.error(&error_text::unknown_subcommand("SLOWLOG", command)),
    }
}

/// HISTOGRAM reports running times of commands; the other subcommands answer like a Redis with its latency monitor
/// off.
pub(super) fn latency(command: Command<'_>, _: &mut Session, service: &Service, replies: &mut Replies) {
    match command.argument(1) {
        word if is(word, "latest") && command.len() == 2 => replies.array(0),
        word if is(word, "history") && command.len() == 3 => replies.array(0),
        word if is(word, "reset") => replies.integer(0),
        word if is(word, "histogram") => histogram(command, service, replies),
        word if is(word, "doctor") && command.len() == 2 => {
            replies.text(b"Single events are not recorded here: see LATENCY HISTOGRAM, INFO latencystats and SLOWLOG.\n");
        }
        word if is(word, "graph") && command.len() == 3 => {
            let event = shown(command.argument(2), 128);
            replies.error(&format!("ERR No samples available for event '{event}'"));
        }
        word if is(word, "help") => help("latency", command, replies),
        word if ["latest", "history", "doctor", "graph"].iter().any(|known| is(word, known)) => {
            let name = String::from_utf8_lossy(word).to_ascii_lowercase();
            replies.error(&error_text::wrong_arguments(&format!("latency|{name}")));
        }
        _ => replies.error(&error_text::unknown_subcommand("LATENCY", command)),
    }
}

/// Upper bound of the first bucket, in nanoseconds. As in Redis, each following bound is twice the previous one and
/// is reported in microseconds.
const FIRST_BOUND_NS: u64 = 1032;

/// Number of doublings to the last bucket, which holds everything beyond a second, as in Redis.
const BOUNDS: u32 = 20;

/// Answers, for each verb, the number of calls within each bound that adds calls to the previous one.
fn histogram(command: Command<'_>, service: &Service, replies: &mut Replies) {
    let named = |word| verbs::named(word).into_iter();
    let verbs: Vec<_> = match command.len() {
        2 => VERBS.iter().collect(),
        _ => command.arguments(2).flat_map(named).collect(),
    };
    let known =
        verbs.into_iter().filter_map(|verb| Some((verb, service.counters.calls.of(verb.index())?.times)));
    let known: Vec<_> = known.filter(|(_, times)| times.count() > 0).collect();
    replies.map(known.len());
    for (verb, times) in known {
        replies.bulk(verb.name.as_bytes());
        replies.map(2);
        replies.bulk(b"calls");
        replies.integer(times.count() as i64);
        replies.bulk(b"histogram_usec");
        let mut bounds = Vec::new();
        for power in 0..=BOUNDS {
            let bound = Duration::from_nanos(FIRST_BOUND_NS << power);
            let within = if power == BOUNDS { times.count() } else { times.count_within(bound) };
            if within > bounds.last().map_or(0, |(_, before)| *before) {
                bounds.push((bound.as_micros(), within));
            }
        }
        replies.map(bounds.len());
        for (us, within) in bounds {
            replies.integer(us as i64);
            replies.integer(within as i64);
        }
    }
}

/// MEMORY without USAGE, which is a verb of its own because it has a key.
pub(super) fn memory(command: Command<'_>, _: &mut Session, service: &Service, replies: &mut Replies) {
    match command.argument(1) {
        word if is(word, "purge") && command.len() == 2 => replies.simple("OK"),
        word if is(word, "doctor") && command.len() == 2 => {
            replies.text(b"Memory is bounded by configuration; see INFO memory and INFO esker.\n");
        }
        word if is(word, "stats") && command.len() == 2 => {
            let stats = service.store.stats();
            let facts = [
                ("total.allocated", crate::base::process::resident_bytes().unwrap_or(0)),
                ("keys.count", stats.keys),
                ("index.bytes", stats.index_bytes),
                ("cache.bytes", stats.cache_bytes),
            ];
            replies.map(facts.len());
            for (name, value) in facts {
                replies.bulk(name.as_bytes());
                replies.integer(value as i64);
            }
        }
        word if is(word, "help") => help("memory", command, replies),
        word if ["purge", "doctor", "stats"].iter().any(|known| is(word, known)) => {
            let name = String::from_utf8_lossy(word).to_ascii_lowercase();
            replies.error(&error_text::wrong_arguments(&format!("memory|{name}")));
        }
        _ => replies.error(&error_text::unknown_subcommand("MEMORY", command)),
    }
}
