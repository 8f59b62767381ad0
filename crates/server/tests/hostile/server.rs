//! The attacked server, in its own process so that its memory can be measured separately from the attackers'.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Lines, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use esker_engine::{Durability, Options, Store};
use esker_server::{Addresses, Config, Server, TlsFiles};

/// Memory for clients, in bytes.
pub(crate) const CLIENT_BYTES: u64 = 32 << 20;

/// Maximum number of connections.
pub(crate) const CONNECTIONS: usize = 1200;

/// Length of the value under the key `large`, in bytes.
pub(crate) const LARGE_BYTES: usize = 1 << 20;

/// Kind of server whose clients may send the largest commands.
const ROOMY: &str = "roomy";

/// Maximum arguments of one command on a roomy server. A larger number makes tests slower, but turns no longer.
pub(crate) const ARGUMENTS_MAX: usize = 200_000;

/// Commands of one batch of a roomy server.
pub(crate) const PIPELINE_MAX: usize = 4096;

const ASKED: &str = "ESKER_HOSTILE_SERVER";

pub(crate) struct Hosted {
    process: Child,
    stdin: Option<ChildStdin>,
    /// Kept open, because otherwise the child's output at its end would fail.
    _stdout: Lines<BufReader<ChildStdout>>,
    pub(crate) resp: SocketAddr,
    pub(crate) tls: SocketAddr,
    pub(crate) grpc: SocketAddr,
    pub(crate) http: SocketAddr,
}

/// Parsed content of `/metrics`.
pub(crate) struct Metrics(HashMap<String, f64>);

impl Metrics {
    pub(crate) fn get(&self, name: &str) -> u64 {
        *self.0.get(name).unwrap_or_else(|| panic!("no metric {name}")) as u64
    }

    /// Returns the number of gRPC calls that failed with a code.
    pub(crate) fn failures(&self, code: &str) -> u64 {
        self.0.get(&format!("esker_grpc_failures_total{{code=\"{code}\"}}")).copied().unwrap_or(0.0) as u64
    }
}

/// In the child process: serves until stdin ends.
pub(crate) fn serve_if_asked() {
    let Ok(kind) = std::env::var(ASKED) else { return };
    raise_file_limit();
    // A panic only ends its task and would go unnoticed, so it aborts the process.
    let usual = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        usual(panic);
        std::process::abort();
    }));
    esker_device::give_back_freed_memory();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(serve(&kind));
}

async fn serve(kind: &str) {
    let directory = tempfile::tempdir().unwrap();
    let key = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    let tls = TlsFiles {
        certificate: directory.path().join("server.pem"),
        key: directory.path().join("server.key"),
        clients: None,
    };
    std::fs::write(&tls.certificate, key.cert.pem()).unwrap();
    std::fs::write(&tls.key, key.signing_key.serialize_pem()).unwrap();
    let options = Options::directory(directory.path().join("store"));
    let options = options.memory_bytes(128 << 20).durability(Durability::None);
    let store = Store::open(options).await.unwrap();
    // Buffers and cache of the store reach their full size before the measurement.
    for n in 0..160 {
        store.put(format!("fill{n}"), vec![b'x'; LARGE_BYTES]).await.unwrap();
    }
    for n in 0..160 {
        store.get(format!("fill{n}")).await.unwrap();
    }
    store.put("large", vec![b'x'; LARGE_BYTES]).await.unwrap();

    let here = "127.0.0.1:0".parse().unwrap();
    let mut config = Config {
        resp_tls: vec![here],
        http: vec![here],
        grpc: vec![here],
        tls: Some(tls),
        ..Config::resp(here)
    };
    let limits = &mut config.limits;
    if kind == ROOMY {
        limits.client_bytes_max = 1 << 30;
        limits.connection_bytes_max = 768 << 20;
        limits.arguments_max = ARGUMENTS_MAX;
        limits.pipeline_max = PIPELINE_MAX;
        return run(config, store).await;
    }
    limits.client_bytes_max = CLIENT_BYTES as usize;
    limits.connection_bytes_max = CLIENT_BYTES as usize / 4 * 3;
    limits.connections_max = CONNECTIONS;
    limits.connections_per_address_max = CONNECTIONS;
    limits.command_wait = Some(Duration::from_secs(1));
    limits.reply_wait = Some(Duration::from_secs(1));
    // On a busy machine, an honest client also needs some time between its connection and its first call.
    limits.login_wait = Some(Duration::from_secs(2));
    limits.memory_wait = Duration::from_secs(1);
    limits.closing_wait = Duration::from_secs(1);
    run(config, store).await;
}

async fn run(config: Config, store: Store) {
    let server = Server::bind(config, store.clone()).unwrap();
    let Addresses { resp, http, grpc, .. } = server.addresses();
    println!("\nserving {} {} {} {}", resp[0], resp[1], http[0], grpc[0]);
    std::io::stdout().flush().unwrap();
    server
        .run(async {
            let ended = tokio::task::spawn_blocking(|| std::io::stdin().read_to_end(&mut Vec::new()));
            ended.await.unwrap().unwrap();
        })
        .await;
    store.close().await.unwrap();
}

impl Hosted {
    pub(crate) fn start() -> Hosted {
        Hosted::start_as("tight")
    }

    /// Starts a server with enough memory for clients that send commands with the largest arguments.
    pub(crate) fn start_roomy() -> Hosted {
        Hosted::start_as(ROOMY)
    }

    fn start_as(kind: &str) -> Hosted {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["as_server", "--exact", "--nocapture"]).env(ASKED, kind);
        let mut process = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let stdin = process.stdin.take();
        let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
        let serving = lines
            .by_ref()
            .map(Result::unwrap)
            .find_map(|line| line.strip_prefix("serving ").map(str::to_owned));
        let serving = serving.expect("the server starts");
        let mut addresses = serving.split(' ').map(|address| address.parse().unwrap());
        let mut next = || addresses.next().unwrap();
        let (resp, tls, http, grpc) = (next(), next(), next(), next());
        Hosted { process, stdin, _stdout: lines, resp, tls, http, grpc }
    }

    fn status(&self, name: &str) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.process.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).unwrap();
        line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10
    }

    /// Returns the peak resident memory since [`resident_peak_anew`](Self::resident_peak_anew).
    pub(crate) fn resident_peak(&self) -> u64 {
        self.status("VmHWM")
    }

    /// Returns the resident memory, and restarts the measurement of the peak.
    pub(crate) fn resident_peak_anew(&self) -> u64 {
        std::fs::write(format!("/proc/{}/clear_refs", self.process.id()), "5").unwrap();
        self.status("VmRSS")
    }

    pub(crate) fn metrics(&self) -> Metrics {
        let mut stream = TcpStream::connect(self.http).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        let samples = text.lines().filter_map(|line| {
            let (name, value) = line.rsplit_once(' ')?;
            Some((name.to_owned(), value.parse().ok()?))
        });
        Metrics(samples.collect())
    }

    /// Stops the server. It must exit successfully, which it does not after a panic.
    pub(crate) fn stop(mut self) {
        drop(self.stdin.take());
        let status = self.process.wait().unwrap();
        assert!(status.success(), "the server ended with {status}");
    }
}

impl Drop for Hosted {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

pub(crate) fn raise_file_limit() {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    setrlimit(Resource::Nofile, limit).unwrap();
}
