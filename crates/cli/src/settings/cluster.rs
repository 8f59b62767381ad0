//! Settings of a node of a cluster.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::layers::Settings;
use crate::secret;

/// Divisor: part of the tier that is written first that the log of the groups may take. The engine allows a quarter of a small tier,
/// and 4 GiB of a large one.
const LOG_PART: u64 = 8;
/// Least memory of a node in bytes: each group has an index of its own.
const MEMORY_BYTES: u64 = 256 << 20;
/// Bounds of the log's length in segments. A group may append 4 MiB at a time.
const LOG_SEGMENTS: [u64; 2] = [16, 256];

/// Least time by which replicas may be behind.
const STALENESS_LEAST: Duration = Duration::from_millis(200);
/// Least limit of copies of groups, in bytes a second: above the longest value within the patience of a receiver.
const COPY_LIMIT_LEAST: u64 = 8 << 20;

/// The way of a node into its cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Begin {
    /// It founds one, with this number of groups.
    Found(u8),
    /// It asks these addresses, each `HOST:PORT`. None: the store is a member.
    Join(Vec<String>),
    /// It becomes the only node of a new one, in which these groups begin empty.
    Recover(Vec<u8>),
}

/// Certificates for the connections between nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PeerTls {
    pub(crate) certificate: PathBuf,
    pub(crate) key: PathBuf,
    pub(crate) authority: PathBuf,
}

/// The settings of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ClusterSettings {
    pub(crate) listen: SocketAddr,
    pub(crate) begin: Begin,
    pub(crate) secret: Option<String>,
    pub(crate) tls: Option<PeerTls>,
    pub(crate) allow_plain: bool,
    /// Addresses for other nodes and for clients, each `HOST:PORT`, if they are not those of the settings `cluster` and
    /// `resp`.
    pub(crate) advertise: Option<String>,
    pub(crate) advertise_resp: Option<String>,
    /// Address at which clients reach the replicas, `HOST:PORT`, if it is not that of `cluster-replica-resp`.
    pub(crate) advertise_replica: Option<String>,
    /// Maximum time by which a replica that answers reads is behind its leader.
    pub(crate) staleness: Duration,
    pub(crate) copy_bytes_per_s: u64,
    pub(crate) zone: String,
    pub(crate) replicas: usize,
}

/// Settings that have no effect without `cluster`.
const OF_CLUSTER: [&str; 20] = [
    "cluster-new",
    "cluster-recover",
    "cluster-recover-without",
    "join",
    "cluster-secret",
    "cluster-secret-file",
    "cluster-advertise",
    "cluster-advertise-resp",
    "cluster-replica-resp",
    "cluster-replica-resp-tls",
    "cluster-advertise-replica-resp",
    "cluster-replica-staleness",
    "cluster-copy-limit",
    "cluster-zone",
    "cluster-groups",
    "cluster-replicas",
    "cluster-allow-plain",
    "cluster-tls-cert",
    "cluster-tls-key",
    "cluster-tls-ca",
];

impl Settings {
    /// Returns the settings of the node; `None` for a store on its own.
    pub(super) fn cluster(&self) -> Result<Option<ClusterSettings>, String> {
        for name in OF_CLUSTER {
            self.require(
                name,
                "cluster",
                "the store is a node of a cluster only with an address for the others",
            )?;
        }
        let Some(given) = self.explicit("cluster") else { return Ok(None) };
        let listen = match self.addresses("cluster")[..] {
            [listen] => listen,
            ref all => return Err(format!("{given} must be one address, and has {}", all.len())),
        };
        self.exclude("cluster-new", "join", "a node founds a cluster or joins one")?;
        self.require(
            "cluster-groups",
            "cluster-new",
            "the number of groups is fixed when the cluster is founded",
        )?;
        self.check_replicable()?;
        self.exclude("cluster-new", "cluster-recover", "a node founds a cluster or recovers one")?;
        self.require("cluster-recover-without", "cluster-recover", "groups are given up only by a recovery")?;
        let begin = if self.switch("cluster-recover") {
            Begin::Recover(self.groups_given_up()?)
        } else if self.switch("cluster-new") {
            Begin::Found(self.count("cluster-groups") as u8)
        } else {
            Begin::Join(self.names("join"))
        };
        let memory = self.bytes("memory").expect("memory has a default");
        if memory < MEMORY_BYTES {
            let memory = self.get("memory").expect("memory has a default");
            return Err(format!(
                "{given} needs a memory of at least 256m, for an index of each group and the log; {memory} is {}",
                memory.text
            ));
        }
        let tls = self.peer_tls()?;
        let allow_plain = self.switch("cluster-allow-plain");
        if tls.is_none() && !allow_plain && !listen.ip().to_canonical().is_loopback() {
            return Err(format!(
                "{given} is reachable by other machines, and the connections between nodes are not encrypted: give \
                 cluster-tls-cert, cluster-tls-key and cluster-tls-ca, or set cluster-allow-plain"
            ));
        }
        let secret = self.cluster_secret()?;
        if secret.is_none() && tls.is_none() {
            return Err(format!(
                "{given} needs cluster-secret-file, cluster-secret, or the certificates cluster-tls-cert, -key and -ca: \
                 without them any program could join the cluster"
            ));
        }
        let text = |name| self.word(name).map(str::to_owned);
        for name in ["cluster-advertise", "cluster-advertise-resp", "cluster-advertise-replica-resp"] {
            self.check_host_port(name)?;
        }
        Ok(Some(ClusterSettings {
            listen,
            begin,
            secret,
            tls,
            allow_plain,
            advertise: text("cluster-advertise"),
            advertise_resp: text("cluster-advertise-resp"),
            advertise_replica: text("cluster-advertise-replica-resp"),
            staleness: self.staleness()?,
            copy_bytes_per_s: self.copy_bytes_per_s()?,
            zone: text("cluster-zone").unwrap_or_default(),
            replicas: self.word("cluster-replicas").and_then(|word| word.parse().ok()).unwrap_or(3),
        }))
    }

