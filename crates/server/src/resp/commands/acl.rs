//! ACL: the client's own user, all users, and the log of refusals. Changes of users are in `users`.

use esker_engine::Store;

use super::command::lengths;
use super::{help, pubsub, rights, users};
use crate::auth::Needs;
use crate::auth::User;
use crate::resp::session::Session;
use crate::resp::verb::facts::{Bound, CATEGORIES, Group, InMulti, flags};
use crate::resp::verb::{Run, Verb};
use crate::resp::wire::commands::Command;
use crate::resp::wire::error_text::{self, is, shown};
use crate::resp::wire::number::parse_integer;
use crate::resp::wire::reply::Replies;
use crate::service::{Service, wall_clock_ms};

const ACL: Verb = Verb { group: Group::Server, has_secrets: true, bound, ..Verb::DEFAULT };

/// The commands of this family.
#[rustfmt::skip]
pub(super) const COMMANDS: &[Verb] = &[
    Verb { name: "acl", arity: -2, help: HELP, since: "6.0.0",
        summary: "Tells who one is, and what there is to be allowed.", ..ACL },
    Verb { name: "acl|cat", arity: -2, run: Run::Answer(|command, session, _, replies| or_error(categories(command, session, replies), replies)), flags: flags::OWN, since: "6.0.0",
        summary: "Lists categories of commands, or the commands of one.", ..ACL },
    Verb { name: "acl|dryrun", arity: -4, run: Run::Answer(|command, session, service, replies| or_error(dry_run(command, session, service, replies), replies)), needs: Needs::Admin, flags: flags::ADMIN,
        since: "7.0.0", summary: "Tells whether a user may run a command.", ..ACL },
    Verb { name: "acl|genpass", arity: -2, run: Run::Answer(|command, _, _, replies| or_error(generate_password(command, replies), replies)), flags: flags::OWN, since: "6.0.0",
        summary: "Makes a password that nobody can guess.", ..ACL },
    Verb { name: "acl|getuser", arity: 3, run: Run::Answer(get_user), needs: Needs::Admin, flags: flags::ADMIN,
        bound: bound_of_users, since: "6.0.0", summary: "Tells what a user may do.", ..ACL },
    Verb { name: "acl|help", arity: 2, run: help::RUN, flags: flags::TELL, bound: help::BOUND, since: "6.0.0",
        summary: "Lists the subcommands.", ..ACL },
    Verb { name: "acl|list", arity: 2, run: Run::Answer(list), needs: Needs::Admin, flags: flags::ADMIN,
        bound: bound_of_users, since: "6.0.0", summary: "Tells what all users may do.", ..ACL },
    Verb { name: "acl|log", arity: -2, run: Run::Answer(|command, _, service, replies| or_error(log(command, service, replies), replies)), needs: Needs::Admin, flags: flags::ADMIN,
        bound: |_, _, service| Bound::twice(service.acl_log.entries.held_bytes()), since: "6.0.0",
        summary: "Tells what was refused to whom, or forgets it.", ..ACL },
    Verb { name: "acl|users", arity: 2, run: Run::Answer(names), needs: Needs::Admin, flags: flags::ADMIN,
        bound: bound_of_users, since: "6.0.0", summary: "Lists the users.", ..ACL },
    Verb { name: "acl|whoami", arity: 2, run: Run::Answer(own_name), flags: flags::OWN, since: "6.0.0",
        summary: "Returns the name of the user.", ..ACL },
    Verb { name: "acl|deluser", arity: -3,
        run: Run::Wait(|command, session, service, replies| Box::pin(users::remove(command, session, service, replies))),
        needs: Needs::Admin, flags: flags::ADMIN, is_counted: true, in_multi: InMulti::Refused, since: "6.0.0",
        summary: "Removes users.", ..ACL },
    Verb { name: "acl|load", arity: 2,
        run: Run::Wait(|_, session, service, replies| Box::pin(users::load(session, service, replies))),
        needs: Needs::Admin, flags: flags::ADMIN, is_counted: true, in_multi: InMulti::Refused, since: "6.0.0",
        summary: "Reads the users from their file.", ..ACL },
    Verb { name: "acl|save", arity: 2,
        run: Run::Wait(|_, session, service, replies| Box::pin(users::save(session, service, replies))),
        needs: Needs::Admin, flags: flags::ADMIN, is_counted: true, in_multi: InMulti::Refused, since: "6.0.0",
        summary: "Writes the users to their file.", ..ACL },
    Verb { name: "acl|setuser", arity: -3,
        run: Run::Wait(|command, session, service, replies| Box::pin(users::set(command, session, service, replies))),
        needs: Needs::Admin, flags: flags::ADMIN, is_counted: true, in_multi: InMulti::Refused, since: "6.0.0",
        summary: "Makes or changes a user.", ..ACL },
];

