//! CONFIG: reports all settings, and changes the ones that can change while the server runs.

use std::fmt::Write;
use std::sync::atomic::Ordering;

use esker_engine::{Compression, Durability, Error, WhenFull};

use super::help;
use super::info::PERCENTILES;
use crate::auth::Needs;
use crate::base::policy;
use crate::base::settings::text_of;
use crate::resp::session::Session;
use crate::resp::session::audit;
use crate::resp::verb::facts::{Bound, Group, flags, tips};
use crate::resp::verb::{Run, Verb};
use crate::resp::wire::commands::Command;
use crate::resp::wire::error_text::{self, is, shown};
use crate::resp::wire::glob::{self, Pattern};
use crate::resp::wire::number::parse_integer;
use crate::resp::wire::reply::Replies;
use crate::service::events::KeyspaceEvents;
use crate::service::{MAXMEMORY_POLICY, Service};

/// Bytes that CONFIG GET takes for each of its patterns, beside the longest one.
const ASKED_BYTES: usize = 192;

const CONFIG: Verb = Verb {
    group: Group::Server,
    needs: Needs::Monitor,
    flags: flags::ADMIN,
    has_secrets: true,
    bound: |command, _, _| bound(command, 0),
    ..Verb::DEFAULT
};

/// The commands of this family.
#[rustfmt::skip]
pub(super) const COMMANDS: &[Verb] = &[
    Verb { name: "config", arity: -2, flags: flags::NONE, help: HELP, since: "2.0.0",
        summary: "Tells the settings of the server, and changes some.", ..CONFIG },
    Verb { name: "config|get", arity: -3, run: Run::Answer(get),
        bound: |command, _, service| bound(command, answer_bytes(service)), since: "2.0.0",
        summary: "Tells settings.", ..CONFIG },
    Verb { name: "config|help", arity: 2, run: help::RUN, flags: flags::TELL, bound: help::BOUND, since: "5.0.0",
        summary: "Lists the subcommands.", ..CONFIG },
    Verb { name: "config|resetstat", arity: 2, run: Run::Answer(reset_statistics), needs: Needs::Admin,
        since: "2.0.0", summary: "Sets counters back to zero.", ..CONFIG },
    Verb { name: "config|rewrite", arity: 2,
        run: Run::Answer(|_, _, _, replies| replies.error("ERR The server is running without a config file")),
        needs: Needs::Admin, since: "2.8.0",
        summary: "Is refused: settings are in a file that nobody but people writes.", ..CONFIG },
    Verb { name: "config|set", arity: -4, run: Run::Answer(set), needs: Needs::Admin,
        tips: &[tips::ALL_NODES, tips::ALL], since: "2.0.0", summary: "Changes settings.", ..CONFIG },
];

const HELP: &str = "\
GET <pattern>
    Return parameters matching the glob-like <pattern> and their values.
SET <directive> <value>
    Set the configuration <directive> to <value>.
RESETSTAT
    Reset statistics reported by the INFO command.
REWRITE
    Rewrite the configuration file.";

/// Returns the bounds of an answer of `bytes` beside errors, with the patterns of the arguments.
fn bound(command: Command<'_>, bytes: usize) -> Bound {
    let Bound { answer, beside } = Bound::twice(bytes);
    Bound { answer, beside: beside + glob::HELD_BYTES_MAX + command.len() * ASKED_BYTES }
}

fn reset_statistics(_: Command<'_>, session: &mut Session, service: &Service, replies: &mut Replies) {
    service.reset_stats();
    audit::note(session, "CONFIG RESETSTAT");
    replies.simple("OK");
}

/// Answers the settings whose names match any of the patterns. A name without wildcards is answered in the spelling
/// of the request.
fn get(command: Command<'_>, _: &mut Session, service: &Service, replies: &mut Replies) {
    let asked = match asked(command) {
        Ok(asked) => asked,
        Err(error) => return replies.error(error),
    };
    let settings = settings(service);
    let found = settings.iter().filter_map(|(known, value)| {
        let name = asked.iter().find_map(|asked| match asked {
            Asked::Pattern(pattern) => pattern.matches(known.as_bytes()).then_some(known.as_bytes()),
            Asked::Name(name) => is(name, known).then_some(*name),
        })?;
        Some((name, value))
    });
    let found: Vec<_> = found.collect();
    replies.map(found.len());
    for (name, value) in found {
        replies.bulk(name);
        replies.bulk(value.as_bytes());
    }
}