    /// Returns the bytes a second in which copies of groups are sent; 0 for no limit.
    fn copy_bytes_per_s(&self) -> Result<u64, String> {
        let bytes = self.bytes("cluster-copy-limit").unwrap_or_default();
        match self.get("cluster-copy-limit") {
            Some(given) if bytes > 0 && bytes < COPY_LIMIT_LEAST => Err(format!(
                "{given}: the least is 8m, because a node gives up a copy of which no part comes within 10 s; 0 is no limit"
            )),
            _ => Ok(bytes),
        }
    }

    /// Returns the time by which replicas that answer reads may be behind.
    fn staleness(&self) -> Result<Duration, String> {
        let staleness = self.time("cluster-replica-staleness").unwrap_or_default();
        match self.get("cluster-replica-staleness") {
            Some(given) if staleness < STALENESS_LEAST => Err(format!(
                "{given}: the least is {} ms, because a replica hears of commits by heartbeats every 100 ms",
                STALENESS_LEAST.as_millis()
            )),
            _ => Ok(staleness),
        }
    }

    /// Refuses settings that a replicated store cannot have.
    fn check_replicable(&self) -> Result<(), String> {
        self.exclude("cluster", "databases", "a node of a cluster has database 0 alone")?;
        for (name, allowed, why) in [
            ("when-full", "refuse", "nodes would evict different keys"),
            ("durability", "sync", "a write is acknowledged when it is durable on a majority"),
            ("coalesce-for", "0", "a write is acknowledged when it is durable on a majority"),
        ] {
            if let (Some(given), Some(cluster)) = (self.explicit(name), self.explicit("cluster"))
                && given.text != allowed
            {
                return Err(format!("{cluster} and {given}: {name} must be {allowed}, because {why}"));
            }
        }
        Ok(())
    }

    fn peer_tls(&self) -> Result<Option<PeerTls>, String> {
        let names = ["cluster-tls-cert", "cluster-tls-key", "cluster-tls-ca"];
        for name in names {
            for other in names {
                self.require(name, other, "nodes prove to each other who they are by all three")?;
            }
        }
        let [certificate, key, authority] = names.map(|name| self.path(name));
        Ok(certificate.zip(key).zip(authority).map(|((certificate, key), authority)| PeerTls {
            certificate,
            key,
            authority,
        }))
    }

    fn cluster_secret(&self) -> Result<Option<String>, String> {
        self.exclude("cluster-secret", "cluster-secret-file", "give the secret in one of them")?;
        if let Some(given) = self.get("cluster-secret") {
            return Ok(Some(given.text.clone()));
        }
        let Some(given) = self.get("cluster-secret-file") else { return Ok(None) };
        let secret = secret::read(Path::new(&given.text)).map_err(|error| format!("{given}: {error}"))?;
        Ok(Some(secret))
    }

    fn check_host_port(&self, name: &str) -> Result<(), String> {
        let Some(given) = self.get(name) else { return Ok(()) };
        let port = given.text.rsplit_once(':').filter(|(host, _)| !host.is_empty());
        match port.and_then(|(_, port)| port.parse::<u16>().ok()) {
            Some(1..) => Ok(()),
            _ => Err(format!("{given}: '{}' is not HOST:PORT", given.text)),
        }
    }

    /// Returns the groups that a recovery gives up.
    fn groups_given_up(&self) -> Result<Vec<u8>, String> {
        let wrong = |name: String| {
            format!(
                "cluster-recover-without names '{name}'; it must be numbers of groups, separated by commas"
            )
        };
        let names = self.names("cluster-recover-without").into_iter();
        names.map(|name| name.parse().map_err(|_| wrong(name))).collect()
    }

    /// Returns the number of segments that are set aside for the log of the groups.
    pub(super) fn group_log_segments(&self) -> u32 {
        let first = if self.get("fast").is_some() { "fast-limit" } else { "capacity-limit" };
        let tier_bytes = self.bytes(first).unwrap_or(TIER_BYTES);
        let segment_bytes = self.bytes("segment-size").unwrap_or(SEGMENT_BYTES);
        let [least, most] = LOG_SEGMENTS;
        (tier_bytes / LOG_PART / segment_bytes).clamp(least, most) as u32
    }
}

/// Size in bytes of a tier that no setting limits, and usual length of a segment, for the length of the log.
const TIER_BYTES: u64 = 16 << 30;
const SEGMENT_BYTES: u64 = 16 << 20;
