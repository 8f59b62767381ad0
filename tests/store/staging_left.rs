//! Finds the staging file with the acknowledged writes of a killed process: no other file is taken for
//! it, and no other store is kept from a file that holds nothing of use.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use esker::{Blocking, Compression, Durability, Error, ErrorKind, Options};
use esker_device::{Fault, Latency, MemoryDevice, MemoryOptions, Operation, OperationKind, Threads};

use crate::support::opening::{make, opens_with_its_key, small, temp};

fn on(device: &Arc<MemoryDevice>) -> Options {
    small(Options::devices(None, Some(device.clone()))).durability(Durability::Process)
}

/// Returns the device in the state after a kill at this moment.
fn after_a_kill(device: &MemoryDevice) -> Arc<MemoryDevice> {
    Arc::new(MemoryDevice::from_bytes(MemoryOptions::new(device.snapshot().len() as u64), &device.snapshot()))
}

/// Makes a put that a store acknowledges from memory before it is killed. Returns the device in that
/// state.
fn put_and_kill(device: &MemoryDevice, staging: &Path) -> Arc<MemoryDevice> {
    let runtime = Threads::new(1).expect("a thread can be started");
    let latency = Some(Latency::flash(runtime));
    let content = device.snapshot();
    let options = MemoryOptions { latency, ..MemoryOptions::new(content.len() as u64) };
    let slow = Arc::new(MemoryDevice::from_bytes(options, &content));
    let store = Blocking::open(on(&slow).staging(staging)).expect("the store opens");
    // However long the put takes, the device does not get it before the kill: a put is written after a second.
    slow.set_faults(Box::new(|operation: &Operation| match operation.kind {
        OperationKind::Write => Fault::Late(Duration::from_secs(20)),
        _ => Fault::None,
    }));
    store.put("k", "acknowledged").expect("the put succeeds");
    let killed = (after_a_kill(&slow), fs::read(staging).expect("it is read"));
    slow.clear_faults();
    store.close().expect("the store closes");
    fs::write(staging, killed.1).expect("it is as the kill left it");
    killed.0
}

fn refusal(options: Options) -> Error {
    Blocking::open(options).expect_err("it should have been refused")
}

fn get(options: Options) -> Option<Vec<u8>> {
    let store = Blocking::open(options).expect("the store opens");
    let found = store.get("k").expect("the get succeeds").map(|value| value.to_vec());
    store.close().expect("the store closes");
    found
}

/// One process had the file A, the next one B and was killed; A is as long as the superblock says, and
/// intact.
#[test]
fn staging_file_of_earlier_opening_is_not_taken_for_the_last() {
    let dir = temp();
    let [a, b] = ["a", "b"].map(|name| dir.path().join(name));
    let device = Arc::new(MemoryDevice::new(64 << 20));
    make(on(&device).staging(&a));
    let killed = put_and_kill(&device, &b);
    let error = refusal(on(&killed).staging(&a));
    assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
    assert!(error.to_string().contains("written before the last opening"), "{error}");
    assert_eq!(get(on(&after_a_kill(&killed)).staging(&a).accept_loss(true)), Some(b"v".to_vec()));
    assert_eq!(get(on(&killed).staging(&b)), Some(b"acknowledged".to_vec()));
    // After a close, neither is needed.
    assert_eq!(get(on(&killed).staging(&a)), Some(b"acknowledged".to_vec()));
}

