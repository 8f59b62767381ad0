//! Facts about Redis commands beside their flags: the first version, the access to keys, request and response
//! policies for proxies, and ACL categories.

use super::Verb;

/// The access to a key, in Redis' flags.
type Access = &'static [&'static str];

const LOOK: Access = &["RO"];
const READ: Access = &["RO", "access"];
const UPDATE: Access = &["RW", "update"];
const READ_UPDATE: Access = &["RW", "access", "update"];
const READ_DELETE: Access = &["RW", "access", "delete"];
const APPEND: Access = &["RW", "insert"];
const READ_APPEND: Access = &["RW", "access", "insert"];
const READ_KEEP: Access = &["RW", "access"];
const OVERWRITE: Access = &["OW", "update"];
const INSERT: Access = &["OW", "insert"];
const BITFIELD: Access = &["RW", "access", "update", "variable_flags"];
const DELETE: Access = &["RM", "delete"];
/// The argument is the name of a channel.
const NO_KEY: Access = &["not_key"];
const SET: Access = &["RW", "access", "update", "variable_flags"];

const EVERYWHERE: &str = "request_policy:all_shards";
const BY_KEY: &str = "request_policy:multi_shard";
const ALL: &str = "response_policy:all_succeeded";
const SUM: &str = "response_policy:agg_sum";
const LEAST: &str = "response_policy:agg_min";
const VARIES: &str = "nondeterministic_output";
const ANY_ORDER: &str = "nondeterministic_output_order";

