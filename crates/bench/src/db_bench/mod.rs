//! Runs RocksDB's db_bench command lines unchanged: `esker-bench --benchmarks=fillrandom,readrandom
//! --num=1000000 …`.
//!
//! `command_line` parses the flags and defines the benchmarks. `prepare` checks the store. `run` runs one
//! benchmark after the other, with the threads in `threads` and `clients`; `source` draws their
//! operations; `raw` works without the store; `print` prints in db_bench's format.

#[cfg(test)]
mod behaviour;
mod clients;
mod command_line;
mod mixgraph;
mod prepare;
mod print;
mod raw;
mod run;
mod shared;
mod source;
mod threads;

pub(crate) use self::command_line::help::{ignored as ignored_flags, text as help};
use self::command_line::{benchmark, config, flags};
use crate::instruments::failure::{Failure, Result};

/// Limit of keys drawn once each, all of which are kept in memory.
const MOST_UNIQUE: u64 = 1 << 32;

/// Runs the benchmarks of the command line.
pub(crate) fn run(words: &[String]) -> Result<()> {
    let (session, steps) = session(words, false)?;
    session.run(&steps).map(drop)
}

/// Runs the benchmarks of the command line without output on stdout. Returns the results as in the JSON.
pub(crate) fn results(words: &[String]) -> Result<Vec<serde_json::Value>> {
    let (session, steps) = session(words, true)?;
    session.run(&steps)
}

