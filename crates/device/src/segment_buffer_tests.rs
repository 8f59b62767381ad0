//! Tests of the segment buffer: the ranges that may be sliced at each point, and readers racing the appender.

use std::io::Read;
use std::sync::atomic::AtomicBool;

use super::*;

fn refuses(buffer: &SegmentBuffer, range: Range<usize>) -> bool {
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| buffer.slice(range).len())).is_err()
}

#[test]
fn a_frame_is_built_and_closed() {
    let mut appender = SegmentBuffer::anonymous(8192).unwrap();
    let buffer = appender.buffer();
    assert_eq!(appender.reserve_header(16), 0);
    assert_eq!(appender.append(&[b"hello", b" ", b"world"]), 16);
    assert_eq!(buffer.slice(16..27), b"hello world");
    assert!(refuses(&buffer, 0..16) && refuses(&buffer, 15..20));
    assert!(!refuses(&buffer, 0..0), "nothing is read");
    assert!(refuses(&buffer, 27..28), "nothing is published there");
    assert_eq!(appender.close(&[7; 16], 512), 0..512);
    assert_eq!(buffer.slice(0..16), &[7; 16]);
    assert!(buffer.slice(27..512).iter().all(|byte| *byte == 0));
    assert_eq!(appender.reserve_header(16), 512);
    assert_eq!(appender.append(&[b"x"]), 528);
    assert_eq!(buffer.slice(0..512).len(), 512, "a closed frame stays readable while the next is open");
    assert!(refuses(&buffer, 500..520));
    assert_eq!(appender.close(&[8; 16], 512), 512..1024);
    assert_eq!(buffer.published(), 1024);
}

#[test]
fn segment_buffer_get_from_ends_before_open_header() {
    let mut appender = SegmentBuffer::anonymous(8192).unwrap();
    let buffer = appender.buffer();
    appender.reserve_header(16);
    appender.append(&[b"first"]);
    assert_eq!((buffer.get_from(16), buffer.get_from(19)), (&b"first"[..], &b"st"[..]));
    for nothing in [0, 15, 21, 22, 9000] {
        assert!(buffer.get_from(nothing).is_empty(), "{nothing}");
    }
    appender.close(&[7; 16], 512);
    appender.reserve_header(16);
    appender.append(&[b"second"]);
    assert_eq!(buffer.get_from(16).len(), 512 - 16);
    assert_eq!(buffer.get_from(528), b"second");
    assert!(buffer.get_from(520).is_empty());
}

#[test]
fn padding_hides_what_a_recycled_buffer_held() {
    let mut appender = SegmentBuffer::anonymous(4096).unwrap();
    appender.append(&[&[0xAA; 4096]]);
    let reader = appender.buffer();
    let appender = appender.recycle().expect_err("a reader still refers to it");
    drop(reader);
    let mut appender = appender.recycle().unwrap();
    assert!(appender.is_empty() && appender.buffer().published() == 0);
    appender.reserve_header(8);
    appender.append(&[b"abc"]);
    assert_eq!(appender.close(&[1; 8], 4096), 0..4096);
    assert!(appender.buffer().slice(11..4096).iter().all(|byte| *byte == 0));
}

#[test]
fn a_panicking_fill_publishes_nothing() {
    let mut appender = SegmentBuffer::anonymous(4096).unwrap();
    let filled = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        appender.append_with(10, |_| panic!("the encoder failed"));
    }));
    assert!(filled.is_err() && appender.tail() == 0 && appender.buffer().published() == 0);
    assert_eq!(appender.append(&[b"ok"]), 0);
}

#[test]
#[should_panic(expected = "4096 bytes at 1")]
fn segment_buffer_refuses_append_beyond_capacity() {
    let mut appender = SegmentBuffer::anonymous(4096).unwrap();
    appender.append(&[b"1"]);
    appender.append(&[&[0; 4096]]);
}

#[test]
#[cfg_attr(miri, ignore = "Miri maps no files")]
fn a_mapping_outlives_the_appender() {
    let mut file = tempfile::tempfile().unwrap();
    assert!(SegmentBuffer::mapped(&file, 100, 8192).is_err(), "not on a page");
    let mut appender = SegmentBuffer::mapped(&file, 4096, 8192).unwrap();
    appender.reserve_header(4);
    appender.append(&[b"kept"]);
    appender.close(b"head", 4096);
    drop(appender);
    let mut content = Vec::new();
    file.read_to_end(&mut content).unwrap();
    assert_eq!(content.len(), 4096 + 8192);
    assert_eq!(&content[4096..4104], b"headkept");
}

/// Each byte of the buffer shows the lap that wrote it, and headers differ from bodies. Readers slice published ranges,
/// across and beside frame boundaries, and check every byte. The test detects a byte that changes under a reader, or is
/// visible before it is written.
#[test]
fn readers_race_the_appender() {
    const HEADER: usize = 24;
    let laps: u8 = if cfg!(miri) { 3 } else { 200 };
    let frames = if cfg!(miri) { 4 } else { 60 };
    let mut appender = SegmentBuffer::anonymous(frames * 512).unwrap();
    for lap in 1..=laps {
        let done = AtomicBool::new(false);
        let buffer = appender.buffer();
        std::thread::scope(|scope| {
            for seed in 0..2 {
                let (buffer, done) = (&buffer, &done);
                scope.spawn(move || {
                    let mut random = u64::from(lap) * 2 + seed + 1;
                    while !done.load(Ordering::Relaxed) {
                        random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                        let published = buffer.published();
                        // A record: published, never in a header. The last frame may be open: only its body is read.
                        let frame = published.saturating_sub(1) / 512 * 512;
                        let end = published.min(frame + 512);
                        if end > frame + HEADER {
                            let start = frame + HEADER + (random >> 33) as usize % (end - frame - HEADER);
                            assert!(buffer.slice(start..end).iter().all(|byte| *byte == lap || *byte == 0));
                        }
                        // Closed frames: everything, including headers.
                        for (index, byte) in buffer.slice(0..frame).iter().enumerate() {
                            let expected = if index % 512 < HEADER { lap ^ 0xFF } else { lap };
                            assert!(
                                *byte == expected || (*byte == 0 && index % 512 >= HEADER),
                                "byte {index}"
                            );
                        }
                        std::thread::yield_now();
                    }
                });
            }
            for _ in 0..frames {
                appender.reserve_header(HEADER);
                for _ in 0..6 {
                    appender.append(&[&[lap; 70]]);
                }
                appender.close(&[lap ^ 0xFF; HEADER], 512);
            }
            done.store(true, Ordering::Relaxed);
        });
        drop(buffer);
        appender = appender.recycle().unwrap();
    }
}
