//! ACL: who one is, and who there is. Users are set up in the server's configuration, not over the wire.

use esker_engine::Store;

use super::describe::help::help;
use super::{pubsub, rights};
use crate::auth::User;
use crate::resp::session::Session;
use crate::resp::verbs::history::{CATEGORIES, is_in};
use crate::resp::verbs::{Verb, find};
use crate::resp::wire::commands::Command;
use crate::resp::wire::number::parse_integer;
use crate::resp::wire::reply::Replies;
use crate::resp::wire::words::{self, is, shown};
use crate::service::{Service, wall_clock_ms};

pub(super) fn acl(command: Command<'_>, session: &mut Session, service: &Service, replies: &mut Replies) {
    let word = command.argument(1);
    let name = session.user.as_ref().map_or("", |user| user.name());
    let answered = match word {
        _ if is(word, "help") => {
            help("acl", command, replies);
            Ok(())
        }
        _ if is(word, "whoami") => {
            replies.bulk(name.as_bytes());
            Ok(())
        }
        _ if is(word, "cat") => categories(command, replies),
        _ if is(word, "list") => {
            let users = service.users.all();
            let nobody_needs_password = service.users.unnamed().is_some();
            replies.array(users.len());
            users.iter().for_each(|user| replies.bulk(&rule(user, nobody_needs_password)));
            Ok(())
        }
        _ if is(word, "users") => {
            let users = service.users.all();
            replies.array(users.len());
            users.iter().for_each(|user| replies.bulk(user.name().as_bytes()));
            Ok(())
        }
        _ if is(word, "getuser") => {
            get_user(command, service, replies);
            Ok(())
        }
        _ if is(word, "dryrun") => dry_run(command, service, replies),
        _ if is(word, "genpass") => generate_password(command, replies),
        _ if is(word, "log") => log(command, service, replies),
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
            names = Verb::described_with_subcommands()
                .filter(|verb| is_in(verb, category))
                .map(|verb| verb.name)
                .collect();
        }
        _ => return Err(words::unknown_or_wrong_arguments("ACL", command)),
    }
    replies.array(names.len());
    names.iter().for_each(|name| replies.bulk(name.as_bytes()));
    Ok(())
}

/// `ACL GETUSER name`. Hashes of passwords are not shown to anybody.
fn get_user(command: Command<'_>, service: &Service, replies: &mut Replies) {
    let users = service.users.all();
    let Some(user) = users.iter().find(|user| user.name().as_bytes() == command.argument(2)) else {
        return replies.null();
    };
    let flags: &[&str] = if service.users.unnamed().is_some() { &["on", "nopass"] } else { &["on"] };
    replies.map(if user.may_use_all_databases() { 6 } else { 7 });
    replies.bulk(b"flags");
    replies.set(flags.len());
    flags.iter().for_each(|flag| replies.bulk(flag.as_bytes()));
    replies.bulk(b"passwords");
    replies.array(0);
    for (field, text) in
        [("commands", commands(user)), ("keys", names(user, b'~')), ("channels", names(user, b'&'))]
    {
        replies.bulk(field.as_bytes());
        replies.bulk(text.trim_ascii_start());
    }
    replies.bulk(b"selectors");
    replies.array(0);
    if !user.may_use_all_databases() {
        replies.bulk(b"databases");
        replies.bulk(databases(user).trim_ascii_start());
    }
}

/// `ACL DRYRUN name command [argument ...]`: whether the user may run the command.
fn dry_run(command: Command<'_>, service: &Service, replies: &mut Replies) -> Result<(), String> {
    let users = service.users.all();
    let user = users.iter().find(|user| user.name().as_bytes() == command.argument(2));
    let user = user.ok_or_else(|| format!("ERR User '{}' not found", shown(command.argument(2), 128)))?;
    let asked = command.from(3);
    let not_found = || format!("ERR Command '{}' not found", shown(asked.verb(), 128));
    let verb = find(asked).ok_or_else(not_found)?;
    if !verb.accepts(asked.len()) {
        return Err(words::wrong_arguments(verb.name));
    }
    if let Some(word) = asked.arguments(1).next().filter(|_| verb.has_subcommands()) {
        let subcommand = verb.subcommand(word).ok_or_else(not_found)?;
        if !subcommand.accepts(asked.len()) {
            return Err(words::wrong_arguments(subcommand.name));
        }
    }
    match rights::check(verb, asked, Some(user), 0) {
        Ok(()) if !pubsub::may_use(verb, asked, user) => {
            replies.bulk(b"This user has no permissions to access one of the channels used as arguments");
        }
        Ok(()) => replies.simple("OK"),
        Err(denied) => replies.bulk(denied.text_of_dry_run(verb, asked).as_bytes()),
    }
    Ok(())
}

/// The most bits that a password is made of.
const BITS_MAX: i64 = 4096;

