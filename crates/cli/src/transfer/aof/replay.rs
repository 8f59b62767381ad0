//! Applies the commands of an append-only file to strings.
//!
//! redis-server writes a command after it has changed data. So conditions such as NX, which held then,
//! are not checked again. Relative times occur in files of older versions, and count from now, as in
//! redis-server.

use esker_engine::{Bytes, Store};
use esker_rdb::dump::{Refused as Unreadable, decode};

use super::overlay::{Name, Overlay, Version};
use crate::terminal::Failure;
use crate::transfer::record::{LeftOut, Record, VALUE_TOO_LONG, no_database};

/// Limit of a value in bytes, as in redis-server.
const VALUE_BYTES_MAX: usize = 512 << 20;

/// Commands of other types that were added after Redis 7.0, and their types.
const NEWER: [(&str, &str); 9] = [
    ("hpexpireat", "hashes"),
    ("hpersist", "hashes"),
    ("hsetex", "hashes"),
    ("hgetex", "hashes"),
    ("hgetdel", "hashes"),
    ("xdelex", "streams"),
    ("xackdel", "streams"),
    ("vadd", "vector sets"),
    ("vrem", "vector sets"),
];

/// Commands that change no key.
const WITHOUT_EFFECT: [&str; 6] = ["ping", "publish", "spublish", "script", "replconf", "watch"];

/// The reason why a command was not applied.
#[derive(Debug)]
pub(super) enum Stop {
    /// The command cannot be applied, for this reason.
    Refused(String),
    /// The target failed.
    Failed(Failure),
}

impl From<Failure> for Stop {
    fn from(failure: Failure) -> Stop {
        Stop::Failed(failure)
    }
}

type Done = Result<(), Stop>;

fn refused<T>(why: impl Into<String>) -> Result<T, Stop> {
    Err(Stop::Refused(why.into()))
}

pub(super) struct Replay<'t> {
    pub(super) overlay: Overlay<'t>,
    /// The selected database.
    database: u64,
    /// The only database to import, or `None` for all.
    only: Option<u64>,
    /// Commands between MULTI and EXEC.
    transaction: Option<Vec<Vec<Bytes>>>,
    /// Number of commands read, without SELECT, MULTI and EXEC.
    pub(super) commands: u64,
}

