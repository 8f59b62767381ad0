//! PING, ECHO, AUTH, HELLO, RESET, QUIT.

use std::sync::Arc;
use std::time::Duration;

use super::databases::selected;
use super::server::{ALONE, IN_CLUSTER, ROLE};
use crate::auth::{LoginRefused, Needs, User, Users, login_deadline};
use crate::resp::session::{Session, refused};
use crate::resp::verb::facts::{Bound, Databases, Group, InMulti, flags, tips};
use crate::resp::verb::{LoginRefusal, Run, Verb};
use crate::resp::version::REDIS_VERSION;
use crate::resp::wire::commands::Command;
use crate::resp::wire::error_text::{self, is, shown};
use crate::resp::wire::number::parse_integer;
use crate::resp::wire::reply::{Protocol, Replies};
use crate::service::Service;
use crate::service::acl_log::Reason;
use crate::service::clients::NAME_BYTES_MAX;

const CONNECTION: Verb = Verb { group: Group::Connection, categories: &["connection"], ..Verb::DEFAULT };

/// The commands of this family.
#[rustfmt::skip]
pub(super) const COMMANDS: &[Verb] = &[
    Verb { name: "auth", arity: -2,
        run: Run::LogIn(|command, session, users, wait, replies| Box::pin(auth(command, session, users, wait, replies))),
        needs: Needs::Nothing, flags: flags::LOGIN, in_multi: InMulti::Refused, has_secrets: true, since: "1.0.0",
        summary: "Logs in, with a name and a password or with the password of the default user.", ..CONNECTION },
    Verb { name: "echo", arity: 2, run: Run::Session(echo), flags: flags::FAST, in_scripts: true,
        bound: |command, _, _| Bound::once(command.bytes()), since: "1.0.0", summary: "Answers the argument.",
        ..CONNECTION },
    Verb { name: "hello", arity: -1,
        run: Run::LogIn(|command, session, users, wait, replies| Box::pin(hello(command, session, users, wait, replies))),
        needs: Needs::Nothing, flags: flags::LOGIN, in_multi: InMulti::Refused, has_secrets: true, since: "6.0.0",
        summary: "Chooses the protocol version and introduces both sides.", ..CONNECTION },
    Verb { name: "ping", arity: -1, run: Run::Answer(ping), flags: &["fast"], tips: &[tips::EVERYWHERE, tips::ALL],
        in_scripts: true, for_subscribers: true, bound: |command, _, _| Bound::once(command.bytes()),
        since: "1.0.0", summary: "Answers, with the argument if there is one.", ..CONNECTION },
    Verb { name: "quit", arity: -1, run: Run::Session(quit), needs: Needs::Nothing, flags: flags::LOGIN,
        in_multi: InMulti::Runs, for_subscribers: true, since: "1.0.0", summary: "Closes the connection.",
        ..CONNECTION },
    Verb { name: "reset", arity: 1, run: Run::Answer(reset), needs: Needs::Nothing, flags: flags::LOGIN,
        in_multi: InMulti::Runs, for_subscribers: true,
        while_opening: Some(|_, session, opening, replies| reset_to(opening.users, session, replies)),
        frees_session: true, since: "6.2.0", summary: "Makes the connection as it was at first.", ..CONNECTION },
    Verb { name: "select", arity: 2, run: Run::Answer(select), flags: flags::FAST, in_scripts: true,
        databases: Databases::Selected,
        while_opening: Some(|command, session, opening, replies| enter(command, session, opening.databases, replies)),
        since: "1.0.0", summary: "Chooses the database.", ..CONNECTION },
    Verb { name: "post", arity: -1, run: Run::Session(http), needs: Needs::Nothing, flags: flags::TELL,
        group: Group::Http, categories: &[], in_multi: InMulti::Runs, for_subscribers: true, since: "1.0.0",
        ..CONNECTION },
    Verb { name: "host:", arity: -1, run: Run::Session(http), needs: Needs::Nothing, flags: flags::TELL,
        group: Group::Http, categories: &[], in_multi: InMulti::Runs, for_subscribers: true, since: "1.0.0",
        ..CONNECTION },
];

fn ping(command: Command<'_>, session: &mut Session, _: &Service, replies: &mut Replies) {
    match command.len() {
        1 | 2 if session.hears_only() => {
            replies.array(2);
            replies.bulk(b"pong");
            replies.bulk(command.arguments(1).next().unwrap_or_default());
        }
        1 => replies.simple("PONG"),
        2 => replies.bulk(command.argument(1)),
        _ => replies.error(&error_text::wrong_arguments("ping")),
    }
}

fn echo(command: Command<'_>, _: &mut Session, replies: &mut Replies) {
    replies.bulk(command.argument(1));
}

fn select(command: Command<'_>, session: &mut Session, service: &Service, replies: &mut Replies) {
    enter(command, session, service.config.databases, replies);
}

/// Runs a SELECT on a server with `databases` databases.
fn enter(command: Command<'_>, session: &mut Session, databases: u8, replies: &mut Replies) {
    match selected(command, databases) {
        Ok(database) => {
            session.enter(database);
            replies.simple("OK");
        }
        Err(error) => replies.error(error),
    }
}

fn quit(_: Command<'_>, session: &mut Session, replies: &mut Replies) {
    session.leaving = true;
    replies.simple("OK");
}

fn reset(_: Command<'_>, session: &mut Session, service: &Service, replies: &mut Replies) {
    reset_to(&service.users, session, replies);
}

fn reset_to(users: &Users, session: &mut Session, replies: &mut Replies) {
    session.reset(users, replies);
    replies.simple("RESET");
}