/// Name, first version, access to the first key and to the following ones, and tips for proxies.
type Facts = (&'static str, &'static str, &'static [Access], &'static [&'static str]);

#[rustfmt::skip]
static FACTS: &[Facts] = &[
    ("append", "2.0.0", &[APPEND], &[]),
    ("decr", "1.0.0", &[READ_UPDATE], &[]),
    ("decrby", "1.0.0", &[READ_UPDATE], &[]),
    ("get", "1.0.0", &[READ], &[]),
    ("getdel", "6.2.0", &[READ_DELETE], &[]),
    ("getex", "6.2.0", &[READ_UPDATE], &[]),
    ("getrange", "2.4.0", &[READ], &[]),
    ("getset", "1.0.0", &[READ_UPDATE], &[]),
    ("incr", "1.0.0", &[READ_UPDATE], &[]),
    ("incrby", "1.0.0", &[READ_UPDATE], &[]),
    ("incrbyfloat", "2.6.0", &[READ_UPDATE], &[]),
    ("lcs", "7.0.0", &[READ], &[]),
    ("mget", "1.0.0", &[READ], &[BY_KEY]),
    ("mset", "1.0.1", &[OVERWRITE], &[BY_KEY, ALL]),
    ("msetnx", "1.0.1", &[INSERT], &[BY_KEY, LEAST]),
    ("psetex", "2.6.0", &[OVERWRITE], &[]),
    ("set", "1.0.0", &[SET], &[]),
    ("setex", "2.0.0", &[OVERWRITE], &[]),
    ("setnx", "1.0.0", &[INSERT], &[]),
    ("setrange", "2.2.0", &[UPDATE], &[]),
    ("strlen", "2.2.0", &[LOOK], &[]),
    ("substr", "1.0.0", &[READ], &[]),
    ("bitcount", "2.6.0", &[READ], &[]),
    ("bitfield", "3.2.0", &[BITFIELD], &[]),
    ("bitfield_ro", "6.0.0", &[READ], &[]),
    ("bitop", "2.6.0", &[OVERWRITE, READ], &[]),
    ("bitpos", "2.8.7", &[READ], &[]),
    ("getbit", "2.2.0", &[READ], &[]),
    ("setbit", "2.2.0", &[READ_UPDATE], &[]),
    ("pfadd", "2.8.9", &[APPEND], &[]),
    ("pfcount", "2.8.9", &[READ_KEEP], &[]),
    ("pfmerge", "2.8.9", &[READ_APPEND, READ], &[]),
    ("copy", "6.2.0", &[READ, OVERWRITE], &[]),
    ("del", "1.0.0", &[DELETE], &[BY_KEY, SUM]),
    ("dump", "2.6.0", &[READ], &[VARIES]),
    ("exists", "1.0.0", &[LOOK], &[BY_KEY, SUM]),
    ("expire", "1.0.0", &[UPDATE], &[]),
    ("expireat", "1.2.0", &[UPDATE], &[]),
    ("expiretime", "7.0.0", &[READ], &[]),
    ("keys", "1.0.0", &[], &[EVERYWHERE, ANY_ORDER]),
    ("move", "1.0.0", &[READ_UPDATE], &[]),
    ("object", "2.2.3", &[], &[]),
    ("object|encoding", "2.2.3", &[LOOK], &[VARIES]),
    ("object|freq", "4.0.0", &[LOOK], &[VARIES]),
    ("object|idletime", "2.2.3", &[LOOK], &[VARIES]),
    ("object|refcount", "2.2.3", &[LOOK], &[VARIES]),
    ("persist", "2.2.0", &[UPDATE], &[]),
    ("pexpire", "2.6.0", &[UPDATE], &[]),
    ("pexpireat", "2.6.0", &[UPDATE], &[]),
    ("pexpiretime", "7.0.0", &[READ], &[]),
    ("pttl", "2.6.0", &[READ], &[VARIES]),
    ("randomkey", "1.0.0", &[], &[EVERYWHERE, VARIES]),
    ("rename", "1.0.0", &[READ_DELETE, OVERWRITE], &[]),
    ("renamenx", "1.0.0", &[READ_DELETE, INSERT], &[]),
    ("restore", "2.6.0", &[OVERWRITE], &[]),
    ("scan", "2.8.0", &[], &[VARIES, "request_policy:special"]),
    ("touch", "3.2.1", &[LOOK], &[BY_KEY, SUM]),
    ("ttl", "1.0.0", &[READ], &[VARIES]),
    ("type", "1.0.0", &[LOOK], &[]),
    ("unlink", "4.0.0", &[DELETE], &[BY_KEY, SUM]),
    ("wait", "3.0.0", &[], &[EVERYWHERE, LEAST]),
    ("waitaof", "7.2.0", &[], &[EVERYWHERE, LEAST]),
    ("discard", "2.0.0", &[], &[]),
    ("exec", "1.2.0", &[], &[]),
    ("multi", "1.2.0", &[], &[]),
    ("unwatch", "2.2.0", &[], &[]),
    ("watch", "2.2.0", &[LOOK], &[]),
    ("eval", "2.6.0", &[READ_UPDATE], &[]),
    ("eval_ro", "7.0.0", &[READ], &[]),
    ("evalsha", "2.6.0", &[READ_UPDATE], &[]),
    ("evalsha_ro", "7.0.0", &[READ], &[]),
    ("script", "2.6.0", &[], &[]),
    ("function", "7.0.0", &[], &[]),
    ("auth", "1.0.0", &[], &[]),
    ("client", "2.4.0", &[], &[]),
    ("echo", "1.0.0", &[], &[]),
    ("hello", "6.0.0", &[], &[]),
    ("ping", "1.0.0", &[], &[EVERYWHERE, ALL]),
    ("quit", "1.0.0", &[], &[]),
    ("reset", "6.2.0", &[], &[]),
    ("select", "1.0.0", &[], &[]),
    ("psubscribe", "2.0.0", &[], &[]),
    ("publish", "2.0.0", &[], &[]),
    ("pubsub", "2.8.0", &[], &[]),
    ("punsubscribe", "2.0.0", &[], &[]),
    ("spublish", "7.0.0", &[NO_KEY], &[]),
    ("ssubscribe", "7.0.0", &[NO_KEY], &[]),
    ("subscribe", "2.0.0", &[], &[]),
    ("sunsubscribe", "7.0.0", &[NO_KEY], &[]),
    ("unsubscribe", "2.0.0", &[], &[]),
    ("acl", "6.0.0", &[], &[]),
    ("bgsave", "1.0.0", &[], &[]),
    ("cluster", "3.0.0", &[], &[]),
    ("command", "2.8.13", &[], &[ANY_ORDER]),
    ("config", "2.0.0", &[], &[]),
    ("dbsize", "1.0.0", &[], &[EVERYWHERE, SUM]),
    ("debug", "1.0.0", &[], &[]),
    ("flushall", "1.0.0", &[], &[EVERYWHERE, ALL]),
    ("flushdb", "1.0.0", &[], &[EVERYWHERE, ALL]),
    ("info", "1.0.0", &[], &[VARIES, EVERYWHERE, "response_policy:special"]),
    ("lastsave", "1.0.0", &[], &[VARIES]),
    ("latency", "2.8.13", &[], &[]),
    ("monitor", "1.0.0", &[], &[]),
    ("role", "2.8.12", &[], &[]),
    ("shutdown", "1.0.0", &[], &[]),
    ("slowlog", "2.2.12", &[], &[]),
    ("swapdb", "4.0.0", &[], &[]),
    ("time", "2.6.0", &[], &[VARIES]),
    ("memory", "4.0.0", &[], &[]),
    ("module", "4.0.0", &[], &[]),
    ("memory|usage", "4.0.0", &[LOOK], &[]),
    ("acl|cat", "6.0.0", &[], &[]),
    ("acl|deluser", "6.0.0", &[], &[]),
    ("acl|dryrun", "7.0.0", &[], &[]),
    ("acl|genpass", "6.0.0", &[], &[]),
    ("acl|getuser", "6.0.0", &[], &[]),
    ("acl|help", "6.0.0", &[], &[]),
    ("acl|list", "6.0.0", &[], &[]),
    ("acl|load", "6.0.0", &[], &[]),
    ("acl|log", "6.0.0", &[], &[]),
    ("acl|save", "6.0.0", &[], &[]),
    ("acl|setuser", "6.0.0", &[], &[]),
    ("acl|users", "6.0.0", &[], &[]),
    ("acl|whoami", "6.0.0", &[], &[]),
    ("client|caching", "6.0.0", &[], &[]),
    ("client|durability", env!("CARGO_PKG_VERSION"), &[], &[]),
    ("client|getname", "2.6.9", &[], &[]),
    ("client|getredir", "6.0.0", &[], &[]),
    ("client|help", "5.0.0", &[], &[]),
    ("client|id", "5.0.0", &[], &[]),
    ("client|info", "6.2.0", &[], &[VARIES]),
    ("client|kill", "2.4.0", &[], &[]),
    ("client|list", "2.4.0", &[], &[VARIES]),
    ("client|no-evict", "7.0.0", &[], &[]),
    ("client|no-touch", "7.2.0", &[], &[]),
    ("client|pause", "2.9.50", &[], &[]),
    ("client|reply", "3.2.0", &[], &[]),
    ("client|setinfo", "7.2.0", &[], &[]),
    ("client|setname", "2.6.9", &[], &[]),
    ("client|tracking", "6.0.0", &[], &[]),
    ("client|trackinginfo", "6.2.0", &[], &[]),
    ("client|unblock", "5.0.0", &[], &[]),
    ("client|unpause", "6.2.0", &[], &[]),
    ("command|count", "2.8.13", &[], &[]),
    ("command|docs", "7.0.0", &[], &[ANY_ORDER]),
    ("command|getkeys", "2.8.13", &[], &[]),
    ("command|getkeysandflags", "7.0.0", &[], &[]),
    ("command|help", "5.0.0", &[], &[]),
    ("command|info", "2.8.13", &[], &[ANY_ORDER]),
    ("command|list", "7.0.0", &[], &[ANY_ORDER]),
    ("config|get", "2.0.0", &[], &[]),
    ("config|help", "5.0.0", &[], &[]),
    ("config|resetstat", "2.0.0", &[], &[]),
    ("config|rewrite", "2.8.0", &[], &[]),
    ("config|set", "2.0.0", &[], &["request_policy:all_nodes", ALL]),
    ("function|list", "7.0.0", &[], &[ANY_ORDER]),
    ("latency|doctor", "2.8.13", &[], &[VARIES, "request_policy:all_nodes", "response_policy:special"]),
    ("latency|graph", "2.8.13", &[], &[VARIES, "request_policy:all_nodes", "response_policy:special"]),
    ("latency|help", "2.8.13", &[], &[]),
    ("latency|histogram", "7.0.0", &[], &[VARIES, "request_policy:all_nodes", "response_policy:special"]),
    ("latency|history", "2.8.13", &[], &[VARIES, "request_policy:all_nodes", "response_policy:special"]),
    ("latency|latest", "2.8.13", &[], &[VARIES, "request_policy:all_nodes", "response_policy:special"]),
    ("latency|reset", "2.8.13", &[], &["request_policy:all_nodes", ALL]),
    ("memory|doctor", "4.0.0", &[], &[VARIES, EVERYWHERE, "response_policy:special"]),
    ("memory|help", "4.0.0", &[], &[]),
    ("memory|purge", "4.0.0", &[], &[EVERYWHERE, ALL]),
    ("memory|stats", "4.0.0", &[], &[VARIES, EVERYWHERE, "response_policy:special"]),
    ("module|list", "4.0.0", &[], &[ANY_ORDER]),
    ("object|help", "6.2.0", &[], &[]),
    ("pubsub|channels", "2.8.0", &[], &[]),
    ("pubsub|help", "6.2.0", &[], &[]),
    ("pubsub|numpat", "2.8.0", &[], &[]),
    ("pubsub|numsub", "2.8.0", &[], &[]),
    ("pubsub|shardchannels", "7.0.0", &[], &[]),
    ("pubsub|shardnumsub", "7.0.0", &[], &[]),
    ("script|exists", "2.6.0", &[], &[EVERYWHERE, "response_policy:agg_logical_and"]),
    ("script|flush", "2.6.0", &[], &["request_policy:all_nodes", ALL]),
    ("script|help", "5.0.0", &[], &[]),
    ("script|kill", "2.6.0", &[], &[EVERYWHERE, "response_policy:one_succeeded"]),
    ("script|load", "2.6.0", &[], &["request_policy:all_nodes", ALL]),
    ("slowlog|get", "2.2.12", &[], &["request_policy:all_nodes", VARIES]),
    ("slowlog|help", "6.2.0", &[], &[]),
    ("slowlog|len", "2.2.12", &[], &["request_policy:all_nodes", SUM, VARIES]),
    ("slowlog|reset", "2.2.12", &[], &["request_policy:all_nodes", ALL]),
];

/// The facts of verbs that are not in the table.
static UNKNOWN: Facts = ("", "1.0.0", &[], &[]);

fn facts(verb: &Verb) -> &'static Facts {
    FACTS.iter().find(|(name, ..)| *name == verb.name).unwrap_or(&UNKNOWN)
}

#[cfg(test)]
pub(super) fn is_known(verb: &Verb) -> bool {
    !std::ptr::eq(facts(verb), &UNKNOWN)
}

/// Returns the first version of Redis with this command.
pub(in crate::resp) fn since(verb: &Verb) -> &'static str {
    facts(verb).1
}

