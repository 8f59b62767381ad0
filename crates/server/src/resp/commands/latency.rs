//! SLOWLOG, LATENCY and MEMORY, for monitoring.

use std::time::Duration;

use super::help;
use crate::auth::Needs;
use crate::resp::session::Session;
use crate::resp::session::audit;
use crate::resp::session::view::View;
use crate::resp::verb::facts::{Bound, Group, Keys, access, flags, tips};
use crate::resp::verb::{Run, Verb};
use crate::resp::wire::commands::Command;
use crate::resp::wire::error_text::{self, is, shown};
use crate::resp::wire::number::parse_integer;
use crate::resp::wire::reply::Replies;
use crate::service::Service;

const LOG: &[&str] = &["admin", "loading", "stale"];
/// Bytes of LATENCY HISTOGRAM for one command.
const HISTOGRAM_BYTES: usize = 1 << 10;

const MONITORING: Verb =
    Verb { group: Group::Server, needs: Needs::Monitor, flags: flags::ADMIN, ..Verb::DEFAULT };

/// The commands of this family.
#[rustfmt::skip]
pub(super) const COMMANDS: &[Verb] = &[
    Verb { name: "latency", arity: -2, flags: flags::NONE, help: LATENCY_HELP, since: "2.8.13",
        summary: "Is there for tools; nothing is recorded.", ..MONITORING },
    Verb { name: "latency|doctor", arity: 2, run: Run::Answer(latency_doctor),
        tips: &[tips::VARIES, tips::ALL_NODES, tips::SPECIAL], since: "2.8.13",
        summary: "Says where times are to be found.", ..MONITORING },
    Verb { name: "latency|graph", arity: 3, run: Run::Answer(graph),
        tips: &[tips::VARIES, tips::ALL_NODES, tips::SPECIAL], since: "2.8.13",
        summary: "Has nothing to show: single events are not recorded.", ..MONITORING },
    Verb { name: "latency|help", arity: 2, run: help::RUN, flags: flags::TELL, bound: help::BOUND, since: "2.8.13",
        summary: "Lists the subcommands.", ..MONITORING },
    Verb { name: "latency|histogram", arity: -2, run: Run::Answer(histogram),
        tips: &[tips::VARIES, tips::ALL_NODES, tips::SPECIAL],
        bound: |command, session, _| Bound::twice(command.len().max(session.commands.counted()) * HISTOGRAM_BYTES),
        since: "7.0.0", summary: "Tells how long commands took.", ..MONITORING },
    Verb { name: "latency|history", arity: 3, run: Run::Answer(|_, _, _, replies| replies.array(0)),
        tips: &[tips::VARIES, tips::ALL_NODES, tips::SPECIAL], since: "2.8.13",
        summary: "Has nothing to show: single events are not recorded.", ..MONITORING },
    Verb { name: "latency|latest", arity: 2, run: Run::Answer(|_, _, _, replies| replies.array(0)),
        tips: &[tips::VARIES, tips::ALL_NODES, tips::SPECIAL], since: "2.8.13",
        summary: "Has nothing to show: single events are not recorded.", ..MONITORING },
    Verb { name: "latency|reset", arity: -2, run: Run::Answer(|_, _, _, replies| replies.integer(0)),
        needs: Needs::Admin, tips: &[tips::ALL_NODES, tips::ALL], since: "2.8.13",
        summary: "Has nothing to forget: single events are not recorded.", ..MONITORING },
    Verb { name: "memory", arity: -2, needs: Needs::Login, flags: flags::NONE, help: MEMORY_HELP, since: "4.0.0",
        summary: "Returns what a key takes.", ..MONITORING },
    Verb { name: "memory|doctor", arity: 2, run: Run::Answer(memory_doctor), needs: Needs::Login,
        flags: flags::NONE, tips: &[tips::VARIES, tips::EVERYWHERE, tips::SPECIAL], since: "4.0.0",
        summary: "Says what bounds memory.", ..MONITORING },
    Verb { name: "memory|help", arity: 2, run: help::RUN, needs: Needs::Login, flags: flags::TELL,
        bound: help::BOUND, since: "4.0.0", summary: "Lists the subcommands.", ..MONITORING },
    Verb { name: "memory|purge", arity: 2, run: Run::Answer(|_, _, _, replies| replies.simple("OK")),
        needs: Needs::Login, flags: flags::NONE, tips: &[tips::EVERYWHERE, tips::ALL], since: "4.0.0",
        summary: "Has no effect.", ..MONITORING },
    Verb { name: "memory|stats", arity: 2, run: Run::Answer(memory_stats), needs: Needs::Login, flags: flags::NONE,
        tips: &[tips::VARIES, tips::EVERYWHERE, tips::SPECIAL], since: "4.0.0",
        summary: "Tells what memory is used for.", ..MONITORING },
    Verb { name: "memory|usage", arity: -3, run: Run::Read(memory_usage), keys: Keys::SECOND,
        access: &[access::LOOK], needs: Needs::Read, flags: flags::LONG_READ, is_counted: true, since: "4.0.0",
        summary: "Returns what a key takes.", ..MONITORING },
    Verb { name: "slowlog", arity: -2, flags: flags::NONE, help: SLOWLOG_HELP, since: "2.2.12",
        summary: "Tells which commands took long.", ..MONITORING },
    Verb { name: "slowlog|get", arity: -2, run: Run::Answer(slowlog_get), flags: LOG,
        tips: &[tips::ALL_NODES, tips::VARIES],
        bound: |_, _, service| Bound::twice(service.slowlog.entries.held_bytes()), since: "2.2.12",
        summary: "Tells which commands took long.", ..MONITORING },
    Verb { name: "slowlog|help", arity: 2, run: help::RUN, flags: flags::TELL, bound: help::BOUND, since: "6.2.0",
        summary: "Lists the subcommands.", ..MONITORING },
    Verb { name: "slowlog|len", arity: 2,
        run: Run::Answer(|_, _, service, replies| replies.integer(service.slowlog.entries.len() as i64)),
        flags: LOG, tips: &[tips::ALL_NODES, tips::SUM, tips::VARIES], since: "2.2.12",
        summary: "Returns how many entries the log has.", ..MONITORING },
    Verb { name: "slowlog|reset", arity: 2, run: Run::Answer(slowlog_reset), needs: Needs::Admin, flags: LOG,
        tips: &[tips::ALL_NODES, tips::ALL], since: "2.2.12", summary: "Empties the log.", ..MONITORING },
];