/// Opened by its directory, or by the file in it.
#[test]
fn a_store_in_a_directory_has_one_staging_file() {
    let dir = temp();
    let by_directory = |name: &str| small(Options::directory(dir.path().join(name)));
    let by_file = |name: &str| small(Options::capacity_only(dir.path().join(name).join("data.esker")));
    type Opening<'o> = &'o dyn Fn(&str) -> Options;
    let pairs: [(&str, [Opening<'_>; 2]); 3] = [
        ("one", [&by_directory, &by_file]),
        ("two", [&by_file, &by_directory]),
        ("linked", [&by_directory, &by_file]),
    ];
    for (name, [first, second]) in pairs {
        if name == "linked" {
            fs::create_dir(dir.path().join(name)).expect("a directory");
            symlink(dir.path().join("image"), dir.path().join(name).join("data.esker")).expect("a link");
            make(small(Options::capacity_only(dir.path().join("image"))));
        }
        make(by_directory(name));
        let store = Blocking::open(first(name).durability(Durability::Process)).expect("the store opens");
        store.put("k", "acknowledged").expect("the put succeeds");
        let files = |dir: PathBuf| fs::read_dir(dir).expect("it is read").flatten().map(|file| file.path());
        let copies: Vec<(PathBuf, Vec<u8>)> = files(dir.path().join(name))
            .chain(files(dir.path().to_owned()).filter(|path| path.is_file()))
            .map(|path| (path.clone(), fs::read(path).expect("it is read")))
            .collect();
        store.close().expect("the store closes");
        // The state after a kill.
        copies.iter().for_each(|(path, bytes)| fs::write(path, bytes).expect("it is put back"));
        assert_eq!(get(second(name)), Some(b"acknowledged".to_vec()), "{name}");
    }
}

/// Prepared segments have headers in the staging file too, although they are empty.
#[test]
fn a_store_that_was_closed_leaves_its_staging_file_to_others() {
    let dir = temp();
    let path = dir.path().join("staging");
    for coalescing in [false, true] {
        let device = Arc::new(MemoryDevice::new(64 << 20));
        let mut options = on(&device);
        if coalescing {
            options = options.coalesce_for(Duration::from_secs(5));
        }
        let store = Blocking::open(options.staging(&path)).expect("the store opens");
        for key in 0..100 {
            store.put(format!("k{key}"), vec![7; 30_000]).expect("the put succeeds");
        }
        store.close().expect("the store closes");
        opens_or_makes(on(&Arc::new(MemoryDevice::new(64 << 20))).staging(&path));
    }
}

fn opens_or_makes(options: Options) {
    make(options.clone());
    opens_with_its_key(options);
}

/// Another store may use the file by then.
#[test]
fn a_store_that_is_closed_again_leaves_its_staging_file_alone() {
    let dir = temp();
    let (path, device) = (dir.path().join("staging"), Arc::new(MemoryDevice::new(64 << 20)));
    let first = Blocking::open(on(&device).staging(&path)).expect("the store opens");
    first.put("k", "v").expect("the put succeeds");
    first.close().expect("the store closes");
    let second = Blocking::open(on(&device).staging(&path)).expect("the store opens");
    second.put("k", "acknowledged").expect("the put succeeds");
    first.close().expect("closing again is fine");
    let killed = after_a_kill(&device);
    fs::copy(&path, dir.path().join("kept")).expect("it is copied");
    second.close().expect("the store closes");
    assert_eq!(get(on(&killed).staging(dir.path().join("kept"))), Some(b"acknowledged".to_vec()));
}

#[test]
fn store_is_not_formatted_with_staging_file_of_another() {
    let dir = temp();
    let (path, device) = (dir.path().join("staging"), Arc::new(MemoryDevice::new(64 << 20)));
    put_and_kill(&device, &path);
    let store = dir.path().join("store");
    let error = refusal(small(Options::directory(&store)).staging(&path));
    assert!(error.to_string().contains("another store"), "{error}");
    let data = store.join("data.esker");
    let is_empty = fs::read(&data).map_or(true, |bytes| bytes.iter().all(|byte| *byte == 0));
    assert!(is_empty, "it was formatted");
    fs::remove_file(&path).expect("it was there");
    opens_or_makes(small(Options::directory(&store)).staging(&path));
}

/// Nothing was lost, so no opening is refused, at whatever point an opening that makes a new staging file
/// is killed.
#[test]
fn kill_while_staging_file_is_made_does_not_block_opening() {
    let dir = temp();
    let original = dir.path().join("original");
    let closed = Arc::new(MemoryDevice::new(64 << 20));
    make(on(&closed).staging(&original));
    let (mut kills, mut is_told) = (0, false);
    for writes in 0.. {
        let (device, path) = (after_a_kill(&closed), dir.path().join(format!("new {writes}")));
        let mut left = writes;
        device.set_faults(Box::new(move |operation: &Operation| match operation.kind {
            OperationKind::Write if left == 0 => Fault::Error(libc::EIO),
            OperationKind::Write => {
                left -= 1;
                Fault::None
            }
            _ => Fault::None,
        }));
        let opened = Blocking::open(on(&device).staging(&path)).and_then(|store| store.close());
        if opened.is_ok() {
            break;
        }
        kills += 1;
        let bytes = fs::read(&path).expect("it is read");
        // The first step after making the file is to record it in the superblocks; from then on it cannot
        // be shorter.
        let lengths = if is_told { vec![bytes.len()] } else { vec![bytes.len(), bytes.len() / 2, 4096, 0] };
        is_told = !bytes.is_empty();
        for length in lengths {
            let file = fs::OpenOptions::new().write(true).open(&path).expect("it is opened");
            file.set_len(length.min(bytes.len()) as u64).expect("it is cut");
            opens_with_its_key(on(&after_a_kill(&device)).staging(&path));
            fs::write(&path, &bytes).expect("it is put back");
        }
    }
    assert!(kills > 3 && is_told, "{kills}");
}

/// The staged records that an opening wrote before it was killed are not written again by the next one,
/// and need no further space.
#[test]
fn openings_that_are_killed_one_after_the_other_get_on() {
    let dir = temp();
    let staging = |round: usize| dir.path().join(format!("staging {round}"));
    let options = |device: &Arc<MemoryDevice>, round| {
        let options = Options::devices(None, Some(device.clone())).segment_bytes(512 << 10);
        let options = options.memory_bytes(64 << 20).coalesce_for(Duration::from_secs(3600));
        options.durability(Durability::Process).compression(Compression::Off).staging(staging(round))
    };
    let key = |number: usize| format!("k{number:03}");
    let device = Arc::new(MemoryDevice::new(128 << 20));
    let store = Blocking::open(options(&device, 0)).expect("the store opens");
    let (count, overwritten) = (400, 300);
    for number in 0..count {
        store.put(key(number), vec![0; 10_000]).expect("the put succeeds");
    }
    store.flush().expect("it is flushed");
    for number in 0..overwritten {
        store.put(key(number), vec![1; 10_000]).expect("it waits in memory");
    }
    let mut killed = after_a_kill(&device);
    fs::copy(staging(0), staging(1)).expect("it is copied");
    drop(store);
    for round in 1.. {
        assert!(round < 50, "each opening begins anew");
        let device = after_a_kill(&killed);
        // Killed in its second segment, after six copies of the superblock.
        let mut written = 0;
        device.set_faults(Box::new(move |operation: &Operation| {
            let is_write = operation.kind == OperationKind::Write;
            written += if is_write { operation.bytes } else { 0 };
            if is_write && written > 928 << 10 { Fault::Error(libc::EIO) } else { Fault::None }
        }));
        let error = match Blocking::open(options(&device, round)) {
            Ok(store) => {
                for number in 0..count {
                    let found = store.get(key(number)).expect("the get succeeds").expect("it is there");
                    assert_eq!(found[0], u8::from(number < overwritten), "{number}");
                }
                assert!(round > 3, "{round}");
                return;
            }
            Err(error) => error,
        };
        assert_eq!(error.kind(), ErrorKind::Io, "after {round} kills: {error}");
        killed = after_a_kill(&device);
        fs::copy(staging(round), staging(round + 1)).expect("it is copied");
    }
}

/// Writes acknowledged at `Process` are only in the staging file until they are flushed: without this
/// file, a store killed since the machine was started does not open as if nothing was lost.
#[test]
fn missing_staging_file_of_a_killed_process_is_refused() {
    let dir = temp();
    let path = dir.path().join("staging");
    let device = Arc::new(MemoryDevice::new(64 << 20));
    make(on(&device).staging(&path));
    let killed = put_and_kill(&device, &path);
    let left = fs::read(&path).expect("it is read");
    for is_empty in [false, true] {
        match is_empty {
            false => fs::remove_file(&path).expect("it is removed"),
            true => fs::write(&path, b"").expect("it is cut off"),
        }
        let error = refusal(on(&after_a_kill(&killed)).staging(&path));
        let text = error.to_string();
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{text}");
        assert_eq!(path.exists(), is_empty, "what is refused makes nothing");
        for word in [&path.display().to_string()[..], "missing", "Process", "accept_loss"] {
            assert!(text.contains(word), "{text}");
        }
    }
    // Without any file name too.
    let error = refusal(on(&after_a_kill(&killed)).durability(Durability::Sync));
    assert!(error.to_string().contains("missing"), "{error}");
    let accepted = on(&after_a_kill(&killed)).staging(&path).accept_loss(true);
    assert_eq!(get(accepted), Some(b"v".to_vec()));
    // After another start of the machine the file is not required.
    fs::remove_file(&path).ok();
    assert_eq!(get(on(&after_a_kill(&killed)).staging(&path).boot_number(77)), Some(b"v".to_vec()));
    // With the file put back, nothing is lost.
    fs::write(&path, left).expect("it is put back");
    assert_eq!(get(on(&killed).staging(&path)), Some(b"acknowledged".to_vec()));
}

/// Needs root, to mount a small file system; otherwise `SKIPPED: ` and the reason are printed.
#[test]
fn staging_file_on_a_file_system_that_is_too_small_is_refused() {
    let dir = temp();
    let at = dir.path().join("small");
    fs::create_dir(&at).expect("a directory");
    let mount = |bytes: u64| {
        let size = format!("size={bytes}");
        let mut command = std::process::Command::new("mount");
        command.args(["-t", "tmpfs", "-o", &size, "tmpfs"]).arg(&at);
        command.output().is_ok_and(|output| output.status.success())
    };
    let unmount = || std::process::Command::new("umount").arg("--lazy").arg(&at).output().expect("it runs");
    if !mount(256 << 10) {
        println!("SKIPPED: no file system can be mounted");
        return;
    }
    let device = Arc::new(MemoryDevice::new(64 << 20));
    let options = |device: &Arc<MemoryDevice>| {
        let options = Options::devices(None, Some(device.clone())).segment_bytes(512 << 10);
        options.memory_bytes(64 << 20).durability(Durability::Process).staging(at.join("staging"))
    };
    let error = refusal(options(&device));
    let text = error.to_string();
    unmount();
    assert_eq!(error.kind(), ErrorKind::Invalid, "{text}");
    for word in ["small/staging", "1056768 are needed", "--staging", "--shm-size"] {
        assert!(text.contains(word), "{text}");
    }
    // With space for two segments deletes continue, although another program takes all the rest.
    assert!(mount(2 << 20));
    let store = Blocking::open(options(&device)).expect("there is room for two segments");
    let filler = fs::File::create(at.join("of another program")).expect("a file");
    let mut filler = std::io::BufWriter::new(filler);
    while std::io::Write::write_all(&mut filler, &[1; 4096]).is_ok() {}
    drop(filler.into_parts());
    for number in 0..3000 {
        let key = format!("key {}", number % 50);
        store.put(&key, vec![1; 1000]).expect("there is room");
        assert!(store.delete(&key).expect("a delete is never refused"));
    }
    store.close().expect("it closes");
    unmount();
}
