//! Runs one store under load for a while, with a line per interval.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use esker_device::block_on;
use esker_engine::Latencies as StoreLatencies;
use esker_log::TYPICAL_ENTRY_BYTES;
use parking_lot::Mutex;

use super::arguments::Arguments;
use super::client::{Client, Did, KEY_BYTES, Shared};
use super::progress_lines::Lines;
use super::sample::{BesideDevice, Phase, Sample};
use crate::instruments::account::Account;
use crate::instruments::failure::{Failure, Result};
use crate::instruments::process::{cpu_seconds, resident_bytes};
use crate::instruments::store_bed::{Bed, Tiers};
use crate::workload::Values;

/// The store under load.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Kind {
    /// The nearly full store.
    Loaded,
    /// A store with space for everything written during the phase.
    Baseline {
        /// Rate of the loaded store in operations per second.
        rate: f64,
        /// Number of keys in the loaded store.
        keys: u64,
    },
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Kind::Loaded => "loaded",
            Kind::Baseline { .. } => "baseline",
        }
    }
}

/// Sizes of a store, chosen before it is opened.
struct Sizes {
    capacity_bytes: u64,
    reserve: u8,
    /// Limit of the operations of all clients.
    operations: u64,
}

impl Sizes {
    fn of(arguments: &Arguments, kind: Kind, duration: Duration) -> Sizes {
        let Kind::Baseline { rate, keys } = kind else {
            let (capacity_bytes, reserve) = (arguments.capacity, arguments.reserve);
            return Sizes { capacity_bytes, reserve, operations: u64::MAX };
        };
        // With half of the capacity in reserve, garbage is not collected until it takes as much space as
        // live records. So the writes must stay below that. The rate is at most twice that of the loaded
        // store.
        let writes = (100 - u64::from(arguments.gets)).max(1);
        let fitting = keys * 7 / 10 * 100 / writes;
        let operations = ((rate * 2.0 * duration.as_secs_f64()) as u64).min(fitting);
        Sizes { capacity_bytes: keys * record_bytes(arguments) * 27 / 10, reserve: 50, operations }
    }
}

/// Returns the bytes that a record takes, including its summary entry.
fn record_bytes(arguments: &Arguments) -> u64 {
    let bytes = esker_log::record_bytes_max(KEY_BYTES, arguments.value_bytes as usize, true);
    bytes.next_multiple_of(16) as u64 + TYPICAL_ENTRY_BYTES
}

/// Returns the number of keys that fill the store to the requested level.
fn keys(arguments: &Arguments, kind: Kind, bed: &Bed) -> u64 {
    if let Kind::Baseline { keys, .. } = kind {
        return keys;
    }
    let limit = bed.store.stats().user_limit_bytes;
    (limit * u64::from(arguments.fill) / 100 / record_bytes(arguments)).max(arguments.threads)
}

/// Fills a new store and runs the load on it.
pub(crate) fn run(arguments: &Arguments, kind: Kind, duration: Duration, lines: &mut Lines) -> Result<Phase> {
    let sizes = Sizes::of(arguments, kind, duration);
    let tiers = Tiers {
        dir: arguments.dir.clone(),
        fast_bytes: arguments.fast,
        capacity_bytes: sizes.capacity_bytes.next_multiple_of(arguments.segment),
        unit_bytes: arguments.iu,
    };
    let bed = block_on(Bed::make(&tiers, |options| {
        options
            .segment_bytes(arguments.segment)
            .memory_bytes(arguments.memory)
            .reserve_percent(sizes.reserve)
            .durability(arguments.durability)
    }))?;
    let phase = load(arguments, kind, duration, &sizes, &bed, lines);
    let closed = block_on(bed.store.close());
    let removed = tiers.remove_files();
    let phase = phase?;
    closed?;
    removed?;
    Ok(phase)
}

fn load(
    arguments: &Arguments,
    kind: Kind,
    duration: Duration,
    sizes: &Sizes,
    bed: &Bed,
    lines: &mut Lines,
) -> Result<Phase> {
    let clients = clients(arguments, kind, sizes, bed);
    let keys = clients.iter().map(|client| client.keys).sum();
    lines.note(&format!("{}: filling {keys} keys", kind.name()));
    for client in &clients {
        block_on(client.fill())?;
    }
    block_on(bed.store.flush())?;

    let began = Instant::now();
    let (filled, cpu_before) = (bed.account(), cpu_seconds());
    let mut watch = Watch {
        kind,
        began,
        last: began,
        account: filled,
        total: Did::default(),
        samples: Vec::new(),
        latencies: bed.store.latencies(),
        puts: BesideDevice::default(),
    };
    let interval = Duration::from_secs_f64(arguments.interval);
    watch.until_through(bed, &clients, began + duration, interval, lines)?;
    // Measurements after the last whole interval count only in the totals.
    let (took, cpu) = (began.elapsed(), cpu_seconds() - cpu_before);
    let did = did(&clients);
    watch.beside_device(&did, bed.store.latencies());
    watch.total.add(&did);
    let Did { gets, puts, deletes, refused } = watch.total.clone();
    Ok(Phase {
        keys,
        took,
        operations: watch.total.operations(),
        cpu_us_per_operation: cpu * 1e6 / watch.total.operations().max(1) as f64,
        samples: watch.samples,
        latencies: [("get", gets), ("put", puts), ("delete", deletes)],
        segments_freed: bed.account().since(&filled).segments_freed,
        refused,
        longest_put: watch.puts.worst,
    })
}

