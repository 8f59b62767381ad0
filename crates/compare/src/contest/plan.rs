//! The data sets, and the steps on each.

/// The work of a step, independent of the engine's name for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Benchmark {
    /// Puts of keys drawn with replacement.
    Fill,
    /// Puts of every key once, in random order.
    FillEach,
    Read,
    Mixed,
    Overwrite,
    /// Overwrites of keys with skewed popularity.
    Popular,
    /// One iteration over all records.
    Scan,
    /// One reader beside writers at rising rates.
    Pressure,
    /// Waits until background work has ended.
    Settle,
}

/// One process of an engine. The last of its benchmarks counts; the ones before it warm up.
#[derive(Clone, Debug)]
pub(crate) struct Step {
    pub(crate) name: &'static str,
    pub(crate) benchmarks: Vec<Benchmark>,
    /// Starts with an empty store.
    pub(crate) fresh: bool,
    pub(crate) num: u64,
    pub(crate) value_bytes: u64,
    /// Operations of all threads together; `None` if the step lasts `seconds`.
    pub(crate) operations: Option<u64>,
    pub(crate) seconds: Option<u64>,
    pub(crate) in_flight: u64,
    /// Number of threads to which Esker distributes the operations in flight.
    pub(crate) esker_threads: u64,
    pub(crate) read_percent: Option<u64>,
    pub(crate) sync: bool,
    /// The data set must fit in memory.
    pub(crate) in_memory: bool,
    /// Fill level of the store in percent of the user limit.
    pub(crate) fill_percent: u64,
    pub(crate) seed: u64,
}

/// A data set and the steps on it. Each step starts with the store that the previous one left.
#[derive(Clone, Debug)]
pub(crate) struct Group {
    pub(crate) name: &'static str,
    /// The reason for it.
    pub(crate) about: String,
    pub(crate) steps: Vec<Step>,
}

/// The sizes of the comparison.
#[derive(Clone, Debug)]
pub(crate) struct Sizes {
    /// Bytes of the data set of 4 KiB values; the other data sets are in proportion.
    pub(crate) data_bytes: u64,
    pub(crate) memory_bytes: u64,
    /// Duration of timed steps in seconds.
    pub(crate) seconds: u64,
    /// Write rates in MB/s, ascending; the last one is greater than 0.
    pub(crate) pressure_mb: Vec<u64>,
    /// Fill level of Esker in percent of the user limit.
    pub(crate) fill_percent: u64,
    /// The compression of values, which halves them: `none`, `lz4` or `zstd`.
    pub(crate) compression: String,
}

const VALUE_BYTES: u64 = 4096;
const KEY_BYTES: u64 = 16;
const SMALL_BYTES: u64 = 100;
const SCANNED_BYTES: u64 = 65;
/// Approximate number of reads per key in the data set that memory holds, so that few reads are the first
/// of their key.
const HIT_ROUNDS: u64 = 40;
/// Bytes of the main data set at which the data set of small values has 20 million.
const WHOLE_BYTES: u64 = 8 << 30;

impl Sizes {
    pub(crate) fn keys(&self) -> u64 {
        (self.data_bytes / (VALUE_BYTES + KEY_BYTES)).max(100)
    }

    pub(crate) fn small_keys(&self) -> u64 {
        (u128::from(self.data_bytes) * 20_000_000 / u128::from(WHOLE_BYTES)).max(100) as u64
    }

    /// Number of keys that fill half of the memory.
    pub(crate) fn hit_keys(&self) -> u64 {
        (self.memory_bytes / 2 / (VALUE_BYTES + KEY_BYTES)).min(self.keys()).max(100)
    }

    /// Returns the length of the raw file in bytes: reads must be spread as widely as the store's,
    /// because the layer below the device may have a cache.
    pub(crate) fn raw_bytes(&self, step: &Step) -> u64 {
        let reads = [Benchmark::Read, Benchmark::Pressure].iter().any(|read| step.benchmarks.contains(read));
        if reads { self.data_bytes.max(4 << 20) } else { (self.data_bytes / 2).clamp(4 << 20, 1 << 30) }
    }

    /// Returns true if an engine could keep all data in its memory.
    pub(crate) fn fits_in_memory(&self) -> bool {
        self.data_bytes <= self.memory_bytes
    }

    /// Returns the bytes that an engine and the raw file beside it may need on the disk at the same time.
    pub(crate) fn disk_bytes(&self) -> u64 {
        self.data_bytes.saturating_mul(3).saturating_add(1 << 30)
    }
}

/// The names of the groups, for `--only`.
pub(crate) const GROUPS: [&str; 6] = ["load", "data", "sync", "small", "hits", "scan"];

/// Returns all groups of one repetition.
pub(crate) fn groups(sizes: &Sizes, repetition: u64) -> Vec<Group> {
    let make = Steps::of(sizes, repetition);
    let mut groups = vec![make.load(), make.data(), make.sync(), make.small(), make.hits(), make.scan()];
    for group in &mut groups {
        for (at, step) in group.steps.iter_mut().enumerate() {
            step.seed += at as u64 + 1;
        }
    }
    groups
}

/// The templates of the steps of a repetition.
struct Steps<'a> {
    sizes: &'a Sizes,
    keys: u64,
    /// Continues with the existing store.
    step: Step,
    /// Starts with an empty store.
    fresh: Step,
    /// Lasts for a fixed time.
    timed: Step,
}