impl<'t> Replay<'t> {
    pub(super) fn new(overlay: Overlay<'t>, only: Option<u64>) -> Replay<'t> {
        Replay { overlay, database: 0, only, transaction: None, commands: 0 }
    }

    /// Begins another file, which selects its database itself.
    pub(super) fn begin_file(&mut self) {
        self.database = 0;
        self.transaction = None;
    }

    pub(super) fn is_in_transaction(&self) -> bool {
        self.transaction.is_some()
    }

    /// Takes a key of a snapshot.
    pub(super) fn record(&mut self, record: Record, left_out: &mut LeftOut) -> Result<(), Failure> {
        let Record { database, key, value, expires_at_ms } = record;
        self.overlay.set((database, key), Some(Version { value, expires_at_ms }), left_out)
    }

    /// Applies a command, or queues it until its transaction ends.
    pub(super) fn command(&mut self, words: Vec<Bytes>, left_out: &mut LeftOut) -> Done {
        let is = |name: &str| words[0].eq_ignore_ascii_case(name.as_bytes());
        match &mut self.transaction {
            Some(_) if is("multi") => refused("MULTI stands within a transaction"),
            None if is("multi") => {
                self.transaction = Some(Vec::new());
                Ok(())
            }
            None if is("exec") => refused("EXEC stands without MULTI"),
            Some(queued) if !is("exec") => {
                queued.push(words);
                Ok(())
            }
            _ => {
                let queued = self.transaction.take().unwrap_or_default();
                let alone = if is("exec") { None } else { Some(words) };
                queued.into_iter().chain(alone).try_for_each(|words| self.apply(&words, left_out))
            }
        }
    }

    fn apply(&mut self, words: &[Bytes], left_out: &mut LeftOut) -> Done {
        let name = String::from_utf8_lossy(&words[0]).to_ascii_lowercase();
        if name == "select" {
            let number = words.get(1).and_then(|number| unsigned(number));
            self.database = number.filter(|_| words.len() == 2).ok_or_else(|| no_arguments("SELECT"))?;
            return Ok(());
        }
        self.commands += 1;
        if WITHOUT_EFFECT.contains(&name.as_str()) {
            return Ok(());
        }
        if self.only.is_some_and(|wanted| wanted != self.database) && name != "flushall" {
            left_out.add(format!("command in database {}", self.database));
            return Ok(());
        }
        let Some(database) = known(self.database) else {
            left_out.miss(format!("command in {}", no_database(self.database)));
            return Ok(());
        };
        let applied = self.of_strings(&name, database, words, left_out);
        match applied {
            Ok(true) => Ok(()),
            Ok(false) => self.of_others(&name, database, words, left_out),
            Err(stop) => Err(stop),
        }
    }

    /// Applies a command that changes strings or keys of any type. Returns false for other commands.
    fn of_strings(
        &mut self,
        name: &str,
        database: u8,
        words: &[Bytes],
        left_out: &mut LeftOut,
    ) -> Result<bool, Stop> {
        let of = |key: &Bytes| (database, key.clone());
        match (name, &words[1..]) {
            ("set", [key, value, options @ ..]) => {
                let expiry = self.expiry(options)?;
                let name = of(key);
                let kept = match expiry {
                    Expiry::Kept => self.overlay.take(&name, left_out)?.and_then(|old| old.expires_at_ms),
                    Expiry::At(at) => Some(at),
                    Expiry::None | Expiry::Unsaid => None,
                };
                self.put(name, value.clone(), kept, left_out)?;
            }
            ("setnx" | "getset", [key, value]) => self.put(of(key), value.clone(), None, left_out)?,
            ("setex" | "psetex", [key, time, value]) => {
                let at = self.time(time, name == "setex", true)?;
                self.put(of(key), value.clone(), Some(at), left_out)?;
            }
            ("mset" | "msetnx", pairs) if !pairs.is_empty() && pairs.len().is_multiple_of(2) => {
                for pair in pairs.chunks(2) {
                    self.put(of(&pair[0]), pair[1].clone(), None, left_out)?;
                }
            }
            ("del" | "unlink" | "getdel", keys) if !keys.is_empty() => {
                for key in keys {
                    self.overlay.set(of(key), None, left_out)?;
                }
            }
            ("append", [key, more]) => self.change(of(key), left_out, |value| {
                value.extend_from_slice(more);
                Ok(())
            })?,
            ("setrange", [key, offset, part]) => {
                let offset = place(offset, part.len())?;
                self.change(of(key), left_out, |value| {
                    value.resize(value.len().max(offset + part.len()), 0);
                    value[offset..offset + part.len()].copy_from_slice(part);
                    Ok(())
                })?;
            }
            ("setbit", [key, offset, bit]) => {
                let bits = unsigned(offset).ok_or_else(|| no_arguments("SETBIT"))?;
                let byte = place(&Bytes::from((bits / 8).to_string()), 1)?;
                let mask = 0x80 >> (bits % 8);
                self.change(of(key), left_out, |value| {
                    value.resize(value.len().max(byte + 1), 0);
                    match &bit[..] {
                        b"0" => value[byte] &= !mask,
                        b"1" => value[byte] |= mask,
                        _ => return Err(no_arguments("SETBIT")),
                    }
                    Ok(())
                })?;
            }
            ("incr", [key]) => self.add(of(key), Some(1), left_out)?,
            ("decr", [key]) => self.add(of(key), Some(-1), left_out)?,
            ("incrby", [key, by]) => self.add(of(key), signed(by), left_out)?,
            ("decrby", [key, by]) => self.add(of(key), signed(by).and_then(i64::checked_neg), left_out)?,
            ("expire" | "pexpire" | "expireat" | "pexpireat", [key, time, ..]) => {
                let in_seconds = matches!(name, "expire" | "expireat");
                let at = self.time(time, in_seconds, !name.ends_with("at"))?;
                self.expire(of(key), Some(at), left_out)?;
            }
            ("persist", [key]) => self.expire(of(key), None, left_out)?,
            ("getex", [key, options @ ..]) => match self.expiry(options)? {
                Expiry::At(at) => self.expire(of(key), Some(at), left_out)?,
                Expiry::None => self.expire(of(key), None, left_out)?,
                Expiry::Unsaid | Expiry::Kept => {}
            },
            ("rename" | "renamenx", [from, to]) => {
                let version = self.overlay.take(&of(from), left_out)?;
                self.overlay.set(of(from), None, left_out)?;
                // If `from` is no string here, it is a key of another type, and so is `to` now.
                self.overlay.set(of(to), version, left_out)?;
            }
            ("copy", [from, to, options @ ..]) => {
                let version = self.peek(&of(from), left_out)?;
                let to_database = self.option(options, "db")?.map_or(Ok(database), wanted)?;
                self.overlay.set((to_database, to.clone()), version, left_out)?;
            }
            ("move", [key, to]) => {
                let to = unsigned(to).ok_or_else(|| no_arguments("MOVE")).and_then(wanted)?;
                let version = self.overlay.take(&of(key), left_out)?;
                self.overlay.set(of(key), None, left_out)?;
                self.overlay.set((to, key.clone()), version, left_out)?;
            }
            ("restore", [key, time, payload, options @ ..]) => {
                self.restore(of(key), time, payload, options, left_out)?;
            }
            ("flushdb" | "flushall", _) => {
                if !self.overlay.clear((name == "flushdb").then_some(database)) {
                    return refused("the keys that it removes are in the target by now");
                }
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Counts a command of another type, whose key is not a string.
    fn of_others(&mut self, name: &str, database: u8, words: &[Bytes], left_out: &mut LeftOut) -> Done {
        let newer = NEWER.iter().find(|(known, _)| *known == name);
        let known = esker_server::family_of_command(&words[0])
            .or((name == "function").then_some(("function", "functions")))
            .or(newer.copied());
        let Some((_, family)) = known.filter(|(name, _)| !matches!(*name, "fcall" | "module")) else {
            return refused(match name.contains('.') {
                true => "it is a command of a module",
                false => "it is not applied here, or has other arguments than redis-server writes",
            });
        };
        // A stored result of another type replaces a string.
        let stored = match (name, words.iter().position(|word| word.eq_ignore_ascii_case(b"store"))) {
            (name, _) if name.ends_with("store") => words.get(1),
            ("sort" | "georadius" | "georadiusbymember", Some(at)) => words.get(at + 1),
            _ => None,
        };
        if let Some(key) = stored {
            self.overlay.set((database, key.clone()), None, left_out)?;
        }
        left_out.add(format!("command of {family}"));
        Ok(())
    }

    fn put(&mut self, name: Name, value: Bytes, expires_at_ms: Option<u64>, left_out: &mut LeftOut) -> Done {
        Ok(self.overlay.set(name, Some(Version { value, expires_at_ms }), left_out)?)
    }

    /// Returns a key's newest version without removing it.
    fn peek(&mut self, name: &Name, left_out: &mut LeftOut) -> Result<Option<Version>, Stop> {
        let version = self.overlay.take(name, left_out)?;
        if version.is_some() {
            self.overlay.set(name.clone(), version.clone(), left_out)?;
        }
        Ok(version)
    }

    /// Changes the value of a key, or an empty value if the key is absent. The expiry stays.
    fn change(
        &mut self,
        name: Name,
        left_out: &mut LeftOut,
        change: impl FnOnce(&mut Vec<u8>) -> Done,
    ) -> Done {
        let old = self.overlay.take(&name, left_out)?;
        let expires_at_ms = old.as_ref().and_then(|old| old.expires_at_ms);
        let mut value = old.map_or_else(Vec::new, |old| old.value.into());
        change(&mut value)?;
        if value.len() > VALUE_BYTES_MAX {
            return refused(VALUE_TOO_LONG);
        }
        self.put(name, value.into(), expires_at_ms, left_out)
    }

    fn add(&mut self, name: Name, by: Option<i64>, left_out: &mut LeftOut) -> Done {
        let by = by.ok_or_else(|| Stop::Refused("its number is not a 64-bit integer".to_owned()))?;
        self.change(name, left_out, |value| {
            let old = if value.is_empty() { Some(0) } else { signed(value) };
            let sum = old.and_then(|old| old.checked_add(by));
            let sum = sum.ok_or_else(|| {
                Stop::Refused("the current value or the sum is not a 64-bit integer".to_owned())
            })?;
            *value = sum.to_string().into();
            Ok(())
        })
    }

    /// Sets the expiry of a key. A key without a string is of another type, and is ignored.
    fn expire(&mut self, name: Name, expires_at_ms: Option<u64>, left_out: &mut LeftOut) -> Done {
        match self.overlay.take(&name, left_out)? {
            Some(Version { value, .. }) => self.put(name, value, expires_at_ms, left_out),
            None => Ok(()),
        }
    }

    fn restore(
        &mut self,
        name: Name,
        time: &[u8],
        payload: &[u8],
        options: &[Bytes],
        left_out: &mut LeftOut,
    ) -> Done {
        let has = |option: &[u8]| options.iter().any(|word| word.eq_ignore_ascii_case(option));
        let expires_at_ms = match time {
            b"0" => None,
            time => Some(self.time(time, false, !has(b"absttl"))?),
        };
        match decode(payload, VALUE_BYTES_MAX as u64) {
            Ok(value) => self.put(name, value.into(), expires_at_ms, left_out),
            Err(Unreadable::Other(kind)) => {
                left_out.add(kind.to_string());
                Ok(self.overlay.set(name, None, left_out)?)
            }
            Err(error) => refused(error.to_string()),
        }
    }

    /// Returns the number after an option.
    fn option(&self, options: &[Bytes], wanted: &str) -> Result<Option<u64>, Stop> {
        let at = options.iter().position(|word| word.eq_ignore_ascii_case(wanted.as_bytes()));
        let Some(at) = at else { return Ok(None) };
        let value = options.get(at + 1).and_then(|value| unsigned(value));
        value.map(Some).ok_or_else(|| no_arguments(&wanted.to_ascii_uppercase()))
    }

    /// Returns the expiry from the options of SET and GETEX.
    fn expiry(&self, options: &[Bytes]) -> Result<Expiry, Stop> {
        let mut expiry = Expiry::Unsaid;
        let mut options = options.iter();
        while let Some(option) = options.next() {
            let mut time = |in_seconds, is_relative| {
                let time = options.next().ok_or_else(|| no_arguments("SET"))?;
                self.time(time, in_seconds, is_relative).map(Expiry::At)
            };
            match option.to_ascii_lowercase().as_slice() {
                b"nx" | b"xx" | b"get" => {}
                b"keepttl" => expiry = Expiry::Kept,
                b"persist" => expiry = Expiry::None,
                b"ex" => expiry = time(true, true)?,
                b"px" => expiry = time(false, true)?,
                b"exat" => expiry = time(true, false)?,
                b"pxat" => expiry = time(false, false)?,
                _ => {
                    return Err(Stop::Refused(format!(
                        "its option '{}' is not known",
                        option.escape_ascii()
                    )));
                }
            }
        }
        Ok(expiry)
    }

    /// Parses a time in milliseconds since the Unix epoch. Negative times become 0, which has passed too.
    fn time(&self, text: &[u8], in_seconds: bool, is_relative: bool) -> Result<u64, Stop> {
        let number = signed(text).and_then(|number| number.checked_mul(if in_seconds { 1000 } else { 1 }));
        let base = if is_relative { self.overlay.now_ms() as i64 } else { 0 };
        let at = number.and_then(|number| number.checked_add(base));
        let at = at.ok_or_else(|| Stop::Refused(format!("'{}' is not a time", text.escape_ascii())))?;
        Ok(at.max(0) as u64)
    }
}

/// The expiry that a command sets.
enum Expiry {
    Unsaid,
    None,
    Kept,
    At(u64),
}

fn known(database: u64) -> Option<u8> {
    u8::try_from(database).ok().filter(|number| *number < Store::DATABASES)
}

/// Converts the number of a key's database.
fn wanted(database: u64) -> Result<u8, Stop> {
    known(database).ok_or_else(|| Stop::Refused(no_database(database)))
}

/// Parses the offset of a part of a value.
fn place(offset: &[u8], bytes: usize) -> Result<usize, Stop> {
    let offset = unsigned(offset).and_then(|offset| usize::try_from(offset).ok());
    let fits = |offset: &usize| offset.checked_add(bytes).is_some_and(|end| end <= VALUE_BYTES_MAX);
    offset.filter(fits).ok_or_else(|| Stop::Refused(VALUE_TOO_LONG.to_owned()))
}

fn no_arguments(of: &str) -> Stop {
    Stop::Refused(format!("its arguments are none of {of}"))
}

fn signed(text: &[u8]) -> Option<i64> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

fn unsigned(text: &[u8]) -> Option<u64> {
    std::str::from_utf8(text).ok()?.parse().ok()
}
