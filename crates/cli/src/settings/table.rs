//! Every setting, once. The file, the environment, the flags, `--help`, `--check-config` and
//! `docs/esker.toml` are all generated from this table.

use super::kind::Kind;

/// The sources that may give a setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Places {
    /// The file, the environment and a flag.
    All,
    /// All but a flag, which every user of the machine could read. The value is never shown.
    Secret,
    /// Only a flag, because the setting is for one start.
    FlagOnly,
}

/// One setting.
#[derive(Debug)]
pub(crate) struct Setting {
    /// The key in the file and the name of the flag; in capitals after `ESKER_` the environment variable.
    pub(crate) name: &'static str,
    /// The syntax of its text.
    pub(crate) kind: Kind,
    /// The default text; empty if there is none.
    pub(crate) default: &'static str,
    /// The behaviour if it has no value and no default.
    pub(crate) unset: &'static str,
    /// Heading in the file and in `--help`.
    pub(crate) group: &'static str,
    /// Its allowed sources.
    pub(crate) places: Places,
    /// Its meaning.
    pub(crate) meaning: &'static str,
}

const STORE: &str = "Store";
const NETWORK: &str = "Network";
const ACCESS: &str = "Access";
const TLS: &str = "TLS";
const LIMITS: &str = "Limits";
const LOG: &str = "Log";

macro_rules! settings {
    ($($group:ident $name:literal $kind:expr, $default:literal $(else $unset:literal)? $(in $places:ident)?, $meaning:literal;)*) => {
        /// Every setting, in the order in which they are shown.
        pub(crate) static SETTINGS: &[Setting] = &[$(Setting {
            name: $name,
            kind: $kind,
            default: $default,
            unset: concat!("" $(, $unset)?),
            group: $group,
            places: settings!(@places $($places)?),
            meaning: $meaning,
        },)*];
    };
    (@places) => { Places::All };
    (@places $places:ident) => { Places::$places };
}

/// Default port of the setting `resp`.
const DEFAULT_PORT: u16 = 6379;

/// Names of settings in Redis and other servers.
const ELSEWHERE: &[(&str, &str)] = &[
    ("addr", "resp"),
    ("address", "resp"),
    ("bind", "resp"),
    ("data-dir", "dir"),
    ("datadir", "dir"),
    ("busy-reply-threshold", "script-time-limit"),
    ("listen", "resp"),
    ("lua-time-limit", "script-time-limit"),
    ("maxclients", "connections"),
    ("maxmemory", "memory"),
    ("maxmemory-policy", "when-full"),
    ("port", "resp"),
    ("requirepass", "password"),
    ("threads", "workers"),
    ("timeout", "idle-timeout"),
    ("tls-port", "resp-tls"),
    ("unixsocket", "unix-socket"),
    ("unixsocketperm", "unix-socket-mode"),
];

