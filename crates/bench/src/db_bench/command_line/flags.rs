//! Parses command lines like gflags: `--name=value`, `-name=value`, `--name value`, `--switch`,
//! `--noswitch`.

use std::collections::BTreeMap;

use super::flagfile;
use super::known::{FLAGS, Flag, Kind, Meaning};
use super::suggestions::meant;

/// The flags of a command line, by name.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Parsed {
    values: BTreeMap<&'static str, String>,
    /// Notes for the user about accepted flags.
    pub(crate) notes: Vec<String>,
}

fn find(name: &str) -> Option<&'static Flag> {
    FLAGS.iter().find(|flag| flag.name == name)
}

/// Parses a boolean like gflags.
fn boolean(text: &str) -> Option<bool> {
    match text.to_ascii_lowercase().as_str() {
        "1" | "t" | "true" | "y" | "yes" => Some(true),
        "0" | "f" | "false" | "n" | "no" => Some(false),
        _ => None,
    }
}

/// Parses a whole number like gflags, also `0x10`.
fn whole(text: &str) -> Option<i128> {
    match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(digits) => u64::from_str_radix(digits, 16).ok().map(i128::from),
        None => text.parse().ok(),
    }
}

fn check(flag: &Flag, value: &str) -> Result<(), String> {
    let (fits, form) = match flag.kind {
        Kind::Bool => (boolean(value).is_some(), "true or false".to_owned()),
        Kind::Int(least, most) => (
            whole(value).is_some_and(|value| (least..=most).contains(&value)),
            format!("a whole number from {least} to {most}"),
        ),
        Kind::Float => (value.parse().is_ok_and(f64::is_finite), "a number".to_owned()),
        Kind::Text => (true, String::new()),
    };
    if fits { Ok(()) } else { Err(format!("--{}={value}: it has to be {form}", flag.name)) }
}

/// Parses the words of a command line.
pub(crate) fn parse(words: &[String]) -> Result<Parsed, String> {
    let words = flagfile::expand(words, &|name| std::env::var(name).ok())?;
    let may_be_unknown = flagfile::may_be_unknown(&words);
    let (mut parsed, mut ignored) = (Parsed::default(), Vec::new());
    let mut words = words.iter();
    while let Some(word) = words.next() {
        let Some(body) = word.strip_prefix("--").or_else(|| word.strip_prefix('-')).filter(|b| !b.is_empty())
        else {
            return Err(format!("'{word}' is not a flag; flags are written --name=value"));
        };
        let (name, mut value) = match body.split_once('=') {
            Some((name, value)) => (name, Some(value.to_owned())),
            None => (body, None),
        };
        let mut flag = find(name);
        if let (None, None, Some(negated)) = (flag, &value, name.strip_prefix("no")) {
            flag = find(negated).filter(|flag| flag.kind == Kind::Bool);
            value = flag.map(|_| "false".to_owned());
        }
        let Some(flag) = flag else {
            let positive = name.strip_prefix("no").unwrap_or(name);
            if may_be_unknown.iter().any(|known| known == name || known == positive) {
                parsed.notes.push(format!("--{name} is unknown, which --undefok allows"));
                continue;
            }
            let meant = meant(name, FLAGS.iter().map(|flag| flag.name));
            let meant = meant.map_or(String::new(), |name| format!("; is --{name} meant?"));
            return Err(format!("unknown flag --{name}{meant}"));
        };
        let value = match (value, flag.kind) {
            (Some(value), _) => value,
            (None, Kind::Bool) => "true".to_owned(),
            (None, _) => words.next().cloned().ok_or_else(|| format!("--{name} needs a value"))?,
        };
        check(flag, &value)?;
        if flag.meaning == Meaning::Ignored && !ignored.iter().any(|known: &&Flag| known.name == flag.name) {
            ignored.push(flag);
        }
        parsed.values.insert(flag.name, value);
    }
    parsed.notes.extend(note(&ignored));
    Ok(parsed)
}

/// Returns one line about all ignored flags.
fn note(ignored: &[&Flag]) -> Option<String> {
    let names = |flags: &mut dyn Iterator<Item = &&Flag>| {
        flags.map(|flag| format!("--{}", flag.name)).collect::<Vec<_>>().join(", ")
    };
    let other_work = names(&mut ignored.iter().filter(|flag| flag.changes_workload()));
    let warning = if other_work.is_empty() {
        String::new()
    } else {
        format!("; THE WORKLOAD IS NOT CHANGED by {other_work}, as it would be in db_bench")
    };
    let all = names(&mut ignored.iter());
    (!all.is_empty()).then(|| format!("ignored, since they have no meaning here: {all}{warning}"))
}

