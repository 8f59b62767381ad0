//! PING, ECHO, HELLO, SELECT, QUIT.

use super::number::parse_integer;
use super::server::{REDIS_VERSION, ROLE, RUN_MODE};
use super::{Plan, is, shown, wrong_arguments};
use crate::resp::frame::Command;
use crate::resp::reply::{Protocol, Replies};
use crate::resp::session::Session;
use crate::service::Service;

pub(super) fn plan_ping(command: Command<'_>) -> Plan {
    if command.len() > 2 {
        return Plan::Refuse(wrong_arguments("ping"));
    }
    Plan::Answer(|command, _, _, replies| match command.len() {
        1 => replies.simple("PONG"),
        _ => replies.bulk(command.argument(1)),
    })
}

pub(super) fn echo(command: Command<'_>, _: &mut Session, _: &Service, replies: &mut Replies) {
    replies.bulk(command.argument(1));
}

pub(super) fn select(command: Command<'_>, _: &mut Session, _: &Service, replies: &mut Replies) {
    match parse_integer(command.argument(1)) {
        Some(0) => replies.simple("OK"),
        Some(_) => replies.error("ERR DB index is out of range"),
        None => replies.error("ERR value is not an integer or out of range"),
    }
}

pub(super) fn quit(_: Command<'_>, session: &mut Session, _: &Service, replies: &mut Replies) {
    session.leaving = true;
    replies.simple("OK");
}

/// Ends a connection on which a browser speaks HTTP: a page could otherwise smuggle commands in the body of a request.
pub(super) fn plan_http(_: Command<'_>) -> Plan {
    Plan::Answer(|_, session, _, _| {
        tracing::warn!(connection = session.id, "HTTP on the RESP port; closing the connection");
        session.leaving = true;
    })
}

/// `HELLO [2|3 [AUTH user password] [SETNAME name]]`. Nothing changes unless all of it is good.
pub(super) fn hello(command: Command<'_>, session: &mut Session, _: &Service, replies: &mut Replies) {
    let mut protocol = replies.protocol;
    let mut name = None;
    let mut arguments = command.arguments(1);
    if let Some(version) = arguments.next() {
        protocol = match parse_integer(version) {
            Some(2) => Protocol::Resp2,
            Some(3) => Protocol::Resp3,
            Some(_) => return replies.error("NOPROTO unsupported protocol version"),
            None => return replies.error("ERR Protocol version is not an integer or out of range"),
        };
    }
    while let Some(option) = arguments.next() {
        if is(option, "auth") && arguments.len() >= 2 {
            // Without passwords there is one user, who may come with any password.
            let user = arguments.next();
            arguments.next();
            if user != Some(b"default") {
                return replies.error("WRONGPASS invalid username-password pair or user is disabled.");
            }
        } else if is(option, "setname") && arguments.len() >= 1 {
            name = arguments.next();
            if !name.is_some_and(is_name) {
                return replies.error(BAD_NAME);
            }
        } else {
            return replies.error(&format!("ERR Syntax error in HELLO option '{}'", shown(option, 128)));
        }
    }
    replies.protocol = protocol;
    if let Some(name) = name {
        session.name = name.to_vec();
    }

    let version = if protocol == Protocol::Resp3 { 3 } else { 2 };
    replies.map(7);
    for (key, value) in [("server", "redis"), ("version", REDIS_VERSION)] {
        replies.bulk(key.as_bytes());
        replies.bulk(value.as_bytes());
    }
    for (key, value) in [("proto", version), ("id", session.id as i64)] {
        replies.bulk(key.as_bytes());
        replies.integer(value);
    }
    for (key, value) in [("mode", RUN_MODE), ("role", ROLE)] {
        replies.bulk(key.as_bytes());
        replies.bulk(value.as_bytes());
    }
    replies.bulk(b"modules");
    replies.array(0);
}

pub(super) const BAD_NAME: &str = "ERR Client names cannot contain spaces, newlines or special characters.";

/// Whether this may be a connection's name: it must fit on a line with other words.
pub(super) fn is_name(name: &[u8]) -> bool {
    name.iter().all(u8::is_ascii_graphic)
}
