//! The options of a comparison.

use std::path::PathBuf;

/// Options of the comparison.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct Arguments {
    /// Engines to compare: esker, esker-two-tier, esker-fast, rocksdb, blobdb, fjall, redb, sled, redis, raw.
    #[arg(
        long,
        value_name = "NAMES",
        default_value = "esker,esker-two-tier,esker-fast,rocksdb,blobdb,raw",
        value_delimiter = ','
    )]
    pub(crate) with: Vec<String>,
    /// Measurements: load, data (gets, 70/30, write pressure, overwrites), sync, small, hits, network [default: all].
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub(crate) only: Vec<String>,
    /// quick only shows that everything works; goals has the settings of the goals.
    #[arg(long, value_name = "NAME", default_value = "goals", value_parser = ["quick", "goals"])]
    pub(crate) preset: String,
    /// Number of rounds; the report has the medians.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=99))]
    pub(crate) repetitions: Option<u64>,
    /// Keys and values of the data set of 4 KiB values; the others are in proportion [default: 8g].
    #[arg(long, value_name = "SIZE", value_parser = esker_command::parse)]
    pub(crate) data_bytes: Option<u64>,
    /// Memory of each engine, page cache included.
    #[arg(long, value_name = "SIZE", default_value = "512m", value_parser = esker_command::parse)]
    pub(crate) memory: u64,
    /// Seconds of gets, 70/30, synced puts and each step of write pressure [default: 30].
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) duration: Option<u64>,
    /// Fill level of Esker, in percent of the user limit.
    #[arg(long, value_name = "PERCENT", default_value_t = 75, value_parser = clap::value_parser!(u64).range(5..=95))]
    pub(crate) fill: u64,
    /// Compression of Esker, RocksDB and BlobDB; values compress to half their length.
    #[arg(long, value_name = "NAME", default_value = "none", value_parser = ["none", "lz4", "zstd"])]
    pub(crate) compression: String,
    /// MB/s of the writers in the steps of write pressure, which rise; the largest counts, and is more than 0.
    #[arg(long, value_name = "NUMBERS", default_value = "0,20,40,80", value_delimiter = ',')]
    pub(crate) pressure_mb: Vec<u64>,
    /// Directory of the report.
    #[arg(long, value_name = "DIR", default_value = "esker-compare")]
    pub(crate) out: PathBuf,
    /// Directory on the measured disk in which the engines keep their data, in esker-compare-data [default: OUT].
    #[arg(long, value_name = "DIR")]
    pub(crate) dir: Option<PathBuf>,
    /// Keep the measurements of an earlier run with the same settings, and make the missing ones.
    #[arg(long)]
    pub(crate) resume: bool,
    /// RocksDB's db_bench.
    #[arg(long, value_name = "PATH", default_value = "db_bench")]
    pub(crate) db_bench: PathBuf,
    /// The package with the Rust engines, which is built when one of them takes part.
    #[arg(long, value_name = "DIR", default_value = "rivals")]
    pub(crate) rivals: PathBuf,
    /// The program that serves, for network [default: `esker` beside this one].
    #[arg(long, value_name = "PATH")]
    pub(crate) esker: Option<PathBuf>,
}
