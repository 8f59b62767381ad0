//! Every verb that connects to a server can use TLS, and reports a failed connection with one line.

use std::fs::{read_to_string, write};

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};

use super::*;

/// A certificate authority.
struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
}

impl Authority {
    fn new() -> Authority {
        let key = KeyPair::generate().unwrap();
        let mut parameters = CertificateParams::new(Vec::<String>::new()).unwrap();
        parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let pem = parameters.self_signed(&key).unwrap().pem();
        Authority { issuer: Issuer::new(parameters, key), pem }
    }

    /// Writes a certificate for a name, and its key, to files.
    fn sign(&self, directory: &Path, name: &str, file: &str) {
        let key = KeyPair::generate().unwrap();
        let parameters = CertificateParams::new(vec![name.to_owned()]).unwrap();
        let certificate = parameters.signed_by(&key, &self.issuer).unwrap();
        write(directory.join(format!("{file}.pem")), certificate.pem()).unwrap();
        write(directory.join(format!("{file}.key")), key.serialize_pem()).unwrap();
    }
}

/// Starts a server with a TLS port.
fn serve_tls(directory: &Path, more: &[&str]) -> (Serving, String) {
    let address = service::free_address().to_string();
    let flags =
        ["--dir", "store", "--resp-tls", &address, "--tls-cert", "server.pem", "--tls-key", "server.key"];
    (Serving::start(directory, &[&flags, more].concat()), address)
}

/// Runs a call to its end. Returns its exit code, stdout and stderr.
fn call(directory: &Path, arguments: &[&str], environment: &[(&str, &str)]) -> (Option<i32>, String, String) {
    let mut command = esker(directory, arguments);
    let output = command.envs(environment.iter().copied()).stdin(Stdio::null()).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code(), text(output.stdout), text(output.stderr))
}

const TRUSTING: [&str; 3] = ["--tls", "--ca", "ca.pem"];

#[test]
fn every_client_command_uses_tls() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    let authority = Authority::new();
    write(at.join("ca.pem"), &authority.pem).unwrap();
    write(at.join("secret"), "sesame\n").unwrap();
    write(at.join("keys.jsonl"), "{\"key\":\"a\",\"value\":\"1\"}\n{\"key\":\"b\",\"value\":\"2\"}\n")
        .unwrap();
    authority.sign(at, "127.0.0.1", "server");
    let (server, address) = serve_tls(at, &["--password-file", "secret", "--backup-dir", "backups"]);
    let verbs: [&[&str]; 5] = [
        &["import", "keys.jsonl", "--to", &address],
        &["export", "out.jsonl", "--from", &address],
        &["top", &address, "--once"],
        &["ping", &address],
        &["backup", "take", "--from", &address],
    ];
    for verb in verbs {
        let login = ["--user", "default", "--password-file", "secret"];
        let (code, _, why) = call(at, &[verb, &TRUSTING, &login].concat(), &[]);
        assert_eq!(code, Some(0), "{verb:?}: {why}");
    }
    assert_eq!(read_to_string(at.join("out.jsonl")).unwrap().lines().count(), 2);
    assert!(std::fs::read_dir(at.join("backups")).unwrap().count() > 0);
    // The authority may also be one that the machine trusts, and the password may come from the
    // environment.
    let environment = [("SSL_CERT_FILE", "ca.pem"), ("ESKER_PASSWORD", "sesame")];
    let (code, said, why) = call(at, &["top", &address, "--tls", "--once"], &environment);
    assert!(code == Some(0) && said.contains("write amplification"), "{why}");
    server.stop(Signal::TERM);
}