enum Asked<'a> {
    Pattern(Pattern),
    Name(&'a [u8]),
}

/// Parses the names and patterns of CONFIG GET. Their total length is limited to that of one pattern, because every
/// setting is compared with each of them.
fn asked(command: Command<'_>) -> Result<Vec<Asked<'_>>, &'static str> {
    if command.arguments(2).map(<[u8]>::len).sum::<usize>() > glob::PATTERN_BYTES_MAX {
        return Err(glob::TOO_LONG);
    }
    command.arguments(2).map(Asked::parse).collect()
}

impl Asked<'_> {
    fn parse(asked: &[u8]) -> Result<Asked<'_>, &'static str> {
        match asked.iter().any(|byte| b"[*?".contains(byte)) {
            true => Pattern::new(&asked.to_ascii_lowercase()).map(Asked::Pattern),
            false => Ok(Asked::Name(asked)),
        }
    }
}

/// Returns the bytes of the answer to `CONFIG GET *`.
fn answer_bytes(service: &Service) -> usize {
    const BESIDE_BYTES: usize = 32;
    settings(service).iter().map(|(name, value)| name.len() + value.len() + BESIDE_BYTES).sum()
}

fn set(command: Command<'_>, session: &mut Session, service: &Service, replies: &mut Replies) {
    match change(command, service) {
        Ok(done) => {
            audit::note(session, &format!("CONFIG SET{done}"));
            replies.simple("OK");
        }
        Err(error) => replies.error(&error),
    }
}

/// Sets pairs of name and value: all, or none if any is invalid. An immutable setting may only be set to its current
/// value. Returns the changes for the log.
fn change(command: Command<'_>, service: &Service) -> Result<String, String> {
    if !command.len().is_multiple_of(2) {
        return Err(error_text::SYNTAX.to_owned());
    }
    let settings = settings(service);
    let failed = |name: &str, why: &str| {
        format!("ERR CONFIG SET failed (possibly related to argument '{name}') - {why}")
    };
    let names = || command.arguments(2).step_by(2);
    let mut pairs = Vec::new();
    for (index, (name, value)) in names().zip(command.arguments(3).step_by(2)).enumerate() {
        let shown = shown(name, 128);
        let Some((known, current)) = settings.iter().find(|(known, _)| is(name, known)) else {
            return Err(format!("ERR Unknown option or number of arguments for CONFIG SET - '{shown}'"));
        };
        if !CHANGEABLE.contains(&known.as_str()) && current.as_bytes() != value {
            return Err(failed(known, "can't set immutable config"));
        }
        if names().take(index).any(|before| before.eq_ignore_ascii_case(name)) {
            return Err(failed(&shown, "duplicate parameter"));
        }
        pairs.push((known, value));
    }
    let mut changes = Vec::new();
    for (known, value) in pairs {
        changes.extend(Change::of(known, value, service).map_err(|why| failed(known, &why))?);
    }
    // Only a change of durability can still be refused, by the store. It comes first, so that all settings change or
    // none.
    changes.sort_by_key(|change| !matches!(change, Change::Durability(_)));
    let mut done = String::new();
    for change in changes {
        let (name, value) = change.make(service).map_err(|(name, why)| failed(name, &why))?;
        let _ = write!(done, " {name}={value}");
    }
    Ok(done)
}

const SLOWER_THAN: &str = "slowlog-log-slower-than";
const SLOWLOG_LENGTH: &str = "slowlog-max-len";
const ACL_LOG_LENGTH: &str = "acllog-max-len";
const MAXCLIENTS: &str = "maxclients";
const DURABILITY: &str = "durability";
const COMPRESSION: &str = "compression";
const BACKGROUND_LIMIT: &str = "background-limit";
const SCRUB_LIMIT: &str = "scrub-limit";
const WHEN_FULL: &str = "when-full";
const LOG: &str = "log";
const KEYSPACE_EVENTS: &str = "notify-keyspace-events";
const TRACKED_KEYS: &str = "tracking-table-max-keys";

