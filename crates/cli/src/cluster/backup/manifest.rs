//! The manifest of a backup of a cluster.

use std::fmt::Write;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::inspect::show::bytes as size;
use crate::terminal::Failure;

/// Name of the file.
pub(super) const MANIFEST: &str = "manifest.json";
/// Format of the directory.
pub(super) const FORMAT: u32 = 1;
/// Longest manifest in bytes, far more than fourteen groups need.
const BYTES_MAX: u64 = 1 << 20;

/// A group of a backup.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct GroupFile {
    pub(super) group: u8,
    pub(super) file: String,
    /// Index of the group's log at which the copy is whole.
    pub(super) index: u64,
    /// First and last hash slot.
    pub(super) slots: [u16; 2],
    /// Keys that were read, and changes of the entries after them.
    pub(super) keys: u64,
    pub(super) changes: u64,
    pub(super) parts: u64,
    pub(super) bytes: u64,
    /// Time of its completion in milliseconds since the Unix epoch.
    pub(super) at_ms: u64,
}

/// The manifest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Manifest {
    pub(super) format: u32,
    /// Random number of the backup, which its files repeat.
    pub(super) backup: u64,
    /// The consistency that the indexes give together.
    pub(super) consistency: String,
    /// Time of the beginning in milliseconds since the Unix epoch: everything that was acknowledged before is in the backup.
    pub(super) began_ms: u64,
    pub(super) groups: Vec<GroupFile>,
}

/// The consistency of every backup.
pub(super) const CONSISTENCY: &str = "each group at its index; not one instant across groups";

impl Manifest {
    /// Returns the bytes of the file.
    pub(super) fn encode(&self) -> String {
        let text = serde_json::to_string(self).expect("it is plain data");
        format!("{text}\n{:08x}\n", crc32c::crc32c(text.as_bytes()))
    }

    /// Reads the manifest of a directory.
    ///
    /// # Errors
    /// If there is none, or it is damaged or of another format.
    pub(super) fn read(directory: &Path) -> Result<Manifest, Failure> {
        let path = directory.join(MANIFEST);
        let shown = path.display();
        let damaged =
            |what: &str| Failure::Failed(format!("{shown} is damaged: {what}; take another backup"));
        let length = std::fs::metadata(&path).map_err(|error| {
            Failure::Usage(format!("{} is no backup of a cluster: {shown}: {error}", directory.display()))
        })?;
        if length.len() > BYTES_MAX {
            return Err(damaged(&format!(
                "it has {} bytes, and no manifest has more than {BYTES_MAX}",
                length.len()
            )));
        }
        let read =
            std::fs::read(&path).map_err(|error| Failure::Failed(format!("cannot read {shown}: {error}")))?;
        let text = String::from_utf8(read).map_err(|_| damaged("it is no text"))?;
        let (json, sum) =
            text.split_once('\n').ok_or_else(|| damaged("the line with the checksum is missing"))?;
        if sum != format!("{:08x}\n", crc32c::crc32c(json.as_bytes())) {
            return Err(damaged("its checksum does not match"));
        }
        let manifest: Manifest = serde_json::from_str(json).map_err(|error| damaged(&error.to_string()))?;
        match manifest.format {
            FORMAT => Ok(manifest),
            other => Err(Failure::Failed(format!(
                "{shown} has the format {other}, and this program reads {FORMAT}; use a later one"
            ))),
        }
    }

    /// Returns the manifest for a user.
    pub(super) fn shown(&self, done: &str, json: bool) -> String {
        if json {
            return serde_json::to_string_pretty(self).expect("it is plain data") + "\n";
        }
        let mut text = format!(
            "{:<6} {:>13} {:>12} {:>12} {:>12} {:>10}\n",
            "group", "slots", "index", "keys", "changes", "bytes"
        );
        for of in &self.groups {
            let [first, last] = of.slots;
            let (slots, bytes) = (format!("{first}-{last}"), size(of.bytes));
            let _ = writeln!(
                text,
                "{:<6} {slots:>13} {:>12} {:>12} {:>12} {bytes:>10}",
                of.group, of.index, of.keys, of.changes
            );
        }
        let _ = writeln!(text, "{done} {} groups, {}", self.groups.len(), CONSISTENCY);
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn manifest_is_read_back_and_every_changed_byte_is_refused() {
        let group = GroupFile {
            group: 3,
            file: "group-03.esker".into(),
            index: u64::MAX,
            slots: [0, 16_383],
            keys: 1,
            changes: 2,
            parts: 3,
            bytes: 4,
            at_ms: 5,
        };
        let manifest = Manifest {
            format: FORMAT,
            backup: 9,
            consistency: CONSISTENCY.into(),
            began_ms: 1,
            groups: vec![group],
        };
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join(MANIFEST);
        assert!(Manifest::read(directory.path()).is_err(), "there is none");
        let bytes = manifest.encode().into_bytes();
        std::fs::write(&path, &bytes).unwrap();
        assert_eq!(Manifest::read(directory.path()).unwrap(), manifest);
        for at in 0..bytes.len() {
            let mut changed = bytes.clone();
            changed[at] ^= 1;
            std::fs::write(&path, &changed).unwrap();
            assert!(Manifest::read(directory.path()).is_err(), "byte {at}");
            std::fs::write(&path, &bytes[..at]).unwrap();
            assert!(Manifest::read(directory.path()).is_err(), "cut at {at}");
        }
        let later = Manifest { format: 2, ..manifest };
        std::fs::write(&path, later.encode()).unwrap();
        let Err(Failure::Failed(why)) = Manifest::read(directory.path()) else { panic!("it is read") };
        assert!(why.contains("has the format 2"), "{why}");
    }
}
