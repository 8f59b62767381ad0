//! Rotten records in a segment without a summary: which records are lost with them, and which are not.

use esker_log::{Claim, SMALL_VALUE_BYTES};

use crate::scan::{FRAMES, durable, flipped, found, one_loss, scan, small, unproven};
use crate::world::{Written, name, write_values};

/// Segments whose frames up to the returned number are known to be durable, with long values and with small ones.
fn all_durable() -> Vec<(Written, bool, usize)> {
    let small_values = |durable: &dyn Fn(usize, &[u32]) -> u32| {
        write_values(small(), name(8), FRAMES, |j| [100, 0, 512][j], durable)
    };
    vec![
        (durable(), false, FRAMES - 1),
        (unproven(), true, FRAMES),
        (small_values(&|i, offsets| offsets[i]), false, FRAMES - 1),
        (small_values(&|_, _| 0), true, FRAMES),
    ]
}

/// Returns the offsets in a segment of a record's key, its value and its end.
fn parts(written: &Written, record: u32) -> (usize, usize, usize) {
    let at = record as usize;
    let claim = Claim::of(&written.bytes[at..]).expect("a record");
    let key = at + claim.header_bytes;
    (key, key + claim.key_bytes, at + claim.bytes)
}

#[test]
fn rot_of_durable_value_keeps_its_entry() {
    for (written, wholly_durable, last) in all_durable() {
        for i in 0..last {
            for &record in &written.frames[i].records {
                let (_, value, end) = parts(&written, record);
                for byte in (value..end).step_by(60).chain((value < end).then(|| end - 1)) {
                    let scan = scan(&written, &flipped(&written, byte), wholly_durable);
                    found(&written, &scan, 0..FRAMES);
                    assert!(scan.lost.is_empty());
                }
            }
        }
    }
}

/// Returns the offsets of all records.
fn all(written: &Written) -> impl Iterator<Item = u32> {
    written.frames.iter().flat_map(|frame| frame.records.iter().copied())
}

#[test]
fn rot_of_head_and_value_hides_no_key() {
    for (written, wholly_durable, _) in all_durable().into_iter().skip(2) {
        let [first, second, third] = written.frames[2].records[..] else { panic!("three records") };
        for (rotten, other) in [(first, third), (third, first)] {
            let (_, value, _) = parts(&written, rotten);
            let (key, _, end) = parts(&written, other);
            let mut bytes = written.bytes.clone();
            (bytes[value], bytes[key]) = (!bytes[value], !bytes[key]);
            let scan = scan(&written, &bytes, wholly_durable);
            let offsets: Vec<u32> = scan.entries.iter().map(|e| e.offset).collect();
            let wanted: Vec<u32> = all(&written).filter(|at| *at != other).collect();
            assert_eq!(offsets, wanted, "the one whose value is damaged is named");
            one_loss(&scan, other..(end as u32).next_multiple_of(16));
        }
        // If a length is lost too, records that still verify are kept.
        let (_, value, _) = parts(&written, first);
        let mut bytes = written.bytes.clone();
        (bytes[value], bytes[third as usize]) = (!bytes[value], 0);
        let scan = scan(&written, &bytes, wholly_durable);
        let offsets: Vec<u32> = scan.entries.iter().map(|e| e.offset).collect();
        assert_eq!(offsets, all(&written).filter(|at| *at != first && *at != third).collect::<Vec<_>>());
        assert!(offsets.contains(&second));
        one_loss(&scan, first..written.frames[2].payload_end as u32);
    }
}

#[test]
fn two_damaged_heads_are_both_distrusted() {
    for (written, wholly_durable, _) in all_durable().into_iter().skip(2) {
        let mut bytes = written.bytes.clone();
        for &record in &written.frames[2].records[..2] {
            let (key, _, _) = parts(&written, record);
            bytes[key] = !bytes[key];
        }
        let scan = scan(&written, &bytes, wholly_durable);
        let offsets: Vec<u32> = scan.entries.iter().map(|e| e.offset).collect();
        let damaged = &written.frames[2].records[..2];
        assert_eq!(offsets, all(&written).filter(|at| !damaged.contains(at)).collect::<Vec<_>>());
        one_loss(&scan, damaged[0]..written.frames[2].payload_end as u32);
    }
}

#[test]
fn rot_of_all_small_values_of_frame_keeps_entries() {
    for (written, wholly_durable, _) in all_durable().into_iter().skip(2) {
        let mut bytes = written.bytes.clone();
        for &record in &written.frames[2].records {
            let (_, value, end) = parts(&written, record);
            bytes[value..end].fill(0xee);
        }
        let scan = scan(&written, &bytes, wholly_durable);
        found(&written, &scan, 0..FRAMES);
        assert!(scan.lost.is_empty());
    }
}

#[test]
fn rot_of_record_header_loses_at_most_rest_of_frame() {
    for (written, wholly_durable, last) in all_durable() {
        for i in 0..last {
            let frame = &written.frames[i];
            for (j, &record) in frame.records.iter().enumerate() {
                let (key, value, end) = parts(&written, record);
                let key = key..value;
                let checks = value - 7 - 12..value - 7;
                for byte in record as usize..value {
                    let scan = scan(&written, &flipped(&written, byte), wholly_durable);
                    let offsets: Vec<u32> = scan.entries.iter().map(|e| e.offset).collect();
                    // A wrong checksum of a value does not affect the key.
                    if checks.contains(&byte) && scan.lost.is_empty() {
                        found(&written, &scan, 0..FRAMES);
                        continue;
                    }
                    let wanted: Vec<u32> = written
                        .frames
                        .iter()
                        .enumerate()
                        .flat_map(|(f, frame)| &frame.records[..if f == i { j } else { 3 }])
                        .copied()
                        .collect();
                    let place = format!("record {j} of frame {i}, byte {}", byte - record as usize);
                    let others: Vec<u32> = all(&written).filter(|at| *at != record).collect();
                    let is_small = end - value <= SMALL_VALUE_BYTES;
                    if is_small && offsets == others {
                        // Its padded length is unchanged. If its exact length is too, the sum of all heads identifies
                        // the damaged record.
                        let whole = record..(end as u32).next_multiple_of(16);
                        let rest = record..frame.payload_end as u32;
                        assert!(
                            scan.lost == [whole.clone()] || scan.lost == [rest],
                            "{place}: {:?}",
                            scan.lost
                        );
                        assert!(!key.contains(&byte) || scan.lost[0] == whole, "{place}");
                        continue;
                    }
                    assert!(
                        !(is_small && key.contains(&byte)),
                        "{place}: the key says nothing of the length"
                    );
                    assert_eq!(offsets, wanted, "{place}");
                    one_loss(&scan, record..frame.payload_end as u32);
                }
            }
        }
    }
}
