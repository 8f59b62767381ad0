//! Forged devices with valid checksums are refused, and nothing panics.

use std::sync::Arc;

use esker::{Blocking, ErrorKind, Options};
use esker_device::{MemoryDevice, MemoryOptions};
use esker_log::Superblock;

use crate::support::opening::{make, small};

/// A forger of a superblock can also compute its checksum. Values that no store has are refused anyway.
#[test]
fn a_superblock_that_says_nonsense_is_refused() {
    let device = Arc::new(MemoryDevice::new(64 << 20));
    let on = |device: &Arc<MemoryDevice>| small(Options::devices(None, Some(device.clone())));
    make(on(&device));
    let image = device.snapshot();
    let sound = Superblock::find(&image).expect("there is one");
    assert_eq!(sound.nonsense(), None);
    type Change = fn(&mut Superblock);
    let changes: [(&str, Change); 10] = [
        ("segments of 0", |s| s.segment_bytes = 0),
        ("segments of 3", |s| s.segment_bytes = 3 << 20),
        ("segments of", |s| s.segment_bytes = 1 << 40),
        ("granules of 0", |s| s.granule_bytes = 0),
        ("granules of 1", |s| s.granule_bytes = 1),
        ("granules of 24", |s| s.granule_bytes = 24),
        ("write units of 0", |s| s.unit_bytes = 0),
        ("write units of 512", |s| s.unit_bytes = 512),
        ("its data begin", |s| s.data_offset = u64::MAX << 12),
        ("its data begin", |s| s.data_offset += 1),
    ];
    for (words, change) in changes {
        let mut changed = Superblock { generation: sound.generation + 1, ..sound.clone() };
        change(&mut changed);
        let mut bytes = image.clone();
        let encoded = changed.encode(0);
        bytes[..encoded.len()].copy_from_slice(&encoded);
        // Removes the other copies, which may lie at another stride.
        bytes[encoded.len()..4 << 20].fill(0);
        let device = Arc::new(MemoryDevice::from_bytes(MemoryOptions::new(bytes.len() as u64), &bytes));
        let error = Blocking::open(on(&device)).expect_err("it should have been refused");
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{words}: {error}");
        assert!(error.to_string().contains(words), "{words}: {error}");
    }
}
