//! Error texts of Redis, which clients compare.

use std::fmt::Write;

use esker_engine::ClusterError;

use crate::resp::wire::commands::Command;

pub(crate) const SYNTAX: &str = "ERR syntax error";
pub(crate) const NOT_AN_INTEGER: &str = "ERR value is not an integer or out of range";
pub(crate) const NOT_A_FLOAT: &str = "ERR value is not a valid float";
pub(crate) const OVERFLOW: &str = "ERR increment or decrement would overflow";
pub(crate) const TOO_LONG: &str = "ERR string exceeds maximum allowed size (proto-max-bulk-len)";
pub(crate) const NO_SUCH_KEY: &str = "ERR no such key";
pub(crate) const NO_SUCH_DATABASE: &str = "ERR DB index is out of range";
pub(crate) const SAME_OBJECT: &str = "ERR source and destination objects are the same";
pub(crate) const NOT_IN_SCRIPT: &str = "This Redis command is not allowed from script";
pub(crate) const UNSUPPORTED_OPTION: &str = "ERR Unsupported option";
pub(crate) const NOT_DECLARED: &str = "Script attempted to access a non declared key";
pub(crate) const NOT_IN_TRANSACTION: &str = "ERR Command not allowed inside a transaction";
pub(crate) const WRONG_PASSWORD: &str = "WRONGPASS invalid username-password pair or user is disabled.";
pub(crate) const NO_LOGIN: &str = "NOAUTH Authentication required.";
pub(crate) const NO_RIGHT_TO_KEY: &str =
    "NOPERM this user has no permissions to access one of the keys used as arguments";
pub(crate) const NO_RIGHT_TO_CHANNEL: &str =
    "NOPERM this user has no permissions to access one of the channels used as arguments";

pub(crate) const CROSS_SLOT: &str = "CROSSSLOT Keys in request don't hash to the same slot";
pub(crate) const NO_CLUSTER: &str = "ERR This instance has cluster support disabled";

pub(crate) fn no_right_to_database(database: u8) -> String {
    format!("NOPERM this user has no permissions to access database {database}")
}

pub(crate) fn not_while_subscribed(name: &str) -> String {
    format!(
        "ERR Can't execute '{name}': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are allowed in this \
         context"
    )
}

pub(crate) fn no_right_to_run(name: &str) -> String {
    format!("NOPERM this user has no permissions to run the '{name}' command")
}

pub(crate) fn no_right_any_more(reason: &str) -> String {
    format!(
        "NOPERM ACLs rules changed between the moment the transaction was accumulated and the EXEC call. This command \
         is no longer allowed for the following reason: {reason}"
    )
}

pub(crate) fn wrong_arguments(name: &str) -> String {
    format!("ERR wrong number of arguments for '{name}' command")
}

pub(crate) fn invalid_expiry(verb: &str) -> String {
    format!("ERR invalid expire time in '{verb}' command")
}

/// Returns the error for an unknown command. Like Redis, shows at most 128 bytes of the name and of the arguments.
pub(crate) fn unknown_command(command: Command<'_>) -> String {
    let mut text =
        format!("ERR unknown command '{}', with args beginning with: ", shown(command.verb(), 128));
    let mut room = 128;
    for argument in command.arguments(1) {
        let shown = shown(argument, room);
        let _ = write!(text, "'{shown}' ");
        room = room.saturating_sub(shown.chars().count() + 3);
        if room == 0 {
            break;
        }
    }
    text
}

/// Returns the error for a command of another data type, without its error code.
pub(crate) fn of_another_type(name: &str, family: &str) -> String {
    let name = name.to_ascii_uppercase();
    format!("Esker serves strings: {name} is a command of {family} (see docs/compatibility.md)")
}

pub(crate) fn unknown_subcommand(verb: &str, command: Command<'_>) -> String {
    let name = shown(command.argument(1), 128);
    format!("ERR unknown subcommand '{name}'. Try {verb} HELP.")
}

/// Returns the error for a known subcommand with a wrong number of arguments where Redis does not distinguish the
/// two.
pub(crate) fn unknown_or_wrong_arguments(verb: &str, command: Command<'_>) -> String {
    let name = shown(command.argument(1), 128);
    format!("ERR unknown subcommand or wrong number of arguments for '{name}'. Try {verb} HELP.")
}

/// Returns the error for a state of the cluster, with the code by which clients of Redis Cluster redirect or repeat a
/// command. An unknown outcome has a code of its own, after which no client repeats a write.
pub(crate) fn of_cluster(error: &ClusterError) -> String {
    match error {
        ClusterError::Elsewhere { slot, to } => format!("MOVED {slot} {to}"),
        ClusterError::NoLeader { slot, why } => {
            format!("CLUSTERDOWN Hash slot not served: slot {slot} has no leader: {why}")
        }
        ClusterError::NotReady { .. } | ClusterError::KeyInDoubt => format!("TRYAGAIN {error}"),
        ClusterError::SeveralGroups => CROSS_SLOT.to_owned(),
        ClusterError::Uncertain { .. } => format!("UNCERTAIN {error}"),
        _ => format!("ERR {error}"),
    }
}

/// Returns the error for a write that was done or answered while this node lost the lead of the group.
pub(crate) fn uncertain(why: &ClusterError) -> String {
    of_cluster(&ClusterError::Uncertain { why: why.to_string() })
}

/// Returns at most `bytes_max` bytes of an argument, up to the first zero byte, for an error text. Each character
/// stands for a byte: see [`Replies::error`](crate::resp::wire::reply::Replies::error).
pub(crate) fn shown(argument: &[u8], bytes_max: usize) -> String {
    let end = argument.iter().position(|&byte| byte == 0).unwrap_or(argument.len());
    argument[..end.min(bytes_max)].iter().copied().map(char::from).collect()
}

/// Returns true if an argument equals a word, ignoring case.
pub(crate) fn is(argument: &[u8], word: &str) -> bool {
    argument.eq_ignore_ascii_case(word.as_bytes())
}
