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
    /// The file, the environment and a flag. The value is never shown.
    Hidden,
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
const CLUSTER: &str = "Cluster";
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
    ("cluster-announce-ip", "cluster-advertise"),
    ("cluster-enabled", "cluster"),
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
        "Directory that holds the store in files; its parent directory must exist.";
    STORE "fast" Kind::Paths, "" else "no fast tier",
        "Block device or file of the fast tier; without capacity the only tier. Given several times (in a file a list): the tier has several devices, at most 32, in any order.";
    STORE "capacity" Kind::Paths, "" else "no capacity tier beside dir",
        "Block device or file of the capacity tier; without fast the only tier. Given several times (in a file a list): the tier has several devices, at most 32, in any order.";
    STORE "on-device-loss" Kind::Choice(&["stop", "serve"]), "stop",
        "When one of several devices of a tier fails: stop (no more writes) or serve (writes go to the other devices, and reads of keys on the failed one are errors).";
    STORE "drain" Kind::Paths, "" else "none",
        "Devices of fast or capacity that get no new records: theirs are moved to the other devices of the tier. A device that is empty is removed from the store (the log says so), and must not be given again.";
    STORE "durability" Kind::Durability, "sync",
        "When a write is acknowledged: sync (on the medium), process (in memory that outlives the process), periodic (a second), periodic:MS (more than a second only counts with coalesce-for) or none.";
    STORE "coalesce-for" Kind::Time, "0",
        "How long writes below sync may wait in memory; a record that is overwritten meanwhile is never written to the drive. A power failure loses the waiting writes. Takes a quarter of the memory; only for a store of one tier. 0: writes do not wait.";
    STORE "compression" Kind::Compression, "lz4",
        "Compression of new values that it makes at least an eighth shorter: lz4, zstd (level 3), zstd:LEVEL (1 to 22) or off.";
    STORE "when-full" Kind::Choice(&esker_server::WHEN_FULL_WORDS), "refuse",
        "Policy for writes to a full store: refuse, evict (a cache: drop keys that were not read lately), evict-expiring (only keys with a time to live), or a word of Redis' maxmemory-policy.";
    STORE "memory" Kind::Size, "512m",
        "Memory for the index, the table of segments, write buffers, the read cache and clients (client-memory).";
    STORE "fast-limit" Kind::Size, "" else "the device; for a file 1g, or its file system if that is smaller",
        "Maximum size of the fast tier.";
    STORE "capacity-limit" Kind::Size, "" else "the device; for a file 256g, or its file system if that is smaller",
        "Maximum size of the capacity tier or the directory. It may be raised at any start; the limits at the first start determine the alignment of records.";
    STORE "iu" Kind::Size, "" else "the kernel's value if above 4k, else 64k; 4k in a directory",
        "Indirection unit of the capacity tier, 4k to 4m, fixed when it is formatted; for RAID 5 or 6 the full stripe. Ask esker device first: most drives report 4k to the kernel whatever they map.";
    STORE "segment-size" Kind::Size, "" else "16m, or as long as a large drive and the memory need",
        "Length of a segment, fixed when the store is formatted: a power of two from 64k to 512m. A drive above 5 TB gets longer ones, so that it has about 300,000, as far as the memory allows: each tier holds two of them in memory, and garbage collection two more.";
    STORE "reserve" Kind::Count(5, 50), "20",
        "Share of the capacity that users cannot fill (over-provisioning), in percent; a small store reserves more (the log at the start has the user limit).";
    STORE "max-garbage" Kind::MaxGarbage, "auto",
        "Garbage that stays although segments are free, in percent of the live data; off: all, until free segments run low, which writes least; auto: off on a device or with a limit (fast-limit, capacity-limit), else reserve / (100 - reserve). A bound keeps files, backups and openings small.";
    STORE "background-limit" Kind::Size, "" else "no limit",
        "Bytes a second that destaging and garbage collection may read and write together; writes slow down if the limit is too low.";
    STORE "scrub-limit" Kind::Size, "" else "a pass a week",
        "Bytes a second that the scrub reads to verify current records; 0: no scrub.";
    STORE "backup-dir" Kind::Path, "" else "no backups by BGSAVE",
        "Directory into which BGSAVE takes backups of the store.";
    STORE "drive-log" Kind::Path, "" else "flash writes are not shown",
        "NVMe drive of the capacity tier, such as /dev/nvme0, or a file with its log pages, to show the bytes written to its flash.";
    STORE "backend" Kind::Choice(&["auto", "uring", "threads"]), "auto",
        "Input and output: io_uring (uring), blocking threads, or auto, which prefers io_uring.";
    STORE "force-format" Kind::Switch, "false" in FlagOnly,
        "Format devices that hold other data, all of which is lost. A tier of a store is never formatted.";
    STORE "accept-loss" Kind::Switch, "false" in FlagOnly,
        "Open an incomplete or damaged store without the lost data; the message of the refused start lists it.";
    STORE "databases" Kind::Count(1, 16), "16",
        "Number of databases, numbered from 0; an unused database costs nothing.";
    NETWORK "resp" Kind::Addresses, "127.0.0.1:6379",
        "Addresses that answer RESP, the protocol of Redis, in plain text, or none.";
    NETWORK "resp-tls" Kind::Addresses, "" else "no TLS port",
        "Addresses that answer RESP over TLS, beside the plain ones.";
    NETWORK "unix-socket" Kind::Path, "" else "no unix socket",
        "Path of a unix socket that answers RESP in plain text, in addition to the addresses of resp.";
    NETWORK "unix-socket-mode" Kind::Mode, "700",
        "Permissions of the unix socket, in octal: a user with write permission may connect.";
    NETWORK "http" Kind::Addresses, "" else "no HTTP",
        "Addresses of the live page at /, /status.json, /metrics, /healthz, /readyz and /readyz/write over plain HTTP.";
    NETWORK "http-tls" Kind::Addresses, "" else "no HTTPS",
        "The same over HTTPS.";
    NETWORK "http-hosts" Kind::Text, "" else "IP addresses and localhost only",
        "Host names, separated by commas, that HTTP without a password accepts in addition to IP addresses and localhost.";
    NETWORK "grpc" Kind::Addresses, "" else "no gRPC",
        "Addresses that answer gRPC (esker.v1) over plain HTTP/2.";
    NETWORK "grpc-tls" Kind::Addresses, "" else "no gRPC over TLS",
        "Addresses that answer gRPC over TLS.";
    NETWORK "notify-keyspace-events" Kind::Text, "" else "no events",
        "Key events that are published on channels, in Redis' letters, such as Ex or KEA.";
    NETWORK "workers" Kind::Count(1, 1024), "" else "one for each core but one, which the store's own threads need",
        "Threads that serve clients.";
    CLUSTER "cluster" Kind::Addresses, "" else "not a node of a cluster",
        "Address for the other nodes of a cluster; in the section [cluster] of the file also listen. The store is a member already, or becomes one by cluster-new or join.";
    CLUSTER "cluster-new" Kind::Switch, "false" in FlagOnly,
        "Found a cluster, whose first node this is. The store must be empty.";
    CLUSTER "cluster-recover" Kind::Switch, "false" in FlagOnly,
        "Make this member the only node of a new cluster, for one start, because the majority of the old one is lost for good. What only the lost nodes had is lost, and they are refused; new nodes join.";
    CLUSTER "cluster-recover-without" Kind::Text, "" else "no group is given up" in FlagOnly,
        "Numbers of groups, separated by commas, of which a member that recovers has nothing: they begin empty.";
    CLUSTER "join" Kind::Text, "" else "the cluster that the store is a member of",
        "Addresses of nodes of a cluster (their setting cluster), separated by commas. An empty store joins it; a member asks them for the others.";
    CLUSTER "cluster-secret" Kind::Text, "" else "no secret" in Hidden,
        "Secret that all nodes of a cluster share. Every user of the machine can read a flag: prefer cluster-secret-file.";
    CLUSTER "cluster-secret-file" Kind::Path, "" else "no file",
        "File whose first line is the secret that all nodes share; in place of cluster-secret.";
    CLUSTER "cluster-advertise" Kind::Text, "" else "the address of cluster",
        "Address at which the other nodes reach this one, HOST:PORT, if it is not the one of cluster.";
    CLUSTER "cluster-advertise-resp" Kind::Text, "" else "the first address of resp, with the host of cluster-advertise",
        "Address at which clients of the Redis protocol reach this node, HOST:PORT; it is in the answers of CLUSTER SLOTS and MOVED.";
    CLUSTER "cluster-replica-resp" Kind::Addresses, "" else "no reads from replicas",
        "Addresses that answer RESP like resp, at which clients read after READONLY from the copies that this node has, whether it leads or not. CLUSTER SLOTS lists the first one as a replica.";
    CLUSTER "cluster-replica-resp-tls" Kind::Addresses, "" else "no TLS port for reads from replicas",
        "The same over TLS, with the certificate of tls-cert.";
    CLUSTER "cluster-advertise-replica-resp" Kind::Text, "" else "the first address of cluster-replica-resp, with the host of cluster-advertise",
        "Address at which clients reach cluster-replica-resp, HOST:PORT.";
    CLUSTER "cluster-replica-staleness" Kind::Time, "500ms",
        "Maximum time by which a copy that answers reads may be behind its leader, at least 200ms: a node whose copies are older sends clients to the leader.";
    CLUSTER "cluster-copy-limit" Kind::Size, "32m",
        "Bytes of keys and values a second that this node sends in copies of groups, as for moves, at least 8m; 0: no limit.";
    CLUSTER "cluster-zone" Kind::Text, "" else "no zone",
        "Zone of this node, such as a rack or a data centre, shown by esker cluster nodes.";
    CLUSTER "cluster-groups" Kind::Count(1, 14), "12",
        "Groups into which the keys of a new cluster are divided, fixed when it is founded. Each has a leader and a log of its own.";
    CLUSTER "cluster-replicas" Kind::Choice(&["1", "3", "5"]), "3",
        "Nodes that have a copy of each key and vote, if there are as many.";
    CLUSTER "cluster-allow-plain" Kind::Switch, "false",
        "Talk to nodes on other machines without TLS: what is sent is not encrypted, only the secret is protected.";
    CLUSTER "cluster-tls-cert" Kind::Path, "" else "no TLS between nodes",
        "Certificate chain of this node for other nodes, in PEM.";
    CLUSTER "cluster-tls-key" Kind::Path, "" else "no TLS between nodes",
        "Private key of that certificate, in PEM.";
    CLUSTER "cluster-tls-ca" Kind::Path, "" else "no TLS between nodes",
        "Certificate, in PEM, of the authority that issued the certificates of all nodes.";
    ACCESS "password" Kind::Text, "" else "no password" in Secret,
        "Password of the user default, who has all rights. Give it in the file or the environment.";
    ACCESS "password-file" Kind::Path, "" else "no file",
        "File whose first line is the password of the user default, such as a mounted secret; in place of password.";
    ACCESS "users" Kind::Path, "" else "no users",
        "File of users with hashed passwords and rights, made by esker user.";
    ACCESS "allow-unauthenticated" Kind::Switch, "false",
        "Serve addresses that other machines can reach although no password is set.";
    TLS "tls-cert" Kind::Path, "" else "no TLS",
        "Certificate chain of the server, in PEM.";
    TLS "tls-key" Kind::Path, "" else "no TLS",
        "Private key of the server's certificate, in PEM.";
    TLS "tls-client-ca" Kind::Path, "" else "clients need no certificate",
        "Certificates, in PEM, of the authorities that issue client certificates.";
    TLS "tls-client-auth" Kind::Choice(&["required", "optional"]), "" else "required if tls-client-ca is given",
        "Client certificates: required, or optional.";
    LIMITS "connections" Kind::Count(1, 1_000_000), "10000",
        "Connections at a time.";
    LIMITS "connections-per-address" Kind::Count(1, 1_000_000), "1000",
        "Connections at a time from one IPv4 address or one IPv6 /64.";
    LIMITS "client-memory" Kind::Size, "" else "an eighth of memory",
        "Part of memory for all clients together: input, running commands, waiting replies.";
    LIMITS "client-memory-each" Kind::Size, "" else "three quarters of client-memory",
        "Maximum part of client-memory for one client, at most three quarters.";
    LIMITS "argument-limit" Kind::Size, "16m",
        "Maximum bytes of one argument, and so of one value; at most a third of client-memory-each.";
    LIMITS "arguments" Kind::Count(10, 1 << 24), "1048576",
        "Arguments of one command.";
    LIMITS "inline-limit" Kind::Size, "64k",
        "Bytes of a command that is sent as a line.";
    LIMITS "pipeline" Kind::Count(1, 1 << 20), "4096",
        "Maximum commands of one client that run as one batch; further commands wait in the input.";
    LIMITS "reply-queue" Kind::Size, "1m",
        "Bytes of waiting replies from which no more input of the client is read (soft limit).";
    LIMITS "reply-queue-limit" Kind::Size, "64m",
        "Bytes of waiting replies from which the client is disconnected (hard limit).";
    LIMITS "reply-timeout" Kind::Time, "30s",
        "How long a client over the soft limit may read fewer than 64 KiB of replies a second; 0: no limit.";
    LIMITS "command-timeout" Kind::Time, "30s",
        "How long a command may take to arrive, plus a second for each 64 KiB; 0: no limit.";
    LIMITS "login-timeout" Kind::Time, "10s",
        "How long a client may take for the TLS handshake and a required login; 0: no limit.";
    LIMITS "idle-timeout" Kind::Time, "0",
        "How long a client may be idle between commands; 0: no limit.";
    LIMITS "tcp-keepalive" Kind::Time, "300s",
        "Idle time after which TCP sends three keepalive probes, a third of this time apart; 0: no probes.";
    LIMITS "memory-timeout" Kind::Time, "10s",
        "How long a client waits for client-memory before it is disconnected.";
    LIMITS "script-time-limit" Kind::Time, "5s",
        "How long a script may run before it is stopped.";
    LIMITS "script-memory" Kind::Size, "8m",
        "Memory of a script's interpreter; a script may write and reply half as much each. At most a quarter of client-memory-each.";
    LIMITS "tracking-table-max-keys" Kind::Count(0, 1 << 40), "1000000",
        "Maximum keys in the table of CLIENT TRACKING; 0: as many as fit in an eighth of client-memory.";
    LIMITS "drain-delay" Kind::Time, "0",
        "How long to continue to serve after SIGTERM while /readyz returns 503, so that load balancers notice.";
    LIMITS "drain-timeout" Kind::Time, "10s",
        "How long received commands may take to finish after SIGTERM.";
    LOG "log" Kind::Text, "info",
        "Log filter, such as info or warn,esker_server=debug.";
    LOG "log-format" Kind::Choice(&["text", "json"]), "text",
        "Format of the log: text, or a JSON object per line.";
    LOG "otlp-endpoint" Kind::Text, "" else "no traces",
        "Collector of OpenTelemetry (OTLP over plain HTTP, such as http://127.0.0.1:4318) that gets a span for each slow request, without keys and values.";
    LOG "otlp-slower-than" Kind::Time, "10ms",
        "How long a request runs before it counts as slow for otlp-endpoint; 0: each request becomes a span.";
}

impl Setting {
    /// Returns the name of the environment variable.
    pub(crate) fn variable(&self) -> String {
        format!("ESKER_{}", self.name.to_ascii_uppercase().replace('-', "_"))
    }

    /// Returns true if its value must not be shown.
    pub(crate) fn is_hidden(&self) -> bool {
        matches!(self.places, Places::Secret | Places::Hidden)
    }

    /// Returns the name of a setting by its key in the section `[cluster]` of a file.
    pub(crate) fn in_cluster_section(key: &str) -> String {
        match key {
            "listen" => "cluster".to_owned(),
            "join" => "join".to_owned(),
            _ => format!("cluster-{key}"),
        }
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
