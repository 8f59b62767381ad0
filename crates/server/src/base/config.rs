//! Configuration of a server.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;

use esker_cluster::view::ClusterView;
use esker_engine::Store;

use crate::base::keyspace_events::KeyspaceEvents;
use crate::base::otlp::TraceConfig;
use crate::{Error, Limits, Result};

/// Settings of a [`Server`](crate::Server).
#[derive(Clone, Debug)]
pub struct Config {
    /// Addresses that answer RESP in plain text. Port 0 takes any free port.
    pub resp: Vec<SocketAddr>,
    /// Addresses that answer RESP over TLS.
    pub resp_tls: Vec<SocketAddr>,
    /// Addresses that answer RESP in plain text, at which replicas of a cluster answer reads after READONLY.
    pub replica_resp: Vec<SocketAddr>,
    /// The same over TLS.
    pub replica_resp_tls: Vec<SocketAddr>,
    /// A unix socket that answers RESP in plain text.
    pub unix: Option<UnixSocket>,
    /// Addresses that serve `/metrics`, `/healthz`, `/readyz` and `/readyz/write` over plain HTTP.
    pub http: Vec<SocketAddr>,
    /// Addresses that serve the same paths over HTTPS.
    pub http_tls: Vec<SocketAddr>,
    /// Host names that unauthenticated HTTP requests may use in `Host`, beside IP addresses and `localhost`.
    pub http_hosts: Vec<String>,
    /// Addresses that answer gRPC over plain HTTP/2.
    pub grpc: Vec<SocketAddr>,
    /// Addresses that answer gRPC over TLS.
    pub grpc_tls: Vec<SocketAddr>,
    /// Users, passwords and their rights.
    pub access: Access,
    /// Certificate and key; required for TLS addresses.
    pub tls: Option<TlsFiles>,
    /// Limits per client and for all clients together.
    pub limits: Limits,
    /// Number of databases that clients can select; 1 to [`Store::DATABASES`](esker_engine::Store::DATABASES).
    pub databases: u8,
    /// Directory for backups by BGSAVE; `None`: BGSAVE is refused.
    pub backup_dir: Option<PathBuf>,
    /// NVMe drive of the tier where records stay, or a file with its log pages; its flash write counters are reported.
    pub drive_log: Option<PathBuf>,
    /// Keyspace events that are published on channels.
    pub keyspace_events: KeyspaceEvents,
    /// Traces of slow requests; `None`: no traces.
    pub traces: Option<TraceConfig>,
    /// Additional settings that `CONFIG GET` returns: name and value, such as `("dir", "/data")`.
    pub settings: Vec<(String, String)>,
    /// Filter of log lines; without it `CONFIG` has no `log` parameter.
    pub log: Option<Arc<dyn LogFilter>>,
    /// The cluster of a replicated store. It is created after the store is opened, so it is set before
    /// [`Server::on`](crate::Server::on), and has no effect on [`Sockets::bind`](crate::Sockets::bind). The server then has
    /// database 0 alone.
    pub cluster: Option<Arc<dyn ClusterView>>,
}

/// A unix socket. Any process with write permission on its file may connect; password rules are the same as over TCP.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnixSocket {
    /// Path of the socket file. The file of a dead server is replaced.
    pub path: PathBuf,
    /// Permissions of the file.
    pub mode: u32,
}

/// The log filter, owned by the program that started the server.
pub trait LogFilter: fmt::Debug + Send + Sync {
    /// The filter in force, such as `info` or `warn,esker_server=debug`.
    fn text(&self) -> String;

    /// Checks the syntax of a filter.
    ///
    /// # Errors
    /// A description of the syntax error.
    fn check(&self, filter: &str) -> std::result::Result<(), String>;

    /// Replaces the filter in force.
    ///
    /// # Errors
    /// As [`check`](Self::check); the filter in force stays.
    fn set(&self, filter: &str) -> std::result::Result<(), String>;
}

/// Users and their rights. By default every client may do everything, and only this machine can connect.
#[derive(Clone, Debug, Default)]
pub struct Access {
    /// Password of the user `default`, which has all rights.
    pub password: Option<Password>,
    /// File of users, in the format of [`UserFile`](crate::UserFile).
    pub users: Option<PathBuf>,
    /// True to serve other machines although no password is required.
    pub allow_unauthenticated: bool,
}

/// TLS files. They are reloaded on [`Control::reload`](crate::Control::reload) and when they change.
#[derive(Clone, Debug)]
pub struct TlsFiles {
    /// Certificate chain, in PEM.
    pub certificate: PathBuf,
    /// Private key of the certificate, in PEM.
    pub key: PathBuf,
    /// Verification of client certificates; `None`: clients are not asked for one.
    pub clients: Option<ClientCertificates>,
}