/// Returns the access to the key at index `behind`.
pub(in crate::resp) fn access(verb: &Verb, behind: usize) -> Access {
    let known = facts(verb).2;
    known.get(behind).or(known.last()).copied().unwrap_or(&[])
}

/// Returns the number of different accesses to the verb's keys; at least one.
pub(in crate::resp) fn treatments(verb: &Verb) -> usize {
    facts(verb).2.len().max(1)
}

/// Returns the access of SET to its key, which depends on its arguments.
pub(in crate::resp) fn access_of_set(tells: bool) -> Access {
    if tells { READ_UPDATE } else { OVERWRITE }
}

/// Returns the access of BITFIELD to its key, which depends on its arguments.
pub(in crate::resp) fn access_of_bitfield(only_looks: bool) -> Access {
    if only_looks { READ } else { READ_UPDATE }
}

/// Returns Redis' note on the access to the keys.
pub(in crate::resp) fn note(verb: &Verb) -> Option<&'static str> {
    match verb.name {
        "bitfield" => Some("This command allows both access and modification of the key"),
        "getex" => Some("RW and UPDATE because it changes the TTL"),
        "pfcount" => {
            Some("RW because it may change the internal representation of the key, and propagate to replicas")
        }
        "eval" => Some("We cannot tell how the keys will be used so we assume the worst, RW and UPDATE"),
        "eval_ro" => Some("We cannot tell how the keys will be used so we assume the worst, RO and ACCESS"),
        "set" => Some("RW and ACCESS due to the optional `GET` argument"),
        _ => None,
    }
}