/// `ACL GENPASS [bits]`: as many bits that nobody can guess, in hex digits.
fn generate_password(command: Command<'_>, replies: &mut Replies) -> Result<(), String> {
    let bits = match command.len() {
        2 => Some(256),
        3 => parse_integer(command.argument(2)),
        _ => return Err(words::unknown_or_wrong_arguments("ACL", command)),
    };
    let bits = bits.ok_or(words::NOT_AN_INTEGER)?;
    if !(1..=BITS_MAX).contains(&bits) {
        return Err(format!(
            "ERR ACL GENPASS argument must be the number of bits for the output password, a positive number up to {BITS_MAX}"
        ));
    }
    let digits = (bits as usize).div_ceil(4);
    let mut bytes = vec![0; digits.div_ceil(2)];
    getrandom::fill(&mut bytes)
        .map_err(|error| format!("ERR the system gives no random numbers: {error}"))?;
    let text: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    replies.bulk(&text.as_bytes()[..digits]);
    Ok(())
}

/// Entries that ACL LOG returns if it is not told how many.
const LOG_DEFAULT: usize = 10;

/// `ACL LOG [count | RESET]`.
fn log(command: Command<'_>, service: &Service, replies: &mut Replies) -> Result<(), String> {
    match command.len() {
        2 => entries(LOG_DEFAULT, service, replies),
        3 if is(command.argument(2), "reset") => {
            service.acl_log.entries.clear();
            replies.simple("OK");
        }
        3 => {
            let count = parse_integer(command.argument(2)).ok_or(words::NOT_AN_INTEGER)?;
            entries(usize::try_from(count).unwrap_or(0), service, replies);
        }
        _ => return Err(words::unknown_or_wrong_arguments("ACL", command)),
    }
    Ok(())
}

/// The newest entries of the log, as Redis since 7.2 tells them.
fn entries(count: usize, service: &Service, replies: &mut Replies) {
    let (found, now_ms) = (service.acl_log.entries.newest(count), wall_clock_ms());
    replies.array(found.len());
    for entry in found {
        let refusal = &entry.refusal;
        replies.map(10);
        replies.bulk(b"count");
        replies.integer(entry.count as i64);
        for (name, text) in [
            ("reason", refusal.reason.name().as_bytes()),
            ("context", refusal.context.as_bytes()),
            ("object", &refusal.object),
            ("username", &refusal.user),
        ] {
            replies.bulk(name.as_bytes());
            replies.bulk(text);
        }
        replies.bulk(b"age-seconds");
        let age_ms = now_ms.saturating_sub(entry.updated_ms);
        replies.double(&(age_ms as f64 / 1000.0).to_string());
        replies.bulk(b"client-info");
        replies.bulk(&entry.client);
        for (name, number) in [
            ("entry-id", entry.id),
            ("timestamp-created", entry.created_ms),
            ("timestamp-last-updated", entry.updated_ms),
        ] {
            replies.bulk(name.as_bytes());
            replies.integer(number as i64);
        }
    }
}

/// What the right to monitor allows, in those words.
const MONITOR: &[u8] = b" +info +dbsize +lastsave +config|get +config|help +client|list +slowlog|get +slowlog|len +slowlog|help \
    +latency -latency|reset";

/// The names of keys (`~`) or channels (`&`) that a user may use, with a space before each.
fn names(user: &User, of: u8) -> Vec<u8> {
    if user.prefixes().is_empty() {
        return vec![b' ', of, b'*'];
    }
    let mut names = Vec::new();
    for prefix in user.prefixes() {
        names.extend_from_slice(&[b' ', of]);
        for &byte in prefix {
            if matches!(byte, b'*' | b'?' | b'[' | b'\\') {
                names.push(b'\\');
            }
            names.push(byte);
        }
        names.push(b'*');
    }
    names
}

/// The databases that a user may use, where those are not all: a word of Esker's, since Redis has none.
fn databases(user: &User) -> Vec<u8> {
    if user.may_use_all_databases() {
        return Vec::new();
    }
    let numbers = (0..Store::DATABASES).filter(|database| user.may_use(*database));
    let numbers: Vec<String> = numbers.map(|number| number.to_string()).collect();
    format!(" databases={}", numbers.join(",")).into_bytes()
}

/// What a user may run, with a space before each.
fn commands(user: &User) -> Vec<u8> {
    if user.is_admin() {
        return b" +@all".to_vec();
    }
    let mut rule = b" -@all +@connection +@transaction".to_vec();
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

/// A user in the words of Redis' rules. Hashes of passwords are not shown to anybody.
fn rule(user: &User, no_password: bool) -> Vec<u8> {
    let no_password: &[u8] = if no_password { b" nopass" } else { b"" };
    let reset: &[u8] = if user.is_admin() { b"" } else { b" resetchannels" };
    let name = format!("user {} on", user.name()).into_bytes();
    let (keys, channels, commands) = (names(user, b'~'), names(user, b'&'), commands(user));
    [&name, no_password, &keys, reset, &channels, &databases(user), &commands].concat()
}
