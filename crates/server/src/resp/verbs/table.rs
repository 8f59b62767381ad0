//! The table of verbs.

use super::{Fast, Keys, Needs, Verb};
use crate::service::calls::VERBS_COUNT as COUNT;

const NO_KEYS: Keys = Keys { first: 0, last: 0, step: 0, counted_at: None };
const ONE_KEY: Keys = Keys { first: 1, last: 1, step: 1, counted_at: None };
const SECOND_KEY: Keys = Keys { first: 2, last: 2, step: 1, counted_at: None };
const TWO_KEYS: Keys = Keys { first: 1, last: 2, step: 1, counted_at: None };
const ALL_KEYS: Keys = Keys { first: 1, last: -1, step: 1, counted_at: None };
const COUNTED_KEYS: Keys = Keys { first: 0, last: 0, step: 0, counted_at: Some(2) };
const KEYS_AND_VALUES: Keys = Keys { first: 1, last: -1, step: 2, counted_at: None };

const READ: &[&str] = &["readonly", "fast"];
const LONG_READ: &[&str] = &["readonly"];
const WRITE: &[&str] = &["write", "denyoom", "fast"];
const LONG_WRITE: &[&str] = &["write", "denyoom"];
const CHANGE: &[&str] = &["write", "fast"];
const LONG_CHANGE: &[&str] = &["write"];
const WAIT: &[&str] = &["noscript"];
const QUEUE: &[&str] = &["noscript", "loading", "stale", "fast", "allow_busy"];
const EXEC: &[&str] = &["noscript", "loading", "stale", "skip_slowlog"];
const LOGIN: &[&str] = &["noscript", "loading", "stale", "fast", "no_auth", "allow_busy"];
const FAST: &[&str] = &["loading", "stale", "fast"];
const PING: &[&str] = &["fast"];
const ROLE: &[&str] = &["noscript", "loading", "stale", "fast"];
const TELL: &[&str] = &["loading", "stale"];
const ADMIN: &[&str] = &["admin", "noscript", "loading", "stale"];
const SAVE: &[&str] = &["admin", "noscript", "no_async_loading"];
const STOP: &[&str] = &["admin", "noscript", "loading", "stale", "no_multi", "allow_busy"];
const SCRIPT: &[&str] = &["noscript", "stale", "skip_monitor", "no_mandatory_keys", "movablekeys"];
const READ_SCRIPT: &[&str] =
    &["readonly", "noscript", "stale", "skip_monitor", "no_mandatory_keys", "movablekeys"];
/// A verb that is nothing without a subcommand.
const NONE: &[&str] = &[];

