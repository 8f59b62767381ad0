//! The machine, and its preparation between measurements.

use std::path::Path;
use std::process::{Command, Stdio};

use esker_bench::{Failure, Result};
use serde::Serialize;
use time::OffsetDateTime;
use time::macros::format_description;

/// Description of the machine for the report.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Machine {
    pub(crate) date: String,
    pub(crate) kernel: String,
    pub(crate) cpu: String,
    pub(crate) memory_bytes: u64,
    /// Device, file system and model for the data.
    pub(crate) disk: String,
    pub(crate) versions: Vec<String>,
    /// The kind of memory limit, if there is one.
    pub(crate) limit: Option<String>,
    /// True if caches are dropped before each process.
    pub(crate) caches_dropped: bool,
    /// Availability of the processor's counters.
    pub(crate) counters: String,
    /// Notes for the reader.
    pub(crate) notes: Vec<String>,
}

/// Returns the output of a program, if it can be run.
pub(crate) fn said(program: &str, words: &[&str]) -> Option<String> {
    let output = Command::new(program).args(words).stdin(Stdio::null()).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

impl Machine {
    pub(crate) fn look(dir: &Path) -> Machine {
        let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
        let cpus = read("/proc/cpuinfo");
        let field = |name: &str| {
            let line = cpus.lines().find(|line| line.starts_with(name));
            line.and_then(|line| line.split(": ").nth(1)).unwrap_or("unknown").to_owned()
        };
        let count = cpus.lines().filter(|line| line.starts_with("processor")).count();
        let memory = read("/proc/meminfo");
        let kib = memory
            .lines()
            .find_map(|line| line.strip_prefix("MemTotal:")?.split_whitespace().next()?.parse().ok());
        Machine {
            date: now(),
            kernel: format!("Linux {}", read("/proc/sys/kernel/osrelease").trim()),
            cpu: format!("{count} x {}", field("model name")),
            memory_bytes: kib.unwrap_or(0u64) * 1024,
            disk: disk(dir, &read("/proc/mounts")),
            versions: vec![format!("Esker {}", env!("CARGO_PKG_VERSION"))],
            limit: None,
            caches_dropped: std::fs::OpenOptions::new().write(true).open(DROP_CACHES).is_ok(),
            counters: counters(),
            notes: Vec::new(),
        }
    }

    /// Adds a note to the report, and prints it.
    pub(crate) fn note(&mut self, text: String) {
        eprintln!("{text}");
        self.notes.push(text);
    }

    /// Flushes, and drops the page cache, so that no engine benefits from its content.
    pub(crate) fn drop_caches(&self) {
        rustix::fs::sync();
        if self.caches_dropped {
            let _ = std::fs::write(DROP_CACHES, "3");
        }
    }
}

/// Returns date and time in UTC.
fn now() -> String {
    let form = format_description!("[year]-[month]-[day] [hour]:[minute] UTC");
    OffsetDateTime::now_utc().format(&form).unwrap_or_default()
}

const DROP_CACHES: &str = "/proc/sys/vm/drop_caches";

/// Returns device, file system and model of a directory's disk.
fn disk(dir: &Path, mounts: &str) -> String {
    let of = mounts
        .lines()
        .filter_map(|line| {
            let words: Vec<&str> = line.split(' ').collect();
            (dir.starts_with(words.get(1)?)).then_some((
                words[1].len(),
                words[0].to_owned(),
                words[2].to_owned(),
            ))
        })
        .max_by_key(|(length, ..)| *length);
    let Some((_, device, kind)) = of else { return "unknown".into() };
    let name = device.trim_start_matches("/dev/");
    let base = name.trim_end_matches(|c: char| c.is_ascii_digit()).trim_end_matches('p');
    let model = [name, base].into_iter().find_map(|name| {
        std::fs::read_to_string(format!("/sys/block/{name}/device/model"))
            .ok()
            .map(|model| model.trim().to_owned())
    });
    format!("{device}, {kind}{}", model.map_or(String::new(), |model| format!(", {model}")))
}

/// Returns a sentence about the availability of counters of cycles and instructions.
fn counters() -> String {
    let output = Command::new("perf").args(["stat", "-e", "cycles,instructions", "true"]).output();
    match output {
        Err(_) => "none, since there is no `perf`; processor time stands for them".into(),
        Ok(output) if output.status.success() && !String::from_utf8_lossy(&output.stderr).contains("<not") => {
            "there are some; see docs/profiling.md for cycles and instructions by operation".into()
        }
        Ok(_) => "none, since this machine does not let `perf` read them; processor time stands for them, and docs/profiling.md \
                  has instructions by operation counted by callgrind"
            .into(),
    }
}

/// Returns the version line of db_bench, if it can be run.
pub(crate) fn db_bench_version(program: &Path) -> Option<String> {
    let output = Command::new(program).arg("--version").stdin(Stdio::null()).output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let version = text.lines().next().unwrap_or("").trim();
    Some(format!("RocksDB: {}", if version.is_empty() { "unknown version" } else { version }))
}

/// Removes an engine's directory.
pub(crate) fn remove(dir: &Path) -> Result<()> {
    match std::fs::remove_dir_all(dir) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(Failure::failed(&format!("removing {}", dir.display()), error))
        }
        _ => Ok(()),
    }
}

/// Makes an engine's directory.
pub(crate) fn make(dir: &Path) -> Result<()> {
    std::fs::create_dir_all(dir).map_err(|error| Failure::failed(&format!("making {}", dir.display()), error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn disk_is_nearest_mount() {
        let mounts =
            "/dev/sda1 / ext4 rw 0 0\ntmpfs /tmp tmpfs rw 0 0\n/dev/nvme9n9p1 /tmp/deep xfs rw 0 0\n";
        assert_eq!(disk(Path::new("/tmp/deep/er"), mounts), "/dev/nvme9n9p1, xfs");
        assert_eq!(disk(Path::new("/tmp/other"), mounts), "tmpfs, tmpfs");
        assert_eq!(disk(Path::new("/deep"), ""), "unknown");
    }
}
