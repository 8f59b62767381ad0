//! CLIENT TRACKING and related commands: clients cache keys that they read, and receive invalidations when those
//! change.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::resp::session::Session;
use crate::resp::session::tracking::{KeepsKeys, Options};
use crate::resp::wire::commands::Command;
use crate::resp::wire::error_text::{self, is, shown};
use crate::resp::wire::number::parse_integer;
use crate::resp::wire::reply::{Protocol, Replies};
use crate::service::Service;
use crate::service::channels::Stale;
use crate::service::clients::Client;

/// The channel of invalidations for RESP2 clients, whose connections cannot distinguish messages from answers.
const CHANNEL: &[u8] = b"__redis__:invalidate";

/// Limit of the bytes of a prefix. Longer ones rarely distinguish more keys, and cost every writer time.
const PREFIX_BYTES_MAX: usize = 1024;

/// The arguments of CLIENT TRACKING after ON or OFF.
#[derive(Default)]
struct Asked<'a> {
    options: Options,
    redirect: Option<Arc<Client>>,
    prefixes: Vec<&'a [u8]>,
}

/// `CLIENT TRACKING ON | OFF [REDIRECT id] [PREFIX prefix …] [BCAST] [OPTIN] [OPTOUT] [NOLOOP]`.
pub(super) fn tracking(
    command: Command<'_>,
    session: &mut Session,
    service: &Service,
    replies: &mut Replies,
) {
    if session.replica.is_some() {
        return replies
            .error("ERR changes of keys are reported by leaders alone: track on the address of a leader");
    }
    let done = Asked::parse(command, session, service).and_then(|asked| match command.argument(2) {
        word if is(word, "on") => begin(asked, session, service),
        word if is(word, "off") => {
            session.tracking = None;
            Ok(())
        }
        _ => Err(error_text::SYNTAX.to_owned()),
    });
    match done {
        Ok(()) => replies.simple("OK"),
        Err(error) => replies.error(&error),
    }
}

