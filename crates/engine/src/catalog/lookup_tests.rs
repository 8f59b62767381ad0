use esker_log::FOOTER_BYTES;

use crate::base::durability::Durability;
use crate::segments::slot::SlotState;
use crate::testing::{Bench, Plan, SEGMENT_BYTES};
use crate::{Error, ErrorKind};

/// Puts keys that do not share the index slot `apart`, until one more segment is sealed.
fn fill(bench: &Bench, name: &str, apart: u64) {
    let sealed = || bench.space.first_tier().slots().count(SlotState::Sealed);
    let before = sealed();
    for number in 0.. {
        let key = format!("{name} {number}");
        if sealed() > before {
            return;
        }
        if bench.catalog.index.stored_hash(&bench.catalog.hash_in(0, key.as_bytes())) != apart {
            bench.run(bench.put(&key, &[1; 700], Durability::Sync)).expect("it is put");
        }
    }
}

/// Returns the device offset of a key's record, and of the end of its segment.
fn place(bench: &Bench, key: &str) -> (u64, u64) {
    let tier = bench.space.first_tier();
    let pointer = bench.catalog.index.get(&bench.catalog.hash_in(0, key.as_bytes())).expect("it is there");
    let location = bench.catalog.packing.unpack(pointer.get());
    bench.space.buffered.remove(tier.slot(location.slot).segment());
    let end = tier.device_offset(location.slot, SEGMENT_BYTES - FOOTER_BYTES as u32);
    (tier.device_offset(location.slot, location.offset), end + 8)
}

#[test]
fn damaged_record_is_deleted_by_its_own_key_alone() {
    let bench = Plan { hash_bits: Some(8), ..Plan::new(51) }.build();
    bench.start();
    let stored = |key: &String| bench.catalog.index.stored_hash(&bench.catalog.hash_in(0, key.as_bytes()));
    let damaged = "key 0".to_owned();
    let apart = stored(&damaged);
    let alike: Vec<String> =
        (1..).map(|number| format!("key {number}")).filter(|key| stored(key) == apart).take(2).collect();
    let [other, absent] = &alike[..] else { panic!("two were taken") };
    bench.run(bench.put(&damaged, &[2; 700], Durability::Sync)).expect("it is put");
    fill(&bench, "first", apart);
    let (record, summary) = place(&bench, &damaged);
    // The other key displaces the damaged record in the index, because the key of the damaged record cannot be
    // compared.
    bench.run(bench.put(other, &[3; 700], Durability::Sync)).expect("it is put");
    fill(&bench, "second", apart);
    let _ = place(&bench, other);
    bench.devices[0].corrupt(record, 0x55);
    bench.devices[0].corrupt(summary, 0x55);
    let kind = |deleted: Result<bool, Error>| deleted.map_err(|error| error.kind());
    assert_eq!(
        kind(bench.run(bench.delete(absent))),
        Err(ErrorKind::Corrupt),
        "nobody knows whether it is there"
    );
    let found =
        bench.run(bench.get(other)).expect("it is read").expect("another key was deleted in its place");
    assert_eq!(&found.0[..], [3; 700]);
    // If the summary identifies the record, it can be deleted.
    bench.devices[0].corrupt(summary, 0x55);
    assert_eq!(kind(bench.run(bench.delete(absent))), Ok(false));
    assert_eq!(kind(bench.run(bench.delete(&damaged))), Ok(true));
    assert_eq!(bench.run(bench.get(&damaged)).expect("it is gone"), None);
    assert!(bench.run(bench.get(other)).expect("it is read").is_some());
}