/// Requirements on client certificates.
#[derive(Clone, Debug)]
pub struct ClientCertificates {
    /// Certificates of the accepted certificate authorities, in PEM.
    pub authorities: PathBuf,
    /// True if clients without a certificate are rejected.
    pub required: bool,
}

/// Maximum length of a password in bytes. Longer passwords cannot be set, and fail a login without being hashed.
pub const PASSWORD_BYTES_MAX: usize = 1024;

/// A password. `Debug` does not reveal it.
#[derive(Clone)]
pub struct Password(String);

impl Password {
    /// Wraps the text.
    pub fn new(text: &str) -> Password {
        Password(text.to_owned())
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        self.0.as_bytes()
    }

    /// Fails if the password is longer than [`PASSWORD_BYTES_MAX`].
    pub(crate) fn check_length(bytes: &[u8]) -> Result<()> {
        if bytes.len() <= PASSWORD_BYTES_MAX { Ok(()) } else { Err(Error::PasswordTooLong) }
    }
}

impl fmt::Debug for Password {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Password(not shown)")
    }
}

impl Config {
    /// Returns a configuration with one RESP address and defaults for everything else.
    pub fn resp(address: SocketAddr) -> Config {
        Config {
            resp: vec![address],
            resp_tls: Vec::new(),
            replica_resp: Vec::new(),
            replica_resp_tls: Vec::new(),
            unix: None,
            http: Vec::new(),
            http_tls: Vec::new(),
            http_hosts: Vec::new(),
            grpc: Vec::new(),
            grpc_tls: Vec::new(),
            access: Access::default(),
            tls: None,
            limits: Limits::default(),
            databases: Store::DATABASES,
            backup_dir: None,
            drive_log: None,
            keyspace_events: KeyspaceEvents::default(),
            traces: None,
            settings: Vec::new(),
            log: None,
            cluster: None,
        }
    }

    /// Returns all TCP addresses by the name of their setting.
    pub fn addresses(&self) -> [(&'static str, Vec<SocketAddr>); 8] {
        [
            ("resp", self.resp.clone()),
            ("resp-tls", self.resp_tls.clone()),
            ("cluster-replica-resp", self.replica_resp.clone()),
            ("cluster-replica-resp-tls", self.replica_resp_tls.clone()),
            ("http", self.http.clone()),
            ("http-tls", self.http_tls.clone()),
            ("grpc", self.grpc.clone()),
            ("grpc-tls", self.grpc_tls.clone()),
        ]
    }

    /// Returns the first address of a setting that other machines can reach without authentication.
    pub fn exposed(&self, setting: &str, addresses: &[SocketAddr]) -> Option<SocketAddr> {
        let access = &self.access;
        let certificates = self.tls.as_ref().and_then(|tls| tls.clients.as_ref());
        let asked = access.password.is_some()
            || access.users.is_some()
            || access.allow_unauthenticated
            || setting.ends_with("-tls") && certificates.is_some_and(|clients| clients.required);
        addresses.iter().copied().find(|address| !asked && !address.ip().to_canonical().is_loopback())
    }

    /// Returns the first two addresses that cannot both be bound, with the names of their settings.
    pub fn clash(&self) -> Option<[(&'static str, SocketAddr); 2]> {
        let named = |(name, of): (_, Vec<_>)| of.into_iter().map(move |address| (name, address));
        let all: Vec<_> = self.addresses().into_iter().flat_map(named).collect();
        let first_with = |(at, one): (usize, &(&'static str, SocketAddr))| {
            let other = all[at + 1..].iter().find(|other| overlap(one.1, other.1));
            other.map(|other| [*one, *other])
        };
        all.iter().enumerate().find_map(first_with)
    }

    /// Rejects unsafe or impossible configurations.
    pub(crate) fn check(&self) -> Result<()> {
        if !(1..=Store::DATABASES).contains(&self.databases) {
            return Err(Error::Databases { asked: self.databases });
        }
        if let Some(password) = &self.access.password {
            Password::check_length(password.bytes())?;
        }
        for (setting, addresses) in self.addresses() {
            if let Some(address) = self.exposed(setting, &addresses) {
                return Err(Error::Exposed { address });
            }
            if setting.ends_with("-tls") && !addresses.is_empty() && self.tls.is_none() {
                return Err(Error::NoCertificate { address: addresses[0] });
            }
        }
        Ok(())
    }
}

/// Returns true if the kernel refuses to bind both addresses.
fn overlap(one: SocketAddr, other: SocketAddr) -> bool {
    // The unspecified IPv6 address covers all addresses, IPv4 included.
    let covers = |wide: IpAddr, narrow: IpAddr| {
        wide == narrow || wide.is_unspecified() && (wide.is_ipv6() || narrow.is_ipv4())
    };
    let (a, b) = (one.ip().to_canonical(), other.ip().to_canonical());
    one.port() == other.port() && one.port() != 0 && (covers(a, b) || covers(b, a))
}
