//! Prints the head before the first benchmark: the machine, the benchmarks, and the store.

use std::time::SystemTime;

use esker_engine::{Compression, Store};

use super::date;
use super::stats::RULE;
use crate::db_bench::command_line::config::{Config, ValueSize};

/// Prints the head.
pub(crate) fn print(config: &Config, store: &Store) {
    let (least, most) = match config.value_size {
        ValueSize::Fixed(bytes) => (bytes, bytes),
        ValueSize::Uniform(least, most) | ValueSize::Normal(least, most) => (least, most),
    };
    let values = if least == most { format!("{most}") } else { format!("{least} to {most}") };
    let raw = config.num as f64 * (config.key_size as f64 + (least + most) as f64 / 2.0) / 1048576.0;
    println!("Esker:      version {}", env!("CARGO_PKG_VERSION"));
    println!("Date:       {}", date::long(SystemTime::now()));
    print!("{}", processors(&std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default()));
    println!("Keys:       {} bytes each", config.key_size);
    let left = (most as f64 * config.compression_ratio) as usize;
    match config.compression {
        Compression::Off => println!("Values:     {values} bytes each (not compressed)"),
        by => println!("Values:     {values} bytes each ({left} bytes after compression by {by})"),
    }
    println!("Entries:    {}", config.num);
    println!("RawSize:    {raw:.1} MB (estimated)");
    println!("Write rate: {} bytes/second", config.write_limit.unwrap_or(0));
    println!("Read rate: {} ops/second", config.read_limit.unwrap_or(0));
    println!("Durability: {}", config.durability);
    for tier in &store.stats().tiers {
        println!(
            "Tier:       {} {} by {}, direct {}, unit {}, {} segments of {} bytes",
            tier.name,
            tier.path,
            tier.backend,
            tier.direct,
            tier.unit_bytes,
            tier.segments_total,
            tier.segment_bytes
        );
    }
    println!("{RULE}");
    println!("DB path: [{}]", config.places.name());
}

/// Returns db_bench's lines about the processors, from Linux's text; empty if the text is.
fn processors(info: &str) -> String {
    let named = |wanted: &str| {
        let of = move |line: &str| {
            let (name, value) = line.split_once(':')?;
            (name.trim() == wanted).then(|| value.trim().to_owned())
        };
        info.lines().filter_map(of).collect::<Vec<_>>()
    };
    let (models, caches) = (named("model name"), named("cache size"));
    let cpu = models.last().map(|model| format!("CPU:        {} * {model}\n", models.len()));
    let cache = caches.last().map(|cache| format!("CPUCache:   {cache}\n"));
    [cpu, cache].into_iter().flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processors_are_reported_as_by_db_bench() {
        let one = "processor\t: 0\nmodel name\t: AMD EPYC\ncache size\t: 1024 KB\nflags\t\t: a b\n\n";
        assert_eq!(processors(&one.repeat(2)), "CPU:        2 * AMD EPYC\nCPUCache:   1024 KB\n");
        assert_eq!(processors("processor : 0\n"), "");
    }
}
