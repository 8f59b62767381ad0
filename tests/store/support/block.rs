//! Block devices over files, and the commands that the kernel's block layer issues to them. Both need
//! root.

use std::fs;
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

/// Prints why a test was skipped, bypassing the harness, which hides the output of a passing test.
pub(crate) fn skipped(why: &str) {
    writeln!(std::io::stderr(), "SKIPPED: {why}").ok();
}

fn run(program: &str, arguments: &[&str]) -> Result<String, String> {
    match Command::new(program).args(arguments).output() {
        Ok(output) if output.status.success() => {
            Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
        }
        Ok(output) => Err(format!("{program}: {}", String::from_utf8_lossy(&output.stderr).trim())),
        Err(error) => Err(format!("{program}: {error}")),
    }
}

/// A loop device over a file, with direct I/O and blocks of 4 KiB. Detached when dropped.
pub(crate) struct Loop(pub(crate) PathBuf);

impl Loop {
    pub(crate) fn attach(file: &Path, bytes: u64) -> Result<Loop, String> {
        let backing = fs::File::create(file).map_err(|e| e.to_string())?;
        backing.set_len(bytes).map_err(|e| e.to_string())?;
        let file = file.to_str().ok_or("the path is no text")?;
        let device = run("losetup", &["--find", "--show", "--direct-io=on", "-b", "4096", file])?;
        Ok(Loop(PathBuf::from(device)))
    }

    /// Sets the maximum command length of the device's queue. Returns the previous value, which must be
    /// restored, because the device keeps it for its next user.
    pub(crate) fn set_max_sectors_kb(&self, kib: u64) -> Result<u64, String> {
        let name = self.0.file_name().and_then(|name| name.to_str()).ok_or("a device has a name")?;
        let path = format!("/sys/block/{name}/queue/max_sectors_kb");
        let before = fs::read_to_string(&path).map_err(|e| format!("{path}: {e}"))?;
        fs::write(&path, kib.to_string()).map_err(|e| format!("{path}: {e}"))?;
        before.trim().parse().map_err(|e| format!("{path}: {e}"))
    }

    fn number(&self) -> u64 {
        let number = fs::metadata(&self.0).expect("the device is there").rdev();
        u64::from(libc::major(number)) << 20 | u64::from(libc::minor(number))
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        run("losetup", &["--detach", &self.0.display().to_string()]).ok();
    }
}

/// A command issued by the block layer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Issued {
    pub(crate) offset: u64,
    pub(crate) bytes: u64,
}

/// Records the write commands to one device, in a separate trace buffer.
pub(crate) struct Trace {
    instance: PathBuf,
    mounted: tempfile::TempDir,
}

impl Trace {
    pub(crate) fn of(device: &Loop) -> Result<Trace, String> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let mounted = tempfile::tempdir().map_err(|e| e.to_string())?;
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let instance = mounted.path().join(format!("instances/esker-{}-{number}", std::process::id()));
        run("mount", &["-t", "tracefs", "none", &mounted.path().display().to_string()])?;
        // From here on the drop undoes the setup.
        let trace = Trace { instance, mounted };
        fs::create_dir(&trace.instance).map_err(|e| format!("{}: {e}", trace.instance.display()))?;
        let event = "events/block/block_rq_issue";
        trace.set("buffer_size_kb", "8192")?;
        trace.set(&format!("{event}/filter"), &format!("dev == {}", device.number()))?;
        trace.set(&format!("{event}/enable"), "1")?;
        Ok(trace)
    }

    fn set(&self, name: &str, value: &str) -> Result<(), String> {
        let path = self.instance.join(name);
        fs::write(&path, value).map_err(|e| format!("{}: {e}", path.display()))
    }

    /// Returns the write commands since the last call.
    pub(crate) fn writes(&self) -> Vec<Issued> {
        let path = self.instance.join("trace");
        let text = fs::read_to_string(&path).expect("the trace can be read");
        for cpu in fs::read_dir(self.instance.join("per_cpu")).expect("it has a directory").flatten() {
            let stats = fs::read_to_string(cpu.path().join("stats")).expect("it can be read");
            assert!(stats.contains("overrun: 0\n"), "the trace buffer is too small: {stats}");
        }
        fs::write(&path, "").expect("the trace can be cleared");
        text.lines().filter_map(parse).collect()
    }
}

/// Parses `… block_rq_issue: 7,0 WS 524288 () 2048 + 1024 none,0,0 [name]`: sectors of 512 bytes.
fn parse(line: &str) -> Option<Issued> {
    let mut words = line.split_once("block_rq_issue: ")?.1.split(' ');
    let kind = words.nth(1)?;
    let sector: u64 = words.nth(2)?.parse().expect("a sector");
    let sectors: u64 = words.nth(1)?.parse().expect("sectors");
    let writes = kind.contains('W') && !kind.contains('D') && sectors > 0;
    writes.then_some(Issued { offset: sector << 9, bytes: sectors << 9 })
}

impl Drop for Trace {
    fn drop(&mut self) {
        self.set("events/block/block_rq_issue/enable", "0").ok();
        fs::remove_dir(&self.instance).ok();
        run("umount", &[&self.mounted.path().display().to_string()]).ok();
    }
}
