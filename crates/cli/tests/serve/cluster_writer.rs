//! A client in a thread that writes until it is stopped, while the test changes the cluster.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;

use super::*;

/// A client that executes one numbered command after the other.
pub(super) struct Writer {
    stop: Arc<AtomicBool>,
    last: Arc<AtomicU64>,
    thread: JoinHandle<Vec<u64>>,
}

impl Writer {
    /// Starts a writer. Fails on an error beyond those of a failover, and if nothing is acknowledged for a long time.
    pub(super) fn start(
        addresses: Vec<String>,
        command: impl Fn(u64) -> Vec<String> + Send + 'static,
    ) -> Writer {
        let (stop, last) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let (stopped, done) = (stop.clone(), last.clone());
        let thread = std::thread::spawn(move || {
            let (mut clients, mut acknowledged) = (BTreeMap::new(), Vec::new());
            let (mut at, mut number, mut since) = (addresses[0].clone(), 1, Instant::now());
            while !stopped.load(Ordering::Relaxed) {
                assert!(since.elapsed() < PATIENCE, "no write was acknowledged for {PATIENCE:?}");
                match ask(&mut clients, &at, &command(number)) {
                    Ok(Reply::Text(_)) => {
                        acknowledged.push(number);
                        done.store(number, Ordering::Relaxed);
                        (number, since) = (number + 1, Instant::now());
                        continue;
                    }
                    Ok(Reply::Error(text)) if text.starts_with("MOVED ") => {
                        at = text.split(' ').nth(2).unwrap().to_owned();
                        continue;
                    }
                    Ok(Reply::Error(text)) if text.starts_with("UNCERTAIN") => number += 1,
                    Ok(Reply::Error(text)) => assert!(
                        ["CLUSTERDOWN", "TRYAGAIN", "LOADING"].iter().any(|known| text.starts_with(known)),
                        "an error beyond those of a failover: {text}"
                    ),
                    Ok(other) => panic!("{other:?}"),
                    Err(_) => drop(clients.remove(&at)),
                }
                sleep(Duration::from_millis(20));
                let next = addresses.iter().position(|address| *address == at).map_or(0, |found| found + 1);
                at.clone_from(&addresses[next % addresses.len()]);
            }
            acknowledged
        });
        Writer { stop, last, thread }
    }

    /// Returns the number of the last command that was acknowledged.
    pub(super) fn last(&self) -> u64 {
        self.last.load(Ordering::Relaxed)
    }

    /// Ends the writer, and returns the numbers of the commands that were acknowledged.
    pub(super) fn end(self) -> Vec<u64> {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().unwrap()
    }
}

fn ask(clients: &mut BTreeMap<String, Client>, at: &str, words: &[String]) -> std::io::Result<Reply> {
    if !clients.contains_key(at) {
        clients.insert(at.to_owned(), Client::connect(at)?);
    }
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    clients.get_mut(at).unwrap().ask(&words)
}