impl<'a> Asked<'a> {
    fn parse(command: Command<'a>, session: &Session, service: &Service) -> Result<Asked<'a>, String> {
        let mut asked = Asked::default();
        let mut arguments = command.arguments(3);
        while let Some(word) = arguments.next() {
            let options = &mut asked.options;
            match word {
                _ if is(word, "bcast") => options.broadcasts = true,
                _ if is(word, "optin") => options.opt_in = true,
                _ if is(word, "optout") => options.opt_out = true,
                _ if is(word, "noloop") => options.no_loop = true,
                _ if is(word, "redirect") && arguments.len() > 0 => {
                    if asked.redirect.is_some() {
                        return Err("ERR A client can only redirect to a single other client".to_owned());
                    }
                    let id = arguments.next().unwrap_or_default();
                    asked.redirect =
                        target(parse_integer(id).ok_or(error_text::NOT_AN_INTEGER)?, session, service)?;
                }
                _ if is(word, "prefix") && arguments.len() > 0 => asked.prefixes.extend(arguments.next()),
                _ => return Err(error_text::SYNTAX.to_owned()),
            }
        }
        Ok(asked)
    }
}

/// Returns the client that receives the invalidations in place of this one: it must have the same user, unless this
/// client is an admin. Id 0 means none.
fn target(id: i64, session: &Session, service: &Service) -> Result<Option<Arc<Client>>, String> {
    if id == 0 {
        return Ok(None);
    }
    let user_of = |client: &Client| client.introduction(|known| known.user.clone());
    let is_admin = session.user.as_ref().is_some_and(|user| user.is_admin());
    let found = u64::try_from(id).ok().and_then(|id| service.clients.get(id));
    let found = found.filter(|client| is_admin || user_of(client) == user_of(&session.client));
    found.map(Some).ok_or_else(|| "ERR The client ID you want redirect to does not exist".to_owned())
}

fn begin(asked: Asked<'_>, session: &mut Session, service: &Service) -> Result<(), String> {
    let Asked { options, redirect, prefixes } = asked;
    check(options, &prefixes, session.tracking.as_ref())?;
    let known = session.tracking.as_ref().map_or(0, |tracking| tracking.prefixes().len());
    if known + prefixes.len() > service.config.limits.arguments_max {
        return Err("ERR too many prefixes".to_owned());
    }
    if let Some(target) = &redirect {
        service.channels.listen(target.id, &target.mailbox);
        target.listen_for_another();
    }
    match &mut session.tracking {
        Some(tracking) => tracking.change(options, redirect),
        None => {
            let begun = KeepsKeys::new(&service.tracking, &session.client, options, redirect);
            session.tracking = Some(begun);
            service.observe_as_needed();
        }
    }
    if let Some(tracking) = session.tracking.as_mut().filter(|_| options.broadcasts) {
        let all: &[&[u8]] = if prefixes.is_empty() { &[b""] } else { &prefixes };
        all.iter().for_each(|prefix| tracking.add_prefix(prefix));
    }
    Ok(())
}

/// Checks that the options agree with each other and with earlier ones, in Redis' order.
fn check(options: Options, prefixes: &[&[u8]], before: Option<&KeepsKeys>) -> Result<(), String> {
    let Options { broadcasts, opt_in, opt_out, .. } = options;
    let fail = |text: &str| Err(format!("ERR {text}"));
    if !broadcasts && !prefixes.is_empty() {
        return fail("PREFIX option requires BCAST mode to be enabled");
    }
    if before.is_some_and(|before| before.options.broadcasts != broadcasts) {
        return fail(
            "You can't switch BCAST mode on/off before disabling tracking for this client, and then re-enabling it \
             with a different mode.",
        );
    }
    if broadcasts && (opt_in || opt_out) {
        return fail("OPTIN and OPTOUT are not compatible with BCAST");
    }
    if opt_in && opt_out {
        return fail("You can't specify both OPTIN mode and OPTOUT mode");
    }
    let switches = |before: &KeepsKeys| opt_in && before.options.opt_out || opt_out && before.options.opt_in;
    if before.is_some_and(switches) {
        return fail(
            "You can't switch OPTIN/OPTOUT mode before disabling tracking for this client, and then re-enabling it \
             with a different mode.",
        );
    }
    if prefixes.iter().any(|prefix| prefix.len() > PREFIX_BYTES_MAX) {
        return Err(format!("ERR prefix of more than {PREFIX_BYTES_MAX} bytes"));
    }
    let overlaps = |prefix: &[u8], what: &str, other: &[u8]| {
        let (prefix, other) = (shown(prefix, 128), shown(other, 128));
        fail(&format!(
            "Prefix '{prefix}' overlaps with {what} prefix '{other}'. Prefixes for a single client must not overlap."
        ))
    };
    for (at, prefix) in prefixes.iter().enumerate() {
        if let Some(known) = before.and_then(|before| before.overlap(prefix)) {
            return overlaps(prefix, "an existing", known);
        }
        let other = |other: &&&[u8]| other.starts_with(prefix) || prefix.starts_with(other);
        if let Some(other) = prefixes[at + 1..].iter().find(other) {
            return overlaps(prefix, "another provided", other);
        }
    }
    Ok(())
}

/// `CLIENT CACHING YES | NO`: sets whether keys of the next command are tracked.
pub(super) fn caching(command: Command<'_>, session: &mut Session, _: &Service, replies: &mut Replies) {
    match choose(command, session) {
        Ok(()) => replies.simple("OK"),
        Err(error) => replies.error(error),
    }
}

fn choose(command: Command<'_>, session: &mut Session) -> Result<(), &'static str> {
    let Some(tracking) = &mut session.tracking else {
        return Err(
            "ERR CLIENT CACHING can be called only when the client is in tracking mode with OPTIN or OPTOUT mode enabled",
        );
    };
    match command.argument(2) {
        word if is(word, "yes") && tracking.options.opt_in => tracking.caching = true,
        word if is(word, "no") && tracking.options.opt_out => tracking.caching = true,
        word if is(word, "yes") => {
            return Err("ERR CLIENT CACHING YES is only valid when tracking is enabled in OPTIN mode.");
        }
        word if is(word, "no") => {
            return Err("ERR CLIENT CACHING NO is only valid when tracking is enabled in OPTOUT mode.");
        }
        _ => return Err(error_text::SYNTAX),
    }
    Ok(())
}

/// Applies CLIENT CACHING at its turn in a transaction, so that it affects the commands after it. It is answered
/// later, after all reads.
pub(super) fn follow(command: Command<'_>, session: &mut Session) {
    // An error is reported when the command is answered.
    let _ = choose(command, session);
}

pub(super) fn get_redirection(_: Command<'_>, session: &mut Session, _: &Service, replies: &mut Replies) {
    replies.integer(session.tracking.as_ref().map_or(-1, |tracking| tracking.redirect() as i64));
}

pub(super) fn info(_: Command<'_>, session: &mut Session, _: &Service, replies: &mut Replies) {
    let tracking = session.tracking.as_ref();
    let options = tracking.map_or(Options::default(), |tracking| tracking.options);
    let is_caching = session.is_caching_given();
    let flags = [
        ("on", tracking.is_some()),
        ("off", tracking.is_none()),
        ("bcast", options.broadcasts),
        ("optin", options.opt_in),
        ("caching-yes", options.opt_in && is_caching),
        ("optout", options.opt_out),
        ("caching-no", options.opt_out && is_caching),
        ("noloop", options.no_loop),
        ("broken_redirect", tracking.is_some_and(KeepsKeys::is_broken)),
    ];
    let flags: Vec<&str> = flags.iter().filter_map(|(flag, has)| has.then_some(*flag)).collect();
    replies.map(3);
    replies.bulk(b"flags");
    replies.set(flags.len());
    flags.iter().for_each(|flag| replies.bulk(flag.as_bytes()));
    replies.bulk(b"redirect");
    replies.integer(tracking.map_or(-1, |tracking| tracking.redirect() as i64));
    replies.bulk(b"prefixes");
    let none = BTreeSet::new();
    let prefixes = tracking.map_or(&none, KeepsKeys::prefixes);
    replies.array(prefixes.len());
    prefixes.iter().for_each(|prefix| replies.bulk(prefix));
}

/// Returns the upper bound of the bytes of the answer to CLIENT TRACKINGINFO.
pub(super) fn answer_bytes(session: &Session) -> usize {
    const FLAGS_BYTES: usize = 512;
    FLAGS_BYTES + session.tracking.as_ref().map_or(0, KeepsKeys::held_bytes)
}

/// Sends an invalidation of cached keys; `None` for all keys. A RESP2 client receives it on a channel, if it has any
/// subscription.
pub(super) fn tell_invalid(keys: Option<&[Stale]>, session: &Session, replies: &mut Replies) {
    let Some(user) = &session.user else { return };
    // Keys of unreadable prefixes and of databases that the user may not use are not shown.
    let keys = keys.map(|keys| {
        let may_know = |stale: &&Stale| {
            let may_use = stale.database.is_none_or(|database| user.may_use(database));
            user.may_read(&stale.key) && may_use
        };
        keys.iter().filter(may_know).collect::<Vec<_>>()
    });
    if keys.as_ref().is_some_and(Vec::is_empty) {
        return;
    }
    match replies.protocol {
        Protocol::Resp3 => {
            replies.push(2);
            replies.bulk(b"invalidate");
        }
        Protocol::Resp2 if session.client.is_subscribed() => {
            replies.push(3);
            replies.bulk(b"message");
            replies.bulk(CHANNEL);
        }
        Protocol::Resp2 => return,
    }
    let Some(keys) = keys else { return replies.null() };
    replies.array(keys.len());
    keys.iter().for_each(|stale| replies.bulk(&stale.key));
}

/// Reports that the target of the redirection has disconnected.
pub(super) fn tell_broken(id: u64, replies: &mut Replies) {
    if replies.protocol == Protocol::Resp3 {
        replies.push(2);
        replies.bulk(b"tracking-redir-broken");
        replies.integer(id as i64);
    }
}
