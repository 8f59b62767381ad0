//! Measures replication: three replicas in this process, each with a store of its own, on real files and real time.
//!
//! `replicate DIR WRITERS SECONDS BYTES [BATCH]`: each of the writers replicates one change of BYTES bytes after the other.
//! With BATCH, one entry carries the changes of that many writers. Prints entries a second, the processor time of all
//! three replicas per entry and per change, and the latency of a change.

#![expect(clippy::disallowed_methods, reason = "a measurement reads the real clock")]

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use esker_cluster::{
    GroupMachine, GroupStore, MachineShell, RaftRequest, Replica, ReplicaSettings, Transport,
    TransportFuture, WriteOutcome,
};
use esker_device::{Runtime, Threads, block_on};
use esker_engine::{Options, Store};
use futures_util::future::join_all;
use parking_lot::Mutex;

/// Counts entries, and keeps none.
struct Counter(u64);

impl GroupMachine for Counter {
    fn apply(&mut self, _: u64, _: &[u8]) -> io::Result<Bytes> {
        self.0 += 1;
        Ok(Bytes::new())
    }

    fn snapshot(&self) -> Bytes {
        Bytes::copy_from_slice(&self.0.to_le_bytes())
    }

    fn restore(&mut self, _: &[u8]) -> io::Result<()> {
        Ok(())
    }
}

type Replicas = Arc<Mutex<BTreeMap<u64, Replica<Counter>>>>;

/// Hands requests over within the process, with no delay and no bytes on a wire.
struct Direct(Replicas);

impl Transport for Direct {
    fn call(&self, node: u64, request: RaftRequest) -> TransportFuture {
        let replica = self.0.lock().get(&node).cloned();
        Box::pin(async move { replica.ok_or("the node is not there yet")?.handle(request).await })
    }
}

/// Returns the processor time of this process so far.
fn processor_time() -> Duration {
    let tasks = std::fs::read_dir("/proc/self/task").expect("/proc is mounted");
    let of = |task: io::Result<std::fs::DirEntry>| {
        let text = std::fs::read_to_string(task.ok()?.path().join("schedstat")).ok()?;
        text.split(' ').next()?.parse::<u64>().ok()
    };
    Duration::from_nanos(tasks.filter_map(of).sum())
}

async fn start(dir: &Path, replicas: &Replicas, runtime: &Arc<dyn Runtime>) -> Vec<Store> {
    let mut stores = Vec::new();
    for node in 1..=3 {
        let place = dir.join(node.to_string());
        std::fs::create_dir_all(&place).expect("the directory can be made");
        let options = Options::directory(place)
            .runtime(runtime.clone())
            .memory_bytes(128 << 20)
            .segment_bytes(4 << 20)
            .capacity_limit_bytes(2 << 30)
            .group_log_segments(64);
        let store = Store::open(options).await.expect("the store opens");
        let log = GroupStore::new(store.group_log().expect("it has a log"), 0);
        let shell = MachineShell::new(Counter(0));
        let way = Arc::new(Direct(replicas.clone()));
        let replica =
            Replica::start(node, &ReplicaSettings::default(), log, shell, way, runtime.clone()).await;
        replicas.lock().insert(node, replica.expect("the replica starts"));
        stores.push(store);
    }
    stores
}

fn leader_of(replicas: &Replicas) -> Option<Replica<Counter>> {
    replicas.lock().values().find(|replica| replica.status().is_leader).cloned()
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |at: usize| arguments.get(at).and_then(|text| text.parse::<u64>().ok());
    let (Some(dir), Some(writers), Some(seconds), Some(bytes)) =
        (arguments.first(), number(1), number(2), number(3))
    else {
        eprintln!("replicate DIR WRITERS SECONDS BYTES [BATCH]");
        std::process::exit(2);
    };
    let batch = number(4).unwrap_or(1).max(1);
    let runtime: Arc<dyn Runtime> = Threads::new(2).expect("threads can be started");
    let replicas: Replicas = Arc::default();
    let stores = block_on(start(Path::new(dir), &replicas, &runtime));
    let first = replicas.lock()[&1].clone();
    block_on(first.found(BTreeSet::from([1, 2, 3]))).expect("the group is founded");
    while leader_of(&replicas).is_none() {
        std::thread::sleep(Duration::from_millis(10));
    }
    // A batch stands for the changes of that many writers, which wait for the same entry.
    let change = Bytes::from(vec![7; (bytes * batch) as usize]);
    let (began, before) = (Instant::now(), processor_time());
    let until = began + Duration::from_secs(seconds);
    let writer = || {
        let (replicas, change, runtime) = (replicas.clone(), change.clone(), runtime.clone());
        async move {
            let (mut latencies, mut refused) = (Vec::new(), None);
            while Instant::now() < until {
                let began = Instant::now();
                let outcome = match leader_of(&replicas) {
                    Some(leader) => leader.write(change.clone()).await,
                    None => WriteOutcome::NotLeader(None),
                };
                match outcome {
                    WriteOutcome::Applied(..) => latencies.push(began.elapsed()),
                    other => {
                        refused = Some(other);
                        runtime.sleep(Duration::from_millis(20)).await;
                    }
                }
            }
            (latencies, refused)
        }
    };
    let proposers = writers.div_ceil(batch);
    let (done, results) = std::sync::mpsc::channel();
    for _ in 0..proposers {
        let (done, writer) = (done.clone(), writer());
        runtime.spawn("writer", Box::pin(async move { drop(done.send(writer.await)) }));
    }
    drop(done);
    let (mut latencies, mut refused) = (Vec::new(), None);
    for (of_one, last) in results.iter() {
        latencies.extend::<Vec<Duration>>(of_one);
        refused = last.or(refused);
    }
    if let Some(refused) = refused {
        println!("some writes ended with {refused:?}");
    }
    let (took, used) = (began.elapsed(), processor_time() - before);
    latencies.sort_unstable();
    let entries = latencies.len() as f64;
    let at = |share: f64| latencies.get(((entries - 1.0) * share) as usize).map_or(0, Duration::as_micros);
    println!(
        "{writers} writers, {bytes} B, {batch} a batch: {:.0} entries/s, {:.0} changes/s, processor time {:.1} us an entry, \
         {:.1} us a change; latency p50 {} us, p99 {} us",
        entries / took.as_secs_f64(),
        entries * batch as f64 / took.as_secs_f64(),
        used.as_secs_f64() * 1e6 / entries,
        used.as_secs_f64() * 1e6 / entries / batch as f64,
        at(0.5),
        at(0.99),
    );
    let all: Vec<_> = replicas.lock().values().cloned().collect();
    block_on(join_all(all.iter().map(Replica::stop)));
    replicas.lock().clear();
    for store in stores {
        block_on(store.close()).expect("the store closes");
    }
}
