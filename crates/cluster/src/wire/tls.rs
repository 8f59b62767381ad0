//! Mutual TLS between nodes, and the two ends of a connection with or without it.

use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::server::WebPkiClientVerifier;
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::{TlsAcceptor, TlsConnector, TlsStream};

use super::settings::{WireError, WireTls};

/// Bytes that a TLS connection buffers while its socket accepts none.
const UNSENT_BYTES: usize = 64 << 10;

/// Label of the bytes that bind a proof to its TLS connection.
const BINDING: &[u8] = b"EXPORTER-esker-wire";

/// Certificates and keys for both ends of connections.
pub(super) struct Tls {
    client: Arc<ClientConfig>,
    server: Arc<ServerConfig>,
}

/// An established connection, before the hello.
pub(super) struct Channel {
    pub(super) reader: Box<dyn AsyncRead + Send + Unpin>,
    pub(super) writer: Box<dyn AsyncWrite + Send + Unpin>,
    /// Bytes that only the two ends of the TLS connection know.
    pub(super) binding: Option<[u8; 32]>,
    /// Address of the other end.
    pub(super) peer: SocketAddr,
}

fn wrong(path: &Path, what: impl ToString) -> WireError {
    WireError::Tls { path: path.to_owned(), what: what.to_string() }
}

/// Maximum size of a certificate or key file, in bytes.
const FILE_BYTES_MAX: u64 = 4 << 20;

fn read(path: &Path) -> Result<Vec<u8>, WireError> {
    let length = std::fs::metadata(path).map_err(|error| wrong(path, error))?.len();
    if length > FILE_BYTES_MAX {
        return Err(wrong(path, format!("it has {length} bytes, and at most {FILE_BYTES_MAX} are read")));
    }
    std::fs::read(path).map_err(|error| wrong(path, error))
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, WireError> {
    let pem = read(path)?;
    let found = CertificateDer::pem_slice_iter(&pem).collect::<Result<Vec<_>, _>>();
    match found {
        Ok(found) if found.is_empty() => Err(wrong(path, "it holds no certificate in PEM")),
        found => found.map_err(|error| wrong(path, error)),
    }
}

impl Tls {
    /// Reads the files.
    pub(super) fn read(files: &WireTls) -> Result<Tls, WireError> {
        let chain = certificates(&files.certificate)?;
        let pem = read(&files.key)?;
        let key = || PrivateKeyDer::from_pem_slice(&pem).map_err(|error| wrong(&files.key, error));
        let mut roots = RootCertStore::empty();
        for certificate in certificates(&files.authorities)? {
            roots.add(certificate).map_err(|error| wrong(&files.authorities, error))?;
        }
        let (roots, provider) = (Arc::new(roots), Arc::new(rustls::crypto::ring::default_provider()));
        let not_its_key = |error: rustls::Error| {
            wrong(&files.key, format!("it is not the key of {}: {error}", files.certificate.display()))
        };
        let client = ClientConfig::builder_with_provider(provider.clone())
            .with_protocol_versions(&[&rustls::version::TLS13])
            .map_err(|error| wrong(&files.certificate, error))?
            .with_root_certificates(roots.clone())
            .with_client_auth_cert(chain.clone(), key()?)
            .map_err(not_its_key)?;
        let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider.clone()).build();
        let server = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13])
            .map_err(|error| wrong(&files.certificate, error))?
            .with_client_cert_verifier(verifier.map_err(|error| wrong(&files.authorities, error))?)
            .with_single_cert(chain, key()?)
            .map_err(not_its_key)?;
        Ok(Tls { client: Arc::new(client), server: Arc::new(server) })
    }
}

/// Returns the channel of an outgoing connection to an address, `host:port`.
pub(super) async fn connected(tls: Option<&Tls>, stream: TcpStream, address: &str) -> io::Result<Channel> {
    let Some(tls) = tls else { return plain(stream) };
    let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
    let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
    let name =
        ServerName::try_from(host).map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
    let peer = stream.peer_addr()?;
    let limit = |connection: &mut rustls::ClientConnection| connection.set_buffer_limit(Some(UNSENT_BYTES));
    let stream = TlsConnector::from(tls.client.clone()).connect_with(name, stream, limit).await?;
    encrypted(TlsStream::Client(stream), peer)
}

/// Returns the channel of an incoming connection.
pub(super) async fn accepted(tls: Option<&Tls>, stream: TcpStream) -> io::Result<Channel> {
    let Some(tls) = tls else { return plain(stream) };
    let peer = stream.peer_addr()?;
    let limit = |connection: &mut rustls::ServerConnection| connection.set_buffer_limit(Some(UNSENT_BYTES));
    let stream = TlsAcceptor::from(tls.server.clone()).accept_with(stream, limit).await?;
    encrypted(TlsStream::Server(stream), peer)
}

fn plain(stream: TcpStream) -> io::Result<Channel> {
    let peer = stream.peer_addr()?;
    let (reader, writer) = stream.into_split();
    Ok(Channel { reader: Box::new(reader), writer: Box::new(writer), binding: None, peer })
}

fn encrypted(stream: TlsStream<TcpStream>, peer: SocketAddr) -> io::Result<Channel> {
    let exported = match &stream {
        TlsStream::Client(stream) => stream.get_ref().1.export_keying_material([0; 32], BINDING, None),
        TlsStream::Server(stream) => stream.get_ref().1.export_keying_material([0; 32], BINDING, None),
    };
    let binding = Some(exported.map_err(io::Error::other)?);
    let (reader, writer) = tokio::io::split(stream);
    Ok(Channel { reader: Box::new(reader), writer: Box::new(writer), binding, peer })
}
