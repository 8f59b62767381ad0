//! Measures the disk usage of an engine while it works.

use std::fs::Metadata;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

/// Interval between two measurements.
const PERIOD: Duration = Duration::from_millis(200);

/// Measures a directory repeatedly in its own thread.
pub(crate) struct SpaceWatch {
    stop: Sender<()>,
    looking: JoinHandle<u64>,
}

impl SpaceWatch {
    pub(crate) fn start(dir: &Path) -> SpaceWatch {
        let (dir, (stop, stopped)) = (dir.to_owned(), channel());
        let looking = std::thread::spawn(move || {
            let mut most = 0;
            loop {
                let told = stopped.recv_timeout(PERIOD);
                // A file may be deleted during the measurement.
                most = most.max(taken_bytes(&dir).unwrap_or(0));
                if told != Err(RecvTimeoutError::Timeout) {
                    return most;
                }
            }
        });
        SpaceWatch { stop, looking }
    }

    /// Returns the peak disk usage in bytes; `None` if it was zero, for example because the file has no
    /// name.
    pub(crate) fn most_bytes(self) -> Option<u64> {
        drop(self.stop);
        self.looking.join().ok().filter(|&bytes| bytes > 0)
    }
}

/// Returns the disk usage of the files below a directory.
fn taken_bytes(dir: &Path) -> io::Result<u64> {
    let mut bytes = 0;
    for entry in std::fs::read_dir(dir)? {
        let entry = entry?;
        bytes += match entry.metadata() {
            Ok(metadata) if metadata.is_dir() => taken_bytes(&entry.path())?,
            Ok(metadata) => blocks(&metadata),
            Err(_) => 0,
        };
    }
    Ok(bytes)
}

fn blocks(metadata: &Metadata) -> u64 {
    // In units of 512 bytes, whatever the file system's block size is.
    metadata.blocks() * 512
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn peak_is_reported_even_if_lower_at_end() {
        let dir = tempfile::tempdir().expect("a directory");
        let watch = SpaceWatch::start(dir.path());
        let inner = dir.path().join("inner");
        std::fs::create_dir(&inner).expect("a directory");
        std::fs::write(inner.join("large"), vec![1; 1 << 20]).expect("a file");
        std::fs::write(dir.path().join("small"), [1; 100]).expect("a file");
        std::thread::sleep(3 * PERIOD);
        std::fs::remove_file(inner.join("large")).expect("it is there");
        let most = watch.most_bytes().expect("it saw files");
        assert!((1 << 20..(1 << 20) + (64 << 10)).contains(&most), "{most}");
    }

    #[test]
    fn empty_directory_takes_no_space() {
        let dir = tempfile::tempdir().expect("a directory");
        assert_eq!(SpaceWatch::start(dir.path()).most_bytes(), None);
        assert_eq!(SpaceWatch::start(&dir.path().join("none")).most_bytes(), None);
    }
}