const HELP: &str = "\
CAT [<category>]
    List all commands that belong to <category>, or all command categories
    when no category is specified.
DELUSER <username> [<username> ...]
    Delete a list of users.
DRYRUN <username> <command> [<arg> ...]
    Returns whether the user can execute the given command without executing the command.
GETUSER <username>
    Get the user's details.
GENPASS [<bits>]
    Generate a secure 256-bit user password. The optional `bits` argument can
    be used to specify a different size.
LIST
    Show users details in config file format.
LOAD
    Reload users from the ACL file.
LOG [<count> | RESET]
    Show the ACL log entries.
SAVE
    Save the current config to the ACL file.
SETUSER <username> <attribute> [<attribute> ...]
    Create or modify a user with the specified attributes.
USERS
    List all the registered usernames.
WHOAMI
    Return the current connection username.";

/// The longest answer of most subcommands is the list of all names.
fn bound(_: Command<'_>, session: &Session, _: &Service) -> Bound {
    Bound::twice(lengths(session.commands).names)
}

fn bound_of_users(_: Command<'_>, _: &Session, service: &Service) -> Bound {
    let users = service.users.all();
    Bound::twice(users.iter().map(|user| Bound::SHORT_BYTES + shown_bytes(user)).sum())
}

fn own_name(_: Command<'_>, session: &mut Session, _: &Service, replies: &mut Replies) {
    replies.bulk(session.user.as_ref().map_or("", |user| user.name()).as_bytes());
}

fn list(_: Command<'_>, _: &mut Session, service: &Service, replies: &mut Replies) {
    let users = service.users.all();
    replies.array(users.len());
    users.iter().for_each(|user| replies.bulk(&rule(user)));
}

fn names(_: Command<'_>, _: &mut Session, service: &Service, replies: &mut Replies) {
    let users = service.users.all();
    replies.array(users.len());
    users.iter().for_each(|user| replies.bulk(user.name().as_bytes()));
}

fn or_error(done: Result<(), String>, replies: &mut Replies) {
    if let Err(error) = done {
        replies.error(&error);
    }
}

/// `ACL CAT [category]`.
fn categories(command: Command<'_>, session: &Session, replies: &mut Replies) -> Result<(), String> {
    let mut names = CATEGORIES.to_vec();
    match command.len() {
        2 => {}
        3 => {
            let wanted = shown(command.argument(2), 128);
            let known = CATEGORIES.iter().find(|category| is(command.argument(2), category));
            let category = known.ok_or_else(|| format!("ERR Unknown category '{wanted}'"))?;
            let commands = session.commands.described_with_subcommands();
            names = commands.filter(|verb| verb.is_in(category)).map(|verb| verb.name).collect();
        }
        _ => return Err(error_text::unknown_or_wrong_arguments("ACL", command)),
    }
    replies.array(names.len());
    names.iter().for_each(|name| replies.bulk(name.as_bytes()));
    Ok(())
}

/// `ACL GETUSER name`. Never shows hashes of passwords.
fn get_user(command: Command<'_>, _: &mut Session, service: &Service, replies: &mut Replies) {
    let users = service.users.all();
    let Some(user) = users.iter().find(|user| user.name().as_bytes() == command.argument(2)) else {
        return replies.null();
    };
    let (flags, databases) = (flags(user), databases(user));
    replies.map(if databases.is_none() { 6 } else { 7 });
    replies.bulk(b"flags");
    replies.set(flags.len());
    flags.iter().for_each(|flag| replies.bulk(flag.as_bytes()));
    replies.bulk(b"passwords");
    replies.array(0);
    replies.bulk(b"commands");
    replies.bulk(user.shown_commands().as_bytes());
    replies.bulk(b"keys");
    replies.bulk(&user.shown_keys().collect::<Vec<_>>().join(&b' '));
    replies.bulk(b"channels");
    replies.bulk(&user.shown_channels().collect::<Vec<_>>().join(&b' '));
    replies.bulk(b"selectors");
    replies.array(0);
    if let Some(databases) = databases {
        replies.bulk(b"databases");
        replies.bulk(databases.as_bytes());
    }
}

