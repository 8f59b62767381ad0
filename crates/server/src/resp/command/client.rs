//! CLIENT: the server's information on connections.
//!
//! Unknown subcommands must be answered with an error and have no other effect: clients try `MAINT_NOTIFICATIONS` and
//! continue without it after an error.

use std::collections::HashSet;

use Answered::{Alone, Shared};

use super::connection::check_name;
use super::describe::help::help;
use super::durability;
use super::pauses;
use super::tracking;
use crate::resp::session::{Answers, Session, audit};
use crate::resp::verbs::table::VERBS;
use crate::resp::wire::commands::Command;
use crate::resp::wire::error_text::{self, is, shown};
use crate::resp::wire::number::parse_integer;
use crate::resp::wire::reply::Replies;
use crate::service::Service;
use crate::service::clients::Client;

/// The state that a subcommand needs.
#[derive(Clone, Copy)]
enum Answered {
    /// Only the connection's own state, so that the subcommand works while the store is being opened.
    Alone(fn(Command<'_>, &mut Session, &mut Replies)),
    /// State shared by all connections.
    Shared(super::Answer),
}

/// The implementations of the subcommands.
static ANSWERS: [(&str, Answered); 19] = [
    ("id", Alone(id)),
    ("getname", Alone(get_name)),
    ("setname", Alone(set_name)),
    ("setinfo", Alone(set_info)),
    ("info", Alone(info)),
    ("reply", Shared(reply)),
    ("no-evict", Alone(no_effect)),
    ("no-touch", Alone(no_effect)),
    ("getredir", Shared(tracking::get_redirection)),
    ("tracking", Shared(tracking::tracking)),
    ("caching", Shared(tracking::caching)),
    ("trackinginfo", Shared(tracking::info)),
    ("durability", Shared(durability::client)),
    ("list", Shared(list)),
    ("kill", Shared(kill)),
    ("pause", Shared(pauses::pause)),
    ("unpause", Shared(pauses::unpause)),
    ("unblock", Shared(pauses::unblock)),
    ("help", Alone(|command, _, replies| help("client", command, replies))),
];

pub(super) fn client(command: Command<'_>, session: &mut Session, service: &Service, replies: &mut Replies) {
    match answered(command) {
        Some(Alone(answer)) => answer(command, session, replies),
        Some(Shared(answer)) => answer(command, session, service, replies),
        None => replies.error(&error_text::unknown_subcommand("CLIENT", command)),
    }
}

/// Answers a subcommand that only needs the connection's own state. Returns false for any other.
pub(in crate::resp) fn alone(command: Command<'_>, session: &mut Session, replies: &mut Replies) -> bool {
    let Some(Alone(answer)) = answered(command) else { return false };
    answer(command, session, replies);
    true
}

fn answered(command: Command<'_>) -> Option<Answered> {
    let found = ANSWERS.iter().find(|(name, _)| is(command.argument(1), name));
    found.map(|(_, answered)| *answered)
}

fn id(_: Command<'_>, session: &mut Session, replies: &mut Replies) {
    replies.integer(session.id as i64);
}

fn get_name(_: Command<'_>, session: &mut Session, replies: &mut Replies) {
    let name = session.client.name();
    replies.bulk_or_null(Some(name.as_slice()).filter(|name| !name.is_empty()));
}

fn set_name(command: Command<'_>, session: &mut Session, replies: &mut Replies) {
    let name = command.argument(2);
    if let Err(error) = check_name("Client names", name) {
        return replies.error(&error);
    }
    session.client.introduction(|known| known.name = name.to_vec());
    replies.simple("OK");
}

/// Client libraries set one attribute per call.
fn set_info(command: Command<'_>, session: &mut Session, replies: &mut Replies) {
    let (attribute, value) = (command.argument(2), command.argument(3));
    let Some(known) = ["lib-name", "lib-ver"].into_iter().find(|known| is(attribute, known)) else {
        return replies.error(&format!("ERR Unrecognized option '{}'", shown(attribute, 128)));
    };
    if let Err(error) = check_name(known, value) {
        return replies.error(&error);
    }
    session.client.introduction(|introduction| match known {
        "lib-name" => introduction.library = value.to_vec(),
        _ => introduction.library_version = value.to_vec(),
    });
    replies.simple("OK");
}

/// Appends a client's description without a line end.
fn describe(client: &Client, line: &mut Vec<u8>) {
    client.describe(VERBS.get(client.last_verb()).map_or("NULL", |verb| verb.name), line);
}

fn info(_: Command<'_>, session: &mut Session, replies: &mut Replies) {
    let mut line = Vec::new();
    describe(&session.client, &mut line);
    line.push(b'\n');
    replies.text(&line);
}

fn reply(command: Command<'_>, session: &mut Session, _: &Service, replies: &mut Replies) {
    match command.argument(2) {
        word if is(word, "on") => {
            session.answers = Answers::On;
            replies.simple("OK");
        }
        word if is(word, "off") => session.answers = Answers::Off,
        word if is(word, "skip") => {
            if session.answers != Answers::Off {
                session.answers = Answers::SkipNext;
            }
        }
        _ => replies.error(error_text::SYNTAX),
    }
}

/// NO-EVICT and NO-TOUCH have no effect: no client is evicted for memory, and reading a key always counts as a use.
fn no_effect(command: Command<'_>, _: &mut Session, replies: &mut Replies) {
    match command.argument(2) {
        word if is(word, "on") || is(word, "off") => replies.simple("OK"),
        _ => replies.error(error_text::SYNTAX),
    }
}

/// `CLIENT LIST [TYPE type] [ID id …]`.
fn list(command: Command<'_>, _: &mut Session, service: &Service, replies: &mut Replies) {
    let mut clients = service.clients.all();
    match command.len() {
        2 => {}
        4 if is(command.argument(2), "type") => match type_of(command.argument(3)) {
            Ok(kind) => clients.retain(|client| kind.is_of(client)),
            Err(error) => return replies.error(&error),
        },
        4.. if is(command.argument(2), "id") => {
            let ids: Option<HashSet<i64>> = command.arguments(3).map(parse_integer).collect();
            let Some(ids) = ids else {
                return replies.error("ERR Invalid client ID");
            };
            clients.retain(|client| ids.contains(&(client.id as i64)));
        }
        _ => return replies.error(error_text::SYNTAX),
    }
    let mut text = Vec::new();
    for client in clients {
        describe(&client, &mut text);
        text.push(b'\n');
    }
    replies.text(&text);
}

/// The types of clients for CLIENT LIST and KILL.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Type {
    Normal,
    /// A subscriber.
    Pubsub,
    /// Master or replica; no client has this type.
    Replication,
}

impl Type {
    fn is_of(self, client: &Client) -> bool {
        self == if client.is_subscribed() { Type::Pubsub } else { Type::Normal }
    }
}

fn type_of(word: &[u8]) -> Result<Type, String> {
    match word {
        _ if is(word, "normal") => Ok(Type::Normal),
        _ if is(word, "pubsub") => Ok(Type::Pubsub),
        _ if ["master", "replica", "slave"].iter().any(|name| is(word, name)) => Ok(Type::Replication),
        _ => Err(format!("ERR Unknown client type '{}'", shown(word, 128))),
    }
}

/// `CLIENT KILL address`, or with filters that must all match; the reply is then the number of clients.
fn kill(command: Command<'_>, session: &mut Session, service: &Service, replies: &mut Replies) {
    let clients = service.clients.all();
    if command.len() == 3 {
        let found = clients.iter().find(|client| is(command.argument(2), &client.peer.to_string()));
        let Some(client) = found else { return replies.error("ERR No such client") };
        end(client, session);
        audit::note(session, "CLIENT KILL: 1 connection");
        return replies.simple("OK");
    }
    let mut skip_me = true;
    let mut chosen = clients;
    let mut arguments = command.arguments(2);
    while let Some(filter) = arguments.next() {
        let Some(value) = arguments.next() else { return replies.error(error_text::SYNTAX) };
        match filter {
            _ if is(filter, "id") => match parse_integer(value).filter(|&id| id > 0) {
                Some(id) => chosen.retain(|client| client.id as i64 == id),
                None => return replies.error("ERR client-id should be greater than 0"),
            },
            _ if is(filter, "addr") => chosen.retain(|client| is(value, &client.peer.to_string())),
            _ if is(filter, "laddr") => chosen.retain(|client| is(value, &client.local.to_string())),
            _ if is(filter, "user") => {
                if !service.users.all().iter().any(|user| user.name().as_bytes() == value) {
                    return replies.error(&format!("ERR No such user '{}'", shown(value, 128)));
                }
                chosen.retain(|client| client.introduction(|known| known.user.as_bytes() == value));
            }
            _ if is(filter, "type") => match type_of(value) {
                Ok(kind) => chosen.retain(|client| kind.is_of(client)),
                Err(error) => return replies.error(&error),
            },
            _ if is(filter, "maxage") => match parse_integer(value).map(u64::try_from) {
                Some(Ok(seconds @ 1..)) => chosen.retain(|client| client.age().as_secs() >= seconds),
                Some(_) => return replies.error("ERR maxage should be greater than 0"),
                None => return replies.error("ERR maxage is not an integer or out of range"),
            },
            _ if is(filter, "skipme") && is(value, "yes") => skip_me = true,
            _ if is(filter, "skipme") && is(value, "no") => skip_me = false,
            _ => return replies.error(error_text::SYNTAX),
        }
    }
    chosen.retain(|client| !(skip_me && client.id == session.id));
    chosen.iter().for_each(|client| end(client, session));
    audit::note(session, &format!("CLIENT KILL: {} connections", chosen.len()));
    replies.integer(chosen.len() as i64);
}

/// Ends a client's connection; the session's own connection ends after the reply.
fn end(client: &Client, session: &mut Session) {
    if client.id == session.id { session.leaving = true } else { client.kill() }
}
