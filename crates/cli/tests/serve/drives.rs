//! `esker device` from outside: an error is one line, and no figure is invented.

use std::os::unix::fs::{FileExt, OpenOptionsExt};

use super::inspect::{json, run};
use super::*;

/// Runs a call that must fail with this exit code. Returns its one line of output.
fn fails(directory: &Path, code: i32, arguments: &[&str]) -> String {
    let (ended, _, text) = run(directory, arguments);
    assert_eq!((ended, text.lines().count()), (code, 1), "{arguments:?}: {text}");
    assert!(!text.contains("panicked"), "{text}");
    text
}

#[test]
fn non_block_device_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    assert!(fails(path, 2, &["device"]).contains("which device?"));
    assert!(fails(path, 2, &["device", "/dev/nowhere"]).contains("/dev/nowhere: No such file"));
    assert!(fails(path, 2, &["device", "/dev/null"]).contains("is not a block device"));
    assert!(fails(path, 2, &["device", "/proc/version"]).contains("lies on no block device"));
    assert!(fails(path, 2, &["device", "waf", "/dev/null"]).contains("not an NVMe device"));
    assert!(fails(path, 2, &["device", "waf", "/dev/nowhere"]).contains("/dev/nowhere: No such file"));
    std::fs::write(path.join("page"), [0; 100]).unwrap();
    assert!(fails(path, 1, &["device", "waf", "--log", "page"]).contains("bytes instead of 512"));
}

#[test]
fn loop_device_is_shown_with_fitting_settings() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    let device = match super::devices::Loop::attach(path, "image") {
        Ok(device) => device,
        Err(why) => return println!("SKIPPED: no loop devices: {why}"),
    };
    let told = json(path, &["device", device.name(), "--keys", "1m"]);
    assert_eq!(told["device"]["bytes"], 64 << 20);
    assert_eq!(told["device"]["queue"]["logical_block_bytes"], 4096);
    assert_eq!(told["unit_bytes"], 64 << 10);
    assert_eq!(told["index_bytes"], 10_000_000);
    assert_eq!(told["probes"]["direct"], true);
    let (_, text, _) = run(path, &["device", device.name()]);
    assert!(text.contains("iu = \"64k\"") && text.contains("64.0 MiB"), "{text}");
}

#[test]
fn only_confirmed_scratch_device_is_measured() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    assert!(fails(path, 2, &["device", "--measure"]).contains("DEVICE"));
    let no_time = ["device", "/dev/null", "--measure", "--destroy-data", "--measure-time", "0s"];
    assert!(
        fails(path, 2, &no_time).contains("'0s' is not a valid time for the measurement: give 10ms or more")
    );
    assert!(
        fails(path, 2, &["device", ".", "--measure", "--destroy-data"]).contains("is a file or a directory")
    );
    let device = match super::devices::Loop::attach(path, "image") {
        Ok(device) => device,
        Err(why) => return println!("SKIPPED: no loop devices: {why}"),
    };
    let image = std::fs::OpenOptions::new().write(true).open(path.join("image")).unwrap();
    image.write_all_at(&vec![7; 64 << 20], 0).unwrap();
    image.sync_all().unwrap();
    let refused = fails(path, 2, &["device", device.name(), "--measure"]);
    assert!(refused.contains("--destroy-data") && refused.contains("data that is not zero"), "{refused}");
    assert!(std::fs::read(path.join("image")).unwrap().iter().all(|byte| *byte == 7), "it is untouched");
    // Another process has the device open.
    let other =
        std::fs::OpenOptions::new().read(true).custom_flags(libc::O_EXCL).open(device.name()).unwrap();
    let measured = ["device", device.name(), "--measure", "--destroy-data", "--measure-time", "40ms"];
    assert!(fails(path, 2, &measured).contains("is in use"));
    drop(other);
    let told = json(path, &measured);
    let rows = told["measured"]["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 5);
    assert!(rows.iter().all(|row| row["aligned"].as_f64().unwrap() > 0.0), "{told}");
    assert_ne!(std::fs::read(path.join("image")).unwrap()[..4096], [7; 4096], "it is overwritten");
}

/// Returns the OCP page and the standard page of a drive that wrote `flash` bytes to its flash for `host`
/// bytes of the host.
fn pages(flash: u128, host: u128) -> Vec<u8> {
    let mut pages = vec![0; 1024];
    pages[..16].copy_from_slice(&flash.to_le_bytes());
    let guid = 0xAFD5_14C9_7C6F_4F9C_A4F2_BFEA_2810_AFC5u128;
    pages[496..512].copy_from_slice(&guid.to_le_bytes());
    pages[512 + 1] = 0x36;
    pages[512 + 2] = 1;
    pages[512 + 48..512 + 64].copy_from_slice(&(host / 512_000).to_le_bytes());
    pages
}

#[test]
fn server_shows_flash_bytes_per_byte() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    let save = |bytes: &[u8]| {
        std::fs::write(path.join("new"), bytes).unwrap();
        std::fs::rename(path.join("new"), path.join("drive")).unwrap();
    };
    save(&pages(7 << 40, 512_000 << 20));
    let server = Serving::start(path, &["--dir", "store", "--drive-log", "drive", "--http", "127.0.0.1:0"]);
    let puts: String = (0..2000).map(|at| format!("SET key:{at} {}\r\n", "v".repeat(2000))).collect();
    assert!(server.ask(&puts).starts_with("+OK"));
    let address = server.word("resp").to_owned();
    let until = |is: &dyn Fn(&serde_json::Value) -> bool| {
        let begin = Instant::now();
        loop {
            let status = json(path, &["top", &address]);
            if is(&status["drive"]) {
                return status;
            }
            assert!(begin.elapsed() < Duration::from_secs(30), "{}", status["drive"]);
        }
    };
    until(&|drive| drive["flash_bytes"] == 0 && drive["error"] == "");
    save(&pages((7 << 40) + 3 * 512_000_000, (512_000 << 20) + 2 * 512_000_000));
    let status = until(&|drive| !drive["amplification"].is_null());
    assert_eq!(status["drive"]["amplification"], 1.5);
    assert_eq!(status["drive"]["host_bytes"], 1_024_000_000);
    let of_store = status["amplification"]["since_open"].as_f64().unwrap();
    let product = status["drive"]["flash_bytes_per_user_byte"].as_f64().unwrap();
    assert!((product / of_store - 1.5).abs() < 0.001, "{status}");
    let info = server.ask("INFO esker");
    assert!(info.contains("drive_write_amplification:1.500\r\n"), "{info}");
    assert!(info.contains("flash_bytes_per_user_byte:"), "{info}");
    let mut client = TcpStream::connect(server.word("http")).unwrap();
    client.write_all(b"GET /metrics HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n").unwrap();
    let mut metrics = String::new();
    client.read_to_string(&mut metrics).unwrap();
    let flash = format!("esker_drive_flash_bytes_total {}\n", (7u64 << 40) + 1_536_000_000);
    assert!(metrics.contains(&flash) && metrics.contains("esker_drive_answers 1\n"), "{metrics}");

    save(b"no page");
    let status = until(&|drive| drive["error"] != "");
    assert!(status["drive"]["error"].as_str().unwrap().contains("bytes instead of 512"), "{status}");
    assert_eq!(status["drive"]["amplification"], 1.5, "what was known stays");
    server.stop(Signal::TERM);
}
