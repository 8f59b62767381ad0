//! The data of a user: an entry of the users file, changed by rules of ACL SETUSER.

use std::fmt;

use esker_engine::Store;

use super::commands::{Allowed, CommandTable, WrongRule};
use super::file::{Right, UserEntry};
use super::password::{SECRETS_MAX, Secret, WrongHash};
use super::prefixes::{Pattern, Reach, WrongPattern};
use crate::base::config::PASSWORD_BYTES_MAX;

/// Maximum memory of a user's patterns, in bytes.
const REACH_BYTES_MAX: usize = 16 << 10;

/// See the module.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Account {
    /// True if logins are disabled.
    pub(super) is_off: bool,
    /// True if any password is accepted.
    pub(super) needs_no_password: bool,
    /// Secrets; each of them authenticates the user.
    pub(super) secrets: Vec<Secret>,
    grant: Grant,
    /// Permitted databases; all if empty.
    pub(super) databases: Vec<u8>,
}

/// Rights of a user.
#[derive(Clone, Debug, PartialEq)]
enum Grant {
    /// In the notation of the users file. Without prefixes, all keys.
    Rights { rights: Vec<Right>, prefixes: Vec<String> },
    /// In the notation of Redis.
    Rules { allowed: Allowed, keys: Reach, channels: Reach },
}

impl Grant {
    fn nothing() -> Grant {
        Grant::Rules { allowed: Allowed::default(), keys: Reach::default(), channels: Reach::default() }
    }
}

/// Error in a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wrong {
    Rule(WrongRule),
    Pattern(WrongPattern),
    BehindAllKeys,
    BehindAllChannels,
    NoSuchPassword,
    Hash(WrongHash),
    /// Not supported; the text names the supported values.
    NotHere(&'static str),
}

impl fmt::Display for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Wrong::Pattern(wrong) => return wrong.fmt(f),
            Wrong::Rule(WrongRule::NoRule) => "Syntax error",
            Wrong::Rule(WrongRule::Unknown) => "Unknown command or category name in ACL",
            Wrong::Rule(WrongRule::FirstArgument) => {
                "a command cannot be allowed by its first argument; allow the command, or a subcommand"
            }
            Wrong::BehindAllKeys => {
                "Adding a pattern after the * pattern (or the 'allkeys' flag) is not valid and does not have any effect. \
                 Try 'resetkeys' to start with an empty list of patterns"
            }
            Wrong::BehindAllChannels => {
                "Adding a pattern after the * pattern (or the 'allchannels' flag) is not valid and does not have any \
                 effect. Try 'resetchannels' to start with an empty list of channels"
            }
            Wrong::NoSuchPassword => "The password you are trying to remove from the user does not exist",
            Wrong::Hash(WrongHash::NotPhc) => {
                "a hash is Argon2 in PHC form as in the file of users; SHA-256 is not kept, since it is fast to guess"
            }
            Wrong::Hash(wrong) => return wrong.fmt(f),
            Wrong::NotHere(what) => what,
        })
    }
}

impl From<WrongRule> for Wrong {
    fn from(wrong: WrongRule) -> Wrong {
        Wrong::Rule(wrong)
    }
}

impl From<WrongPattern> for Wrong {
    fn from(wrong: WrongPattern) -> Wrong {
        Wrong::Pattern(wrong)
    }
}

