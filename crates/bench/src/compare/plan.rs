//! What is measured: data sets, and the steps on each.

/// What a step does, whatever the engine calls it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Benchmark {
    /// Keys drawn with replacement.
    Fill,
    /// Every key once, in random order.
    FillEach,
    Read,
    Mixed,
    Overwrite,
    /// Overwrites of keys of unlike popularity.
    Popular,
    /// One reader beside writers at rising rates.
    Pressure,
    /// Waits until background work rests.
    Settle,
}

/// One process of an engine. The last of its benchmarks counts; the ones before it warm up.
#[derive(Clone, Debug)]
pub(super) struct Step {
    pub(super) name: &'static str,
    pub(super) benchmarks: Vec<Benchmark>,
    /// Begins with nothing.
    pub(super) fresh: bool,
    pub(super) num: u64,
    pub(super) value_bytes: u64,
    /// Operations of all threads together; without them it lasts `seconds`.
    pub(super) operations: Option<u64>,
    pub(super) seconds: Option<u64>,
    pub(super) in_flight: u64,
    /// Threads that Esker spreads them over.
    pub(super) esker_threads: u64,
    pub(super) read_percent: Option<u64>,
    pub(super) sync: bool,
    /// The data set is to be held in memory.
    pub(super) in_memory: bool,
    /// How full the store is, of what users may fill.
    pub(super) fill_percent: u64,
    pub(super) seed: u64,
}

/// A data set and the steps on it, of which each begins with what the one before left.
#[derive(Clone, Debug)]
pub(super) struct Group {
    pub(super) name: &'static str,
    /// Why it is there.
    pub(super) about: String,
    pub(super) steps: Vec<Step>,
}

/// How large everything is.
#[derive(Clone, Debug)]
pub(super) struct Sizes {
    /// Of the data set of 4 KiB values; the others are in proportion.
    pub(super) data_bytes: u64,
    pub(super) memory_bytes: u64,
    /// Of steps that last for a time.
    pub(super) seconds: u64,
    pub(super) pressure_mb: Vec<u64>,
    /// How full Esker is, in percent of what users may fill.
    pub(super) fill_percent: u64,
}

const VALUE_BYTES: u64 = 4096;
const KEY_BYTES: u64 = 16;
const SMALL_BYTES: u64 = 100;
/// How often each key comes, about, where memory holds them all: few are left that have to be read for the first time.
const HIT_ROUNDS: u64 = 40;
/// The data set to which 20 million small values belong.
const WHOLE_BYTES: u64 = 8 << 30;

impl Sizes {
    pub(super) fn keys(&self) -> u64 {
        (self.data_bytes / (VALUE_BYTES + KEY_BYTES)).max(100)
    }

    pub(super) fn small_keys(&self) -> u64 {
        (u128::from(self.data_bytes) * 20_000_000 / u128::from(WHOLE_BYTES)).max(100) as u64
    }

    /// Half of the memory.
    pub(super) fn hit_keys(&self) -> u64 {
        (self.memory_bytes / 2 / (VALUE_BYTES + KEY_BYTES)).min(self.keys()).max(100)
    }

    /// Of the file that is read and written in the raw: reads are to be spread as widely as the store's, since what is
    /// below the device may have a cache.
    pub(super) fn raw_bytes(&self, step: &Step) -> u64 {
        let reads = [Benchmark::Read, Benchmark::Pressure].iter().any(|read| step.benchmarks.contains(read));
        if reads { self.data_bytes.max(4 << 20) } else { (self.data_bytes / 2).clamp(4 << 20, 1 << 30) }
    }

    /// Could an engine keep all of the data in its memory?
    pub(super) fn fits_in_memory(&self) -> bool {
        self.data_bytes <= self.memory_bytes
    }

    /// Bytes that an engine, and the raw file beside it, may need on the disk at once.
    pub(super) fn disk_bytes(&self) -> u64 {
        self.data_bytes.saturating_mul(3).saturating_add(1 << 30)
    }
}

/// The names of the groups, for `--only`.
pub(super) const GROUPS: [&str; 5] = ["load", "data", "sync", "small", "hits"];

