//! SET with its options, including Esker's own: `DURABILITY level`.

use esker_engine::Durability;

use super::durability;
use super::expiry::{Clock, Unit};
use crate::auth::Needs;
use crate::resp::session::view::View;
use crate::resp::verb::facts::{Access, Fast, Group, Keys, Sizes, access, flags};
use crate::resp::verb::{Run, Verb};
use crate::resp::wire::commands::Command;
use crate::resp::wire::error_text::{self, is};
use crate::resp::wire::reply::Replies;
use crate::service::events::KeyspaceEvents;

const ON_STRING: Verb =
    Verb { group: Group::String, keys: Keys::ONE, categories: &["string"], ..Verb::DEFAULT };

/// Only a SET with options may answer the old value.
const SET: Sizes =
    Sizes { moved: |command, values| if command.len() == 3 { 0 } else { values.sum }, ..Sizes::DEFAULT };

/// SET with GET also reads the key. The options are not parsed: a word that is no option is refused with the command.
fn access_of(command: Command<'_>) -> (Needs, Access) {
    match command.arguments(3).any(|word| is(word, "get")) {
        true => (Needs::ReadWrite, access::READ_UPDATE),
        false => (Needs::Write, access::OVERWRITE),
    }
}

/// The commands of this family.
#[rustfmt::skip]
pub(super) const COMMANDS: &[Verb] = &[
    Verb { name: "set", arity: -3, run: Run::Update(set), fast: Fast::Set, access: &[access::VARIABLE],
        needs: Needs::Write, flags: flags::LONG_WRITE, sizes: SET, by_arguments: Some(access_of),
        access_note: Some("RW and ACCESS due to the optional `GET` argument"), since: "1.0.0",
        summary: "Sets the value of a key, with conditions and an expiry if asked for.", ..ON_STRING },
];

/// The options of a SET.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SetOptions {
    absent: bool,
    present: bool,
    get: bool,
    keep_expiry: bool,
    pub(crate) expires_at_ms: Option<u64>,
    /// The durability of this write; `None` for the connection's level.
    pub(crate) durability: Option<Durability>,
}

impl SetOptions {
    /// Returns the options of a SET that has none by which it or its reply depends on the stored entry. A SET with such an option is
    /// parsed when it runs on its entry, as is one with invalid options.
    pub(crate) fn parse_blind(command: Command<'_>, now_ms: u64) -> Option<SetOptions> {
        let depends = |word| ["nx", "xx", "get", "keepttl"].iter().any(|option| is(word, option));
        if command.arguments(3).any(depends) {
            return None;
        }
        SetOptions::parse(command, now_ms).ok()
    }

    pub(crate) fn parse(command: Command<'_>, now_ms: u64) -> Result<SetOptions, String> {
        let mut options = SetOptions::default();
        let mut expiry = None;
        let mut arguments = command.arguments(3);
        while let Some(word) = arguments.next() {
            if is(word, "nx") && !options.present {
                options.absent = true;
            } else if is(word, "xx") && !options.absent {
                options.present = true;
            } else if is(word, "get") {
                options.get = true;
            } else if is(word, "keepttl") && expiry.is_none() {
                options.keep_expiry = true;
            } else if is(word, "durability") && options.durability.is_none() {
                let level = arguments.next().ok_or(error_text::SYNTAX)?;
                options.durability = Some(durability::parse(level)?);
            } else if let (Some(unit), false) = (Unit::named_again(word, expiry), options.keep_expiry) {
                expiry = Some((unit, arguments.next().ok_or(error_text::SYNTAX)?));
            } else {
                return Err(error_text::SYNTAX.to_owned());
            }
        }
        if let Some(((unit, absolute), amount)) = expiry {
            let clock = if absolute { Clock::Epoch } else { Clock::FromNow(now_ms) };
            options.expires_at_ms = Some(unit.expiry(amount, clock, "set")?);
        }
        Ok(options)
    }
}

pub(super) fn set(command: Command<'_>, view: &mut View, replies: &mut Replies) {
    let options = match SetOptions::parse(command, view.now_ms) {
        Ok(options) => options,
        Err(error) => return replies.error(&error),
    };
    let key = command.argument(1);
    let old = if options.get { view.look_up(key) } else { view.get(key) };
    let holds = !(options.absent && old.is_some() || options.present && old.is_none());
    let kept = old.and_then(|old| old.expires_at_ms).filter(|_| options.keep_expiry);
    match (options.get, holds) {
        (true, _) => replies.value_or_null(old.map(|old| &old.value)),
        (false, true) => replies.simple("OK"),
        (false, false) => replies.null(),
    }
    if holds {
        view.put(key, command.shared(2), kept.or(options.expires_at_ms));
        view.tell(KeyspaceEvents::STRING, "set", key);
        if options.expires_at_ms.is_some() {
            view.tell(KeyspaceEvents::GENERIC, "expire", key);
        }
        if view.get(key).is_none() {
            // The expiry had already passed.
            view.tell(KeyspaceEvents::EXPIRED, "expired", key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Limits;
    use crate::resp::wire::commands::Commands;
    use crate::resp::wire::frame::Parser;

    #[test]
    fn set_is_blind_without_options_on_its_entry() {
        for (line, expected) in [
            ("SET k v", Some(None)),
            ("SET k nx", Some(None)),
            ("SET k v PX 5", Some(Some(15))),
            ("SET k v durability none EX 1", Some(Some(1010))),
            ("SET k v PX 5 NX", None),
            ("SET k v xx", None),
            ("SET k v Get PX 5", None),
            ("SET k v KEEPTTL", None),
            ("SET k v PX", None),
            ("SET k v PX 5 ever", None),
        ] {
            let mut input = bytes::BytesMut::from(format!("{line}\r\n").as_bytes());
            let (mut parser, mut commands) = (Parser::new(&Limits::default()), Commands::default());
            parser.parse(&mut input, &mut commands, usize::MAX).1.unwrap();
            let data = input.freeze();
            let options = SetOptions::parse_blind(commands.get(0, &data), 10);
            assert_eq!(options.map(|options| options.expires_at_ms), expected, "{line}");
        }
    }
}
