//! Replacements for commands that Esker does not serve.

use esker_server::served::Unserved;

/// Advice by the data type or feature of Redis.
const BY_FAMILY: [(&str, &str); 9] = [
    (
        "lists",
        "keep queues on a server that has lists; a value that is read as a whole can be one string (SET, APPEND)",
    ),
    (
        "hashes",
        "one string of JSON for each object (GET, SET), or one key for each field (key:field) with MGET and MSET, which a \
         transaction or script changes together",
    ),
    (
        "sets",
        "one key for each member (key:member) with SET, EXISTS and DEL, a bitmap of numbers (SETBIT), or PFADD to count",
    ),
    (
        "sorted sets",
        "keep rankings and delayed jobs on a server that has sorted sets; rate limits work with INCR and EXPIRE",
    ),
    (
        "streams",
        "keep streams on a server that has them, or a log; PUBLISH reaches the clients that listen at the moment",
    ),
    ("geo", "keep positions on a server that has geo commands"),
    ("functions", "EVAL or EVALSHA with the function's text"),
    ("cluster", "connect without the cluster mode of the client; one Esker serves all slots"),
    (
        "replication",
        "sent by replicas and tools, not by applications; esker export and esker import move the keys",
    ),
];

/// Advice by the name of a command.
const BY_COMMAND: [(&str, &str); 12] = [
    ("save", "leave it out: each write is in the log already; BGSAVE takes a backup"),
    ("bgrewriteaof", "leave it out: Esker collects garbage by itself"),
    ("migrate", "esker export --from and esker import --to"),
    ("cluster", "connect without the cluster mode of the client; one Esker serves all slots"),
    ("debug", "esker inspect, esker check; no application needs it"),
    ("pfdebug", "a command for tests of Redis"),
    ("pfselftest", "a command for tests of Redis"),
    ("script|debug", "run the script in a redis-server to debug it"),
    ("script", "SCRIPT EXISTS, FLUSH, KILL and LOAD are served"),
    ("memory", "MEMORY DOCTOR, STATS and USAGE are served"),
    ("config", "CONFIG GET, SET and RESETSTAT are served; settings are kept in the file of esker serve"),
    ("module", "modules cannot be loaded"),
];

/// Advice for commands of modules, whose names contain a point.
const MODULES: &str = "a command of a module: keep it on a server that has the module";

/// Returns the advice for a command that is not served.
pub(super) fn of(unserved: &Unserved) -> &'static str {
    let named = |(name, _): &&(&str, &str)| *name == unserved.command;
    let of_family = |(family, _): &&(&str, &str)| unserved.family == Some(*family);
    if let Some((_, advice)) = BY_FAMILY.iter().find(of_family) {
        return advice;
    }
    if let Some((_, advice)) = BY_COMMAND.iter().find(named) {
        return advice;
    }
    match &unserved.error {
        _ if unserved.command.contains('.') => MODULES,
        error if error.contains("non declared key") => "pass every key that the script uses in KEYS",
        error if error.contains("not allowed from script") => "call it outside of the script",
        error if error.contains("inside a transaction") => "call it outside of MULTI and EXEC",
        error if error.contains("compiling script") => {
            "correct the script; Redis refuses it too, because it has the same Lua 5.1"
        }
        error if error.contains("syntax error") || error.contains("option") => {
            "leave out the option, which is newer than Redis 7.4 or belongs to another type; see docs/compatibility.md"
        }
        _ => "see docs/compatibility.md",
    }
}

#[cfg(test)]
mod tests {
    use esker_server::served::{Caller, check_name, command_names};

    use super::*;

    #[test]
    fn every_feature_that_the_server_lacks_has_advice() {
        let mut families = 0;
        for name in command_names() {
            if let Err(unserved) = check_name(name, Caller::Client) {
                assert_ne!(of(&unserved), "see docs/compatibility.md", "{name}");
                families += u32::from(unserved.family.is_some());
            }
        }
        assert!(families > 100, "{families}");
        for (name, _) in BY_FAMILY {
            let of_family =
                |known| matches!(check_name(known, Caller::Client), Err(found) if found.family == Some(name));
            assert!(command_names().any(of_family), "{name} is no feature that the server names");
        }
    }
}
