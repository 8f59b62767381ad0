//! Traces of one workload as written by four tools, the output of other tools, and damaged traces.
//!
//! fio wrote 16 × 4 KiB at random, 4 × 64 KiB in order, two TRIMs of 128 KiB, and reads and writes of 12 KiB, to a loop
//! device.

use std::path::{Path, PathBuf};

use esker_ssd_model::{
    Choice, Endurance, Error, Format, Kind, NotUnderstood, Replay, Requests, Stage, replay,
};

fn traced(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/traces").join(name)
}

fn asked(path: PathBuf) -> Replay {
    Replay {
        path,
        device: None,
        drive: Choice { name: "d5-p5316".to_owned(), ..Choice::default() },
        namespace_bytes: Some(256 << 20),
        filled: 1.0,
        without_trims: false,
        in_flight: None,
        endurance: Endurance { pbw_write_amplification: 1.0, ..Endurance::default() },
    }
}

#[test]
fn four_trace_formats_give_same_writes() {
    let mut writes = Vec::new();
    for (name, format) in [
        ("blkparse.txt", Format::Blkparse),
        ("ftrace.txt", Format::Ftrace),
        ("fio-2.iolog", Format::Fio2),
        ("fio-3.iolog", Format::Fio3),
    ] {
        let mut requests = Requests::open(&traced(name)).expect("it is a trace");
        assert_eq!(requests.format(), format);
        let mut found = Vec::new();
        while let Some(request) = requests.read().expect("it is whole") {
            if request.stage == Stage::Issued && request.kind != Kind::Read {
                found.push((request.kind, request.offset, request.bytes));
            }
        }
        assert_eq!(requests.devices().len(), 1, "{name}");
        writes.push((name, found));
    }
    let (_, first) = &writes[0];
    assert_eq!(first[0], (Kind::Write, 4_046_848, 4096));
    assert_eq!(first.iter().filter(|(kind, ..)| *kind == Kind::Trim).count(), 2);
    for (name, found) in &writes {
        assert_eq!(found, first, "{name}");
    }
}

#[test]
fn trace_cost_follows_sizes() {
    let mut replays = ["ftrace.txt", "blkparse.txt", "fio-3.iolog"].map(traced).map(asked);
    for one in &mut replays {
        one.endurance.pe_cycles = Some(1000.0);
        one.endurance.drive_writes_a_day = Some(0.5);
    }
    let reports = replays.map(|one| replay(&one).expect("it is replayed"));
    let first = &reports[0];
    let trace = &first.trace;
    assert_eq!((trace.writes, trace.trims, trace.trim_bytes), (24, 2, 256 << 10));
    assert_eq!((trace.sub_iu_writes, trace.misaligned_writes), (20, 0));
    // Each write costs one IU, except one of 12 KiB that touches two.
    let by_ius = 25.0 * 65_536.0 / trace.write_bytes as f64;
    assert!((first.iu_amplification - by_ius).abs() < 1e-9, "{first}");
    assert!(first.write_amplification >= first.iu_amplification, "{first}");
    assert!(first.is_steady && first.verdict().contains("no whole IUs of 64 KiB"), "{first}");
    for report in &reports {
        assert_eq!(report.counters, first.counters, "{}", report.format.name());
        let life = report.life.expect("what it stands is given");
        let years = 1000.0 * 1.124 / (0.5 * report.write_amplification * 365.25);
        assert!((life.years / years - 1.0).abs() < 1e-6, "{life:?}");
    }
}

/// The trace has fewer requests than that, so all of them are issued at once.
#[test]
fn replay_ends_with_last_request() {
    let alone =
        replay(&Replay { in_flight: Some(1), ..asked(traced("fio-3.iolog")) }).expect("it is replayed");
    let together =
        replay(&Replay { in_flight: Some(128), ..asked(traced("fio-3.iolog")) }).expect("it is replayed");
    let [alone, together] = [alone, together].map(|report| report.timed.expect("it was timed"));
    let slowest = together.writes.max_us.max(together.reads.max_us) / 1e6;
    assert!(together.seconds > 0.99 * slowest && together.seconds < alone.seconds, "{together:?} {alone:?}");
    assert!(together.writes_per_s.is_finite() && together.write_mib_per_s > alone.write_mib_per_s);
}