/// Makes one client per thread, each with its own keys.
fn clients(arguments: &Arguments, kind: Kind, sizes: &Sizes, bed: &Bed) -> Vec<Arc<Client>> {
    let threads = arguments.threads;
    let shared = Arc::new(Shared {
        arguments: arguments.clone(),
        store: bed.store.clone(),
        runtime: bed.runtime.clone(),
        values: Values::new(arguments.seed),
        rate: arguments.rate.map(|rate| rate / threads as f64),
        operations: sizes.operations / threads,
    });
    let keys = keys(arguments, kind, bed) / threads;
    let client = |index| Client {
        shared: shared.clone(),
        first: index * keys,
        keys,
        seed: arguments.seed.wrapping_mul(1000).wrapping_add(index),
        did: Arc::default(),
    };
    (0..threads).map(|index| Arc::new(client(index))).collect()
}

/// Returns the clients' measurements since the last call.
fn did(clients: &[Arc<Client>]) -> Did {
    let mut did = Did::default();
    for client in clients {
        did.add(&std::mem::take(&mut *client.did.lock()));
    }
    did
}

fn longest_of_device(now: &StoreLatencies, before: &StoreLatencies) -> Duration {
    let tiers = now.tiers.iter().zip(&before.tiers);
    let longest = tiers
        .map(|(now, before)| now.read.since(&before.read).max().max(now.write.since(&before.write).max()));
    longest.max().unwrap_or_default()
}

/// Takes samples while the clients run.
struct Watch {
    kind: Kind,
    began: Instant,
    last: Instant,
    account: Account,
    total: Did,
    samples: Vec<Sample>,
    /// The store's latencies at the end of the previous interval.
    latencies: StoreLatencies,
    puts: BesideDevice,
}

impl Watch {
    /// Compares the longest put of an interval with the device.
    fn beside_device(&mut self, did: &Did, latencies: StoreLatencies) {
        let device_ms = longest_of_device(&latencies, &self.latencies).as_secs_f64() * 1e3;
        self.puts.interval(did.puts.max_us() / 1e3, device_ms);
        self.latencies = latencies;
    }

    /// Runs the clients until they end, and takes a sample after each interval.
    fn until_through(
        &mut self,
        bed: &Bed,
        clients: &[Arc<Client>],
        until: Instant,
        interval: Duration,
        lines: &mut Lines,
    ) -> Result<()> {
        let failure: Arc<Mutex<Option<Failure>>> = Arc::default();
        let start = |client: &Arc<Client>| {
            let (client, failure) = (client.clone(), failure.clone());
            thread::spawn(move || {
                if let Err(error) = block_on(client.run(until)) {
                    failure.lock().get_or_insert(error);
                }
            })
        };
        let running: Vec<_> = clients.iter().map(start).collect();
        let mut next = self.began + interval;
        while !running.iter().all(|thread| thread.is_finished()) && failure.lock().is_none() {
            thread::sleep(Duration::from_millis(20).min(interval / 4));
            if Instant::now() >= next {
                next += interval;
                self.sample(bed, clients, lines)?;
            }
        }
        for thread in running {
            if thread.join().is_err() {
                return Err(Failure::Failed("a client ended by a bug in the measurement".into()));
            }
        }
        match failure.lock().take() {
            Some(failure) => Err(failure),
            None => Ok(()),
        }
    }

    fn sample(&mut self, bed: &Bed, clients: &[Arc<Client>], lines: &mut Lines) -> Result<()> {
        let now = Instant::now();
        let did = did(clients);
        self.beside_device(&did, bed.store.latencies());
        let account = bed.account();
        let wrote = account.since(&self.account);
        let stats = bed.store.stats();
        let seconds = (now - self.last).as_secs_f64();
        let per_s = |count: u64| count as f64 / seconds;
        let sample = Sample {
            phase: self.kind.name(),
            at_s: (now - self.began).as_secs_f64(),
            operations_per_s: per_s(did.operations()),
            gets_per_s: per_s(did.gets.count()),
            puts_per_s: per_s(did.puts.count()),
            get_p50_us: did.gets.at_us(50.0),
            get_p99_us: did.gets.at_us(99.0),
            get_p999_us: did.gets.at_us(99.9),
            get_max_us: did.gets.max_us(),
            put_p50_us: did.puts.at_us(50.0),
            put_p99_us: did.puts.at_us(99.0),
            put_p999_us: did.puts.at_us(99.9),
            put_max_us: did.puts.max_us(),
            delete_max_us: did.deletes.max_us(),
            resident_bytes: resident_bytes(),
            free_segments: stats.tiers.last().map_or(0, |tier| tier.segments_free),
            live_bytes: stats.live_bytes,
            wa_per_user_byte: wrote.device_bytes() as f64 / wrote.user_bytes.max(1) as f64,
            segments_freed: wrote.segments_freed,
            stall_us: wrote.stall_us,
            refused: did.refused,
        };
        lines.sample(&sample)?;
        self.samples.push(sample);
        self.total.add(&did);
        (self.last, self.account) = (now, account);
        Ok(())
    }
}