/// `ACL DRYRUN name command [argument ...]`: reports whether the user may run the command.
fn dry_run(
    command: Command<'_>,
    session: &Session,
    service: &Service,
    replies: &mut Replies,
) -> Result<(), String> {
    let users = service.users.all();
    let user = users.iter().find(|user| user.name().as_bytes() == command.argument(2));
    let user = user.ok_or_else(|| format!("ERR User '{}' not found", shown(command.argument(2), 128)))?;
    let asked = command.from(3);
    let not_found = || format!("ERR Command '{}' not found", shown(asked.verb(), 128));
    let verb = session.commands.find(asked).ok_or_else(not_found)?;
    let parent = session.commands.counted_as(verb);
    if !parent.accepts(asked.len()) {
        return Err(error_text::wrong_arguments(parent.name));
    }
    if verb.has_subcommands() && asked.len() > 1 {
        return Err(not_found());
    }
    if !verb.accepts(asked.len()) {
        return Err(error_text::wrong_arguments(verb.name));
    }
    match rights::check(verb, asked, Some(user), 0) {
        Ok(()) => match pubsub::kept(verb, asked, user) {
            Some(channel) => replies.bulk(&rights::no_access(channel, "channel")),
            None => replies.simple("OK"),
        },
        Err(denied) => replies.bulk(&denied.text_of_dry_run(verb, asked)),
    }
    Ok(())
}

/// Limit of the random bits of a generated password.
const BITS_MAX: i64 = 4096;

/// `ACL GENPASS [bits]`: returns random bits from the operating system as hex digits.
fn generate_password(command: Command<'_>, replies: &mut Replies) -> Result<(), String> {
    let bits = match command.len() {
        2 => Some(256),
        3 => parse_integer(command.argument(2)),
        _ => return Err(error_text::unknown_or_wrong_arguments("ACL", command)),
    };
    let bits = bits.ok_or(error_text::NOT_AN_INTEGER)?;
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

/// Entries that ACL LOG returns without a count.
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
            let count = parse_integer(command.argument(2)).ok_or(error_text::NOT_AN_INTEGER)?;
            entries(usize::try_from(count).unwrap_or(0), service, replies);
        }
        _ => return Err(error_text::unknown_or_wrong_arguments("ACL", command)),
    }
    Ok(())
}

/// Answers the newest entries of the log, in the format of Redis 7.2 and later.
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

/// Returns the databases that a user may use, or `None` if it may use all. An extension of Esker's: Redis has no such
/// rule.
fn databases(user: &User) -> Option<String> {
    if user.may_use_all_databases() {
        return None;
    }
    let numbers = (0..Store::DATABASES).filter(|database| user.may_use(*database));
    let numbers: Vec<String> = numbers.map(|number| number.to_string()).collect();
    Some(format!("databases={}", numbers.join(",")))
}

/// Returns a user in the syntax of Redis' rules. Never shows hashes of passwords.
fn rule(user: &User) -> Vec<u8> {
    let mut rule = format!("user {}", user.name()).into_bytes();
    let words = flags(user).iter().map(|flag| flag.as_bytes().to_vec());
    let reset = (!user.reaches_all_channels()).then(|| b"resetchannels".to_vec());
    let databases = databases(user).map(String::into_bytes);
    let commands = user.shown_commands().into_bytes();
    for word in words
        .chain(user.shown_keys())
        .chain(reset)
        .chain(user.shown_channels())
        .chain(databases)
        .chain([commands])
    {
        rule.push(b' ');
        rule.extend_from_slice(&word);
    }
    rule
}

fn flags(user: &User) -> &'static [&'static str] {
    match (user.is_off(), user.needs_no_password()) {
        (false, false) => &["on"],
        (false, true) => &["on", "nopass"],
        (true, false) => &["off"],
        (true, true) => &["off", "nopass"],
    }
}

/// Returns the bytes that LIST and GETUSER take to describe a user.
fn shown_bytes(user: &User) -> usize {
    let reach = user.shown_keys().chain(user.shown_channels()).map(|pattern| pattern.len() + 1);
    user.name().len() + user.shown_commands().len() + reach.sum::<usize>()
}
