//! Authentication and rights of calls.

use esker_server::{Access, ClientCertificates, Config, Right, TlsFiles, UserEntry, UserFile};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tonic::Code;
use tonic::transport::{Certificate, ClientTlsConfig, Endpoint, Identity};

use crate::client::{
    Client, PATIENCE, Running, from, get, here, key, locked, pb, plain, put, refused, users,
    with_authorization,
};
use crate::limits::Raw;

#[tokio::test]
async fn a_password_is_asked_for() {
    let running = Running::start(locked("secret")).await;
    let mut client = running.client().await;
    refused(client.get(get("a")).await, Code::Unauthenticated, "LOGIN");
    refused(client.put(from(put("a", "x"), "default", "wrong")).await, Code::Unauthenticated, "LOGIN");
    refused(client.get(with_authorization(get("a"), "Digest x")).await, Code::Unauthenticated, "LOGIN");
    assert!(running.store.is_empty());
    client.put(from(put("a", "x"), "default", "secret")).await.unwrap();
    client.get(with_authorization(get("a"), "Bearer secret")).await.unwrap();
    // A valid password cached before does not validate another one.
    refused(client.get(with_authorization(get("a"), "Bearer secreT")).await, Code::Unauthenticated, "LOGIN");
    refused(client.get(get("a")).await, Code::Unauthenticated, "LOGIN");
}

#[tokio::test]
async fn users_have_rights_and_prefixes() {
    let (_directory, _, access) =
        users(&[("reader", &[Right::Read]), ("writer", &[Right::Read, Right::Write])]);
    let running = Running::start(Config { access, ..plain() }).await;
    let mut client = running.client().await;
    running.store.put("other", "x").await.unwrap();
    client.put(from(put("mine:a", "1"), "writer", "pass")).await.unwrap();
    refused(client.put(from(put("other", "1"), "writer", "pass")).await, Code::PermissionDenied, "NO_RIGHT");
    refused(client.put(from(put("mine:a", "2"), "reader", "pass")).await, Code::PermissionDenied, "NO_RIGHT");
    refused(client.get(from(get("other"), "reader", "pass")).await, Code::PermissionDenied, "NO_RIGHT");
    let keys = vec![key("mine:a"), key("other")];
    let several = from(pb::MultiGetRequest { keys }, "reader", "pass");
    refused(client.multi_get(several).await, Code::PermissionDenied, "NO_RIGHT");
    let delete = pb::Operation { write: Some(pb::operation::Write::Delete(key("other"))) };
    let batch = pb::BatchRequest { operations: vec![delete], options: None };
    refused(client.batch(from(batch, "writer", "pass")).await, Code::PermissionDenied, "NO_RIGHT");
    let scan = from(pb::ScanRequest::default(), "reader", "pass");
    let page = client.scan(scan).await.unwrap().into_inner().message().await.unwrap().unwrap();
    let keys: Vec<_> = page.entries.into_iter().map(|entry| entry.key).collect();
    assert_eq!(keys, [key("mine:a")]);
}

/// An upload may outlive its user.
#[tokio::test]
async fn an_upload_of_who_is_removed_meanwhile_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("users.toml");
    let mut users = UserFile::default();
    let mut entry = UserEntry { rights: vec![Right::Write], ..UserEntry::default() };
    entry.set_password("pass").expect("there are random numbers");
    users.set("ann", entry.clone()).unwrap();
    users.write(&path).unwrap();
    let access = Access { users: Some(path.clone()), ..Access::default() };
    let running = Running::start(Config { access, ..plain() }).await;
    let mut client = running.client().await;
    let control = running.control.clone();
    let head = pb::upload_request::Head { key: key("k"), ..Default::default() };
    let parts = [pb::upload_request::Part::Head(head), pb::upload_request::Part::Chunk(key("value"))];
    let first = futures_util::stream::iter(parts.map(|part| pb::UploadRequest { part: Some(part) }));
    // The server has accepted the call long before the last part is sent.
    let last = futures_util::stream::once(async move {
        tokio::time::sleep(std::time::Duration::from_millis(500)).await;
        users.remove("ann");
        users.set("bob", entry).unwrap();
        users.write(&path).unwrap();
        control.reload().unwrap();
        pb::UploadRequest { part: Some(pb::upload_request::Part::Chunk(key("more"))) }
    });
    let parts = futures_util::StreamExt::chain(first, Box::pin(last));
    refused(client.upload(from(parts, "ann", "pass")).await, Code::Unauthenticated, "LOGIN");
    assert!(running.store.is_empty());
}

