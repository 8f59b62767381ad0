//! How a server is set up.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;

use esker_engine::Store;

use crate::base::keyspace_events::KeyspaceEvents;
use crate::{Error, Limits, Result};

/// Settings of a [`Server`](crate::Server).
#[derive(Clone, Debug)]
pub struct Config {
    /// Addresses that answer RESP in plain text. Port 0 takes any free port.
    pub resp: Vec<SocketAddr>,
    /// Addresses that answer RESP over TLS.
    pub resp_tls: Vec<SocketAddr>,
    /// A unix socket that answers RESP in plain text.
    pub unix: Option<UnixSocket>,
    /// Addresses of `/metrics`, `/healthz`, `/readyz` and `/readyz/write` over plain HTTP.
    pub http: Vec<SocketAddr>,
    /// The same over HTTPS.
    pub http_tls: Vec<SocketAddr>,
    /// Names under which HTTP is asked for without a password, beside IP addresses and `localhost`.
    pub http_hosts: Vec<String>,
    /// Addresses that answer gRPC over plain HTTP/2.
    pub grpc: Vec<SocketAddr>,
    /// Addresses that answer gRPC over TLS.
    pub grpc_tls: Vec<SocketAddr>,
    /// Who may do what.
    pub access: Access,
    /// Certificate and key; needed for the addresses that speak TLS.
    pub tls: Option<TlsFiles>,
    /// What one client and all clients together may take.
    pub limits: Limits,
    /// How many databases clients may choose from; 1 to [`Store::DATABASES`](esker_engine::Store::DATABASES).
    pub databases: u8,
    /// Where BGSAVE puts backups; nowhere: it is refused.
    pub backup_dir: Option<PathBuf>,
    /// The NVMe drive of the tier where records stay, or a file with its log pages: what it wrote to its flash is shown.
    pub drive_log: Option<PathBuf>,
    /// What is told of keys on channels.
    pub keyspace_events: KeyspaceEvents,
    /// What `CONFIG GET` answers beside the server's own settings: name and value, such as `("dir", "/data")`.
    pub settings: Vec<(String, String)>,
    /// What decides which lines are logged; without it `CONFIG` knows no `log`.
    pub log: Option<Arc<dyn LogFilter>>,
}

/// A unix socket. Whoever may write to its file may connect, and is no more asked for a password than who comes by TCP.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnixSocket {
    /// Where its file is made. That of a server that is dead is replaced.
    pub path: PathBuf,
    /// The file's permissions.
    pub mode: u32,
}

/// The filter of the log, which belongs to whoever started the server.
pub trait LogFilter: fmt::Debug + Send + Sync {
    /// The filter in force, such as `info` or `warn,esker_server=debug`.
    fn text(&self) -> String;

    /// Whether a text is a filter.
    ///
    /// # Errors
    /// What is wrong with it, in words.
    fn check(&self, filter: &str) -> std::result::Result<(), String>;

    /// From here on a filter decides.
    ///
    /// # Errors
    /// As [`check`](Self::check); then nothing changes.
    fn set(&self, filter: &str) -> std::result::Result<(), String>;
}

/// Who may do what. By default whoever connects may do everything, and only this machine can connect.
#[derive(Clone, Debug, Default)]
pub struct Access {
    /// Password of the user `default`, who may do everything.
    pub password: Option<Password>,
    /// File of users, as [`UserFile`](crate::UserFile) writes it.
    pub users: Option<PathBuf>,
    /// Serves other machines even though nobody needs a password.
    pub allow_unauthenticated: bool,
}

/// Files of the server's TLS. They are read again on [`Control::reload`](crate::Control::reload), and when they change.
#[derive(Clone, Debug)]
pub struct TlsFiles {
    /// Certificate chain, in PEM.
    pub certificate: PathBuf,
    /// Its private key, in PEM.
    pub key: PathBuf,
    /// Whether clients show certificates.
    pub clients: Option<ClientCertificates>,
}

/// What clients' certificates must be.
#[derive(Clone, Debug)]
pub struct ClientCertificates {
    /// Certificates of the authorities that they must come from, in PEM.
    pub authorities: PathBuf,
    /// Whether a client without a certificate is turned away.
    pub required: bool,
}

/// The longest password. Longer ones are taken nowhere, and are wrong without a look.
pub const PASSWORD_BYTES_MAX: usize = 1024;

/// A password, which no formatting shows.
#[derive(Clone)]
pub struct Password(String);

impl Password {
    /// Takes the text.
    pub fn new(text: &str) -> Password {
        Password(text.to_owned())
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        self.0.as_bytes()
    }

    /// Whether these are no more bytes than a password may have.
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
    /// RESP on one address, everything else by default.
    pub fn resp(address: SocketAddr) -> Config {
        Config {
            resp: vec![address],
            resp_tls: Vec::new(),
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
            settings: Vec::new(),
            log: None,
        }
    }

    /// All addresses, with the name of their setting.
    pub fn addresses(&self) -> [(&'static str, Vec<SocketAddr>); 6] {
        [
            ("resp", self.resp.clone()),
            ("resp-tls", self.resp_tls.clone()),
            ("http", self.http.clone()),
            ("http-tls", self.http_tls.clone()),
            ("grpc", self.grpc.clone()),
            ("grpc-tls", self.grpc_tls.clone()),
        ]
    }

    /// The first of a setting's addresses that other machines reach without anybody asking who they are.
    pub fn exposed(&self, setting: &str, addresses: &[SocketAddr]) -> Option<SocketAddr> {
        let access = &self.access;
        let certificates = self.tls.as_ref().and_then(|tls| tls.clients.as_ref());
        let asked = access.password.is_some()
            || access.users.is_some()
            || access.allow_unauthenticated
            || setting.ends_with("-tls") && certificates.is_some_and(|clients| clients.required);
        addresses.iter().copied().find(|address| !asked && !address.ip().to_canonical().is_loopback())
    }

    /// The first two of the addresses that cannot both be listened on, with the names of their settings.
    pub fn clash(&self) -> Option<[(&'static str, SocketAddr); 2]> {
        let named = |(name, of): (_, Vec<_>)| of.into_iter().map(move |address| (name, address));
        let all: Vec<_> = self.addresses().into_iter().flat_map(named).collect();
        let first_with = |(at, one): (usize, &(&'static str, SocketAddr))| {
            let other = all[at + 1..].iter().find(|other| overlap(one.1, other.1));
            other.map(|other| [*one, *other])
        };
        all.iter().enumerate().find_map(first_with)
    }

    /// Refuses what would be unsafe or could not work.
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

/// Whether the kernel lets nobody listen on both.
fn overlap(one: SocketAddr, other: SocketAddr) -> bool {
    // An unspecified address of IPv6 is every address, of IPv4 too.
    let covers = |wide: IpAddr, narrow: IpAddr| {
        wide == narrow || wide.is_unspecified() && (wide.is_ipv6() || narrow.is_ipv4())
    };
    let (a, b) = (one.ip().to_canonical(), other.ip().to_canonical());
    one.port() == other.port() && one.port() != 0 && (covers(a, b) || covers(b, a))
}