#[rustfmt::skip]
settings! {
    STORE "dir" Kind::Path, "" else "./esker-data if neither fast nor capacity is given",
        "Directory that holds the store in files; its parent must be there.";
    STORE "fast" Kind::Path, "" else "no fast tier",
        "Block device or file of the fast tier; without capacity the only tier.";
    STORE "capacity" Kind::Path, "" else "no capacity tier beside dir",
        "Block device or file of the capacity tier; without fast the only tier.";
    STORE "durability" Kind::Durability, "sync",
        "When a write is acknowledged: sync (on the medium), process (in memory that outlives the process), periodic (a second), periodic:MS (more than a second only counts with coalesce-for) or none.";
    STORE "coalesce-for" Kind::Time, "0",
        "How long writes that are not sync may wait in memory to be overwritten: what is, is never written to the drive. A power cut takes what waits. Takes a quarter of the memory, and is of use with one tier. 0: they do not wait.";
    STORE "compression" Kind::Compression, "lz4",
        "How values are compressed that are put and become an eighth shorter by it: lz4, zstd (level 3), zstd:LEVEL (1 to 22) or off.";
    STORE "when-full" Kind::Choice(&esker_server::WHEN_FULL_WORDS), "refuse",
        "What becomes of writes when the store is full: refuse them, evict (a cache: drop keys that were not asked for of late), evict-expiring (only keys with a time to live), or one of Redis' words for maxmemory-policy.";
    STORE "memory" Kind::Size, "512m",
        "Memory for the index, write buffers, the read cache and clients (client-memory). Not covered: 118 bytes for each 16 MiB of drive.";
    STORE "fast-limit" Kind::Size, "" else "the device; for a file 1g, or its file system if that is smaller",
        "How large the fast tier may grow.";
    STORE "capacity-limit" Kind::Size, "" else "the device; for a file 256g, or its file system if that is smaller",
        "How large the capacity tier or the directory may grow. Set it to the largest size ever wanted before the first start: how far it can be raised is fixed then.";
    STORE "iu" Kind::Size, "" else "what the kernel reports above 4k, else 64k; 4k in a directory",
        "Indirection unit of the capacity tier, 4k to 4m, fixed when it is formatted; for RAID 5 or 6 the full stripe. Ask esker device first: most drives report 4k to the kernel whatever they map.";
    STORE "reserve" Kind::Count(5, 50), "20",
        "Share of the capacity that users cannot fill (over-provisioning), in percent; a small store keeps more to work in (the log says at the start what users may fill).";
    STORE "background-limit" Kind::Size, "" else "no limit",
        "Bytes a second that destaging and garbage collection may read and write; writes are slowed down if it is not enough.";
    STORE "scrub-limit" Kind::Size, "" else "as many that a pass takes a week",
        "Bytes a second that the scrub reads, which looks for rot in what keys lead to; 0: there is none.";
    STORE "backup-dir" Kind::Path, "" else "no backups by BGSAVE",
        "Directory into which BGSAVE takes backups of the store.";
    STORE "drive-log" Kind::Path, "" else "the drive's flash is not shown",
        "NVMe drive on which records stay, such as /dev/nvme0, or a file with its log pages, to show what reaches its flash.";
    STORE "backend" Kind::Choice(&["auto", "uring", "threads"]), "auto",
        "How to do input and output: io_uring, threads that block, or whichever works.";
    STORE "force-format" Kind::Switch, "false" in FlagOnly,
        "Format devices that hold something else; all of it is lost. A tier of a store is never formatted.";
    STORE "accept-loss" Kind::Switch, "false" in FlagOnly,
        "Open a store of which something is missing or damaged, without what was lost; the refused start before says what.";
    STORE "databases" Kind::Count(1, 16), "16",
        "Databases that clients may choose, by the numbers from 0 on; one that is not used costs nothing.";
    NETWORK "resp" Kind::Addresses, "127.0.0.1:6379",
        "Addresses that answer RESP, the protocol of Redis, in plain text, or none.";
    NETWORK "resp-tls" Kind::Addresses, "" else "no TLS port",
        "Addresses that answer RESP over TLS, beside the plain ones.";
    NETWORK "unix-socket" Kind::Path, "" else "no unix socket",
        "Path of a unix socket that answers RESP in plain text, beside the addresses or, where they are none, alone.";
    NETWORK "unix-socket-mode" Kind::Mode, "700",
        "Permissions of the unix socket, in octal: whoever may write to it may connect.";
    NETWORK "http" Kind::Addresses, "" else "no HTTP",
        "Addresses of the live page at /, /status.json, /metrics, /healthz, /readyz and /readyz/write over plain HTTP.";
    NETWORK "http-tls" Kind::Addresses, "" else "no HTTPS",
        "The same over HTTPS.";
    NETWORK "http-hosts" Kind::Text, "" else "IP addresses and localhost only",
        "Names with commas between them that HTTP without a password is asked by, beside IP addresses and localhost.";
    NETWORK "grpc" Kind::Addresses, "" else "no gRPC",
        "Addresses that answer gRPC (esker.v1) over plain HTTP/2.";
    NETWORK "grpc-tls" Kind::Addresses, "" else "no gRPC over TLS",
        "Addresses that answer gRPC over TLS.";
    NETWORK "notify-keyspace-events" Kind::Text, "" else "nothing is told",
        "Events of keys that are told on channels, in Redis' letters, such as Ex or KEA.";
    NETWORK "workers" Kind::Count(1, 1024), "" else "one for each core but one, which the store's own threads need",
        "Threads that serve clients.";
    ACCESS "password" Kind::Text, "" else "no password" in Secret,
        "Password of the user default, who may do everything. Give it in the file or the environment.";
    ACCESS "password-file" Kind::Path, "" else "no file",
        "File whose first line is the password of the user default, such as a mounted secret; in place of password.";
    ACCESS "users" Kind::Path, "" else "no users",
        "File of users with hashed passwords and rights, made by esker user.";
    ACCESS "allow-unauthenticated" Kind::Switch, "false",
        "Serve addresses that other machines reach even though nobody needs a password.";
    TLS "tls-cert" Kind::Path, "" else "no TLS",
        "Certificate chain of the server, in PEM.";
    TLS "tls-key" Kind::Path, "" else "no TLS",
        "Private key of the server's certificate, in PEM.";
    TLS "tls-client-ca" Kind::Path, "" else "clients need no certificate",
        "Certificates, in PEM, of the authorities that clients' certificates must come from.";
    TLS "tls-client-auth" Kind::Choice(&["required", "optional"]), "" else "required if tls-client-ca is given",
        "Whether a client must show a certificate (required) or may (optional).";
    LIMITS "connections" Kind::Count(1, 1_000_000), "10000",
        "Connections at a time.";
    LIMITS "connections-per-address" Kind::Count(1, 1_000_000), "1000",
        "Connections at a time from one IPv4 address or one IPv6 /64.";
    LIMITS "client-memory" Kind::Size, "" else "an eighth of memory",
        "Part of memory for all clients together: input, commands that run, answers that wait.";
    LIMITS "client-memory-each" Kind::Size, "" else "three quarters of client-memory",
        "How much of client-memory one client may take, at most three quarters.";
    LIMITS "argument-limit" Kind::Size, "16m",
        "Bytes of one argument, so of one value; at most a third of client-memory-each.";
    LIMITS "arguments" Kind::Count(10, 1 << 24), "1048576",
        "Arguments of one command.";
    LIMITS "inline-limit" Kind::Size, "64k",
        "Bytes of a command that is sent as a line.";
    LIMITS "pipeline" Kind::Count(1, 1 << 20), "4096",
        "Commands of one client that are taken up at once; more wait in the input.";
    LIMITS "reply-queue" Kind::Size, "1m",
        "Bytes of answers that wait for a client before nothing more is read from it (soft limit).";
    LIMITS "reply-queue-limit" Kind::Size, "64m",
        "Bytes of answers that wait for a client before it is disconnected (hard limit).";
    LIMITS "reply-timeout" Kind::Time, "30s",
        "How long a client over the soft limit may go without taking 64 KiB of its answers a second; 0 for ever.";
    LIMITS "command-timeout" Kind::Time, "30s",
        "How long a command may take to arrive, with a second more for each 64 KiB of it; 0 for ever.";
    LIMITS "login-timeout" Kind::Time, "10s",
        "How long a client may take to shake hands and to log in where it must; 0 for ever.";
    LIMITS "idle-timeout" Kind::Time, "0",
        "How long a client may be silent between commands; 0 for ever.";
    LIMITS "tcp-keepalive" Kind::Time, "300s",
        "How long a connection is silent before TCP asks three times, a third of this apart, whether its other end is still there; 0 to never ask.";
    LIMITS "memory-timeout" Kind::Time, "10s",
        "How long a client waits for client-memory before it is disconnected.";
    LIMITS "script-time-limit" Kind::Time, "5s",
        "How long a script may run before it is ended.";
    LIMITS "script-memory" Kind::Size, "8m",
        "Memory of a script's interpreter; half as much it may write, and half as much answer. At most a quarter of client-memory-each.";
    LIMITS "tracking-table-max-keys" Kind::Count(0, 1 << 40), "1000000",
        "Keys that are remembered for clients that keep them (CLIENT TRACKING); 0 for as many as an eighth of client-memory has room for.";
    LIMITS "drain-delay" Kind::Time, "0",
        "How long to serve on after SIGTERM while /readyz says 503, for load balancers to notice.";
    LIMITS "drain-timeout" Kind::Time, "10s",
        "How long commands that were read may take to finish after SIGTERM.";
    LOG "log" Kind::Text, "info",
        "What is logged, such as info or warn,esker_server=debug.";
    LOG "log-format" Kind::Choice(&["text", "json"]), "text",
        "Form of the log: lines for people, or an object of JSON a line.";
}

