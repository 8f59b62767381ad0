//! ACL: who one is, and who there is. Users are set up in the server's configuration, not over the wire.

use super::describe::help::help;
use crate::auth::User;
use crate::resp::session::Session;
use crate::resp::verbs::Verb;
use crate::resp::verbs::history::{CATEGORIES, is_in};
use crate::resp::wire::commands::Command;
use crate::resp::wire::reply::Replies;
use crate::resp::wire::words::{self, is, shown};
use crate::service::Service;

pub(super) fn acl(command: Command<'_>, session: &mut Session, service: &Service, replies: &mut Replies) {
    let word = command.argument(1);
    let name = session.user.as_ref().map_or("", |user| user.name());
    let exact = |count, name| {
        if command.len() == count { Ok(()) } else { Err(words::wrong_arguments(&format!("acl|{name}"))) }
    };
    let for_admins = |name| {
        exact(2, name)?;
        let admin = session.user.as_ref().is_some_and(|user| user.is_admin());
        if admin { Ok(()) } else { Err(words::no_right_to_run(&format!("acl|{name}"))) }
    };
    let answered = match word {
        _ if is(word, "help") => {
            help("acl", command, replies);
            Ok(())
        }
        _ if is(word, "whoami") => exact(2, "whoami").map(|()| replies.bulk(name.as_bytes())),
        _ if is(word, "cat") => categories(command, replies),
        _ if is(word, "list") => for_admins("list").map(|()| {
            let users = service.users.all();
            let nobody_needs_password = service.users.unnamed().is_some();
            replies.array(users.len());
            users.iter().for_each(|user| replies.bulk(&rule(user, nobody_needs_password)));
        }),
        _ if is(word, "users") => for_admins("users").map(|()| {
            let users = service.users.all();
            replies.array(users.len());
            users.iter().for_each(|user| replies.bulk(user.name().as_bytes()));
        }),
        _ => Err(words::unknown_subcommand("ACL", command)),
    };
    if let Err(error) = answered {
        replies.error(&error);
    }
}

/// `ACL CAT [category]`.
fn categories(command: Command<'_>, replies: &mut Replies) -> Result<(), String> {
    let mut names = CATEGORIES.to_vec();
    match command.len() {
        2 => {}
        3 => {
            let wanted = shown(command.argument(2), 128);
            let known = CATEGORIES.iter().find(|category| is(command.argument(2), category));
            let category = known.ok_or_else(|| format!("ERR Unknown category '{wanted}'"))?;
            names = Verb::described().filter(|verb| is_in(verb, category)).map(|verb| verb.name).collect();
        }
        _ => return Err(words::unknown_or_wrong_arguments("ACL", command)),
    }
    replies.array(names.len());
    names.iter().for_each(|name| replies.bulk(name.as_bytes()));
    Ok(())
}

/// What the right to monitor allows, in those words.
const MONITOR: &[u8] = b" +info +dbsize +lastsave +config|get +config|help +client|list +slowlog|get +slowlog|len +slowlog|help \
    +latency -latency|reset";

/// The names of keys (`~`) or channels (`&`) that a user may use.
fn names(user: &User, of: u8, rule: &mut Vec<u8>) {
    if user.prefixes().is_empty() {
        rule.extend_from_slice(&[b' ', of, b'*']);
    }
    for prefix in user.prefixes() {
        rule.extend_from_slice(&[b' ', of]);
        for &byte in prefix {
            if matches!(byte, b'*' | b'?' | b'[' | b'\\') {
                rule.push(b'\\');
            }
            rule.push(byte);
        }
        rule.push(b'*');
    }
}

/// A user in the words of Redis' rules. Hashes of passwords are not shown to anybody.
fn rule(user: &User, no_password: bool) -> Vec<u8> {
    let mut rule = format!("user {} on", user.name()).into_bytes();
    if no_password {
        rule.extend_from_slice(b" nopass");
    }
    if user.is_admin() {
        rule.extend_from_slice(b" ~* &* +@all");
        return rule;
    }
    names(user, b'~', &mut rule);
    rule.extend_from_slice(b" resetchannels");
    names(user, b'&', &mut rule);
    rule.extend_from_slice(b" -@all +@connection +@transaction");
    if user.reads() {
        rule.extend_from_slice(b" +@read");
    }
    if user.writes() {
        rule.extend_from_slice(b" +@write");
    }
    if user.reads() && user.writes() {
        rule.extend_from_slice(b" +@pubsub +@scripting -script|flush -script|kill");
    } else if user.reads() {
        rule.extend_from_slice(b" +@pubsub -publish -spublish");
    } else if user.writes() {
        rule.extend_from_slice(b" +publish +spublish");
    }
    if user.monitors() {
        rule.extend_from_slice(MONITOR);
    }
    rule
}
