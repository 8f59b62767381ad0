//! A client that does nothing wrong and expects to be served.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

pub(crate) struct Honest {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Served>,
}

#[derive(Default)]
pub(crate) struct Served {
    pub(crate) answers: u64,
    pub(crate) slowest: Duration,
}

impl Honest {
    pub(crate) fn start(address: SocketAddr) -> Honest {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let thread = std::thread::spawn(move || {
            let mut client = TcpStream::connect(address).unwrap();
            client.set_nodelay(true).unwrap();
            client.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
            let mut served = Served::default();
            let mut ask = |question: String, expected: String| {
                let asked = Instant::now();
                client.write_all(question.as_bytes()).unwrap();
                let mut found = vec![0; expected.len()];
                client.read_exact(&mut found).expect("an answer to an honest client");
                assert_eq!(String::from_utf8_lossy(&found), expected, "the answer to {question:?}");
                served.answers += 1;
                served.slowest = served.slowest.max(asked.elapsed());
            };
            for n in 0.. {
                if stopped.load(Ordering::Relaxed) {
                    break;
                }
                let value = format!("{n:0100}");
                ask(format!("SET honest {value}\r\n"), "+OK\r\n".to_owned());
                ask("GET honest\r\n".to_owned(), format!("$100\r\n{value}\r\n"));
                std::thread::sleep(Duration::from_millis(1));
            }
            served
        });
        Honest { stop, thread }
    }

    pub(crate) fn stop(self) -> Served {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().expect("the honest client was served")
    }
}
