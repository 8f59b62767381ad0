//! TLS: the server's certificate, and who a client's certificate says it is.
//!
//! The files are read when the server starts, again when it is told to, and again when they change; if they cannot be
//! used then, the old ones stay. Connections that are open keep what they were opened with.

use std::io;
use std::path::Path;
use std::sync::{Arc, RwLock};
use std::time::{Duration, SystemTime};

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use crate::base::address::Address;
use crate::base::config::TlsFiles;
use crate::base::limited_log::Notices;
use crate::base::socket::Stream;
use crate::base::text::read_bounded;
use crate::{Error, Result};

/// Protocols that a client may choose from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Application {
    /// RESP does not negotiate.
    Resp,
    /// HTTP/1.1.
    Http,
    /// HTTP/2.
    Grpc,
}

/// What waits in a connection of TLS for a socket that takes nothing; a part of what such a connection holds.
const UNSENT_BYTES: usize = 32 << 10;

/// What a connection of TLS is accepted with.
#[derive(Debug)]
pub(crate) struct Tls {
    files: TlsFiles,
    current: RwLock<Current>,
    /// About handshakes that fail.
    notices: Notices,
}

#[derive(Debug)]
struct Current {
    resp: Arc<ServerConfig>,
    http: Arc<ServerConfig>,
    grpc: Arc<ServerConfig>,
    stamps: Vec<Stamp>,
}

/// What tells that a file was changed or another was put in its place.
type Stamp = Option<(SystemTime, u64, u64)>;

impl Tls {
    pub(crate) fn new(files: &TlsFiles) -> Result<Tls> {
        let current = RwLock::new(Current::read(files)?);
        Ok(Tls { files: files.clone(), current, notices: Notices::default() })
    }

    /// Reads the files again.
    pub(crate) fn reload(&self) -> Result<()> {
        let fresh = Current::read(&self.files)?;
        *self.current.write().expect("nobody panics with it") = fresh;
        Ok(())
    }

    /// Reads the files again if they changed; says whether they did.
    pub(crate) fn reload_if_changed(&self) -> Result<bool> {
        let now = stamps(&self.files);
        if self.current.read().expect("nobody panics with it").stamps == now {
            return Ok(false);
        }
        let reloaded = self.reload();
        // A file that cannot be used is told of once, and not until it changes again.
        self.current.write().expect("nobody panics with it").stamps = now;
        reloaded.map(|()| true)
    }

    /// Shakes hands, for so long at most.
    pub(crate) async fn shake_hands(
        &self,
        stream: Stream,
        peer: &Address,
        application: Application,
        wait: Option<Duration>,
    ) -> io::Result<TlsStream<Stream>> {
        let shaken = self.accept(stream, application);
        let shaken = match wait {
            Some(wait) => timeout(wait, shaken).await.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into())),
            None => shaken.await,
        };
        shaken.inspect_err(|error| self.note_failure(peer, error))
    }

    /// Writes a line about a handshake that failed. Who only looks whether the port is open is not worth one.
    fn note_failure(&self, peer: &Address, error: &io::Error) {
        use io::ErrorKind::{BrokenPipe, ConnectionReset, UnexpectedEof};
        if matches!(error.kind(), BrokenPipe | ConnectionReset | UnexpectedEof) {
            tracing::debug!(%peer, %error, "TLS handshake failed");
        } else if let Some(left_out) = self.notices.turn() {
            let why = if is_no_tls(error) { ": this port speaks TLS, and the client does not" } else { "" };
            tracing::warn!(%peer, %error, left_out, "TLS handshake failed{why}");
        }
    }

    async fn accept(&self, stream: Stream, application: Application) -> io::Result<TlsStream<Stream>> {
        let config = {
            let current = self.current.read().expect("nobody panics with it");
            match application {
                Application::Resp => current.resp.clone(),
                Application::Http => current.http.clone(),
                Application::Grpc => current.grpc.clone(),
            }
        };
        let bound =
            |connection: &mut rustls::ServerConnection| connection.set_buffer_limit(Some(UNSENT_BYTES));
        TlsAcceptor::from(config).accept_with(stream, bound).await
    }
}

