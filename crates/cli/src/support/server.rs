//! Answers of a running server about itself.

use std::io::{Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::Duration;

use super::{Arguments, Collected, redact};
use crate::client::{Answer, Client, Trouble};
use crate::terminal::Failure;

/// Default time limit for accepting a connection and for every answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// Longest answer over HTTP in bytes.
const HTTP_BYTES_MAX: u64 = 16 << 20;

/// Commands whose answers have no keys or values, each with the file that it becomes.
const QUESTIONS: [(&str, &[&[u8]]); 6] = [
    ("info.txt", &[b"INFO", b"everything"]),
    ("status.json", &[b"INFO", b"status"]),
    ("config.txt", &[b"CONFIG", b"GET", b"*"]),
    ("memory.txt", &[b"MEMORY", b"STATS"]),
    ("latency.txt", &[b"INFO", b"latencystats"]),
    ("slow-count.txt", &[b"SLOWLOG", b"LEN"]),
];

/// Settings in the answer of CONFIG GET whose values are not shown, should a server ever return them.
const SECRETS: [&str; 3] = ["requirepass", "masterauth", "password"];

/// Asks over RESP, and over HTTP if an address was given.
pub(super) fn collect(arguments: &Arguments, collected: &mut Collected) {
    let connected =
        arguments.login.server(&arguments.from, PATIENCE).and_then(|server| Ok(server.connect()?));
    match connected {
        Ok(mut client) => {
            for (name, words) in QUESTIONS {
                collected.add(name, ask(&mut client, words).map_err(|trouble| text_of(trouble.into())));
            }
        }
        Err(failure) => collected.add("info.txt", Err::<Vec<u8>, _>(text_of(failure))),
    }
    if let Some(address) = &arguments.http {
        collected.add("metrics.txt", metrics(address, arguments));
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
        let is_secret = SECRETS.iter().any(|secret| name.eq_ignore_ascii_case(secret));
        let value = pair.get(1).map_or(String::new(), one);
        *text += &format!("{name} = {}\n", if is_secret { "(not shown)" } else { &value });
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

/// Gets `/metrics`.
fn metrics(address: &str, arguments: &Arguments) -> Result<Vec<u8>, String> {
    let cannot = |error: std::io::Error| format!("cannot get http://{address}/metrics: {error}");
    let login = arguments.login.basic().map_err(text_of)?;
    let resolved = address.to_socket_addrs().map_err(cannot)?.next();
    let resolved = resolved.ok_or_else(|| format!("{address} has no address"))?;
    let mut stream = TcpStream::connect_timeout(&resolved, PATIENCE).map_err(cannot)?;
    stream.set_read_timeout(Some(PATIENCE)).map_err(cannot)?;
    stream.set_write_timeout(Some(PATIENCE)).map_err(cannot)?;
    let login = login.map_or(String::new(), |login| format!("Authorization: Basic {login}\r\n"));
    let request = format!("GET /metrics HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n{login}\r\n");
    stream.write_all(request.as_bytes()).map_err(cannot)?;
    let mut answer = Vec::new();
    stream.take(HTTP_BYTES_MAX).read_to_end(&mut answer).map_err(cannot)?;
    let end = answer.windows(4).position(|part| part == b"\r\n\r\n");
    let end = end.ok_or_else(|| format!("{address} does not speak HTTP"))?;
    let head = String::from_utf8_lossy(&answer[..end]);
    let status = head.lines().next().unwrap_or_default();
    match status.split(' ').nth(1) {
        Some("200") => Ok(answer.split_off(end + 4)),
        _ => Err(format!("http://{address}/metrics: {status}")),
    }
}
