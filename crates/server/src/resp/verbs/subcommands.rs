//! The table of subcommands without keys. Subcommands with keys run as verbs of their own, and are in the table of
//! verbs.

use super::columns::{Fast, Verb};
use super::table::{ADMIN, NO_KEYS, NONE, TELL, WAIT};
use crate::auth::Needs;

/// Flags of subcommands about the client's own connection, or without any effect.
const OWN: &[&str] = &["noscript", "loading", "stale"];
const PUBSUB: &[&str] = &["pubsub", "loading", "stale"];
const KILL: &[&str] = &["noscript", "allow_busy"];
const LOAD: &[&str] = &["noscript", "stale"];
const MODULES: &[&str] = &["admin", "noscript"];
const LOG: &[&str] = &["admin", "loading", "stale"];

/// Returns a row for a subcommand without keys. `name`: the full name.
const fn row(
    name: &'static str,
    arity: i64,
    needs: Needs,
    flags: &'static [&'static str],
    group: &'static str,
    summary: &'static str,
) -> Verb {
    Verb { name, arity, fast: Fast::No, keys: NO_KEYS, needs, flags, group, summary }
}

/// Every subcommand without keys, sorted by verb and then by name.
#[rustfmt::skip]
pub(in crate::resp) static SUBCOMMANDS: [Verb; 69] = [
    row("acl|cat", -2, Needs::Login, OWN, "server", "Lists categories of commands, or the commands of one."),
    row("acl|dryrun", -4, Needs::Admin, ADMIN, "server", "Tells whether a user may run a command."),
    row("acl|genpass", -2, Needs::Login, OWN, "server", "Makes a password that nobody can guess."),
    row("acl|getuser", 3, Needs::Admin, ADMIN, "server", "Tells what a user may do."),
    row("acl|help", 2, Needs::Login, TELL, "server", "Lists the subcommands."),
    row("acl|list", 2, Needs::Admin, ADMIN, "server", "Tells what all users may do."),
    row("acl|log", -2, Needs::Admin, ADMIN, "server", "Tells what was refused to whom, or forgets it."),
    row("acl|users", 2, Needs::Admin, ADMIN, "server", "Lists the users."),
    row("acl|whoami", 2, Needs::Login, OWN, "server", "Returns the name of the user."),
    row("client|caching", 3, Needs::Login, OWN, "connection", "Says whether keys of the next command are tracked."),
    row("client|durability", -2, Needs::Login, OWN, "connection", "Tells or sets how writes of the connection are acknowledged."),
    row("client|getname", 2, Needs::Login, OWN, "connection", "Returns the name of the connection."),
    row("client|getredir", 2, Needs::Login, OWN, "connection", "Returns which connection is told of keys that change."),
    row("client|help", 2, Needs::Login, TELL, "connection", "Lists the subcommands."),
    row("client|id", 2, Needs::Login, OWN, "connection", "Returns the number of the connection."),
    row("client|info", 2, Needs::Login, OWN, "connection", "Tells what is known of the connection."),
    row("client|kill", -3, Needs::Admin, ADMIN, "connection", "Ends connections."),
    row("client|list", -2, Needs::Monitor, ADMIN, "connection", "Tells what is known of connections."),
    row("client|no-evict", 3, Needs::Login, ADMIN, "connection", "Has no effect: no client is evicted."),
    row("client|no-touch", 3, Needs::Login, OWN, "connection", "Has no effect."),
    row("client|pause", -3, Needs::Admin, ADMIN, "connection", "Holds up commands of all clients."),
    row("client|reply", 3, Needs::Login, OWN, "connection", "Says whether commands are answered."),
    row("client|setinfo", 4, Needs::Login, OWN, "connection", "Tells which library the client uses."),
    row("client|setname", 3, Needs::Login, OWN, "connection", "Gives the connection a name."),
    row("client|tracking", -3, Needs::Login, OWN, "connection", "Says whether the client is told of keys that change."),
    row("client|trackinginfo", 2, Needs::Login, OWN, "connection", "Tells how the client is told of keys that change."),
    row("client|unblock", -3, Needs::Admin, ADMIN, "connection", "Has no effect: no command blocks its client."),
    row("client|unpause", 2, Needs::Admin, ADMIN, "connection", "Ends a pause."),
    row("command|count", 2, Needs::Login, TELL, "server", "Returns the number of commands."),
    row("command|docs", -2, Needs::Login, TELL, "server", "Tells what commands are for."),
    row("command|getkeys", -4, Needs::Login, TELL, "server", "Returns the keys of a command."),
    row("command|getkeysandflags", -4, Needs::Login, TELL, "server", "Returns the keys of a command, and what it does to them."),
    row("command|help", 2, Needs::Login, TELL, "server", "Lists the subcommands."),
    row("command|info", -2, Needs::Login, TELL, "server", "Tells the facts of commands."),
    row("command|list", -2, Needs::Login, TELL, "server", "Lists commands."),
    row("config|get", -3, Needs::Monitor, ADMIN, "server", "Tells settings."),
    row("config|help", 2, Needs::Monitor, TELL, "server", "Lists the subcommands."),
    row("config|resetstat", 2, Needs::Admin, ADMIN, "server", "Sets counters back to zero."),
    row("config|rewrite", 2, Needs::Admin, ADMIN, "server", "Is refused: settings are in a file that nobody but people writes."),
    row("config|set", -4, Needs::Admin, ADMIN, "server", "Changes settings."),
    row("function|list", -2, Needs::Login, WAIT, "scripting", "Returns an empty list: there are no functions."),
    row("latency|doctor", 2, Needs::Monitor, ADMIN, "server", "Says where times are to be found."),
    row("latency|graph", 3, Needs::Monitor, ADMIN, "server", "Has nothing to show: single events are not recorded."),
    row("latency|help", 2, Needs::Monitor, TELL, "server", "Lists the subcommands."),
    row("latency|histogram", -2, Needs::Monitor, ADMIN, "server", "Tells how long commands took."),
    row("latency|history", 3, Needs::Monitor, ADMIN, "server", "Has nothing to show: single events are not recorded."),
    row("latency|latest", 2, Needs::Monitor, ADMIN, "server", "Has nothing to show: single events are not recorded."),
    row("latency|reset", -2, Needs::Admin, ADMIN, "server", "Has nothing to forget: single events are not recorded."),
    row("memory|doctor", 2, Needs::Login, NONE, "server", "Says what bounds memory."),
    row("memory|help", 2, Needs::Login, TELL, "server", "Lists the subcommands."),
    row("memory|purge", 2, Needs::Login, NONE, "server", "Has no effect."),
    row("memory|stats", 2, Needs::Login, NONE, "server", "Tells what memory is used for."),
    row("module|list", 2, Needs::Monitor, MODULES, "server", "Returns an empty list: there are no modules."),
    row("object|help", 2, Needs::Login, TELL, "generic", "Lists the subcommands."),
    row("pubsub|channels", -2, Needs::Login, PUBSUB, "pubsub", "Lists channels that have subscribers."),
    row("pubsub|help", 2, Needs::Login, TELL, "pubsub", "Lists the subcommands."),
    row("pubsub|numpat", 2, Needs::Login, PUBSUB, "pubsub", "Returns how many patterns are subscribed to."),
    row("pubsub|numsub", -2, Needs::Login, PUBSUB, "pubsub", "Returns how many subscribers channels have."),
    row("pubsub|shardchannels", -2, Needs::Login, PUBSUB, "pubsub", "Lists shard channels that have subscribers."),
    row("pubsub|shardnumsub", -2, Needs::Login, PUBSUB, "pubsub", "Returns how many subscribers shard channels have."),
    row("script|exists", -3, Needs::Login, WAIT, "scripting", "Tells which scripts are known."),
    row("script|flush", -2, Needs::Admin, WAIT, "scripting", "Forgets all scripts."),
    row("script|help", 2, Needs::Login, TELL, "scripting", "Lists the subcommands."),
    row("script|kill", 2, Needs::Admin, KILL, "scripting", "Ends scripts that have not written."),
    row("script|load", 3, Needs::Read, LOAD, "scripting", "Takes a script, to be run by its hash."),
    row("slowlog|get", -2, Needs::Monitor, LOG, "server", "Tells which commands took long."),
    row("slowlog|help", 2, Needs::Monitor, TELL, "server", "Lists the subcommands."),
    row("slowlog|len", 2, Needs::Monitor, LOG, "server", "Returns how many entries the log has."),
    row("slowlog|reset", 2, Needs::Admin, LOG, "server", "Empties the log."),
];