/// Any request may outlive its user.
#[tokio::test]
async fn a_request_of_who_is_removed_before_its_end_is_refused() {
    let (_directory, mut file, access) = users(&[
        ("ann", &[Right::Read, Right::Write]),
        ("bob", &[Right::Read, Right::Write]),
        ("eve", &[Right::Read]),
    ]);
    let path = access.users.clone().unwrap();
    let running = Running::start(Config { access, ..plain() }).await;
    let mut waiting = Vec::new();
    let (put, download) =
        (put("mine:a", "x"), pb::DownloadRequest { key: key("mine:a"), ..Default::default() });
    // The message is sent at once, and its end after the user was removed.
    for (name, method, message) in [
        ("ann", "Put", prost::Message::encode_to_vec(&put)),
        ("bob", "Download", prost::Message::encode_to_vec(&download)),
    ] {
        let (end, ended) = tokio::sync::oneshot::channel::<()>();
        let message = futures_util::stream::iter([message]);
        let ended = futures_util::stream::once(ended);
        let ended = futures_util::StreamExt::filter_map(ended, |_| std::future::ready(None));
        let request = from(futures_util::StreamExt::chain(message, Box::pin(ended)), name, "pass");
        let mut raw = tonic::client::Grpc::new(running.channel().await);
        let path = format!("/esker.v1.Esker/{method}").try_into().unwrap();
        let call = tokio::spawn(async move {
            raw.ready().await.unwrap();
            raw.client_streaming(request, path, Raw).await
        });
        waiting.push((end, call));
    }
    tokio::time::sleep(std::time::Duration::from_millis(300)).await;
    file.remove("ann");
    file.remove("bob");
    file.write(&path).unwrap();
    running.control.reload().unwrap();
    for (end, call) in waiting {
        end.send(()).unwrap();
        refused(call.await.unwrap(), Code::Unauthenticated, "LOGIN");
    }
    assert!(running.store.is_empty());
}

#[test]
fn addresses_of_grpc_are_checked_like_all() {
    let open = Config { grpc: vec!["0.0.0.0:0".parse().unwrap()], ..Config::resp(here()) };
    let error = esker_server::Sockets::bind(&open).unwrap_err().to_string();
    assert!(error.contains("without a password"), "{error}");
}

#[tokio::test]
async fn tls_has_the_servers_certificate_and_names_users_by_theirs() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    let authority_key = KeyPair::generate().unwrap();
    let mut parameters = CertificateParams::new(Vec::<String>::new()).unwrap();
    parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = parameters.self_signed(&authority_key).unwrap().pem();
    let issuer = Issuer::new(parameters, authority_key);
    let sign = |name: &str| {
        let key = KeyPair::generate().unwrap();
        let certificate =
            CertificateParams::new(vec![name.to_owned()]).unwrap().signed_by(&key, &issuer).unwrap();
        (certificate.pem(), key.serialize_pem())
    };
    let (certificate, server_key) = sign("localhost");
    std::fs::write(path("server.pem"), certificate).unwrap();
    std::fs::write(path("server.key"), server_key).unwrap();
    std::fs::write(path("ca.pem"), &authority).unwrap();
    let mut users = UserFile::default();
    let mut entry = UserEntry { rights: vec![Right::Read], ..UserEntry::default() };
    entry.set_password("pass").expect("there are random numbers");
    users.set("reader", entry.clone()).unwrap();
    users.write(&path("users.toml")).unwrap();
    let tls = TlsFiles {
        certificate: path("server.pem"),
        key: path("server.key"),
        clients: Some(ClientCertificates { authorities: path("ca.pem"), required: false }),
    };
    let access = Access { users: Some(path("users.toml")), ..Access::default() };
    let config = Config { grpc: Vec::new(), grpc_tls: vec![here()], tls: Some(tls), access, ..plain() };
    let running = Running::start(config).await;
    let connect = async |tls: ClientTlsConfig| {
        let tls = tls.ca_certificate(Certificate::from_pem(&authority)).domain_name("localhost");
        let endpoint = Endpoint::from_shared(format!("https://{}", running.grpc[0])).unwrap();
        Client::new(endpoint.tls_config(tls).unwrap().connect().await.unwrap())
    };
    let mut nobody = connect(ClientTlsConfig::new()).await;
    refused(nobody.get(get("a")).await, Code::Unauthenticated, "LOGIN");
    let (certificate, key) = sign("reader");
    let mut reader = connect(ClientTlsConfig::new().identity(Identity::from_pem(certificate, key))).await;
    assert_eq!(reader.get(get("a")).await.unwrap().into_inner().entry, None);
    refused(reader.put(put("a", "x")).await, Code::PermissionDenied, "NO_RIGHT");
    // A password change does not affect users identified by certificate; disabling them does.
    let mut set = |entry: &UserEntry| {
        users.set("reader", entry.clone()).unwrap();
        users.write(&path("users.toml")).unwrap();
        running.control.reload().unwrap();
    };
    entry.password_hash = None;
    set(&entry);
    reader.get(get("a")).await.unwrap();
    entry.off = true;
    set(&entry);
    refused(reader.get(get("a")).await, Code::Unauthenticated, "LOGIN");
    entry.off = false;
    set(&entry);
    reader.get(get("a")).await.unwrap();
}

