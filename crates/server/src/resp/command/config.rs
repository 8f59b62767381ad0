//! CONFIG GET.

use super::{Plan, is, unknown_subcommand, wrong_arguments};
use crate::resp::frame::Command;
use crate::resp::reply::Replies;
use crate::resp::session::Session;
use crate::service::Service;

pub(super) fn plan(command: Command<'_>) -> Plan {
    match command.argument(1) {
        word if is(word, "get") && command.len() < 3 => Plan::Refuse(wrong_arguments("config|get")),
        word if is(word, "get") => Plan::Answer(get),
        _ => unknown_subcommand("CONFIG", command),
    }
}

/// Settings whose names match any of the patterns.
fn get(command: Command<'_>, _: &mut Session, service: &Service, replies: &mut Replies) {
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
        ("timeout", "0".to_owned()),
    ] {
        if !settings.iter().any(|(given, _)| given == name) {
            settings.push((name.to_owned(), value));
        }
    }
    settings
}

/// Whether `text` matches a pattern of `*`, `?` and `\`-escapes. It steps back only to the last `*`, so its time is at
/// most pattern times text, whatever the pattern.
fn matches(pattern: &[u8], text: &[u8]) -> bool {
    let (mut p, mut t) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    while t < text.len() {
        let (literal, width) = match pattern.get(p) {
            Some(b'*') => {
                star = Some((p + 1, t));
                p += 1;
                continue;
            }
            Some(b'?') => (Some(text[t]), 1),
            Some(b'\\') if p + 1 < pattern.len() => (Some(pattern[p + 1]), 2),
            other => (other.copied(), 1),
        };
        if literal == Some(text[t]) {
            p += width;
            t += 1;
        } else if let Some((after, from)) = star {
            star = Some((after, from + 1));
            (p, t) = (after, from + 1);
        } else {
            return false;
        }
    }
    pattern[p..].iter().all(|&byte| byte == b'*')
}

#[cfg(test)]
mod tests {
    use super::matches;

    #[test]
    fn patterns() {
        for (pattern, text, expected) in [
            ("save", "save", true),
            ("save", "saved", false),
            ("*", "", true),
            ("*", "port", true),
            ("max*", "maxclients", true),
            ("max*s", "maxclients", true),
            ("*a*a*a*b", "aaaaaaaaaa", false),
            ("p?rt", "port", true),
            ("p?rt", "prt", false),
            ("\\*", "*", true),
            ("\\*", "x", false),
            ("", "x", false),
        ] {
            assert_eq!(matches(pattern.as_bytes(), text.as_bytes()), expected, "{pattern} on {text}");
        }
    }
}
