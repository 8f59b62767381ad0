//! A server on a tier of loop devices under load: one is added, one is drained, one fails. Needs root, loop devices and ext4.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::devices::Loop;
use super::inspect::run;
use super::*;

/// A mounted file system that can be shut down, so that a loop device over one of its files fails.
struct Mount(PathBuf);

impl Mount {
    fn new(directory: &Path) -> Result<Mount, String> {
        let (image, at) = (directory.join("image"), directory.join("mounted"));
        let made = File::create(&image).and_then(|file| file.set_len(96 << 20));
        made.and_then(|()| std::fs::create_dir(&at)).map_err(|error| error.to_string())?;
        let call = |program: &str, words: &[&std::ffi::OsStr]| {
            let output = Command::new(program).args(words).output();
            let output = output.map_err(|error| format!("{program}: {error}"))?;
            let text = String::from_utf8_lossy(&output.stderr).trim().to_owned();
            output.status.success().then_some(()).ok_or(format!("{program}: {text}"))
        };
        call("mkfs.ext4", &["-q".as_ref(), "-O".as_ref(), "^has_journal".as_ref(), image.as_ref()])?;
        call("mount", &["-o".as_ref(), "loop".as_ref(), image.as_ref(), at.as_ref()])?;
        Ok(Mount(at))
    }

    /// Makes every read and write of its files fail.
    #[allow(unsafe_code, reason = "there is no safe call for this request")]
    fn shut_down(&self) {
        /// `EXT4_IOC_SHUTDOWN`, and its flag for no flush of the log.
        const SHUTDOWN: libc::c_ulong = 2 << 30 | 4 << 16 | (b'X' as libc::c_ulong) << 8 | 125;
        const NO_LOG_FLUSH: u32 = 2;
        use std::os::fd::AsRawFd;
        let directory = File::open(&self.0).unwrap();
        // SAFETY: the request reads four bytes from the pointer, which is valid for the call.
        let done = unsafe { libc::ioctl(directory.as_raw_fd(), SHUTDOWN, &NO_LOG_FLUSH) };
        assert_eq!(done, 0, "{}", std::io::Error::last_os_error());
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("--lazy").arg(&self.0).status();
    }
}

/// Returns four loop devices, of which the third fails when the file system is shut down.
fn four(directory: &Path) -> Result<(Vec<Loop>, Mount), String> {
    let mount = Mount::new(directory)?;
    let third = mount.0.clone();
    let places = [("first", directory), ("second", directory), ("third", &third), ("fourth", directory)];
    let devices = places.into_iter().map(|(name, at)| Loop::attach(at, name)).collect::<Result<_, _>>()?;
    Ok((devices, mount))
}

const LONG: usize = 2000;

fn value(key: u32, version: u32) -> String {
    format!("{key}-{version}-{}", "v".repeat(LONG))
}

fn set(server: &Serving, keys: std::ops::Range<u32>, version: u32) {
    let lines: String =
        keys.clone().map(|key| format!("SET key:{key} {}\r\n", value(key, version))).collect();
    let answer = server.ask(&lines);
    assert_eq!(answer.matches("+OK").count(), keys.len() + 1, "no put fails: {answer}");
}

