//! The flags, which are a few of db_bench's.

use std::path::PathBuf;

/// The values of the flags.
pub struct Flags {
    pub engine: String,
    pub benchmarks: Vec<String>,
    pub num: u64,
    pub reads: u64,
    pub writes: u64,
    pub key_size: usize,
    pub value_size: usize,
    pub threads: u64,
    pub duration: Option<u64>,
    pub readwritepercent: u64,
    pub use_existing_db: bool,
    pub sync: bool,
    pub seed: u64,
    pub db: PathBuf,
    pub json: Option<PathBuf>,
    /// Memory for everything.
    pub memory: u64,
}

impl Flags {
    pub fn parse(words: &[String]) -> Result<Flags, String> {
        let mut flags = Flags {
            engine: String::new(),
            benchmarks: Vec::new(),
            num: 1_000_000,
            reads: 0,
            writes: 0,
            key_size: 16,
            value_size: 100,
            threads: 1,
            duration: None,
            readwritepercent: 90,
            use_existing_db: false,
            sync: false,
            seed: 301,
            db: PathBuf::new(),
            json: None,
            memory: 512 << 20,
        };
        for word in words {
            let given = word.trim_start_matches('-').split_once('=');
            let (name, value) = given.ok_or(format!("'{word}': flags look like --num=1000"))?;
            let number =
                || value.parse::<u64>().map_err(|_| format!("--{name}={value}: it has to be a number"));
            match name {
                "engine" => flags.engine = value.into(),
                "benchmarks" => flags.benchmarks = value.split(',').map(str::to_owned).collect(),
                "num" => flags.num = number()?.max(1),
                "reads" => flags.reads = number()?,
                "writes" => flags.writes = number()?,
                "key_size" => flags.key_size = number()? as usize,
                "value_size" => flags.value_size = number()? as usize,
                "threads" => flags.threads = number()?.max(1),
                "duration" => flags.duration = Some(number()?).filter(|seconds| *seconds > 0),
                "readwritepercent" => flags.readwritepercent = number()?,
                "use_existing_db" => flags.use_existing_db = number()? != 0,
                "sync" => flags.sync = number()? != 0,
                "seed" => flags.seed = number()?,
                "memory" => flags.memory = number()?,
                "db" => flags.db = value.into(),
                "json" => flags.json = Some(value.into()),
                // Histograms are always printed.
                "histogram" => {}
                _ => return Err(format!("unknown flag --{name}")),
            }
        }
        if flags.db.as_os_str().is_empty() {
            return Err("--db is missing".into());
        }
        for count in [&mut flags.reads, &mut flags.writes] {
            if *count == 0 {
                *count = flags.num;
            }
        }
        Ok(flags)
    }
}
