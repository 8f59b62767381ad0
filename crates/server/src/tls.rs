//! TLS: the server's certificate, and the users named by client certificates.
//!
//! The files are read at the start, on a reload, and when they change. If they are unusable then, the previous ones stay in
//! force. Open connections keep the certificates that they were opened with.

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

/// Application protocols, negotiated by ALPN.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Application {
    /// RESP, which is not negotiated.
    Resp,
    /// HTTP/1.1.
    Http,
    /// HTTP/2.
    Grpc,
}

/// Bytes that a TLS connection buffers while its socket accepts none; part of the floor of such a connection.
const UNSENT_BYTES: usize = 32 << 10;

/// TLS configuration for new connections.
#[derive(Debug)]
pub(crate) struct Tls {
    files: TlsFiles,
    current: RwLock<Current>,
    /// Rate limit for log lines about failed handshakes.
    notices: Notices,
}

#[derive(Debug)]
struct Current {
    resp: Arc<ServerConfig>,
    http: Arc<ServerConfig>,
    grpc: Arc<ServerConfig>,
    stamps: Vec<Stamp>,
}

/// Identity of a file's version; it differs after a change or a replacement.
type Stamp = Option<(SystemTime, u64, u64)>;

impl Tls {
    pub(crate) fn new(files: &TlsFiles) -> Result<Tls> {
        let current = RwLock::new(Current::read(files)?);
        Ok(Tls { files: files.clone(), current, notices: Notices::default() })
    }

    /// Reloads the files.
    pub(crate) fn reload(&self) -> Result<()> {
        let fresh = Current::read(&self.files)?;
        *self.current.write().expect("the lock is never poisoned: no code panics while holding it") = fresh;
        Ok(())
    }

    /// Reloads the files if they changed. Returns true if they did.
    pub(crate) fn reload_if_changed(&self) -> Result<bool> {
        let now = stamps(&self.files);
        if self.current.read().expect("the lock is never poisoned: no code panics while holding it").stamps
            == now
        {
            return Ok(false);
        }
        let reloaded = self.reload();
        // An unusable file is logged once, and again only after its next change.
        self.current.write().expect("the lock is never poisoned: no code panics while holding it").stamps =
            now;
        reloaded.map(|()| true)
    }

    /// Performs the handshake, within `wait`.
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

    /// Logs a failed handshake. Probes that only check the open port are logged at debug level.
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
            let current =
                self.current.read().expect("the lock is never poisoned: no code panics while holding it");
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

/// Returns true if the client's bytes are not TLS, such as plain-text commands.
fn is_no_tls(error: &io::Error) -> bool {
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
    matches!(inner, Some(rustls::Error::InvalidMessage(_)))
}

/// Returns the DNS names of a client certificate, which are names of users. The certificate was verified in the handshake.
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
        // The stamps are taken before the files are read, because otherwise a change in between would be missed.
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

/// Maximum size of a certificate or key file, in bytes. A bundle of all publicly trusted authorities has about 200 KB.
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
