//! The place and the sizes of the store.

use std::path::PathBuf;
use std::time::Duration;

use esker_device::Backend;
use esker_engine::{Durability, Options};
use esker_log::Superblock;

use super::flags::Parsed;

/// The place and the sizes of the store.
#[derive(Clone, Debug)]
pub(crate) struct Places {
    pub(crate) db: PathBuf,
    pub(crate) fast: Option<PathBuf>,
    pub(crate) capacity: Option<PathBuf>,
    fast_limit: Option<u64>,
    capacity_limit: Option<u64>,
    iu: Option<u64>,
    segment: Option<u64>,
    reserve: Option<u8>,
    scrub_limit: Option<u64>,
    coalesce_for: Duration,
    memory: u64,
    pub(crate) backend: Backend,
    pub(crate) direct: bool,
}

/// Additional memory of a store whose cache has the size of RocksDB's block cache, in bytes: the block
/// cache is only one part of the memory. And the default memory.
const BESIDE_CACHE_BYTES: u64 = 256 << 20;
const MEMORY_BYTES: u64 = 512 << 20;

impl Places {
    /// Reads the flags. Also appends notes to them.
    pub(super) fn of(flags: &mut Parsed) -> Result<Places, String> {
        let bytes = |name| match flags.text(name) {
            Some(text) => esker_command::parse(text).map(Some).map_err(|error| format!("--{name}: {error}")),
            None => Ok(None),
        };
        let (fast_limit, capacity_limit) = (bytes("fast_limit")?, bytes("capacity_limit")?);
        let (iu, segment, memory) = (bytes("iu")?, bytes("segment")?, bytes("memory")?);
        let scrub_limit = bytes("scrub_limit")?;
        let backend = match flags.text("backend").unwrap_or("auto") {
            "auto" => Backend::Auto,
            "uring" => Backend::Uring,
            "threads" => Backend::Threads,
            other => return Err(format!("--backend={other}: it has to be auto, uring or threads")),
        };
        // As in db_bench, a negative size means no cache.
        let cache = u64::try_from(flags.int("cache_size", 0)).unwrap_or(0);
        let mut notes = Vec::new();
        let memory = memory.unwrap_or_else(|| {
            let memory = MEMORY_BYTES.max(cache + BESIDE_CACHE_BYTES);
            if flags.is_set("cache_size") {
                notes.push(format!(
                    "--cache_size is a part of one memory budget here, which is {} MiB; --memory sets it",
                    memory >> 20
                ));
            }
            memory
        });
        let direct = flags.boolean("use_direct_reads", true)
            && flags.boolean("use_direct_io_for_flush_and_compaction", true);
        let path = |name| flags.text(name).map(PathBuf::from);
        let places = Places {
            db: path("db").unwrap_or_else(|| std::env::temp_dir().join("esker-dbbench")),
            fast: path("fast"),
            capacity: path("capacity"),
            fast_limit,
            capacity_limit,
            iu,
            segment,
            reserve: flags.is_set("reserve").then(|| flags.count("reserve", 20) as u8),
            scrub_limit,
            coalesce_for: Duration::from_millis(flags.count("coalesce_ms", 0)),
            memory,
            backend,
            direct,
        };
        flags.notes.append(&mut notes);
        Ok(places)
    }

    /// Returns the store's options.
    pub(crate) fn options(&self, durability: Durability) -> Options {
        let mut options = match (&self.fast, &self.capacity) {
            (Some(fast), Some(capacity)) => Options::fast_and_capacity(fast, capacity),
            (Some(fast), None) => Options::fast_only(fast),
            (None, Some(capacity)) => Options::capacity_only(capacity),
            (None, None) => Options::directory(&self.db),
        };
        options = options
            .memory_bytes(self.memory)
            .durability(durability)
            .coalesce_for(self.coalesce_for)
            .backend(self.backend)
            .direct(self.direct);
        if let Some(bytes) = self.fast_limit {
            options = options.fast_limit_bytes(bytes);
        }
        if let Some(bytes) = self.capacity_limit {
            options = options.capacity_limit_bytes(bytes);
        }
        if let Some(bytes) = self.iu {
            options = options.indirection_unit_bytes(bytes);
        }
        if let Some(bytes) = self.segment {
            options = options.segment_bytes(bytes);
        }
        if let Some(percent) = self.reserve {
            options = options.reserve_percent(percent);
        }
        if let Some(bytes) = self.scrub_limit {
            options = options.scrub_bytes_per_s(bytes);
        }
        options
    }

    /// Returns true if the flags ask for other lengths of segments or units than an existing store has.
    pub(crate) fn differs(&self, there: &Superblock) -> bool {
        self.segment.is_some_and(|bytes| bytes != there.segment_bytes)
            || self.iu.is_some_and(|bytes| bytes != there.unit_bytes)
    }

    /// Returns the same places with the lengths of an existing store.
    pub(crate) fn of_shape(&self, there: &Superblock) -> Places {
        let (segment, iu) = (Some(there.segment_bytes), Some(there.unit_bytes));
        Places { segment, iu, capacity_limit: None, ..self.clone() }
    }

    /// Returns the directory of the store's files; `None` if it lies on devices.
    pub(crate) fn directory(&self) -> Option<PathBuf> {
        match self.capacity.as_ref().or(self.fast.as_ref()) {
            None => Some(self.db.clone()),
            Some(path) if path.is_file() => path.parent().map(PathBuf::from),
            Some(_) => None,
        }
    }

    /// Returns the place as text.
    pub(crate) fn name(&self) -> String {
        let tiers: Vec<String> = [&self.fast, &self.capacity]
            .into_iter()
            .flatten()
            .map(|path| path.display().to_string())
            .collect();
        if tiers.is_empty() { self.db.display().to_string() } else { tiers.join(",") }
    }
}
