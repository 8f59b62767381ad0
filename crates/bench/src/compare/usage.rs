//! What a process took of the machine, as Linux says it: the same measure for every engine.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// Sums since the process began, or between two moments.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Usage {
    pub(super) cpu_user_s: f64,
    pub(super) cpu_system_s: f64,
    /// Bytes that the process caused to be written to devices, less those that were taken back before they were.
    pub(super) written_bytes: u64,
    pub(super) read_bytes: u64,
}

impl Usage {
    /// Of a process that runs, or that has ended and was not waited for yet.
    pub(super) fn of(pid: u32) -> Usage {
        let file =
            |name| std::fs::read_to_string(PathBuf::from(format!("/proc/{pid}/{name}"))).unwrap_or_default();
        Usage::parse(&file("stat"), &file("io"))
    }

    fn parse(stat: &str, io: &str) -> Usage {
        // The name of the process is in parentheses and may hold anything.
        let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or("").split_whitespace().collect();
        // In hundredths of a second on every Linux.
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

    /// What came after `earlier`.
    pub(super) fn since(self, earlier: Usage) -> Usage {
        Usage {
            cpu_user_s: self.cpu_user_s - earlier.cpu_user_s,
            cpu_system_s: self.cpu_system_s - earlier.cpu_system_s,
            written_bytes: self.written_bytes.saturating_sub(earlier.written_bytes),
            read_bytes: self.read_bytes.saturating_sub(earlier.read_bytes),
        }
    }

    pub(super) fn cpu_s(self) -> f64 {
        self.cpu_user_s + self.cpu_system_s
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_figures_are_read() {
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
