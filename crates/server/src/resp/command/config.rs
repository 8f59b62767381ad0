//! CONFIG: what is set, and the little that can be set while the server runs.

use std::sync::atomic::Ordering;

use super::glob::matches;
use super::info::PERCENTILES;
use super::number::parse_integer;
use super::words::{self, is, shown};
use crate::resp::frame::Command;
use crate::resp::reply::Replies;
use crate::resp::session::Session;
use crate::service::Service;

pub(super) fn config(command: Command<'_>, _: &mut Session, service: &Service, replies: &mut Replies) {
    match command.argument(1) {
        word if is(word, "get") && command.len() < 3 => replies.error(&words::wrong_arguments("config|get")),
        word if is(word, "get") => get(command, service, replies),
        word if is(word, "set") && command.len() < 4 => replies.error(&words::wrong_arguments("config|set")),
        word if is(word, "set") => match set(command, service) {
            Ok(()) => replies.simple("OK"),
            Err(error) => replies.error(&error),
        },
        word if is(word, "resetstat") && command.len() == 2 => {
            service.counters.reset();
            replies.simple("OK");
        }
        word if is(word, "resetstat") => replies.error(&words::wrong_arguments("config|resetstat")),
        word if is(word, "rewrite") => {
            replies.error("ERR The server is running without a config file");
        }
        _ => replies.error(&words::unknown_subcommand("CONFIG", command)),
    }
}

/// Settings whose names match any of the patterns.
fn get(command: Command<'_>, service: &Service, replies: &mut Replies) {
    let settings = settings(service);
    let matching = settings.iter().filter(|(name, _)| {
        command.arguments(2).any(|pattern| matches(&pattern.to_ascii_lowercase(), name.as_bytes()))
    });
    replies.map(matching.clone().count());
    for (name, value) in matching {
        replies.bulk(name.as_bytes());
        replies.bulk(value.as_bytes());
    }
}

/// Pairs of name and value; all are good or none is set. What cannot change may be set to what it is.
fn set(command: Command<'_>, service: &Service) -> Result<(), String> {
    if !command.len().is_multiple_of(2) {
        return Err(words::SYNTAX.to_owned());
    }
    let settings = settings(service);
    let pairs = || command.arguments(2).step_by(2).zip(command.arguments(3).step_by(2));
    for (name, value) in pairs() {
        let Some((known, current)) = settings.iter().find(|(known, _)| is(name, known)) else {
            let name = shown(name, 128);
            return Err(format!("ERR Unknown option or number of arguments for CONFIG SET - '{name}'"));
        };
        let failed = |why: &str| {
            Err(format!("ERR CONFIG SET failed (possibly related to argument '{known}') - {why}"))
        };
        if is_changeable(known) {
            if parse_integer(value).is_none_or(|number| number < -1) {
                return failed("argument couldn't be parsed into an integer");
            }
        } else if current.as_bytes() != value {
            return failed("can't set immutable config");
        }
    }
    for (name, value) in pairs() {
        let number = parse_integer(value).unwrap_or(0);
        match name {
            _ if is(name, SLOWER_THAN) => service.slowlog.slower_than_us.store(number, Ordering::Relaxed),
            _ if is(name, SLOWLOG_LENGTH) => service.slowlog.set_length(number.max(0) as usize),
            _ => {}
        }
    }
    Ok(())
}

const SLOWER_THAN: &str = "slowlog-log-slower-than";
const SLOWLOG_LENGTH: &str = "slowlog-max-len";

fn is_changeable(name: &str) -> bool {
    [SLOWER_THAN, SLOWLOG_LENGTH].contains(&name)
}

/// The server's own settings, after those that whoever started it gave.
fn settings(service: &Service) -> Vec<(String, String)> {
    let limits = &service.config.limits;
    let mut settings = service.config.settings.clone();
    for (name, value) in [
        // Clients ask for these two to know whether data survives. There are no snapshots; the log is always on.
        ("save", String::new()),
        ("appendonly", "yes".to_owned()),
        ("databases", "1".to_owned()),
        ("port", service.port.to_string()),
        ("maxclients", limits.connections_max.to_string()),
        ("proto-max-bulk-len", limits.bulk_bytes_max.to_string()),
        ("maxmemory", "0".to_owned()),
        ("maxmemory-policy", "noeviction".to_owned()),
        ("timeout", limits.idle_wait.map_or(0, |wait| wait.as_secs()).to_string()),
        ("notify-keyspace-events", String::new()),
        ("latency-tracking", "yes".to_owned()),
        ("latency-tracking-info-percentiles", PERCENTILES.map(|percent| percent.to_string()).join(" ")),
        ("latency-monitor-threshold", "0".to_owned()),
        (SLOWER_THAN, service.slowlog.slower_than_us.load(Ordering::Relaxed).to_string()),
        (SLOWLOG_LENGTH, service.slowlog.length().to_string()),
    ] {
        if !settings.iter().any(|(given, _)| given == name) {
            settings.push((name.to_owned(), value));
        }
    }
    settings
}