/// Settings that can change while the server runs. A reload of the settings file resets the last seven to its values.
const CHANGEABLE: [&str; 13] = [
    SLOWER_THAN,
    SLOWLOG_LENGTH,
    ACL_LOG_LENGTH,
    KEYSPACE_EVENTS,
    TRACKED_KEYS,
    MAXMEMORY_POLICY,
    MAXCLIENTS,
    DURABILITY,
    COMPRESSION,
    WHEN_FULL,
    BACKGROUND_LIMIT,
    SCRUB_LIMIT,
    LOG,
];

/// Limit of the bytes of a log filter: parsing time grows faster than the length.
const LOG_BYTES_MAX: usize = 4096;

/// A setting and its new value.
enum Change {
    Number(&'static str, i64),
    Durability(Durability),
    Compression(Compression),
    WhenFull(WhenFull),
    /// One of Redis' words.
    Policy(String),
    Log(String),
    Events(KeyspaceEvents),
}

impl Change {
    /// Parses a new value. Returns `None` for an immutable setting, whose value has been compared, and an error text
    /// for an invalid value.
    fn of(name: &str, value: &[u8], service: &Service) -> Result<Option<Change>, String> {
        let Some(name) = CHANGEABLE.into_iter().find(|known| *known == name) else { return Ok(None) };
        let least = match name {
            DURABILITY => {
                let durability = shown(value, 128).parse().map_err(|error: Error| error.to_string())?;
                return Ok(Some(Change::Durability(durability)));
            }
            COMPRESSION => {
                let compression = shown(value, 128).parse().map_err(|error: Error| error.to_string())?;
                return Ok(Some(Change::Compression(compression)));
            }
            KEYSPACE_EVENTS => return shown(value, 128).parse().map(|events| Some(Change::Events(events))),
            WHEN_FULL => {
                let when_full = shown(value, 128).parse().map_err(|error: Error| error.to_string())?;
                return Ok(Some(Change::WhenFull(when_full)));
            }
            MAXMEMORY_POLICY => {
                let word = shown(value, 128).to_ascii_lowercase();
                if !policy::is_word(&word) {
                    return Err(format!("argument(s) must be one of the following: {}", policy::words()));
                }
                return Ok(Some(Change::Policy(word)));
            }
            LOG => {
                if value.len() > LOG_BYTES_MAX {
                    let bytes = value.len();
                    return Err(format!(
                        "a filter of {bytes} bytes is longer than {LOG_BYTES_MAX}, the most that a filter of the log may have"
                    ));
                }
                let filter = std::str::from_utf8(value).map_err(|_| "argument is no text".to_owned())?;
                let log = service.config.log.as_ref().ok_or("nothing is logged")?;
                log.check(filter)?;
                return Ok(Some(Change::Log(filter.to_owned())));
            }
            // For `scrub-limit`, -1 is the rate of one pass per week.
            SLOWER_THAN | SCRUB_LIMIT => -1,
            MAXCLIENTS => 1,
            _ => 0,
        };
        let number = parse_integer(value).ok_or("argument couldn't be parsed into an integer")?;
        let most = if name == MAXCLIENTS { u32::MAX.into() } else { i64::MAX };
        if !(least..=most).contains(&number) {
            return Err(format!("argument must be between {least} and {most} inclusive"));
        }
        Ok(Some(Change::Number(name, number)))
    }