/// Part of a rule that needs a slow password hash, left to the caller.
pub(super) enum Slow<'r> {
    AddPassword(&'r [u8]),
    RemovePassword(&'r [u8]),
}

impl Account {
    /// Returns a new user of ACL SETUSER: disabled and without rights.
    pub(super) fn new() -> Account {
        Account {
            is_off: true,
            needs_no_password: false,
            secrets: Vec::new(),
            grant: Grant::nothing(),
            databases: Vec::new(),
        }
    }

    /// Returns a user with all rights; without secrets any password is accepted.
    pub(super) fn all_powerful(secrets: Vec<Secret>) -> Account {
        Account {
            is_off: false,
            needs_no_password: secrets.is_empty(),
            secrets,
            grant: Grant::Rights {
                rights: vec![Right::Read, Right::Write, Right::Admin],
                prefixes: Vec::new(),
            },
            databases: Vec::new(),
        }
    }

    /// Converts an entry of the users file, which was checked except for the names of commands.
    pub(super) fn of_entry(entry: &UserEntry, table: &CommandTable) -> Result<Account, String> {
        let secrets = entry.hashes().map(Secret::of_hash).collect::<Result<_, _>>();
        let secrets = secrets.map_err(|wrong| wrong.to_string())?;
        let grant = match &entry.commands {
            None => Grant::Rights { rights: entry.rights.clone(), prefixes: entry.prefixes.clone() },
            Some(rules) => {
                let mut allowed = Allowed::default();
                for rule in rules.split_ascii_whitespace() {
                    let wrong = |wrong| format!("commands: {}: {}", rule.escape_debug(), Wrong::Rule(wrong));
                    table.apply(rule, &mut allowed).map_err(wrong)?;
                }
                let [keys, channels] = entry.reach()?;
                Grant::Rules { allowed, keys, channels }
            }
        };
        let databases = entry.databases.clone();
        Ok(Account { is_off: entry.off, needs_no_password: false, secrets, grant, databases })
    }

    /// Returns the memory beyond the struct itself, in bytes.
    pub(super) fn bytes(&self) -> usize {
        let secrets =
            self.secrets.iter().map(|secret| size_of::<Secret>() + secret.hash().map_or(0, str::len));
        secrets.sum::<usize>()
            + self.databases.len()
            + match &self.grant {
                Grant::Rights { rights, prefixes } => {
                    let prefixes = prefixes.iter().map(|prefix| size_of::<String>() + prefix.len());
                    size_of_val(&**rights) + prefixes.sum::<usize>()
                }
                Grant::Rules { allowed, keys, channels } => allowed.bytes() + keys.bytes() + channels.bytes(),
            }
    }

    /// Returns the entry for the users file.
    pub(super) fn to_entry(&self) -> UserEntry {
        let mut hashes = self.secrets.iter().filter_map(Secret::hash).map(str::to_owned);
        let text = |reach: &Reach, sign| {
            let shown = reach.shown(sign);
            shown.map(|text| String::from_utf8(text).expect("patterns are valid UTF-8")).collect()
        };
        let mut entry = UserEntry {
            off: self.is_off,
            password_hash: hashes.next(),
            more_password_hashes: hashes.collect(),
            databases: self.databases.clone(),
            ..UserEntry::default()
        };
        match &self.grant {
            Grant::Rights { rights, prefixes } => {
                (entry.rights, entry.prefixes) = (rights.clone(), prefixes.clone());
            }
            Grant::Rules { allowed, keys, channels } => {
                entry.commands = Some(allowed.text());
                (entry.keys, entry.channels) = (text(keys, b'~'), text(channels, b'&'));
            }
        }
        entry
    }

    /// Returns the permitted commands, keys and channels.
    pub(super) fn resolve(&self, table: &CommandTable) -> (Allowed, Reach, Reach) {
        match &self.grant {
            Grant::Rights { rights, prefixes } => {
                let has = |right| rights.contains(&right) || rights.contains(&Right::Admin);
                let prefixes = prefixes.iter().map(String::as_bytes);
                let reach = Reach::of_prefixes(prefixes, has(Right::Read), has(Right::Write));
                (table.allowed_by(rights).clone(), reach.clone(), reach)
            }
            Grant::Rules { allowed, keys, channels } => (allowed.clone(), keys.clone(), channels.clone()),
        }
    }

    /// Returns the rights in the notation of Redis, for changes; converts them if necessary.
    fn rules(&mut self, table: &CommandTable) -> (&mut Allowed, &mut Reach, &mut Reach) {
        if let Grant::Rights { .. } = self.grant {
            let (allowed, keys, mut channels) = self.resolve(table);
            // For channels, the permitted commands decide between subscribing and publishing; a rule's pattern does not.
            channels.open();
            self.grant = Grant::Rules { allowed, keys, channels };
        }
        match &mut self.grant {
            Grant::Rules { allowed, keys, channels } => (allowed, keys, channels),
            Grant::Rights { .. } => unreachable!("it was replaced"),
        }
    }

    /// Applies a rule of ACL SETUSER, except for slow parts, which are returned. `may_need_none`: the user may be set to need no
    /// password.
    pub(super) fn apply<'r>(
        &mut self,
        rule: &'r [u8],
        table: &CommandTable,
        may_need_none: bool,
    ) -> Result<Option<Slow<'r>>, Wrong> {
        let word = rule.to_ascii_lowercase();
        match &*word {
            b"" | b"sanitize-payload" | b"clearselectors" => {}
            b"on" => self.is_off = false,
            b"off" => self.is_off = true,
            b"nopass" if may_need_none => {
                self.secrets.clear();
                self.needs_no_password = true;
            }
            b"nopass" => {
                return Err(Wrong::NotHere(
                    "only the user default can do without a password, on a server without users and password; add one \
                     with >password",
                ));
            }
            b"resetpass" => {
                self.secrets.clear();
                self.needs_no_password = false;
            }
            b"allkeys" | b"~*" => *self.rules(table).1 = Reach::everything(),
            b"resetkeys" => *self.rules(table).1 = Reach::default(),
            b"allchannels" | b"&*" => *self.rules(table).2 = Reach::everything(),
            b"resetchannels" => *self.rules(table).2 = Reach::default(),
            b"reset" => *self = Account::new(),
            b"skip-sanitize-payload" => return Err(Wrong::NotHere("payloads are always checked")),
            b"allcommands" | b"nocommands" => self.apply_to_commands(rule, table)?,
            _ => return self.apply_with_argument(rule, table),
        }
        Ok(None)
    }

    fn apply_with_argument<'r>(
        &mut self,
        rule: &'r [u8],
        table: &CommandTable,
    ) -> Result<Option<Slow<'r>>, Wrong> {
        let (sign, argument) = rule.split_first().ok_or(WrongRule::NoRule)?;
        match sign {
            b'>' => {
                check_password(argument)?;
                return Ok(Some(Slow::AddPassword(argument)));
            }
            b'<' => return Ok(Some(Slow::RemovePassword(argument))),
            b'#' => self.add_secret(hash(argument)?)?,
            b'!' => {
                let secret = hash(argument)?;
                let index = self.secrets.iter().position(|known| *known == secret);
                self.secrets.remove(index.ok_or(Wrong::NoSuchPassword)?);
            }
            b'~' | b'%' => {
                let pattern = Pattern::parse(rule, b'~')?;
                let (_, keys, _) = self.rules(table);
                if keys.is_everything() {
                    return Err(Wrong::BehindAllKeys);
                }
                keys.add(pattern);
                self.check_reach()?;
            }
            b'&' => {
                let pattern = Pattern::parse(rule, b'&')?;
                let (_, _, channels) = self.rules(table);
                if channels.is_everything() {
                    return Err(Wrong::BehindAllChannels);
                }
                channels.add(pattern);
                self.check_reach()?;
            }
            b'+' | b'-' => self.apply_to_commands(rule, table)?,
            b'(' => {
                return Err(Wrong::NotHere(
                    "there are no selectors; what a user may do holds for all its keys",
                ));
            }
            _ => {
                let numbers = rule.get(..DATABASES.len()).filter(|word| word.eq_ignore_ascii_case(DATABASES));
                numbers.ok_or(WrongRule::NoRule)?;
                self.databases = databases(&rule[DATABASES.len()..])?;
                let is_admin =
                    matches!(&self.grant, Grant::Rights { rights, .. } if rights.contains(&Right::Admin));
                if is_admin && !self.databases.is_empty() {
                    // The right `admin` includes all databases, and the users file has no other form of it.
                    self.rules(table);
                }
            }
        }
        Ok(None)
    }

    fn apply_to_commands(&mut self, rule: &[u8], table: &CommandTable) -> Result<(), Wrong> {
        let rule = std::str::from_utf8(rule).map_err(|_| WrongRule::Unknown)?;
        let (allowed, ..) = self.rules(table);
        Ok(table.apply(rule, allowed)?)
    }

    /// Adds a secret. If any password was accepted before, that ends.
    pub(super) fn add_secret(&mut self, secret: Secret) -> Result<(), Wrong> {
        self.needs_no_password = false;
        if self.secrets.contains(&secret) {
            return Ok(());
        }
        if self.secrets.len() == SECRETS_MAX {
            return Err(Wrong::NotHere(
                "a user has up to 4 passwords; take one away with <password or resetpass",
            ));
        }
        self.secrets.push(secret);
        Ok(())
    }

    fn check_reach(&self) -> Result<(), Wrong> {
        let Grant::Rules { keys, channels, .. } = &self.grant else { return Ok(()) };
        if keys.bytes() + channels.bytes() > REACH_BYTES_MAX {
            return Err(Wrong::NotHere("the patterns of a user take up to 16 KiB"));
        }
        Ok(())
    }
}