/// Counts requests with data by stage (issued, completed, queued) and kind: writes, TRIMs, reads.
fn counted(path: &Path) -> ([[usize; 3]; 3], Requests) {
    let mut requests = Requests::open(path).expect("it is a trace");
    let mut counts = [[0; 3]; 3];
    while let Some(request) = requests.read().expect("it is whole") {
        assert!(request.bytes > 0, "{request:?}");
        let stage =
            [Stage::Issued, Stage::Completed, Stage::Queued].iter().position(|one| *one == request.stage);
        let kind = [Kind::Write, Kind::Trim, Kind::Read].iter().position(|one| *one == request.kind);
        counts[stage.expect("a stage")][kind.expect("a kind")] += 1;
    }
    (counts, requests)
}

/// Printed by trace-cmd 3.1.6, perf 6.1, blkparse 1.2 and the tracers of Linux 6.18, and counted with grep.
#[test]
fn every_tool_output_is_parsed_completely() {
    for (name, format, counts) in [
        ("trace-cmd.txt", Format::Ftrace, [[39, 0, 0], [0, 0, 0], [0, 0, 0]]),
        ("perf.txt", Format::Ftrace, [[4, 1, 0], [3, 1, 0], [4, 1, 0]]),
        ("ftrace-bio.txt", Format::Ftrace, [[5, 1, 0], [5, 1, 0], [6, 1, 0]]),
        ("ftrace-latency.txt", Format::Ftrace, [[3, 0, 0], [3, 0, 0], [3, 0, 0]]),
        ("blk-tracer.txt", Format::Ftrace, [[4, 1, 0], [4, 1, 0], [5, 1, 0]]),
        ("blk-classic.txt", Format::Ftrace, [[4, 1, 0], [4, 1, 0], [4, 1, 0]]),
        ("blkparse-every.txt", Format::Blkparse, [[4, 1, 1], [3, 0, 0], [1, 0, 0]]),
    ] {
        let (found, requests) = counted(&traced(name));
        assert_eq!(requests.not_understood(), &NotUnderstood::default(), "{name}");
        assert_eq!((requests.format(), found), (format, counts), "{name}");
    }
    let report = replay(&asked(traced("trace-cmd.txt"))).expect("it is replayed");
    assert_eq!((report.trace.writes, report.trace.write_bytes), (39, 39 * 4096));
}

/// Line variants of other versions: with tags, with the time since the previous event, after a warning.
#[test]
fn line_variants_are_parsed() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("trace");
    let lines = "trace-cmd: a warning\nversion = 7\nCPU 1 is empty\ncpus=2\n\
        dd-1 (1) [000] 1.5: (+12)   block_rq_issue:  8,0 W 4096 () 0 + 8 [dd]\n\
        <...>-1 [000] d..1. 1.6: block_rq_issue: 8,0 FWFSM 4096 () 8 + 8 [a: b]\n\
        dd-1 0...1 77: block_rq_issue: 8,0 W 4096 (2a 00 (x ) 16 + 8 [dd]\n\
        a b c 7 [001] 1.7: block:block_rq_issue: 8,0 ZR 0 () 24 + 8 [dd]\n\
        PERF_RECORD_LOST 7\nCPU:1 [EVENTS DROPPED]\nCPU:0 [LOST 5 EVENTS]\n\
        dd-1 [000] 1.8: sched_switch: a ==> b\n";
    std::fs::write(&path, lines).expect("it is written");
    let (counts, requests) = counted(&path);
    assert_eq!((counts[0], requests.lost()), ([3, 0, 0], 13));
    let first = Some((1, "there is no event in the line".to_owned()));
    assert_eq!(requests.not_understood(), &NotUnderstood { lines: 1, first });
}

