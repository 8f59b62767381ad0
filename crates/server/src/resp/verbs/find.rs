//! Look-up of a verb by its name.

use super::columns::Verb;
use super::table::VERBS;
use crate::resp::wire::commands::Command;
use crate::resp::wire::error_text::is;
use crate::service::calls::VERBS_COUNT as COUNT;

/// Returns the verb of a command.
pub(in crate::resp) fn find(command: Command<'_>) -> Option<&'static Verb> {
    let verb = named(command.verb())?;
    if !verb.name.contains('|') {
        return Some(with_subcommand(verb, command).unwrap_or(verb));
    }
    None
}

/// Returns the row of a subcommand that has keys or waits: only those are rows of this table.
fn with_subcommand(verb: &Verb, command: Command<'_>) -> Option<&'static Verb> {
    let names: &[&str] = match verb.name {
        "acl" => &["acl|deluser", "acl|load", "acl|save", "acl|setuser"],
        "memory" => &["memory|usage"],
        "object" => &["object|encoding", "object|freq", "object|idletime", "object|refcount"],
        _ => return None,
    };
    let word = command.arguments(1).next()?;
    let name = names.iter().find(|name| is(word, &name[verb.name.len() + 1..]))?;
    named(name.as_bytes())
}

/// Returns the verb with a name in any case.
pub(in crate::resp) fn named(name: &[u8]) -> Option<&'static Verb> {
    let mut place = place_of(name);
    loop {
        let verb = VERBS.get(PLACES[place] as usize)?;
        if verb.name.as_bytes().eq_ignore_ascii_case(name) {
            return Some(verb);
        }
        place = (place + 1) % PLACES.len();
    }
}

/// The names of [`VERBS`], from which the hash table below is built.
const NAMES: [&str; COUNT] = {
    let mut names = [""; COUNT];
    let mut index = 0;
    while index < COUNT {
        names[index] = VERBS[index].name;
        index += 1;
    }
    names
};

/// Hash table of the indices into [`VERBS`], by name; [`EMPTY`] ends a probe.
static PLACES: [u8; 512] = places();

const EMPTY: u8 = u8::MAX;

const fn places() -> [u8; 512] {
    let mut places = [EMPTY; 512];
    let mut index = 0;
    while index < COUNT {
        let mut place = place_of(NAMES[index].as_bytes());
        while places[place] != EMPTY {
            place = (place + 1) % places.len();
        }
        places[place] = index as u8;
        index += 1;
    }
    places
}

/// Hashes the length and four letters of a name, ignoring case.
const fn place_of(name: &[u8]) -> usize {
    let Some(last) = name.len().checked_sub(1) else { return 0 };
    let letters = [name[0], name[last / 3], name[last / 2], name[last]];
    let mut hash = name.len() as u32;
    let mut at = 0;
    while at < letters.len() {
        hash = (hash ^ (letters[at] | 0x20) as u32).wrapping_mul(0x0100_0193).rotate_left(5);
        at += 1;
    }
    (hash.wrapping_mul(0x9e37_79b9) >> 23) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_verb_is_found_in_any_case_and_after_few_steps() {
        for verb in &VERBS {
            for name in [verb.name.to_owned(), verb.name.to_uppercase()] {
                assert_eq!(named(name.as_bytes()).map(|found| found.name), Some(verb.name));
            }
        }
        for other in ["", "g", "gets", "ge", "lpush", "zadd", "host\x1a", &"x".repeat(1000)] {
            assert!(named(other.as_bytes()).is_none(), "{other}");
        }
        let run = PLACES.split(|&place| place == EMPTY).map(<[u8]>::len).max();
        assert!(run < Some(6), "the hash table has a run of {run:?} verbs");
    }
}