/// Calls and watches without a user continue while no password is required.
#[tokio::test]
async fn a_password_is_asked_for_from_when_there_is_one() {
    let running = Running::start(plain()).await;
    let mut client = running.client().await;
    let mut admin = tokio::net::TcpStream::connect(running.resp[0]).await.unwrap();
    let mut set = async |rules: &str| {
        admin.write_all(format!("ACL SETUSER default {rules}\r\n").as_bytes()).await.unwrap();
        let mut answer = [0; 5];
        admin.read_exact(&mut answer).await.unwrap();
        assert_eq!(&answer, b"+OK\r\n", "{rules}");
    };
    for rules in [">secret", "off"] {
        set("on nopass").await;
        let watch = pb::WatchRequest { keys: vec![key("a")], ..Default::default() };
        let mut watch = client.watch(watch).await.unwrap().into_inner();
        watch.message().await.unwrap().expect("it begins");
        set(rules).await;
        refused(client.get(get("a")).await, Code::Unauthenticated, "LOGIN");
        let end = tokio::time::timeout(PATIENCE, watch.message()).await.expect("it ends");
        refused(end, Code::Unauthenticated, "LOGIN");
    }
    set("on nopass >secret").await;
    client.get(with_authorization(get("a"), "Bearer secret")).await.unwrap();
}

#[tokio::test]
async fn metadata_chooses_the_database() {
    let running = Running::start(plain()).await;
    let mut client = running.client().await;
    fn about<T>(message: T, database: &str) -> tonic::Request<T> {
        let mut request = tonic::Request::new(message);
        request.metadata_mut().insert("esker-database", database.parse().unwrap());
        request
    }
    client.put(about(put("a", "three"), "3")).await.unwrap();
    client.put(put("a", "zero")).await.unwrap();
    for (request, value) in [
        (about(get("a"), "3"), "three"),
        (tonic::Request::new(get("a")), "zero"),
        (about(get("a"), "0"), "zero"),
    ] {
        let entry = client.get(request).await.unwrap().into_inner().entry.expect("it is there");
        assert_eq!(entry.value, value);
    }
    let scan = about(pb::ScanRequest::default(), "3");
    let page = client.scan(scan).await.unwrap().into_inner().message().await.unwrap().unwrap();
    assert_eq!(page.entries.len(), 1);
    let stored = running.store.database(3).unwrap().get("a").await.unwrap();
    assert_eq!(stored.as_deref(), Some(&b"three"[..]));
    for wrong in ["16", "-1", "x", ""] {
        refused(client.get(about(get("a"), wrong)).await, Code::InvalidArgument, "INVALID");
    }
}

/// When rules remove a right, calls are refused at once, and lasting calls end.
#[tokio::test]
async fn rules_of_acl_setuser_hold_for_calls_at_once() {
    let running = Running::start(plain()).await;
    let mut client = running.client().await;
    running.store.put("app:1", "x").await.unwrap();
    let mut resp = tokio::net::TcpStream::connect(running.resp[0]).await.unwrap();
    let mut set = async |rules: &str| {
        resp.write_all(format!("ACL SETUSER ann {rules}\r\n").as_bytes()).await.unwrap();
        let mut answer = [0; 5];
        resp.read_exact(&mut answer).await.unwrap();
        assert_eq!(&answer, b"+OK\r\n", "{rules}");
    };
    for (rules, reads, writes) in [
        ("on >pass ~app:* &* +get +set", false, true),
        ("+pexpiretime", true, true),
        ("-set +@read", true, false),
        ("-@read +@write", false, true),
        ("+@all -@dangerous", true, true),
        ("-strlen", true, true),
        ("-get", false, true),
        ("+get -@write", true, false),
        ("+@all resetkeys %R~app:*", true, false),
        ("resetkeys %W~app:*", false, true),
        ("resetkeys ~other:*", false, false),
        ("~* databases=1", false, false),
        ("databases=0", true, true),
    ] {
        set(rules).await;
        let read = client.get(from(get("app:1"), "ann", "pass")).await;
        let written = client.put(from(put("app:1", "x"), "ann", "pass")).await;
        assert_eq!((read.is_ok(), written.is_ok()), (reads, writes), "{rules}");
        for code in [read.err(), written.err()].into_iter().flatten().map(|refused| refused.code()) {
            assert_eq!(code, Code::PermissionDenied, "{rules}");
        }
    }
    for (rules, code, reason) in [
        ("-subscribe", Code::PermissionDenied, "NO_RIGHT"),
        ("off", Code::Unauthenticated, "LOGIN"),
        ("on >other <pass", Code::Unauthenticated, "LOGIN"),
    ] {
        set("on >pass +subscribe").await;
        let watch = pb::WatchRequest { keys: vec![key("app:1")], ..Default::default() };
        let mut watch = client.watch(from(watch, "ann", "pass")).await.unwrap().into_inner();
        watch.message().await.unwrap().expect("it begins");
        set(rules).await;
        let end = tokio::time::timeout(PATIENCE, watch.message()).await.expect("it ends");
        refused(end, code, reason);
    }
    refused(client.get(from(get("app:1"), "ann", "pass")).await, Code::Unauthenticated, "LOGIN");
    client.get(from(get("app:1"), "ann", "other")).await.unwrap();
}