/// Every verb.
#[rustfmt::skip]
pub(in crate::resp) static VERBS: [Verb; COUNT] = [
    Verb { name: "append", arity: 3, fast: Fast::No, keys: ONE_KEY, needs: Needs::ReadWrite, flags: WRITE, group: "string",
        summary: "Appends to the value of a key." },
    Verb { name: "decr", arity: 2, fast: Fast::No, keys: ONE_KEY, needs: Needs::ReadWrite, flags: WRITE, group: "string",
        summary: "Takes one from the number at a key." },
    Verb { name: "decrby", arity: 3, fast: Fast::No, keys: ONE_KEY, needs: Needs::ReadWrite, flags: WRITE, group: "string",
        summary: "Takes a number from the number at a key." },
    Verb { name: "get", arity: 2, fast: Fast::Get, keys: ONE_KEY, needs: Needs::Read, flags: READ, group: "string",
        summary: "Returns the value of a key." },
    Verb { name: "getdel", arity: 2, fast: Fast::No, keys: ONE_KEY, needs: Needs::ReadWrite, flags: CHANGE, group: "string",
        summary: "Returns the value of a key and deletes it." },
    Verb { name: "getex", arity: -2, fast: Fast::No, keys: ONE_KEY, needs: Needs::ReadWrite, flags: CHANGE, group: "string",
        summary: "Returns the value of a key and sets when it expires." },
    Verb { name: "getrange", arity: 4, fast: Fast::No, keys: ONE_KEY, needs: Needs::Read, flags: LONG_READ, group: "string",
        summary: "Returns a part of the value of a key." },
    Verb { name: "getset", arity: 3, fast: Fast::No, keys: ONE_KEY, needs: Needs::ReadWrite, flags: WRITE, group: "string",
        summary: "Sets the value of a key and returns the old one." },
    Verb { name: "incr", arity: 2, fast: Fast::No, keys: ONE_KEY, needs: Needs::ReadWrite, flags: WRITE, group: "string",
        summary: "Adds one to the number at a key." },
    Verb { name: "incrby", arity: 3, fast: Fast::No, keys: ONE_KEY, needs: Needs::ReadWrite, flags: WRITE, group: "string",
        summary: "Adds a number to the number at a key." },
    Verb { name: "incrbyfloat", arity: 3, fast: Fast::No, keys: ONE_KEY, needs: Needs::ReadWrite, flags: WRITE, group: "string",
        summary: "Adds a number with a fraction to the number at a key." },
    Verb { name: "mget", arity: -2, fast: Fast::Mget, keys: ALL_KEYS, needs: Needs::Read, flags: READ, group: "string",
        summary: "Returns the values of several keys." },
    Verb { name: "mset", arity: -3, fast: Fast::No, keys: KEYS_AND_VALUES, needs: Needs::Write, flags: LONG_WRITE, group: "string",
        summary: "Sets the values of several keys, all or none." },
    Verb { name: "msetnx", arity: -3, fast: Fast::No, keys: KEYS_AND_VALUES, needs: Needs::ReadWrite, flags: LONG_WRITE, group: "string",
        summary: "Sets the values of several keys if none of them is there." },
    Verb { name: "psetex", arity: 4, fast: Fast::No, keys: ONE_KEY, needs: Needs::Write, flags: LONG_WRITE, group: "string",
        summary: "Sets a value that expires after so many milliseconds." },
    Verb { name: "set", arity: -3, fast: Fast::Set, keys: ONE_KEY, needs: Needs::Write, flags: LONG_WRITE, group: "string",
        summary: "Sets the value of a key, with conditions and an expiry if asked for." },
    Verb { name: "setex", arity: 4, fast: Fast::No, keys: ONE_KEY, needs: Needs::Write, flags: LONG_WRITE, group: "string",
        summary: "Sets a value that expires after so many seconds." },
    Verb { name: "setnx", arity: 3, fast: Fast::No, keys: ONE_KEY, needs: Needs::ReadWrite, flags: WRITE, group: "string",
        summary: "Sets the value of a key if it is not there." },
    Verb { name: "setrange", arity: 4, fast: Fast::No, keys: ONE_KEY, needs: Needs::ReadWrite, flags: LONG_WRITE, group: "string",
        summary: "Overwrites a part of the value of a key." },
    Verb { name: "strlen", arity: 2, fast: Fast::No, keys: ONE_KEY, needs: Needs::Read, flags: READ, group: "string",
        summary: "Returns the length of the value of a key." },
    Verb { name: "substr", arity: 4, fast: Fast::No, keys: ONE_KEY, needs: Needs::Read, flags: LONG_READ, group: "string",
        summary: "Returns a part of the value of a key; the same as GETRANGE." },
    Verb { name: "copy", arity: -3, fast: Fast::No, keys: TWO_KEYS, needs: Needs::ReadWrite, flags: LONG_WRITE, group: "generic",
        summary: "Copies a value and its expiry to another key." },
    Verb { name: "del", arity: -2, fast: Fast::Delete, keys: ALL_KEYS, needs: Needs::Write, flags: LONG_CHANGE, group: "generic",
        summary: "Deletes keys." },
    Verb { name: "dump", arity: 2, fast: Fast::No, keys: ONE_KEY, needs: Needs::Read, flags: LONG_READ, group: "generic",
        summary: "Returns the value of a key in the form that RESTORE takes." },
    Verb { name: "exists", arity: -2, fast: Fast::Count, keys: ALL_KEYS, needs: Needs::Read, flags: READ, group: "generic",
        summary: "Counts which of the keys are there." },
    Verb { name: "expire", arity: -3, fast: Fast::No, keys: ONE_KEY, needs: Needs::Write, flags: CHANGE, group: "generic",
        summary: "Lets a key expire after so many seconds." },
    Verb { name: "expireat", arity: -3, fast: Fast::No, keys: ONE_KEY, needs: Needs::Write, flags: CHANGE, group: "generic",
        summary: "Lets a key expire at a Unix time in seconds." },
    Verb { name: "expiretime", arity: 2, fast: Fast::No, keys: ONE_KEY, needs: Needs::Read, flags: READ, group: "generic",
        summary: "Returns the Unix time in seconds at which a key expires." },
    Verb { name: "keys", arity: 2, fast: Fast::No, keys: NO_KEYS, needs: Needs::Read, flags: LONG_READ, group: "generic",
        summary: "Returns all keys that match a pattern." },
    Verb { name: "persist", arity: 2, fast: Fast::No, keys: ONE_KEY, needs: Needs::Write, flags: CHANGE, group: "generic",
        summary: "Lets a key stay for good." },
    Verb { name: "pexpire", arity: -3, fast: Fast::No, keys: ONE_KEY, needs: Needs::Write, flags: CHANGE, group: "generic",
        summary: "Lets a key expire after so many milliseconds." },
    Verb { name: "pexpireat", arity: -3, fast: Fast::No, keys: ONE_KEY, needs: Needs::Write, flags: CHANGE, group: "generic",
        summary: "Lets a key expire at a Unix time in milliseconds." },
    Verb { name: "pexpiretime", arity: 2, fast: Fast::No, keys: ONE_KEY, needs: Needs::Read, flags: READ, group: "generic",
        summary: "Returns the Unix time in milliseconds at which a key expires." },
    Verb { name: "pttl", arity: 2, fast: Fast::No, keys: ONE_KEY, needs: Needs::Read, flags: READ, group: "generic",
        summary: "Returns in how many milliseconds a key expires." },
    Verb { name: "randomkey", arity: 1, fast: Fast::No, keys: NO_KEYS, needs: Needs::Read, flags: LONG_READ, group: "generic",
        summary: "Returns some key." },
    Verb { name: "rename", arity: 3, fast: Fast::No, keys: TWO_KEYS, needs: Needs::ReadWrite, flags: LONG_CHANGE, group: "generic",
        summary: "Gives a key another name, and overwrites what had it." },
    Verb { name: "renamenx", arity: 3, fast: Fast::No, keys: TWO_KEYS, needs: Needs::ReadWrite, flags: CHANGE, group: "generic",
        summary: "Gives a key another name if nothing has it." },
    Verb { name: "restore", arity: -4, fast: Fast::No, keys: ONE_KEY, needs: Needs::Write, flags: LONG_WRITE, group: "generic",
        summary: "Makes a key from what DUMP returned, also that of a Redis." },
    Verb { name: "scan", arity: -2, fast: Fast::No, keys: NO_KEYS, needs: Needs::Read, flags: LONG_READ, group: "generic",
        summary: "Iterates over the keys." },
    Verb { name: "touch", arity: -2, fast: Fast::Count, keys: ALL_KEYS, needs: Needs::Read, flags: READ, group: "generic",
        summary: "Counts which of the keys are there; the same as EXISTS." },
    Verb { name: "ttl", arity: 2, fast: Fast::No, keys: ONE_KEY, needs: Needs::Read, flags: READ, group: "generic",
        summary: "Returns in how many seconds a key expires." },
    Verb { name: "type", arity: 2, fast: Fast::No, keys: ONE_KEY, needs: Needs::Read, flags: READ, group: "generic",
        summary: "Returns the type of a key: string or none." },
    Verb { name: "unlink", arity: -2, fast: Fast::Delete, keys: ALL_KEYS, needs: Needs::Write, flags: CHANGE, group: "generic",
        summary: "Deletes keys; the same as DEL." },
    Verb { name: "wait", arity: 3, fast: Fast::No, keys: NO_KEYS, needs: Needs::Login, flags: WAIT, group: "generic",
        summary: "Makes durable what was written, and returns the number of replicas: 0." },
    Verb { name: "waitaof", arity: 4, fast: Fast::No, keys: NO_KEYS, needs: Needs::Login, flags: WAIT, group: "generic",
        summary: "Makes durable what was written." },
    Verb { name: "discard", arity: 1, fast: Fast::No, keys: NO_KEYS, needs: Needs::Login, flags: QUEUE, group: "transactions",
        summary: "Forgets a transaction." },
    Verb { name: "exec", arity: 1, fast: Fast::No, keys: NO_KEYS, needs: Needs::Login, flags: EXEC, group: "transactions",
        summary: "Runs a transaction." },
    Verb { name: "multi", arity: 1, fast: Fast::No, keys: NO_KEYS, needs: Needs::Login, flags: QUEUE, group: "transactions",
        summary: "Begins a transaction." },
    Verb { name: "unwatch", arity: 1, fast: Fast::No, keys: NO_KEYS, needs: Needs::Login, flags: QUEUE, group: "transactions",
        summary: "Forgets the watched keys." },
    Verb { name: "watch", arity: -2, fast: Fast::No, keys: ALL_KEYS, needs: Needs::Read, flags: QUEUE, group: "transactions",
        summary: "Lets the next transaction fail if one of the keys changes before." },
    Verb { name: "eval", arity: -3, fast: Fast::No, keys: COUNTED_KEYS, needs: Needs::ReadWrite, flags: SCRIPT, group: "scripting",
        summary: "Runs a script of Lua over keys." },
    Verb { name: "eval_ro", arity: -3, fast: Fast::No, keys: COUNTED_KEYS, needs: Needs::Read, flags: READ_SCRIPT, group: "scripting",
        summary: "Runs a script of Lua that only reads." },
    Verb { name: "evalsha", arity: -3, fast: Fast::No, keys: COUNTED_KEYS, needs: Needs::ReadWrite, flags: SCRIPT, group: "scripting",
        summary: "Runs a script that the server knows, by its digest." },
    Verb { name: "evalsha_ro", arity: -3, fast: Fast::No, keys: COUNTED_KEYS, needs: Needs::Read, flags: READ_SCRIPT, group: "scripting",
        summary: "Runs a script that the server knows and that only reads." },
    Verb { name: "script", arity: -2, fast: Fast::No, keys: NO_KEYS, needs: Needs::Login, flags: NONE, group: "scripting",
        summary: "Loads scripts, forgets them, and ends those that run." },
    Verb { name: "auth", arity: -2, fast: Fast::No, keys: NO_KEYS, needs: Needs::Nothing, flags: LOGIN, group: "connection",
        summary: "Logs in, with a name and a password or with the password of the default user." },
    Verb { name: "client", arity: -2, fast: Fast::No, keys: NO_KEYS, needs: Needs::Login, flags: NONE, group: "connection",
        summary: "Tells and sets what the server knows of connections." },
    Verb { name: "echo", arity: 2, fast: Fast::No, keys: NO_KEYS, needs: Needs::Login, flags: FAST, group: "connection",
        summary: "Answers the argument." },
    Verb { name: "hello", arity: -1, fast: Fast::No, keys: NO_KEYS, needs: Needs::Nothing, flags: LOGIN, group: "connection",
        summary: "Chooses the protocol version and introduces both sides." },
    Verb { name: "ping", arity: -1, fast: Fast::No, keys: NO_KEYS, needs: Needs::Login, flags: PING, group: "connection",
        summary: "Answers, with the argument if there is one." },
    Verb { name: "quit", arity: -1, fast: Fast::No, keys: NO_KEYS, needs: Needs::Nothing, flags: LOGIN, group: "connection",
        summary: "Closes the connection." },
    Verb { name: "reset", arity: 1, fast: Fast::No, keys: NO_KEYS, needs: Needs::Nothing, flags: LOGIN, group: "connection",
        summary: "Makes the connection as it was at first." },
    Verb { name: "select", arity: 2, fast: Fast::No, keys: NO_KEYS, needs: Needs::Login, flags: FAST, group: "connection",
        summary: "Chooses the database; there is only 0." },
    Verb { name: "acl", arity: -2, fast: Fast::No, keys: NO_KEYS, needs: Needs::Login, flags: NONE, group: "server",
        summary: "Tells who one is, and what there is to be allowed." },
    Verb { name: "bgsave", arity: -1, fast: Fast::No, keys: NO_KEYS, needs: Needs::Admin, flags: SAVE, group: "server",
        summary: "Begins a backup into the server's directory of backups." },
    Verb { name: "cluster", arity: -2, fast: Fast::No, keys: NO_KEYS, needs: Needs::Login, flags: NONE, group: "cluster",
        summary: "Says that there is no cluster." },
    Verb { name: "command", arity: -1, fast: Fast::No, keys: NO_KEYS, needs: Needs::Login, flags: TELL, group: "server",
        summary: "Describes commands." },
    Verb { name: "config", arity: -2, fast: Fast::No, keys: NO_KEYS, needs: Needs::Monitor, flags: NONE, group: "server",
        summary: "Tells the settings of the server, and changes some." },
    Verb { name: "dbsize", arity: 1, fast: Fast::No, keys: NO_KEYS, needs: Needs::ReadOrMonitor, flags: READ, group: "server",
        summary: "Returns the number of keys." },
    Verb { name: "debug", arity: -2, fast: Fast::No, keys: NO_KEYS, needs: Needs::Admin, flags: ADMIN, group: "server",
        summary: "Is refused." },
    Verb { name: "flushall", arity: -1, fast: Fast::No, keys: NO_KEYS, needs: Needs::Admin, flags: LONG_CHANGE, group: "server",
        summary: "Deletes every key, durably." },
    Verb { name: "flushdb", arity: -1, fast: Fast::No, keys: NO_KEYS, needs: Needs::Admin, flags: LONG_CHANGE, group: "server",
        summary: "Deletes every key, durably; the same as FLUSHALL." },
    Verb { name: "info", arity: -1, fast: Fast::No, keys: NO_KEYS, needs: Needs::Login, flags: TELL, group: "server",
        summary: "Returns facts and counters of the server." },
    Verb { name: "lastsave", arity: 1, fast: Fast::No, keys: NO_KEYS, needs: Needs::Monitor, flags: FAST, group: "server",
        summary: "Returns when the last backup was taken, or else when the server was started." },
    Verb { name: "latency", arity: -2, fast: Fast::No, keys: NO_KEYS, needs: Needs::Monitor, flags: NONE, group: "server",
        summary: "Is there for tools; nothing is recorded." },
    Verb { name: "role", arity: 1, fast: Fast::No, keys: NO_KEYS, needs: Needs::Login, flags: ROLE, group: "server",
        summary: "Returns the role: master, without replicas." },
    Verb { name: "shutdown", arity: -1, fast: Fast::No, keys: NO_KEYS, needs: Needs::Admin, flags: STOP, group: "server",
        summary: "Stops the server as SIGTERM does." },
    Verb { name: "slowlog", arity: -2, fast: Fast::No, keys: NO_KEYS, needs: Needs::Monitor, flags: NONE, group: "server",
        summary: "Tells which commands took long." },
    Verb { name: "time", arity: 1, fast: Fast::No, keys: NO_KEYS, needs: Needs::Login, flags: FAST, group: "server",
        summary: "Returns the time of the server." },
    Verb { name: "memory", arity: -2, fast: Fast::No, keys: NO_KEYS, needs: Needs::Login, flags: NONE, group: "server",
        summary: "Returns what a key takes." },
    Verb { name: "memory|usage", arity: -3, fast: Fast::No, keys: SECOND_KEY, needs: Needs::Read, flags: LONG_READ, group: "", summary: "" },
    // A browser that is tricked into talking to this port sends these first; see `command/connection.rs`.
    Verb { name: "post", arity: -1, fast: Fast::No, keys: NO_KEYS, needs: Needs::Nothing, flags: TELL, group: "", summary: "" },
    Verb { name: "host:", arity: -1, fast: Fast::No, keys: NO_KEYS, needs: Needs::Nothing, flags: TELL, group: "", summary: "" },
];
