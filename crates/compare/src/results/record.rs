//! The measurements so far, one line of JSON per step, so that an interrupted run keeps its results.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

use esker_bench::process::Usage;
use esker_bench::{Failure, Result};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::run::parse::Run;

/// One step of one engine.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Record {
    pub(crate) repetition: u64,
    pub(crate) group: String,
    pub(crate) step: String,
    pub(crate) engine: String,
    /// The command line in shell syntax.
    pub(crate) command: String,
    pub(crate) runs: Vec<Measured>,
    /// Usage of the whole process, including opening and settling.
    pub(crate) usage: Usage,
    /// Peak memory usage, page cache included.
    pub(crate) peak_bytes: Option<u64>,
    /// Peak disk usage of the engine's files in bytes.
    pub(crate) space_bytes: Option<u64>,
    /// Limit of the number of keys in the store.
    pub(crate) keys: u64,
    /// Bytes of the key and the value of one put.
    pub(crate) user_bytes_per_put: u64,
    /// Share of puts in the operations.
    pub(crate) put_share: f64,
    pub(crate) in_flight: u64,
    pub(crate) warnings: Vec<String>,
    pub(crate) failed: Option<String>,
    /// The store's own statistics at the end.
    pub(crate) store: Option<Value>,
}

/// A benchmark's result with its resource usage.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Measured {
    pub(crate) run: Run,
    pub(crate) usage: Usage,
}

impl Record {
    /// Returns the run that counts.
    pub(crate) fn counted(&self) -> Option<&Measured> {
        self.runs.last().filter(|_| self.failed.is_none())
    }
}

/// The file of records.
pub(crate) struct Records {
    pub(crate) all: Vec<Record>,
    path: PathBuf,
    file: File,
}

impl Records {
    /// Opens the file in a directory; `resume` keeps its records if they were measured with the same
    /// settings. Without `resume` the file must not exist.
    pub(crate) fn open(dir: &Path, settings: &str, resume: bool) -> Result<Records> {
        let (path, beside) = (dir.join("records.jsonl"), dir.join("settings.txt"));
        let failed = |error| Failure::failed(&path.display().to_string(), error);
        let mut all: Vec<Record> = Vec::new();
        if path.exists() {
            let text = std::fs::read_to_string(&path).map_err(failed)?;
            // The last line may be incomplete.
            all = text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
        }
        if !all.is_empty() {
            let before = std::fs::read_to_string(&beside).unwrap_or_default();
            if !resume {
                return Err(Failure::usage(format!(
                    "{} holds results; --resume goes on with them, and another --out begins anew",
                    dir.display()
                )));
            }
            if before != settings {
                return Err(Failure::usage(format!(
                    "{} was measured with other settings: {} and not {}",
                    dir.display(),
                    before.trim(),
                    settings.trim()
                )));
            }
        }
        std::fs::write(&beside, settings).map_err(failed)?;
        let file = write_anew(&path, &all)?;
        Ok(Records { all, path, file })
    }

    pub(crate) fn push(&mut self, record: Record) -> Result<()> {
        self.file
            .write_all(line(&record).as_bytes())
            .and_then(|()| self.file.sync_data())
            .map_err(|error| Failure::failed(&self.path.display().to_string(), error))?;
        self.all.push(record);
        Ok(())
    }

    /// Returns true if this step has a record without a failure.
    pub(crate) fn has(&self, repetition: u64, step: &str, engine: &str) -> bool {
        let same = |record: &Record| {
            record.repetition == repetition
                && record.step == step
                && record.engine == engine
                && record.failed.is_none()
        };
        self.all.iter().any(same)
    }

    /// Removes the records of a data set, also from the file, because it is made again.
    pub(crate) fn forget(&mut self, repetition: u64, group: &str, engine: &str) -> Result<()> {
        let before = self.all.len();
        self.all
            .retain(|r| (r.repetition, r.group.as_str(), r.engine.as_str()) != (repetition, group, engine));
        if self.all.len() < before {
            self.file = write_anew(&self.path, &self.all)?;
        }
        Ok(())
    }
}

/// Writes the file with these records alone. Returns it for appending.
fn write_anew(path: &Path, all: &[Record]) -> Result<File> {
    // After an interruption at any point, either the old or the new file exists.
    let beside = path.with_extension("new");
    let made = || {
        let mut file = File::create(&beside)?;
        file.write_all(all.iter().map(line).collect::<String>().as_bytes())?;
        file.sync_data()?;
        std::fs::rename(&beside, path)?;
        Ok(file)
    };
    made().map_err(|error: std::io::Error| Failure::failed(&path.display().to_string(), error))
}

fn line(record: &Record) -> String {
    // Serialization fails only for maps whose keys are not strings.
    serde_json::to_string(record).unwrap_or_default() + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_survive_interruption() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("records.jsonl");
        let record = |step: &str, failed: Option<&str>| Record {
            repetition: 1,
            group: "g".into(),
            step: step.into(),
            engine: "esker".into(),
            failed: failed.map(str::to_owned),
            ..Record::default()
        };
        let mut records = Records::open(dir.path(), "8g", false).expect("a file");
        records.push(record("get", None)).expect("written");
        records.push(record("put", Some("killed"))).expect("written");
        drop(records);
        // Truncated within a line.
        let text = std::fs::read_to_string(&path).expect("text");
        std::fs::write(&path, format!("{text}{{\"repetition\":2,")).expect("written");
        for (settings, resume) in [("8g", false), ("9g", true)] {
            assert!(
                matches!(Records::open(dir.path(), settings, resume), Err(Failure::Usage(_))),
                "{settings}"
            );
        }
        let mut records = Records::open(dir.path(), "8g", true).expect("a file");
        assert_eq!(records.all.len(), 2);
        assert!(
            records.has(1, "get", "esker")
                && !records.has(1, "put", "esker")
                && !records.has(2, "get", "esker")
        );
        records.forget(1, "g", "esker").expect("written");
        assert!(!records.has(1, "get", "esker"));
        records.push(record("get", None)).expect("written");
        drop(records);
        // A removed record does not reappear beside the new one.
        let records = Records::open(dir.path(), "8g", true).expect("a file");
        assert_eq!(records.all.len(), 1);
    }
}
