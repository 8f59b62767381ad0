//! Answers of a running server about itself.

use super::http::Http;
use super::{Arguments, Collected, PATIENCE, redact};
use crate::client::{Answer, Client, Trouble};
use crate::terminal::Failure;

/// Commands whose answers have no keys or values, each with the file that it becomes.
const QUESTIONS: [(&str, &[&[u8]]); 5] = [
    ("info.txt", &[b"INFO", b"everything"]),
    ("status.json", &[b"INFO", b"status"]),
    ("config.txt", &[b"CONFIG", b"GET", b"*"]),
    ("memory.txt", &[b"MEMORY", b"STATS"]),
    ("slow-count.txt", &[b"SLOWLOG", b"LEN"]),
];

/// Asks over RESP, and over HTTP if an address was given.
pub(super) fn collect(arguments: &Arguments, http: Option<&Http>, collected: &mut Collected) {
    match arguments.login.connect(&arguments.from, PATIENCE) {
        Ok(mut client) => {
            for (name, words) in QUESTIONS {
                collected.add(name, ask(&mut client, words).map_err(|trouble| text_of(trouble.into())));
            }
        }
        Err(failure) => collected.add("info.txt", Err::<Vec<u8>, _>(text_of(failure))),
    }
    if let Some(http) = http {
        collected.add("metrics.txt", http.metrics());
    }
}

pub(super) fn text_of(failure: Failure) -> String {
    match failure {
        Failure::Usage(why) | Failure::Failed(why) => why,
    }
}

fn ask(client: &mut Client, words: &[&[u8]]) -> Result<Vec<u8>, Trouble> {
    let answer = client.ask(words)?;
    let mut text = String::new();
    match answer {
        Answer::Parts(parts) => pairs(&parts, &mut text),
        other => text = one(&other) + "\n",
    }
    Ok(text.into_bytes())
}

/// Writes a flat list of names and values, one pair a line.
fn pairs(parts: &[Answer], text: &mut String) {
    for pair in parts.chunks(2) {
        let name = one(&pair[0]);
        let value = pair.get(1).map_or(String::new(), one);
        *text += &format!("{name} = {value}\n");
    }
}

fn one(answer: &Answer) -> String {
    match answer {
        Answer::Text(text) => String::from_utf8_lossy(text).into_owned(),
        Answer::Error(error) => redact::line(error),
        Answer::Integer(number) => number.to_string(),
        Answer::Nothing => String::new(),
        Answer::Parts(parts) => format!("{} parts", parts.len()),
    }
}