const DATABASES: &[u8] = b"databases=";

/// Parses `*` or a comma-separated list of numbers.
fn databases(text: &[u8]) -> Result<Vec<u8>, Wrong> {
    if text == b"*" {
        return Ok(Vec::new());
    }
    let number = |text: &[u8]| {
        std::str::from_utf8(text).ok()?.parse().ok().filter(|number| *number < Store::DATABASES)
    };
    let numbers = text.split(|byte| *byte == b',').map(number).collect::<Option<Vec<u8>>>();
    let mut numbers = numbers.ok_or(Wrong::NotHere("databases are * or some of 0 to 15, with commas"))?;
    numbers.sort_unstable();
    numbers.dedup();
    Ok(numbers)
}

fn check_password(password: &[u8]) -> Result<(), Wrong> {
    match password.len() {
        0 => Err(Wrong::NotHere("an empty password is none")),
        1..=PASSWORD_BYTES_MAX => Ok(()),
        _ => Err(Wrong::NotHere("a password has up to 1024 bytes")),
    }
}

/// Parses a hash in the format of the users file.
fn hash(text: &[u8]) -> Result<Secret, Wrong> {
    let text = std::str::from_utf8(text).map_err(|_| Wrong::Hash(WrongHash::NotPhc))?;
    Secret::of_hash(text).map_err(Wrong::Hash)
}

/// Returns a rule for error messages, with passwords and hashes redacted.
pub(super) fn shown(rule: &[u8]) -> String {
    match rule.first() {
        Some(sign @ (b'>' | b'<' | b'#' | b'!')) => format!("{}(redacted)", char::from(*sign)),
        _ => rule[..rule.len().min(128)].escape_ascii().to_string(),
    }
}