#[test]
fn client_certificate_is_presented_on_request() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    let authority = Authority::new();
    write(at.join("ca.pem"), &authority.pem).unwrap();
    authority.sign(at, "localhost", "server");
    authority.sign(at, "ann", "ann");
    Authority::new().sign(at, "ann", "stranger");
    let (server, address) = serve_tls(at, &["--tls-client-ca", "ca.pem"]);
    let top = ["top", &address, "--once", "--server-name", "localhost"];
    let shown = |more: &[&str]| call(at, &[&top, &TRUSTING[..], more].concat(), &[]);
    let (code, said, why) = shown(&["--cert", "ann.pem", "--key", "ann.key"]);
    assert!(code == Some(0) && said.contains("write amplification"), "{why}");
    for (more, expected) in [
        (&[][..], "give --cert and --key"),
        (&["--cert", "stranger.pem", "--key", "stranger.key"], "does not accept the certificate"),
        (&["--cert", "ann.pem", "--key", "stranger.key"], "do not belong together"),
        (&["--cert", "ann.pem", "--key", "none.key"], "cannot use the key none.key"),
        (&["--cert", "ann.pem"], "--key"),
    ] {
        let (code, said, why) = shown(more);
        assert_eq!((code, &*said, why.lines().count()), (Some(2), "", 1), "{more:?}: {why}");
        assert!(why.contains(expected), "{more:?}: {why}");
    }
    server.stop(Signal::TERM);
}

#[test]
fn connection_error_is_one_line() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    let authority = Authority::new();
    write(at.join("ca.pem"), &authority.pem).unwrap();
    write(at.join("other.pem"), &Authority::new().pem).unwrap();
    write(at.join("empty.pem"), "").unwrap();
    authority.sign(at, "localhost", "server");
    let password = [("ESKER_PASSWORD", "sesame")];
    let address = service::free_address().to_string();
    let flags =
        ["--dir", "store", "--resp-tls", &address, "--tls-cert", "server.pem", "--tls-key", "server.key"];
    let server = Serving::start_in(at, &flags, &password);
    // The plain address, and then the TLS address.
    let plain = server.word("resp").split(',').next().unwrap().to_owned();
    let free = service::free_address().to_string();
    let port = address.rsplit_once(':').unwrap().1;
    let named = format!("localhost:{port}");
    for (arguments, code, expected) in [
        (&["--from", &address, "--tls", "--ca", "ca.pem"][..], 2, "is for another name"),
        (&["--from", &named, "--tls", "--ca", "other.pem"], 2, "untrusted authority"),
        (&["--from", &named, "--tls", "--ca", "empty.pem"], 2, "empty.pem: there are none"),
        (&["--from", &named, "--tls", "--ca", "none.pem"], 2, "none.pem"),
        (&["--from", &named, "--tls", "--ca", "ca.pem"], 2, "Give a password as ESKER_PASSWORD"),
        (&["--from", &plain, "--tls", "--ca", "ca.pem"], 2, "leave out --tls"),
        (&["--from", &address], 2, "speaks TLS: add --tls"),
        (&["--from", &free], 1, "no process listens there"),
        (&["--from", &named, "--ca", "ca.pem"], 2, "--tls"),
        (&["--from", &named, "--user", "ann"], 2, "--password-file"),
        (&["--from", "not an address"], 2, "give HOST:PORT"),
    ] {
        let (found, said, why) = call(at, &[&["export", "new.jsonl"], arguments].concat(), &[]);
        assert_eq!((found, &*said, why.lines().count()), (Some(code), "", 1), "{arguments:?}: {why}");
        assert!(why.contains(expected), "{arguments:?}: {why}");
    }
    let wrong = [("ESKER_PASSWORD", "open")];
    let (code, _, why) = call(at, &["export", "new.jsonl", "--from", &plain], &wrong);
    assert!(code == Some(2) && why.contains("the login is refused") && why.contains("WRONGPASS"), "{why}");
    server.stop(Signal::TERM);

    // A server that accepts connections and never answers.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let to = silent.local_addr().unwrap().to_string();
    for more in [&[][..], &["--tls", "--ca", "ca.pem"]] {
        let began = Instant::now();
        let call =
            call(at, &[&["export", "new.jsonl", "--from", &to, "--timeout", "200ms"], more].concat(), &[]);
        assert!(call.0 == Some(1) && began.elapsed() < Duration::from_secs(10), "{call:?}");
        assert!(
            call.2.contains(if more.is_empty() { "nothing happened for 0.2" } else { "leave out --tls" }),
            "{call:?}"
        );
    }
}