impl Parsed {
    /// Returns true if the flag was given.
    pub(crate) fn is_set(&self, name: &str) -> bool {
        self.values.contains_key(name)
    }

    /// Returns the flag's text, if it was given.
    pub(crate) fn text(&self, name: &'static str) -> Option<&str> {
        debug_assert!(find(name).is_some(), "{name} is not a flag");
        self.values.get(name).map(String::as_str)
    }

    /// Returns the flag or its default. Its type was checked when it was parsed.
    pub(crate) fn boolean(&self, name: &'static str, default: bool) -> bool {
        self.text(name).and_then(boolean).unwrap_or(default)
    }

    /// Returns the whole number or its default. Its range was checked when it was parsed.
    pub(crate) fn int(&self, name: &'static str, default: i64) -> i64 {
        let value = self.text(name).and_then(whole);
        value.map_or(default, |value| i64::try_from(value).expect("its range was checked"))
    }

    /// As `int`, for numbers that are not negative.
    pub(crate) fn count(&self, name: &'static str, default: u64) -> u64 {
        let value = self.text(name).and_then(whole);
        value.map_or(default, |value| u64::try_from(value).expect("its range was checked"))
    }

    /// As `count`, with `None` for 0.
    pub(crate) fn positive(&self, name: &'static str) -> Option<u64> {
        Some(self.count(name, 0)).filter(|value| *value > 0)
    }

