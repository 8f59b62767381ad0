//! HELP of verbs with subcommands, in the layout of Redis and where possible in its words.

use crate::resp::wire::commands::Command;
use crate::resp::wire::error_text;
use crate::resp::wire::reply::Replies;

const CLIENT: &str = "\
CACHING (YES|NO)
    Enable/disable tracking of the keys for next command in OPTIN/OPTOUT modes.
DURABILITY [<level> [NEXT]]
    Tell or set how writes of this connection are acknowledged.
GETREDIR
    Return the client ID we are redirecting to when tracking is enabled.
GETNAME
    Return the name of the current connection.
ID
    Return the ID of the current connection.
INFO
    Return information about the current client connection.
KILL <ip:port>
    Kill connection made from <ip:port>.
KILL <option> <value> [<option> <value> [...]]
    Kill connections. Options are:
    * ADDR <ip:port>
      Kill connections made from the specified address
    * ID <client-id>
      Kill the connection with this ID
    * LADDR <ip:port>
      Kill connections made to specified local address
    * TYPE (NORMAL|MASTER|REPLICA|PUBSUB)
      Kill connections by type.
    * USER <username>
      Kill connections authenticated by <username>.
    * SKIPME (YES|NO)
      Skip killing current connection (default: yes).
LIST [options ...]
    Return information about client connections. Options:
    * TYPE (NORMAL|MASTER|REPLICA|PUBSUB)
      Return clients of specified type.
    * ID <client-id> [<client-id> ...]
      Return clients with these IDs.
PAUSE <timeout> [WRITE|ALL]
    Suspend all, or just write, clients for <timeout> milliseconds.
REPLY (ON|OFF|SKIP)
    Control the replies sent to the current connection.
SETINFO (LIB-NAME|LIB-VER) <value>
    Tell which library the client uses.
SETNAME <name>
    Assign the name <name> to the current connection.
TRACKING (ON|OFF) [REDIRECT <id>] [BCAST] [PREFIX <prefix> [...]]
         [OPTIN] [OPTOUT] [NOLOOP]
    Control server assisted client side caching.
TRACKINGINFO
    Report tracking status for the current connection.
UNBLOCK <clientid> [TIMEOUT|ERROR]
    Has no effect: no command blocks its client.
UNPAUSE
    Stop the current client pause, resuming traffic.
NO-EVICT (ON|OFF)
    Has no effect: no client is evicted.
NO-TOUCH (ON|OFF)
    Has no effect: a key that is read counts as used.";

const PUBSUB: &str = "\
CHANNELS [<pattern>]
    Return the currently active channels matching a <pattern> (default: '*').
NUMPAT
    Return number of subscriptions to patterns.
NUMSUB [<channel> ...]
    Return the number of subscribers for the specified channels, excluding
    pattern subscriptions(default: no channels).
SHARDCHANNELS [<pattern>]
    Return the currently active shard level channels matching a <pattern> (default: '*').
SHARDNUMSUB [<shardchannel> ...]
    Return the number of subscribers for the specified shard level channel(s)";

const CONFIG: &str = "\
GET <pattern>
    Return parameters matching the glob-like <pattern> and their values.
SET <directive> <value>
    Set the configuration <directive> to <value>.
RESETSTAT
    Reset statistics reported by the INFO command.
REWRITE
    Rewrite the configuration file.";

const COMMAND: &str = "\
(no subcommand)
    Return details about all Redis commands.
COUNT
    Return the total number of commands in this Redis server.
LIST
    Return a list of all commands in this Redis server.
INFO [<command-name> ...]
    Return details about multiple Redis commands.
    If no command names are given, documentation details for all
    commands are returned.
DOCS [<command-name> ...]
    Return documentation details about multiple Redis commands.
    If no command names are given, documentation details for all
    commands are returned.
GETKEYS <full-command>
    Return the keys from a full Redis command.