/// Whether the client's bytes are not those of TLS, such as commands in plain text.
fn is_no_tls(error: &io::Error) -> bool {
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
    matches!(inner, Some(rustls::Error::InvalidMessage(_)))
}

/// DNS names of a client's certificate, which are names of users here. It was verified in the handshake.
pub(crate) fn certificate_names(stream: &TlsStream<Stream>) -> Vec<String> {
    let certificates = stream.get_ref().1.peer_certificates();
    let Some(certificate) = certificates.and_then(|chain| chain.first()) else { return Vec::new() };
    match webpki::EndEntityCert::try_from(certificate) {
        Ok(certificate) => certificate.valid_dns_names().map(str::to_owned).collect(),
        Err(_) => Vec::new(),
    }
}

impl Current {
    fn read(files: &TlsFiles) -> Result<Current> {
        // Must come before the files are read, or else a change in between would go unseen.
        let stamps = stamps(files);
        let chain = certificates(&files.certificate)?;
        let pem = read(&files.key)?;
        let key = PrivateKeyDer::from_pem_slice(&pem).map_err(|error| wrong(&files.key, error))?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ServerConfig::builder_with_provider(provider.clone())
            .with_safe_default_protocol_versions()
            .map_err(|error| wrong(&files.certificate, error))?;
        let builder = match &files.clients {
            None => builder.with_no_client_auth(),
            Some(clients) => {
                let path = &clients.authorities;
                let mut roots = RootCertStore::empty();
                for certificate in certificates(path)? {
                    roots.add(certificate).map_err(|error| wrong(path, error))?;
                }
                let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
                let verifier = if clients.required { verifier } else { verifier.allow_unauthenticated() };
                builder.with_client_cert_verifier(verifier.build().map_err(|error| wrong(path, error))?)
            }
        };
        let resp = builder.with_single_cert(chain, key).map_err(|error| {
            let certificate = files.certificate.display();
            wrong(&files.key, format!("it is not the key of {certificate}: {error}"))
        })?;
        let mut http = resp.clone();
        http.alpn_protocols = vec![b"http/1.1".to_vec()];
        let mut grpc = resp.clone();
        grpc.alpn_protocols = vec![b"h2".to_vec()];
        Ok(Current { resp: Arc::new(resp), http: Arc::new(http), grpc: Arc::new(grpc), stamps })
    }
}

/// Length of a file of certificates or of a key; those of all authorities that systems trust have some 200 KB.
const FILE_BYTES_MAX: u64 = 4 << 20;

fn read(path: &Path) -> Result<Vec<u8>> {
    read_bounded(path, FILE_BYTES_MAX).map_err(|error| wrong(path, error))
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>> {
    let pem = read(path)?;
    let found = CertificateDer::pem_slice_iter(&pem).collect::<Result<Vec<_>, _>>();
    match found {
        Ok(found) if found.is_empty() => Err(wrong(path, "it holds no certificate in PEM")),
        found => found.map_err(|error| wrong(path, error)),
    }
}

fn wrong(path: &Path, what: impl std::fmt::Display) -> Error {
    Error::Tls { path: path.to_owned(), what: what.to_string() }
}

fn stamps(files: &TlsFiles) -> Vec<Stamp> {
    use std::os::unix::fs::MetadataExt;
    let authorities = files.clients.as_ref().map(|clients| &clients.authorities);
    let paths = [Some(&files.certificate), Some(&files.key), authorities];
    let stamp = |path: &std::path::PathBuf| {
        let metadata = std::fs::metadata(path).ok()?;
        Some((metadata.modified().ok()?, metadata.len(), metadata.ino()))
    };
    paths.into_iter().flatten().map(stamp).collect()
}
