//! Mutual TLS.

use std::path::Path;

use esker_cluster::peers::{PeerRequest, Peers};
use esker_cluster::wire::{RefusalReason as Reason, Secret, WireError, WireSettings, WireTls};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use tempfile::TempDir;

use crate::support::{Node, call, identity, nodes, settings, until, until_fails};

/// An authority, and the files of nodes that it signed.
struct Authority {
    directory: TempDir,
    certificate: String,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    fn new() -> Authority {
        let directory = tempfile::tempdir().expect("a directory");
        let key = KeyPair::generate().expect("a key");
        let mut params = CertificateParams::new(Vec::new()).expect("no names");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let certificate = params.self_signed(&key).expect("it is signed").pem();
        Authority { directory, certificate, issuer: Issuer::new(params, key) }
    }

    /// Writes a certificate with a name, and returns its files. Peers must be signed by `trusted`.
    fn files(&self, name: &str, trusted: &Authority) -> WireTls {
        let path = |file: &str| self.directory.path().join(file);
        let key = KeyPair::generate().expect("a key");
        let params = CertificateParams::new(vec![name.to_owned()]).expect("a name");
        let signed = params.signed_by(&key, &self.issuer).expect("it is signed");
        let write = |path: &Path, text: String| std::fs::write(path, text).expect("it is written");
        let files = WireTls {
            certificate: path("certificate.pem"),
            key: path("key.pem"),
            authorities: path("ca.pem"),
        };
        write(&files.certificate, signed.pem());
        write(&files.key, key.serialize_pem());
        write(&files.authorities, trusted.certificate.clone());
        files
    }
}

fn with(tls: WireTls, secret: Option<&str>) -> WireSettings {
    let mut settings = settings();
    settings.tls = Some(tls);
    settings.secret = secret.map(|secret| Secret::new(secret).expect("a secret"));
    settings
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_of_one_authority_connect_with_and_without_a_secret() {
    let authority = Authority::new();
    for secret in [None, Some("secret")] {
        let [one, two] = nodes(|_| with(authority.files("127.0.0.1", &authority), secret)).await;
        call(&one.wire, 2, PeerRequest::Remove { node: 0 }).await;
        call(&two.wire, 1, crate::support::part(1, 0, 3 << 20)).await;
        one.wire.reload_tls().expect("the files are still there");
        let joined = Node::start(
            with(authority.files("127.0.0.1", &authority), secret),
            esker_cluster::wire::NodeIdentity { cluster: 0, ..identity(3) },
        )
        .await;
        let asked = joined.wire.ask(&one.wire.advertised(), PeerRequest::Join(joined.record())).await;
        assert!(asked.is_ok(), "{asked:?}");
    }
}

#[tokio::test]
async fn secret_is_required_beside_tls() {
    let authority = Authority::new();
    let [one, two] = nodes(|number| {
        with(authority.files("127.0.0.1", &authority), Some(if number == 1 { "one" } else { "two" }))
    })
    .await;
    until_fails(&one.wire, 2, "does not know the secret").await;
    until("the other side counts it", || two.wire.refused(Reason::Secret) > 0).await;
    let none = Node::start(with(authority.files("127.0.0.1", &authority), None), identity(3)).await;
    none.wire.set_nodes(vec![one.record()]);
    until_fails(&none.wire, 1, "has a secret of the cluster").await;
}

#[tokio::test]
async fn certificate_of_another_authority_is_refused_by_either_side() {
    let (authority, other) = (Authority::new(), Authority::new());
    // Node 2 trusts node 1, but node 1 does not trust node 2.
    let [one, two] = nodes(|number| match number {
        1 => with(authority.files("127.0.0.1", &authority), None),
        _ => with(other.files("127.0.0.1", &authority), None),
    })
    .await;
    until_fails(&one.wire, 2, "TLS: ").await;
    until_fails(&two.wire, 1, "node 1 at ").await;
    until("node 1 refused the certificate", || one.wire.refused(Reason::Tls) > 0).await;
    assert_eq!((one.wire.usage().connections, two.wire.usage().connections), (0, 0));
}

#[tokio::test]
async fn plain_peer_and_wrong_name_are_refused() {
    let authority = Authority::new();
    let one = Node::start(
        with(authority.files("127.0.0.1", &authority), Some(crate::support::SECRET)),
        identity(1),
    )
    .await;
    let plain = Node::start(settings(), identity(2)).await;
    plain.wire.set_nodes(vec![one.record()]);
    one.wire.set_nodes(vec![plain.record()]);
    until_fails(&plain.wire, 1, "node 1 at ").await;
    until("node 1 refused it", || one.wire.refused(Reason::Tls) > 0).await;
    until_fails(&one.wire, 2, "node 2 at ").await;

    let named = Authority::new();
    let [three, _four] = nodes(|_| with(named.files("elsewhere.example", &named), None)).await;
    let why = until_fails(&three.wire, 2, "TLS: ").await;
    assert!(why.contains("not valid for name"), "{why}");
}

#[tokio::test]
async fn unusable_files_are_named() {
    let authority = Authority::new();
    let mut files = authority.files("127.0.0.1", &authority);
    files.key = files.certificate.clone();
    let failed = esker_cluster::wire::Wire::bind(with(files.clone(), None), identity(1)).await;
    assert!(matches!(failed.err(), Some(WireError::Tls { path, .. }) if path == files.key));
    files.authorities = "/nowhere/ca.pem".into();
    let failed = esker_cluster::wire::Wire::bind(with(files, None), identity(1)).await;
    let text = failed.err().expect("it is not bound").to_string();
    assert!(text.contains("/nowhere") || text.contains("key"), "{text}");
}
