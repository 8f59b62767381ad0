//! Trusted authorities, and the client's own certificate.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};

/// Paths where systems store their trusted authorities: Debian and Arch, Fedora, openSUSE, Alpine.
const SYSTEM: [&str; 4] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
];

/// The TLS configuration of a connection.
#[derive(Clone, Debug)]
pub(super) struct Tls {
    pub(super) config: Arc<ClientConfig>,
    /// Name that the server's certificate must be for.
    pub(super) name: ServerName<'static>,
}

/// Paths of the certificate files.
pub(super) struct Files<'a> {
    /// The trusted authorities; `None` for those of the system.
    pub(super) ca: Option<&'a Path>,
    /// The client's certificate and its private key.
    pub(super) own: Option<(&'a Path, &'a Path)>,
}

impl Tls {
    /// The configuration for a server whose certificate is for `name`, a host name or an address.
    ///
    /// # Errors
    /// A sentence about the unusable file or name.
    pub(super) fn new(files: &Files<'_>, name: &str) -> Result<Tls, String> {
        let roots = roots(files.ca)?;
        let builder = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|error| error.to_string())?
            .with_root_certificates(roots);
        let config = match files.own {
            None => builder.with_no_client_auth(),
            Some((cert, key)) => {
                let chain = certificates(cert)?;
                let private = PrivateKeyDer::from_pem_file(key)
                    .map_err(|error| format!("cannot use the key {}: {error}", key.display()))?;
                builder.with_client_auth_cert(chain, private).map_err(|error| {
                    format!("{} and {} do not belong together: {error}", cert.display(), key.display())
                })?
            }
        };
        let of_name = ServerName::try_from(name.to_owned())
            .map_err(|_| format!("'{name}' is neither a host name nor an address; give --server-name"))?;
        Ok(Tls { config: Arc::new(config), name: of_name })
    }
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let shown = path.display();
    let wrong = |error: &dyn std::fmt::Display| format!("cannot use the certificates in {shown}: {error}");
    let found = CertificateDer::pem_file_iter(path).map_err(|error| wrong(&error))?;
    let found: Vec<_> = found.collect::<Result<_, _>>().map_err(|error| wrong(&error))?;
    if found.is_empty() { Err(wrong(&"there are none")) } else { Ok(found) }
}

fn roots(given: Option<&Path>) -> Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    if let Some(path) = given {
        for certificate in certificates(path)? {
            roots.add(certificate).map_err(|error| {
                format!("{} is not the certificate of an authority: {error}", path.display())
            })?;
        }
        return Ok(roots);
    }
    // OpenSSL and its tools use this variable too.
    let named = std::env::var_os("SSL_CERT_FILE").map(PathBuf::from);
    let places = named.into_iter().chain(SYSTEM.map(PathBuf::from));
    match places.map(|path| certificates_if_there(&path)).find_map(Result::transpose) {
        // The system's file may contain old or unusual certificates: those that cannot be parsed are
        // ignored.
        Some(found) => roots.add_parsable_certificates(found?),
        None => return Err("no authorities are known on this machine: give --ca".to_owned()),
    };
    Ok(roots)
}

fn certificates_if_there(path: &Path) -> Result<Option<Vec<CertificateDer<'static>>>, String> {
    match std::fs::metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        _ => certificates(path).map(Some),
    }
}