#[test]
fn unparsed_lines_are_counted_and_reported() {
    let dir = tempfile::tempdir().expect("a directory");
    let replayed = |name: &str, bytes: &[u8]| {
        let path = dir.path().join(name);
        std::fs::write(&path, bytes).expect("it is written");
        replay(&asked(path))
    };
    for name in ["blkparse.txt", "ftrace.txt", "fio-2.iolog", "fio-3.iolog", "perf.txt", "blk-tracer.txt"] {
        let whole = std::fs::read(traced(name)).expect("it is there");
        let lines: Vec<&[u8]> = whole.split_inclusive(|byte| *byte == b'\n').collect();
        let end: usize = lines[..40].iter().map(|line| line.len()).sum();
        let last = lines[40].len();
        let blank = whole[end..].iter().take_while(|byte| **byte == b' ').count();
        let read = |bytes: &[u8]| {
            let path = dir.path().join(name);
            std::fs::write(&path, bytes).expect("it is written");
            counted(&path)
        };
        let (before, _) = read(&whole[..end]);
        // Cut at any position in a line: the rest may parse as another request.
        for kept in (blank + 1..last).step_by(7) {
            let (found, requests) = read(&whole[..end + kept]);
            let NotUnderstood { lines, first } = requests.not_understood();
            assert_eq!((*lines, first.as_ref().map(|first| first.0)), (1, Some(41)), "{name}, {kept} bytes");
            assert_eq!(found, before, "{name}, {kept} bytes");
        }
        let mut damaged = whole.clone();
        damaged[end + blank..end + last - 1].fill(b'x');
        let report = replayed(name, &damaged).expect("it is replayed");
        assert_eq!(report.not_understood.lines, 1, "{name}: {report}");
        assert!(report.to_string().contains("NOT UNDERSTOOD"), "{report}");
        damaged[end + blank..end + last - 1].fill(0xff);
        let (_, requests) = read(&damaged);
        let first = Some((41, "not text (invalid UTF-8)".to_owned()));
        assert_eq!(requests.not_understood().first, first, "{name}");
    }
}

#[test]
fn non_trace_files_are_refused_with_reason() {
    let dir = tempfile::tempdir().expect("a directory");
    let refused = |bytes: &[u8]| {
        let path = dir.path().join("strange");
        std::fs::write(&path, bytes).expect("it is written");
        replay(&asked(path)).expect_err("it is refused")
    };
    for (bytes, said) in [
        (&b""[..], "the file is empty"),
        (b"hello\n", "line 1: not a trace"),
        (
            b"\n# comment\nhello\nworld\n\xff\n",
            "line 3: not a trace that can be replayed: it starts with 'hello'",
        ),
        (b"\x07tae\0\0", "blkparse -i FILE"),
        (b"PERFILE2", "perf script -i FILE"),
        (b"\x7fELF\xff\xfe\n", "not text (invalid UTF-8)"),
        (b"fio version 1 iolog\n", "its iolog version is 1"),
        (b"fio version 2 iolog\n/dev/sda add\n", "contains no request"),
        (b"cpus=2\nwhat\n", "the first line that was not understood is 2"),
        (b"fio version 2 iolog\na write 0 4096\nb write 0 4096\n", "choose one with --device: a b"),
        (b"fio version 2 iolog\na read 0 4096\n", "contains no write"),
        (b"fio version 2 iolog\na write 18446744073709551615 4096\n", "its request ends beyond"),
        (b"fio version 2 iolog\na write 0 4096000000\n", "beyond a namespace of 268435456"),
    ] {
        let text = refused(bytes).to_string();
        assert!(text.contains(said), "{text}");
    }
    let error = refused(b"hello\n");
    assert!(matches!(error, Error::UnknownFormat { line: 1, .. }) && error.is_usage());
    let long = [b"fio version 2 iolog\na write 0 4096\n", &[b'x'; 100_000][..]].concat();
    let error = refused(&long);
    assert!(matches!(error, Error::TraceLine { line: 3, .. }) && !error.is_usage(), "{error}");
}

#[test]
fn lost_events_are_told_from_other_events() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("trace");
    let text = "# tracer: nop\nCPU:1 [LOST 345 EVENTS]\n \
        fio-9 [000] d..1. 1.000001: block_rq_insert: 8,0 W 4096 () 0 + 8 [fio]\n \
        fio-9 [000] d..1. 1.000002: block_rq_issue: 8,0 FF 0 () 0 + 0 [fio]\n \
        fio-9 [000] d..1. 1.000003: block_rq_issue: 8,0 FWS 4096 (2a 00 ) 128 + 8 [fio]\n";
    std::fs::write(&path, text).expect("it is written");
    let report = replay(&asked(path)).expect("it is replayed");
    assert_eq!((report.lost_events, report.trace.writes, report.trace.write_bytes), (345, 1, 4096));
    assert!(report.to_string().contains("LOST"), "{report}");
}
