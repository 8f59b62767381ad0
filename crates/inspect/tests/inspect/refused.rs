//! Paths that are no store, or only part of one, are refused with one line, as a wrong call.

use std::path::PathBuf;
use std::sync::Arc;

use esker_inspect::{InspectError, StoreView, layout_text};
use esker_log::{Identity, Superblock};

use crate::made::{make, view};

fn refusal(tiers: &[Arc<Vec<u8>>]) -> String {
    let error = view(tiers).err().expect("it is no store");
    assert!(error.is_of_the_call(), "{error}");
    let text = error.to_string();
    assert!(!text.contains('\n'), "{text}");
    text
}

#[test]
fn open_of_non_store_is_refused_in_one_line() {
    let two = make(true, true, 3).tiers;
    let one = make(false, true, 4).tiers;
    assert!(refusal(&[]).contains("no store was named"));
    assert!(refusal(&[Arc::new(vec![0; 1 << 20])]).contains("holds no store"));
    assert!(refusal(&[Arc::default()]).contains("holds no store"));
    assert!(refusal(&two[..1]).contains("--peer"));
    assert!(refusal(&[one[0].clone(), two[0].clone()]).contains("different stores"));
    assert!(refusal(&[one[0].clone(), one[0].clone()]).contains("not the two tiers"));
    assert!(view(&[two[1].clone(), two[0].clone()]).is_ok(), "the order does not matter");

    // Another format version.
    let mut newer = one[0].to_vec();
    let stride =
        Superblock::stride_bytes(view(&one).expect("a store").tiers[0].superblock.unit_bytes) as usize;
    for copy in newer[..4 * stride].chunks_mut(stride) {
        copy[12] = 9;
        let payload = u32::from_le_bytes(copy[20..24].try_into().expect("four bytes")) as usize;
        let crc = Identity { salt: 0, segment: 0, offset: 0 }.crc(&[&copy[12..24 + payload]]);
        copy[8..12].copy_from_slice(&crc.to_le_bytes());
    }
    assert!(refusal(&[Arc::new(newer)]).contains("format version 9; this program reads version 5"));

    // All copies of the superblock are lost: that is damage, not a wrong call.
    let mut gone = one[0].to_vec();
    gone[..4 * stride].chunks_mut(stride).for_each(|copy| copy[40] ^= 1);
    let error = view(&[Arc::new(gone)]).err().expect("nothing can be told of it");
    assert!(matches!(error, InspectError::Damaged(_)), "{error}");
}

#[test]
fn paths_that_lead_to_no_store_are_refused_in_one_line() {
    let directory = tempfile::tempdir().expect("a directory for the test");
    let missing = directory.path().join("missing");
    let refused = |path: PathBuf| {
        let error = StoreView::open(&[path]).err().expect("it is no store");
        assert!(error.is_of_the_call(), "{error}");
        error.to_string()
    };
    assert!(refused(missing).contains("cannot be opened"));
    assert!(refused(directory.path().to_owned()).contains("there is no data.esker in it"));
    assert!(refused("/dev/zero".into()).contains("special file"));
}

/// The layout must match `docs/format.md`: a change of either needs a change of the other.
#[test]
fn the_layout_is_that_of_the_document() {
    let document = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/format.md"));
    let document = document.expect("docs/format.md is there");
    let tables = document
        .split("<!-- tables: begin -->\n")
        .nth(1)
        .and_then(|rest| rest.split("<!-- tables: end -->").next());
    assert_eq!(tables.map(str::trim), Some(layout_text().trim()));
}