impl Steps<'_> {
    fn of(sizes: &Sizes, repetition: u64) -> Steps<'_> {
        let keys = sizes.keys();
        let step = Step {
            name: "",
            benchmarks: Vec::new(),
            fresh: false,
            num: keys,
            value_bytes: VALUE_BYTES,
            operations: None,
            seconds: None,
            in_flight: 4,
            esker_threads: 2,
            read_percent: None,
            sync: false,
            in_memory: false,
            fill_percent: sizes.fill_percent,
            // Every step and repetition draws its own keys, the same for all engines.
            seed: 1000 * repetition,
        };
        let fresh = Step { fresh: true, ..step.clone() };
        let timed = Step { seconds: Some(sizes.seconds), ..step.clone() };
        Steps { sizes, keys, step, fresh, timed }
    }

    fn load(&self) -> Group {
        let keys = self.keys;
        Group {
            name: "load",
            about: format!(
                "{keys} puts of 16 B / 4 KiB to keys drawn with replacement, into an empty store; then it is let rest"
            ),
            steps: vec![Step {
                name: "load",
                benchmarks: vec![Benchmark::Fill, Benchmark::Settle],
                operations: Some(keys),
                ..self.fresh.clone()
            }],
        }
    }

    fn data(&self) -> Group {
        let keys = self.keys;
        let overwrites = |name, benchmark| Step {
            name,
            benchmarks: vec![benchmark; 2],
            operations: Some(keys),
            ..self.step.clone()
        };
        Group {
            name: "data",
            about: format!(
                "{keys} keys of 16 B / 4 KiB, each put once in random order, let rest; then, each by a process of its own on \
                 what is there: gets, 70/30, one reader beside writers, overwrites, overwrites of unlike popularity. Gets and \
                 70/30 run once to warm up and once to count, overwrites once for as many operations as there are keys and \
                 then as many that count"
            ),
            steps: vec![
                Step {
                    name: "fill",
                    benchmarks: vec![Benchmark::FillEach, Benchmark::Settle],
                    operations: Some(keys),
                    in_flight: 1,
                    ..self.fresh.clone()
                },
                Step {
                    name: "get",
                    benchmarks: vec![Benchmark::Read; 2],
                    in_flight: 64,
                    ..self.timed.clone()
                },
                self.mixed("mixed"),
                Step {
                    name: "pressure",
                    benchmarks: vec![Benchmark::Pressure],
                    in_flight: 1,
                    ..self.timed.clone()
                },
                overwrites("overwrite", Benchmark::Overwrite),
                overwrites("popular", Benchmark::Popular),
            ],
        }
    }

    /// Seven gets to three puts, 64 in flight.
    fn mixed(&self, name: &'static str) -> Step {
        let benchmarks = vec![Benchmark::Mixed; 2];
        Step { name, benchmarks, in_flight: 64, read_percent: Some(70), ..self.timed.clone() }
    }

    fn sync(&self) -> Group {
        let writers = |in_flight, name| Step {
            name,
            benchmarks: vec![Benchmark::Fill],
            fresh: true,
            num: (self.keys / 4).max(100),
            sync: true,
            in_flight,
            fill_percent: 50,
            ..self.timed.clone()
        };
        Group {
            name: "sync",
            about: "synced puts of 16 B / 4 KiB into an empty store, by one writer and by 32".into(),
            steps: vec![writers(1, "sync1"), writers(32, "sync32")],
        }
    }

    fn small(&self) -> Group {
        let keys = self.sizes.small_keys();
        Group {
            name: "small",
            about: format!(
                "{keys} puts of 16 B / 100 B to as many keys drawn with replacement (63 % of them are there then), let rest; then 70/30"
            ),
            steps: vec![
                Step {
                    name: "small-load",
                    benchmarks: vec![Benchmark::Fill, Benchmark::Settle],
                    num: keys,
                    value_bytes: SMALL_BYTES,
                    operations: Some(keys),
                    ..self.fresh.clone()
                },
                Step { num: keys, value_bytes: SMALL_BYTES, ..self.mixed("small-mixed") },
            ],
        }
    }

    fn hits(&self) -> Group {
        let keys = self.sizes.hit_keys();
        let step = Step { num: keys, in_memory: true, fill_percent: 50, ..self.step.clone() };
        Group {
            name: "hits",
            about: format!(
                "{keys} keys of 16 B / 4 KiB, which memory holds; gets of uniformly drawn keys by two threads (YCSB C; stock db_bench \
                 cannot draw Zipf), so many that each key comes {HIT_ROUNDS} times, once to warm up and once to count"
            ),
            steps: vec![
                Step {
                    name: "hits-fill",
                    benchmarks: vec![Benchmark::FillEach, Benchmark::Settle],
                    fresh: true,
                    operations: Some(keys),
                    in_flight: 1,
                    ..step.clone()
                },
                Step {
                    name: "hits",
                    benchmarks: vec![Benchmark::Read; 2],
                    operations: Some(keys * HIT_ROUNDS),
                    in_flight: 2,
                    ..step
                },
            ],
        }
    }

    fn scan(&self) -> Group {
        let keys = self.keys;
        let fill = |name, value_bytes| Step {
            name,
            benchmarks: vec![Benchmark::FillEach, Benchmark::Settle],
            operations: Some(keys),
            in_flight: 1,
            value_bytes,
            ..self.fresh.clone()
        };
        let scan = |name, value_bytes| Step {
            name,
            benchmarks: vec![Benchmark::Scan],
            operations: Some(keys),
            in_flight: 1,
            value_bytes,
            ..self.step.clone()
        };
        Group {
            name: "scan",
            about: format!(
                "{keys} keys of 16 B / 65 B, each put once in random order, then read by one iteration of a new process with \
                 empty caches; the same with values of 4 KiB"
            ),
            steps: vec![
                fill("scan-small-fill", SCANNED_BYTES),
                scan("scan-small", SCANNED_BYTES),
                fill("scan-fill", VALUE_BYTES),
                scan("scan", VALUE_BYTES),
            ],
        }
    }
}
