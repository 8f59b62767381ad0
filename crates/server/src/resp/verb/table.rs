//! The table of all descriptors, which finds the descriptor of a command by its name.

use super::Verb;
use super::facts::Group;
use crate::resp::wire::commands::Command;
use crate::resp::wire::error_text::is;
use crate::service::calls::ROWS_MAX;

/// All commands: first the main commands, then all subcommands, sorted by their commands.
pub(in crate::resp) struct Table {
    rows: &'static [Verb],
    /// The number of commands that are no subcommands.
    commands: usize,
    /// Hash table of the places of the commands, by name; [`EMPTY`] ends a probe.
    places: [u8; 512],
}

const EMPTY: u8 = u8::MAX;

impl Table {
    /// Returns the table of the rows that [`arranged`] made.
    pub(in crate::resp) const fn new(rows: &'static [Verb]) -> Table {
        let (mut places, mut commands) = ([EMPTY; 512], 0);
        while commands < rows.len() && !is_subcommand(&rows[commands]) {
            let mut place = place_of(rows[commands].name.as_bytes());
            while places[place] != EMPTY {
                place = (place + 1) % places.len();
            }
            places[place] = commands as u8;
            commands += 1;
        }
        Table { rows, commands, places }
    }

    /// Returns all commands and subcommands. The place of each is its `row`.
    pub(in crate::resp) fn rows(&self) -> &'static [Verb] {
        self.rows
    }

    /// Returns the descriptor of a command: that of its subcommand, if it has one.
    pub(in crate::resp) fn find(&self, command: Command<'_>) -> Option<&'static Verb> {
        let verb = self.named(command.verb())?;
        if !verb.has_subcommands() {
            return Some(verb);
        }
        let word = command.arguments(1).next();
        Some(word.and_then(|word| self.subcommand(verb, word)).unwrap_or(verb))
    }

    /// Returns the command with a name in any case; no subcommand.
    pub(in crate::resp) fn named(&self, name: &[u8]) -> Option<&'static Verb> {
        let mut place = place_of(name);
        loop {
            let verb = self.rows.get(self.places[place] as usize)?;
            if verb.name.as_bytes().eq_ignore_ascii_case(name) {
                return Some(verb);
            }
            place = (place + 1) % self.places.len();
        }
    }

    /// Returns the command or subcommand with a full name such as `config|get`, in any case.
    pub(in crate::resp) fn named_fully(&self, name: &[u8]) -> Option<&'static Verb> {
        self.rows.iter().find(|verb| is(name, verb.name))
    }

    /// Returns the subcommands of a command.
    pub(in crate::resp) fn subcommands(&self, verb: &Verb) -> &'static [Verb] {
        &self.rows[verb.first_subcommand..][..verb.subcommands]
    }

    /// Returns the subcommand with a name in any case.
    fn subcommand(&self, verb: &Verb, word: &[u8]) -> Option<&'static Verb> {
        self.subcommands(verb).iter().find(|row| is(word, &row.name[verb.name.len() + 1..]))
    }

    /// Returns the command by whose name calls of a command are counted.
    pub(in crate::resp) fn counted_as(&self, verb: &Verb) -> &'static Verb {
        &self.rows[verb.counted_row]
    }

    /// Returns the number of names by which calls are counted.
    pub(in crate::resp) fn counted(&self) -> usize {
        self.rows.iter().filter(|verb| verb.counted_row == verb.row).count()
    }

    /// Returns the length of the longest run of names in the hash table.
    #[cfg(test)]
    pub(in crate::resp) fn longest_probe(&self) -> usize {
        self.places.split(|&place| place == EMPTY).map(<[u8]>::len).max().unwrap_or(0)
    }

    /// Returns the commands that COMMAND describes.
    pub(in crate::resp) fn described(&self) -> impl Iterator<Item = &'static Verb> + use<> {
        self.rows[..self.commands].iter().filter(|verb| verb.group != Group::Http)
    }

    /// Returns the commands that COMMAND describes, each followed by its subcommands.
    pub(in crate::resp) fn described_with_subcommands(&self) -> impl Iterator<Item = &'static Verb> {
        self.described().flat_map(|verb| std::iter::once(verb).chain(self.subcommands(verb)))
    }
}

/// Arranges the descriptors of all families in the order of the table, and sets their places. A family has the
/// subcommands of a command after it.
pub(in crate::resp) const fn arranged<const COUNT: usize>(families: &[&[Verb]]) -> [Verb; COUNT] {
    assert!(COUNT <= ROWS_MAX && COUNT < EMPTY as usize, "the table has too many rows");
    let (mut rows, mut parents) = ([Verb::DEFAULT; COUNT], [""; COUNT]);
    // Commands, then subcommands.
    let (mut filled, mut commands, mut pass) = (0, 0, 0);
    while pass < 2 {
        let (mut family, mut parent) = (0, "");
        while family < families.len() {
            let mut at = 0;
            while at < families[family].len() {
                let verb = families[family][at];
                if !is_subcommand(&verb) {
                    parent = verb.name;
                }
                if is_subcommand(&verb) == (pass == 1) {
                    // Insertion keeps subcommands sorted by the names of their commands.
                    let mut place = filled;
                    while place > commands && pass == 1 && is_before(parent, parents[place - 1]) {
                        (rows[place], parents[place]) = (rows[place - 1], parents[place - 1]);
                        place -= 1;
                    }
                    (rows[place], parents[place]) = (verb, parent);
                    filled += 1;
                }
                at += 1;
            }
            family += 1;
        }
        if pass == 0 {
            commands = filled;
        }
        pass += 1;
    }
    let mut row = 0;
    while row < COUNT {
        (rows[row].row, rows[row].counted_row) = (row, row);
        if row >= commands {
            let mut command = 0;
            while !is_same(rows[command].name, parents[row]) {
                command += 1;
            }
            if rows[command].subcommands == 0 {
                rows[command].first_subcommand = row;
            }
            rows[command].subcommands += 1;
            if !rows[row].is_counted {
                rows[row].counted_row = command;
            }
        }
        row += 1;
    }
    rows
}

const fn is_subcommand(verb: &Verb) -> bool {
    let (name, mut at) = (verb.name.as_bytes(), 0);
    while at < name.len() {
        if name[at] == b'|' {
            return true;
        }
        at += 1;
    }
    false
}

const fn is_before(one: &str, other: &str) -> bool {
    let (one, other, mut at) = (one.as_bytes(), other.as_bytes(), 0);
    while at < one.len() && at < other.len() && one[at] == other[at] {
        at += 1;
    }
    if at < one.len() && at < other.len() { one[at] < other[at] } else { one.len() < other.len() }
}

const fn is_same(one: &str, other: &str) -> bool {
    !is_before(one, other) && !is_before(other, one)
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
