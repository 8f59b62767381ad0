use super::*;

fn steps(outcomes: &[Result<usize, i32>], bytes: usize) -> (io::Result<()>, Vec<usize>) {
    let mut calls = Vec::new();
    let mut outcomes = outcomes.iter();
    let outcome = transfer(bytes, 512, |done| {
        calls.push(done);
        match outcomes.next().expect("no more steps were expected") {
            Ok(moved) => Ok(*moved),
            Err(errno) => Err(io::Error::from_raw_os_error(*errno)),
        }
    });
    (outcome, calls)
}

#[test]
fn short_transfers_go_on_from_the_last_whole_block() {
    let (outcome, calls) = steps(&[Ok(1000), Err(libc::EINTR), Ok(3584)], 4096);
    assert!(outcome.is_ok());
    assert_eq!(calls, [0, 512, 512]);
}

#[test]
fn units_that_cannot_be_kept_whole_are_told_of() {
    use crate::probe::CommandLimit;
    let why = |kind, limit: Option<usize>, start_bytes, unit| {
        let limit = limit.map(|bytes| CommandLimit { of_pages: bytes, of_memory: bytes });
        let geometry = Geometry { kind, ..Geometry::memory(1 << 20) };
        let file = tempfile::tempfile().expect("a file");
        let device = DeviceFile::new(file, "disk".into(), geometry, Volume { limit, start_bytes });
        device.why_not_whole(unit).unwrap_or_default()
    };
    let block = DeviceKind::Block;
    assert_eq!(why(block, Some(512 << 10), 1 << 20, 65536), "");
    assert_eq!(why(block, Some(64 << 10), 65536, 65536), "");
    assert!(why(block, Some(32 << 10), 0, 65536).contains("holds 32768 bytes"));
    assert!(why(block, Some(512 << 10), 63 * 512, 65536).contains("begins at byte 32256"));
    assert!(why(block, None, 0, 65536).contains("page cache"));
    assert_eq!(why(block, None, 0, 4096), "");
    assert_eq!(why(DeviceKind::File, None, 0, 65536), "");
}

#[test]
fn only_a_block_device_without_a_cache_keeps_plain_writes() {
    for kind in [DeviceKind::File, DeviceKind::Block] {
        for (direct, write_cache) in [(false, false), (false, true), (true, false), (true, true)] {
            let geometry = Geometry { kind, direct, write_cache, ..Geometry::memory(1 << 20) };
            let file = tempfile::tempfile().expect("a file");
            let device = DeviceFile::new(file, "disk".into(), geometry, Volume::default());
            let is_kept = kind == DeviceKind::Block && direct && !write_cache;
            assert_eq!(device.needs_dsync(WriteMode::Durable), !is_kept, "{kind:?} {direct} {write_cache}");
            assert!(!device.needs_dsync(WriteMode::Plain), "nobody asked for it");
        }
    }
}

#[test]
fn a_failed_flush_is_not_asked_again() {
    for errno in [libc::EIO, libc::ENOSPC, libc::EDQUOT, libc::EINTR, libc::EAGAIN, libc::ENODEV] {
        let file = tempfile::tempfile().expect("a file");
        let device = DeviceFile::new(file, "a file".into(), Geometry::memory(4096), Volume::default());
        let asked = std::cell::Cell::new(0);
        let failed = device.flush_by(|_| {
            asked.set(asked.get() + 1);
            Err(io::Error::from_raw_os_error(errno))
        });
        let error = failed.expect_err("it failed");
        assert_eq!((error.operation(), asked.get()), (Some(OperationKind::Flush), 1), "{error}");
        assert!(error.leaves_doubt(), "{error}");
    }
}

#[test]
fn holes_are_filled_and_data_is_kept() {
    let file = tempfile::tempfile().expect("a file");
    let page = crate::probe::PAGE_BYTES as usize;
    let at = |number: usize| (number * page) as u64;
    write_at(&file, &vec![7; page], at(300), false).expect("it is written");
    file.set_len(at(310)).expect("it is longer");
    fill_holes(&file, at(2), at(700)).expect("it is filled");
    assert_eq!(crate::probe::next_hole(&file, at(2), at(700)).expect("it is told"), (at(700), at(700)));
    let mut found = vec![1; 700 * page];
    assert_eq!(read_at(&file, &mut found, 0).expect("it is read"), found.len());
    let sevens = |number: usize| (300..301).contains(&number);
    for (number, found) in found.chunks(page).enumerate() {
        assert!(found.iter().all(|byte| *byte == if sevens(number) { 7 } else { 0 }), "page {number}");
    }
}

#[test]
fn no_progress_is_an_error() {
    let (outcome, _) = steps(&[Ok(512), Ok(0)], 4096);
    assert_eq!(outcome.unwrap_err().raw_os_error(), Some(libc::EIO));
    let (outcome, _) = steps(&[Ok(511)], 4096);
    assert_eq!(outcome.unwrap_err().raw_os_error(), Some(libc::EIO));
    let (outcome, calls) = steps(&[Err(libc::EAGAIN); RETRIES_MAX as usize + 1], 4096);
    assert_eq!(outcome.unwrap_err().raw_os_error(), Some(libc::EAGAIN));
    assert_eq!(calls.len(), RETRIES_MAX as usize + 1);
}

fn a_file(bytes: u64) -> DeviceFile {
    let file = tempfile::tempfile().expect("a file");
    file.set_len(bytes).expect("it is as long");
    let geometry = Geometry { kind: DeviceKind::File, ..Geometry::memory(bytes) };
    DeviceFile::new(file, "a file".into(), geometry, Volume::default())
}

#[test]
fn a_resize_that_fails_leaves_the_size_and_can_be_asked_again() {
    const MIB: u64 = 1 << 20;
    let fails = |_: &File| Err(io::Error::from_raw_os_error(libc::EIO));
    for bytes in [MIB, 4 * MIB] {
        let device = a_file(2 * MIB);
        let error = device.set_length(bytes, fails, |_| Ok(())).expect_err("it cannot be cut");
        assert_eq!(error.operation(), Some(OperationKind::Resize));
        assert_eq!(device.geometry().bytes, 2 * MIB);
        let error = device.set_length(bytes, |file| file.set_len(bytes), fails).expect_err("nor synced");
        assert_eq!(error.operation(), Some(OperationKind::Flush));
        assert_eq!(device.geometry().bytes, 2 * MIB);
        let is_synced = std::cell::Cell::new(false);
        let sync = |_: &File| {
            is_synced.set(true);
            Ok(())
        };
        device.set_length(bytes, |file| file.set_len(bytes), sync).expect("it can now");
        assert!(is_synced.get(), "the same call again does its work");
        assert_eq!(
            (device.geometry().bytes, device.file.metadata().expect("it is there").len()),
            (bytes, bytes)
        );
    }
}

#[test]
fn file_geometry_matches_length_after_concurrent_resizes() {
    const PAGE: u64 = 4096;
    let device = a_file(PAGE);
    for turn in 0..300 {
        std::thread::scope(|scope| {
            scope.spawn(|| device.extend((2 + turn % 3) * PAGE).expect("it is extended"));
            scope.spawn(|| device.resize(PAGE).expect("it is cut"));
            scope.spawn(|| device.resize(3 * PAGE).expect("it is resized"));
        });
        let length = device.file.metadata().expect("it is there").len();
        assert_eq!(device.geometry().bytes, length, "turn {turn}");
    }
}