const LATENCY_HELP: &str = "\
DOCTOR
    Return a human readable latency analysis report.
GRAPH <event>
    Return an ASCII latency graph for the <event> class.
HISTORY <event>
    Return time-latency samples for the <event> class.
LATEST
    Return the latest latency samples for all events.
RESET [<event> ...]
    Reset latency data of one or more <event> classes.
    (default: reset all data for all event classes)
HISTOGRAM [COMMAND ...]
    Return a cumulative distribution of latencies in the format of a histogram for the specified command names.
    If no commands are specified then all histograms are replied.";

const MEMORY_HELP: &str = "\
DOCTOR
    Return memory problems reports.
PURGE
    Has no effect: memory is given back as soon as it can be.
STATS
    Return information about the memory usage of the server.
USAGE <key> [SAMPLES <count>]
    Return memory in bytes used by <key> and its value.";

const SLOWLOG_HELP: &str = "\
GET [<count>]
    Return top <count> entries from the slowlog (default: 10, -1 mean all).
    Entries are made of:
    id, timestamp, time in microseconds, arguments array, client IP and port,
    client name
LEN
    Return the length of the slowlog.
RESET
    Reset the slowlog.";

/// Entries that SLOWLOG GET returns without a count.
const SLOWLOG_DEFAULT: usize = 10;

fn slowlog_get(command: Command<'_>, _: &mut Session, service: &Service, replies: &mut Replies) {
    let wanted = match command.len() {
        2 => Some(SLOWLOG_DEFAULT),
        3 => match parse_integer(command.argument(2)) {
            Some(-1) => Some(usize::MAX),
            Some(count) => usize::try_from(count).ok(),
            None => None,
        },
        _ => return replies.error(&error_text::unknown_or_wrong_arguments("SLOWLOG", command)),
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

fn slowlog_reset(_: Command<'_>, session: &mut Session, service: &Service, replies: &mut Replies) {
    service.slowlog.entries.clear();
    audit::note(session, "SLOWLOG RESET");
    replies.simple("OK");
}

fn latency_doctor(_: Command<'_>, _: &mut Session, _: &Service, replies: &mut Replies) {
    replies.text(
        b"Single events are not recorded here: see LATENCY HISTOGRAM, INFO latencystats and SLOWLOG.\n",
    );
}

fn graph(command: Command<'_>, _: &mut Session, _: &Service, replies: &mut Replies) {
    let event = shown(command.argument(2), 128);
    replies.error(&format!("ERR No samples available for event '{event}'"));
}

/// Upper bound of the first bucket, in nanoseconds. As in Redis, each following bound is twice the previous one and
/// is reported in microseconds.
const FIRST_BOUND_NS: u64 = 1032;

/// Number of doublings to the last bucket, which holds everything beyond a second, as in Redis.
const BOUNDS: u32 = 20;

/// Answers, for each verb, the number of calls within each bound that adds calls to the previous one.
fn histogram(command: Command<'_>, session: &mut Session, service: &Service, replies: &mut Replies) {
    let commands = session.commands;
    let verbs: Vec<_> = match command.len() {
        2 => commands.rows().iter().collect(),
        _ => command.arguments(2).filter_map(|name| commands.named_fully(name)).collect(),
    };
    let known = verbs.into_iter().filter_map(|verb| Some((verb, service.counters.calls.of(verb.row)?.times)));
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

fn memory_doctor(_: Command<'_>, _: &mut Session, _: &Service, replies: &mut Replies) {
    replies.text(b"Memory is bounded by configuration; see INFO memory and INFO esker.\n");
}

fn memory_stats(_: Command<'_>, _: &mut Session, service: &Service, replies: &mut Replies) {
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

/// Approximate bytes of a record and its index slot, beside key and value.
const OVERHEAD_BYTES: usize = 48 + 10;

/// `MEMORY USAGE key [SAMPLES n]`: the bytes of the key on its tier and in the index.
fn memory_usage(command: Command<'_>, view: &mut View, replies: &mut Replies) {
    let mut arguments = command.arguments(3);
    while let Some(word) = arguments.next() {
        let Some(samples) = arguments.next().filter(|_| is(word, "samples")) else {
            return replies.error(error_text::SYNTAX);
        };
        match parse_integer(samples) {
            Some(0..) => {}
            Some(_) => return replies.error(error_text::SYNTAX),
            None => return replies.error(error_text::NOT_AN_INTEGER),
        }
    }
    let key = command.argument(2);
    match view.get(key) {
        Some(held) => replies.integer((key.len() + held.value.len() + OVERHEAD_BYTES) as i64),
        None => replies.null(),
    }
}
