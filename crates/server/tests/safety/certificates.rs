//! A test certificate authority, and its certificates in files.

use std::path::PathBuf;
use std::sync::Arc;

use esker_server::{ClientCertificates, TlsFiles};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tempfile::TempDir;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

pub(crate) struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
    directory: TempDir,
}

impl Authority {
    pub(crate) fn new() -> Authority {
        let key = KeyPair::generate().unwrap();
        let mut parameters = CertificateParams::new(Vec::<String>::new()).unwrap();
        parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let pem = parameters.self_signed(&key).unwrap().pem();
        Authority { issuer: Issuer::new(parameters, key), pem, directory: tempfile::tempdir().unwrap() }
    }

    /// Returns certificate and key for a name, in PEM.
    pub(crate) fn sign(&self, name: &str) -> (String, String) {
        let key = KeyPair::generate().unwrap();
        let parameters = CertificateParams::new(vec![name.to_owned()]).unwrap();
        let certificate = parameters.signed_by(&key, &self.issuer).unwrap();
        (certificate.pem(), key.serialize_pem())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Writes a new server certificate to the files named by `files`.
    pub(crate) fn renew(&self) -> String {
        let (certificate, key) = self.sign("localhost");
        std::fs::write(self.path("server.pem"), &certificate).unwrap();
        std::fs::write(self.path("server.key"), key).unwrap();
        certificate
    }

    /// Returns the TLS files of a server; client certificates are required, optional, or not requested.
    pub(crate) fn files(&self, required: Option<bool>) -> TlsFiles {
        self.renew();
        std::fs::write(self.path("ca.pem"), &self.pem).unwrap();
        let clients =
            required.map(|required| ClientCertificates { authorities: self.path("ca.pem"), required });
        TlsFiles { certificate: self.path("server.pem"), key: self.path("server.key"), clients }
    }

    /// Connects a client that trusts the authority, optionally with a certificate for a name.
    pub(crate) async fn connect(
        &self,
        address: std::net::SocketAddr,
        name: Option<&str>,
    ) -> std::io::Result<TlsStream<TcpStream>> {
        self.connect_with(address, name.map(|name| self.sign(name))).await
    }

    /// Connects a client that trusts the authority, with any certificate.
    pub(crate) async fn connect_as(
        &self,
        address: std::net::SocketAddr,
        certificate: (String, String),
    ) -> std::io::Result<TlsStream<TcpStream>> {
        self.connect_with(address, Some(certificate)).await
    }

    async fn connect_with(
        &self,
        address: std::net::SocketAddr,
        certificate: Option<(String, String)>,
    ) -> std::io::Result<TlsStream<TcpStream>> {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(self.pem.as_bytes()).unwrap()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder =
            ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
        let builder = builder.with_root_certificates(roots);
        let config = match certificate {
            None => builder.with_no_client_auth(),
            Some((certificate, key)) => {
                let chain = vec![CertificateDer::from_pem_slice(certificate.as_bytes()).unwrap()];
                let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap();
                builder.with_client_auth_cert(chain, key).unwrap()
            }
        };
        let stream = TcpStream::connect(address).await?;
        TlsConnector::from(Arc::new(config)).connect(ServerName::try_from("localhost").unwrap(), stream).await
    }
}
