//! Resources used by a process, from Linux; zeros on other systems. The same measure serves for this
//! process and for the programs of other engines.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// Sums since the process started, or between two moments.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Usage {
    /// Seconds of processor time in user mode.
    pub cpu_user_s: f64,
    /// Seconds of processor time in the kernel.
    pub cpu_system_s: f64,
    /// Bytes whose write to devices the process caused, minus bytes discarded before they were written.
    pub written_bytes: u64,
    /// Bytes whose read from devices the process caused.
    pub read_bytes: u64,
}

impl Usage {
    /// Reads the usage of a process that runs, or that has ended and was not waited for yet.
    pub fn of(pid: u32) -> Usage {
        let file =
            |name| std::fs::read_to_string(PathBuf::from(format!("/proc/{pid}/{name}"))).unwrap_or_default();
        Usage::parse(&file("stat"), &file("io"))
    }

    fn parse(stat: &str, io: &str) -> Usage {
        // The name of the process is in parentheses and may contain any character.
        let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or("").split_whitespace().collect();
        // The unit is a hundredth of a second on every Linux.
        let seconds = |at: usize| fields.get(at).and_then(|f| f.parse::<f64>().ok()).unwrap_or(0.0) / 100.0;
        let bytes = |name: &str| {
            let line = io.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
            line.and_then(|number| number.trim().parse::<u64>().ok()).unwrap_or(0)
        };
        Usage {
            cpu_user_s: seconds(11),
            cpu_system_s: seconds(12),
            written_bytes: bytes("write_bytes").saturating_sub(bytes("cancelled_write_bytes")),
            read_bytes: bytes("read_bytes"),
        }
    }

    /// Returns the difference from `earlier`.
    pub fn since(self, earlier: Usage) -> Usage {
        Usage {
            cpu_user_s: self.cpu_user_s - earlier.cpu_user_s,
            cpu_system_s: self.cpu_system_s - earlier.cpu_system_s,
            written_bytes: self.written_bytes.saturating_sub(earlier.written_bytes),
            read_bytes: self.read_bytes.saturating_sub(earlier.read_bytes),
        }
    }

    /// Returns the seconds of processor time.
    pub fn cpu_s(self) -> f64 {
        self.cpu_user_s + self.cpu_system_s
    }
}

/// Returns the seconds of processor time used by this process.
pub(crate) fn cpu_seconds() -> f64 {
    Usage::of(std::process::id()).cpu_s()
}

/// Returns the resident memory of this process in bytes.
pub(crate) fn resident_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let kib =
        status.lines().find_map(|line| line.strip_prefix("VmRSS:")?.split_whitespace().next()?.parse().ok());
    kib.unwrap_or(0u64) * 1024
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(target_os = "linux")]
    #[test]
    fn cpu_time_has_user_and_system_parts() {
        assert!(resident_bytes() > 1 << 20);
        let began = cpu_seconds();
        let mut sum = 0u64;
        while cpu_seconds() < began + 0.02 {
            sum = std::hint::black_box(sum.wrapping_add(1));
        }
        assert!(cpu_seconds() > began);
    }

    #[test]
    fn kernel_figures_are_read() {
        let stat = "12 (a ) b) S 1 2 3 4 5 6 7 8 9 10 250 50 0 0 20 0 1 0 5 6 7";
        let io = "rchar: 1\nwchar: 2\nsyscr: 3\nsyscw: 4\nread_bytes: 4096\nwrite_bytes: 12288\ncancelled_write_bytes: 4096\n";
        let usage = Usage::parse(stat, io);
        assert_eq!((usage.cpu_user_s, usage.cpu_system_s), (2.5, 0.5));
        assert_eq!((usage.read_bytes, usage.written_bytes), (4096, 8192));
        let later = Usage { written_bytes: 9000, cpu_user_s: 3.0, ..usage };
        assert_eq!((later.since(usage).written_bytes, later.since(usage).cpu_s()), (808, 0.5));
        assert_eq!(Usage::parse("", ""), Usage::default());
    }
}
