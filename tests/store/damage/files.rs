//! Truncated files of real stores.

use std::collections::BTreeMap;
use std::path::Path;

use esker::{Blocking, ErrorKind, Options};
use esker_simulated::Random;

use crate::damage::anatomy::Part;
use crate::damage::image::Image;
use crate::support::Tiers;
use crate::support::history::{Key, Stamp, stamp_in};

/// Returns the file name of a part.
fn name(part: Part) -> &'static str {
    match part {
        Part::Fast => "fast",
        Part::Capacity => "capacity",
        Part::Staging => "staging",
    }
}

fn options(image: &Image, dir: &Path) -> Options {
    let (fast, capacity) = (dir.join("fast"), dir.join("capacity"));
    let options = match image.config.tiers {
        Tiers::Both => Options::fast_and_capacity(fast, capacity),
        Tiers::Fast => Options::fast_only(fast),
        Tiers::Capacity => Options::capacity_only(capacity),
    };
    let mut options = options.memory_bytes(64 << 20).staging(dir.join("staging"));
    if image.config.tiers != Tiers::Capacity {
        options = options.fast_limit_bytes(image.config.tier_bytes(image.config.fast_segments));
    }
    if image.config.tiers != Tiers::Fast {
        options = options.capacity_limit_bytes(image.config.tier_bytes(image.config.capacity_segments));
    }
    options
}

/// Returns every key's state in files of which one may be cut off.
fn found_in_files(image: &Image, cut: Option<(Part, u64)>) -> esker::Result<BTreeMap<Key, Stamp>> {
    let dir = tempfile::tempdir().expect("a directory for the test");
    for (part, bytes) in image.parts() {
        let end = cut.filter(|(of, _)| *of == part).map_or(bytes.len(), |(_, end)| end as usize);
        std::fs::write(dir.path().join(name(part)), &bytes[..end]).expect("the file can be written");
    }
    let store = Blocking::open(options(image, dir.path()))?;
    let mut found = BTreeMap::new();
    for key in image.histories.keys.keys() {
        let value = match store.get(key) {
            Ok(value) => value,
            // Detected.
            Err(error) if error.kind() == ErrorKind::Corrupt => continue,
            Err(error) => return Err(error),
        };
        found.insert(key.clone(), value.map(|value| stamp_in(key, &value).expect("it was written")));
    }
    store.close()?;
    Ok(found)
}

/// Cuts the files of an image off at `cuts` offsets. Returns the silent cases.
pub(crate) fn cut_files(image: &Image, cuts: u64) -> Vec<String> {
    let expected = found_in_files(image, None).expect("a store that is not damaged opens");
    let tiers: Vec<(Part, u64)> = image
        .parts()
        .filter(|(part, _)| *part != Part::Staging)
        .map(|(part, bytes)| (part, bytes.len() as u64))
        .collect();
    let mut random = Random::new(image.number);
    let mut silent = Vec::new();
    for _ in 0..cuts {
        let (part, length) = tiers[random.below(tiers.len() as u64) as usize];
        // At least one byte stays, because a file of zero bytes is an empty device.
        let (from, to) = match random.below(6) {
            0 => (1, 4096),
            1 => (4096, 1 << 20),
            _ => (1 << 20, length),
        };
        let end = from + random.below(to - from);
        let what = match found_in_files(image, Some((part, end))) {
            Err(error) if matches!(error.kind(), ErrorKind::Corrupt | ErrorKind::Invalid) => continue,
            Err(error) => format!("{:?}: {error}", error.kind()),
            Ok(found) => {
                let wrong = found.iter().filter(|(key, stamp)| expected[*key] != **stamp).count();
                if wrong == 0 {
                    continue;
                }
                format!("{wrong} of {} keys are wrong", expected.len())
            }
        };
        silent.push(format!("{}: {} of {length} bytes of {}: {what}", image.name(), end, name(part)));
    }
    silent
}