impl Setting {
    /// Returns the name of the environment variable.
    pub(crate) fn variable(&self) -> String {
        format!("ESKER_{}", self.name.to_ascii_uppercase().replace('-', "_"))
    }

    /// Returns the setting with a name.
    pub(crate) fn find(name: &str) -> Option<&'static Setting> {
        SETTINGS.iter().find(|setting| setting.name == name)
    }

    /// Returns the setting that has this name in another server.
    pub(crate) fn elsewhere(name: &str) -> Option<&'static Setting> {
        let (_, ours) = ELSEWHERE.iter().find(|(theirs, _)| *theirs == as_written(name))?;
        Setting::find(ours)
    }

    /// Returns the setting with the name most similar to a mistyped one, or with this name in another
    /// server.
    pub(crate) fn nearest(name: &str) -> Option<&'static Setting> {
        let wanted = as_written(name);
        let near = SETTINGS.iter().map(|setting| (strsim::jaro_winkler(&wanted, setting.name), setting));
        let (likeness, nearest) = near.max_by(|a, b| a.0.total_cmp(&b.0))?;
        Setting::elsewhere(name).or((likeness > 0.8).then_some(nearest))
    }
}

/// Converts a name to the spelling of the table.
fn as_written(name: &str) -> String {
    name.to_ascii_lowercase().replace('_', "-")
}

/// Returns a setting as a flag. An address gets this machine and the port of `value`, if `value` is a
/// port.
pub(crate) fn flag_for(setting: &Setting, value: Option<&str>) -> String {
    if setting.kind.placeholder() != Kind::Addresses.placeholder() {
        return format!("--{}", setting.name);
    }
    let port: Option<u16> = value.and_then(|value| value.parse().ok());
    format!("--{} 127.0.0.1:{}", setting.name, port.unwrap_or(DEFAULT_PORT))
}
