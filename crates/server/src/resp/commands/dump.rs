//! DUMP and RESTORE: the value format by which Redis' own tools move keys between servers.

use bytes::Bytes;
use esker_rdb::dump::{self, Refused};

use crate::auth::Needs;
use crate::resp::session::view::View;
use crate::resp::verb::facts::{Group, Keys, Sizes, access, flags, tips};
use crate::resp::verb::{Run, Verb};
use crate::resp::wire::commands::Command;
use crate::resp::wire::error_text::{self, is};
use crate::resp::wire::number::parse_integer;
use crate::resp::wire::reply::Replies;
use crate::service::LAST_MS;
use crate::service::events::KeyspaceEvents;

const ON_KEY: Verb =
    Verb { group: Group::Generic, keys: Keys::ONE, categories: &["keyspace"], ..Verb::DEFAULT };

const DUMPED: Sizes =
    Sizes { moved: |_, values| values.sum.saturating_add(dump::OVERHEAD_BYTES), ..Sizes::DEFAULT };

/// A value that would be too long is refused, not made.
const RESTORED: Sizes = Sizes {
    after: |command, longest, most| longest.max(restored_bytes(command).min(most)),
    made: |command, most| restored_bytes(command).min(most),
    ..Sizes::MADE
};

/// The commands of this family.
#[rustfmt::skip]
pub(super) const COMMANDS: &[Verb] = &[
    Verb { name: "dump", arity: 2, run: Run::Read(dump), access: &[access::READ], needs: Needs::Read,
        flags: flags::LONG_READ, tips: &[tips::VARIES], sizes: DUMPED, since: "2.6.0",
        summary: "Returns the value of a key in the form that RESTORE takes.", ..ON_KEY },
    Verb { name: "restore", arity: -4, run: Run::Update(restore), access: &[access::OVERWRITE], needs: Needs::Write,
        flags: flags::LONG_WRITE, categories: &["keyspace", "dangerous"], sizes: RESTORED, since: "2.6.0",
        summary: "Makes a key from what DUMP returned, also that of a Redis.", ..ON_KEY },
];

pub(super) fn dump(command: Command<'_>, view: &mut View, replies: &mut Replies) {
    match view.look_up(command.argument(1)) {
        Some(held) => replies.value(&Bytes::from(dump::encode(&held.value))),
        None => replies.null(),
    }
}

/// Returns the length of the value that a RESTORE makes, according to its payload.
pub(in crate::resp) fn restored_bytes(command: Command<'_>) -> usize {
    usize::try_from(dump::value_bytes(command.argument(3))).unwrap_or(usize::MAX)
}

/// The options of RESTORE. IDLETIME and FREQ are validated and otherwise ignored.
#[derive(Default)]
struct Options {
    replace: bool,
    absolute: bool,
    idle: Option<i64>,
    frequency: Option<i64>,
}

impl Options {
    fn parse(command: Command<'_>) -> Result<Options, &'static str> {
        let mut options = Options::default();
        let mut arguments = command.arguments(4);
        let number = |text| parse_integer(text).ok_or(error_text::NOT_AN_INTEGER);
        while let Some(word) = arguments.next() {
            if is(word, "replace") {
                options.replace = true;
            } else if is(word, "absttl") {
                options.absolute = true;
            } else if is(word, "idletime") && options.frequency.is_none() {
                let seconds = number(arguments.next().ok_or(error_text::SYNTAX)?)?;
                options.idle = Some(seconds);
                if seconds < 0 {
                    return Err("ERR Invalid IDLETIME value, must be >= 0");
                }
            } else if is(word, "freq") && options.idle.is_none() {
                let frequency = number(arguments.next().ok_or(error_text::SYNTAX)?)?;
                options.frequency = Some(frequency);
                if !(0..=255).contains(&frequency) {
                    return Err("ERR Invalid FREQ value, must be >= 0 and <= 255");
                }
            } else {
                return Err(error_text::SYNTAX);
            }
        }
        Ok(options)
    }
}

/// `RESTORE key ttl payload [REPLACE] [ABSTTL] [IDLETIME seconds] [FREQ frequency]`.
pub(super) fn restore(command: Command<'_>, view: &mut View, replies: &mut Replies) {
    match restored(command, view) {
        Ok((value, expires_at_ms)) => {
            let key = command.argument(1);
            // The old entry is deleted first, so that the key counts as new.
            let was_there = view.delete(key);
            if expires_at_ms.is_none_or(|at| view.now_ms < at) {
                view.put(key, value, expires_at_ms);
                view.tell(KeyspaceEvents::GENERIC, "restore", key);
            } else if was_there {
                view.tell(KeyspaceEvents::GENERIC, "del", key);
            }
            replies.simple("OK");
        }
        Err(error) => replies.error(&error),
    }
}

/// Returns the value and the expiry, or an error; the checks are in Redis' order.
fn restored(command: Command<'_>, view: &View) -> Result<(Bytes, Option<u64>), String> {
    let options = Options::parse(command)?;
    if !options.replace && view.get(command.argument(1)).is_some() {
        return Err("BUSYKEY Target key name already exists.".to_owned());
    }
    let ttl_ms = parse_integer(command.argument(2)).ok_or(error_text::NOT_AN_INTEGER)?;
    let ttl_ms = u64::try_from(ttl_ms).map_err(|_| "ERR Invalid TTL value, must be >= 0")?;
    let value =
        dump::decode(command.argument(3), view.value_bytes_max as u64).map_err(|refused| match refused {
            Refused::Checksum => "ERR DUMP payload version or checksum are wrong".to_owned(),
            Refused::Other(kind) => format!("ERR Bad data format: a {kind}, and only strings are kept here"),
            Refused::TooLong { .. } => error_text::TOO_LONG.to_owned(),
            _ => "ERR Bad data format".to_owned(),
        })?;
    let since = if options.absolute { 0 } else { view.now_ms };
    let expires_at_ms = (ttl_ms > 0).then(|| since.saturating_add(ttl_ms).min(LAST_MS));
    Ok((value.into(), expires_at_ms))
}
