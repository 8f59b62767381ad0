//! Tests of complete command lines: the operations done, and the output.

use serde_json::Value;

use super::run;

/// Runs benchmarks on a new store. Returns the JSON output.
fn all(benchmarks: &str, rest: &str) -> Value {
    let dir = tempfile::tempdir().expect("a directory");
    let json = dir.path().join("out.json");
    let line = format!(
        "--benchmarks={benchmarks} {rest} --db={} --durability=none --segment=256k --capacity_limit=64m --memory=64m --json={}",
        dir.path().join("db").display(),
        json.display()
    );
    run(&line.split_whitespace().map(str::to_owned).collect::<Vec<_>>()).expect("it runs");
    let text = std::fs::read_to_string(json).expect("there is JSON");
    serde_json::from_str(&text).expect("it is JSON")
}

/// Returns the number of operations of each run.
fn operations(all: &Value) -> Vec<u64> {
    let runs = all["runs"].as_array().expect("runs");
    runs.iter().map(|run| run["operations"].as_u64().expect("a number")).collect()
}

fn message(all: &Value, run: usize) -> &str {
    all["runs"][run]["message"].as_str().expect("a message")
}

#[test]
fn finishing_writer_outlasts_slow_readers() {
    let names = "fillseq,readwhilewriting,multireadwhilewriting";
    for reads in [10, 2000] {
        let all = all(names, &format!("--num=500 --reads={reads} --writes=300 --finish_after_writes"));
        assert_eq!(operations(&all)[1..], [reads; 2]);
        for run in [1, 2] {
            assert!(message(&all, run).contains("(writers beside: 300 puts, "), "{}", message(&all, run));
        }
    }
}

#[test]
fn duration_bounds_only_drawn_keys() {
    // At this rate each fill takes longer than the duration.
    let rest = "--num=2000 --reads=500 --duration=1 --benchmark_write_rate_limit=174000";
    let all = all("fillseq,filluniquerandom,readseq,deleteseq", rest);
    assert_eq!(operations(&all), [2000, 2000, 500, 2000]);
}

#[test]
fn fillsync_writes_as_often_to_fewer_keys() {
    let one = all("fillsync", "--num=2000");
    assert_eq!((operations(&one), &one["store"]["keys"]), (vec![2000], &2.into()));
    assert_eq!(message(&one, 0), "(2 ops)");
    assert_eq!(operations(&all("fillsync", "--num=20000 --writes=300 --threads=2")), [600]);
}

#[test]
fn operations_do_not_exceed_request() {
    let all = all("filluniquerandom,fillseq,readseq", "--num=4000 --writes=301 --threads=2");
    assert_eq!(operations(&all)[..2], [301, 602]);
    let of_reads =
        |reads| operations(&self::all("fillseq,readseq", &format!("--num=4000 --reads={reads}")))[1];
    assert_eq!([3, 1001, 3001].map(of_reads), [3, 1001, 3001]);
}

#[test]
fn every_record_of_page_is_measured() {
    let all = all("fillseq,readseq", "--num=3000 --reads=1001");
    assert_eq!(all["runs"][1]["latency_us"]["read"]["count"], 1001);
}

#[test]
fn elapsed_time_is_that_of_threads() {
    let all = all("fillseq,readrandom[X20]", "--num=10");
    let seconds = all["runs"].as_array().expect("runs").iter().map(|run| run["seconds"].as_f64());
    let least = seconds.flatten().fold(f64::MAX, f64::min);
    assert!(least < 0.004, "ten reads from memory took {least} s");
}

