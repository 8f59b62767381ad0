//! Traces of one workload, as four tools wrote them, and traces that are damaged.
//!
//! fio wrote 16 × 4 KiB at random, 4 × 64 KiB in order, two TRIMs of 128 KiB, and reads and writes of 12 KiB, to a loop device.

use std::path::{Path, PathBuf};

use esker_ftl::{Choice, Endurance, Error, Format, Kind, Replay, Requests, Stage, replay};

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
fn four_formats_tell_of_the_same_writes() {
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
fn a_trace_costs_what_its_sizes_say() {
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
    // Each write costs an IU, but for one of 12 KiB that lies in two.
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
fn a_replay_lasts_until_the_last_request_is_done() {
    let alone =
        replay(&Replay { in_flight: Some(1), ..asked(traced("fio-3.iolog")) }).expect("it is replayed");
    let together =
        replay(&Replay { in_flight: Some(128), ..asked(traced("fio-3.iolog")) }).expect("it is replayed");
    let [alone, together] = [alone, together].map(|report| report.timed.expect("it was timed"));
    let slowest = together.writes.max_us.max(together.reads.max_us) / 1e6;
    assert!(together.seconds > 0.99 * slowest && together.seconds < alone.seconds, "{together:?} {alone:?}");
    assert!(together.writes_per_s.is_finite() && together.write_mib_per_s > alone.write_mib_per_s);
}

#[test]
fn damage_and_strangers_are_named_with_their_line() {
    let dir = tempfile::tempdir().expect("a directory");
    let refused = |name: &str, bytes: &[u8]| {
        let path = dir.path().join(name);
        std::fs::write(&path, bytes).expect("it is written");
        let error = replay(&asked(path)).expect_err("it is refused");
        (error.to_string(), error)
    };
    for name in ["blkparse.txt", "ftrace.txt", "fio-2.iolog", "fio-3.iolog"] {
        let whole = std::fs::read(traced(name)).expect("it is there");
        // Cut anywhere in a line, and the summary of blkparse is no line of the trace.
        let lines = whole.split_inclusive(|byte| *byte == b'\n');
        let end: usize = lines.clone().take(20).map(<[u8]>::len).sum();
        let last = lines.clone().nth(20).expect("it is long enough").len();
        let blank = whole[end..].iter().take_while(|byte| **byte == b' ').count();
        for kept in (blank + 1..last).step_by(7) {
            let (text, error) = refused(name, &whole[..end + kept]);
            assert!(text.contains("line 21: ") && text.contains("head -n 20"), "{kept} bytes: {text}");
            assert!(!error.is_usage(), "{text}");
        }
        let mut damaged = whole.clone();
        damaged[end + blank..end + last - 1].fill(b'x');
        let (text, _) = refused(name, &damaged);
        assert!(text.contains("line 21: ") && text.contains("record the trace again"), "{text}");
    }
    for (bytes, said) in [
        (&b""[..], "the file is empty"),
        (b"hello\n", "line 1: this is no trace"),
        (b"\x07tae\0\0", "blkparse -i FILE"),
        (b"\x7fELF\xff\xfe\n", "it is no text"),
        (b"fio version 1 iolog\n", "its iolog version is 1"),
        (b"fio version 2 iolog\n/dev/sda add\n", "no request was found"),
        (b"fio version 2 iolog\na write 0 4096\nb write 0 4096\n", "choose one with --device: a b"),
        (b"fio version 2 iolog\na read 0 4096\n", "nothing is written"),
        (b"fio version 2 iolog\na write 18446744073709551615 4096\n", "line 2: its request ends beyond"),
        (b"fio version 2 iolog\na write 0 4096000000\n", "beyond a namespace of 268435456"),
    ] {
        let (text, _) = refused("strange", bytes);
        assert!(text.contains(said), "{text}");
    }
    let (_, error) = refused("strange", b"hello\n");
    assert!(matches!(error, Error::UnknownFormat { line: 1, .. }) && error.is_usage());
}

#[test]
fn lost_events_and_other_events_are_told_apart() {
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