/// Waits until `is_so` accepts the output of `esker device list`. `what` names the condition in the panic after 120 s.
fn until(path: &Path, server: &Serving, what: &str, is_so: impl Fn(&str) -> bool) {
    let end = Instant::now() + Duration::from_secs(120);
    loop {
        let (code, list, why) = run(path, &["device", "list", "--from", server.word("resp")]);
        assert_eq!(code, 0, "{why}");
        if is_so(&list) {
            return;
        }
        assert!(Instant::now() < end, "never: {what}:\n{list}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Returns the line of a device in the list.
fn of<'l>(list: &'l str, device: &Loop) -> &'l str {
    list.lines().find(|line| line.contains(&format!("path={},", device.name()))).unwrap_or("")
}

fn used(list: &str, device: &Loop) -> u64 {
    let (_, behind) = of(list, device).split_once("segments_used=").unwrap_or(("", "0,"));
    behind.split(',').next().and_then(|count| count.parse().ok()).unwrap_or(0)
}

/// Returns for each key its value, or the error.
fn read_all(server: &Serving, keys: std::ops::Range<u32>) -> BTreeMap<u32, Result<String, String>> {
    let answers = keys.map(|key| {
        let answer = server.ask(&format!("GET key:{key}"));
        let answer = answer.trim_end_matches("+OK\r\n");
        match answer.strip_prefix('-') {
            Some(error) => (key, Err(error.trim_end().to_owned())),
            None => (key, Ok(answer.lines().nth(1).unwrap_or("").to_owned())),
        }
    });
    answers.collect()
}

/// Keys that are written once, and keys that clients write again and again.
const ONCE: std::ops::Range<u32> = 0..6000;
const AGAIN: [std::ops::Range<u32>; 2] = [10_000..10_050, 20_000..20_050];

#[test]
fn loop_device_is_added_one_drained_and_one_fails_under_load() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    let (devices, mount) = match four(path) {
        Ok(four) => four,
        Err(why) => return println!("SKIPPED: no loop devices: {why}"),
    };
    let [first, second, third, fourth] = &devices[..] else { unreachable!() };
    // Durable writes of a loop device may take long; the store is closed before it is opened again.
    let common = ["--iu", "4k", "--segment-size", "1m", "--memory", "160m", "--compression", "off"];
    let common = [&common[..], &["--durability", "none"]].concat();
    let three =
        [&["--capacity", first.name(), "--capacity", second.name(), "--capacity", third.name()][..], &common];
    let server = Serving::start(path, &[&three.concat()[..], &["--on-device-loss", "serve"]].concat());
    set(&server, 0..3000, 0);
    let (stop, failing) = (AtomicBool::new(false), AtomicBool::new(false));
    let versions = std::thread::scope(|scope| {
        let clients = AGAIN.map(|keys| {
            let (server, stop, failing) = (&server, &stop, &failing);
            scope.spawn(move || {
                let (mut version, mut since_failure) = (0, 0);
                // Each key is put at least twice after the failure.
                while !stop.load(Ordering::Relaxed) || since_failure < 2 {
                    version += 1;
                    since_failure += u32::from(failing.load(Ordering::Relaxed));
                    set(server, keys.clone(), version);
                }
                version
            })
        });
        // Whatever happens below, the clients end.
        let changed = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let address = server.word("resp");
            let (code, said, why) =
                run(path, &["device", "add", "capacity", fourth.name(), "--from", address]);
            assert!(code == 0 && said.contains("was added"), "{said}{why}");
            // Segments of keys that are put again may be free as soon as they are full.
            set(&server, 3000..6000, 0);
            until(path, &server, "the added device is used", |list| used(list, fourth) > 2);
            let (code, _, why) = run(path, &["device", "add", "capacity", fourth.name(), "--from", address]);
            assert!(code != 0 && why.contains(fourth.name()), "{why}");
            let (code, said, why) = run(path, &["device", "drain", second.name(), "--from", address]);
            assert!(code == 0 && said.contains("is being drained"), "{said}{why}");
            until(path, &server, "the drained device is removed", |list| of(list, second).is_empty());
            mount.shut_down();
            until(path, &server, "the device fails", |list| of(list, third).contains("state=failed"));
        }));
        failing.store(true, Ordering::Relaxed);
        stop.store(true, Ordering::Relaxed);
        let versions = clients.map(|client| client.join().expect("no put fails"));
        changed.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        versions
    });
    let mut lost = 0;
    for (key, found) in read_all(&server, ONCE) {
        match found {
            Ok(found) => assert!(found == value(key, 0), "key:{key} has another value"),
            Err(error) => {
                assert!(error.contains(third.name()), "{error}");
                lost += 1;
            }
        }
    }
    assert!(lost > 0 && lost < ONCE.len(), "{lost} keys were on the failed device");
    let again = |server: &Serving| {
        for (keys, version) in AGAIN.into_iter().zip(versions) {
            for (key, found) in read_all(server, keys) {
                assert!(
                    found == Ok(value(key, version)),
                    "key:{key} was put after the failure: {found:.40?}"
                );
            }
        }
    };
    again(&server);
    let info = server.ask("INFO esker");
    assert!(info.contains("device_2:") || info.contains("device_1:"), "{info}");
    server.stop(Signal::TERM);

    let left = [&["--capacity", first.name(), "--capacity", fourth.name()][..], &common].concat();
    let text = refused(path, &[&["serve", "--resp", ":0"][..], &left].concat());
    assert!(text.contains("is missing") && text.contains("--accept-loss"), "{text}");
    let server = Serving::start(path, &[&left[..], &["--accept-loss"]].concat());
    again(&server);
    server.stop(Signal::TERM);
}