/// Returns the tips for proxies: routing of requests and merging of responses.
pub(in crate::resp) fn tips(verb: &Verb) -> &'static [&'static str] {
    facts(verb).3
}

/// Redis' ACL categories, in its order. Those of other data types contain no commands.
pub(in crate::resp) const CATEGORIES: [&str; 21] = [
    "keyspace",
    "read",
    "write",
    "set",
    "sortedset",
    "list",
    "hash",
    "string",
    "bitmap",
    "hyperloglog",
    "geo",
    "stream",
    "pubsub",
    "admin",
    "fast",
    "slow",
    "blocking",
    "dangerous",
    "connection",
    "transaction",
    "scripting",
];

/// Returns the categories of a verb.
pub(in crate::resp) fn categories(verb: &Verb) -> impl Iterator<Item = &'static str> + Clone + use<'_> {
    CATEGORIES.into_iter().filter(|category| is_in(verb, category))
}

/// Returns true if a verb is in a category.
pub(in crate::resp) fn is_in(verb: &Verb, category: &str) -> bool {
    let (name, has) = (verb.name, |flag| verb.flags.contains(&flag));
    let waits = ["wait", "waitaof"].contains(&name);
    let admin = has("admin") || ["lastsave", "role"].contains(&name);
    match category {
        "keyspace" => {
            verb.group == "generic" && !waits && name != "object"
                || ["dbsize", "flushall", "flushdb", "swapdb"].contains(&name)
        }
        "read" => has("readonly") && verb.group != "scripting",
        "write" => has("write"),
        "string" => verb.group == "string",
        "bitmap" => verb.group == "bitmap",
        "hyperloglog" => verb.group == "hyperloglog",
        "pubsub" => verb.group == "pubsub" && !["pubsub", "pubsub|help"].contains(&name),
        "admin" => admin,
        "fast" => has("fast"),
        "slow" => !has("fast"),
        "dangerous" => admin || ["keys", "restore", "flushall", "flushdb", "info", "swapdb"].contains(&name),
        "connection" => {
            verb.group == "connection" && name != "client"
                || waits
                || name.split('|').next() == Some("command")
        }
        "scripting" => verb.group == "scripting" && !["script", "function"].contains(&name),
        "transaction" => verb.group == "transactions",
        _ => false,
    }
}
