//! Selection of the keyspace events to publish.

use std::fmt;
use std::str::FromStr;

/// Set of published events and channel kinds, in the syntax of Redis' `notify-keyspace-events`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KeyspaceEvents(u32);

/// Letters and the events that they select, in the order in which Redis prints them.
const LETTERS: [(char, KeyspaceEvents); 14] = [
    ('g', KeyspaceEvents::GENERIC),
    ('$', KeyspaceEvents::STRING),
    ('l', KeyspaceEvents(1 << 4)),
    ('s', KeyspaceEvents(1 << 5)),
    ('h', KeyspaceEvents(1 << 6)),
    ('z', KeyspaceEvents(1 << 7)),
    ('x', KeyspaceEvents::EXPIRED),
    ('e', KeyspaceEvents::EVICTED),
    ('t', KeyspaceEvents(1 << 10)),
    ('d', KeyspaceEvents(1 << 13)),
    ('n', KeyspaceEvents::NEW),
    ('K', KeyspaceEvents::BY_KEY),
    ('E', KeyspaceEvents::BY_EVENT),
    ('m', KeyspaceEvents::MISS),
];

/// Number of leading entries of [`LETTERS`] that `A` stands for.
const OF_ALL: usize = 10;

impl KeyspaceEvents {
    /// Publish on channels named after the key.
    pub(crate) const BY_KEY: KeyspaceEvents = KeyspaceEvents(1);
    /// Publish on channels named after the event.
    pub(crate) const BY_EVENT: KeyspaceEvents = KeyspaceEvents(1 << 1);
    /// Events of commands that work on keys of every type.
    pub(crate) const GENERIC: KeyspaceEvents = KeyspaceEvents(1 << 2);
    /// Events of string commands.
    pub(crate) const STRING: KeyspaceEvents = KeyspaceEvents(1 << 3);
    /// A key expired.
    pub(crate) const EXPIRED: KeyspaceEvents = KeyspaceEvents(1 << 8);
    /// A key was evicted.
    pub(crate) const EVICTED: KeyspaceEvents = KeyspaceEvents(1 << 9);
    /// A lookup found no key.
    pub(crate) const MISS: KeyspaceEvents = KeyspaceEvents(1 << 11);
    /// A key was created.
    pub(crate) const NEW: KeyspaceEvents = KeyspaceEvents(1 << 14);

    pub(crate) fn bits(self) -> u32 {
        self.0
    }

    pub(crate) fn of_bits(bits: u32) -> KeyspaceEvents {
        KeyspaceEvents(bits)
    }

    pub(crate) fn has(self, any: KeyspaceEvents) -> bool {
        self.0 & any.0 != 0
    }

    pub(crate) fn and(self, other: KeyspaceEvents) -> KeyspaceEvents {
        KeyspaceEvents(self.0 | other.0)
    }

    fn all() -> KeyspaceEvents {
        LETTERS[..OF_ALL].iter().fold(KeyspaceEvents(0), |all, (_, letter)| all.and(*letter))
    }
}

impl FromStr for KeyspaceEvents {
    type Err = String;

    fn from_str(text: &str) -> Result<KeyspaceEvents, String> {
        let mut events = KeyspaceEvents(0);
        for letter in text.chars() {
            let known = LETTERS.iter().find(|(known, _)| *known == letter).map(|(_, meaning)| *meaning);
            let meaning = known.or((letter == 'A').then(KeyspaceEvents::all));
            let unknown = || "Invalid event class character. Use 'Ag$lshzxeKEtmdn'.".to_owned();
            events = events.and(meaning.ok_or_else(unknown)?);
        }
        Ok(events)
    }
}

impl fmt::Display for KeyspaceEvents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all = KeyspaceEvents::all();
        let has_all = self.0 & all.0 == all.0;
        // With `A` in the text, Redis omits the letter for new keys.
        let shown = LETTERS.iter().filter(|(letter, meaning)| {
            self.has(*meaning) && !(has_all && (all.has(*meaning) || *letter == 'n'))
        });
        let letters = shown.map(|(letter, _)| *letter);
        letters
            .fold(String::from(if has_all { "A" } else { "" }), |text, letter| format!("{text}{letter}"))
            .fmt(f)
    }
}