fn session(words: &[String], is_quiet: bool) -> Result<(run::Session, Vec<benchmark::Step>)> {
    let mut flags = flags::parse(words).map_err(Failure::Usage)?;
    let config = config::Config::of(&mut flags).map_err(Failure::Usage)?;
    let steps = config.benchmarks.iter().map(|entry| benchmark::Step::parse(entry));
    let steps = steps.collect::<std::result::Result<Vec<_>, _>>().map_err(Failure::Usage)?;
    if steps.is_empty() {
        return Err(Failure::usage("--benchmarks names none"));
    }
    let unique = |step: &benchmark::Step| step.is_unique();
    if config.num > MOST_UNIQUE && steps.iter().any(unique) {
        return Err(Failure::usage(format!(
            "--num={}: filluniquerandom keeps all numbers in memory; at most {MOST_UNIQUE}",
            config.num
        )));
    }
    let model = mixgraph::Model::of(&flags, config.num, config.seed);
    if flags.float("mix_seek_ratio", 0.0) > 0.0 {
        flags.notes.push("--mix_seek_ratio: keys have no order; seeks are made as gets of the key".into());
    }
    Ok((run::Session::begin(config, model, &flags.notes, is_quiet)?, steps))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run_line(line: &str) -> Result<()> {
        run(&line.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn every_benchmark_runs_on_real_store() {
        let dir = tempfile::tempdir().expect("a directory");
        let (json, report) = (dir.path().join("out.json"), dir.path().join("report.csv"));
        let line = format!(
            "--benchmarks=fillseq,fillsync,fillrandom,filluniquerandom[X2],stats,overwrite,readrandom,readmissing,readseq,\
             multireadrandom,readwhilewriting,readrandomwriterandom,updaterandom,mixgraph,waitforcompaction,deleterandom,\
             flush,deleteseq,readrandom --db={} --num=2000 --threads=2 --queue_depth=4 --batch_size=3 --histogram \
             --durability=none --segment=256k --capacity_limit=64m --memory=64m --mix_get_ratio=0.5 --mix_put_ratio=0.5 \
             --report_file={} --report_interval_seconds=1 --json={}",
            dir.path().join("db").display(),
            report.display(),
            json.display()
        );
        run_line(&line).expect("it runs");
        let text = std::fs::read_to_string(json).expect("there is JSON");
        let all: serde_json::Value = serde_json::from_str(&text).expect("it is JSON");
        let runs = all["runs"].as_array().expect("runs");
        let of = |name: &str| runs.iter().filter(|run| run["name"] == name).collect::<Vec<_>>();
        assert_eq!(of("filluniquerandom").len(), 2);
        // Each thread makes --num operations, except for unique keys, where all threads share --num.
        assert_eq!(of("fillrandom")[0]["operations"], 4000);
        assert_eq!(of("filluniquerandom")[0]["operations"], 2000);
        assert_eq!(of("readrandom")[0]["found"], 4000);
        assert_eq!(of("readmissing")[0]["found"], 0);
        assert_eq!(of("readseq")[0]["operations"], 4000);
        assert_eq!(of("readwhilewriting")[0]["reads"], 4000);
        assert_eq!(of("updaterandom")[0]["found"], 4000);
        assert_eq!(of("readrandom")[1]["found"], 0, "everything was deleted");
        assert!(of("mixgraph")[0]["latency_us"]["write"]["count"].as_u64() > Some(1500));
        assert!(
            std::fs::read_to_string(report).expect("a report").starts_with("secs_elapsed,interval_qps\n")
        );
    }

    #[test]
    fn existing_store_is_required_and_other_directories_stay() {
        let dir = tempfile::tempdir().expect("a directory");
        let db = dir.path().join("db");
        let common =
            format!("--db={} --num=100 --durability=none --capacity_limit=64m --segment=256k", db.display());
        let error = run_line(&format!("--benchmarks=readrandom --use_existing_db=1 {common}"));
        assert!(matches!(error, Err(Failure::Usage(_))), "{error:?}");
        run_line(&format!("--benchmarks=fillseq {common}")).expect("it fills");
        std::fs::write(db.join("mine"), "x").expect("a file");
        run_line(&format!("--benchmarks=readrandom --use_existing_db=1 {common}")).expect("it is there");
        run_line(&format!("--benchmarks=fillrandom {common}")).expect("it begins again");
        assert!(db.join("mine").exists());
        // As in db_bench, the store is emptied unless a flag asks to use it.
        let json = dir.path().join("out.json");
        run_line(&format!("--benchmarks=readrandom --json={} {common}", json.display())).expect("it reads");
        let text = std::fs::read_to_string(json).expect("there is JSON");
        let all: serde_json::Value = serde_json::from_str(&text).expect("it is JSON");
        assert_eq!(all["runs"][0]["found"], 0);
    }

    #[test]
    fn store_of_other_shape_is_recreated_and_other_files_stay() {
        let dir = tempfile::tempdir().expect("a directory");
        let db = dir.path().join("db");
        let common = format!("--benchmarks=fillseq --db={} --num=100 --capacity_limit=64m", db.display());
        let sizes = || std::fs::metadata(db.join("data.esker")).expect("a store").len();
        run_line(&format!("{common} --segment=256k")).expect("it fills");
        std::fs::write(db.join("mine"), "x").expect("a file");
        run_line(&format!("{common} --segment=512k")).expect("it begins again");
        run_line(&format!("{common} --segment=512k --iu=16k")).expect("it begins again");
        let error = run_line(&format!("{common} --segment=1m --use_existing_db"));
        assert!(matches!(error, Err(Failure::Usage(_))), "{error:?}");
        assert!(db.join("mine").exists() && sizes() > 0);
        // A file that is not a store stays unchanged.
        std::fs::write(db.join("data.esker"), vec![7; 8192]).expect("a file");
        assert!(run_line(&format!("{common} --segment=256k")).is_err());
        assert_eq!(sizes(), 8192);
    }

    #[test]
    fn unwritable_output_is_reported_before_store_is_emptied() {
        let dir = tempfile::tempdir().expect("a directory");
        let (json, report) = (dir.path().join("out.json"), dir.path().join("report.csv"));
        let common = format!(
            "--db={} --num=100 --durability=none --capacity_limit=64m --segment=256k",
            dir.path().join("db").display()
        );
        std::fs::write(&report, "older").expect("a file");
        let missing =
            format!("--benchmarks=readrandom --use_existing_db {common} --report_file={}", report.display());
        assert!(matches!(run_line(&missing), Err(Failure::Usage(_))));
        assert_eq!(std::fs::read_to_string(&report).expect("a report"), "older");
        run_line(&format!("--benchmarks=fillseq {common}")).expect("it fills");
        for wrong in ["--json=/nonexistent/x.json", "--report_file=/nonexistent/x.csv", "--value_size=300000"]
        {
            let error = run_line(&format!("--benchmarks=fillseq {common} {wrong}"));
            assert!(matches!(error, Err(Failure::Usage(_))), "{wrong}: {error:?}");
        }
        let read = format!("--benchmarks=readrandom --use_existing_db {common} --json={}", json.display());
        run_line(&read).expect("it reads");
        let text = std::fs::read_to_string(json).expect("there is JSON");
        let all: serde_json::Value = serde_json::from_str(&text).expect("it is JSON");
        assert_eq!(all["runs"][0]["found"], 100, "nothing was deleted");
    }

    #[test]
    fn raw_benchmark_file_is_removed() {
        let dir = tempfile::tempdir().expect("a directory");
        let db = dir.path().join("db");
        let mut words =
            vec!["--benchmarks=rawrandread".to_owned(), "--num=10".into(), "--raw_bytes=1m".into()];
        words.extend([
            "--segment=256k".into(),
            "--capacity_limit=64m".into(),
            format!("--db={}", db.display()),
        ]);
        std::fs::create_dir(&db).expect("a directory");
        let mut flags = flags::parse(&words).expect("flags");
        let file = raw::RawFile::make(&config::Config::of(&mut flags).expect("it is right")).expect("a file");
        assert_eq!(std::fs::read_dir(&db).expect("a directory").count(), 0, "it has no name any longer");
        drop(file);
        run(&words).expect("it runs");
    }

    #[test]
    fn read_rate_does_not_limit_deletes() {
        let dir = tempfile::tempdir().expect("a directory");
        let json = dir.path().join("out.json");
        // At one per second this would take a quarter of an hour.
        let line = format!(
            "--benchmarks=fillseq,deleteseq,fill100K,fillbatch --benchmark_read_rate_limit=1 --num=1000 --segment=256k \
             --capacity_limit=64m --durability=none --db={} --json={}",
            dir.path().join("db").display(),
            json.display()
        );
        run_line(&line).expect("it runs");
        let text = std::fs::read_to_string(json).expect("there is JSON");
        let all: serde_json::Value = serde_json::from_str(&text).expect("it is JSON");
        assert_eq!(all["runs"][1]["operations"], 1000);
        // `fill100K` makes as many writes to a thousandth of the keys, and `fillbatch` one batch of 1000.
        assert_eq!(all["runs"][2]["operations"], 1000);
        assert_eq!(all["runs"][3]["latency_us"]["write"]["count"], 1);
        assert_eq!(all["store"]["keys"], 1000);
    }

    #[test]
    fn each_benchmark_draws_its_own_keys() {
        let dir = tempfile::tempdir().expect("a directory");
        let json = dir.path().join("out.json");
        let line = format!(
            "--benchmarks=fillrandom,readrandom --db={} --num=2000 --durability=none --segment=256k --capacity_limit=64m \
             --json={}",
            dir.path().join("db").display(),
            json.display()
        );
        run_line(&line).expect("it runs");
        let text = std::fs::read_to_string(json).expect("there is JSON");
        let all: serde_json::Value = serde_json::from_str(&text).expect("it is JSON");
        // Keys were drawn with replacement, so 1 - 1/e of them exist. If both benchmarks drew the same
        // keys, all would be found.
        let found = all["runs"][1]["found"].as_u64().expect("a number");
        assert!((1150..1400).contains(&found), "{found}");
    }

    #[test]
    fn mixes_steps_and_raw_ceilings_run() {
        let dir = tempfile::tempdir().expect("a directory");
        let json = dir.path().join("out.json");
        let line = format!(
            "--benchmarks=fillseq,ycsba,ycsbb,ycsbc,ycsbd,ycsbf,skvds7030,writepressure,rawpressure,rawrandread,rawrecordread,rawseqwrite,rawsyncwrite \
             --db={} --num=1000 --writes=1000 --queue_depth=4 --durability=none --segment=256k --capacity_limit=64m \
             --memory=64m --pressure_mb=0,1,2 --pressure_seconds=1 --raw_bytes=4m --json={}",
            dir.path().join("db").display(),
            json.display()
        );
        run_line(&line).expect("it runs");
        let text = std::fs::read_to_string(json).expect("there is JSON");
        let all: serde_json::Value = serde_json::from_str(&text).expect("it is JSON");
        let runs = all["runs"].as_array().expect("runs");
        let of = |name: &str| runs.iter().find(|run| run["name"] == name).unwrap_or_else(|| panic!("{name}"));
        for (name, reads) in [
            ("ycsba", 0.5),
            ("ycsbb", 0.95),
            ("ycsbc", 1.0),
            ("ycsbd", 0.95),
            ("ycsbf", 1.0),
            ("skvds7030", 0.7),
        ] {
            let share = of(name)["reads"].as_f64().expect("a number") / 1000.0;
            assert!((share - reads).abs() < 0.07, "{name}: {share}");
            assert_eq!(of(name)["operations"], 1000);
        }
        let tier = &all["store"]["tiers"][0];
        let count = |name: &str| tier[name].as_u64().expect("a number");
        let kinds = ["reads", "writes", "flushes", "discards"].map(count);
        assert!(kinds[1] > 0 && count("submitted") == kinds.iter().sum::<u64>(), "{tier}");
        assert!((0..64).contains(&(count("submitted") - count("completed"))), "{tier}");
        // Workload D reads keys that were written, also those that it inserts itself; a key being written
        // may be missed.
        assert!(of("ycsbd")["found"].as_u64() >= of("ycsbd")["reads"].as_u64().map(|reads| reads - 10));
        assert_eq!(
            of("ycsbf")["latency_us"]["update"]["count"].as_u64().map(|count| (400..600).contains(&count)),
            Some(true)
        );
        for name in ["writepressure 0 MB/s", "writepressure 1 MB/s", "writepressure 2 MB/s"] {
            assert!(
                of(name)["latency_us"]["write"].is_null() && of(name)["reads"].as_u64() > Some(100),
                "{name}"
            );
        }
        for (name, megabytes) in [("rawpressure 0 MB/s", 0.0..0.01), ("rawpressure 2 MB/s", 1.0..3.0)] {
            assert!(of(name)["latency_us"]["read"]["count"].as_u64() > Some(100), "{name}");
            let message = of(name)["message"].as_str().expect("a message");
            let rate = message
                .trim_start_matches("(writers beside: ")
                .split(' ')
                .next()
                .and_then(|m| m.parse().ok());
            assert!(rate.is_some_and(|rate: f64| megabytes.contains(&rate)), "{name}: {message}");
        }
        for (name, operations) in
            [("rawrandread", 1000), ("rawrecordread", 1000), ("rawseqwrite", 1), ("rawsyncwrite", 1000)]
        {
            assert_eq!(of(name)["operations"], operations, "{name}");
        }
        let left: Vec<_> = std::fs::read_dir(dir.path().join("db")).expect("the directory").collect();
        assert_eq!(left.len(), 2, "the raw file is removed: {left:?}");
    }

    #[test]
    fn cache_workloads_fix_written_bytes() {
        let dir = tempfile::tempdir().expect("a directory");
        let json = dir.path().join("out.json");
        let names = "cache64kseq,cache64krand,cache4kseq,cache4krand,cache64kzipf0.8,cache64kzipf1.2";
        let line = format!(
            "--benchmarks={names} --db={} --num=400 --value_size=7 --threads=1 --durability=none --segment=2m \
             --capacity_limit=160m --memory=96m --json={}",
            dir.path().join("db").display(),
            json.display()
        );
        run_line(&line).expect("it runs");
        let text = std::fs::read_to_string(json).expect("there is JSON");
        let all: serde_json::Value = serde_json::from_str(&text).expect("it is JSON");
        for (run, name) in all["runs"].as_array().expect("runs").iter().zip(names.split(',')) {
            assert_eq!((run["name"].as_str(), run["operations"].as_u64()), (Some(name), Some(400)));
            let (mb_per_s, seconds) = (run["mb_per_s"].as_f64(), run["seconds"].as_f64());
            let bytes =
                mb_per_s.zip(seconds).map_or(0.0, |(rate, seconds)| rate * 1048576.0 * seconds / 400.0);
            let each = if name.starts_with("cache64k") { 65_552.0 } else { 4_112.0 };
            assert!((bytes - each).abs() < 1.0, "{name}: {bytes}");
        }
        // The eight parts together are all keys.
        assert_eq!(all["store"]["keys"], 400);
    }

    #[test]
    fn duration_ends_benchmark() {
        let dir = tempfile::tempdir().expect("a directory");
        let began = std::time::Instant::now();
        let line = format!(
            "--benchmarks=fillrandom,readrandom --duration=1 --db={} --num=100 --durability=none --capacity_limit=64m \
             --segment=256k --benchmark_write_rate_limit=100000",
            dir.path().join("db").display()
        );
        run_line(&line).expect("it runs");
        assert!((2.0..20.0).contains(&began.elapsed().as_secs_f64()));
    }

    #[test]
    fn wrong_lines_are_refused_before_any_file_is_created() {
        let dir = tempfile::tempdir().expect("a directory");
        let db = dir.path().join("db");
        for rest in [
            "--benchmarks=fillsec",
            "--benchmarks=seekrandom",
            "--bencmarks=fillseq",
            "--benchmarks=,",
            "--num=5000000000 --benchmarks=filluniquerandom",
            "--num=-5",
        ] {
            let error = run_line(&format!("--db={} {rest}", db.display()));
            assert!(matches!(error, Err(Failure::Usage(_))), "{rest}: {error:?}");
        }
        assert!(!db.exists());
    }
}