/// All groups of one repetition.
pub(super) fn groups(sizes: &Sizes, repetition: u64) -> Vec<Group> {
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
        // Every step and repetition draws keys of its own, the same for all engines.
        seed: 1000 * repetition,
    };
    let fresh = Step { fresh: true, ..step.clone() };
    let timed = Step { seconds: Some(sizes.seconds), ..step.clone() };
    let groups = vec![
        Group {
            name: "load",
            about: format!(
                "{keys} puts of 16 B / 4 KiB to keys drawn with replacement, into an empty store; then it is let rest"
            ),
            steps: vec![Step {
                name: "load",
                benchmarks: vec![Benchmark::Fill, Benchmark::Settle],
                operations: Some(keys),
                ..fresh.clone()
            }],
        },
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
                    ..fresh.clone()
                },
                Step { name: "get", benchmarks: vec![Benchmark::Read; 2], in_flight: 64, ..timed.clone() },
                Step {
                    name: "mixed",
                    benchmarks: vec![Benchmark::Mixed; 2],
                    in_flight: 64,
                    read_percent: Some(70),
                    ..timed.clone()
                },
                Step {
                    name: "pressure",
                    benchmarks: vec![Benchmark::Pressure],
                    in_flight: 1,
                    ..timed.clone()
                },
                Step {
                    name: "overwrite",
                    benchmarks: vec![Benchmark::Overwrite; 2],
                    operations: Some(keys),
                    ..step.clone()
                },
                Step {
                    name: "popular",
                    benchmarks: vec![Benchmark::Popular; 2],
                    operations: Some(keys),
                    ..step.clone()
                },
            ],
        },
        Group {
            name: "sync",
            about: "synced puts of 16 B / 4 KiB into an empty store, by one writer and by 32".into(),
            steps: [(1, "sync1"), (32, "sync32")]
                .map(|(writers, name)| Step {
                    name,
                    benchmarks: vec![Benchmark::Fill],
                    fresh: true,
                    num: (keys / 4).max(100),
                    sync: true,
                    in_flight: writers,
                    fill_percent: 50,
                    ..timed.clone()
                })
                .to_vec(),
        },
        Group {
            name: "small",
            about: format!(
                "{} puts of 16 B / 100 B to as many keys drawn with replacement (63 % of them are there then), let rest; then 70/30",
                sizes.small_keys()
            ),
            steps: vec![
                Step {
                    name: "small-load",
                    benchmarks: vec![Benchmark::Fill, Benchmark::Settle],
                    num: sizes.small_keys(),
                    value_bytes: SMALL_BYTES,
                    operations: Some(sizes.small_keys()),
                    ..fresh.clone()
                },
                Step {
                    name: "small-mixed",
                    benchmarks: vec![Benchmark::Mixed; 2],
                    num: sizes.small_keys(),
                    value_bytes: SMALL_BYTES,
                    in_flight: 64,
                    read_percent: Some(70),
                    ..timed.clone()
                },
            ],
        },
        Group {
            name: "hits",
            about: format!(
                "{} keys of 16 B / 4 KiB, which memory holds; gets of uniformly drawn keys by two threads (YCSB C; stock db_bench \
                 cannot draw Zipf), so many that each key comes {HIT_ROUNDS} times, once to warm up and once to count",
                sizes.hit_keys()
            ),
            steps: vec![
                Step {
                    name: "hits-fill",
                    benchmarks: vec![Benchmark::FillEach, Benchmark::Settle],
                    num: sizes.hit_keys(),
                    operations: Some(sizes.hit_keys()),
                    in_flight: 1,
                    in_memory: true,
                    fill_percent: 50,
                    ..fresh
                },
                Step {
                    name: "hits",
                    benchmarks: vec![Benchmark::Read; 2],
                    num: sizes.hit_keys(),
                    operations: Some(sizes.hit_keys() * HIT_ROUNDS),
                    in_flight: 2,
                    in_memory: true,
                    fill_percent: 50,
                    ..step
                },
            ],
        },
    ];
    groups
        .into_iter()
        .map(|mut group| {
            for (at, step) in group.steps.iter_mut().enumerate() {
                step.seed += at as u64 + 1;
            }
            group
        })
        .collect()
}
