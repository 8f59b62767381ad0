//! The machine, the settings, the layout of the store, its device, and the log.

use std::fmt::Write;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom, stdin};
use std::path::Path;

use esker_inspect::StoreView;

use super::{Arguments, Collected, redact};
use crate::device;
use crate::inspect::show::json_text;
use crate::settings::{Settings, explain};
use crate::support::server::text_of;
use crate::transfer::is_standard;

/// Bytes of the end of the log.
const LOG_BYTES: u64 = 1 << 20;

/// Bytes of one file of the system.
const FACT_BYTES: usize = 16 << 10;

/// Files of the system that describe the machine.
const FACTS: [&str; 11] = [
    "/proc/version",
    "/etc/os-release",
    "/proc/meminfo",
    "/sys/fs/cgroup/memory.max",
    "/sys/fs/cgroup/cpu.max",
    "/proc/loadavg",
    "/proc/pressure/io",
    "/proc/sys/vm/swappiness",
    "/proc/sys/kernel/io_uring_disabled",
    "/sys/kernel/mm/transparent_hugepage/enabled",
    "/proc/diskstats",
];

/// Collects the files that need no server: machine, settings, layout of the store, its devices and the end of the log.
pub(super) fn collect(arguments: &Arguments, collected: &mut Collected) {
    collected.add("about.txt", Ok(about()));
    collected.add("settings.txt", settings(arguments.config.as_deref()));
    if let Some(store) = &arguments.store {
        let paths: Vec<_> = [store].into_iter().chain(&arguments.peer).cloned().collect();
        let overview = StoreView::open(&paths).and_then(|view| view.overview());
        let text = overview
            .map_err(|error| error.to_string())
            .and_then(|overview| json_text(&overview).map_err(text_of));
        collected.add("layout.json", text);
        for (number, path) in (1..).zip(&paths) {
            collected.add(&format!("device-{number}.json"), device::describe(path).map_err(text_of));
        }
    }
    if let Some(log) = &arguments.log {
        collected.add("log.txt", tail(log).map(|text| redact::log(&text)));
    }
}

fn about() -> String {
    let mut text = format!("esker {}\n", env!("CARGO_PKG_VERSION"));
    let processors = std::thread::available_parallelism().map_or(0, usize::from);
    let _ = writeln!(text, "{processors} processors, {}", std::env::consts::ARCH);
    for path in FACTS {
        match std::fs::read(path) {
            Ok(mut fact) => {
                fact.truncate(FACT_BYTES);
                let _ = writeln!(text, "\n# {path}\n{}", String::from_utf8_lossy(&fact).trim_end());
            }
            Err(error) => {
                let _ = writeln!(text, "\n# {path}\n({error})");
            }
        }
    }
    text
}

/// Returns every setting of a file, or of the environment alone, with its origin. The values of secrets are not shown.
fn settings(file: Option<&Path>) -> Result<String, String> {
    let mut settings = Settings::defaults();
    if let Some(file) = file {
        settings.read_file(file)?;
    }
    let warnings = settings.read_environment(std::env::vars_os().collect::<Vec<_>>())?;
    let outcome = settings.outcome()?;
    let warnings = warnings.iter().map(|warning| format!("warning: {}\n", redact::line(warning)));
    Ok(explain(&settings, &outcome.config.limits) + &warnings.collect::<String>())
}

/// Returns the end of a file, from its first whole line on.
fn tail(path: &Path) -> Result<String, String> {
    let mut bytes = Vec::new();
    let cannot = |error: std::io::Error| format!("cannot read {}: {error}", path.display());
    if is_standard(path) {
        stdin().read_to_end(&mut bytes).map_err(cannot)?;
    } else {
        let mut file = File::open(path).map_err(cannot)?;
        let length = file.metadata().map_err(cannot)?.len();
        // One byte more, so that a line that begins there is whole.
        let from = length.saturating_sub(LOG_BYTES + 1);
        file.seek(SeekFrom::Start(from)).map_err(cannot)?;
        file.take(LOG_BYTES + 1).read_to_end(&mut bytes).map_err(cannot)?;
    }
    if bytes.len() as u64 > LOG_BYTES {
        let cut = bytes.len() - LOG_BYTES as usize;
        let line = bytes[cut - 1..].iter().position(|byte| *byte == b'\n');
        bytes.drain(..line.map_or(bytes.len(), |line| cut + line));
    }
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn log_begins_with_a_whole_line() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("log");
        let line = "x".repeat(99) + "\n";
        std::fs::write(&path, line.repeat(20_000)).expect("it is written");
        let text = tail(&path).expect("it is read");
        assert!(text.len() as u64 <= LOG_BYTES && text.len() as u64 > LOG_BYTES - 200, "{}", text.len());
        assert!(text.lines().all(|line| line.len() == 99));
        std::fs::write(&path, "short\n").expect("it is written");
        assert_eq!(tail(&path).as_deref(), Ok("short\n"));
    }
}
