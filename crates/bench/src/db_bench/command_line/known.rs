//! The list of flags: those of RocksDB's db_bench, and the harness's own.

use std::sync::LazyLock;

/// The type of a flag's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Bool,
    /// A whole number in the given range.
    Int(i128, i128),
    Float,
    Text,
}

/// The effect of a flag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Meaning {
    /// The same as in db_bench, with its help text.
    Used(&'static str),
    /// One of the harness's own flags, with its help text.
    Own(&'static str),
    /// None: it concerns an LSM tree or another feature of RocksDB.
    Ignored,
}

/// A flag.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Flag {
    pub(crate) name: &'static str,
    pub(crate) kind: Kind,
    pub(crate) meaning: Meaning,
}

use Kind::{Bool, Float, Int, Text};

/// Any 64-bit number, signed or unsigned.
const INT: Kind = Int(i64::MIN as i128, u64::MAX as i128);
/// Longest value that is drawn, in bytes. The store's own limit depends on its segments.
pub(super) const VALUE_BYTES: i128 = 1 << 30;
/// Limit of operations and keys, for which sums over all threads do not overflow.
const MANY: i128 = 1 << 48;
const COUNT: Kind = Int(1, MANY);
/// A number where -1 means `--num`.
const OR_NUM: Kind = Int(-1, MANY);
/// Seconds, at most a hundred years; 0 means none.
const SECONDS: Kind = Int(0, 3_155_760_000);
const PERCENT: Kind = Int(0, 100);
const LIMIT: Kind = Int(0, u64::MAX as i128);

/// Flags that have the same effect as in db_bench.
const USED: &[(&str, Kind, &str)] = &[
    ("benchmarks", Text, "names with commas between [fillseq,fillrandom,overwrite,readrandom]"),
    ("db", Text, "directory of the store [esker-dbbench among temporary files]"),
    ("num", COUNT, "keys, and operations of each thread [1000000]"),
    ("reads", OR_NUM, "reads of each thread; -1: --num [-1]"),
    ("writes", OR_NUM, "writes of each thread; -1 and 0: --num [-1]"),
    ("deletes", OR_NUM, "deletes of each thread; -1: --num [-1]"),
    // A missing key is one byte longer.
    ("key_size", Int(1, 65_535), "bytes of a key [16]"),
    ("value_size", Int(0, VALUE_BYTES), "bytes of a value [100]"),
    ("compression_type", Text, "none, lz4 or zstd; others of db_bench are none here [lz4]"),
    ("compression_level", Int(i32::MIN as i128, i32::MAX as i128), "level of zstd, from 1 to 22 [3]"),
    ("compression_ratio", Float, "what compression is to leave of a value, from 0 to 1 [0.5]"),
    ("value_size_distribution_type", Text, "fixed, uniform or normal [fixed]"),
    ("value_size_min", Int(0, VALUE_BYTES), "shortest value, if not fixed [100]"),
    ("value_size_max", Int(0, VALUE_BYTES), "longest value, if not fixed [102400]"),
    ("threads", Int(1, 4096), "client threads [1]"),
    ("duration", SECONDS, "seconds that a benchmark lasts, instead of a number of operations; 0: none [0]"),
    ("batch_size", Int(1, 65_536), "keys of one write or one look-up of many [1]"),
    ("sync", Bool, "a write waits for the medium [false]"),
    ("disable_wal", Bool, "a write outlives neither machine nor process [false]"),
    ("histogram", Bool, "print a histogram of latencies [false]"),
    ("statistics", Bool, "print the store's numbers at the end [false]"),
    ("stats_interval_seconds", SECONDS, "seconds between two lines of progress; 0: none [0]"),
    ("use_existing_db", Bool, "keep what is in the store; it has to be there [false]"),
    ("readwritepercent", PERCENT, "share of reads, where there are writes too [90]"),
    ("deletepercent", PERCENT, "share of deletes in randomwithverify [2]"),
    ("benchmark_write_rate_limit", LIMIT, "bytes a second of all writers; 0: as fast as they go [0]"),
    ("benchmark_read_rate_limit", LIMIT, "operations a second of all readers; 0: as fast as they go [0]"),
    (
        "cache_size",
        Int(i64::MIN as i128, 1 << 50),
        "bytes of RocksDB's block cache; --memory is it and 256 MiB [0]",
    ),
    ("use_direct_reads", Bool, "false: through the page cache [true]"),
    ("use_direct_io_for_flush_and_compaction", Bool, "false: through the page cache [true]"),
    ("seed", Int(i64::MIN as i128, i64::MAX as i128), "draws the workload; 0: from the clock [0]"),
    ("report_file", Text, "operations a second over time, as CSV [none]"),
    ("report_interval_seconds", SECONDS, "seconds between two lines of it; 0: 10 [0]"),
    ("finish_after_writes", Bool, "writers beside readers do all of their writes [false]"),
    ("keyrange_dist_a", Float, "mixgraph: hot ranges of keys, with b, c and d [0]"),
    ("keyrange_dist_b", Float, "the same"),
    ("keyrange_dist_c", Float, "the same"),
    ("keyrange_dist_d", Float, "the same"),
    ("keyrange_num", Int(1, 1 << 24), "mixgraph: ranges of keys [1]"),
    ("key_dist_a", Float, "mixgraph: hot keys of a range, with b [0]"),
    ("key_dist_b", Float, "the same"),
    ("value_theta", Float, "mixgraph: lengths of values, with k and sigma [0]"),
    ("value_k", Float, "the same [0.2615]"),
    ("value_sigma", Float, "the same [25.45]"),
    ("mix_get_ratio", Float, "mixgraph: share of gets [1]"),
    ("mix_put_ratio", Float, "mixgraph: share of puts [0]"),
    ("mix_seek_ratio", Float, "mixgraph: share of seeks, which are gets here [0]"),
    ("mix_max_value_size", Int(1, VALUE_BYTES), "mixgraph: longest value [1024]"),
    ("sine_mix_rate", Bool, "mixgraph: the rate follows a sine [false]"),
    (
        "sine_mix_rate_interval_milliseconds",
        Int(1, 3_155_760_000_000),
        "mixgraph: how long a rate of the sine is kept [10000]",
    ),
    ("sine_a", Float, "mixgraph: a sin(b t + c) + d operations a second [1]"),
    ("sine_b", Float, "the same [1]"),
    ("sine_c", Float, "the same [0]"),
    ("sine_d", Float, "the same [1]"),
    ("flagfile", Text, "files with flags, one a line, with commas between the files [none]"),
    ("fromenv", Text, "flags that have their values in FLAGS_name of the environment [none]"),
    ("tryfromenv", Text, "the same, for those that are there [none]"),
    ("undefok", Text, "flags that may be unknown [none]"),
];