GETKEYSANDFLAGS <full-command>
    Return the keys and the access flags from a full Redis command.";

const SCRIPT: &str = "\
EXISTS <sha1> [<sha1> ...]
    Return information about the existence of the scripts in the script cache.
FLUSH [ASYNC|SYNC]
    Flush the Lua scripts cache.
    Both modes are the same.
KILL
    Kill the currently executing Lua scripts that have not written.
LOAD <script>
    Load a script into the scripts cache without executing it.";

const SLOWLOG: &str = "\
GET [<count>]
    Return top <count> entries from the slowlog (default: 10, -1 mean all).
    Entries are made of:
    id, timestamp, time in microseconds, arguments array, client IP and port,
    client name
LEN
    Return the length of the slowlog.
RESET
    Reset the slowlog.";

const LATENCY: &str = "\
DOCTOR
    Return a human readable latency analysis report.
GRAPH <event>
    Return an ASCII latency graph for the <event> class.
HISTORY <event>
    Return time-latency samples for the <event> class.
LATEST
    Return the latest latency samples for all events.
RESET [<event> ...]
    Reset latency data of one or more <event> classes.
    (default: reset all data for all event classes)
HISTOGRAM [COMMAND ...]
    Return a cumulative distribution of latencies in the format of a histogram for the specified command names.
    If no commands are specified then all histograms are replied.";

const MEMORY: &str = "\
DOCTOR
    Return memory problems reports.
PURGE
    Has no effect: memory is given back as soon as it can be.
STATS
    Return information about the memory usage of the server.
USAGE <key> [SAMPLES <count>]
    Return memory in bytes used by <key> and its value.";

const OBJECT: &str = "\
ENCODING <key>
    Return the kind of internal representation used in order to store the value
    associated with a <key>.
FREQ <key>
    Return the access frequency index of the <key>. The returned integer is
    proportional to the logarithm of the recent access frequency of the key.
IDLETIME <key>
    Return the idle time of the <key>, that is the approximated number of
    seconds elapsed since the last access to the key.
REFCOUNT <key>
    Return the number of references of the value associated with the specified
    <key>.";

const ACL: &str = "\
CAT [<category>]
    List all commands that belong to <category>, or all command categories
    when no category is specified.
DELUSER <username> [<username> ...]
    Delete a list of users.
DRYRUN <username> <command> [<arg> ...]
    Returns whether the user can execute the given command without executing the command.
GETUSER <username>
    Get the user's details.
GENPASS [<bits>]
    Generate a secure 256-bit user password. The optional `bits` argument can
    be used to specify a different size.
LIST
    Show users details in config file format.
LOAD
    Reload users from the ACL file.
LOG [<count> | RESET]
    Show the ACL log entries.
SAVE
    Save the current config to the ACL file.
SETUSER <username> <attribute> [<attribute> ...]
    Create or modify a user with the specified attributes.
USERS
    List all the registered usernames.
WHOAMI
    Return the current connection username.";

/// Answers `verb HELP`.
pub(in crate::resp::command) fn help(verb: &str, command: Command<'_>, replies: &mut Replies) {
    if command.len() != 2 {
        return replies.error(&error_text::wrong_arguments(&format!("{verb}|help")));
    }
    let text = match verb {
        "client" => CLIENT,
        "config" => CONFIG,
        "command" => COMMAND,
        "script" => SCRIPT,
        "slowlog" => SLOWLOG,
        "latency" => LATENCY,
        "memory" => MEMORY,
        "object" => OBJECT,
        "pubsub" => PUBSUB,
        _ => ACL,
    };
    replies.array(text.lines().count() + 3);
    let verb = verb.to_ascii_uppercase();
    replies.simple(&format!("{verb} <subcommand> [<arg> [value] [opt] ...]. Subcommands are:"));
    text.lines().chain(["HELP", "    Prints this help."]).for_each(|line| replies.simple(line));
}