/// Ends a connection on which a browser speaks HTTP: otherwise a web page could smuggle commands into the body of a
/// request.
fn http(_: Command<'_>, session: &mut Session, _: &mut Replies) {
    tracing::warn!(connection = session.id, "HTTP on the RESP port; closing the connection");
    session.leaving = true;
}

const HELLO_UNNAMED: &str = "NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO \
                             AUTH <user> <pass> option can be used to authenticate the client and select the RESP \
                             protocol version at the same time";

/// `AUTH [user] password`.
async fn auth(
    command: Command<'_>,
    session: &mut Session,
    users: &Users,
    login_wait: Option<Duration>,
    replies: &mut Replies,
) -> Result<(), LoginRefusal> {
    if command.len() > 3 {
        return Err(error_text::SYNTAX.into());
    }
    let (name, password) = match command.len() {
        2 if !users.default_has_password() => {
            return Err("ERR AUTH <password> called without any password configured for the default user. Are you sure \
                        your configuration is correct?"
                .into());
        }
        2 => (b"default".as_slice(), command.argument(1)),
        _ => (command.argument(1), command.argument(2)),
    };
    let user = check_login(name, password, session, users, login_wait).await?;
    log_in(session, Some(user));
    replies.simple("OK");
    Ok(())
}

/// `HELLO [2|3 [AUTH user password] [SETNAME name]]`. Changes nothing unless all of it is valid.
async fn hello(
    command: Command<'_>,
    session: &mut Session,
    users: &Users,
    login_wait: Option<Duration>,
    replies: &mut Replies,
) -> Result<(), LoginRefusal> {
    let mut protocol = replies.protocol;
    let (mut name, mut login) = (None, None);
    let mut arguments = command.arguments(1);
    if let Some(version) = arguments.next() {
        protocol = match parse_integer(version) {
            Some(2) => Protocol::Resp2,
            Some(3) => Protocol::Resp3,
            Some(_) => return Err("NOPROTO unsupported protocol version".into()),
            None => return Err("ERR Protocol version is not an integer or out of range".into()),
        };
    }
    while let Some(option) = arguments.next() {
        if is(option, "auth") && arguments.len() >= 2 {
            let (user, password) = (arguments.next().unwrap_or(b""), arguments.next().unwrap_or(b""));
            login = Some(check_login(user, password, session, users, login_wait).await?);
        } else if is(option, "setname") && arguments.len() >= 1 {
            name = arguments.next();
            check_name("Client names", name.unwrap_or_default()).map_err(LoginRefusal::Error)?;
        } else {
            let text = format!("ERR Syntax error in HELLO option '{}'", shown(option, 128));
            return Err(LoginRefusal::Error(text));
        }
    }
    let user = match login {
        Some(user) => Some(user),
        None if session.user.is_none() => return Err(HELLO_UNNAMED.into()),
        None => session.user.take(),
    };
    log_in(session, user);
    replies.protocol = protocol;
    let version = if protocol == Protocol::Resp3 { 3 } else { 2 };
    session.client.note_protocol(version);
    if let Some(name) = name {
        session.client.introduction(|known| known.name = name.to_vec());
    }

    replies.map(7);
    for (key, value) in [("server", "redis"), ("version", REDIS_VERSION)] {
        replies.bulk(key.as_bytes());
        replies.bulk(value.as_bytes());
    }
    for (key, value) in [("proto", i64::from(version)), ("id", session.id as i64)] {
        replies.bulk(key.as_bytes());
        replies.integer(value);
    }
    let mode = if session.is_in_cluster { IN_CLUSTER } else { ALONE };
    for (key, value) in [("mode", mode), ("role", ROLE)] {
        replies.bulk(key.as_bytes());
        replies.bulk(value.as_bytes());
    }
    replies.bulk(b"modules");
    replies.array(0);
    Ok(())
}

/// Answers a refusal, and records a failed login in the ACL log.
pub(in crate::resp) fn refuse_login(
    refusal: &LoginRefusal,
    verb: &Verb,
    command: Command<'_>,
    session: &Session,
    service: &Service,
    replies: &mut Replies,
) {
    if let LoginRefusal::Login(name) = refusal {
        let counted = session.commands.counted_as(verb).name;
        refused::note_of(Reason::Auth, "toplevel", command.verb(), name, counted, session, service);
    }
    replies.error(refusal.text());
}

/// Checks a password. Waits at most until the client's login deadline.
async fn check_login(
    name: &[u8],
    password: &[u8],
    session: &Session,
    users: &Users,
    login_wait: Option<Duration>,
) -> Result<Arc<User>, LoginRefusal> {
    let deadline = session.login_by.unwrap_or_else(|| login_deadline(login_wait));
    users.log_in(name, password, &session.peer, deadline).await.map_err(|refused| match refused {
        LoginRefused::Wrong => LoginRefusal::Login(name.to_vec()),
        LoginRefused::Busy(busy) => LoginRefusal::Error(format!("ERR {busy}")),
    })
}

fn log_in(session: &mut Session, user: Option<Arc<User>>) {
    if let Some(user) = &user {
        session.client.introduction(|known| user.name().clone_into(&mut known.user));
    }
    session.user = user;
}

/// Checks a name given by a client: it must be short, because it is kept and copied into logs, and must not contain
/// separators, because it is printed in lines with other words.
pub(super) fn check_name(what: &str, name: &[u8]) -> Result<(), String> {
    if !name.iter().all(u8::is_ascii_graphic) {
        return Err(format!("ERR {what} cannot contain spaces, newlines or special characters."));
    }
    if name.len() > NAME_BYTES_MAX {
        return Err(format!("ERR {what} cannot be longer than {NAME_BYTES_MAX} bytes."));
    }
    Ok(())
}