    /// Applies the change. Returns the setting's name and its new value, or its name and the error.
    fn make(self, service: &Service) -> Result<(&'static str, String), (&'static str, String)> {
        let (name, number) = match self {
            Change::Durability(durability) => {
                let set = service.store.set_durability(durability);
                set.map_err(|error| (DURABILITY, error.to_string()))?;
                return Ok((DURABILITY, durability.to_string()));
            }
            Change::Compression(compression) => {
                let set = service.store.set_compression(compression);
                set.map_err(|error| (COMPRESSION, error.to_string()))?;
                return Ok((COMPRESSION, compression.to_string()));
            }
            Change::WhenFull(when_full) => {
                let set = service.store.set_when_full(when_full);
                set.map_err(|error| (WHEN_FULL, text_of(&error)))?;
                return Ok((WHEN_FULL, when_full.to_string()));
            }
            Change::Policy(word) => {
                if let Some(when_full) = service.policy.set(&word) {
                    let set = service.store.set_when_full(when_full);
                    set.map_err(|error| (MAXMEMORY_POLICY, text_of(&error)))?;
                }
                return Ok((MAXMEMORY_POLICY, word));
            }
            Change::Log(filter) => {
                if let Some(log) = &service.config.log {
                    log.set(&filter).map_err(|error| (LOG, error))?;
                }
                return Ok((LOG, shown(filter.as_bytes(), 128)));
            }
            Change::Events(events) => {
                service.events.set(events);
                service.observe_as_needed();
                return Ok((KEYSPACE_EVENTS, events.to_string()));
            }
            Change::Number(name, number) => (name, number),
        };
        match name {
            SLOWER_THAN => service.slowlog.slower_than_us.store(number, Ordering::Relaxed),
            SLOWLOG_LENGTH => service.slowlog.entries.set_length(number as usize),
            ACL_LOG_LENGTH => service.acl_log.entries.set_length(number as usize),
            TRACKED_KEYS => service.tracking.set_keys_max(number as usize),
            MAXCLIENTS => {
                service.connection_limits.set(number as usize, service.connection_limits.per_address())
            }
            SCRUB_LIMIT => service.store.set_scrub_bytes_per_s(u64::try_from(number).ok()),
            _ => service.store.set_background_bytes_per_s((number > 0).then_some(number as u64)),
        }
        Ok((name, number.to_string()))
    }
}

/// Returns the settings given at the start, followed by the server's own.
fn settings(service: &Service) -> Vec<(String, String)> {
    let limits = &service.config.limits;
    let socket = service.config.unix.as_ref();
    let mut settings = service.config.settings.clone();
    let (durability, when_full) = (service.store.durability(), service.store.when_full());
    // The given values of changeable settings may be outdated.
    settings.retain(|(name, _)| !CHANGEABLE.contains(&name.as_str()));
    settings.extend(service.config.log.as_ref().map(|log| (LOG.to_owned(), log.text())));
    for (name, value) in [
        // Clients read these two to find out whether data survives a restart. There are no snapshots; the log is
        // always on.
        ("save", String::new()),
        ("appendonly", "yes".to_owned()),
        ("appendfsync", if durability == Durability::Sync { "always" } else { "everysec" }.to_owned()),
        (DURABILITY, durability.to_string()),
        (COMPRESSION, service.store.compression().to_string()),
        (BACKGROUND_LIMIT, service.store.background_bytes_per_s().unwrap_or(0).to_string()),
        (SCRUB_LIMIT, service.store.scrub_bytes_per_s().map_or("-1".to_owned(), |bytes| bytes.to_string())),
        ("databases", service.databases().len().to_string()),
        ("port", service.port().to_string()),
        ("unixsocket", socket.map_or_else(String::new, |socket| socket.path.display().to_string())),
        ("unixsocketperm", socket.map_or_else(|| "0".to_owned(), |socket| format!("{:o}", socket.mode))),
        (MAXCLIENTS, service.connection_limits.connections().to_string()),
        ("proto-max-bulk-len", limits.bulk_bytes_max.to_string()),
        // The bytes of the devices that users may fill. Beyond them keys are evicted or puts refused.
        ("maxmemory", service.store.stats().user_limit_bytes.to_string()),
        (MAXMEMORY_POLICY, service.policy.word(when_full).to_owned()),
        (WHEN_FULL, when_full.to_string()),
        ("timeout", limits.idle_wait.map_or(0, |wait| wait.as_secs()).to_string()),
        ("tcp-keepalive", limits.keepalive.map_or(0, |wait| wait.as_secs()).to_string()),
        (KEYSPACE_EVENTS, service.events.setting().to_string()),
        (TRACKED_KEYS, service.tracking.keys_max().to_string()),
        ("latency-tracking", "yes".to_owned()),
        ("latency-tracking-info-percentiles", PERCENTILES.map(|percent| percent.to_string()).join(" ")),
        ("latency-monitor-threshold", "0".to_owned()),
        (SLOWER_THAN, service.slowlog.slower_than_us.load(Ordering::Relaxed).to_string()),
        (SLOWLOG_LENGTH, service.slowlog.entries.length().to_string()),
        (ACL_LOG_LENGTH, service.acl_log.entries.length().to_string()),
    ] {
        if !settings.iter().any(|(given, _)| given == name) {
            settings.push((name.to_owned(), value));
        }
    }
    settings
}