/// The harness's own flags.
const OWN: &[(&str, Kind, &str)] = &[
    ("queue_depth", Int(1, 65_536), "operations in flight of each thread [1]"),
    ("fast", Text, "device or file of a fast tier [none]"),
    ("capacity", Text, "device or file of the capacity tier [a file in --db]"),
    ("fast_limit", Text, "how large the fast tier may become [all there is]"),
    ("capacity_limit", Text, "how large the capacity tier may become [all there is]"),
    ("iu", Text, "indirection unit of the capacity tier [what the device says]"),
    ("segment", Text, "length of a segment [by the size of the store]"),
    ("reserve", Int(5, 50), "percent of the capacity that users cannot fill [the store's own]"),
    ("scrub_limit", Text, "bytes a second that the scrub reads; 0: there is none [a pass in a week]"),
    ("durability", Text, "sync, process, periodic, periodic:MS or none [what --sync and --disable_wal say]"),
    (
        "coalesce_ms",
        Int(0, 3_600_000),
        "milliseconds that unsynced writes may wait in memory to be overwritten [0]",
    ),
    ("memory", Text, "memory of the store for everything [--cache_size and 256m, at least 512m]"),
    ("backend", Text, "auto, uring or threads [auto]"),
    ("json", Text, "write the figures to this file; -: stdout [none]"),
    ("pressure_mb", Text, "writepressure, rawpressure: MB/s of the writers [0,10,20,40,80,160]"),
    ("pressure_seconds", Int(1, 3_155_760_000), "the same: seconds of each step [10]"),
    ("raw_bytes", Text, "raw…: size of the file beside the store [1g]"),
];

/// Name, type and default of every flag of db_bench 7.8.3, from its own output.
pub(super) const DB_BENCH: &str = include_str!("captured/flags-7.8.3.txt");

/// Flags of other versions of db_bench, or with a wider type there, and flags of gflags.
const OTHER_VERSIONS: &[(Kind, &str)] = &[
    (Float, "bloom_bits"),
    (
        INT,
        "access_hint_on_compaction_start base_background_compactions block_protection_bytes_per_key \
         iter_refresh_interval_us keys_per_multiget num_dbs partitioned_pinning rate_limit_delay_max_milliseconds \
         tab_completion_columns universal_stop_style unpartitioned_pinning",
    ),
    (
        Bool,
        "avoid_flush_during_shutdown disable_data_sync multiread_check new_table_reader_for_compaction_inputs \
         report_thread_idle skip_stats_update_on_db_open use_block_based_filter use_clock_cache",
    ),
    (Text, "cache_uri hdfs tab_completion_word"),
];

/// Ignored flags that make db_bench do other operations.
const OTHER_WORKLOAD: &str = "disposable_entries_batch_size disposable_entries_delete_delay disposable_entries_value_size \
     expire_style overwrite_probability overwrite_window_size persistent_entries_batch_size \
     persistent_entries_value_size read_random_exp_range readonly stddev time_range";

impl Kind {
    /// Converts a type of gflags.
    fn of(gflags: &str) -> Kind {
        match gflags {
            "bool" => Bool,
            "double" => Float,
            "int32" => Int(i32::MIN.into(), i32::MAX.into()),
            "uint32" => Int(0, u32::MAX.into()),
            "int64" => Int(i64::MIN.into(), i64::MAX.into()),
            "uint64" => LIMIT,
            _ => Text,
        }
    }
}

impl Flag {
    /// Returns true if db_bench would do other operations with the flag, although it is ignored here.
    pub(crate) fn changes_workload(&self) -> bool {
        self.meaning == Meaning::Ignored && OTHER_WORKLOAD.split_whitespace().any(|name| name == self.name)
    }
}

/// All flags: those with an effect, and then all others of db_bench, whose values are checked by their
/// type and ignored.
pub(crate) static FLAGS: LazyLock<Vec<Flag>> = LazyLock::new(|| {
    let used = USED.iter().map(|&(name, kind, help)| Flag { name, kind, meaning: Meaning::Used(help) });
    let own = OWN.iter().map(|&(name, kind, help)| Flag { name, kind, meaning: Meaning::Own(help) });
    let mut flags: Vec<Flag> = used.chain(own).collect();
    let other = OTHER_VERSIONS
        .iter()
        .flat_map(|&(kind, names)| names.split_whitespace().map(move |name| (name, kind)));
    let captured = DB_BENCH.lines().filter_map(|line| {
        let mut parts = line.split(' ');
        Some((parts.next()?, Kind::of(parts.next()?)))
    });
    for (name, kind) in other.chain(captured) {
        if !flags.iter().any(|flag| flag.name == name) {
            flags.push(Flag { name, kind, meaning: Meaning::Ignored });
        }
    }
    flags
});
