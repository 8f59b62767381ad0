//! The memory of verbs that read a whole store.

use std::fs;

use clap::Args;
use esker_inspect::{MemoryLimits, StoreView};

use super::place::Place;
use crate::terminal::Failure;

/// Least memory, in bytes.
const LEAST_BYTES: u64 = 64 << 20;
/// Part of the available memory that is taken by default, as a divisor.
const SHARE: u64 = 2;

/// The memory of a verb that reads a whole store.
#[derive(Args)]
pub(crate) struct Memory {
    /// Memory for versions of keys, buffers and the compared index; keys that do not fit are read in further passes
    /// [default: half of the available memory].
    #[arg(long, value_name = "SIZE", value_parser = esker_command::parse)]
    memory: Option<u64>,
}

impl Memory {
    /// Opens a store for reading with this memory.
    pub(crate) fn view(&self, place: &Place) -> Result<StoreView, Failure> {
        let limits = match self.memory {
            Some(bytes) if bytes < LEAST_BYTES => {
                return Err(Failure::Usage(format!("--memory {bytes} is too little; give at least 64m")));
            }
            Some(bytes) => MemoryLimits::of(bytes),
            None => default_limits(),
        };
        Ok(place.view()?.with_memory(limits))
    }
}

/// Returns half of the available memory.
pub(crate) fn default_limits() -> MemoryLimits {
    available_bytes()
        .map_or(MemoryLimits::DEFAULT, |bytes| MemoryLimits::of((bytes / SHARE).max(LEAST_BYTES)))
}

/// Returns the memory that the machine, and the control group if there is one, have left; `None` if the machine does not
/// show it.
fn available_bytes() -> Option<u64> {
    let machine = available_in(&fs::read_to_string("/proc/meminfo").ok()?)?;
    let number = |path| fs::read_to_string(path).ok()?.trim().parse::<u64>().ok();
    let (most, used) = (number("/sys/fs/cgroup/memory.max"), number("/sys/fs/cgroup/memory.current"));
    let group = most.map(|most| most.saturating_sub(used.unwrap_or(0)));
    Some(group.map_or(machine, |group| group.min(machine)))
}

fn available_in(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib * 1024)
}

#[cfg(test)]
mod tests {
    use super::available_in;

    #[test]
    fn available_memory_is_read_from_meminfo() {
        let meminfo =
            "MemTotal:       16316412 kB\nMemFree:          512000 kB\nMemAvailable:    8158206 kB\n";
        assert_eq!(available_in(meminfo), Some(8_158_206 * 1024));
        assert_eq!(available_in("MemTotal: 1 kB\n"), None);
    }
}
