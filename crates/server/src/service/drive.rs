//! Write counters of the drive: bytes received from hosts, and bytes written to its flash.
//!
//! The store counts the bytes that it writes to the drive, and the drive counts the bytes that it writes to its flash. The
//! product of both write amplifications is the flash bytes per user byte. A drive counts the writes of all its users over its
//! whole life, so differences are taken from the first reading.

use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use esker_engine::Stats;
use esker_nvme::{Counters, Drive, DriveError, saved};
use tokio::time::{MissedTickBehavior, interval};

/// Interval between readings of a drive. Some drives answer no other command meanwhile.
const OF_DRIVE: Duration = Duration::from_secs(60);
/// Interval between readings of a file into which another program saves the counters.
const OF_FILE: Duration = Duration::from_secs(1);

/// Periodic reader of the configured drive, if any.
pub(crate) struct DriveLog {
    path: Option<PathBuf>,
    read: Mutex<Reading>,
}

/// Results of the readings.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Reading {
    /// The first and the last reading.
    counters: Option<(Counters, Counters)>,
    /// Error of the last reading; empty: it succeeded.
    error: String,
}

/// Bytes written by a drive.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Wear {
    /// Bytes to its flash and from its hosts since the first reading; `None`: not reported.
    pub(crate) since: Counters,
    /// Bytes over its life.
    pub(crate) lifetime: Counters,
    /// Flash bytes per byte of keys and values put by users; `None`: not known yet.
    pub(crate) flash_bytes_per_user_byte: Option<f64>,
    /// Error of the last reading; empty: it succeeded.
    pub(crate) error: String,
}

impl DriveLog {
    pub(crate) fn new(path: Option<PathBuf>) -> Arc<DriveLog> {
        Arc::new(DriveLog { path, read: Mutex::default() })
    }

    /// Reads the drive's counters periodically. Returns at once if no drive is configured.
    pub(crate) async fn run(self: Arc<DriveLog>) {
        let Some(path) = self.path.clone() else { return };
        let mut turn = interval(if is_device(&path) { OF_DRIVE } else { OF_FILE });
        turn.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            turn.tick().await;
            let of_blocking = path.clone();
            let Ok(read) = tokio::task::spawn_blocking(move || ask(&of_blocking)).await else { return };
            self.lock().note(&path, read.map_err(|error| error.to_string()));
        }
    }

    /// Returns the drive's writes; `None` without a drive or before its first answer.
    pub(crate) fn wear(&self, stats: &Stats) -> Option<Wear> {
        let tier = stats.tiers.last()?;
        self.lock().wear(tier.written.total(), stats.activity.user_bytes)
    }

    fn lock(&self) -> MutexGuard<'_, Reading> {
        self.read.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Reading {
    fn note(&mut self, path: &Path, read: Result<Counters, String>) {
        match read {
            Err(error) => {
                if error != self.error {
                    tracing::warn!(drive = %path.display(), %error, "cannot read the write counters of the drive");
                }
                self.error = error;
            }
            Ok(now) => {
                // A counter that decreased belongs to another drive.
                let first = self.counters.map(|(first, _)| first).filter(|first| now.since(first).is_some());
                self.counters = Some((first.unwrap_or(now), now));
                self.error.clear();
            }
        }
    }

    fn wear(&self, tier_bytes: u64, user_bytes: u64) -> Option<Wear> {
        if self.counters.is_none() && self.error.is_empty() {
            return None;
        }
        let (first, now) = self.counters.unwrap_or_default();
        let since = now.since(&first).unwrap_or_default();
        let of_store = (user_bytes > 0).then(|| tier_bytes as f64 / user_bytes as f64);
        let of_drive = since.write_amplification();
        Some(Wear {
            since,
            lifetime: now,
            flash_bytes_per_user_byte: of_store.zip(of_drive).map(|(store, drive)| store * drive),
            error: self.error.clone(),
        })
    }
}

fn is_device(path: &Path) -> bool {
    std::fs::metadata(path)
        .is_ok_and(|metadata| metadata.file_type().is_block_device() || metadata.file_type().is_char_device())
}

fn ask(path: &Path) -> Result<Counters, DriveError> {
    if is_device(path) { Drive::open(path)?.counters() } else { saved(path, None) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counters(media: u128, host: u128) -> Result<Counters, String> {
        Ok(Counters { media_bytes: Some(media), host_bytes: Some(host) })
    }

    #[test]
    fn wear_is_product_of_both_amplifications_since_first_reading() {
        let mut reading = Reading::default();
        assert_eq!(reading.wear(300, 100), None);
        reading.note(Path::new("d"), counters(1_000, 700));
        let first = reading.wear(300, 100).expect("it was read");
        assert_eq!((first.flash_bytes_per_user_byte, first.lifetime.media_bytes), (None, Some(1_000)));
        reading.note(Path::new("d"), counters(1_600, 1_100));
        let wear = reading.wear(300, 100).expect("it was read");
        assert_eq!((wear.since.media_bytes, wear.since.host_bytes), (Some(600), Some(400)));
        assert_eq!(wear.flash_bytes_per_user_byte, Some(4.5), "3 of the store, 1.5 of the drive");
        assert_eq!(reading.wear(0, 0).expect("it was read").flash_bytes_per_user_byte, None);
    }

    #[test]
    fn another_drive_is_counted_anew() {
        let mut reading = Reading::default();
        reading.note(Path::new("d"), counters(1_000, 700));
        reading.note(Path::new("d"), counters(10, 10));
        assert_eq!(reading.wear(1, 1).expect("it was read").since.media_bytes, Some(0));
        reading.note(Path::new("d"), counters(30, 20));
        assert_eq!(reading.wear(1, 1).expect("it was read").flash_bytes_per_user_byte, Some(2.0));
    }

    #[test]
    fn drive_reading_that_fails_keeps_error_and_last_counters() {
        let mut reading = Reading::default();
        reading.note(Path::new("d"), Err("gone".to_owned()));
        let wear = reading.wear(1, 1).expect("it was asked");
        assert_eq!((wear.error.as_str(), wear.since), ("gone", Counters::default()));
        reading.note(Path::new("d"), counters(10, 10));
        reading.note(Path::new("d"), counters(30, 20));
        reading.note(Path::new("d"), Err("gone".to_owned()));
        let wear = reading.wear(1, 1).expect("it was asked");
        assert_eq!((wear.error.as_str(), wear.flash_bytes_per_user_byte), ("gone", Some(2.0)));
    }
}
