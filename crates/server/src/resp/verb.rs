//! The descriptor of a command, and the table of all descriptors.
//!
//! A family in `commands` has a descriptor for each of its commands, next to the functions that run them. Everything that
//! the server knows of a command is in its descriptor: no other code knows commands by their names.

use std::time::Duration;

use esker_engine::Usage;
use futures_util::future::BoxFuture;

use self::facts::{Access, Bound, Channels, Databases, Fast, Group, InMulti, Keys, Pauses, Sizes, flags};
use super::session::Session;
use super::session::view::View;
use super::wire::commands::Command;
use super::wire::error_text::{self, is};
use super::wire::reply::Replies;
use crate::Limits;
use crate::auth::{Needs, Users};
use crate::service::Service;
use crate::service::calls::ROWS_MAX;

pub(in crate::resp) mod facts;

/// Declares the descriptor of commands from its fields, each with the value of a command that does not set it.
macro_rules! verb {
    ($($(#[$documentation:meta])* $field:ident: $kind:ty = $default:expr,)*) => {
        /// The descriptor of a command or of a subcommand.
        #[derive(Clone, Copy)]
        pub(in crate::resp) struct Verb { $($(#[$documentation])* pub(in crate::resp) $field: $kind,)* }

        impl Verb {
            pub(in crate::resp) const DEFAULT: Verb = Verb { $($field: $default,)* };
        }
    };
}

verb! {
    /// In lower case; that of a subcommand is `command|subcommand`.
    name: &'static str = "",
    summary: &'static str = "",
    /// The first version of Redis that has the command.
    since: &'static str = "1.0.0",
    group: Group = Group::Generic,
    /// Number of arguments, including the name; the minimum if negative.
    arity: i64 = 1,
    run: Run = Run::Subcommand,
    fast: Fast = Fast::No,
    keys: Keys = Keys::NONE,
    /// Access to the first key and to the following ones.
    access: &'static [Access] = &[],
    /// Redis' note on the access to the keys.
    access_note: Option<&'static str> = None,
    /// Rights to the keys and access to them, if they depend on the arguments.
    by_arguments: Option<fn(Command<'_>) -> (Needs, Access)> = None,
    needs: Needs = Needs::Login,
    flags: &'static [&'static str] = flags::NONE,
    /// ACL categories beside those that follow from the flags.
    categories: &'static [&'static str] = &[],
    /// Tips for proxies: routing of requests and merging of responses.
    tips: &'static [&'static str] = &[],
    databases: Databases = Databases::OfKeys,
    channels: Channels = Channels::None,
    in_multi: InMulti = InMulti::Queued,
    /// Runs at the command's turn in a transaction, before it is answered after the commands on keys.
    at_its_turn: Option<fn(Command<'_>, &mut Session)> = None,
    pauses: Pauses = Pauses::ByFlags,
    /// True if scripts may call the command although it works on no key.
    in_scripts: bool = false,
    /// True if the arguments may contain secrets, which must not be shown to others.
    has_secrets: bool = false,
    /// True if CLIENT CACHING still applies to the next command after this one.
    keeps_caching: bool = false,
    /// True if the command frees the transaction or the watched keys of the session, which may take long.
    frees_session: bool = false,
    /// True if the command begins or ends subscriptions: its answers confirm them, and it may name very many channels.
    subscribes: bool = false,
    /// True if a client whose messages arrive in place of answers (a RESP2 subscriber) may run the command.
    for_subscribers: bool = false,
    /// True for a subcommand whose calls are counted apart from those of its command.
    is_counted: bool = false,
    /// The error reply of a server without a cluster, for a command that needs one.
    without_cluster: Option<&'static str> = None,
    /// Answers the command while the store is being opened.
    while_opening: Option<fn(Command<'_>, &mut Session, &Opening<'_>, &mut Replies)> = None,
    sizes: Sizes = Sizes::DEFAULT,
    /// Returns the upper bounds of the memory for the answer of a command that works on no key.
    bound: fn(Command<'_>, &Session, &Service) -> Bound = |_, _, _| Bound::twice(0),
    /// Returns the microseconds that the command takes, without the bytes of its arguments and of values.
    work_us: fn(Command<'_>) -> usize = |command| command.len(),
    /// The lines of HELP.
    help: &'static str = "",
    /// Checks the options of a command that works on no key, as far as they can be checked before it runs.
    options: fn(Command<'_>) -> Result<(), String> = |_| Ok(()),
    /// The feature of Redis that Esker does not have, and the subcommands that belong to it.
    unsupported: (&'static str, &'static [&'static str]) = ("", &[]),
    /// The place in the table, and that of the command by which calls are counted. Set by the table, like the following.
    row: usize = 0,
    counted_row: usize = 0,
    /// The place of the first subcommand, and the number of subcommands.
    first_subcommand: usize = 0,
    subcommands: usize = 0,
}

/// The way in which a command runs.
#[derive(Clone, Copy)]
pub(in crate::resp) enum Run {
    /// Not at all: only its subcommands run.
    Subcommand,
    /// Without waiting, from the state of the connection alone, also while the store is being opened.
    Session(fn(Command<'_>, &mut Session, &mut Replies)),
    /// Without waiting.
    Answer(Answer),
    /// Without waiting, by an error: the command exists for it.
    Refuse(&'static str),
    /// Without waiting, after keys were sampled. In a transaction, which does not wait for a sample, the last one is
    /// used.
    Sampled(Answer),
    /// After a look whether the key exists. In a transaction it runs after the writes of the other commands.
    Usage(OnUsage),
    /// On a view of its keys, read-only.
    Read(OnKeys),
    /// On a view of its keys, which no other client can write meanwhile.
    Update(OnKeys),
    /// As a script over keys, which no other client can write meanwhile.
    Script(Script),
    /// On its own, because it waits.
    Wait(Wait),
    /// Like `Wait`, once memory for its answer and its work is held; in a transaction after the commands on keys.
    WaitBounded(Wait),
    /// On its own, because a login waits. Also while the store is being opened.
    LogIn(LogIn),
    Watch,
    Exec,
}

impl Run {
    pub(in crate::resp) fn is_on_view(self) -> bool {
        matches!(self, Run::Read(_) | Run::Update(_))
    }

    /// Returns true if a transaction answers the command after those on its view.
    pub(in crate::resp) fn is_without_view(self) -> bool {
        let session = matches!(self, Run::Session(_) | Run::Usage(_) | Run::WaitBounded(_));
        session || matches!(self, Run::Answer(_) | Run::Sampled(_) | Run::Refuse(_))
    }
}

/// Answers a command without waiting.
pub(in crate::resp) type Answer = fn(Command<'_>, &mut Session, &Service, &mut Replies);

/// Answers a command on keys from a view of them, and may write to it.
pub(in crate::resp) type OnKeys = fn(Command<'_>, &mut View, &mut Replies);

/// Answers from the usage of an existing key.
pub(in crate::resp) type OnUsage = fn(Usage, &Service, &mut Replies);

/// Answers a command, and may wait.
pub(in crate::resp) type Wait =
    for<'a> fn(Command<'a>, &'a mut Session, &'a Service, &'a mut Replies) -> BoxFuture<'a, ()>;

/// Logs in, and waits at most for the given time.
pub(in crate::resp) type LogIn = for<'a> fn(
    Command<'a>,
    &'a mut Session,
    &'a Users,
    Option<Duration>,
    &'a mut Replies,
) -> BoxFuture<'a, Result<(), LoginRefusal>>;

/// The reason why a command could not log in.
pub(in crate::resp) enum LoginRefusal {
    /// The password of this user is wrong.
    Login(Vec<u8>),
    /// Another error, with its reply.
    Error(String),
}

impl LoginRefusal {
    /// Returns the error reply.
    pub(in crate::resp) fn text(&self) -> &str {
        match self {
            LoginRefusal::Login(_) => error_text::WRONG_PASSWORD,
            LoginRefusal::Error(text) => text,
        }
    }
}

impl From<&str> for LoginRefusal {
    fn from(text: &str) -> Self {
        LoginRefusal::Error(text.to_owned())
    }
}

/// The state of a server whose store is being opened.
pub(crate) struct Opening<'a> {
    pub(crate) limits: &'a Limits,
    pub(crate) users: &'a Users,
    pub(crate) databases: u8,
    /// Describes the progress of the opening.
    pub(crate) progress: &'a (dyn Fn() -> String + Send + Sync),
}

/// The ways to call a script.
#[derive(Clone, Copy)]
pub(in crate::resp) struct Script {
    /// True if the script is named by its digest.
    pub(in crate::resp) by_digest: bool,
    pub(in crate::resp) is_read_only: bool,
}

/// Limit of the arguments of a command without keys, larger than any useful number: unlike with keys, the cost of
/// such an argument is not bounded by its length. Not for subscriptions: clients that lost their connection name all
/// their channels in one command.
const ARGUMENTS_WITHOUT_KEYS_MAX: usize = 1024;

impl Verb {
    /// Returns true for a command that does little or nothing without a subcommand.
    pub(in crate::resp) fn has_subcommands(&self) -> bool {
        self.subcommands > 0
    }

    pub(in crate::resp) fn accepts(&self, arguments: usize) -> bool {
        let has_long_lists = !self.keys.is_none() || self.subscribes;
        if !has_long_lists && arguments > ARGUMENTS_WITHOUT_KEYS_MAX {
            return false;
        }
        let arguments = arguments as i64;
        if self.arity < 0 { arguments >= -self.arity } else { arguments == self.arity }
    }

    /// Runs a command on a view of its keys, alone, in a transaction or in a script. Returns false if it works on none.
    pub(in crate::resp) fn run_on(
        &self,
        command: Command<'_>,
        view: &mut View,
        replies: &mut Replies,
    ) -> bool {
        let (Run::Read(on_keys) | Run::Update(on_keys)) = self.run else { return false };
        on_keys(command, view, replies);
        true
    }

    /// Answers a command that works on no key and does not wait, alone, in a transaction or in a script.
    pub(in crate::resp) fn answer(
        &self,
        command: Command<'_>,
        session: &mut Session,
        service: &Service,
        replies: &mut Replies,
    ) {
        if let (Some(error), None) = (self.without_cluster, &service.cluster) {
            return replies.error(error);
        }
        match self.run {
            Run::Session(answer) => answer(command, session, replies),
            Run::Answer(answer) | Run::Sampled(answer) => answer(command, session, service, replies),
            Run::Refuse(error) => replies.error(error),
            _ => unreachable!("only commands without keys that do not wait are answered here"),
        }
    }

    /// Returns the error reply of a command that a server without a cluster refuses.
    pub(in crate::resp) fn refusal(&self) -> Option<&'static str> {
        let of_run = if let Run::Refuse(error) = self.run { Some(error) } else { None };
        self.without_cluster.or(of_run)
    }

    fn has(&self, flag: &str) -> bool {
        self.flags.contains(&flag)
    }

    /// Returns true if the command only reads keys.
    pub(in crate::resp) fn only_reads(&self) -> bool {
        self.has("readonly")
    }

    /// Returns true for a command of administrators.
    pub(in crate::resp) fn is_of_admins(&self) -> bool {
        self.has("admin")
    }

    /// Returns true if the command may write, or send messages to other clients.
    pub(in crate::resp) fn may_write(&self) -> bool {
        self.has("write") || self.pauses == Pauses::OfWrites
    }

    /// Returns true if the command answers about all keys of its database.
    pub(in crate::resp) fn is_about_all(&self) -> bool {
        matches!(self.databases, Databases::Current) && !self.may_write()
    }

    /// Returns true if scripts may call the command.
    pub(in crate::resp) fn runs_in_scripts(&self) -> bool {
        self.in_scripts || self.run.is_on_view()
    }

    /// Returns true if the arguments in the places of keys name channels.
    pub(in crate::resp) fn names_channels(&self) -> bool {
        self.group == Group::Pubsub
    }

    /// Returns the access to the key at index `behind`.
    pub(in crate::resp) fn access(&self, behind: usize) -> Access {
        self.access.get(behind).or(self.access.last()).copied().unwrap_or(&[])
    }

    /// Returns true if the command is in an ACL category.
    pub(in crate::resp) fn is_in(&self, category: &str) -> bool {
        self.categories.contains(&category)
            || match category {
                "read" => self.has("readonly") && self.group != Group::Scripting,
                "write" | "admin" | "fast" => self.has(category),
                "slow" => !self.has("fast"),
                "dangerous" => self.is_in("admin"),
                _ => false,
            }
    }
}

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
        // The names of the table are in lower case.
        let is_letter = |(given, letter): (&u8, u8)| given.to_ascii_lowercase() == letter;
        let mut place = place_of(name);
        loop {
            let verb = self.rows.get(self.places[place] as usize)?;
            if verb.name.len() == name.len() && name.iter().zip(verb.name.bytes()).all(is_letter) {
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
    let (mut rows, mut parents) = ([Verb::DEFAULT; COUNT], [0; COUNT]);
    // Commands, then subcommands.
    let (mut filled, mut commands, mut pass) = (0, 0, 0);
    while pass < 2 {
        // The commands up to here; the last one is the parent of the subcommands that follow.
        let (mut family, mut met) = (0, 0);
        while family < families.len() {
            let mut at = 0;
            while at < families[family].len() {
                let verb = families[family][at];
                if !is_subcommand(&verb) {
                    met += 1;
                }
                if is_subcommand(&verb) == (pass == 1) {
                    let parent = met - 1;
                    // Insertion keeps subcommands sorted by the names of their commands.
                    let mut place = filled;
                    while place > commands
                        && pass == 1
                        && is_before(rows[parent].name, rows[parents[place - 1]].name)
                    {
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
            let command = parents[row];
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