    /// Returns the number or its default.
    pub(crate) fn float(&self, name: &'static str, default: f64) -> f64 {
        self.text(name).and_then(|text| text.parse().ok()).unwrap_or(default)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<String> {
        line.split_whitespace().map(str::to_owned).collect()
    }

    /// Command lines from RocksDB's documentation and its benchmark.sh.
    const LINES: &[&str] = &[
        "--benchmarks=fillseq",
        "--benchmarks=\"fillseq,readrandom\" --num=1000000 --use_existing_db=0",
        "--benchmarks=fillrandom,stats --db=/data/db --wal_dir=/data/wal --num=8000000000 --key_size=20 --value_size=400 \
         --block_size=8192 --cache_size=17179869184 --cache_numshardbits=6 --compression_max_dict_bytes=0 \
         --compression_ratio=0.5 --compression_type=zstd --bytes_per_sync=8388608 --cache_index_and_filter_blocks=1 \
         --cache_high_pri_pool_ratio=0.5 --use_direct_reads --use_direct_io_for_flush_and_compaction \
         --benchmark_write_rate_limit=0 --write_buffer_size=134217728 --target_file_size_base=134217728 \
         --max_bytes_for_level_base=1073741824 --verify_checksum=1 --delete_obsolete_files_period_micros=60000000 \
         --max_bytes_for_level_multiplier=8 --statistics=0 --stats_per_interval=1 --stats_interval_seconds=60 \
         --report_interval_seconds=5 --histogram=1 --memtablerep=skip_list --bloom_bits=10 --open_files=-1 \
         --subcompactions=1 --compaction_style=0 --num_levels=8 --min_level_to_compress=-1 \
         --level_compaction_dynamic_level_bytes=true --pin_l0_filter_and_index_blocks_in_cache=1 \
         --soft_pending_compaction_bytes_limit=1 --hard_pending_compaction_bytes_limit=2 \
         --level0_file_num_compaction_trigger=4 --level0_slowdown_writes_trigger=20 --level0_stop_writes_trigger=30 \
         --max_background_jobs=16 --max_write_buffer_number=8 --allow_concurrent_memtable_write=false --duration=1800",
        "--enable_blob_files=true --min_blob_size=0 --blob_file_size=268435456 --blob_compression_type=zstd \
         --enable_blob_garbage_collection=true --blob_garbage_collection_age_cutoff=0.25 \
         --blob_garbage_collection_force_threshold=1 --use_existing_db=1 --sync=1 --threads=64 \
         --merge_operator=\"put\" --seed=1700000000 --report_file=/tmp/r.csv",
        "--compaction_style=1 --universal_compression_size_percent=-1 --universal_min_merge_width=2 \
         --universal_max_merge_width=20 --universal_size_ratio=1 --universal_max_size_amplification_percent=200 \
         --universal_allow_trivial_move=0 --max_background_flushes=4",
        "./db_bench_is_left_out",
        "--benchmarks=mixgraph -use_direct_io_for_flush_and_compaction=true -use_direct_reads=true \
         -cache_size=268435456 -keyrange_dist_a=14.18 -keyrange_dist_b=-2.917 -keyrange_dist_c=0.0164 \
         -keyrange_dist_d=-0.08082 -keyrange_num=30 -value_k=0.2615 -value_sigma=25.45 -iter_k=2.517 \
         -iter_sigma=14.236 -mix_get_ratio=0.85 -mix_put_ratio=0.14 -mix_seek_ratio=0.01 \
         -sine_mix_rate_interval_milliseconds=5000 -sine_a=1000 -sine_b=0.000073 -sine_d=4500 -perf_level=2 \
         -reads=420000000 -num=50000000 -key_size=48",
        "--benchmarks=readrandom --num 1000 --nohistogram --disable_auto_compactions --threads 4",
        "--benchmarks=readwhilewriting --use_existing_db=1 --disable_wal=1 --readwritepercent=90 --multiread_batched=1 \
         --batch_size=16 --value_size_distribution_type=uniform --value_size_min=100 --value_size_max=1000 \
         --max_scan_distance=0 --row_cache_size=0 --mmap_read=0 --num_multi_db=0 --key_id_range=1000000",
    ];

    #[test]
    fn db_bench_command_lines_are_parsed() {
        for line in LINES {
            let parsed = parse(&words(line));
            assert_eq!(parsed.is_ok(), line.starts_with('-'), "{line}: {parsed:?}");
        }
        let parsed = parse(&words(LINES[2])).expect("it is read");
        assert_eq!(parsed.text("db"), Some("/data/db"));
        assert_eq!(parsed.int("num", 0), 8_000_000_000);
        assert!(parsed.boolean("use_direct_reads", false) && !parsed.boolean("statistics", true));
        assert!(parsed.notes.iter().any(|note| note.contains("--bloom_bits")), "{:?}", parsed.notes);
        assert!(!parsed.notes.iter().any(|note| note.contains("--num ")), "{:?}", parsed.notes);
        let parsed = parse(&words(LINES[6])).expect("it is read");
        assert_eq!(parsed.float("keyrange_dist_b", 0.0), -2.917);
        let parsed = parse(&words(LINES[7])).expect("it is read");
        assert_eq!((parsed.int("num", 0), parsed.int("threads", 1)), (1000, 4));
        assert!(!parsed.boolean("histogram", true) && parsed.boolean("disable_auto_compactions", false));
    }

    #[test]
    fn booleans_follow_gflags() {
        for (line, value) in [
            ("--sync", true),
            ("--sync=1", true),
            ("--sync=true", true),
            ("-sync=Yes", true),
            ("--sync=t", true),
            ("--nosync", false),
            ("--sync=0", false),
            ("--sync=false", false),
        ] {
            assert_eq!(parse(&words(line)).expect(line).boolean("sync", !value), value, "{line}");
        }
    }

    #[test]
    fn wrong_flag_is_named() {
        for (line, part) in [
            ("--benchmark=fillseq", "--benchmarks meant"),
            ("--value_sise=3", "--value_size meant"),
            ("--zzzzzzzzzzzz=3", "unknown flag --zzzzzzzzzzzz"),
            ("--num=many", "whole number"),
            ("--num=-5", "--num=-5: it has to be a whole number from 1 to 281474976710656"),
            ("--num=0", "from 1 to"),
            ("--num=99999999999999999999", "from 1 to"),
            ("--num=", "from 1 to"),
            ("--threads=-3", "--threads=-3: it has to be a whole number from 1 to 4096"),
            ("--threads=100000", "from 1 to 4096"),
            ("--key_size=-1", "from 1 to 65535"),
            ("--key_size=2000000000000", "from 1 to 65535"),
            ("--value_size=-1", "from 0 to 1073741824"),
            ("--value_size=1099511627776", "from 0 to 1073741824"),
            ("--duration=9223372036854775807", "from 0 to"),
            ("--pressure_seconds=0", "from 1 to"),
            ("--reserve=3", "from 5 to 50"),
            ("--sine_a=nan", "a number"),
            ("--mix_get_ratio=inf", "a number"),
            ("--write_buffer_size=18446744073709551616", "a whole number"),
            ("--num_levels=2147483648", "from -2147483648 to 2147483647"),
            ("--format_version=4294967296", "a whole number"),
            ("--rate_limiter_bytes_per_sec=-1", "from 0 to"),
            ("--verify_checksum=2", "true or false"),
            ("--sync=maybe", "true or false"),
            ("--compression_ratio=half", "a number"),
            ("--num", "needs a value"),
            ("fillseq", "is not a flag"),
            ("--noqueue_depth", "unknown flag"),
        ] {
            let error = parse(&words(line)).expect_err(line);
            assert!(error.contains(part), "{line}: {error}");
        }
    }

    #[test]
    fn numbers_follow_gflags() {
        for (line, num) in [("--num=0x10", 16), ("--num 0XfF", 255), ("--num=010", 10), ("--num=+3", 3)] {
            assert_eq!(parse(&words(line)).expect(line).count("num", 1), num, "{line}");
        }
        let parsed = parse(&words("--reads=-1 --benchmark_read_rate_limit=18446744073709551615"));
        let parsed = parsed.expect("they are read");
        assert_eq!(parsed.int("reads", 5), -1);
        assert_eq!(parsed.positive("benchmark_read_rate_limit"), Some(u64::MAX));
        assert_eq!(parsed.positive("duration"), None);
    }

    #[test]
    fn every_db_bench_flag_is_accepted_with_its_default() {
        let all = super::super::known::DB_BENCH;
        assert_eq!(all.lines().count(), 357);
        for line in all.lines() {
            let mut parts = line.splitn(3, ' ');
            let mut part = || parts.next().expect("name, type and default");
            let (name, kind, default) = (part(), part(), part().trim_matches('"'));
            let accepted = parse(&[format!("--{name}={default}")]);
            assert!(accepted.is_ok(), "{line}: {accepted:?}");
            let flag = find(name).expect("it is known");
            let alike = match kind {
                "bool" => flag.kind == Kind::Bool,
                "string" => flag.kind == Kind::Text,
                // Older versions declare it as a double.
                "int32" if name == "bloom_bits" => flag.kind == Kind::Float,
                "double" => flag.kind == Kind::Float,
                _ => matches!(flag.kind, Kind::Int(..)),
            };
            assert!(alike, "{line}: {:?}", flag.kind);
        }
    }

    #[test]
    fn flags_without_effect_are_reported() {
        let lines = "--readonly --read_random_exp_range=15 --overwrite_probability=0.5 --stats_interval=1000 \
                     --ops_between_duration_checks=1 --trace_replay_fast_forward=1.5";
        let notes = parse(&words(lines)).expect("it is read").notes;
        let [note] = &notes[..] else { panic!("one line for all of them: {notes:?}") };
        let (all, changing) =
            note.split_once("WORKLOAD IS NOT CHANGED").expect("some of them would change it");
        for word in lines.split_whitespace() {
            let name = word.split('=').next().expect("a name");
            assert!(all.contains(name), "{name} is not in {all}");
        }
        assert_eq!(changing.matches("--").count(), 3, "{changing}");
        let notes = parse(&words("--num=5 --bloom_bits=10 --bloom_bits=11")).expect("it is read").notes;
        assert_eq!(notes, ["ignored, since they have no meaning here: --bloom_bits"]);
        assert!(parse(&words("--num=5")).expect("it is read").notes.is_empty());
    }

    #[test]
    fn possibly_unknown_flags_are_noted() {
        let parsed = parse(&words("--undefok=later,other --later=3 --noother --num=4")).expect("it is read");
        assert_eq!((parsed.count("num", 0), parsed.notes.len()), (4, 2));
        assert!(parse(&words("--undefok=later --latest=3")).is_err());
    }

    #[test]
    fn every_flag_is_listed_once() {
        let mut names: Vec<_> = FLAGS.iter().map(|flag| flag.name).collect();
        names.sort_unstable();
        assert_eq!(names.windows(2).find(|pair| pair[0] == pair[1]), None);
    }
}