#[test]
fn messages_count_operations() {
    let names = "fillseq,updaterandom,readrandomwriterandom,randomwithverify,mixgraph,readrandom";
    let rest = "--num=2000 --threads=2 --mix_get_ratio=0.8 --mix_put_ratio=0.15 --mix_seek_ratio=0.05";
    let all = all(names, rest);
    assert_eq!(message(&all, 0), "");
    assert_eq!(message(&all, 1), "( updates:4000 found:4000)");
    let words = |run| {
        let text: String =
            message(&all, run).chars().map(|c| if c.is_ascii_digit() { c } else { ' ' }).collect();
        text.split_whitespace().map(|number| number.parse().expect("a number")).collect::<Vec<u64>>()
    };
    let (mixed, verified, graph) = (words(2), words(3), words(4));
    let [reads, writes, total, found] = mixed[..] else { panic!("{}", message(&all, 2)) };
    assert_eq!(message(&all, 2), format!("( reads:{reads} writes:{writes} total:{total} found:{found})"));
    assert!(total == 4000 && reads + writes == total && found == reads && writes > 0);
    let [gets, puts, deletes, total, found] = verified[..] else { panic!("{}", message(&all, 3)) };
    assert_eq!(
        message(&all, 3),
        format!("( get:{gets} put:{puts} del:{deletes} total:{total} found:{found})")
    );
    assert!(total == 4000 && gets + puts + deletes == total && found <= gets && deletes > 0);
    let [gets, puts, seeks, found, reads, ..] = graph[..] else { panic!("{}", message(&all, 4)) };
    let begin = format!("( Gets:{gets} Puts:{puts} Seek:{seeks}, reads {found} in {reads} found, avg size: ");
    assert!(message(&all, 4).starts_with(&begin), "{}", message(&all, 4));
    assert!(message(&all, 4).ends_with(" value, 0.0 scan)"), "{}", message(&all, 4));
    assert!(gets + puts + seeks == 4000 && gets + seeks == reads && seeks > 0 && puts > 0);
    assert!(message(&all, 5).ends_with(" of 4000 found)"), "{}", message(&all, 5));
}

#[test]
fn steps_are_repeated() {
    let rest = "--num=100 --pressure_mb=0,1 --pressure_seconds=1 --raw_bytes=2m";
    let all = all("fillseq,writepressure[X2],rawpressure[X2-W1]", rest);
    let names: Vec<_> =
        all["runs"].as_array().expect("runs").iter().map(|run| run["name"].as_str()).collect();
    let twice = |name| [Some(name), Some(name)];
    let expected = [
        twice("writepressure 0 MB/s"),
        twice("writepressure 1 MB/s"),
        twice("rawpressure 0 MB/s"),
        twice("rawpressure 1 MB/s"),
    ];
    assert_eq!(names[1..], expected.concat());
}

#[test]
fn write_pressure_writers_are_staggered() {
    // At 1 MB/s each of the eight writers writes such a value every 1.9 s, and not all of them do so in
    // the first second.
    let rest = "--num=100 --value_size=250000 --pressure_mb=1 --pressure_seconds=1";
    let all = all("fillseq,writepressure", rest);
    let text = message(&all, 1);
    let puts = text.split("(writers beside: ").nth(1).and_then(|rest| rest.split(' ').next());
    let puts: u64 = puts.and_then(|puts| puts.parse().ok()).unwrap_or_else(|| panic!("{text}"));
    assert!((1..8).contains(&puts), "{text}");
}

#[test]
fn rate_follows_sine_during_run() {
    // From 10 operations a second to 2010 within the second.
    let sine = "--sine_a=1000 --sine_b=3.14159 --sine_c=-1.5708 --sine_d=1010";
    let rest =
        format!("--num=100 --duration=1 --sine_mix_rate --sine_mix_rate_interval_milliseconds=50 {sine}");
    let done = operations(&all("fillseq,mixgraph", &rest))[1];
    assert!((300..2000).contains(&done), "{done}");
}

#[test]
fn report_continues_between_benchmarks() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("report.csv");
    let rest = "--num=100 --duration=2 --raw_bytes=2m --report_interval_seconds=1 --report_file=";
    all("rawrandread,waitforcompaction", &format!("{rest}{}", file.display()));
    let text = std::fs::read_to_string(file).expect("a report");
    let lines: Vec<_> = text.lines().skip(1).filter_map(|line| line.split_once(',')).collect();
    assert!(lines.len() >= 3, "two seconds of reads, and two until work rests: {text}");
    assert!(lines[0].1.parse::<u64>().is_ok_and(|rate| rate > 0), "reads without the store count: {text}");
    let last = lines.last().expect("lines");
    assert_eq!(last.1, "0", "nothing is done while work rests: {text}");
    assert!(lines.windows(2).all(|pair| pair[0].0.parse::<u64>().ok() < pair[1].0.parse::<u64>().ok()));
}
