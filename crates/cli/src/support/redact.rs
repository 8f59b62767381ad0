//! Removes the data of users from text: everything in quotes, and messages of scripts.
//!
//! The server writes keys in quotes only ([`esker_engine::Error`]), and no values; messages of scripts
//! (`redis.log`) are the one text of users without quotes.

use serde_json::Value;

/// Replaces a text in quotes.
const REMOVED: &str = "\"…\"";

/// Begins a message of a script in the server's log.
const OF_SCRIPT: &str = "message of a script";

/// Returns the lines of a log without texts of users. Lines that do not begin like one of the server's are dropped and
/// counted: they may be a part of a longer text.
pub(super) fn log(text: &str) -> String {
    let (mut kept, mut dropped) = (String::new(), 0u64);
    for text in text.lines() {
        match is_of_server(text) {
            true => kept += &format!("{}\n", log_line(text)),
            false => dropped += u64::from(!text.is_empty()),
        }
    }
    if dropped > 0 {
        kept += &format!("({dropped} lines without a time are left out)\n");
    }
    kept
}

fn log_line(text: &str) -> String {
    match serde_json::from_str(text) {
        Ok(Value::Object(fields)) => {
            let fields = fields.into_iter().map(|(name, value)| {
                let value = match value {
                    Value::String(text) => Value::String(line(&text)),
                    Value::Number(_) | Value::Bool(_) => value,
                    _ => Value::Null,
                };
                (name, value)
            });
            Value::Object(fields.collect()).to_string()
        }
        _ => line(text),
    }
}

/// Returns true for a line with a time, as text or JSON, and for the first line of a panic.
fn is_of_server(text: &str) -> bool {
    let digits = text.bytes().take(4).filter(u8::is_ascii_digit).count();
    let is_time = digits == 4 && text.as_bytes().get(4) == Some(&b'-');
    is_time || text.starts_with("{\"timestamp\"") || text.starts_with("thread '")
}

/// Returns a line without texts in quotes and without the message of a script.
pub(super) fn line(text: &str) -> String {
    let (text, is_of_script) = match text.find(OF_SCRIPT) {
        Some(at) => (&text[..at], true),
        None => (text, false),
    };
    let mut kept = String::new();
    let mut rest = text;
    while let Some(at) = rest.find(['"', '\'', '`']) {
        let quote = rest.as_bytes()[at];
        // An apostrophe within a word opens no quotes.
        let is_apostrophe = quote == b'\'' && at > 0 && rest.as_bytes()[at - 1].is_ascii_alphanumeric();
        kept += &rest[..at];
        rest = &rest[at + 1..];
        if is_apostrophe {
            kept.push('\'');
            continue;
        }
        kept += REMOVED;
        // Without an end the whole rest is removed.
        rest = closing(rest.as_bytes(), quote).map_or("", |end| &rest[end + 1..]);
    }
    kept += rest;
    if is_of_script { kept + "(a message of a script is left out)" } else { kept }
}

/// Returns the place of the quote that ends a text; one behind a backslash does not.
fn closing(text: &[u8], quote: u8) -> Option<usize> {
    let mut at = 0;
    while at < text.len() {
        match text[at] {
            b'\\' => at += 2,
            byte if byte == quote => return Some(at),
            _ => at += 1,
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_in_quotes_are_removed() {
        for (text, expected) in [
            ("no quotes, isn't it", "no quotes, isn't it"),
            (r#"damage under key "a\"b": x"#, "damage under key \"…\": x"),
            ("expected 'x y' but", "expected \"…\" but"),
            ("unclosed \"secret", "unclosed \"…\""),
            ("`k`", "\"…\""),
            ("INFO redis: message of a script: k v", "INFO redis: (a message of a script is left out)"),
        ] {
            assert_eq!(line(text), expected);
        }
    }

    #[test]
    fn lines_of_others_are_dropped() {
        let text = "2026-11-27T14:00:00Z  INFO esker: started\nsecret\n\
                    {\"timestamp\":\"2026\",\"message\":\"key \\\"k\\\"\",\"n\":3,\"more\":{\"k\":\"v\"}}\nthread 'main' panicked at x.rs:1\n";
        let kept = log(text);
        assert!(
            kept.contains("started") && kept.contains("\"n\":3") && kept.contains("panicked at x.rs:1"),
            "{kept}"
        );
        assert!(kept.contains("(1 lines without a time") && !kept.contains("secret"), "{kept}");
        assert!(kept.contains("key \\\"…\\\"") && !kept.contains("\"v\""), "{kept}");
    }
}
