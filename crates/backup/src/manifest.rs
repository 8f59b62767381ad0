//! The manifest of a backup: a JSON file that names everything in it. Its last field is a checksum of everything before
//! it, because a rotted digit could turn the same segments into another store, or an empty one.

use std::hash::Hasher;
use std::ops::Range;
use std::path::Path;

use esker_log::{Superblock, Tier};
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};
use twox_hash::XxHash3_64;

use crate::error::{Error, Result};
use crate::summary::{Summary, Unread};

/// Manifest format that this code writes and reads. Format 1 had no checksum; no release wrote it.
pub(crate) const FORMAT: u32 = 2;

/// Text before and after the checksum, which has 16 hexadecimal digits.
const BEFORE_CHECK: &str = ",\n  \"check\": \"";
const AFTER_CHECK: &str = "\"\n}\n";
const CHECK_DIGITS: usize = 16;

/// A backup.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Manifest {
    pub(crate) format: u32,
    /// Number of the backup: 1, 2, 3 … within the directory.
    pub(crate) id: u64,
    /// Time of the backup in milliseconds since the Unix epoch.
    pub(crate) taken_at_ms: u64,
    /// Number of keys in the store.
    pub(crate) keys: u64,
    /// The superblock of each tier.
    pub(crate) superblocks: Vec<Superblock>,
    pub(crate) segments: Vec<Segment>,
}

/// A segment of a backup.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Segment {
    /// True if the segment lies on the fast tier.
    pub(crate) fast: bool,
    pub(crate) slot: u32,
    pub(crate) number: u64,
    /// File name below `segments`.
    pub(crate) file: String,
    /// Length of the file.
    pub(crate) bytes: u64,
    /// XXH3-64 of the file.
    pub(crate) check: u64,
    /// The last 64 bytes of a sealed segment, which contain a checksum of its entries, and a checksum of some of its
    /// pages, in hexadecimal.
    pub(crate) footer: Option<String>,
    /// Unreadable ranges of the segment: they are zeros.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) unread: Vec<Range<u32>>,
}

/// The fields that are checked before the rest of a manifest is decoded.
#[derive(Deserialize)]
struct Probe {
    format: Option<u64>,
    check: Option<IgnoredAny>,
}

impl Segment {
    /// Returns the tier of the segment.
    pub(crate) fn tier(&self) -> Tier {
        if self.fast { Tier::Fast } else { Tier::Capacity }
    }

    fn unread(&self) -> impl Iterator<Item = Unread> {
        self.unread.iter().map(|bytes| Unread {
            tier: self.tier(),
            segment: self.number,
            bytes: bytes.clone(),
        })
    }
}

impl Manifest {
    pub(crate) fn store_id(&self) -> Option<u128> {
        self.superblocks.first().map(|superblock| superblock.store_id)
    }

    /// Returns the superblock of a tier.
    pub(crate) fn superblock(&self, fast: bool) -> Option<&Superblock> {
        self.superblocks.iter().find(|superblock| superblock.fast == fast)
    }

    /// Returns the bytes of all segments.
    pub(crate) fn bytes(&self) -> u64 {
        self.segments.iter().map(|segment| segment.bytes).sum()
    }

    /// Returns the summary of the backup.
    pub(crate) fn summary(&self) -> Summary {
        Summary {
            id: self.id,
            taken_at_ms: self.taken_at_ms,
            keys: self.keys,
            segments: self.segments.len(),
            bytes: self.bytes(),
            unread: self.segments.iter().flat_map(Segment::unread).collect(),
        }
    }

    /// Returns the text of the file.
    pub(crate) fn encode(&self) -> String {
        let mut text = serde_json::to_string_pretty(self).expect("a manifest has nothing that JSON has not");
        // The checksum is a field like the others.
        text.truncate(text.strip_suffix("\n}").expect("it is an object").len());
        let check = check(&text);
        text + BEFORE_CHECK + &check + AFTER_CHECK
    }

    /// Decodes the text of the file at `path`.
    pub(crate) fn decode(text: &[u8], path: &Path) -> Result<Manifest> {
        let probe: Option<Probe> = serde_json::from_slice(text).ok();
        let format = probe.as_ref().and_then(|probe| probe.format);
        // The checksum is verified first, because the format field may have rotted too. A manifest without a checksum
        // field is of an older format, and refused by its number below, or damaged if it states the present format.
        let has_check = probe.is_none_or(|probe| probe.check.is_some());
        if has_check && !is_whole(text) {
            return Err(Error::damaged(path, "checksum mismatch"));
        }
        if let Some(format) = format.filter(|format| *format != u64::from(FORMAT)) {
            return Err(Error::Invalid(format!(
                "{} has format {format}; this program reads format {FORMAT}",
                path.display()
            )));
        }
        if !has_check {
            return Err(Error::damaged(path, "it has no checksum"));
        }
        let manifest: Manifest =
            serde_json::from_slice(text).map_err(|error| Error::damaged(path, error.to_string()))?;
        let is_plain = |file: &str| !file.is_empty() && !file.contains('/');
        if let Some(segment) = manifest.segments.iter().find(|segment| !is_plain(&segment.file)) {
            return Err(Error::damaged(
                path,
                format!("{:?} is not a valid name of a segment file", segment.file),
            ));
        }
        Ok(manifest)
    }
}

/// True if a text ends with the checksum of everything before it.
fn is_whole(text: &[u8]) -> bool {
    let Ok(text) = str::from_utf8(text) else { return false };
    let split = text
        .strip_suffix(AFTER_CHECK)
        .and_then(|rest| rest.split_at_checked(rest.len().checked_sub(CHECK_DIGITS)?));
    let parts = split.and_then(|(rest, digits)| Some((rest.strip_suffix(BEFORE_CHECK)?, digits)));
    parts.is_some_and(|(fields, digits)| check(fields) == digits)
}

fn check(fields: &str) -> String {
    let mut check = XxHash3_64::new();
    check.write(fields.as_bytes());
    format!("{:0CHECK_DIGITS$x}", check.finish())
}

/// Returns the name of a segment's file; for a sealed segment it is the same in every backup.
pub(crate) fn file_name(tier: Tier, number: u64, open_in: Option<u64>) -> String {
    match open_in {
        None => format!("{}-{number}.seg", tier.name()),
        Some(id) => format!("{id}-{}-{number}.seg", tier.name()),
    }
}
