//! Well-behaved clients that expect to be served: one of RESP, one of gRPC.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{self, Sender};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tonic::transport::{Channel, Endpoint};

use crate::http2::{PREFACE, SETTINGS, WINDOW_MAX, settings};

#[allow(dead_code, missing_docs, unreachable_pub, clippy::all, reason = "generated")]
#[rustfmt::skip]
mod pb {
    include!("../../src/grpc/generated/esker.v1.rs");
}

/// Maximum time for any answer.
const PATIENCE: Duration = Duration::from_secs(30);

/// Pause between two pairs of requests.
const PAUSE: Duration = Duration::from_millis(1);

pub(crate) struct Honest {
    stop: Arc<AtomicBool>,
    /// Number of answers so far.
    answers: Arc<AtomicUsize>,
    thread: JoinHandle<Served>,
}

/// Latencies of all answers, and their number, shared with other threads.
#[derive(Default)]
pub(crate) struct Served(Vec<Duration>, Arc<AtomicUsize>);

impl Served {
    pub(crate) fn answers(&self) -> usize {
        self.0.len()
    }

    /// Records the latency of an answer. The first answer signals that the client was admitted.
    fn note(&mut self, time: Duration, let_in: &Sender<()>) {
        if self.0.is_empty() {
            let _ = let_in.send(());
        }
        self.0.push(time);
        self.1.store(self.0.len(), Ordering::Relaxed);
    }

    /// Returns a percentile of the latencies.
    pub(crate) fn percentile(&self, percent: usize) -> Duration {
        let mut times = self.0.clone();
        times.sort_unstable();
        times
            .get((times.len() * percent / 100).min(times.len().saturating_sub(1)))
            .copied()
            .unwrap_or_default()
    }

    pub(crate) fn slowest(&self) -> Duration {
        self.percentile(100)
    }
}

impl Honest {
    /// Starts a client and returns once it has an answer, because attackers that connect first may take all connections of its
    /// address.
    pub(crate) fn start(address: SocketAddr) -> Honest {
        Honest::serve(move |stopped, let_in, mut served| {
            let mut client = TcpStream::connect(address).unwrap();
            client.set_nodelay(true).unwrap();
            client.set_read_timeout(Some(PATIENCE)).unwrap();
            let mut ask = |question: String, expected: String| {
                let asked = Instant::now();
                client.write_all(question.as_bytes()).unwrap();
                let mut found = vec![0; expected.len()];
                client.read_exact(&mut found).expect("an answer to an honest client");
                assert_eq!(String::from_utf8_lossy(&found), expected, "the answer to {question:?}");
                served.note(asked.elapsed(), let_in);
            };
            for n in 0.. {
                if stopped.load(Ordering::Relaxed) {
                    break;
                }
                let value = format!("{n:0100}");
                ask(format!("SET honest {value}\r\n"), "+OK\r\n".to_owned());
                ask("GET honest\r\n".to_owned(), format!("$100\r\n{value}\r\n"));
                std::thread::sleep(PAUSE);
            }
            served
        })
    }

    /// Starts a gRPC client in the same way.
    pub(crate) fn start_grpc(address: SocketAddr) -> Honest {
        Honest::serve(move |stopped, let_in, mut served| {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let endpoint = Endpoint::from_shared(format!("http://{address}")).unwrap().timeout(PATIENCE);
                let mut client = pb::esker_client::EskerClient::new(endpoint.connect().await.unwrap());
                for n in 0.. {
                    if stopped.load(Ordering::Relaxed) {
                        break;
                    }
                    put_and_get(&mut client, n, &mut served, let_in).await;
                    tokio::time::sleep(PAUSE).await;
                }
                served
            })
        })
    }

    fn serve(client: impl FnOnce(&AtomicBool, &Sender<()>, Served) -> Served + Send + 'static) -> Honest {
        let stop = Arc::new(AtomicBool::new(false));
        let (stopped, answers) = (stop.clone(), Arc::new(AtomicUsize::new(0)));
        let served = Served(Vec::new(), answers.clone());
        let (let_in, is_let_in) = mpsc::channel();
        let thread = std::thread::spawn(move || client(&stopped, &let_in, served));
        is_let_in.recv().expect("the honest client is let in");
        Honest { stop, answers, thread }
    }

    /// Returns the number of answers so far.
    pub(crate) fn answers(&self) -> usize {
        self.answers.load(Ordering::Relaxed)
    }

    pub(crate) fn stop(self) -> Served {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().expect("the honest client was served")
    }
}

async fn put_and_get(
    client: &mut pb::esker_client::EskerClient<Channel>,
    n: u64,
    served: &mut Served,
    let_in: &Sender<()>,
) {
    let (key, value) = ("honest-grpc".into(), bytes::Bytes::from(format!("{n:0100}")));
    let asked = Instant::now();
    let put = pb::PutRequest { key, value: value.clone(), ..Default::default() };
    client.put(put).await.expect("an answer to an honest client");
    served.note(asked.elapsed(), let_in);
    let asked = Instant::now();
    let get = pb::GetRequest { key: "honest-grpc".into(), range: None };
    let found = client.get(get).await.expect("an answer to an honest client").into_inner().entry;
    assert_eq!(found.expect("it was put").value, value);
    served.note(asked.elapsed(), let_in);
}

/// Checks that a new client is admitted and answered.
pub(crate) fn newcomer(address: SocketAddr) {
    let mut client = TcpStream::connect(address).unwrap();
    client.set_read_timeout(Some(PATIENCE)).unwrap();
    // A refused client receives only an error.
    let _ = client.write_all(b"PING\r\n");
    let mut found = Vec::new();
    let mut byte = [0];
    while !found.ends_with(b"\r\n") && client.read(&mut byte).unwrap_or(0) > 0 {
        found.push(byte[0]);
    }
    assert_eq!(String::from_utf8_lossy(&found), "+PONG\r\n", "who comes meanwhile is let in");
}

/// Checks the same for gRPC: the server sends its settings.
pub(crate) fn newcomer_grpc(address: SocketAddr) {
    let mut client = TcpStream::connect(address).unwrap();
    client.set_read_timeout(Some(PATIENCE)).unwrap();
    let _ = client.write_all(&[PREFACE, &settings(WINDOW_MAX)].concat());
    let mut head = [0; 4];
    client.read_exact(&mut head).expect("who comes meanwhile is let in");
    assert_eq!(head[3], SETTINGS, "{head:?}");
}
